//! The short ways of a lone operation: the only one of its registration, started by a token, which waits for nothing
//! but an edge. It needs no lock.

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
    /// The token of the held slot gives the key to an operation, which is in its cell, and waits for nothing but an edge
    /// of this direction. If it is refused, the slot is still held.
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
            // Nothing else moves it: not without the token, and where a timer rings not without the operation.
            entry.timer().move_deadline(deadline);
        }
        op.begin_alone(index, direction, deadline);
        // Read before the slot is given up: the operation may complete at once, and the slot be used anew.
        let name = name_of(index, slot.word().generation());
        let is_ready = match slot.lend_alone(direction.facts(), drained) {
            Ok(is_ready) => is_ready,
            Err(refusal) => {
                self.withdraw(slot, op);
                return Err(kind_of(refusal));
            }
        };
        // The thread that closes the port says so before it looks at the slot: so either that thread sees this
        // operation, or this one, which still has its node, sees that the port is closed.
        barrier_behind_exchange();
        if self.phase() != PortPhase::Open {
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

    /// The calling thread has just given the node of a lone operation back. A thread that has cancelled it before that
    /// has left the node to this one: it is queued. By now it may be another operation's, which its turn tells.
    #[inline]
    fn end_if_cancelled(&self, slot: &Slot, op: &Op, op_index: u32) {
        if op.cancelled().is_some() && self.claim_alone(slot, op) {
            self.queue_operation(op_index);
        }
    }

    /// The operation that the calling thread is about to start is refused.
    #[cold]
    fn withdraw(&self, slot: &Slot, op: &Op) {
        op.complete();
        slot.unlend_alone();
        self.stop_awaiting(op);
    }

    /// The node of an operation has come to the calling thread. True if it is a lone one that is to be tried. Otherwise
    /// nothing has changed, and [`Operations::turn`] tells.
    #[inline]
    pub(crate) fn turn_alone(&self, op_ref: &OpRef<'_>) -> bool {
        let is_to_be_tried = op_ref.op.is_lone() && op_ref.op.cancelled().is_none();
        if is_to_be_tried {
            op_ref.slot.begin_alone();
        }
        is_to_be_tried
    }

    /// The calling thread has tried an operation that was started by a token, and takes its packet if it has ended:
    /// the key is the caller's then, and the operation stays in its cell until the token starts another one.
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

    /// The same for one that has its place in an operation queue, and has ended.
    #[inline(never)]
    fn complete_in_queue(&self, op_ref: &OpRef<'_>, dry: bool) {
        op_ref.entry.lock().tried_and_completed(op_ref.op, op_ref.slot, dry);
        self.stop_awaiting(op_ref.op);
    }

    /// The packet of a lone operation is taken by the calling thread, which has its node.
    #[inline]
    pub(super) fn complete_alone(&self, op_ref: &OpRef<'_>, dry: bool) {
        op_ref.op.complete();
        op_ref.slot.complete_alone(dry);
        self.stop_awaiting(op_ref.op);
    }

    /// The calling thread has tried a lone operation, which would have to wait for an edge. If it has ended,
    /// [`Operations::complete_own`] follows. After [`Step::Waits`] it is the caller's no more.
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

    /// The operation, whose node the caller has, is not lone any more, if it was: see [`Operations::queue`].
    pub(crate) fn queue_if_lone(&self, op_ref: &OpRef<'_>) {
        if op_ref.op.is_lone() {
            self.queue(op_ref);
        }
    }

    /// A lone operation, whose node the caller has, waits for something else than an edge: it goes on in its operation queue, as one
    /// that is being tried.
    #[cold]
    #[inline(never)]
    pub(super) fn queue(&self, op_ref: &OpRef<'_>) {
        let mut queues = op_ref.entry.lock();
        let has_new_edge = op_ref.slot.leave_alone();
        queues.adopt(self.nodes(), op_ref.op_index | OP, has_new_edge);
    }

    /// The lone operation of an operation entry, if it has one, and what its record is used for.
    pub(super) fn lone_of(&self, entry: &OpEntry) -> Option<(Node, u32)> {
        let node = entry.own()?;
        Some((node, self.nodes().op(node).lone_use()?))
    }

    /// Cancels the lone operation of `node`, which its record was used for as `uses` says. True if its node is the
    /// caller's to queue by that. The caller has the lock of the operation entry.
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

    /// Claims the node of the lone operation of a slot, which was cancelled. True if the caller has it by that, and
    /// queues it.
    pub(in crate::engine) fn claim_alone(&self, slot: &Slot, op: &Op) -> bool {
        let is_claimed = slot.claim_alone();
        if is_claimed {
            op.end_if_cancelled();
        }
        is_claimed
    }
}
