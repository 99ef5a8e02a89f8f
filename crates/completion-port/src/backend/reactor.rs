//! What the engine asks of a system about descriptors: to watch them, to report what has changed, and to
//! answer what holds now.

use std::time::Duration;

use crate::state::facts::{AtEnd, DescriptorKind, Edge, Facts, Probe};
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// A watched descriptor, its name, and what it is watched for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) descriptor: Descriptor,
    pub(crate) name: u64,
    pub(crate) wanted: Facts,
    #[allow(dead_code, reason = "for one-shot reactors")]
    pub(crate) until: Until,
}

/// How long a descriptor is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until a poll brings an edge of it. There is one at once if something holds.
    Edge,
    /// The same, but that the peer has ended the stream is no edge, if nothing else holds: for what waits for
    /// room alone.
    Room,
    /// Until it is detached or closed.
    Detached,
}

/// The set of watched descriptors of one port. A reactor translates requests to system calls, and their
/// results to facts; any thread may call it at any time.
///
/// There are two shapes of reactors. An *edge-triggered* reactor watches a descriptor from
/// [`Reactor::attach`] on. Its edge says that something has changed; what holds now, a
/// [`Reactor::probe`] tells. A *one-shot* reactor watches nothing but what [`Reactor::want`] asks
/// for. That call is a question too, and the edge is its answer.
pub(crate) trait Reactor: Send + Sync {
    /// The mechanism's name, for statistics and dumps.
    fn name(&self) -> &'static str;

    /// Whether the reactor is one-shot.
    fn is_one_shot(&self) -> bool;

    /// Watches `descriptor` until it is detached or closed: always for its end and for errors, and
    /// for those of [`Facts::IN`] and [`Facts::OUT`] that are `wanted`. Every change to any of
    /// these gives an [`Edge`] with `name`, and so does what holds now. [`Facts::URGENT`] is
    /// reported together with IN. As far as the system allows, a change that is not wanted brings
    /// no thread out of [`Reactor::poll`].
    ///
    /// Refused if the reactor watches this descriptor already, if the system cannot watch it, if it
    /// is a part of the reactor itself, or if the system is out of memory, watches or descriptors.
    /// A refused call has changed nothing.
    ///
    /// A one-shot reactor takes the descriptor in, and does not watch it yet.
    fn attach(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault>;

    /// Gives `descriptor` a new `name`. The reactor watches it already, under the name of a registration
    /// that has ended. Watches it for what is `wanted`, and gives an edge for what holds now, as
    /// [`Reactor::attach`] does.
    fn adopt(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault>;

    /// Watches `descriptor`, which has been attached under `name`, for what is `wanted` from now on, and no
    /// longer for what was wanted before. Gives an edge for what holds now. Refused if the reactor does not
    /// have what the number names.
    ///
    /// An edge-triggered reactor watches it until it is detached, whatever `until` says.
    fn want(
        &self,
        descriptor: Descriptor,
        name: u64,
        wanted: Facts,
        until: Until,
    ) -> Result<(), Fault>;

    /// Whether [`Reactor::want`] finds out by itself that the number names something else by now. If it does not,
    /// the engine calls [`Reactor::watches`] first, unless the descriptor cannot have been closed.
    fn notices_reuse(&self) -> bool {
        true
    }

    /// Stops watching `descriptor`. Has no effect on a descriptor that is not watched. Threads may
    /// still have edges of it from earlier polls.
    fn detach(&self, descriptor: Descriptor);

    /// Whether the reactor watches what `descriptor` names *now*. False after the descriptor was closed,
    /// also if its number has been given out again.
    fn watches(&self, descriptor: Descriptor) -> bool;

    /// Puts edges into `edges`. Empties the list first, and never exceeds its capacity.
    ///
    /// The call waits until there is an edge, [`Reactor::wake`] was called or `timeout` is over
    /// (`None`: no limit). It may also return earlier, for no reason. Any number of threads may be in
    /// this call, and each edge goes to one of them. Returns true if the call has used up a wake.
    ///
    /// Fails if the system refuses to tell, and would continue to do so: an error that passes is no failure. There are no
    /// edges then, and none is lost by it.
    fn poll(&self, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> Result<bool, Fault>;

    /// Makes a thread that waits in [`Reactor::poll`] return. If no thread waits, the next one that enters returns at once. One thread may use up several calls.
    fn wake(&self);

    /// Answers all probes as of this moment, without waiting, and by one system call where the
    /// system allows it. The engine does not call it on a one-shot reactor. Fails as
    /// [`Reactor::poll`] does; there are no answers then.
    fn probe(&self, probes: &mut [Probe]) -> Result<(), Fault>;

    /// Whether `descriptor` names a file by which the kernel reports changes of its own state, as urgent data or as an
    /// error (`/proc/self/mounts`, for instance). An edge is the only report of such a change: a later question reports
    /// that the file can be read, which always holds. The engine asks it only about edges that may be such a report.
    fn reports_changes(&self, descriptor: Descriptor) -> bool {
        let _ = descriptor;
        false
    }

    /// How many bytes can be read before the end of the stream, or some number other than 0 if there are any; `None` where
    /// the system has no answer. Urgent data that a read leaves out is none. Takes nothing, and no error either. The
    /// engine asks it only about descriptors that are half-closed or hung up, as `end` says.
    fn unread(&self, descriptor: Descriptor, end: AtEnd) -> Option<usize>;

    /// Whether the process itself has shut its reading half, and the peer has not ended the stream. False
    /// also where the system does not tell. The engine asks it only about descriptors that are half-closed.
    fn is_own_end(&self, descriptor: Descriptor) -> bool;

    /// Whether a stream that has failed and is hung up was connected before: then the connection
    /// was reset, and it was not a connect that was refused. False also where the system does not
    /// tell.
    fn was_connected(&self, descriptor: Descriptor) -> bool;

    /// What kind of object `descriptor` names. The engine asks it only about a hang-up.
    fn kind(&self, descriptor: Descriptor) -> DescriptorKind;

    /// Replaces the set by a new one that holds only the `live` descriptors, each with its name and
    /// its wanted facts. This gets rid of entries that live on through duplicates of
    /// closed descriptors. Whatever holds gives an edge again.
    ///
    /// The engine attaches, adopts, detaches and wants nothing meanwhile. Threads may poll and wake; no wake may
    /// be lost. `live` calls [`Reactor::watches`].
    fn rebuild(&self, live: &mut dyn Iterator<Item = Watch>) -> Result<(), Fault>;
}
