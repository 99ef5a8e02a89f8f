//! What the engine needs from a system for descriptors: to watch them, to report changes, and to
//! report what holds now.

use std::time::Duration;

use crate::state::facts::{AtEnd, DescriptorKind, Edge, Facts, Probe};
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// A watched descriptor, its name, and what to watch it for.
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
    /// Until a poll reports an edge of it. If something holds already, there is an edge
    /// immediately.
    Edge,
    /// Like `Edge`, except that the end of the peer's stream is no edge, unless something else
    /// holds too. For operations that only wait for room.
    Room,
    /// Until it is detached or closed.
    Detached,
}

/// The set of watched descriptors of one port. A reactor translates requests to system calls, and
/// their results to facts. Any thread may call these methods at any time.
///
/// There are two kinds of reactors. An *edge-triggered* reactor watches a descriptor from
/// [`Reactor::attach`] on. Its edge means that something has changed; [`Reactor::probe`] reports
/// what holds now. A *one-shot* reactor watches only what [`Reactor::want`] asks for. That call is
/// also a question, and the edge is its answer.
pub(crate) trait Reactor: Send + Sync {
    /// Returns the mechanism's name, for statistics and dumps.
    fn name(&self) -> &'static str;

    /// Whether the reactor is one-shot.
    fn is_one_shot(&self) -> bool;

    /// Watches `descriptor` until it is detached or closed.
    ///
    /// It is always watched for its end and for errors, and for those of [`Facts::IN`] and
    /// [`Facts::OUT`] that are `wanted`. Each change to any of these gives an [`Edge`] with `name`,
    /// and so does whatever holds now. [`Facts::URGENT`] is reported together with IN. Where the
    /// system allows it, a change that is not wanted brings no thread out of [`Reactor::poll`].
    ///
    /// Fails if the reactor already watches this descriptor, if the system cannot watch it, if it
    /// is part of the reactor, or if the system is out of memory, watches or descriptors. A failed
    /// call changes nothing.
    ///
    /// A one-shot reactor accepts the descriptor but does not watch it yet.
    fn attach(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault>;

    /// Gives `descriptor` a new `name`.
    ///
    /// The reactor already watches it under the name of a registration that has ended. It now
    /// watches it for `wanted`, and gives an edge for whatever holds now, as [`Reactor::attach`]
    /// does.
    fn adopt(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault>;

    /// Watches `descriptor`, which was attached under `name`, for `wanted` and nothing else.
    ///
    /// Gives an edge for whatever holds now. Fails if the reactor does not have the file that the
    /// number names.
    ///
    /// An edge-triggered reactor watches it until it is detached, whatever `until` says.
    fn want(
        &self,
        descriptor: Descriptor,
        name: u64,
        wanted: Facts,
        until: Until,
    ) -> Result<(), Fault>;

    /// Whether [`Reactor::want`] notices that the number names something else by now.
    ///
    /// If it does not, the engine calls [`Reactor::watches`] first, unless the descriptor cannot
    /// have been closed.
    fn notices_reuse(&self) -> bool {
        true
    }

    /// Stops watching `descriptor`. Does nothing if it is not watched.
    ///
    /// Threads may still have edges of it from earlier polls.
    fn detach(&self, descriptor: Descriptor);

    /// Whether the reactor watches what `descriptor` names *now*.
    ///
    /// False after the descriptor was closed, even if its number has been reused.
    fn watches(&self, descriptor: Descriptor) -> bool;

    /// Waits for edges and puts them into `edges`.
    ///
    /// Empties the list first, and never exceeds its capacity. Returns when there is an edge, when
    /// [`Reactor::wake`] was called, or after `timeout` (`None`: no limit). May also return
    /// earlier, for no reason. Any number of threads may be in this call, and each edge goes to one
    /// of them. Returns true if the call consumed a wake.
    ///
    /// Fails if the system refuses to report, and would continue to refuse: a temporary error is
    /// not a failure. A failed call returns no edges and loses none.
    fn poll(&self, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> Result<bool, Fault>;

    /// Makes a thread that waits in [`Reactor::poll`] return.
    ///
    /// If no thread waits, the next one that enters returns immediately. One thread may consume
    /// several wakes.
    fn wake(&self);

    /// Answers all probes as of this moment, without waiting.
    ///
    /// Makes a single system call where the system allows it. The engine does not call this on a
    /// one-shot reactor. Fails like [`Reactor::poll`], and then gives no answers.
    fn probe(&self, probes: &mut [Probe]) -> Result<(), Fault>;

    /// Whether the kernel reports changes of its own state through this file.
    ///
    /// It reports them as urgent data or as an error (`/proc/self/mounts`, for instance). An edge
    /// is the only report of such a change: a later probe reports that the file is readable, which
    /// is always so. The engine asks only about edges that may be such a report.
    fn reports_changes(&self, descriptor: Descriptor) -> bool {
        let _ = descriptor;
        false
    }

    /// Returns how many bytes can be read before the end of the stream.
    ///
    /// If there are any, another nonzero number will do. `None` where the system has no answer.
    /// Urgent data that a read skips does not count. Consumes no data and no error. The engine asks
    /// only about descriptors that are half-closed or hung up, as `end` says.
    fn unread(&self, descriptor: Descriptor, end: AtEnd) -> Option<usize>;

    /// Whether the process has shut down its reading half, and the peer has not ended the stream.
    ///
    /// False also where the system does not report this. The engine asks only about descriptors
    /// that are half-closed.
    fn is_own_end(&self, descriptor: Descriptor) -> bool;

    /// Whether a stream that has failed and is hung up was connected before.
    ///
    /// If so, the connection was reset; otherwise a connect was refused. False also where the
    /// system does not report this.
    fn was_connected(&self, descriptor: Descriptor) -> bool;

    /// Returns what kind of object `descriptor` names. The engine asks only after a hang-up.
    fn kind(&self, descriptor: Descriptor) -> DescriptorKind;

    /// Replaces the set with a new one that holds only the `live` descriptors.
    ///
    /// Each keeps its name and its wanted facts. This removes entries that survive through
    /// duplicates of closed descriptors. Whatever holds gives an edge again.
    ///
    /// Meanwhile the engine attaches, adopts and detaches nothing, and does not call
    /// [`Reactor::want`]. Threads may poll and wake; no wake may be lost. `live` calls
    /// [`Reactor::watches`].
    fn rebuild(&self, live: &mut dyn Iterator<Item = Watch>) -> Result<(), Fault>;
}
