//! The owner of a slot's *node*: the right to touch the slot's key cell and to link the slot into a queue.
//!
//! - While neither `QUEUED` nor `HELD` is set, the node has no owner, and the key rests in its cell.
//! - While `QUEUED` is set, one thread at a time owns the node: first the thread that set the bit by a
//!   compare-and-swap, then the one that takes the slot off the queue, until one of them clears the bit.
//! - While `HELD` is set, the token of a packet owns the node.
//! - While `LENT` is set, operations have the key. Of a registration with tokens that is one operation, and it
//!   owns the node. Otherwise their packets bring clones of the key, and the slot may be queued besides; but
//!   no thread moves the key out.
//! - While `LONE` is set, that one operation is queued by its own node, and `QUEUED` says whether a thread has that.
//!
//! So at any time at most one thread may touch the key, and a slot stands in a queue at most once.
//!
//! This module leaves to [`readiness`](super::readiness) what the slot remembers. The short ways alone
//! ([`Word::queued`], [`Word::rearmed`], [`Word::handed`]) test and change bits of both: each does so with
//! one instruction.

use super::readiness::Drained;
use super::report::Answer;
use super::{
    ALSO, ALSO_SHIFT, BORROWED, CLOSED, COLLECTED, EDGE, EDGES, ENABLED, FILTER, FLYING,
    GENERATION, GENERATIONS, HALF_CLOSED, HELD, LASTING, LATE, LENT, LIVE, LONE, ONE_SHOT, PENDING,
    PENDING_ERR, PENDING_SHIFT, QUEUED, RECHECK, REMOVING, TIMED, UNCHECKED, Word,
};
use crate::state::facts::Facts;
use crate::types::interest::Mode;
use crate::types::interest::{Events, Interest};

/// What a transition leaves to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotStep {
    /// Nothing.
    Nothing,
    /// The caller owns the node now and queues a packet.
    Queue,
    /// The caller owns the node now and queues it for a check with the kernel.
    Recheck,
    /// The key is back in its cell, where a thread waits for it.
    Collect,
    /// The descriptor was closed: the key stays with the caller, which frees the slot.
    Gone,
}

/// What an edge from the kernel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The slot has been given up since; the kernel still reports the old descriptor.
    Stale,
    /// The slot remembers it.
    Noted(SlotStep),
    /// The same, and it concerns operations in flight, of these directions.
    NotifyOps(SlotStep, Facts),
    /// The slot remembers it. The caller has the node of the lone operation by that, and queues it.
    Due,
}

/// Why a request about a registration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such registration, or it has ended.
    NotRegistered,
    /// It is being removed.
    Removing,
    /// Its key is out with a handler, or with an operation.
    Held,
}

/// What a request for removal found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// The caller owns the node now.
    Owned,
    /// The owner of the node completes the removal.
    Marked,
    /// The registration is being removed already.
    Already,
}

/// What a slot says when a deadline is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// It is not armed with a deadline.
    Untimed,
    /// The caller owns the node now, and queues the packet that tells so.
    Claimed,
    /// It is armed with a deadline, and its node is queued already.
    Queued,
}

/// What a check found. Unless it is `Nothing`, the caller still owns the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// Nothing to report; the node has been given back.
    Nothing,
    /// The node is to be handed out.
    Hot,
    /// An edge overtook the answer.
    Again,
}

/// What a node turned out to be when its turn came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeTurn {
    /// Nothing to report: the node has been given back.
    Nothing,
    /// What is pending must be checked first; the caller still owns the node.
    Check,
    /// A one-shot packet: the key is the caller's now.
    Held(Events),
    /// A persistent packet: the caller still owns the node, clones the key, and then calls
    /// [`Slot::cloned`](super::Slot::cloned).
    Cloned(Events),
    /// The last packet: the caller owns node and key, and frees the slot.
    Removed,
    /// The descriptor was closed: the caller owns node and key, and frees the slot.
    Gone,
    /// The key was left in its cell for a thread that waits for it; the node has been given back.
    Collect,
}

