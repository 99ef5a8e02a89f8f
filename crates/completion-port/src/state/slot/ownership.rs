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
    ALSO, ALSO_SHIFT, BORROWED, CLOSED, COLLECTED, EDGE, EDGES, EDGES_SHIFT, ENABLED, FILTER,
    FLYING, FLYING_SHIFT, GENERATION, GENERATIONS, HALF_CLOSED, HELD, LASTING, LATE, LENT, LIVE,
    LONE, ONE_SHOT, PENDING, PENDING_ERR, PENDING_SHIFT, QUEUED, READY_SHIFT, RECHECK, REMOVING,
    TIMED, UNCHECKED, Word,
};
use crate::state::facts::Facts;
use crate::types::interest::Mode;
use crate::types::interest::{Events, Interest};

/// What a transition leaves to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
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
    Noted(Next),
    /// The same, and it concerns operations in flight, of these directions.
    Stirred(Next, Facts),
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
pub(crate) enum Late {
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
pub(crate) enum Turn {
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

    /// Whether an operation that a token has started waits, or is tried, by this word alone.
    #[inline]
    pub(crate) fn is_lone(self) -> bool {
        self.0 & LONE == LONE
    }

    /// The direction in which a lone operation waits.
    pub(crate) fn waits_alone(self) -> Facts {
        if self.is_lone() && !self.has(QUEUED) { self.flying() } else { Facts::NONE }
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

    /// Whether operations have the key.
    pub(crate) fn is_lent(self) -> bool {
        self.has(LENT)
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
        !self.has(CLOSED | COLLECTED) && (is_removed || self.next() == Next::Queue)
    }

    /// Whether the node's turn asks for a check.
    pub(crate) fn is_unclear(self) -> bool {
        self.next() == Next::Recheck
    }

    /// What is due while the slot is enabled: a packet, a check, or nothing.
    fn next(self) -> Next {
        if !self.has(ENABLED) {
            Next::Nothing
        } else if self.has(UNCHECKED) {
            Next::Recheck
        } else if self.has(PENDING | LATE) {
            Next::Queue
        } else {
            Next::Nothing
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
    fn roused(self) -> (Self, Next) {
        let next = if self.has(QUEUED) { Next::Nothing } else { self.next() };
        if next == Next::Nothing { (self, next) } else { (self.with(QUEUED), next) }
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
            return word.stirred_alone(facts);
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
            (word, Delivery::Stirred(next, concerned))
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
    pub(super) fn enabled(self, mode: Mode, poll: u32) -> (Self, Next) {
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
    pub(super) fn enabled_also(self, interest: Interest, poll: u32) -> (Self, Next) {
        let also = u64::from(interest.bits()) << ALSO_SHIFT;
        if interest.is_empty() {
            (self, Next::Nothing)
        } else if self.is_away() {
            // The key's return arms the slot for it.
            (self.with(also), Next::Nothing)
        } else if self.has(ENABLED) {
            self.with(also).recalling(poll).roused()
        } else {
            self.with(also).enabled_for_that_alone(poll)
        }
    }

    /// The slot, whose key is in its cell, is enabled for nothing but what was asked for besides its filter.
    fn enabled_for_that_alone(self, poll: u32) -> (Self, Next) {
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
    ) -> (Self, Next) {
        if self.has(CLOSED) {
            return (self, Next::Gone);
        }
        let word = self.without(HELD);
        if word.has(COLLECTED) {
            return (word, Next::Collect);
        }
        if word.has(REMOVING) {
            return (word.with(QUEUED), Next::Queue);
        }
        let word = word.dried(drained);
        match mode {
            Some(mode) => {
                let (word, next) = word.enabled(mode, poll);
                (if timed { word.with(TIMED) } else { word }, next)
            }
            None if word.has(ALSO) => word.enabled_for_that_alone(poll),
            None => (word, Next::Nothing),
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
    pub(super) fn taken(self) -> (Self, Turn) {
        if self.has(LENT) && self.is_removing() {
            // The thread that takes the packet of the last operation goes on with the removal.
            return (self.without(QUEUED | LATE), Turn::Nothing);
        }
        if self.has(CLOSED) {
            return (self, Turn::Gone);
        }
        if self.has(COLLECTED) {
            return (self.without(QUEUED | LATE), Turn::Collect);
        }
        if self.has(REMOVING) {
            return (self, Turn::Removed);
        }
        if !self.has(ENABLED) {
            return (self.without(QUEUED | PENDING | LATE), Turn::Nothing);
        }
        if self.has(UNCHECKED) {
            return (self, Turn::Check);
        }
        let pending = self.pending();
        let events = if self.has(LATE) { pending | Events::TIMED_OUT } else { pending };
        if events.is_empty() {
            return (self.without(QUEUED), Turn::Nothing);
        }
        let told = if self.has(LATE) { LATE | TIMED } else { 0 };
        let word = self.having_reported(pending).without(told);
        if word.has(ONE_SHOT) {
            (word.without(QUEUED | ENABLED).with(HELD), Turn::Held(events))
        } else {
            (word, Turn::Cloned(events))
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
    pub(super) fn taken_and_parked(self) -> (Self, Turn) {
        match self.taken() {
            (word, Turn::Held(events)) => {
                // Armed again only for what was asked for besides: as of the moment when that was done.
                match word.returned(None, false, Drained::NONE, self.armed_at()) {
                    (word, Next::Nothing) => (word, Turn::Held(events)),
                    // The caller still owns the node, and `cloned` queues it.
                    (word, _) => (word, Turn::Cloned(events)),
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
    pub(super) fn cloned(self, unreported: Events) -> (Self, Next) {
        if self.is_removing() {
            return (self, Next::Queue);
        }
        if !self.has(ENABLED) {
            return (self.without(QUEUED | PENDING | LATE), Next::Nothing);
        }
        // Unless the trigger is an edge, the condition may still hold: the kernel is asked first.
        let is_clear = self.has(EDGE) && unreported.is_empty();
        let word = if is_clear { self } else { self.with(UNCHECKED) };
        match word.next() {
            Next::Nothing => (word.without(QUEUED), Next::Nothing),
            next => (word, next),
        }
    }

    /// The deadline of the arming is over.
    pub(super) fn expired(self) -> (Self, Late) {
        if !self.has(ENABLED) || !self.has(TIMED) {
            (self, Late::Untimed)
        } else if self.has(QUEUED) {
            (self, Late::Queued)
        } else {
            (self.with(LATE | QUEUED), Late::Claimed)
        }
    }

    /// The deadline is not over after all. Returns whether there is something else to report; if not, the node
    /// is given back.
    pub(super) fn expired_not(self) -> (Self, bool) {
        let word = self.without(LATE);
        if word.is_removing() || word.next() != Next::Nothing {
            (word, true)
        } else {
            (word.without(QUEUED), false)
        }
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

    /// Whether an operation of these directions, which its token may have tried before, is to be tried: one of them is
    /// ready, as far as is known, or an error or an end has come since the token has.
    #[inline]
    fn is_worth_another_attempt(self, directions: u64) -> bool {
        self.has(directions << READY_SHIFT | directions << EDGES_SHIFT)
    }

    /// No operation of this direction is in flight any more. If the registration is enabled, what holds is
    /// reported from here on.
    pub(super) fn grounded(self, direction: Facts, poll: u32) -> (Self, Next) {
        let word = self.without(u64::from(direction.directions()) << FLYING_SHIFT);
        if word.has(ENABLED) { word.recalling(poll).roused() } else { (word, Next::Nothing) }
    }

    /// The packet of an operation is taken that was started by a token: the key is the packet's.
    pub(super) fn landed(self) -> Self {
        self.without(LENT | EDGES | FLYING).with(HELD)
    }

    /// An operation was done by the token itself, and the caller queues its packet: the operation has the key.
    pub(super) fn lent_ended(self, drained: Drained) -> Self {
        self.dried(drained).without(TIMED).with(LENT | QUEUED)
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

    /// The edges of the direction of the lone operation.
    #[inline]
    fn edges_alone(self) -> u64 {
        (self.0 & FLYING) >> FLYING_SHIFT << EDGES_SHIFT
    }

    /// Whether an edge has come since the lone operation was last begun.
    #[inline]
    pub(super) fn is_stirred_alone(self) -> bool {
        self.has(self.edges_alone())
    }

    /// The lone operation is about to be tried.
    #[inline]
    pub(super) fn begun_alone(self) -> Self {
        self.without(self.edges_alone())
    }

    /// The edge, which was noted, may concern the lone operation.
    #[inline]
    fn stirred_alone(self, facts: Facts) -> (Self, Delivery) {
        // Nothing is reported meanwhile, and so nothing checked.
        let word = self.without(UNCHECKED);
        let is_rare = facts.any(Facts::RARE);
        let concerned = if is_rare { word.flying() } else { word.flying() & facts };
        if concerned == Facts::NONE {
            return (word, Delivery::Noted(Next::Nothing));
        }
        let word = word.with(u64::from(concerned.directions()) << READY_SHIFT);
        if word.has(QUEUED) {
            (word.with(word.edges_alone()), Delivery::Noted(Next::Nothing))
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
        match self.noting(facts).stirred_alone(facts) {
            (word, Delivery::Due) => Some(word),
            _ => None,
        }
    }

    /// The lone operation was tried, and would have to wait. Returns whether it is to be tried again; it waits
    /// otherwise.
    #[inline]
    pub(super) fn blocked_alone(self) -> (Self, bool) {
        if self.is_stirred_alone() {
            return (self.begun_alone(), true);
        }
        let ready = (self.0 & FLYING) >> FLYING_SHIFT << READY_SHIFT;
        (self.without(QUEUED | ready), false)
    }

    /// The packet of the lone operation is taken: the key is the packet's. If it is `dry`, the operation has taken what
    /// was there when it began.
    #[inline]
    pub(super) fn landed_alone(self, dry: bool) -> Self {
        let is_dry = dry && !self.is_stirred_alone();
        let ready = (self.0 & FLYING) >> FLYING_SHIFT << READY_SHIFT;
        let word = if is_dry { self.without(ready) } else { self };
        word.without(LENT | QUEUED | EDGES | FLYING)
    }

    /// The caller takes the node of a lone operation, if no other thread has it. Returns whether that is so.
    pub(super) fn claimed_alone(self) -> (Self, bool) {
        if self.is_lone() && !self.has(QUEUED) { (self.with(QUEUED), true) } else { (self, false) }
    }

    /// The lone operation goes on in its lane. Returns whether an edge has come since it was last begun.
    pub(super) fn laned(self) -> (Self, bool) {
        (self.without(HELD | QUEUED), self.is_stirred_alone())
    }

    /// The packet of the last operation is taken, and the key has been cloned for it.
    pub(super) fn landed_last(self) -> (Self, Next) {
        let word = self.without(LENT);
        if !word.is_removing() {
            (word, Next::Nothing)
        } else if word.has(COLLECTED) {
            // The thread that waits takes the node out of the queue, if that is where it stands.
            (word, Next::Collect)
        } else if word.has(QUEUED) {
            (word, Next::Nothing)
        } else {
            (word.with(QUEUED), Next::Queue)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{EDGES_SHIFT, READY_SHIFT};
    use super::*;
    use crate::types::interest::Interest;

    /// Any word of a registration that keeps the rules of the table of bits.
    fn words() -> impl Strategy<Value = Word> {
        (0..u64::MAX).prop_map(|bits| keeping_the_rules(Word(bits).with(LIVE)))
    }

    /// The word itself if it keeps the rules of the table of bits.
    fn keeping_the_rules(mut word: Word) -> Word {
        if word.has(ENABLED) {
            word = word.without(HELD | REMOVING | CLOSED);
            if !word.has(QUEUED) {
                word = word.without(UNCHECKED | PENDING);
            }
        }
        if word.has(LENT) && !word.has(ONE_SHOT) {
            word = word.without(HELD);
        }
        if word.has(HELD) {
            word = word.without(UNCHECKED | PENDING);
        }
        if word.is_held() {
            word = word.without(QUEUED);
        }
        if word.has(CLOSED) {
            word = word.without(REMOVING);
        }
        if !word.has(REMOVING) {
            word = word.without(COLLECTED);
        }
        if word.has(LENT) {
            if word.has(ONE_SHOT) {
                word = word.without(ENABLED | UNCHECKED | PENDING);
                word = if word.is_lone() { word } else { word.without(QUEUED) };
            }
        } else {
            word = word.without(FLYING);
        }
        if !word.is_away() && !word.has(ENABLED | REMOVING | CLOSED) {
            word = word.without(ALSO);
        }
        if word.has(QUEUED) && !word.is_lone() { word } else { word.without(LATE) }
    }

    /// What the kernel may report.
    fn facts() -> impl Strategy<Value = Facts> {
        prop::collection::vec(0..7_usize, 0..4).prop_map(|chosen| {
            let all = [
                Facts::IN,
                Facts::OUT,
                Facts::RDHUP,
                Facts::HUP,
                Facts::ERR,
                Facts::URGENT,
                Facts::IN | Facts::OUT,
            ];
            chosen.into_iter().fold(Facts::NONE, |facts, index| facts | all[index])
        })
    }

    fn modes() -> impl Strategy<Value = Mode> {
        (0..8_u8, any::<(bool, bool)>()).prop_map(|(filter, (edge, one_shot))| {
            let interest = Interest::from_bits(filter);
            Mode { interest, edge, one_shot }
        })
    }

    fn hints() -> impl Strategy<Value = Drained> {
        prop::sample::select(vec![Drained::NONE, Drained::READ, Drained::WRITE])
    }

    proptest! {
        /// Every transition keeps the rules of the table of bits.
        #[test]
        fn what_the_bits_exclude_never_comes(
            word in words(), facts in facts(), mode in modes(), drained in hints(), poll: u32,
            ago in 0..200_u32, choice: bool, is_out: bool,
        ) {
            let direction = if is_out { Facts::OUT } else { Facts::IN };
            let newest = || poll.wrapping_add(ago);
            let answer = Answer { is_own_end: choice, ..facts.into() };
            let unreported = if choice { Events::IN } else { Events::NONE };
            let mut reached = vec![
                word.registered(mode, choice),
                word.delivered(word.generation(), facts, poll, newest).0,
                word.disabled(),
            ];
            reached.extend(word.queued(word.generation(), facts, poll, newest));
            if !word.has(REMOVING | CLOSED) {
                reached.push(word.ending(REMOVING, if choice { COLLECTED } else { 0 }).0);
                reached.push(word.ending(CLOSED, 0).0);
                reached.push(word.enabled_also(mode.interest, poll).0);
                if !(word.is_away() || (word.has(LENT) && mode.one_shot)) {
                    reached.push(word.dried(drained).enabled(mode, poll).0);
                }
                reached.push(word.expired().0);
            } else if !word.has(CLOSED) {
                reached.push(word.without(COLLECTED).claimed().0);
            }
            if word.is_lone() {
                reached.extend([word.claimed_alone().0, word.begun_alone()]);
                if word.has(QUEUED) {
                    reached.push(word.blocked_alone().0);
                    reached.push(word.landed_alone(choice));
                    reached.push(word.laned().0);
                }
            } else if word.has(QUEUED) {
                reached.extend([
                    word.asking(),
                    word.awaiting_edge().0,
                    word.checked(answer).0,
                    word.taken().0,
                    word.taken_and_parked().0,
                    word.cloned(unreported).0,
                ]);
                reached.extend(word.handed().map(|(word, _)| word));
            }
            if word.is_held() {
                for timed in [false, true] {
                    reached.push(word.returned(choice.then_some(mode), timed, drained, poll).0);
                    reached.extend(word.rearmed(choice.then_some(mode), timed, drained, poll));
                }
                if word.has(ONE_SHOT) {
                    reached.extend(word.lent(direction, drained).ok());
                    reached.extend(word.lent_alone(direction, drained).ok().map(|(word, _)| word));
                    reached.push(word.lent_ended(drained));
                }
            } else if !word.has(ONE_SHOT) {
                let shared = word.shared(word.generation(), direction);
                reached.extend(shared.ok().map(|(word, _)| word));
            }
            if word.has(LENT) && !word.is_lone() {
                let grounded = word.grounded(direction, poll).0;
                reached.push(grounded);
                let last = grounded.without(FLYING);
                if word.has(ONE_SHOT) {
                    reached.push(last.landed());
                } else {
                    reached.push(last.landed_last().0);
                }
            }
            for word in reached {
                prop_assert_eq!(word, keeping_the_rules(word));
            }
        }

        /// The short way of arming does what the long one does.
        #[test]
        fn the_common_case_of_arming_is_no_other(
            word in words(), drained in hints(), poll: u32, other in modes(),
        ) {
            let word = keeping_the_rules(word.without(ENABLED | LENT).with(HELD));
            for (mode, timed) in [(None, false), (None, true), (Some(word.mode()), false), (Some(other), true)] {
                if let Some(armed) = word.rearmed(mode, timed, drained, poll) {
                    let mode = mode.unwrap_or(word.mode());
                    let general = word.returned(Some(mode), timed, drained, poll);
                    prop_assert_eq!(general, (armed, Next::Nothing));
                }
            }
        }

        /// The short ways of an edge and of a turn do what the long ones do, whatever the word.
        #[test]
        fn the_common_case_of_an_edge_is_no_other(
            word in words(), stray: bool, facts in facts(), poll: u32, ago in 0..200_u32,
        ) {
            let newest = || poll.wrapping_add(ago);
            let generation = (word.generation() + u32::from(stray)) % GENERATIONS;
            let armed = keeping_the_rules(word.with(ENABLED).without(QUEUED));
            for word in [word, armed] {
                if let Some(queued) = word.queued(generation, facts, poll, newest) {
                    let general = word.delivered(generation, facts, poll, newest);
                    prop_assert_eq!(general, (queued, Delivery::Noted(Next::Queue)));
                }
            }
            let lone = word.with(LONE | ONE_SHOT).without(ENABLED | QUEUED);
            let lone = keeping_the_rules(lone);
            prop_assert!(lone.is_lone());
            for word in [word, lone, lone.without(EDGES)] {
                if let Some(queued) = word.queued_alone(generation, facts) {
                    let general = word.delivered(generation, facts, poll, newest);
                    prop_assert_eq!(general, (queued, Delivery::Due));
                }
            }
        }

        #[test]
        fn the_common_case_of_a_turn_is_no_other(word in words()) {
            let likely = keeping_the_rules(word.with(ENABLED | ONE_SHOT | QUEUED));
            for word in [word, likely, likely.without(UNCHECKED | EDGE | PENDING_ERR)] {
                if let Some((handed, events)) = word.handed() {
                    prop_assert_eq!(word.taken(), (handed, Turn::Held(events)));
                }
                if let Some((parked, events)) = word.handed_and_parked() {
                    prop_assert_eq!(word.taken_and_parked(), (parked, Turn::Held(events)));
                }
            }
        }

        /// The short way of enabling does what the long one does, and refuses what that refuses.
        #[test]
        fn the_common_case_of_enabling_is_no_other(
            word in words(), stray: bool, drained in hints(), poll: u32, mode in modes(),
        ) {
            let generation = (word.generation() + u32::from(stray)) % GENERATIONS;
            let parked = word.without(ENABLED | HELD | LENT | FLYING | ALSO | REMOVING | COLLECTED | CLOSED);
            let parked = keeping_the_rules(parked.without(RECHECK | HALF_CLOSED));
            for word in [word, parked] {
                if let Some(enabled) = word.enabled_plainly(generation, mode, drained, poll) {
                    prop_assert_eq!(word.admits(generation), Ok(()));
                    prop_assert!(!word.is_away() && word.is_plain());
                    prop_assert_eq!(enabled.unwatched(Facts::asked_by(mode.interest)), None);
                    let general = word.dried(drained).enabled(mode, poll);
                    prop_assert_eq!(general, (enabled, Next::Nothing));
                }
            }
        }

        /// What is said of a turn beforehand is what it turns out to be.
        #[test]
        fn what_is_due_makes_a_packet(word in words()) {
            let (_, turn) = word.taken();
            let is_packet = matches!(turn, Turn::Held(_) | Turn::Cloned(_) | Turn::Removed);
            prop_assert_eq!(word.is_due(), is_packet);
            prop_assert_eq!(word.is_unclear(), turn == Turn::Check);
        }
    }

    #[test]
    fn what_is_common_goes_the_short_way() {
        let armed = Word(LIVE | ENABLED | ONE_SHOT | 1).armed(3);
        let queued = armed.queued(0, Facts::IN | Facts::OUT, 5, || 5).expect("armed before");
        assert!(armed.queued(0, Facts::IN, 3, || 3).is_none(), "armed since the poll began");
        assert!(armed.queued(0, Facts::OUT, 5, || 5).is_none(), "nobody asked for that");
        assert!(armed.queued(1, Facts::IN, 5, || 5).is_none(), "it is another one's");
        assert!(armed.queued(0, Facts::IN | Facts::ERR, 5, || 5).is_none());
        assert!(queued.queued(0, Facts::IN, 5, || 5).is_none(), "it is queued already");
        let (held, events) = queued.handed().expect("queued");
        assert_eq!(events, Events::IN);
        assert!(held.handed().is_none());
        assert!(queued.with(REMOVING).handed().is_none());
    }

    #[test]
    fn arming_with_a_hint_is_the_common_case() {
        let word = Word(LIVE | HELD | ONE_SHOT | 1 | 1 << READY_SHIFT);
        let word = word.watching(Facts::IN | Facts::OUT);
        let hint = Drained::READ;
        let room = Mode { interest: Interest::OUT, edge: false, one_shot: true };
        assert!(word.rearmed(None, false, hint, 3).is_some());
        assert!(word.rearmed(Some(room), false, hint, 3).is_some());
        assert!(word.rearmed(Some(Mode { edge: true, ..room }), false, hint, 3).is_some());
        assert!(word.rearmed(None, false, Drained::NONE, 3).is_none(), "it is still ready");
        assert!(word.with(RECHECK).rearmed(None, false, hint, 3).is_none());
    }

    #[test]
    fn enabling_with_a_hint_is_the_common_case() {
        let mode = Mode { interest: Interest::IN, edge: false, one_shot: true };
        let armed = Word::free(7).registered(mode, false).without(HELD).with(ENABLED).armed(3);
        let queued = armed.watching(Facts::IN).queued(7, Facts::IN, 5, || 5).expect("armed before");
        let (parked, events) = queued.handed_and_parked().expect("queued");
        assert_eq!((events, parked.has(HELD | ENABLED | QUEUED)), (Events::IN, false));
        let again = |word: Word, drained| word.enabled_plainly(7, mode, drained, 6);
        assert!(again(parked, Drained::READ).is_some_and(|word| word.has(ENABLED)));
        assert!(again(parked, Drained::NONE).is_none(), "it is still ready");
        assert!(again(parked.with(1 << EDGES_SHIFT), Drained::READ).is_none(), "there is more");
        for other in [HELD, LENT, REMOVING, CLOSED, RECHECK, HALF_CLOSED] {
            assert!(again(parked.with(other), Drained::READ).is_none());
        }
        let room = Mode { interest: Interest::OUT, ..mode };
        assert!(parked.enabled_plainly(7, room, Drained::READ, 6).is_none(), "it is not watched");
        assert!(parked.enabled_plainly(8, mode, Drained::READ, 6).is_none(), "it is another one's");
        assert!(again(parked.freed(), Drained::READ).is_none());
    }

    #[test]
    fn what_was_asked_for_besides_is_reported_once_and_changes_no_filter() {
        let both = Facts::IN | Facts::OUT;
        let also_out = |word: Word| word.enabled_also(Interest::OUT, 4);
        let armed = Word(LIVE | ENABLED | ONE_SHOT | 1).watching(both).armed(3);
        let (asked, next) = also_out(armed);
        assert_eq!((next, asked.interest()), (Next::Nothing, Interest::IN | Interest::OUT));
        assert!(asked.queued(0, Facts::OUT, 5, || 5).is_none(), "it takes the long way");
        let (queued, delivery) = asked.delivered(0, Facts::OUT, 5, || 5);
        assert_eq!(delivery, Delivery::Noted(Next::Queue));
        assert!(queued.handed().is_none(), "it takes the long way");
        let (held, turn) = queued.taken();
        assert_eq!(turn, Turn::Held(Events::OUT));
        assert_eq!((held.interest(), held.mode().interest), (Interest::IN, Interest::IN));

        // A packet that reports something else leaves it, through the arming with whatever filter.
        let (queued, _) = asked.delivered(0, Facts::IN, 5, || 5);
        let (held, turn) = queued.taken();
        assert_eq!((turn, held.besides()), (Turn::Held(Events::IN), Interest::OUT));
        assert!(held.rearmed(None, false, Drained::READ, 6).is_none(), "it takes the long way");
        let hangup = Mode { interest: Interest::HANGUP, ..held.mode() };
        let (armed, next) = held.returned(Some(hangup), false, Drained::READ, 6);
        assert_eq!((next, armed.interest()), (Next::Nothing, Interest::HANGUP | Interest::OUT));

        // A key that comes back to be parked is armed for that alone.
        let (asked, next) = also_out(held.without(ALSO));
        assert_eq!((next, asked.has(ENABLED)), (Next::Nothing, false));
        let (armed, next) = asked.returned(None, false, Drained::READ, 6);
        assert_eq!((next, armed.mode().interest), (Next::Nothing, Interest::OUT));
        assert!(armed.has(ENABLED) && armed.besides() == Interest::OUT);
        let (other, _) = armed.enabled(held.mode(), 7);
        assert_eq!(other.interest(), Interest::IN | Interest::OUT, "it is still to be reported");
        assert!(!armed.disabled().has(ENABLED | ALSO));
        let ready = held.with(2 << READY_SHIFT).returned(None, false, Drained::READ, 6);
        assert_eq!(ready.1, Next::Recheck, "what is remembered is checked");
    }

    #[test]
    fn what_is_not_watched_yet_is_not_armed_for() {
        let mode = |interest| Mode { interest, edge: false, one_shot: true };
        let word = Word::free(0).registered(mode(Interest::IN | Interest::HANGUP), false);
        assert!(word.rearmed(None, false, Drained::NONE, 3).is_none());
        let word = word.watching(word.wanted_directions());
        assert_eq!(
            (word.watched(), word.unwatched(Facts::asked_by(Interest::IN))),
            (Facts::IN, None)
        );
        assert!(word.rearmed(None, false, Drained::NONE, 3).is_some());
        assert!(word.rearmed(Some(mode(Interest::NONE)), false, Drained::NONE, 3).is_some());
        for interest in [Interest::OUT, Interest::ALL] {
            assert!(word.rearmed(Some(mode(interest)), false, Drained::NONE, 3).is_none());
            // What is watched already is kept.
            assert_eq!(word.unwatched(Facts::asked_by(interest)), Some(Facts::IN | Facts::OUT));
        }
        let widened = word.watching(Facts::IN | Facts::OUT);
        assert!(widened.rearmed(Some(mode(Interest::ALL)), false, Drained::NONE, 3).is_some());
        assert_eq!(widened.unwatched(Facts::asked_by(Interest::ALL)), None);
        assert_eq!(Word::free(0).freed().watched(), Facts::NONE);
    }
}
