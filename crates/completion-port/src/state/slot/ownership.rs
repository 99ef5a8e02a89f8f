//! Ownership of a slot's *node*: the right to touch the slot's key cell and to link the slot into a
//! queue.
//!
//! - While neither `QUEUED` nor `HELD` is set, the node has no owner, and the key is in its cell.
//! - While `QUEUED` is set, one thread at a time owns the node: first the thread that set the bit
//!   with a compare-and-swap, then the thread that takes the slot off the queue, until one of them
//!   clears the bit.
//! - While `HELD` is set, the token of a packet owns the node.
//! - While `LENT` is set, operations have the key. If the registration has tokens, that is one
//!   operation, and it owns the node. Otherwise the operations' packets carry clones of the key,
//!   and the slot may be queued as well, but no thread moves the key out.
//! - While `LONE` is set, that one operation is queued by its own node, and `QUEUED` means that a
//!   thread has this node.
//!
//! So at any time at most one thread may touch the key, and a slot is in at most one queue.
//!
//! [`readiness`](super::readiness) handles what the slot remembers. Only the fast paths
//! ([`Word::queued`], [`Word::rearmed`], [`Word::taken_plainly`]) test and change bits of both modules
//! here, so that each needs a single instruction.

use super::readiness::Drained;
use super::report::Answer;
use super::{
    ALSO, ALSO_SHIFT, BORROWED, CLOSED, COLLECTED, EDGE, EDGES, ENABLED, FILTER, GENERATION,
    GENERATIONS, HALF_CLOSED, HELD, IN_FLIGHT, LASTING, LATE, LENT, LIVE, LONE, ONE_SHOT, PENDING,
    PENDING_ERR, PENDING_SHIFT, QUEUED, RECHECK, REMOVING, TIMED, UNCHECKED, Word,
};
use crate::state::facts::Facts;
use crate::types::interest::Mode;
use crate::types::interest::{Events, Interest};

/// What the caller of a transition does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotStep {
    Nothing,
    /// The caller now owns the node and queues a packet.
    Queue,
    /// The caller now owns the node and queues it for a check with the kernel.
    Recheck,
    /// The key is back in its cell, where a thread waits for it.
    Collect,
    /// The port is finishing, and no operation of the shared registration is in flight.
    Idle,
    /// The descriptor was closed: the caller keeps the key and frees the slot.
    Gone,
}

/// The effect of an edge from the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The slot was freed, but the kernel still reports the old descriptor.
    Stale,
    /// The slot remembers the edge.
    Noted(SlotStep),
    /// The slot remembers the edge, and operations of these directions must be notified.
    NotifyOps(SlotStep, Facts),
    /// The slot remembers the edge. The caller now owns the node of the lone operation and queues
    /// it.
    Due,
}

/// Why a request about a registration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The registration does not exist, or has ended.
    NotRegistered,
    /// The registration is being removed.
    Removing,
    /// A handler or an operation has the key.
    Held,
    /// Operations share the key, or may do so.
    Shared,
    /// Operations are started by tokens, and not by the registration's name.
    NotShared,
}

/// The effect of a request for removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// The caller now owns the node.
    Owned,
    /// The owner of the node completes the removal.
    Marked,
    /// The registration is already being removed.
    Already,
}

/// The effect of a request for the end of a registration of a finishing port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// Nothing has the key: the registration is being removed.
    Removed(Removal),
    /// A handler or an operation has the key. When it is back, the registration is removed.
    Later,
    /// No operation of the shared registration is in flight, but a handler may start one.
    Idle,
}

/// The effect of an expired deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// The slot is not armed with a deadline.
    Untimed,
    /// The caller now owns the node and queues the packet that reports the expiry.
    Claimed,
    /// The slot is armed with a deadline, but its node is already queued.
    Queued,
}

/// The result of a check. Unless it is `Nothing`, the caller still owns the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// There is nothing to report, and the node was released.
    Nothing,
    /// The node has something to report.
    Hot,
    /// An edge arrived before the answer was applied, so the check must be repeated.
    Again,
}

