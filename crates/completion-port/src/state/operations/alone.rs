//! Lone operations: those that were started by a token and wait only for edges. The slot's word has
//! their state, so each step costs one exchange of that word and takes no lock.
//!
//! `state/slot/alone.rs` has the steps of the word. docs/design/OPERATIONS.md has the table of
//! both.

use super::op::{EndReason, Op, OpTable, Phase};
use super::queues::OpQueues;
use crate::state::moment::Moment;
use crate::state::queue::Node;
use crate::types::interest::Direction;

impl Op {
    /// Makes this the lone operation of a token, unless the start is refused later. Its `OpEntry`
    /// must have its deadline already.
    #[inline]
    pub(crate) fn begin_alone(&self, slot: u32, direction: Direction, deadline: Moment) {
        self.place(slot, deadline);
        self.set_direction(direction);
        self.set(Phase::Lone);
    }

    /// Returns whether the slot's word has its state.
    #[inline]
    pub(crate) fn is_lone(&self) -> bool {
        self.phase() == Phase::Lone
    }

    /// Returns why the lone operation must end, unless it ends on its own first. A thread that
    /// cancels it sets the end reason before it changes the slot's word. A thread that releases its
    /// node changes the word before it calls this. So at least one of the two sees the other.
    #[inline]
    pub(crate) fn cancelled(&self) -> Option<EndReason> {
        Some(self.reason()).filter(|reason| *reason != EndReason::Done)
    }

    /// Cancels the lone operation of this use, unless an end reason is set already. Returns false
    /// if that operation has completed. The caller has the lock of the `OpEntry`, and claims the
    /// node afterwards.
    pub(crate) fn cancel_alone(&self, uses: u32, reason: EndReason) -> bool {
        self.set_reason_if_none(uses, reason)
    }

    /// Ends the operation if it is cancelled. The caller has claimed the node of a lone operation
    /// and queues it. This may be a later operation than the one that the caller meant to cancel.
    pub(crate) fn end_if_cancelled(&self) {
        if self.is_cancelled() {
            self.set(Phase::Ended);
        }
    }

    /// Returns the use of this `Op` if its operation is lone. Whatever the caller reads afterwards
    /// belongs to this use or to a later one.
    pub(crate) fn lone_use(&self) -> Option<u32> {
        let uses = self.uses_before();
        self.is_lone().then_some(uses)
    }
}

impl OpQueues {
    /// Continues the lone operation `node`, which the caller has tried, as the active one of its
    /// operation queue. `has_new_edge`: an edge has arrived since the attempt began.
    pub(crate) fn adopt(&mut self, ops: &impl OpTable, node: Node, has_new_edge: bool) {
        let op = ops.op(node);
        self.queue(op.direction()).adopt(node, has_new_edge);
        self.count_one_more();
        op.set(Phase::Tried);
    }
}
