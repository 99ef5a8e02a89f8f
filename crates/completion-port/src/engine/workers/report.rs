//! What a port reports about itself and its threads.

use super::Workers;
use crate::engine::queue::{Hub, WorkerEntry};
use crate::engine::worker::PacketTally;
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
        let hub = self.lock_and_requery();
        let (schedule, lists) = hub.parts();
        let snapshot = |entry: &WorkerEntry| {
            let mut packets = PacketTally::default();
            packets.add(entry.worker());
            ThreadSnapshot {
                worker: entry.worker().number(),
                system_number: entry.thread().number(),
                status: schedule.status(entry.worker().number()),
                packets,
                wakes: entry.wakes(),
                blocks_found: entry.blocks_found(),
            }
        };
        lists.entries().iter().map(snapshot).collect()
    }

    /// Takes the lock, after asking the system about threads that were found asleep.
    fn lock_and_requery(&self) -> MutexGuard<'_, Hub> {
        let mut queries = Vec::new();
        let mut hub = self.lock();
        let (schedule, lists) = hub.parts_mut();
        schedule.begin_requery(&mut queries, &mut self.view(lists, None));
        for query in queries {
            hub = self.query(hub, query);
        }
        hub
    }
}