/// What a dequeued node reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeTurn {
    /// There is nothing to report, and the node was released.
    Nothing,
    /// The pending events must be checked first. The caller still owns the node.
    Check,
    /// A one-shot packet: the key is now the caller's.
    Held(Events),
    /// A persistent packet: the caller still owns the node, clones the key, and then calls
    /// [`Slot::cloned`](super::Slot::cloned).
    Cloned(Events),
    /// The last packet: the caller owns node and key, and frees the slot.
    Removed,
    /// The descriptor was closed: the caller owns node and key, and frees the slot.
    Gone,
    /// The key stays in its cell for a thread that waits for it, and the node was released.
    Collect,
}

impl Word {
    /// Returns whether a handler has the key.
    pub(crate) fn is_held(self) -> bool {
        self.0 & LONE == HELD
    }

    /// Returns the requested directions if an edge would queue the slot.
    pub(crate) fn armed_directions(self) -> Facts {
        let is_armed = self.has(ENABLED) && !self.has(QUEUED);
        if is_armed { Facts::asked_by(self.interest()) } else { Facts::NONE }
    }

    pub(crate) fn is_enabled(self) -> bool {
        self.has(ENABLED)
    }

    /// Returns whether the slot is enabled with a deadline.
    pub(crate) fn is_timed(self) -> bool {
        self.has(ENABLED) && self.has(TIMED)
    }

    /// Returns whether a handler, or an operation started by a token, has the key.
    pub(super) fn is_away(self) -> bool {
        self.has(HELD) || (self.has(LENT) && self.has(ONE_SHOT))
    }

    pub(crate) fn is_borrowed(self) -> bool {
        self.has(BORROWED)
    }

    pub(crate) fn is_removing(self) -> bool {
        self.has(REMOVING | CLOSED)
    }

    /// Returns whether the registration is removed once its key is back, because the port is
    /// finishing.
    pub(super) fn is_finishing(self) -> bool {
        self.0 & (COLLECTED | REMOVING) == COLLECTED
    }

    /// Returns whether the dequeued node makes a packet without a check.
    pub(crate) fn is_due(self) -> bool {
        let is_removed = self.has(REMOVING) && !self.has(LENT);
        let is_collected = self.has(REMOVING) && self.has(COLLECTED);
        !self.has(CLOSED) && !is_collected && (is_removed || self.next() == SlotStep::Queue)
    }

    /// Returns whether the dequeued node needs a check.
    pub(crate) fn is_unclear(self) -> bool {
        self.next() == SlotStep::Recheck
    }

    /// Returns what an enabled slot needs next: a packet, a check, or nothing.
    fn next(self) -> SlotStep {
        if !self.has(ENABLED) {
            SlotStep::Nothing
        } else if self.has(UNCHECKED) {
            SlotStep::Recheck
        } else if self.has(PENDING | LATE) {
            SlotStep::Queue
        } else {
            SlotStep::Nothing
        }
    }

    /// Returns whether `generation` names a registration that has not ended and is not ending.
    pub(super) fn admits(self, generation: u32) -> Result<(), Refusal> {
        if !self.names(generation) || self.has(CLOSED) {
            Err(Refusal::NotRegistered)
        } else if self.has(REMOVING) {
            Err(Refusal::Removing)
        } else {
            Ok(())
        }
    }

    /// Claims the node if it has no owner. Returns whether it did.
    pub(super) fn claimed(self) -> (Self, bool) {
        if self.has(HELD | QUEUED | LENT) { (self, false) } else { (self.with(QUEUED), true) }
    }

    /// Claims the node if something is pending and the node has no owner.
    pub(super) fn roused(self) -> (Self, SlotStep) {
        let next = if self.has(QUEUED) { SlotStep::Nothing } else { self.next() };
        if next == SlotStep::Nothing { (self, next) } else { (self.with(QUEUED), next) }
    }

