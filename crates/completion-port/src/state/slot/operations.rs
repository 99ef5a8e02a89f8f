//! The key while operations have it: they borrow it from a token, or share it with the
//! registration.

use super::ownership::{Refusal, SlotStep};
use super::readiness::Drained;
use super::{
    CLOSED, COLLECTED, EDGES, ENABLED, HELD, IN_FLIGHT, IN_FLIGHT_SHIFT, LATE, LENT, ONE_SHOT,
    PENDING, PENDING_SHIFT, QUEUED, REMOVING, Slot, TIMED, UNCHECKED, Word,
};
use crate::state::facts::Facts;

impl Word {
    /// Returns whether operations have the key.
    pub(crate) fn is_lent(self) -> bool {
        self.has(LENT)
    }

    /// Lends the key from a handler's token to an operation of this direction.
    pub(super) fn lent(self, direction: Facts, drained: Drained) -> Result<Self, Refusal> {
        if self.has(CLOSED) {
            Err(Refusal::NotRegistered)
        } else if self.has(REMOVING) {
            Err(Refusal::Removing)
        } else {
            Ok(self.dried(drained).without(HELD | TIMED).flown(direction))
        }
    }

    /// Shares the key with another operation of this direction. Also returns whether an attempt at
    /// it is worthwhile.
    pub(super) fn shared(self, generation: u32, direction: Facts) -> Result<(Self, bool), Refusal> {
        self.admits(generation)?;
        Ok((self.flown(direction), self.may_be_ready(direction)))
    }

    /// Returns the key from a handler's token to a disabled registration whose operations share it.
    pub(super) fn opened(self, drained: Drained, poll: u32) -> (Self, SlotStep) {
        self.without(ONE_SHOT | TIMED).returned(None, false, drained, poll)
    }

    /// Gives the key of a registration whose operations share it to a token. Refused while an
    /// operation or a thread has the key or the node.
    pub(super) fn reclaimed(self, generation: u32) -> Result<Self, Refusal> {
        self.admits(generation)?;
        if self.has(HELD | QUEUED | LENT) {
            return Err(Refusal::Shared);
        }
        let word = self.without(ENABLED | UNCHECKED | PENDING | EDGES | TIMED | LATE);
        Ok(word.with(HELD | ONE_SHOT))
    }

    fn flown(self, direction: Facts) -> Self {
        let bits = u64::from(direction.directions());
        // The pending events of the direction belong to the operation.
        self.without(bits << PENDING_SHIFT).with(LENT | bits << IN_FLIGHT_SHIFT)
    }

    /// Notes that no operation of this direction is outstanding. An enabled registration reports
    /// the direction again.
    pub(super) fn ref_dropped(self, direction: Facts, poll: u32) -> (Self, SlotStep) {
        let word = self.without(u64::from(direction.directions()) << IN_FLIGHT_SHIFT);
        if word.has(ENABLED) { word.recalling(poll).roused() } else { (word, SlotStep::Nothing) }
    }

    /// Returns the key to the packet of an operation that was started by a token.
    pub(super) fn completed(self) -> Self {
        self.without(LENT | EDGES | IN_FLIGHT).with(HELD)
    }

    /// Lends the key to an operation that the token itself has done. The caller queues its packet.
    pub(super) fn lent_ended(self, drained: Drained) -> Self {
        self.dried(drained).without(TIMED).with(LENT | QUEUED)
    }

    /// Ends the sharing of the key when the last operation's packet is taken. The caller has
    /// already cloned the key for that packet.
    pub(super) fn completed_last(self) -> (Self, SlotStep) {
        let word = self.without(LENT);
        if !word.has(REMOVING | CLOSED | COLLECTED) {
            (word, SlotStep::Nothing)
        } else if word.is_finishing() {
            (word, SlotStep::Idle)
        } else if word.has(COLLECTED) {
            // The waiting thread takes the node out of the queue if it is queued.
            (word, SlotStep::Collect)
        } else if word.has(QUEUED) {
            (word, SlotStep::Nothing)
        } else {
            (word.with(QUEUED), SlotStep::Queue)
        }
    }
}

