//! Operations of operation queues that end before they are done: cancelled, or because of their deadlines.

use super::{FollowUp, OpQueues};
use crate::state::moment::Moment;
use crate::state::operations::list::OpList;
use crate::state::operations::op::{EndReason, OpTable, Phase};
use crate::state::queue::{NIL, Node, NodeList};
use crate::state::slot::{Slot, SlotStep};
use crate::types::interest::Direction;

impl OpQueues {
    /// Ends an operation as `reason` says, or has it ended at the next opportunity. If its node is the caller's to
    /// queue, that is told by [`FollowUp::due`]. `None` if it has ended already.
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
            // For one that was handed over the caller asks the back end.
            Phase::Due | Phase::Tried | Phase::Submitted => {
                if op.reason() == EndReason::Done {
                    op.set_reason(reason);
                }
                Some(FollowUp::NONE)
            }
            // Of a lone one the caller asks the slot.
            Phase::Free | Phase::Ended | Phase::Lone => None,
        }
    }

    /// Ends all operations, or has them ended at the next opportunity. Those whose nodes are to be queued are
    /// put at the end of `ended`.
    pub(crate) fn cancel_all(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        reason: EndReason,
        poll: u32,
        ended: &mut NodeList,
    ) -> SlotStep {
        let mut outcome = SlotStep::Nothing;
        for direction in Direction::BOTH {
            let queue = self.queue(direction);
            if queue.is_empty() {
                continue;
            }
            while let Some(node) = queue.pop(ops) {
                let op = ops.op(node);
                op.set_reason(reason);
                op.set(Phase::Ended);
                ended.push(ops, node);
            }
            // Work without a record is not cancelled: the call that tries it is about to end.
            if let Some(active) = queue.active_op()
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

    /// The operation entry's timer has rung: ends the operations whose deadlines are over at `now`, and has those tried again
    /// that waited for that. Nodes that are to be queued are put at the end of `due`. Returns when the timer is to
    /// ring again.
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
                // Before the node is put elsewhere.
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
