//! What a port reports about itself and its threads.

use std::time::Duration;

use super::Workers;
use crate::engine::context::{Name, name_of, name_parts};
use crate::engine::queue::{Hub, WorkerEntry};
use crate::engine::worker::{PacketTally, Worker};
use crate::state::queue::{POSTED, is_op};
use crate::state::schedule::{Figures, Status, WorkerNumber};
use crate::sync::MutexGuard;

/// The statistics of a port.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) registered: usize,
    pub(crate) queued: usize,
    pub(crate) threads: Figures,
    pub(crate) polls: u64,
    pub(crate) empty_polls: u64,
    pub(crate) rebuilds: u64,
    pub(crate) packets: PacketTally,
}

/// What is reported about one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadSnapshot {
    pub(crate) worker: WorkerNumber,
    pub(crate) system_number: Option<u64>,
    pub(crate) status: Status,
    pub(crate) packets: PacketTally,
    pub(crate) wakes: u64,
    pub(crate) blocks_found: u64,
    /// The registration whose packet the thread took last, and for how long, at least, it has been
    /// in user code with its last packet.
    pub(crate) handling: Option<Name>,
    pub(crate) handling_for: Duration,
}

impl Workers {
    pub(crate) fn snapshot(&self) -> Snapshot {
        if self.forked() {
            return Snapshot::default();
        }
        let hub = self.lock_and_requery();
        let (schedule, lists) = hub.parts();
        let (polls, empty_polls) = lists.polls();
        Snapshot {
            registered: lists.registered(),
            queued: lists.ready().len() + lists.recheck().len(),
            polls,
            empty_polls,
            rebuilds: lists.replacements(),
            packets: lists.entries().packets(),
            threads: schedule.figures(),
        }
    }

    pub(crate) fn threads(&self) -> Vec<ThreadSnapshot> {
        if self.forked() {
            return Vec::new();
        }
        let mut hub = self.lock_and_requery();
        let (schedule, lists) = hub.parts_mut();
        let now = self.backend().now();
        let snapshot = |entry: &mut WorkerEntry| {
            let since = entry.notice(now);
            let status = schedule.workers().status(entry.worker().number());
            let handles = is_handler(status);
            let mut packets = PacketTally::default();
            packets.add(entry.worker());
            ThreadSnapshot {
                worker: entry.worker().number(),
                system_number: entry.thread().number(),
                status,
                packets,
                wakes: entry.wakes(),
                blocks_found: entry.blocks_found(),
                handling: if handles { self.handled_by(entry.worker()) } else { None },
                handling_for: if handles { now.since(since) } else { Duration::ZERO },
            }
        };
        lists.members_mut().iter_mut().map(snapshot).collect()
    }

    /// Returns the registration whose packet the thread of `worker` took last.
    fn handled_by(&self, worker: &Worker) -> Option<Name> {
        let node = worker.current();
        if node & POSTED != 0 || is_op(node) {
            // It is a message, an operation that is being tried, or nothing.
            return None;
        }
        let word = self.slot(node).word();
        word.is_live().then(|| name_of(node, word.generation()))
    }

    /// Returns the slots of the packets that threads in user code took last, by worker number.
    pub(in crate::engine) fn handled(&self, hub: &Hub) -> Vec<(WorkerNumber, u32)> {
        let (schedule, lists) = hub.parts();
        let workers = lists.entries().iter().map(WorkerEntry::worker);
        let handlers =
            workers.filter(|worker| is_handler(schedule.workers().status(worker.number())));
        let slots = handlers.filter_map(|worker| {
            let slot = self.handled_by(worker).map(name_parts)?.0;
            Some((worker.number(), slot))
        });
        slots.collect()
    }

    /// Takes the lock, after asking the system about threads that were found asleep.
    fn lock_and_requery(&self) -> MutexGuard<'_, Hub> {
        let mut queries = Vec::new();
        let mut hub = self.lock();
        let (schedule, lists) = hub.parts_mut();
        let mut view = self.view(lists, None);
        schedule.recount_all(&mut view);
        schedule.begin_requery(&mut queries, &mut view);
        for query in queries {
            hub = self.query(hub, query);
        }
        hub
    }
}

/// Whether a thread with this status is in user code, with a packet or after one.
fn is_handler(status: Status) -> bool {
    matches!(status, Status::Running | Status::Blocked | Status::FoundAsleep)
}
