//! Lone operations: an operation started by a token that waits only for edges. Each of its steps is
//! one exchange of the word.
//!
//! `state/operations/alone.rs` has the steps of the `Op` itself. docs/design/OPERATIONS.md has the
//! table of both.

use super::ownership::{Delivery, Refusal, SlotStep};
use super::readiness::Drained;
use super::{
    CLOSED, EDGES, EDGES_SHIFT, HELD, IN_FLIGHT, IN_FLIGHT_SHIFT, LENT, LONE, QUEUED, READY_SHIFT,
    REMOVING, Slot, TIMED, UNCHECKED, Word,
};
use crate::state::facts::Facts;

impl Word {
    /// Returns whether an operation started by a token waits, or is tried, by this word alone.
    #[inline]
    pub(crate) fn is_lone(self) -> bool {
        self.0 & LONE == LONE
    }

    /// Returns the direction in which a lone operation waits.
    pub(crate) fn waits_alone(self) -> Facts {
        if self.is_lone() && !self.has(QUEUED) { self.in_flight() } else { Facts::NONE }
    }

    /// Lends the key from a handler's token to an operation of this direction. The operation is now
    /// lone, and the caller owns its node. Returns whether to try it.
    #[inline]
    pub(super) fn lent_alone(
        self,
        direction: Facts,
        drained: Drained,
    ) -> Result<(Self, bool), Refusal> {
        if self.has(CLOSED) {
            return Err(Refusal::NotRegistered);
        }
        if self.has(REMOVING) {
            return Err(Refusal::Removing);
        }
        let bits = u64::from(direction.directions());
        let word = self.dried(drained).without(TIMED).with(LENT | QUEUED | bits << IN_FLIGHT_SHIFT);
        Ok((word.begun_alone(), word.is_worth_another_attempt(bits)))
    }

    /// Returns whether to try an operation of these directions that its token may have tried
    /// before: a direction is known ready, or an error or an end arrived after the token's attempt.
    #[inline]
    fn is_worth_another_attempt(self, directions: u64) -> bool {
        self.has(directions << READY_SHIFT | directions << EDGES_SHIFT)
    }

    /// Returns the edge bits for the direction of the lone operation.
    #[inline]
    fn edges_alone(self) -> u64 {
        (self.0 & IN_FLIGHT) >> IN_FLIGHT_SHIFT << EDGES_SHIFT
    }

    /// Returns whether an edge has arrived since the last attempt at the lone operation began.
    #[inline]
    pub(super) fn has_new_edge_alone(self) -> bool {
        self.has(self.edges_alone())
    }

    /// Notes that an attempt at the lone operation begins.
    #[inline]
    pub(super) fn begun_alone(self) -> Self {
        self.without(self.edges_alone())
    }

    /// Updates the lone operation for an edge that was noted.
    #[inline]
    pub(super) fn edge_noted_alone(self, facts: Facts) -> (Self, Delivery) {
        // Nothing is reported while the operation is outstanding, so nothing needs a check.
        let word = self.without(UNCHECKED);
        let is_rare = facts.any(Facts::RARE);
        let concerned = if is_rare { word.in_flight() } else { word.in_flight() & facts };
        if concerned == Facts::NONE {
            return (word, Delivery::Noted(SlotStep::Nothing));
        }
        let word = word.with(u64::from(concerned.directions()) << READY_SHIFT);
        if word.has(QUEUED) {
            (word.with(word.edges_alone()), Delivery::Noted(SlotStep::Nothing))
        } else {
            (word.begun_alone().with(QUEUED), Delivery::Due)
        }
    }

    /// Fast path of [`Word::delivered`] while a lone operation waits: the caller then owns its
    /// node. Returns `None` in any other case.
    #[inline]
    pub(super) fn queued_alone(self, generation: u32, facts: Facts) -> Option<Self> {
        if !(self.is_lone() && self.names(generation)) || facts.any(Facts::RARE) {
            return None;
        }
        match self.noting(facts).edge_noted_alone(facts) {
            (word, Delivery::Due) => Some(word),
            _ => None,
        }
    }

