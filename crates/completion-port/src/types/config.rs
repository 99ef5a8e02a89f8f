//! Settings of a port that choose between methods of the system.

/// How a port finds out that a running thread sleeps in the kernel for a reason of its own: on a
/// lock, in a blocking read, on a page that is not in memory.
///
/// Such a thread does not count against the concurrency value, and another one takes its place.
/// Whatever is chosen, [`Port::blocking`](crate::Port::blocking) and the library's own calls that
/// block say so themselves, at once. A thread that was preempted or that spins counts as running.
///
/// # Platform notes
///
/// On Linux [`Switches`](Self::Switches) uses
/// [perf_event_open(2)](https://man7.org/linux/man-pages/man2/perf_event_open.2.html) on threads of
/// the process itself: kernel 4.17 or later, `/proc/sys/kernel/perf_event_paranoid` at most 2, and
/// a sandbox that allows it. For each observed thread 8 KiB are mapped, and each sleep of that
/// thread costs about a microsecond more.
///
/// [`Tick`](Self::Tick) reads `/proc/self/task/TID/stat`; without `/proc` it finds nothing. A
/// question costs about three microseconds, and less than half of one if the clock of the thread's
/// processor time tells.
///
/// On Windows, NetBSD and OpenBSD the system does not report sleeping threads. There
/// [`Tick`](Self::Tick) is accepted and detects nothing: a handler that blocks has to announce it
/// with [`Port::blocking`](crate::Port::blocking).
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
    /// The best that the system offers. For threads that have been seen to block this is
    /// [`Switches`](Self::Switches), if the system has it; otherwise it is [`Tick`](Self::Tick).
    /// Threads that never block cost nothing.
    #[default]
    Automatic,
    /// Only what threads say themselves. A handler that blocks without saying so keeps its place.
    Announced,
    /// The scheduler's own records of when each thread is switched out, and whether it was
    /// preempted or went to sleep, in memory that can be read without a call. Each thread is
    /// observed from its first wait on. Threads that come to the port read the records, and so does
    /// the watchdog.
    Switches,
    /// While packets wait, the watchdog asks the system about each thread that has made no progress
    /// since its last look, a quarter of a millisecond to a whole one ago. As long as threads are found
    /// asleep, it looks up to every 75 microseconds, and so do threads that come to the port.
    Tick,
}

/// How a port does those operations on files that cannot be done at once: what has to wait for a disk.
///
/// What the system has in its memory a read takes at once, whatever is chosen. The rest is started when
/// the first operation needs it: a port that has done no such operation has neither a ring nor a thread
/// for it.
///
/// A ring has 256 operations under way at once, threads have eight: of those on what is on a disk, which end by themselves.
/// What may not end, such as a read of a pipe into which nobody writes, has places of its own, 240 in a ring and eight
/// threads. With so many of them no other one of that kind is begun, whatever its file is; those on disks go on. Pipes and
/// terminals are better registered, and read when they are ready.
///
/// # Platform notes
///
/// On Linux [`Ring`](Self::Ring) uses [io_uring(7)](https://man7.org/linux/man-pages/man7/io_uring.7.html):
/// kernel 5.6 or later, unless the administrator has forbidden it
/// (`/proc/sys/kernel/io_uring_disabled`) or the sandbox does, as those of containers often do.
///
/// On Windows `Ring` is the same as [`Automatic`](Self::Automatic): overlapped reads and writes, of the file opened once more for them. Where that is
/// refused, and with [`Threads`](Self::Threads), a thread waits for each operation. Nothing is done at once there.
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
    /// The best that the system offers: [`Ring`](Self::Ring), and otherwise [`Threads`](Self::Threads).
    #[default]
    Automatic,
    /// The system's own queue of operations, which one thread of the port has to itself.
    Ring,
    /// A few threads of the port, each of which does one operation at a time: at most eight for what is on disks, and as
    /// many for what is not.
    Threads,
}

/// How the system tells a port that sockets are ready, where it has more than one way.
///
/// # Platform notes
///
/// Windows has two: [`Polls`](Self::Polls), the default, on every version, and
/// [`Notifications`](Self::Notifications) from build 20348 on. Other systems have one each, and
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
    /// The socket notifications of Windows (`ProcessSocketNotifications`): the back end `notifications`.
    /// It was tested on a simulated kernel, and under Wine on another implementation of the call, but
    /// never on Windows itself.
    Notifications,
    /// Polls of the driver of sockets of Windows: the back end `afd`.
    Polls,
}
