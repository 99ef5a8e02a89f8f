//! Operations in operation queues that end before they are done: cancelled, or after their
//! deadlines.

use super::{FollowUp, OpQueues};
use crate::state::moment::Moment;
use crate::state::operations::list::OpList;
use crate::state::operations::op::{EndReason, OpTable, Phase};
use crate::state::queue::{NIL, Node, NodeList};
use crate::state::slot::{Slot, SlotStep};
use crate::types::interest::Direction;

impl OpQueues {
    /// Ends an operation for this `reason`, or makes it end at the next opportunity. If the caller
    /// must queue its node, [`FollowUp::due`] has the node. Returns `None` if it has already ended.
    pub(crate) fn cancel(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        node: Node,
        reason: EndReason,
        poll: u32,
    ) -> Option<FollowUp> {
        let op = ops.op(node);
        match op.phase() {
            Phase::Waiting => {
                let direction = op.direction();
                self.queue(direction).leave(ops, node);
                op.set_reason(reason);
                op.set(Phase::Ended);
                let next = self.drop_ref_if_empty(slot, direction, poll);
                Some(FollowUp { due: node, next })
            }
            // If the operation is submitted, the caller asks the back end.
            Phase::Due | Phase::Tried | Phase::Submitted => {
                if op.reason() == EndReason::Done {
                    op.set_reason(reason);
                }
                Some(FollowUp::NONE)
            }
            // If the operation is lone, the caller asks the slot.
            Phase::Free | Phase::Ended | Phase::Lone => None,
        }
    }

    /// Ends all operations, or makes them end at the next opportunity. Appends the nodes that the
    /// caller must queue to `ended`.
    pub(crate) fn cancel_all(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        reason: EndReason,
        poll: u32,
        ended: &mut NodeList,
    ) -> SlotStep {
        self.cancel_some(ops, slot, reason, poll, |_| true, ended)
    }

    /// Ends the operations for which `is_meant` returns true, or makes them end at the next
    /// opportunity. Appends the nodes that the caller must queue to `ended`.
    pub(crate) fn cancel_some(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        reason: EndReason,
        poll: u32,
        is_meant: impl Fn(Node) -> bool,
        ended: &mut NodeList,
    ) -> SlotStep {
        let mut outcome = SlotStep::Nothing;
        for direction in Direction::BOTH {
            let queue = self.queue(direction);
            if queue.is_empty() {
                continue;
            }
            let mut next = queue.waiting().first();
            while let Some(node) = next {
                let op = ops.op(node);
                // Read this before the node moves to another list.
                next = OpList::next(ops, node);
                if is_meant(node) {
                    queue.leave(ops, node);
                    op.set_reason(reason);
                    op.set(Phase::Ended);
                    ended.push(ops, node);
                }
            }
            // A direct attempt is not cancelled, since it is about to end.
            if let Some(active) = queue.active_op()
                && is_meant(active)
                && ops.op(active).reason() == EndReason::Done
            {
                ops.op(active).set_reason(reason);
            }
            let next = self.drop_ref_if_empty(slot, direction, poll);
            if next != SlotStep::Nothing {
                outcome = next;
            }
        }
        outcome
    }

    /// Handles the expiry of the entry's timer: ends the operations whose deadlines have expired at
    /// `now`, and makes those due that must be tried again. Appends the nodes that the caller must
    /// queue to `due`. Returns when the timer must expire next.
    pub(crate) fn ring(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        now: Moment,
        poll: u32,
        due: &mut NodeList,
    ) -> (Moment, SlotStep) {
        let mut again = Moment::NEVER;
        let mut outcome = SlotStep::Nothing;
        for direction in Direction::BOTH {
            let queue = self.queue(direction);
            if queue.is_empty() {
                continue;
            }
            let mut next = queue.waiting().first();
            while let Some(node) = next {
                let op = ops.op(node);
                // Read this before the node moves to another list.
                next = OpList::next(ops, node);
                if op.is_over(now) {
                    queue.leave(ops, node);
                    op.set_reason(EndReason::TimedOut);
                    op.set(Phase::Ended);
                    due.push(ops, node);
                } else {
                    again = again.min(op.deadline());
                }
            }
            if let Some(active) = queue.active_op() {
                let op = ops.op(active);
                if op.is_over(now) && op.reason() == EndReason::Done {
                    op.set_reason(EndReason::TimedOut);
                } else if !op.is_over(now) {
                    again = again.min(op.deadline());
                }
            }
            let (first, retry) = queue.ring(ops, now);
            if first != NIL {
                due.push(ops, first);
            }
            again = again.min(retry);
            let next = self.drop_ref_if_empty(slot, direction, poll);
            if next != SlotStep::Nothing {
                outcome = next;
            }
        }
        (again, outcome)
    }
}