    /// Notes that the attempt would have blocked. Returns whether to try again. If not, the
    /// operation waits.
    #[inline]
    pub(super) fn blocked_alone(self) -> (Self, bool) {
        if self.has_new_edge_alone() {
            return (self.begun_alone(), true);
        }
        let ready = (self.0 & IN_FLIGHT) >> IN_FLIGHT_SHIFT << READY_SHIFT;
        (self.without(QUEUED | ready), false)
    }

    /// Returns the key to the packet of the lone operation. `dry`: the operation has drained its
    /// direction, as of the beginning of the attempt.
    #[inline]
    pub(super) fn completed_alone(self, dry: bool) -> Self {
        let is_dry = dry && !self.has_new_edge_alone();
        let ready = (self.0 & IN_FLIGHT) >> IN_FLIGHT_SHIFT << READY_SHIFT;
        let word = if is_dry { self.without(ready) } else { self };
        word.without(LENT | QUEUED | EDGES | IN_FLIGHT)
    }

    /// Claims the node of a lone operation if no thread has it. Returns whether it did.
    pub(super) fn claimed_alone(self) -> (Self, bool) {
        if self.is_lone() && !self.has(QUEUED) { (self.with(QUEUED), true) } else { (self, false) }
    }

    /// Moves the lone operation to its operation queue. Returns whether an edge has arrived since
    /// the last attempt began.
    pub(super) fn queued_up(self) -> (Self, bool) {
        (self.without(HELD | QUEUED), self.has_new_edge_alone())
    }
}

impl Slot {
    /// Fast path of [`Slot::deliver`] while a lone operation waits: the caller now owns the
    /// operation's node and queues it. Returns false and changes nothing in any other case.
    #[inline]
    pub(crate) fn queue_alone(&self, generation: u32, facts: Facts) -> bool {
        self.change_if(|word| Some((word.queued_alone(generation, facts)?, ()))).is_some()
    }

    /// Lends the token's key to a lone operation of this direction. The caller owns the operation's
    /// node. Returns true if the caller must try it.
    #[inline]
    pub(crate) fn lend_alone(&self, direction: Facts, drained: Drained) -> Result<bool, Refusal> {
        self.change(|word| match word.lent_alone(direction, drained) {
            Ok((word, is_ready)) => (word, Ok(is_ready)),
            Err(refusal) => (word, Err(refusal)),
        })
    }

    /// Undoes [`Slot::lend_alone`] for an operation that is refused: if the operation has the key,
    /// and so the caller its node, the token has the key again.
    pub(crate) fn unlend_alone(&self) {
        self.change(|word| (if word.is_lone() { word.completed_alone(false) } else { word }, ()));
    }

    /// Prepares for an attempt by the caller, which owns the node: an edge that arrives from now on
    /// may be newer than the result.
    #[inline]
    pub(crate) fn begin_alone(&self) {
        if self.word().has_new_edge_alone() {
            self.change(|word| (word.begun_alone(), ()));
        }
    }

    /// Notes that an attempt would have blocked, or would block if made at the start. Returns true
    /// if an edge arrived in the meantime and the caller must try again. Otherwise the caller no
    /// longer owns the node.
    #[inline]
    pub(crate) fn block_alone(&self) -> bool {
        self.change(Word::blocked_alone)
    }

    /// Returns the key from the lone operation to the caller, which owns its node and takes its
    /// packet. `dry`: the operation has drained its direction.
    #[inline]
    pub(crate) fn complete_alone(&self, dry: bool) {
        self.change(|word| (word.completed_alone(dry), ()));
    }

    /// Claims the node of a lone operation that was cancelled. Returns true if the caller now owns
    /// the node and queues it.
    pub(crate) fn claim_alone(&self) -> bool {
        self.change(Word::claimed_alone)
    }

    /// Makes everything that the calling thread has done visible to threads that change the word
    /// from now on.
    pub(crate) fn touch(&self) {
        self.change(|word| (word, ()));
    }

    /// Moves the lone operation, whose node the caller owns, to its operation queue. Returns true
    /// if an edge has arrived since the last attempt began.
    pub(crate) fn leave_alone(&self) -> bool {
        self.change(Word::queued_up)
    }
}
