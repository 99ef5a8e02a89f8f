//! The short ways of a lone operation: the only operation of its registration, started by a token,
//! which waits for an edge and for nothing else. It needs no lock.

use super::{OpRef, Operations};
use crate::backend::sockets::{Rest, SocketAttempt};
use crate::engine::context::{PortPhase, kind_of, name_of};
use crate::state::moment::Moment;
use crate::state::operations::{EndReason, Op, OpEntry, OpTable, Step};
use crate::state::queue::{Node, OP};
use crate::state::slot::{Drained, Slot};
use crate::state::timers::SlotTimer;
use crate::sync::barrier_behind_exchange;
use crate::types::error::ErrorKind;
use crate::types::interest::Direction;

impl Operations {
    /// Lends the key of a held slot to a lone operation of this direction, which is in its cell.
    ///
    /// If this fails, the slot is still held.
    #[allow(clippy::inline_always, reason = "a part of the calls that start an operation")]
    #[inline(always)]
    pub(crate) fn lend_alone(
        &self,
        OpRef { op_index, index, op, slot, entry }: OpRef<'_>,
        direction: Direction,
        deadline: Moment,
        drained: Drained,
    ) -> Result<Step, ErrorKind> {
        if entry.timer().deadline() != deadline {
            // No other thread moves the deadline: a start needs the token, and an expiring timer
            // moves it only while an operation is pending.
            entry.timer().move_deadline(deadline);
        }
        op.begin_alone(index, direction, deadline);
        // Read before the node is released: the operation may then complete immediately, and the
        // slot be reused.
        let name = name_of(index, slot.word().generation());
        let is_ready = match slot.lend_alone(direction.facts(), drained) {
            Ok(is_ready) => is_ready,
            Err(refusal) => {
                self.withdraw(slot, op);
                return Err(kind_of(refusal));
            }
        };
        // The thread that closes the port stores the phase before it looks at the slot. So either
        // that thread sees this operation, or this thread, which still owns the node, sees that the
        // port is closed or finishing.
        barrier_behind_exchange();
        if self.phase() != PortPhase::Open && !self.is_lent_finishing(index, op, op_index, entry) {
            self.withdraw(slot, op);
            return Err(ErrorKind::Closed);
        }
        self.revalidate_timer(SlotTimer::Operations, index, entry.timer());
        if is_ready || slot.block_alone() {
            return Ok(Step::Try);
        }
        self.end_if_cancelled(slot, op, op_index);
        self.watch_for(name, slot, direction);
        Ok(Step::Waits)
    }

    /// Queues a lone operation that was cancelled before the calling thread released its node.
    ///
    /// The cancelling thread could not claim the node and left the queueing to this thread. The
    /// node may belong to a later operation by now; its turn handles that.
    #[inline]
    fn end_if_cancelled(&self, slot: &Slot, op: &Op, op_index: u32) {
        if op.cancelled().is_some() && self.claim_alone(slot, op) {
            self.queue_operation(op_index);
        }
    }

    /// Undoes the start of an operation that is refused.
    #[cold]
    fn withdraw(&self, slot: &Slot, op: &Op) {
        op.complete();
        slot.unlend_alone();
        self.stop_awaiting(op);
    }

    /// Prepares an attempt if the operation is lone and was not cancelled.
    ///
    /// The calling thread owns its node. If this returns false, nothing has changed, and the caller
    /// uses [`Operations::turn`].
    #[inline]
    pub(crate) fn turn_alone(&self, op_ref: &OpRef<'_>) -> bool {
        let is_to_be_tried = op_ref.op.is_lone() && op_ref.op.cancelled().is_none();
        if is_to_be_tried {
            op_ref.slot.begin_alone();
        }
        is_to_be_tried
    }

