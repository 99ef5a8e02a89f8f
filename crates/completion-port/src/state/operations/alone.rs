//! Lone operations: those that a token has started and that wait for edges alone. The slot's word says how one stands,
//! so each step costs one exchange of that word, and no lock.
//!
//! The steps of the word are in `state/slot/alone.rs`. docs/design/OPERATIONS.md has the table of both.

use super::op::{EndReason, Op, OpTable, Phase};
use super::queues::OpQueues;
use crate::state::moment::Moment;
use crate::state::queue::Node;
use crate::types::interest::Direction;

impl Op {
    /// The operation of this token is in flight from here on, unless that is refused, and lone. Its operation entry has its deadline
    /// already.
    #[inline]
    pub(crate) fn begin_alone(&self, slot: u32, direction: Direction, deadline: Moment) {
        self.place(slot, deadline);
        self.set_direction(direction);
        self.set(Phase::Lone);
    }

    /// Whether the slot's word says how it stands.
    #[inline]
    pub(crate) fn is_lone(&self) -> bool {
        self.phase() == Phase::Lone
    }

    /// Why the lone operation is to end, unless it comes to an end of its own. The thread that has cancelled it says so
    /// to the slot afterwards, which the caller has asked before.
    #[inline]
    pub(crate) fn cancelled(&self) -> Option<EndReason> {
        Some(self.reason()).filter(|reason| *reason != EndReason::Done)
    }

    /// Cancels the lone operation that the record was used for as `uses` says, if nothing has before. False if it has
    /// completed. Afterwards the caller claims its node. The caller has the lock of the operation entry.
    pub(crate) fn cancel_alone(&self, uses: u32, reason: EndReason) -> bool {
        self.set_reason_if_none(uses, reason)
    }

    /// The caller has claimed the node of a lone operation, and queues it. If the operation is cancelled it has ended by
    /// that; it may be another one than the caller thought.
    pub(crate) fn end_if_cancelled(&self) {
        if self.is_cancelled() {
            self.set(Phase::Ended);
        }
    }

    /// The use of the record, if its operation is lone. What is read of it afterwards is this one's, or that of a later
    /// one.
    pub(crate) fn lone_use(&self) -> Option<u32> {
        let uses = self.uses_before();
        self.is_lone().then_some(uses)
    }
}

impl OpQueues {
    /// The lone operation `node` that the caller has tried goes on here, as the active one. `has_new_edge`: an edge has
    /// come since it was last begun.
    pub(crate) fn adopt(&mut self, ops: &impl OpTable, node: Node, has_new_edge: bool) {
        let op = ops.op(node);
        self.queue(op.direction()).adopt(node, has_new_edge);
        self.count_one_more();
        op.set(Phase::Tried);
    }
}