impl Word {
    /// Whether the key is out with a handler.
    pub(crate) fn is_held(self) -> bool {
        self.0 & LONE == HELD
    }

    /// The directions that were asked for, if an edge is to queue the slot.
    pub(crate) fn armed_directions(self) -> Facts {
        let is_armed = self.has(ENABLED) && !self.has(QUEUED);
        if is_armed { Facts::asked_by(self.interest()) } else { Facts::NONE }
    }

    pub(crate) fn is_enabled(self) -> bool {
        self.has(ENABLED)
    }

    /// Whether it is enabled until a deadline.
    pub(crate) fn is_timed(self) -> bool {
        self.has(ENABLED) && self.has(TIMED)
    }

    /// Whether the key is out: with a handler, or with an operation that was started by a token.
    pub(super) fn is_away(self) -> bool {
        self.has(HELD) || (self.has(LENT) && self.has(ONE_SHOT))
    }

    pub(crate) fn is_borrowed(self) -> bool {
        self.has(BORROWED)
    }

    pub(crate) fn is_removing(self) -> bool {
        self.has(REMOVING | CLOSED)
    }

    /// Whether the node's turn brings a packet, without a check.
    pub(crate) fn is_due(self) -> bool {
        let is_removed = self.has(REMOVING) && !self.has(LENT);
        !self.has(CLOSED | COLLECTED) && (is_removed || self.next() == SlotStep::Queue)
    }

    /// Whether the node's turn asks for a check.
    pub(crate) fn is_unclear(self) -> bool {
        self.next() == SlotStep::Recheck
    }

    /// What is due while the slot is enabled: a packet, a check, or nothing.
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

    /// Whether `generation` names a registration that has not ended and is not about to.
    pub(super) fn admits(self, generation: u32) -> Result<(), Refusal> {
        if !self.names(generation) || self.has(CLOSED) {
            Err(Refusal::NotRegistered)
        } else if self.has(REMOVING) {
            Err(Refusal::Removing)
        } else {
            Ok(())
        }
    }

    /// The caller becomes the owner of the node if it has none. Returns whether that is so.
    pub(super) fn claimed(self) -> (Self, bool) {
        if self.has(HELD | QUEUED | LENT) { (self, false) } else { (self.with(QUEUED), true) }
    }

    /// The caller becomes the owner of the node if it has none and something is pending.
    pub(super) fn roused(self) -> (Self, SlotStep) {
        let next = if self.has(QUEUED) { SlotStep::Nothing } else { self.next() };
        if next == SlotStep::Nothing { (self, next) } else { (self.with(QUEUED), next) }
    }

    /// A free slot becomes a registration, held by the thread that makes it.
    pub(super) fn registered(self, mode: Mode, is_borrowed: bool) -> Self {
        let word = Self::free(self.generation()).with(LIVE | HELD).with_mode(mode);
        if is_borrowed { word.with(BORROWED) } else { word }
    }

    /// The slot is given up: a new generation, and nothing else.
    pub(super) fn freed(self) -> Self {
        Self::free((self.generation() + 1) % GENERATIONS)
    }

