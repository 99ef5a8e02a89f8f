//! Operations in operation queues that the system carries out: the back end has them until they
//! complete.

use super::{FollowUp, OpQueues, Step};
use crate::state::operations::op::{EndReason, OpTable, Phase};
use crate::state::queue::{NIL, Node};
use crate::state::slot::Slot;
use crate::types::interest::Direction;

impl OpQueues {
    /// Submits the active operation, which the caller has tried, unless it was cancelled in the
    /// meantime.
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

    /// Ends the active operation, which the back end has completed. `was_cancelled`: the back end
    /// has not done it. `goes_on`: the operation is not done and becomes due again. The caller
    /// queues its node.
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
        // No edge reports whether the direction is ready, so the next operation is tried.
        slot.know(direction.facts(), true);
        if goes_on {
            self.queue(direction).begin_again();
            op.set(Phase::Due);
            return FollowUp::NONE;
        }
        let reason = match (was_cancelled, op.reason()) {
            (false, _) => EndReason::Done,
            // The back end itself has shut down.
            (true, EndReason::Done) => EndReason::Cancelled,
            (true, reason) => reason,
        };
        op.set_reason(reason);
        self.end_active(ops, slot, node, poll)
    }

    /// Returns whether an operation is the active one of its operation queue.
    pub(crate) fn is_active(&self, ops: &impl OpTable, node: Node) -> bool {
        self.queues[ops.op(node).direction() as usize].active() == node
    }

    /// Returns the operations in the operation queues that are cancelled but that the back end
    /// still has; `NIL` for none.
    pub(crate) fn cancelled_at_back_end(&self, ops: &impl OpTable) -> [Node; 2] {
        Direction::BOTH.map(|direction| match self.queues[direction as usize].active_op() {
            None => NIL,
            Some(node) => {
                let op = ops.op(node);
                if op.is_submitted() && op.is_cancelled() { node } else { NIL }
            }
        })
    }

    /// Ends the active operation, which was cancelled and which the back end no longer has. The
    /// caller has its node.
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
