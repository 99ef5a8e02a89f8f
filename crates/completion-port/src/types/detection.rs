//! How a port finds out that a thread blocks.

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
