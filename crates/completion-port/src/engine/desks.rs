//! What the registrations have beside their slots: their operations, and when those are to end.

use std::sync::PoisonError;

use super::{Engine, Name, Nodes, Stock, name_parts};
use crate::state::facts::Facts;
use crate::state::moment::Moment;
use crate::state::operations::{Desk, Flight, Lanes, Records, Verdict};
use crate::state::queue::{FLIGHT, Fifo, NIL, Node};
use crate::state::slot::{Next, Slot};
use crate::state::timers::Alarm;
use crate::sync::MutexGuard;

/// What an operation that has come back leaves to be queued; `NIL` stands for none.
pub(super) struct Brought {
    pub(super) nodes: [Node; 3],
    /// A slot that is to be checked before.
    pub(super) to_check: Node,
}

impl Brought {
    const NOTHING: Self = Self { nodes: [NIL; 3], to_check: NIL };
}

impl Desk {
    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Lanes> {
        // Nothing that could panic is called under the lock but what is here.
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// The desk of a slot that has had one. A slot keeps it for the registrations to come.
    #[inline]
    pub(super) fn desk(&self, index: u32) -> Option<&Desk> {
        self.desks.find(index)
    }

    /// Whether operations of this registration are started by its name.
    #[inline]
    pub(super) fn is_shared(&self, index: u32) -> bool {
        self.desk(index).is_some_and(|desk| desk.lock().is_shared)
    }

    /// The reserved slot `index` becomes a registration; whose operations are started by its name if it is
    /// `shared`. False if there is no memory.
    pub(crate) fn begin_desk(&self, index: u32, shared: bool) -> bool {
        if shared && !self.desks.reserve(index) {
            return false;
        }
        if let Some(desk) = self.desk(index) {
            desk.begin();
            desk.lock().begin(shared);
        }
        true
    }

    /// An edge concerns operations of the slot, of the directions `flying`. The nodes of those that are to be
    /// tried are handed to `queue`. True if the slot is to note the edge again.
    #[inline(never)]
    pub(super) fn stir(
        &self,
        index: u32,
        slot: &Slot,
        flying: Facts,
        mut queue: impl FnMut(Node),
    ) -> bool {
        let Some(desk) = self.desk(index) else { return false };
        let (due, is_missed) = desk.lock().stir(&self.nodes, slot, flying);
        due.into_iter().filter(|node| *node != NIL).for_each(&mut queue);
        is_missed
    }

    /// An edge tells that the operation with this name, which the back end has carried out, can be brought back.
    #[cold]
    #[inline(never)]
    pub(super) fn bring_back(&self, name: u64) -> Brought {
        #[allow(clippy::cast_possible_truncation, reason = "the lower half is the node")]
        let node = name as u32;
        let record = node & !FLIGHT;
        let request = self.backend.socket_requests().and_then(|it| it.take_completed(name));
        let Some(request) = request else { return Brought::NOTHING };
        let was_called_off = request.is_cancelled;
        let goes_on = request.target.is_declined;
        // Before the flight ends: the thread that sees that takes it.
        self.outstanding.keep_socket(record, request);
        let index = self.nodes.flight(node).slot();
        let (slot, desk) = (self.slot(index), self.desks.at(index));
        let mut lanes = desk.lock();
        let poll = self.current_poll();
        let outcome = (was_called_off, goes_on);
        let effects = lanes.come_back_active(&self.nodes, slot, node, outcome, poll);
        drop(lanes);
        match effects.next {
            Next::Queue => Brought { nodes: [node, effects.due, index], to_check: NIL },
            Next::Recheck => Brought { nodes: [node, effects.due, NIL], to_check: index },
            _ => Brought { nodes: [node, effects.due, NIL], to_check: NIL },
        }
    }

    /// The alarm of the operations of a slot has rung. What is to be queued by that is put at the end of `due`, or put on
    /// the list of what is to be checked. The caller has the port's lock.
    pub(super) fn ring(&self, stock: &mut Stock, index: u32, now: Moment, due: &mut Fifo) {
        let Some(desk) = self.desk(index) else { return };
        // From here on a thread that moves the deadline sets the alarm itself.
        desk.set_alarm(Moment::NEVER);
        let deadline = desk.deadline();
        let again =
            if deadline > now { deadline } else { self.end_late(stock, index, desk, now, due) };
        if again != Moment::NEVER {
            stock.timers.set_alarm(Alarm::Operations, index, again);
            desk.set_alarm(again);
        }
    }

    /// A deadline of the operations of a slot was over at `now`. Returns when to look again.
    fn end_late(
        &self,
        stock: &mut Stock,
        index: u32,
        desk: &Desk,
        now: Moment,
        due: &mut Fifo,
    ) -> Moment {
        let slot = self.slot(index);
        // The start of a lone operation changes the slot's word before it looks at the alarm, and behind its claim. So either it
        // sees that the alarm has rung, or the claim is seen here.
        slot.touch();
        let mut lanes = desk.lock();
        if let Some((node, uses)) = self.lone_of(desk) {
            // The deadline is read after that: it is the operation's, or that of a later one.
            let at = desk.deadline();
            if at > now {
                return at;
            }
            if self.call_off_alone(slot, node, uses, Verdict::TimedOut) {
                due.push(&self.nodes, node);
            }
            return Moment::NEVER;
        }
        if lanes.aloft() == 0 {
            return Moment::NEVER;
        }
        let poll = self.current_poll();
        let (again, next) = lanes.ring(&self.nodes, slot, now, poll, due);
        let again = again.min(self.cancel_late_files(&mut lanes, now, due));
        let next_of_cancelled = self.cancel_sockets(&mut lanes, slot, due);
        desk.set_deadline(again);
        drop(lanes);
        for next in [next, next_of_cancelled] {
            match next {
                Next::Queue => due.push(&self.nodes, index),
                Next::Recheck => stock.recheck.push(&self.nodes, index),
                _ => {}
            }
        }
        again
    }

    /// Ends all operations of a registration, or has them ended at the next opportunity: puts the nodes of those
    /// that have ended at the end of `ended`. Returns what the slot asks for.
    pub(super) fn call_off_all(&self, name: Name, verdict: Verdict, ended: &mut Fifo) -> Next {
        let (index, generation) = name_parts(name);
        let slot = self.slot(index);
        let Some(desk) = self.desk(index) else { return Next::Nothing };
        let poll = self.current_poll();
        let mut lanes = desk.lock();
        if slot.word().generation() != generation {
            // The registration has ended meanwhile, and the slot may be used anew.
            return Next::Nothing;
        }
        if let Some((node, uses)) = self.lone_of(desk)
            && self.call_off_alone(slot, node, uses, verdict)
        {
            ended.push(&self.nodes, node);
        }
        self.cancel_files(&mut lanes, verdict, ended);
        let next = lanes.call_off_all(&self.nodes, slot, verdict, poll, ended);
        let next_of_cancelled = self.cancel_sockets(&mut lanes, slot, ended);
        drop(lanes);
        if next_of_cancelled == Next::Nothing { next } else { next_of_cancelled }
    }

    /// The lone operation of a desk, if it has one, and what its record is used for.
    fn lone_of(&self, desk: &Desk) -> Option<(Node, u32)> {
        let node = desk.own()?;
        Some((node, self.nodes.flight(node).lone_use()?))
    }

    /// Calls off the lone operation of `node`, which its record was used for as `uses` says. True if its node is the
    /// caller's to queue by that. The caller has the lock of the desk.
    fn call_off_alone(&self, slot: &Slot, node: Node, uses: u32, verdict: Verdict) -> bool {
        let flight = self.nodes.flight(node);
        flight.call_off_alone(uses, verdict) && self.claim_alone(slot, flight)
    }

    /// Claims the node of the lone operation of a slot, which was called off. True if the caller has it by that, and
    /// queues it.
    pub(super) fn claim_alone(&self, slot: &Slot, flight: &Flight) -> bool {
        let is_claimed = slot.claim_alone();
        if is_claimed {
            flight.end_if_called_off();
        }
        is_claimed
    }
}

impl Records for Nodes {
    #[inline]
    fn flight(&self, node: Node) -> &Flight {
        self.flights.at(node & !FLIGHT)
    }
}
