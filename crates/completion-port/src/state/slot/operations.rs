//! The key while operations have it: they borrow it from the token, or share it with the registration.

use super::ownership::{Refusal, SlotStep};
use super::readiness::Drained;
use super::{
    CLOSED, COLLECTED, EDGES, ENABLED, FLYING, FLYING_SHIFT, HELD, LENT, PENDING_SHIFT, QUEUED,
    REMOVING, Slot, TIMED, Word,
};
use crate::state::facts::Facts;

impl Word {
    /// Whether operations have the key.
    pub(crate) fn is_lent(self) -> bool {
        self.has(LENT)
    }

    /// The handler's token gives the key to an operation of this direction, which is in flight from here on.
    pub(super) fn lent(self, direction: Facts, drained: Drained) -> Result<Self, Refusal> {
        if self.has(CLOSED) {
            Err(Refusal::NotRegistered)
        } else if self.has(REMOVING) {
            Err(Refusal::Removing)
        } else {
            Ok(self.dried(drained).without(HELD | TIMED).flown(direction))
        }
    }

    /// One more operation of this direction is in flight, and has the key together with others.
    pub(super) fn shared(self, generation: u32, direction: Facts) -> Result<(Self, bool), Refusal> {
        self.admits(generation)?;
        Ok((self.flown(direction), self.may_be_ready(direction)))
    }

    fn flown(self, direction: Facts) -> Self {
        let bits = u64::from(direction.directions());
        // What is pending of the direction is the operation's.
        self.without(bits << PENDING_SHIFT).with(LENT | bits << FLYING_SHIFT)
    }

    /// No operation of this direction is in flight any more. If the registration is enabled, what holds is
    /// reported from here on.
    pub(super) fn ref_dropped(self, direction: Facts, poll: u32) -> (Self, SlotStep) {
        let word = self.without(u64::from(direction.directions()) << FLYING_SHIFT);
        if word.has(ENABLED) { word.recalling(poll).roused() } else { (word, SlotStep::Nothing) }
    }

    /// The packet of an operation is taken that was started by a token: the key is the packet's.
    pub(super) fn completed(self) -> Self {
        self.without(LENT | EDGES | FLYING).with(HELD)
    }

    /// An operation was done by the token itself, and the caller queues its packet: the operation has the key.
    pub(super) fn lent_ended(self, drained: Drained) -> Self {
        self.dried(drained).without(TIMED).with(LENT | QUEUED)
    }

    /// The packet of the last operation is taken, and the key has been cloned for it.
    pub(super) fn completed_last(self) -> (Self, SlotStep) {
        let word = self.without(LENT);
        if !word.is_removing() {
            (word, SlotStep::Nothing)
        } else if word.has(COLLECTED) {
            // The thread that waits takes the node out of the queue, if that is where it stands.
            (word, SlotStep::Collect)
        } else if word.has(QUEUED) {
            (word, SlotStep::Nothing)
        } else {
            (word.with(QUEUED), SlotStep::Queue)
        }
    }
}

impl Slot {
    /// The token gives its key to an operation of this direction.
    pub(crate) fn lend(&self, direction: Facts, drained: Drained) -> Result<(), Refusal> {
        self.change(|word| match word.lent(direction, drained) {
            Ok(word) => (word, Ok(())),
            Err(refusal) => (word, Err(refusal)),
        })
    }

    /// One more operation of this direction has the key together with others. Returns whether the direction is
    /// ready, as far as is known.
    pub(crate) fn share(&self, generation: u32, direction: Facts) -> Result<bool, Refusal> {
        self.change(|word| match word.shared(generation, direction) {
            Ok((word, is_ready)) => (word, Ok(is_ready)),
            Err(refusal) => (word, Err(refusal)),
        })
    }

    /// What the slot remembers of a direction, as an operation has found it.
    pub(crate) fn know(&self, direction: Facts, is_ready: bool) {
        self.change(|word| (word.knowing_of(direction, is_ready), ()));
    }

    /// No operation of this direction is in flight any more.
    pub(crate) fn drop_ref(&self, direction: Facts, poll: u32) -> SlotStep {
        self.change(|word| word.ref_dropped(direction, poll))
    }

    /// The packet of an operation is taken that was started by a token: the key is the caller's. The operation has
    /// found the directions `dry` not ready.
    pub(crate) fn complete(&self, dry: Facts) {
        self.change(|word| (word.knowing_of(dry, false).completed(), ()));
    }

    /// The token has done an operation itself, the packet of which the caller queues: the operation has the key.
    pub(crate) fn lend_ended(&self, drained: Drained) {
        self.change(|word| (word.lent_ended(drained), ()));
    }

    /// Whether the direction is ready, as far as is known, for the holder of the token who says what is `drained`.
    #[inline]
    pub(crate) fn looks_ready(&self, direction: Facts, drained: Drained) -> bool {
        self.word().dried(drained).may_be_ready(direction)
    }

    /// The packet of the last operation that has a share in the key is taken.
    pub(crate) fn complete_last(&self) -> SlotStep {
        self.change(Word::completed_last)
    }
}