    /// The kernel has reported an edge, found by poll number `poll`; `newest` gives the highest
    /// number so far.
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
        // An end or an error is the operations' first. It is recalled when they are done.
        let ends = facts.any(Facts::ERR | Facts::HUP | Facts::RDHUP);
        let is_weighed = word.has(ENABLED) && !(ends && word.has(FLYING));
        let word = if is_weighed { word.weighing(facts, poll, newest) } else { word };
        let (word, next) = word.roused();
        let concerned = if is_rare { word.flying() } else { word.flying() & facts };
        if concerned == Facts::NONE {
            (word, Delivery::Noted(next))
        } else {
            (word, Delivery::NotifyOps(next, concerned))
        }
    }

    /// The short way of [`Word::delivered`]: the registration is armed, and a direction that it asks for is
    /// ready; the caller owns the node then. `None` in any other case.
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
            | FLYING;
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

    /// The slot is enabled with `mode`, without a deadline; its key is in its cell.
    pub(super) fn enabled(self, mode: Mode, poll: u32) -> (Self, SlotStep) {
        self.without(TIMED | LATE).with(ENABLED).with_mode(mode).recalling(poll).roused()
    }

    /// The short way of [`Word::enabled`], behind [`Word::dried`] and for the registration that `generation` names:
    /// nothing that it remembers must be checked. `None` in any other case.
    #[inline]
    pub(super) fn enabled_plainly(
        self,
        generation: u32,
        mode: Mode,
        drained: Drained,
        poll: u32,
    ) -> Option<Self> {
        const SPECIAL: u64 = CLOSED | REMOVING | HELD | LENT | RECHECK | HALF_CLOSED | ALSO;
        let state = self.0 & (u64::MAX << GENERATION | LIVE | SPECIAL);
        let word = self.dried(drained).with_mode(mode);
        if state != Self::free(generation).with(LIVE).0 || word.is_ready_or_unwatched() {
            return None;
        }
        Some(word.without(TIMED | LATE | PENDING).with(ENABLED).armed(poll))
    }

    /// More than the filter is asked for, until a packet has reported it.
    pub(super) fn enabled_also(self, interest: Interest, poll: u32) -> (Self, SlotStep) {
        let also = u64::from(interest.bits()) << ALSO_SHIFT;
        if interest.is_empty() {
            (self, SlotStep::Nothing)
        } else if self.is_away() {
            // The key's return arms the slot for it.
            (self.with(also), SlotStep::Nothing)
        } else if self.has(ENABLED) {
            self.with(also).recalling(poll).roused()
        } else {
            self.with(also).enabled_for_that_alone(poll)
        }
    }

    /// The slot, whose key is in its cell, is enabled for nothing but what was asked for besides its filter.
    fn enabled_for_that_alone(self, poll: u32) -> (Self, SlotStep) {
        self.enabled(Mode { interest: self.besides(), ..self.mode() }, poll)
    }

    /// Packets are made no more. A held slot stays as it is.
    pub(super) fn disabled(self) -> Self {
        if self.is_away() { self } else { self.without(ENABLED | ALSO) }
    }

    /// The registration ends for the reason that `bit` says. The caller becomes the owner of the node if it
    /// has none; otherwise `mark` is left for the owner.
    pub(super) fn ending(self, bit: u64, mark: u64) -> (Self, Removal) {
        match self.without(ENABLED).with(bit).claimed() {
            (word, true) => (word, Removal::Owned),
            (word, false) => (word.with(mark), Removal::Marked),
        }
    }

    /// The handler's token gives the key back and arms the slot (`mode`), with a deadline if it is `timed`, or
    /// parks it (`None`).
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
        if word.has(COLLECTED) {
            return (word, SlotStep::Collect);
        }
        if word.has(REMOVING) {
            return (word.with(QUEUED), SlotStep::Queue);
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

    /// The short way of [`Word::returned`]: the slot is armed with `mode`, or with the one it has, and
    /// nothing that it remembers must be checked. `None` in any other case; also where the former arming had no
    /// deadline and this one has, or the other way round.
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

    /// The kernel is about to be asked by a one-shot reactor, and answers by an edge: the node is given back
    /// for that, unless its turn needs no answer.
    pub(super) fn awaiting_edge(self) -> (Self, bool) {
        if self.is_removing() || !self.has(ENABLED) {
            (self, false)
        } else if self.has(LATE) {
            (self.without(UNCHECKED), false)
        } else {
            (self.forgetting().without(QUEUED), true)
        }
    }

    /// A one-shot reactor is to watch the descriptor until it is detached. `None` if it does, or need not.
    pub(super) fn lasting(self, generation: u32) -> Option<Self> {
        let needs = self.names(generation) && self.has(ENABLED) && !self.has(LASTING);
        needs.then(|| self.with(LASTING))
    }

    /// The kernel has answered a check.
    pub(super) fn checked(self, answer: Answer) -> (Self, Checked) {
        if self.is_removing() {
            // The turn asks for nothing else.
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

    /// The node's turn has come.
    #[inline]
    pub(super) fn taken(self) -> (Self, NodeTurn) {
        if self.has(LENT) && self.is_removing() {
            // The thread that takes the packet of the last operation goes on with the removal.
            return (self.without(QUEUED | LATE), NodeTurn::Nothing);
        }
        if self.has(CLOSED) {
            return (self, NodeTurn::Gone);
        }
        if self.has(COLLECTED) {
            return (self.without(QUEUED | LATE), NodeTurn::Collect);
        }
        if self.has(REMOVING) {
            return (self, NodeTurn::Removed);
        }
        if !self.has(ENABLED) {
            return (self.without(QUEUED | PENDING | LATE), NodeTurn::Nothing);
        }
        if self.has(UNCHECKED) {
            return (self, NodeTurn::Check);
        }
        let pending = self.pending();
        let events = if self.has(LATE) { pending | Events::TIMED_OUT } else { pending };
        if events.is_empty() {
            return (self.without(QUEUED), NodeTurn::Nothing);
        }
        let told = if self.has(LATE) { LATE | TIMED } else { 0 };
        let word = self.having_reported(pending).without(told);
        if word.has(ONE_SHOT) {
            (word.without(QUEUED | ENABLED).with(HELD), NodeTurn::Held(events))
        } else {
            (word, NodeTurn::Cloned(events))
        }
    }

    /// The short way of [`Word::taken`]: a one-shot, level-triggered packet of something that was asked for,
    /// after which the kernel need not be asked. `None` in any other case.
    #[inline]
    pub(super) fn handed(self) -> Option<(Self, Events)> {
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

    /// The node's turn has come, and its key has been cloned: a one-shot registration is left as if
    /// its handler had parked it at once.
    #[inline]
    pub(super) fn taken_and_parked(self) -> (Self, NodeTurn) {
        match self.taken() {
            (word, NodeTurn::Held(events)) => {
                // Armed again only for what was asked for besides: as of the moment when that was done.
                match word.returned(None, false, Drained::NONE, self.armed_at()) {
                    (word, SlotStep::Nothing) => (word, NodeTurn::Held(events)),
                    // The caller still owns the node, and `cloned` queues it.
                    (word, _) => (word, NodeTurn::Cloned(events)),
                }
            }
            other => other,
        }
    }

    /// The short way of [`Word::taken_and_parked`], as [`Word::handed`] is that of [`Word::taken`].
    #[inline]
    pub(super) fn handed_and_parked(self) -> Option<(Self, Events)> {
        self.handed().map(|(word, events)| (word.without(HELD), events))
    }

    /// The key of a persistent packet has been cloned; the node is given back or queued again.
    /// `unreported` if the key could not be cloned.
    pub(super) fn cloned(self, unreported: Events) -> (Self, SlotStep) {
        if self.is_removing() {
            return (self, SlotStep::Queue);
        }
        if !self.has(ENABLED) {
            return (self.without(QUEUED | PENDING | LATE), SlotStep::Nothing);
        }
        // Unless the trigger is an edge, the condition may still hold: the kernel is asked first.
        let is_clear = self.has(EDGE) && unreported.is_empty();
        let word = if is_clear { self } else { self.with(UNCHECKED) };
        match word.next() {
            SlotStep::Nothing => (word.without(QUEUED), SlotStep::Nothing),
            next => (word, next),
        }
    }

    /// The deadline of the arming is over.
    pub(super) fn expired(self) -> (Self, Expiry) {
        if !self.has(ENABLED) || !self.has(TIMED) {
            (self, Expiry::Untimed)
        } else if self.has(QUEUED) {
            (self, Expiry::Queued)
        } else {
            (self.with(LATE | QUEUED), Expiry::Claimed)
        }
    }

    /// The deadline is not over after all. Returns whether there is something else to report; if not, the node
    /// is given back.
    pub(super) fn expired_not(self) -> (Self, bool) {
        let word = self.without(LATE);
        if word.is_removing() || word.next() != SlotStep::Nothing {
            (word, true)
        } else {
            (word.without(QUEUED), false)
        }
    }
}
