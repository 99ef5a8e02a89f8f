//! Operations of operation queues that the system carries out: the back end has them until they come back.

use super::{FollowUp, OpQueues, Step};
use crate::state::operations::op::{EndReason, OpTable, Phase};
use crate::state::queue::{NIL, Node};
use crate::state::slot::Slot;
use crate::types::interest::Direction;

impl OpQueues {
    /// The operation that the caller has tried goes to the back end, which carries it out; unless it has been cancelled
    /// meanwhile.
    pub(crate) fn submit_active(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        node: Node,
        poll: u32,
    ) -> (Step, FollowUp) {
        let op = ops.op(node);
        match op.reason() {
            EndReason::Done => {
                op.set(Phase::Submitted);
                (Step::Waits, FollowUp::NONE)
            }
            reason => (Step::Ends(reason), self.end_active(ops, slot, node, poll)),
        }
    }

    /// The back end has let go of the active operation of an operation queue, which has ended by that, unless it `goes_on`: then it is to
    /// be tried. Its node is the caller's to queue.
    pub(crate) fn complete_submitted(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        node: Node,
        (was_cancelled, goes_on): (bool, bool),
        poll: u32,
    ) -> FollowUp {
        let op = ops.op(node);
        let direction = op.direction();
        // No edge tells whether the direction is ready: what comes next is tried.
        slot.know(direction.facts(), true);
        if goes_on {
            self.queue(direction).begin_again();
            op.set(Phase::Due);
            return FollowUp::NONE;
        }
        let reason = match (was_cancelled, op.reason()) {
            (false, _) => EndReason::Done,
            // The back end has ended by itself.
            (true, EndReason::Done) => EndReason::Cancelled,
            (true, reason) => reason,
        };
        op.set_reason(reason);
        self.end_active(ops, slot, node, poll)
    }

    /// Whether an operation is the active one of its operation queue.
    pub(crate) fn is_active(&self, ops: &impl OpTable, node: Node) -> bool {
        self.queues[ops.op(node).direction() as usize].active() == node
    }

    /// The operations of the operation queues that are cancelled, and that the back end has; `NIL` where there is none.
    pub(crate) fn cancelled_at_back_end(&self, ops: &impl OpTable) -> [Node; 2] {
        Direction::BOTH.map(|direction| match self.queues[direction as usize].active_op() {
            None => NIL,
            Some(node) => {
                let op = ops.op(node);
                if op.is_submitted() && op.is_cancelled() { node } else { NIL }
            }
        })
    }

    /// The back end has given the active operation of an operation queue back, which was cancelled: it has ended, and its node is the
    /// caller's.
    pub(crate) fn end_cancelled(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        node: Node,
        poll: u32,
    ) -> FollowUp {
        slot.know(ops.op(node).direction().facts(), true);
        self.end_active(ops, slot, node, poll)
    }
}
