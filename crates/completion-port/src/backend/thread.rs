//! What the engine asks of a system about a thread: to put it to sleep, to wake it, and to tell whether it
//! sleeps.

use std::time::Duration;

use crate::state::facts::Presence;

/// One thread that waits on a port now and then. Other threads may call these methods too, unless
/// an item says that only the thread itself does.
pub(crate) trait Thread: Send + Sync {
    /// Sleeps until [`Thread::unpark`] was called since the last sleep, or `timeout` is over (`None`: no
    /// limit). May also return before, for no reason. Only the thread itself calls it.
    fn park(&self, timeout: Option<Duration>);

    /// Ends the thread's present `park`, or its next one.
    fn unpark(&self);

    /// The system's number of the thread, for people who look at it from outside; `None` if it has none.
    fn number(&self) -> Option<u64> {
        None
    }

    /// Gets hold of what [`Thread::asleep`] needs (a descriptor, for instance), while the system still gives
    /// it. Only the thread itself calls it.
    fn prepare(&self) {}

    /// Whether the thread sleeps in the kernel at this moment, for whatever reason, or has ended;
    /// `None` if the system does not tell. A thread that was preempted does not sleep.
    fn asleep(&self) -> Option<bool>;

    /// How long processors have run the thread so far; `None` if the system does not tell. It grows
    /// while the thread runs, and only then. To ask for it is much cheaper than [`Thread::asleep`];
    /// a system in which it is not has nothing to tell here.
    fn processor_time(&self) -> Option<Duration> {
        None
    }

    /// Starts the record of the thread's sleeps: [`Thread::read_record`] has an answer as soon as
    /// the thread has been switched in or out once. False if the system does not allow it, now or
    /// ever. Once a call has returned true, further calls have no effect.
    fn observe(&self) -> bool;

    /// Whether the thread sleeps, as its record says. Makes no system call. `None` if that is not
    /// known.
    fn read_record(&self) -> Option<Presence>;
}