    /// Makes a registration of a free slot, held by the calling thread.
    pub(super) fn registered(self, mode: Mode, is_borrowed: bool) -> Self {
        let word = Self::free(self.generation()).with(LIVE | HELD).with_mode(mode);
        if is_borrowed { word.with(BORROWED) } else { word }
    }

    /// Frees the slot: a new generation, and no other bits.
    pub(super) fn freed(self) -> Self {
        Self::free((self.generation() + 1) % GENERATIONS)
    }

    /// Applies an edge from the kernel, found by poll number `poll`. `newest` returns the highest
    /// poll number so far.
    pub(super) fn delivered(
        self,
        generation: u32,
        facts: Facts,
        poll: u32,
        newest: impl Fn() -> u32,
    ) -> (Self, Delivery) {
        if !self.names(generation) {
            return (self, Delivery::Stale);
        }
        let word = self.noting(facts);
        if word.is_lone() {
            return word.edge_noted_alone(facts);
        }
        let is_rare = facts.any(Facts::RARE);
        // Operations get an end or an error first. The slot recalls it when they are done.
        let ends = facts.any(Facts::ERR | Facts::HUP | Facts::RDHUP);
        let is_weighed = word.has(ENABLED) && !(ends && word.has(IN_FLIGHT));
        let word = if is_weighed { word.weighing(facts, poll, newest) } else { word };
        let (word, next) = word.roused();
        let concerned = if is_rare { word.in_flight() } else { word.in_flight() & facts };
        if concerned == Facts::NONE {
            (word, Delivery::Noted(next))
        } else {
            (word, Delivery::NotifyOps(next, concerned))
        }
    }

    /// Fast path of [`Word::delivered`]: the registration is armed, and a direction in its filter
    /// is ready. The caller then owns the node. Returns `None` in any other case.
    #[inline]
    pub(super) fn queued(
        self,
        generation: u32,
        facts: Facts,
        poll: u32,
        newest: impl Fn() -> u32,
    ) -> Option<Self> {
        const STATE: u64 = LIVE
            | ENABLED
            | QUEUED
            | HELD
            | REMOVING
            | CLOSED
            | UNCHECKED
            | PENDING
            | ALSO
            | IN_FLIGHT;
        let state = self.0 & (u64::MAX << GENERATION | STATE);
        let wanted = self.filtered(facts);
        if state != Self::free(generation).with(LIVE | ENABLED).0
            || wanted.is_empty()
            || facts.any(Facts::RARE)
            || self.may_predate(poll, newest)
        {
            return None;
        }
        Some(self.noting(facts).expecting(wanted).with(QUEUED))
    }

    /// Enables the slot with `mode` and without a deadline. Its key must be in its cell. A packet
    /// that the handler asked for stays due.
    pub(super) fn enabled(self, mode: Mode, poll: u32) -> (Self, SlotStep) {
        let deadline = if self.has(TIMED) { TIMED | LATE } else { 0 };
        self.without(deadline).with(ENABLED).with_mode(mode).recalling(poll).roused()
    }

    /// Returns whether `mode` is one-shot and the registration is persistent, as those are whose
    /// operations share the key.
    #[inline]
    pub(super) fn may_be_shared_with(self, mode: Mode) -> bool {
        mode.one_shot && !self.has(ONE_SHOT)
    }

    /// Fast path of [`Word::dried`] followed by [`Word::enabled`], for the registration that
    /// `generation` names: nothing that the slot remembers must be checked. Returns `None` in any
    /// other case.
    #[inline]
    pub(super) fn enabled_plainly(
        self,
        generation: u32,
        mode: Mode,
        drained: Drained,
        poll: u32,
    ) -> Option<Self> {
        const SPECIAL: u64 = CLOSED | REMOVING | HELD | LENT | RECHECK | HALF_CLOSED | ALSO | LATE;
        let state = self.0 & (u64::MAX << GENERATION | LIVE | SPECIAL);
        let word = self.dried(drained).with_mode(mode);
        if state != Self::free(generation).with(LIVE).0
            || word.is_ready_or_unwatched()
            || self.may_be_shared_with(mode)
        {
            return None;
        }
        Some(word.without(TIMED | PENDING).with(ENABLED).armed(poll))
    }

