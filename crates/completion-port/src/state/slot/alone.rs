//! The operation of a token that waits for edges alone: a *lone* one. Each of its steps is one exchange of the word.
//!
//! What the operation itself remembers meanwhile is in `state/operations/alone.rs`; docs/design/OPERATIONS.md has the table.

use super::ownership::{Delivery, Refusal, SlotStep};
use super::readiness::Drained;
use super::{
    CLOSED, EDGES, EDGES_SHIFT, FLYING, FLYING_SHIFT, HELD, LENT, LONE, QUEUED, READY_SHIFT,
    REMOVING, Slot, TIMED, UNCHECKED, Word,
};
use crate::state::facts::Facts;

impl Word {
    /// Whether an operation that a token has started waits, or is tried, by this word alone.
    #[inline]
    pub(crate) fn is_lone(self) -> bool {
        self.0 & LONE == LONE
    }

    /// The direction in which a lone operation waits.
    pub(crate) fn waits_alone(self) -> Facts {
        if self.is_lone() && !self.has(QUEUED) { self.flying() } else { Facts::NONE }
    }

    /// The handler's token gives the key to an operation of this direction, which is in flight from here on by this
    /// word alone; the caller has its node. Returns whether it is to be tried.
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
        let word = self.dried(drained).without(TIMED).with(LENT | QUEUED | bits << FLYING_SHIFT);
        Ok((word.begun_alone(), word.is_worth_another_attempt(bits)))
    }

    /// Whether an operation of these directions, which its token may have tried before, is to be tried: one of them is
    /// ready, as far as is known, or an error or an end has come since the token has.
    #[inline]
    fn is_worth_another_attempt(self, directions: u64) -> bool {
        self.has(directions << READY_SHIFT | directions << EDGES_SHIFT)
    }

    /// The edges of the direction of the lone operation.
    #[inline]
    fn edges_alone(self) -> u64 {
        (self.0 & FLYING) >> FLYING_SHIFT << EDGES_SHIFT
    }

    /// Whether an edge has come since the lone operation was last begun.
    #[inline]
    pub(super) fn has_new_edge_alone(self) -> bool {
        self.has(self.edges_alone())
    }

    /// The lone operation is about to be tried.
    #[inline]
    pub(super) fn begun_alone(self) -> Self {
        self.without(self.edges_alone())
    }

    /// The edge, which was noted, may concern the lone operation.
    #[inline]
    pub(super) fn edge_noted_alone(self, facts: Facts) -> (Self, Delivery) {
        // Nothing is reported meanwhile, and so nothing checked.
        let word = self.without(UNCHECKED);
        let is_rare = facts.any(Facts::RARE);
        let concerned = if is_rare { word.flying() } else { word.flying() & facts };
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

    /// The short way of [`Word::delivered`] for the slot of a lone operation that waits: the caller owns its node then.
    /// `None` in any other case.
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

    /// The lone operation was tried, and would have to wait. Returns whether it is to be tried again; it waits
    /// otherwise.
    #[inline]
    pub(super) fn blocked_alone(self) -> (Self, bool) {
        if self.has_new_edge_alone() {
            return (self.begun_alone(), true);
        }
        let ready = (self.0 & FLYING) >> FLYING_SHIFT << READY_SHIFT;
        (self.without(QUEUED | ready), false)
    }

    /// The packet of the lone operation is taken: the key is the packet's. If it is `dry`, the operation has taken what
    /// was there when it began.
    #[inline]
    pub(super) fn completed_alone(self, dry: bool) -> Self {
        let is_dry = dry && !self.has_new_edge_alone();
        let ready = (self.0 & FLYING) >> FLYING_SHIFT << READY_SHIFT;
        let word = if is_dry { self.without(ready) } else { self };
        word.without(LENT | QUEUED | EDGES | FLYING)
    }

    /// The caller takes the node of a lone operation, if no other thread has it. Returns whether that is so.
    pub(super) fn claimed_alone(self) -> (Self, bool) {
        if self.is_lone() && !self.has(QUEUED) { (self.with(QUEUED), true) } else { (self, false) }
    }

    /// The lone operation goes on in its operation queue. Returns whether an edge has come since it was last begun.
    pub(super) fn queued_up(self) -> (Self, bool) {
        (self.without(HELD | QUEUED), self.has_new_edge_alone())
    }
}

impl Slot {
    /// The short way of [`Slot::deliver`] where a lone operation waits: the caller owns the operation's node now and queues
    /// it. False, and nothing has changed, in any other case.
    #[inline]
    pub(crate) fn queue_alone(&self, generation: u32, facts: Facts) -> bool {
        self.change_if(|word| Some((word.queued_alone(generation, facts)?, ()))).is_some()
    }

    /// The token gives its key to an operation of this direction, which waits by the slot's word alone. The caller has the
    /// operation's node. True if it is to be tried.
    #[inline]
    pub(crate) fn lend_alone(&self, direction: Facts, drained: Drained) -> Result<bool, Refusal> {
        self.change(|word| match word.lent_alone(direction, drained) {
            Ok((word, is_ready)) => (word, Ok(is_ready)),
            Err(refusal) => (word, Err(refusal)),
        })
    }

    /// The operation is refused: if it has the key, and the caller its node, the token has the key again.
    pub(crate) fn unlend_alone(&self) {
        self.change(|word| (if word.is_lone() { word.completed_alone(false) } else { word }, ()));
    }

    /// The caller, who has the node of the lone operation, is about to try it: edges from now on may be newer than what
    /// it finds.
    #[inline]
    pub(crate) fn begin_alone(&self) {
        if self.word().has_new_edge_alone() {
            self.change(|word| (word.begun_alone(), ()));
        }
    }

    /// The caller has tried the lone operation, or has just started it, and it would have to wait. True if it is to be tried again, since an edge
    /// came meanwhile; otherwise the caller has its node no longer.
    #[inline]
    pub(crate) fn block_alone(&self) -> bool {
        self.change(Word::blocked_alone)
    }

    /// The lone operation has ended, and the caller, who has its node, takes its packet: the key is the caller's. If it
    /// is `dry` the operation has taken what was there.
    #[inline]
    pub(crate) fn complete_alone(&self, dry: bool) {
        self.change(|word| (word.completed_alone(dry), ()));
    }

    /// A lone operation is cancelled. True if the caller has its node by that, and queues it.
    pub(crate) fn claim_alone(&self) -> bool {
        self.change(Word::claimed_alone)
    }

    /// What the calling thread has done is seen by the threads that change the word from here on.
    pub(crate) fn touch(&self) {
        self.change(|word| (word, ()));
    }

    /// The lone operation, whose node the caller has, goes on in its operation queue. True if an edge has come since it was last
    /// begun.
    pub(crate) fn leave_alone(&self) -> bool {
        self.change(Word::queued_up)
    }
}