    /// Completes an operation of a token if the calling thread's attempt has ended it.
    ///
    /// Returns whether it has. The caller then takes the packet and owns the key. The operation
    /// stays in its cell until the token starts another one.
    #[inline]
    pub(crate) fn tried_and_completed(
        &self,
        op_ref: &OpRef<'_>,
        attempt: SocketAttempt<Rest>,
    ) -> bool {
        let dry = match attempt {
            SocketAttempt::Done(Rest::Unknown) | SocketAttempt::Failed(_) => false,
            SocketAttempt::Done(Rest::Nothing) => op_ref.slot.word().is_plain(),
            _ => return false,
        };
        if op_ref.op.is_lone() {
            self.complete_alone(op_ref, dry);
        } else {
            self.complete_in_queue(op_ref, dry);
        }
        true
    }

    /// Completes an ended operation that is in an operation queue.
    #[inline(never)]
    fn complete_in_queue(&self, op_ref: &OpRef<'_>, dry: bool) {
        op_ref.entry.lock().tried_and_completed(op_ref.op, op_ref.slot, dry);
        self.stop_awaiting(op_ref.op);
    }

    /// Completes a lone operation, whose node the calling thread owns, as its packet is taken.
    #[inline]
    pub(super) fn complete_alone(&self, op_ref: &OpRef<'_>, dry: bool) {
        op_ref.op.complete();
        op_ref.slot.complete_alone(dry);
        self.stop_awaiting(op_ref.op);
    }

    /// Lets a lone operation wait for an edge, after an attempt that would block.
    ///
    /// If the operation has ended, the caller uses [`Operations::complete_own`] next. After
    /// [`Step::Waits`] the caller no longer owns it.
    #[inline]
    pub(super) fn blocked_alone(&self, op_ref: &OpRef<'_>) -> Step {
        let OpRef { slot, op, .. } = *op_ref;
        let (name, direction) = (op_ref.registration(), op.direction());
        if let Some(reason) = op.cancelled() {
            return Step::Ends(reason);
        }
        if slot.block_alone() {
            return Step::Try;
        }
        self.end_if_cancelled(slot, op, op_ref.op_index);
        self.watch_for(name, slot, direction);
        Step::Waits
    }

    /// Moves the operation to its operation queue if it is lone. The caller owns its node.
    ///
    /// See [`Operations::queue`].
    pub(crate) fn queue_if_lone(&self, op_ref: &OpRef<'_>) {
        if op_ref.op.is_lone() {
            self.queue(op_ref);
        }
    }

    /// Moves a lone operation to its operation queue, since it must wait for more than an edge.
    ///
    /// It counts as being tried there. The caller owns its node.
    #[cold]
    #[inline(never)]
    pub(super) fn queue(&self, op_ref: &OpRef<'_>) {
        let mut queues = op_ref.entry.lock();
        let has_new_edge = op_ref.slot.leave_alone();
        queues.adopt(self.nodes(), op_ref.op_index | OP, has_new_edge);
    }

    /// Returns the node of an entry's lone operation and the use count of its op index, if any.
    pub(super) fn lone_of(&self, entry: &OpEntry) -> Option<(Node, u32)> {
        let node = entry.own()?;
        Some((node, self.nodes().op(node).lone_use()?))
    }

    /// Cancels the lone operation of `node`, if its op index still has the use count `uses`.
    ///
    /// True if the caller now owns the node and must queue it. The caller holds the lock of the
    /// [`OpEntry`].
    pub(super) fn cancel_alone(
        &self,
        slot: &Slot,
        node: Node,
        uses: u32,
        reason: EndReason,
    ) -> bool {
        let op = self.nodes().op(node);
        op.cancel_alone(uses, reason) && self.claim_alone(slot, op)
    }

    /// Claims the node of a lone operation that was cancelled.
    ///
    /// True if the caller now owns the node and must queue it.
    pub(in crate::engine) fn claim_alone(&self, slot: &Slot, op: &Op) -> bool {
        let is_claimed = slot.claim_alone();
        if is_claimed {
            op.end_if_cancelled();
        }
        is_claimed
    }
}