    /// Requests `interest` in addition to the filter, until a packet has reported it.
    pub(super) fn enabled_also(self, interest: Interest, poll: u32) -> (Self, SlotStep) {
        let also = u64::from(interest.bits()) << ALSO_SHIFT;
        if interest.is_empty() {
            (self, SlotStep::Nothing)
        } else if self.is_away() {
            // When the key returns, the slot is armed for this.
            (self.with(also), SlotStep::Nothing)
        } else if self.has(ENABLED) {
            self.with(also).recalling(poll).roused()
        } else {
            self.with(also).enabled_for_that_alone(poll)
        }
    }

    /// Enables the slot only for the events that were requested in addition to its filter. Its key
    /// must be in its cell.
    fn enabled_for_that_alone(self, poll: u32) -> (Self, SlotStep) {
        self.enabled(Mode { interest: self.besides(), ..self.mode() }, poll)
    }

    /// Disables the slot. A held slot stays as it is.
    pub(super) fn disabled(self) -> Self {
        if self.is_away() { self } else { self.without(ENABLED | ALSO | LATE) }
    }

    /// Ends the registration, for the reason that `bit` encodes. The caller claims the node if it
    /// has no owner. Otherwise `mark` is set for the owner.
    pub(super) fn ending(self, bit: u64, mark: u64) -> (Self, Removal) {
        match self.without(ENABLED | COLLECTED).with(bit).claimed() {
            (word, true) => (word, Removal::Owned),
            (word, false) => (word.with(mark), Removal::Marked),
        }
    }

    /// Begins the end of the registration of a finishing port. Its readiness is reported no more.
    /// Returns `None` if it has ended or is ending.
    pub(super) fn finished(self, generation: u32, is_shared: bool) -> Option<(Self, Finish)> {
        self.admits(generation).ok()?;
        if !is_shared && !self.has(HELD | LENT) {
            let (word, removal) = self.ending(REMOVING, 0);
            return Some((word, Finish::Removed(removal)));
        }
        let later = if self.has(HELD | LENT) { Finish::Later } else { Finish::Idle };
        Some((self.without(ENABLED | ALSO | LATE).with(COLLECTED), later))
    }

    /// Removes the finishing registration if nothing has its key.
    pub(super) fn finished_idle(self, generation: u32) -> Option<(Self, Removal)> {
        let is_idle = self.names(generation) && self.is_finishing() && !self.has(HELD | LENT);
        is_idle.then(|| self.ending(REMOVING, 0))
    }

    /// Returns the key from a handler's token. Arms the slot with `mode`, and with a deadline if
    /// `timed`, or parks it if `mode` is `None`.
    pub(super) fn returned(
        self,
        mode: Option<Mode>,
        timed: bool,
        drained: Drained,
        poll: u32,
    ) -> (Self, SlotStep) {
        if self.has(CLOSED) {
            return (self, SlotStep::Gone);
        }
        let word = self.without(HELD);
        if word.has(COLLECTED | REMOVING) {
            return if word.is_finishing() {
                (word.without(COLLECTED).with(REMOVING | QUEUED), SlotStep::Queue)
            } else if word.has(COLLECTED) {
                (word, SlotStep::Collect)
            } else {
                (word.with(QUEUED), SlotStep::Queue)
            };
        }
        let word = word.dried(drained);
        match mode {
            Some(mode) => {
                let (word, next) = word.enabled(mode, poll);
                (if timed { word.with(TIMED) } else { word }, next)
            }
            None if word.has(ALSO) => word.enabled_for_that_alone(poll),
            None => (word, SlotStep::Nothing),
        }
    }

