//! What a port tells about itself.

use std::fmt;

use super::seat::Tally;
use super::{Engine, Member, State};
use crate::state::schedule::{Figures, SeatNumber, Status};
use crate::sync::MutexGuard;

/// What the statistics say.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Snapshot {
    pub(crate) registered: usize,
    pub(crate) queued: usize,
    pub(crate) threads: Figures,
    pub(crate) polls: u64,
    pub(crate) empty_polls: u64,
    pub(crate) rebuilds: u64,
    pub(crate) packets: Tally,
}

impl Engine {
    pub(crate) fn snapshot(&self) -> Snapshot {
        if self.forked() {
            return Snapshot::default();
        }
        let state = self.lock_and_requery();
        let State { schedule, stock } = &*state;
        let mut packets = stock.former;
        for member in stock.members.iter().flatten() {
            packets.add(&member.seat.counts);
        }
        Snapshot {
            registered: stock.slots.in_use(),
            queued: stock.ready.len() + stock.recheck.len(),
            polls: stock.polls,
            empty_polls: stock.empty_polls,
            rebuilds: stock.strays.replacements(),
            packets,
            threads: schedule.figures(),
        }
    }
}

/// What is told of one thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadSnapshot {
    pub(crate) seat: SeatNumber,
    pub(crate) system_number: Option<u64>,
    pub(crate) status: Status,
    pub(crate) packets: Tally,
    pub(crate) wakes: u64,
    pub(crate) blocks_found: u64,
}

impl Engine {
    /// Takes the lock, having asked the system about threads that were found asleep.
    fn lock_and_requery(&self) -> MutexGuard<'_, State> {
        let mut queries = Vec::new();
        let mut state = self.lock();
        let State { schedule, stock } = &mut *state;
        schedule.begin_requery(&mut queries, &mut self.stage(stock, None));
        for query in queries {
            state = self.query(state, query);
        }
        state
    }

    pub(crate) fn threads(&self) -> Vec<ThreadSnapshot> {
        if self.forked() {
            return Vec::new();
        }
        let state = self.lock_and_requery();
        let State { schedule, stock } = &*state;
        let snapshot = |member: &Member| {
            let mut packets = Tally::default();
            packets.add(&member.seat.counts);
            ThreadSnapshot {
                seat: member.seat.number,
                system_number: member.thread.number(),
                status: schedule.status(member.seat.number),
                packets,
                wakes: member.wakes,
                blocks_found: member.blocks_found,
            }
        };
        stock.members.iter().flatten().map(snapshot).collect()
    }
}

impl fmt::Debug for Engine {
    /// Slots, seats and queues, for hunting stalls.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.forked() {
            return f.write_str("Port of the parent process");
        }
        let state = self.lock();
        let State { schedule, stock } = &*state;
        let slots: Vec<_> = (0..stock.slots.highest())
            .filter_map(|index| self.nodes.slots.find(index).map(|slot| (index, slot)))
            .filter(|(_, slot)| slot.word().is_live())
            .map(|(index, slot)| (index, slot.descriptor(), slot.word()))
            .collect();
        let lanes = |index| {
            let desk = self.desk(index)?;
            let lanes = format!("{:?}", *desk.lock());
            Some((index, lanes))
        };
        let lent = slots.iter().filter(|(_, _, word)| word.is_lent());
        let operations: Vec<_> = lent.filter_map(|(index, _, _)| lanes(*index)).collect();
        f.debug_struct("Port")
            .field("backend", &self.backend.name())
            .field("limit", &self.limit)
            .field("phase", &stock.phase)
            .field("queued", &stock.ready.nodes(&self.nodes))
            .field("to_be_checked", &stock.recheck.nodes(&self.nodes))
            .field("seats", schedule.seats())
            .field("slots", &slots)
            .field("operations", &operations)
            .finish()
    }
}
