//! Settings of a port: methods of the system, and a hook of the program.

use std::fmt;
use std::sync::Arc;

/// How a port detects that a running thread sleeps in the kernel: on a lock, in a blocking read, on
/// a page that is not in memory.
///
/// Such a thread does not count against the concurrency value, and another one takes its place.
/// With every setting, [`Port::blocking`](crate::Port::blocking) and the library's own blocking
/// calls announce themselves immediately. A thread that was preempted or that spins counts as
/// running.
///
/// # Platform notes
///
/// On Linux [`Switches`](Self::Switches) uses
/// [perf_event_open(2)](https://man7.org/linux/man-pages/man2/perf_event_open.2.html) on threads of
/// the process itself. It needs kernel 4.17 or later, `/proc/sys/kernel/perf_event_paranoid` at
/// most 2, and a sandbox that allows the call. For each observed thread it maps 8 KiB, and each
/// sleep of that thread takes about a microsecond longer.
///
/// [`Tick`](Self::Tick) reads `/proc/self/task/TID/stat`; without `/proc` it detects nothing. A
/// query takes about three microseconds, or less than half a microsecond if the thread's
/// processor-time clock gives the answer.
///
/// On Windows, NetBSD and OpenBSD the system does not report sleeping threads. There,
/// [`Tick`](Self::Tick) is accepted but detects nothing: a blocking handler must announce it with
/// [`Port::blocking`](crate::Port::blocking).
///
/// # Examples
///
/// ```
/// use completion_port::{BlockDetection, Port};
///
/// let port = Port::builder().block_detection(BlockDetection::Tick).build::<(), ()>()?;
/// assert_eq!(port.stats().block_detection, BlockDetection::Tick);
/// # Ok::<(), completion_port::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockDetection {
    /// The best method the system offers. For threads that have been seen to block this is
    /// [`Switches`](Self::Switches) if the system has it, and [`Tick`](Self::Tick) otherwise.
    /// Threads that never block cost nothing.
    #[default]
    Automatic,
    /// Only announcements. A handler that blocks without one keeps its place.
    Announced,
    /// The scheduler's own records of when each thread is switched out, and whether it was
    /// preempted or went to sleep. They are in memory that can be read without a system call. Each
    /// thread is observed from its first wait on. The watchdog and threads that come to the port
    /// read the records.
    Switches,
    /// While packets wait, the watchdog asks the system about each thread that has made no progress
    /// since the last scan, a quarter of a millisecond to a millisecond ago. While it finds
    /// sleeping threads, it scans up to every 75 microseconds, and so do threads that come to the
    /// port.
    Tick,
}

/// How a port performs operations on files that cannot complete immediately, because they have to
/// wait for a disk.
///
/// With every setting, a read immediately takes the bytes that the system has in memory. The port
/// starts the ring or the threads when an operation first needs them. A port without such
/// operations has neither.
///
/// On files on a disk, whose operations always end, a ring performs 256 operations simultaneously,
/// and threads eight. Operations that may never end, such as a read from a pipe that nobody writes
/// to, have a separate limit: 240 in a ring, or eight threads. Once that many are in progress, no
/// other one of that kind begins, on any file; those on disks continue. It is better to register
/// pipes and terminals, and to read them when they are ready.
///
/// # Platform notes
///
/// On Linux [`Ring`](Self::Ring) uses
/// [io_uring(7)](https://man7.org/linux/man-pages/man7/io_uring.7.html). It needs kernel 5.6 or
/// later, unless the administrator has forbidden it (`/proc/sys/kernel/io_uring_disabled`) or the
/// sandbox does, as those of containers often do.
///
/// On Windows `Ring` is the same as [`Automatic`](Self::Automatic): overlapped reads and writes on
/// the file, which the port opens once more for them. If the system refuses that, and with
/// [`Threads`](Self::Threads), a thread waits for each operation. No operation completes
/// immediately on Windows.
///
/// # Examples
///
/// ```
/// use completion_port::{FileEngine, Port};
///
/// let port: Port<std::fs::File> = Port::builder().file_engine(FileEngine::Threads).build()?;
/// assert_eq!(port.stats().file_engine, "none"); // nothing has needed one
/// # Ok::<(), completion_port::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileEngine {
    /// The best method the system offers: [`Ring`](Self::Ring), and otherwise
    /// [`Threads`](Self::Threads).
    #[default]
    Automatic,
    /// The system's own queue of operations, served by a dedicated thread of the port.
    Ring,
    /// A few threads of the port, each of which performs one operation at a time: at most eight for
    /// files on disks, and at most eight for other files.
    Threads,
}

/// How the system reports to a port that sockets are ready, if it has more than one way.
///
/// # Platform notes
///
/// Windows has two: [`Polls`](Self::Polls), the default, on every version, and
/// [`Notifications`](Self::Notifications) from build 20348 on. Other systems have only one, and
/// refuse both names.
///
/// # Examples
///
/// ```
/// use completion_port::{ErrorKind, Port, Readiness};
///
/// match Port::builder().readiness(Readiness::Polls).build::<(), ()>() {
///     Ok(port) => assert_eq!(port.stats().backend, "afd"),
///     Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported), // not on Windows
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Readiness {
    /// The default of the system. On Windows this is [`Polls`](Self::Polls).
    #[default]
    Automatic,
    /// The socket notifications of Windows (`ProcessSocketNotifications`), with the back end
    /// `notifications`. It was tested on a simulated kernel, and under Wine with another
    /// implementation of the call, but never on Windows itself.
    Notifications,
    /// Polls of the Windows socket driver, with the back end `afd`.
    Polls,
}

/// What the program runs when no thread waits.
#[derive(Clone)]
pub(crate) struct IdleHook(Arc<dyn Fn() + Send + Sync>);

impl IdleHook {
    pub(crate) fn new(hook: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }

    pub(crate) fn run(&self) {
        (self.0)();
    }
}

impl fmt::Debug for IdleHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdleHook")
    }
}