    /// Returns the key from a handler's token, arms the slot as before, and requests a packet that
    /// comes whatever the kernel reports.
    pub(super) fn returned_again(self, drained: Drained, poll: u32) -> (Self, SlotStep) {
        let (word, next) = self.returned(Some(self.mode()), false, drained, poll);
        if !word.has(ENABLED) {
            // The registration is ending, and makes its last packet or none.
            return (word, next);
        }
        // The packet reports the requested directions in any case. The next arming recalls what
        // else the slot remembers.
        (word.without(UNCHECKED).with(QUEUED | LATE), SlotStep::Queue)
    }

    /// Fast path of [`Word::returned`]: arms the slot with `mode`, or with its current mode, and
    /// nothing that it remembers must be checked. Returns `None` in any other case, also if only
    /// one of the old and the new arming has a deadline.
    #[inline]
    pub(super) fn rearmed(
        self,
        mode: Option<Mode>,
        timed: bool,
        drained: Drained,
        poll: u32,
    ) -> Option<Self> {
        const SPECIAL: u64 = CLOSED | COLLECTED | REMOVING | RECHECK | HALF_CLOSED | ALSO | TIMED;
        let usual = if timed { TIMED } else { 0 };
        let word = self.dried(drained);
        let word = mode.map_or(word, |mode| word.with_mode(mode));
        if self.0 & SPECIAL != usual || word.is_ready_or_unwatched() {
            return None;
        }
        Some(word.without(HELD).with(ENABLED).armed(poll))
    }

    /// Releases the node, because a one-shot reactor is about to ask the kernel and the answer will
    /// be an edge. Keeps the node if it needs no answer.
    pub(super) fn awaiting_edge(self) -> (Self, bool) {
        if self.is_removing() || !self.has(ENABLED) {
            (self, false)
        } else if self.has(LATE) {
            (self.without(UNCHECKED), false)
        } else {
            (self.forgetting().without(QUEUED), true)
        }
    }

    /// Notes that a one-shot reactor watches the descriptor until it is detached. Returns `None` if
    /// it does already, or need not.
    pub(super) fn lasting(self, generation: u32) -> Option<Self> {
        let needs = self.names(generation) && self.has(ENABLED) && !self.has(LASTING);
        needs.then(|| self.with(LASTING))
    }

    /// Applies the kernel's answer to a check.
    pub(super) fn checked(self, answer: Answer) -> (Self, Checked) {
        if self.is_removing() {
            // A node that ends its registration needs no answer.
            return (self, Checked::Hot);
        }
        match self.knowing(answer) {
            (word, None) => (word, Checked::Again),
            (word, Some(events)) if events.is_empty() && word.has(ENABLED) && !word.has(LATE) => {
                (word.without(QUEUED), Checked::Nothing)
            }
            (word, Some(_)) => (word, Checked::Hot),
        }
    }

    /// Decides what the dequeued node reports.
    #[inline]
    pub(super) fn taken(self) -> (Self, NodeTurn) {
        if self.has(LENT) && self.is_removing() {
            // The thread that takes the packet of the last operation continues the removal.
            return (self.without(QUEUED | LATE), NodeTurn::Nothing);
        }
        if self.has(CLOSED) {
            return (self, NodeTurn::Gone);
        }
        if self.has(REMOVING) {
            return if self.has(COLLECTED) {
                (self.without(QUEUED | LATE), NodeTurn::Collect)
            } else {
                (self, NodeTurn::Removed)
            };
        }
        if !self.has(ENABLED) {
            return (self.without(QUEUED | PENDING | LATE), NodeTurn::Nothing);
        }
        if self.has(UNCHECKED) {
            return (self, NodeTurn::Check);
        }
        let pending = self.pending();
        let is_late = self.has(LATE);
        let (reported, events) =
            if is_late { self.due_anyway(pending) } else { (pending, pending) };
        if events.is_empty() {
            return (self.without(QUEUED), NodeTurn::Nothing);
        }
        let told = if is_late { LATE | TIMED } else { 0 };
        let word = self.having_reported(reported).without(told);
        if word.has(ONE_SHOT) {
            (word.without(QUEUED | ENABLED).with(HELD), NodeTurn::Held(events))
        } else {
            (word, NodeTurn::Cloned(events))
        }
    }

