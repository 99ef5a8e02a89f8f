//! What the engine asks of a system about descriptors: to watch them, to report what has changed, and to
//! answer what holds now.

use std::time::Duration;

use crate::state::facts::{Descriptor, Edge, Fault, Kind, Probe};

/// The sets of watched descriptors of one port. A reactor translates requests to system calls, and their
/// results to facts; any thread may call it at any time.
pub(crate) trait Reactor: Send + Sync {
    /// The mechanism's name, for statistics and dumps.
    fn name(&self) -> &'static str;

    /// Watches `descriptor` until it is detached or closed. Every change to readable, writable,
    /// half-closed, hung-up or failed gives an [`Edge`] with `token`, and so does what holds now.
    /// Refused if the reactor watches this descriptor already, if the system cannot watch it, if it is a
    /// part of the reactor itself, or for want of memory, watches or descriptors. A refused call has changed
    /// nothing.
    fn attach(&self, descriptor: Descriptor, token: u64) -> Result<(), Fault>;

    /// Gives `descriptor` a new `token`. The reactor watches it already, under the token of a registration
    /// that has ended. Gives an edge for what holds now, as [`Reactor::attach`] does.
    fn adopt(&self, descriptor: Descriptor, token: u64) -> Result<(), Fault>;

    /// Stops watching `descriptor`. Has no effect on a descriptor that is not watched. Edges that were
    /// harvested before may still be on their way.
    fn detach(&self, descriptor: Descriptor);

    /// Whether the reactor watches what `descriptor` names *now*. False after the descriptor was closed,
    /// also if its number has been given out again.
    fn watches(&self, descriptor: Descriptor) -> bool;

    /// Over how many sets the descriptors are spread, so that several threads can harvest at once: a
    /// power of two, at most 64, and always the same. Descriptor `d` is in set `d` modulo that number.
    fn sets(&self) -> usize;

    /// Puts the edges of one set into `edges`. The list is emptied first, and never grows beyond its
    /// capacity.
    ///
    /// The call waits until there is an edge, [`Reactor::wake`] was called or `timeout` is over (`None`: no
    /// limit). It may also return before, for no reason. If there is only one set, any number of threads
    /// may be in this call, and each edge goes to one of them. If there are several sets, one thread at a
    /// time calls it for each set, and `timeout` is zero. True if the call has used up a wake.
    fn harvest(&self, set: usize, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> bool;

    /// Waits, in the same way, until some of several sets have edges, and says which sets: bit `n` stands
    /// for set `n`. Not called if there is only one set.
    fn doze(&self, timeout: Option<Duration>) -> u64;

    /// Makes a thread that waits in [`Reactor::harvest`] or [`Reactor::doze`] return. If no thread waits,
    /// the next one that enters returns at once. One thread may use up several calls.
    fn wake(&self);

    /// Answers all probes as of this moment, without waiting, and by one system call where the system
    /// allows it.
    fn probe(&self, probes: &mut [Probe]);

    /// How many bytes can be read before the end of the stream; `None` where the system has no
    /// answer. The engine asks it only about descriptors that are half-closed or hung up.
    fn unread(&self, descriptor: Descriptor) -> Option<usize>;

    /// Whether the process itself has shut its reading half, and the peer has not ended the stream. False
    /// also where the system does not tell. The engine asks it only about descriptors that are half-closed.
    fn is_own_end(&self, descriptor: Descriptor) -> bool;

    /// What kind of object `descriptor` names. The engine asks it only about a hang-up.
    fn kind(&self, descriptor: Descriptor) -> Kind;

    /// Replaces every set by a new one that holds just its part of `live`. This gets rid of what lives on
    /// through duplicates of closed descriptors. Gives an edge again for whatever holds.
    ///
    /// The engine attaches, adopts and detaches nothing meanwhile. Threads may harvest and wake; no wake may
    /// be lost. `live` calls [`Reactor::watches`].
    fn rebuild(&self, live: &mut dyn Iterator<Item = (Descriptor, u64)>) -> Result<(), Fault>;
}
