//! What the engine needs from a system for a thread: to put it to sleep, to wake it, and to find
//! out whether it sleeps.

use std::time::Duration;

use crate::state::facts::Presence;

/// A thread that waits on a port now and then. Other threads may call these methods too, unless an
/// item is reserved for the thread itself.
pub(crate) trait Thread: Send + Sync {
    /// Sleeps until [`Thread::unpark`] is called, or for at most `timeout` (`None`: no limit).
    ///
    /// Returns immediately if it was called since the last sleep. May also return early, for no
    /// reason. Only the thread itself calls it.
    fn park(&self, timeout: Option<Duration>);

    /// Ends the thread's current `park`, or its next one.
    fn unpark(&self);

    /// Returns the system's id of the thread, for people who inspect it from outside.
    ///
    /// `None` if it has none.
    fn number(&self) -> Option<u64> {
        None
    }

    /// Acquires what [`Thread::asleep`] needs, such as a descriptor, while it is available.
    ///
    /// Only the thread itself calls it.
    fn prepare(&self) {}

    /// Whether the thread sleeps in the kernel now, for any reason, or has ended.
    ///
    /// `None` if the system does not report this. A preempted thread does not sleep.
    fn asleep(&self) -> Option<bool>;

    /// Returns how long processors have run the thread so far.
    ///
    /// `None` if the system does not report this. The time grows while the thread runs, and only
    /// then. A call is much cheaper than [`Thread::asleep`]; a system where it is not returns
    /// `None`.
    fn processor_time(&self) -> Option<Duration> {
        None
    }

    /// Starts to record the thread's sleeps.
    ///
    /// [`Thread::read_record`] has an answer once the thread has been switched in or out. False if
    /// the system does not allow it, now or ever. After a call has returned true, further calls
    /// have no effect.
    fn observe(&self) -> bool;

    /// Whether the thread sleeps, according to its record.
    ///
    /// Makes no system call. `None` if that is not known.
    fn read_record(&self) -> Option<Presence>;
}
