//! Direct attempts: a call tries its own work before there is an `Op` for it.

use super::{FollowUp, OpQueues, Tried};
use crate::state::operations::op::OpTable;
use crate::state::operations::queue::CALLER;
use crate::state::slot::{Slot, SlotStep};
use crate::types::interest::Direction;

impl OpQueues {
    /// Begins a direct attempt in one direction of a shared registration. Returns false and changes
    /// nothing if the work would have to wait for its turn or for an edge, or if the slot refuses
    /// it.
    pub(crate) fn begin_direct(
        &mut self,
        slot: &Slot,
        generation: u32,
        direction: Direction,
    ) -> bool {
        let is_shared = self.is_shared;
        let queue = self.queue(direction);
        let begins = is_shared
            && queue.is_empty()
            && slot.word().may_be_ready(direction.facts())
            && slot.share(generation, direction.facts()).is_ok();
        if begins {
            queue.begin(CALLER);
            self.in_flight += 1;
        }
        begins
    }

    /// Ends the caller's direct attempt, which leaves the operation queue.
    pub(crate) fn tried_direct(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        direction: Direction,
        tried: Tried,
        poll: u32,
    ) -> (FollowUp, SlotStep) {
        let is_dry = matches!(tried, Tried::Blocked | Tried::Done { dry: true });
        if self.complete_only(slot, direction, is_dry) {
            return (FollowUp::NONE, SlotStep::Nothing);
        }
        if is_dry && self.queue(direction).is_newest() {
            slot.know(direction.facts(), false);
        }
        let follow_up = self.clear_active(ops, slot, direction, poll);
        (follow_up, self.completed(slot))
    }

    /// Counts a direct attempt as completed. Returns the slot's next step if nothing else is
    /// outstanding.
    fn completed(&mut self, slot: &Slot) -> SlotStep {
        self.in_flight -= 1;
        if self.in_flight == 0 { slot.complete_last() } else { SlotStep::Nothing }
    }
}