impl Word {
    /// Returns whether the caller may try its own work in this direction, if it lets nothing else of
    /// the direction start meanwhile. The registration that `generation` names is shared and not
    /// enabled, nothing of the direction is in flight, and an attempt is worthwhile.
    #[inline]
    pub(crate) fn admits_exclusive(self, generation: u32, direction: Facts) -> bool {
        let in_flight = u64::from(direction.directions()) << IN_FLIGHT_SHIFT;
        self.admits(generation).is_ok()
            && !self.has(in_flight | ENABLED | ONE_SHOT)
            && self.may_be_ready(direction)
    }

    /// Short path for the end of the only operation of a shared registration, in this direction:
    /// the direction is `dry` or not, no operation is outstanding, and the sharing of the key ends.
    /// Returns `None` if the registration is enabled or ends.
    #[inline]
    pub(super) fn only_completed(self, direction: Facts, dry: bool) -> Option<Self> {
        if self.has(ENABLED | REMOVING | CLOSED | COLLECTED) {
            return None;
        }
        let word = if dry { self.knowing_of(direction, false) } else { self };
        Some(word.without(LENT | u64::from(direction.directions()) << IN_FLIGHT_SHIFT))
    }
}

impl Slot {
    /// Lends the token's key to an operation of this direction.
    pub(crate) fn lend(&self, direction: Facts, drained: Drained) -> Result<(), Refusal> {
        self.change(|word| match word.lent(direction, drained) {
            Ok(word) => (word, Ok(())),
            Err(refusal) => (word, Err(refusal)),
        })
    }

    /// Shares the key with another operation of this direction. Returns whether an attempt at it is
    /// worthwhile.
    pub(crate) fn share(&self, generation: u32, direction: Facts) -> Result<bool, Refusal> {
        self.change(|word| match word.shared(generation, direction) {
            Ok((word, is_ready)) => (word, Ok(is_ready)),
            Err(refusal) => (word, Err(refusal)),
        })
    }

    /// Returns the token's key to a disabled registration whose operations share it from now on.
    pub(crate) fn open(&self, drained: Drained, poll: u32) -> SlotStep {
        self.change(|word| word.opened(drained, poll))
    }

    /// Gives the key of a registration whose operations shared it to the caller, which makes the
    /// token.
    pub(crate) fn reclaim(&self, generation: u32) -> Result<(), Refusal> {
        self.request(generation, |word| Ok((word.reclaimed(generation)?, ())))
    }

    /// Returns why an operation may not be started by the name of a registration with tokens.
    pub(crate) fn refuse_to_share(&self, generation: u32) -> Refusal {
        self.admits(generation).err().unwrap_or(Refusal::NotShared)
    }

    /// Notes whether an operation has found the direction ready.
    pub(crate) fn know(&self, direction: Facts, is_ready: bool) {
        self.change(|word| (word.knowing_of(direction, is_ready), ()));
    }

    /// Notes that no operation of this direction is outstanding.
    pub(crate) fn drop_ref(&self, direction: Facts, poll: u32) -> SlotStep {
        self.change(|word| word.ref_dropped(direction, poll))
    }

    /// Returns the key from an operation that was started by a token to the caller, which takes the
    /// packet. The operation has found the directions `dry` not ready.
    pub(crate) fn complete(&self, dry: Facts) {
        self.change(|word| (word.knowing_of(dry, false).completed(), ()));
    }

    /// Lends the key to an operation that the token itself has done. The caller queues its packet.
    pub(crate) fn lend_ended(&self, drained: Drained) {
        self.change(|word| (word.lent_ended(drained), ()));
    }

    /// Returns whether an attempt in this direction is worthwhile, for the holder of the token with
    /// the hint `drained`.
    #[inline]
    pub(crate) fn looks_ready(&self, direction: Facts, drained: Drained) -> bool {
        self.word().dried(drained).may_be_ready(direction)
    }

    /// Does in one step what the end of the only operation of a shared registration requires, in
    /// this direction, which is `dry` or not. Returns false and changes nothing if the registration
    /// is enabled or ends: that requires more.
    #[inline]
    pub(crate) fn complete_only(&self, direction: Facts, dry: bool) -> bool {
        self.change_if(|word| Some((word.only_completed(direction, dry)?, ()))).is_some()
    }

    /// Ends the sharing of the key when the last operation's packet is taken.
    pub(crate) fn complete_last(&self) -> SlotStep {
        self.change(Word::completed_last)
    }
}
