//! What the engine asks of a system about a thread: to put it to sleep, to wake it, and to tell whether it
//! sleeps.

use std::time::Duration;

use crate::state::facts::Presence;
use crate::state::moment::Moment;

/// One thread that waits on a port now and then. Other threads call it as well, unless an item says that
/// only the thread itself does.
pub(crate) trait Thread: Send + Sync {
    /// Sleeps until [`Thread::unpark`] was called since the last sleep, or `timeout` is over (`None`: no
    /// limit). May also return before, for no reason. Only the thread itself calls it.
    fn park(&self, timeout: Option<Duration>);

    /// Sleeps likewise until the host's clock shows `until`. Other threads may move `until` by
    /// [`Thread::postpone`], but not beyond `last` (`None`: without a limit). Only the thread itself calls
    /// it.
    fn nap(&self, until: Moment, last: Option<Moment>);

    /// Moves the end of the thread's present nap to `until`, but not beyond its `last`. Has no effect if the
    /// thread is not in a nap or is being unparked. A system that has no means for it does nothing: a nap
    /// may always end early.
    fn postpone(&self, until: Moment);

    /// Ends the thread's present `park` or `nap`, or its next one.
    fn unpark(&self);

    /// Gets hold of what [`Thread::asleep`] needs (a descriptor, for instance), while the system still gives
    /// it. Only the thread itself calls it.
    fn prepare(&self) {}

    /// Whether the thread sleeps in the kernel at this moment, for whatever reason, or has ended;
    /// `None` if the system does not tell. A thread that was preempted does not sleep.
    fn asleep(&self) -> Option<bool>;

    /// Makes [`Thread::glance`] have an answer, as soon as the thread has been switched in or out once. False
    /// if the system does not allow it, now or ever. Once a call has returned true, further calls have no
    /// effect.
    fn observe(&self) -> bool;

    /// Whether the thread sleeps, without a system call; `None` if that is not known.
    fn glance(&self) -> Option<Presence>;
}
