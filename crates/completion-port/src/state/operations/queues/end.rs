//! Operations of lanes that end before they are done: called off, or because of their deadlines.

use super::{Effects, Lanes};
use crate::state::moment::Moment;
use crate::state::operations::list::Roll;
use crate::state::operations::op::{Phase, Records, Verdict};
use crate::state::queue::{Fifo, NIL, Node};
use crate::state::slot::{Next, Slot};
use crate::types::interest::Direction;

impl Lanes {
    /// Ends a flight as `verdict` says, or has it ended at the next opportunity. If its node is the caller's to
    /// queue, that is told by [`Effects::due`]. `None` if it has ended already.
    pub(crate) fn call_off(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        node: Node,
        verdict: Verdict,
        poll: u32,
    ) -> Option<Effects> {
        let flight = records.flight(node);
        match flight.phase() {
            Phase::Waiting => {
                let direction = flight.direction();
                self.lane(direction).leave(records, node);
                flight.judge(verdict);
                flight.set(Phase::Ended);
                let next = self.ground_if_empty(slot, direction, poll);
                Some(Effects { due: node, next })
            }
            // For one that was handed over the caller asks the back end.
            Phase::Due | Phase::Tried | Phase::Handed => {
                if flight.verdict() == Verdict::Done {
                    flight.judge(verdict);
                }
                Some(Effects::NONE)
            }
            // Of a lone one the caller asks the slot.
            Phase::Landed | Phase::Ended | Phase::Lone => None,
        }
    }

    /// Ends all flights, or has them ended at the next opportunity. Those whose nodes are to be queued are
    /// put at the end of `ended`.
    pub(crate) fn call_off_all(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        verdict: Verdict,
        poll: u32,
        ended: &mut Fifo,
    ) -> Next {
        let mut outcome = Next::Nothing;
        for direction in Direction::BOTH {
            let lane = self.lane(direction);
            if lane.is_empty() {
                continue;
            }
            while let Some(node) = lane.pop(records) {
                let flight = records.flight(node);
                flight.judge(verdict);
                flight.set(Phase::Ended);
                ended.push(records, node);
            }
            // Work without a record is not cancelled: the call that tries it is about to end.
            if let Some(active) = lane.active_flight()
                && records.flight(active).verdict() == Verdict::Done
            {
                records.flight(active).judge(verdict);
            }
            let next = self.ground_if_empty(slot, direction, poll);
            if next != Next::Nothing {
                outcome = next;
            }
        }
        outcome
    }

    /// The desk's timer has rung: ends the flights whose deadlines are over at `now`, and has those tried again
    /// that waited for that. Nodes that are to be queued are put at the end of `due`. Returns when the timer is to
    /// ring again.
    pub(crate) fn ring(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        now: Moment,
        poll: u32,
        due: &mut Fifo,
    ) -> (Moment, Next) {
        let mut again = Moment::NEVER;
        let mut outcome = Next::Nothing;
        for direction in Direction::BOTH {
            let lane = self.lane(direction);
            if lane.is_empty() {
                continue;
            }
            let mut next = lane.waiting().first();
            while let Some(node) = next {
                let flight = records.flight(node);
                // Before the node is put elsewhere.
                next = Roll::next(records, node);
                if flight.is_over(now) {
                    lane.leave(records, node);
                    flight.judge(Verdict::TimedOut);
                    flight.set(Phase::Ended);
                    due.push(records, node);
                } else {
                    again = again.min(flight.deadline());
                }
            }
            if let Some(active) = lane.active_flight() {
                let flight = records.flight(active);
                if flight.is_over(now) && flight.verdict() == Verdict::Done {
                    flight.judge(Verdict::TimedOut);
                } else if !flight.is_over(now) {
                    again = again.min(flight.deadline());
                }
            }
            let (first, retry) = lane.ring(records, now);
            if first != NIL {
                due.push(records, first);
            }
            again = again.min(retry);
            let next = self.ground_if_empty(slot, direction, poll);
            if next != Next::Nothing {
                outcome = next;
            }
        }
        (again, outcome)
    }
}