    /// Returns what a packet that comes whatever the kernel reports says of the descriptor, and what
    /// it reports altogether. `pending` is what the kernel has reported.
    #[cold]
    fn due_anyway(self, pending: Events) -> (Events, Events) {
        if self.has(TIMED) {
            return (pending, pending | Events::TIMED_OUT);
        }
        let reported = pending | self.wanted(Facts::IN | Facts::OUT);
        (reported, if reported.is_empty() { Events::IN } else { reported })
    }

    /// Fast path of [`Word::taken`]: a one-shot, level-triggered packet reports something that the
    /// filter asks for, and the kernel need not be asked afterwards. Returns `None` in any other
    /// case.
    #[inline]
    pub(super) fn taken_plainly(self) -> Option<(Self, Events)> {
        const SPECIAL: u64 =
            CLOSED | COLLECTED | REMOVING | UNCHECKED | EDGE | RECHECK | PENDING_ERR | ALSO | LATE;
        let pending = (self.0 & PENDING) >> PENDING_SHIFT;
        if self.0 & (SPECIAL | ENABLED | ONE_SHOT) != ENABLED | ONE_SHOT
            || pending & self.0 & FILTER == 0
        {
            return None;
        }
        let word = self.without(PENDING | EDGES | QUEUED | ENABLED).with(HELD);
        Some((word, Events::from_bits(pending as u8)))
    }

    /// Decides what the dequeued node reports, after its key was cloned. A one-shot registration is
    /// left as if its handler had parked it immediately.
    #[inline]
    pub(super) fn taken_and_parked(self) -> (Self, NodeTurn) {
        match self.taken() {
            (word, NodeTurn::Held(events)) => {
                // This arms the slot again only for an additional request, as of the moment of that
                // request.
                match word.returned(None, false, Drained::NONE, self.armed_at()) {
                    (word, SlotStep::Nothing) => (word, NodeTurn::Held(events)),
                    // The caller still owns the node, and `cloned` queues it.
                    (word, _) => (word, NodeTurn::Cloned(events)),
                }
            }
            other => other,
        }
    }

    /// Fast path of [`Word::taken_and_parked`], under the conditions of [`Word::taken_plainly`].
    #[inline]
    pub(super) fn taken_and_parked_plainly(self) -> Option<(Self, Events)> {
        self.taken_plainly().map(|(word, events)| (word.without(HELD), events))
    }

    /// Continues after the key of a persistent packet was cloned: releases the node or queues it
    /// again. `unreported` has the events that are lost if the key could not be cloned.
    pub(super) fn cloned(self, unreported: Events) -> (Self, SlotStep) {
        if self.is_removing() {
            return (self, SlotStep::Queue);
        }
        if !self.has(ENABLED) {
            return (self.without(QUEUED | PENDING | LATE), SlotStep::Nothing);
        }
        // Unless the trigger is an edge, the condition may still hold, so the kernel is asked
        // first.
        let is_clear = self.has(EDGE) && unreported.is_empty();
        let word = if is_clear { self } else { self.with(UNCHECKED) };
        match word.next() {
            SlotStep::Nothing => (word.without(QUEUED), SlotStep::Nothing),
            next => (word, next),
        }
    }

    /// Notes that the deadline of the arming has expired.
    pub(super) fn expired(self) -> (Self, Expiry) {
        if !self.has(ENABLED) || !self.has(TIMED) {
            (self, Expiry::Untimed)
        } else if self.has(QUEUED) {
            (self, Expiry::Queued)
        } else {
            (self.with(LATE | QUEUED), Expiry::Claimed)
        }
    }

    /// Takes the expiry back. Returns whether there is something else to report. If not, the node
    /// is released.
    pub(super) fn expired_not(self) -> (Self, bool) {
        let word = self.without(LATE);
        if word.is_removing() || word.next() != SlotStep::Nothing {
            (word, true)
        } else {
            (word.without(QUEUED), false)
        }
    }
}
