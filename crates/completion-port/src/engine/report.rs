//! What a port tells about itself.

use std::fmt;

use super::Engine;
use super::seat::Tally;
use crate::state::seats::Status;

/// What the statistics say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) registered: usize,
    pub(crate) queued: usize,
    pub(crate) running: usize,
    pub(crate) idle: usize,
    pub(crate) blocked: usize,
    pub(crate) wakes: u64,
    pub(crate) needless: u64,
    pub(crate) blocks_found: u64,
    pub(crate) harvests: u64,
    pub(crate) rebuilds: u64,
    pub(crate) packets: Tally,
}

impl Engine {
    pub(crate) fn snapshot(&self) -> Snapshot {
        if self.forked() {
            return Snapshot::default();
        }
        let shared = self.inspect(self.lock());
        let mut packets = shared.former;
        for member in shared.members.iter().flatten() {
            packets.add(&member.seat.counts);
        }
        let blocked = shared
            .seats
            .statuses()
            .filter(|(_, status)| matches!(status, Status::Blocked | Status::FoundAsleep))
            .count();
        Snapshot {
            registered: shared.slots.in_use(),
            queued: shared.ready.len() + shared.recheck.len(),
            running: shared.seats.running(),
            idle: shared.seats.idle(),
            blocked,
            wakes: shared.wakes,
            needless: shared.needless,
            blocks_found: shared.sleepers.found,
            harvests: shared.harvests,
            rebuilds: shared.rebuilds,
            packets,
        }
    }
}

impl fmt::Debug for Engine {
    /// Slots, seats and queues, for hunting stalls.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.forked() {
            return f.write_str("Port of the parent process");
        }
        let shared = self.lock();
        let slots: Vec<_> = (0..shared.slots.highest())
            .filter_map(|index| self.nodes.slots.find(index).map(|slot| (index, slot)))
            .filter(|(_, slot)| slot.word().is_live())
            .map(|(index, slot)| (index, slot.descriptor(), slot.word()))
            .collect();
        f.debug_struct("Port")
            .field("backend", &self.backend.name())
            .field("limit", &self.limit)
            .field("phase", &shared.phase)
            .field("queued", &shared.ready.nodes(&self.nodes))
            .field("to_be_checked", &shared.recheck.nodes(&self.nodes))
            .field("seats", &shared.seats)
            .field("slots", &slots)
            .finish()
    }
}
