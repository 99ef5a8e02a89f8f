//! The seam between the engine and a system: everything the engine asks of a kernel, item by item.
//!
//! A back end only translates: requests to system calls, results to [`Facts`]. It takes no decision
//! about packets, keys or threads. The trait names no type of any system, so that the engine can be
//! run on the simulated kernel and under a model checker.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub(crate) use crate::state::facts::{Descriptor, Edge, Facts, Fault, Kind, Presence, Probe};
use crate::state::table::Descriptors;

/// Everything the engine asks of a system.
pub(crate) trait Backend: Send + Sync {
    /// The mechanism's name, for statistics and dumps.
    fn name(&self) -> &'static str;

    /// The table of descriptor numbers of the kernel behind this back end: which port holds which.
    fn descriptors(&self) -> &Descriptors;

    /// Watches `descriptor` until it is detached or closed. Every change to readable, writable,
    /// half-closed, hung-up or failed gives an [`Edge`] with `token`, and so does what holds now.
    /// Refused if the set has this descriptor already, if the system cannot watch it or it is part of the
    /// back end itself, or for want of memory, watches or descriptors; nothing has changed then.
    fn attach(&self, descriptor: Descriptor, token: u64) -> Result<(), Fault>;

    /// Watches `descriptor`, which the set has already under a token of a registration that has ended,
    /// with this `token` from now on. Gives an edge for what holds now, as [`Backend::attach`] does.
    fn adopt(&self, descriptor: Descriptor, token: u64) -> Result<(), Fault>;

    /// Stops watching `descriptor`; no harm if it is not watched. Edges that were harvested before
    /// may still be on their way.
    fn detach(&self, descriptor: Descriptor);

    /// Whether what `descriptor` names *now* is watched by this set. False after the descriptor was
    /// closed, also if its number has been given out again.
    fn watches(&self, descriptor: Descriptor) -> bool;

    /// Over how many sets the descriptors are spread, so that several threads can harvest at once: a
    /// power of two, at most 64. Descriptor `d` is in set `d` modulo that number.
    fn sets(&self) -> usize;

    /// Puts the edges of one set into `edges`, which it empties first and never lets grow. If there is
    /// only one set, any number of threads may be here; each edge goes to one of them. It waits until
    /// there is an edge, [`Backend::wake`] was called, `timeout` is over (`None`: no limit) or the system
    /// feels like returning. If there are several sets, one thread at a time asks for each, and
    /// `timeout` is zero. True if a wake has been used up.
    fn harvest(&self, set: usize, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> bool;

    /// Waits, in the same way, until some of several sets have edges, and says which: bit `n` for set
    /// `n`. Not called if there is only one set.
    fn doze(&self, timeout: Option<Duration>) -> u64;

    /// Makes a thread that waits in [`Backend::harvest`] or [`Backend::doze`] return, or the next one
    /// that enters it. Several calls may be used up by one thread at once.
    fn wake(&self);

    /// Answers all probes at this moment, by one system call, without waiting.
    fn probe(&self, probes: &mut [Probe]);

    /// How many bytes can be read before the end of the stream; `None` where the system has no
    /// answer. Asked only of descriptors that are half-closed or hung up.
    fn unread(&self, descriptor: Descriptor) -> Option<usize>;

    /// Whether the process itself has shut its reading half, and the peer has not ended the stream. False
    /// also where the system does not tell. Asked only of descriptors that are half-closed.
    fn is_own_end(&self, descriptor: Descriptor) -> bool;

    /// What kind of object it is. Asked only about a hang-up.
    fn kind(&self, descriptor: Descriptor) -> Kind;

    /// Replaces every set by a new one that has just its part of `live`, and so gets rid of what lives
    /// on through duplicates of closed descriptors. Gives an edge again for whatever holds.
    fn rebuild(&self, live: &mut dyn Iterator<Item = (Descriptor, u64)>) -> Result<(), Fault>;

    /// The time since some fixed moment, on a clock that does not go back.
    fn now(&self) -> Duration;

    /// The calling thread, as something that can be parked, unparked and looked at.
    fn this_thread(&self) -> Box<dyn ThreadHandle>;

    /// Whether [`ThreadHandle::observe`] works here; why not, otherwise.
    fn can_observe(&self) -> Result<(), Fault>;

    /// The process that made the back end.
    fn origin(&self) -> Origin;
}

/// A process, to be told from those that are forked from it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// A word that is another one in a forked child, and what it was: known by a look.
    Marked(&'static AtomicUsize, usize),
    /// The process's number, for which the system is asked each time.
    #[cfg_attr(not(feature = "sim"), allow(dead_code, reason = "for the simulated kernel"))]
    Numbered(u32),
}

impl Origin {
    /// The process that runs, by its number.
    #[cfg_attr(not(feature = "sim"), allow(dead_code, reason = "for the simulated kernel"))]
    pub(crate) fn by_number() -> Self {
        Self::Numbered(std::process::id())
    }

    /// Whether the process that runs is a forked child of this one.
    #[inline]
    pub(crate) fn is_left(self) -> bool {
        match self {
            Self::Marked(mark, was) => mark.load(Relaxed) != was,
            Self::Numbered(number) => std::process::id() != number,
        }
    }
}

/// One thread that waits on a port now and then.
pub(crate) trait ThreadHandle: Send + Sync {
    /// Sleeps until [`ThreadHandle::unpark`] was called since the last one, or `timeout` is over
    /// (`None`: no limit), or for no reason. Only the thread itself calls it.
    fn park(&self, timeout: Option<Duration>);

    /// The same, until the back end's clock shows `until`, which [`ThreadHandle::postpone`] may move, or
    /// `last` (`None`: for as long as others move it).
    fn nap(&self, until: Duration, last: Option<Duration>);

    /// Moves the end of the thread's present `nap` to `until`, but not beyond its `last`. No effect on a
    /// thread that is not in one or is being unparked, nor where the system has no means for it: who naps
    /// may always come back early.
    fn postpone(&self, until: Duration);

    /// Ends the thread's present `park` or `nap`, or its next one.
    fn unpark(&self);

    /// Gets hold of what [`ThreadHandle::asleep`] needs, which may not be had any more by the time that it
    /// is asked. Only the thread itself calls it.
    fn prepare(&self) {}

    /// Whether the thread sleeps in the kernel at this moment, for whatever reason, or has ended;
    /// `None` if the system does not tell. A thread that was preempted does not sleep.
    fn asleep(&self) -> Option<bool>;

    /// From now on [`ThreadHandle::glance`] has an answer, as soon as the thread has been switched in
    /// or out once. False if the system does not let it, now or ever. Any thread may call it; once it
    /// has returned true it has no further effect.
    fn observe(&self) -> bool;

    /// Whether the thread sleeps, without asking the system; `None` if it is not known.
    fn glance(&self) -> Option<Presence>;
}
