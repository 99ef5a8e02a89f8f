//! One registration: an atomic word and all of its transitions.
//!
//! A transition is a pure function from word to word. [`Slot`] retries it until its
//! compare-and-swap succeeds. Each module answers one question:
//!
//! - [`alone`]: what is the state of the operation that waits by this word alone?
//! - [`operations`]: which operations have the key?
//! - [`ownership`]: which thread or token owns the node, and so the key?
//! - [`readiness`]: what does the slot remember of the kernel?
//! - [`report`]: what does a packet report?
//!
//! A module imports only modules further down this list. This file has the word and its table of
//! bits, which all but `report` share. Nothing outside this folder knows the position of a bit.

mod alone;
mod operations;
mod ownership;
mod readiness;
mod report;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::state::facts::Facts;
use crate::sync::{AtomicU32, AtomicU64};
use crate::types::interest::Mode;
use crate::types::interest::{Events, Interest};

pub(crate) use ownership::{
    Checked, Delivery, Expiry, Finish, NodeTurn, Refusal, Removal, SlotStep,
};
pub(crate) use readiness::Drained;
pub(crate) use report::{Answer, depends_on_kind, depends_on_unread};

// The table of bits. docs/design/SLOT.md lists what sets and clears each of them.

/// The position of the generation, above all other bits. It changes whenever the slot is freed.
pub(crate) const GENERATION: u32 = 44;
/// The number of generations of a slot. Each is used once, so the name of an ended registration is
/// never reused.
pub(crate) const GENERATIONS: u32 = 1 << (u64::BITS - GENERATION);

// What the registration asks for.

/// The event filter: one bit each for IN, OUT and HANGUP, as in [`Interest`].
const FILTER: u64 = 0b111;
/// The filter bits for IN and OUT.
const DIRECTIONS: u64 = 0b11;
/// Edge-triggered rather than level-triggered.
const EDGE: u64 = 1 << 3;
/// A packet disables the registration. Clear while operations are started by the registration's
/// name, and set while a token exists. So an operation's key is either shared or a token's.
const ONE_SHOT: u64 = 1 << 4;

// The owner of the node.

/// The registration may report. Never set together with `HELD`, `REMOVING` or `CLOSED`. While
/// `QUEUED` is clear, nothing is pending or unchecked.
const ENABLED: u64 = 1 << 5;
/// The node is on its way to a thread. Together with [`LONE`], it is the operation's node, and it
/// is on its way to a thread or with the thread that tries the operation.
const QUEUED: u64 = 1 << 12;
/// The registration is being removed: the next packet is the last one.
const REMOVING: u64 = 1 << 13;
/// A handler has the key, unless `LENT` is set as well. Nothing is pending or unchecked. Never set
/// together with `QUEUED`, except for [`LONE`].
const HELD: u64 = 1 << 14;
/// The slot is in use.
const LIVE: u64 = 1 << 15;
/// A thread waits for the removed key itself, so no packet is made. Without `REMOVING`, the port is
/// finishing: the registration is removed once its key is back and no operation is in flight. Never
/// set together with `CLOSED`.
const COLLECTED: u64 = 1 << 18;
/// The descriptor was closed without being removed: the key is dropped, and no packet is made.
/// Never set together with `REMOVING`.
const CLOSED: u64 = 1 << 19;
/// The key does not own the descriptor, which may be closed at any time.
const BORROWED: u64 = 1 << 20;

// What the slot remembers of the kernel.

/// By direction: a read or write is believed not to block.
const READY: u64 = DIRECTIONS << READY_SHIFT;
const READY_SHIFT: u32 = 6;
/// By direction: an edge arrived after the last packet was taken.
const EDGES: u64 = DIRECTIONS << EDGES_SHIFT;
const EDGES_SHIFT: u32 = 8;
/// A check has found that the peer ended the stream. After a short read, no further edge may report
/// that.
const HALF_CLOSED: u64 = 1 << 10;
/// The kernel reported an error, a hang-up, urgent data, or an end of either side. Enabling the
/// slot asks the kernel.
const RECHECK: u64 = 1 << 11;
/// The pending events must be checked with the kernel before they are reported.
const UNCHECKED: u64 = 1 << 16;
/// The socket was seen connected or listening, so a hang-up means that it has ended, and not that
/// it is connecting.
const ALIVE: u64 = 1 << 17;
/// The mask of the pending packet: IN, OUT, HANGUP, WRITE_CLOSED and, in the highest of the five
/// bits, ERR.
const PENDING: u64 = 0b1_1111 << PENDING_SHIFT;
const PENDING_SHIFT: u32 = 21;
const PENDING_ERR: u64 = 0b1_0000 << PENDING_SHIFT;
/// The number of the poll at which the slot was armed, modulo [`POLLS`].
const POLL: u64 = (POLLS as u64 - 1) << ARMED_AT;
const POLLS: u32 = 1 << 6;
const ARMED_AT: u32 = 26;
/// A packet has reported something that the registration did not ask for. No other packet does so
/// until the slot is enabled again. This bit may be above bit 31, since the fast paths never test
/// it.
const REPORTED: u64 = 1 << 32;
/// The position of two bits: the directions that the kernel watches. It reports changes in these
/// only.
const WATCHED_SHIFT: u32 = 33;
/// A one-shot reactor watches the descriptor until it is detached, because the last edge had
/// nothing to report.
const LASTING: u64 = 1 << 35;

// What is requested in addition to the filter.

/// What the registration reports in addition to its filter, until a packet has reported it: one bit
/// each for IN, OUT and HANGUP. Set only together with `ENABLED` or `HELD`, or while the
/// registration is ending.
const ALSO: u64 = FILTER << ALSO_SHIFT;
const ALSO_SHIFT: u32 = 36;

// What operations and deadlines need.

/// By direction: operations are outstanding. They wait, or one is being tried. Readiness of the
/// direction belongs to them and is not reported. Set only together with `LENT`.
const IN_FLIGHT: u64 = DIRECTIONS << IN_FLIGHT_SHIFT;
const IN_FLIGHT_SHIFT: u32 = 39;
/// Operations have the key until the packet of the last one is taken: the key stays in its cell and
/// is not moved out. If the registration has tokens, there is one operation, which has the key to
/// itself. `LENT` is then never set together with `ENABLED`, and together with `HELD` or `QUEUED`
/// only as part of [`LONE`].
const LENT: u64 = 1 << 41;
/// An operation started by a token has the key. It waits for an edge, or is tried, by this word
/// alone, without a place in an operation queue.
const LONE: u64 = HELD | LENT;
/// The arming has a deadline. Set only together with `ENABLED`.
const TIMED: u64 = 1 << 42;
/// A packet comes whatever the kernel reports: together with `TIMED`, because the deadline has
/// expired; otherwise because the handler asked for it. Set only together with `ENABLED` and
/// `QUEUED`, or while the registration is ending.
const LATE: u64 = 1 << 43;

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    /// Returns the word of a free slot.
    #[inline]
    fn free(generation: u32) -> Self {
        Self(u64::from(generation) << GENERATION)
    }

    #[inline]
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> GENERATION) as u32
    }

    #[inline]
    fn has(self, any: u64) -> bool {
        self.0 & any != 0
    }

    #[inline]
    fn with(self, bits: u64) -> Self {
        Self(self.0 | bits)
    }

    #[inline]
    fn without(self, bits: u64) -> Self {
        Self(self.0 & !bits)
    }

    pub(crate) fn is_live(self) -> bool {
        self.has(LIVE)
    }

    /// Returns whether `generation` names this registration.
    #[inline]
    fn names(self, generation: u32) -> bool {
        self.is_live() && self.generation() == generation
    }

    /// Returns what packets report: the filter and the additional request, without the directions
    /// that belong to operations.
    #[inline]
    pub(crate) fn interest(self) -> Interest {
        let in_flight = self.0 >> IN_FLIGHT_SHIFT & DIRECTIONS;
        Interest::from_bits(((self.0 | self.0 >> ALSO_SHIFT) & FILTER & !in_flight) as u8)
    }

    /// Returns what is requested in addition to the filter.
    #[inline]
    fn besides(self) -> Interest {
        Interest::from_bits((self.0 >> ALSO_SHIFT & FILTER) as u8)
    }

    /// Returns the directions with outstanding operations.
    pub(crate) fn in_flight(self) -> Facts {
        Facts::of_directions(self.0 >> IN_FLIGHT_SHIFT & DIRECTIONS)
    }

    pub(crate) fn mode(self) -> Mode {
        let interest = Interest::from_bits((self.0 & FILTER) as u8);
        Mode { interest, edge: self.has(EDGE), one_shot: self.has(ONE_SHOT) }
    }

    #[inline]
    fn with_mode(self, mode: Mode) -> Self {
        let edge = if mode.edge { EDGE } else { 0 };
        let one_shot = if mode.one_shot { ONE_SHOT } else { 0 };
        let bits = u64::from(mode.interest.bits()) | edge | one_shot;
        self.without(FILTER | EDGE | ONE_SHOT).with(bits)
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.generation())?;
        if !self.is_live() {
            return f.write_str(" free");
        }
        write!(f, " {:?}", self.mode().interest)?;
        let names = [
            (EDGE, "edge"),
            (ONE_SHOT, "one-shot"),
            (ENABLED, "enabled"),
            (1 << READY_SHIFT, "readable"),
            (2 << READY_SHIFT, "writable"),
            (1 << EDGES_SHIFT, "edge-in"),
            (2 << EDGES_SHIFT, "edge-out"),
            (HALF_CLOSED, "half-closed"),
            (RECHECK, "recheck"),
            (QUEUED, "queued"),
            (REMOVING, "removing"),
            (HELD, "held"),
            (UNCHECKED, "unchecked"),
            (ALIVE, "alive"),
            (COLLECTED, "collected"),
            (CLOSED, "closed"),
            (BORROWED, "borrowed"),
            (REPORTED, "reported"),
            (1 << WATCHED_SHIFT, "watched-in"),
            (2 << WATCHED_SHIFT, "watched-out"),
            (LASTING, "lasting"),
            (1 << ALSO_SHIFT, "also-in"),
            (2 << ALSO_SHIFT, "also-out"),
            (4 << ALSO_SHIFT, "also-hangup"),
            (1 << IN_FLIGHT_SHIFT, "in-flight-in"),
            (2 << IN_FLIGHT_SHIFT, "in-flight-out"),
            (LENT, "lent"),
            (TIMED, "timed"),
            (LATE, "late"),
        ];
        for (bit, name) in names {
            if self.has(bit) {
                let name = match bit {
                    HELD if self.is_lone() => "lone",
                    LATE if !self.has(TIMED) => "again",
                    COLLECTED if self.is_finishing() => "finishing",
                    _ => name,
                };
                write!(f, " {name}")?;
            }
        }
        if self.pending().is_empty() { Ok(()) } else { write!(f, " pending {:?}", self.pending()) }
    }
}

/// A registration's word and its link. The key is in a separate arena of the port.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    word: AtomicU64,
    /// The next node in the queue, the batch, or the list of free slots that this slot is in.
    pub(crate) link: AtomicU32,
    /// The descriptor's number, as bits.
    descriptor: AtomicU32,
}

impl Slot {
    #[inline]
    pub(crate) fn word(&self) -> Word {
        Word(self.word.load(Acquire))
    }

    #[inline]
    pub(crate) fn descriptor(&self) -> i32 {
        self.descriptor.load(Relaxed).cast_signed()
    }

    /// Retries `step` until no other thread changes the word in between. If `step` returns `None`,
    /// the word stays unchanged.
    #[inline]
    fn change_if<R>(&self, step: impl Fn(Word) -> Option<(Word, R)>) -> Option<R> {
        let mut word = self.word.load(Acquire);
        loop {
            let (wanted, outcome) = step(Word(word))?;
            match self.word.compare_exchange_weak(word, wanted.0, AcqRel, Acquire) {
                Ok(_) => return Some(outcome),
                Err(now) => word = now,
            }
        }
    }

    /// Retries `step` until no other thread changes the word in between. The exchange happens even
    /// if the word stays the same: the thread that changes it next then sees what this thread saw
    /// of the kernel.
    #[inline]
    fn change<R>(&self, step: impl Fn(Word) -> (Word, R)) -> R {
        self.change_if(|word| Some(step(word))).expect("every word has an answer")
    }

    /// Applies a request to the registration that `generation` names.
    fn request<R>(
        &self,
        generation: u32,
        step: impl Fn(Word) -> Result<(Word, R), Refusal>,
    ) -> Result<R, Refusal> {
        self.change(|word| match word.admits(generation).and_then(|()| step(word)) {
            Ok((word, outcome)) => (word, Ok(outcome)),
            Err(refusal) => (word, Err(refusal)),
        })
    }

    /// Sets the first generation, below [`GENERATIONS`], of a slot that was never used. No other
    /// thread may know the slot yet.
    pub(crate) fn begin_with(&self, generation: u32) {
        self.change(|_| (Word::free(generation), ()));
    }

    /// Makes a registration of a free slot and returns its generation. The caller holds the slot
    /// until it puts the key back.
    pub(crate) fn register(&self, descriptor: i32, mode: Mode, is_borrowed: bool) -> u32 {
        self.descriptor.store(descriptor.cast_unsigned(), Relaxed);
        self.change(|word| (word.registered(mode, is_borrowed), word.generation()))
    }

    /// Notes that the kernel watches these directions as well. The caller holds the lock of the
    /// descriptor's number, so that the number belongs to this registration.
    pub(crate) fn watch(&self, wanted: Facts) {
        self.change(|word| (word.watching(wanted), ()));
    }

    /// Makes the next enabling ask the kernel. With a one-shot reactor, every enabling does.
    pub(crate) fn suspect(&self) {
        self.change(|word| (word.suspected(), ()));
    }

    /// Prepares for asking a one-shot reactor, which replaces a check: releases the node and
    /// forgets what the slot remembers. The caller asks the kernel afterwards, and the answer is an
    /// edge. Returns false, and the caller still owns the node, if the node needs no answer. Only
    /// the owner of the node may call it.
    pub(crate) fn await_edge(&self) -> bool {
        self.change(Word::awaiting_edge)
    }

    /// Notes that a one-shot reactor watches the descriptor until it is detached. Returns false if
    /// it does already, or need not.
    pub(crate) fn make_lasting(&self, generation: u32) -> bool {
        self.change_if(|word| Some((word.lasting(generation)?, ()))).is_some()
    }

    /// Frees the slot. Only the owner of the node or of the token may call it.
    pub(crate) fn free(&self) {
        self.change(|word| (word.freed(), ()));
    }

    /// Applies an edge from the kernel, found by poll number `poll`. `newest` returns the highest
    /// poll number so far.
    pub(crate) fn deliver(
        &self,
        generation: u32,
        facts: Facts,
        poll: u32,
        newest: impl Fn() -> u32,
    ) -> Delivery {
        self.change(|word| word.delivered(generation, facts, poll, &newest))
    }

    /// Fast path of [`Slot::deliver`]: the caller now owns the node and queues a packet. Returns
    /// false and changes nothing if this is not the common case.
    #[inline]
    pub(crate) fn queue(
        &self,
        generation: u32,
        facts: Facts,
        poll: u32,
        newest: impl Fn() -> u32,
    ) -> bool {
        self.change_if(|word| Some((word.queued(generation, facts, poll, &newest)?, ()))).is_some()
    }

    /// Returns whether a request about the registration that `generation` names would be accepted
    /// now.
    pub(crate) fn admits(&self, generation: u32) -> Result<(), Refusal> {
        self.word().admits(generation)
    }

    /// Returns whether [`Slot::enable`] would be accepted now.
    pub(crate) fn may_enable(&self, generation: u32) -> Result<(), Refusal> {
        let word = self.word();
        word.admits(generation)?;
        if word.is_away() { Err(Refusal::Held) } else { Ok(()) }
    }

    /// Enables a registration whose key is neither with a handler nor with an operation started by
    /// a token. `drained` returns the hint that [`Slot::put_back`] takes. It is called after the
    /// word was read, and must be true for the state that this word describes.
    ///
    /// A persistent registration does not become a one-shot one: [`Refusal::Shared`].
    pub(crate) fn enable(
        &self,
        generation: u32,
        mode: Mode,
        drained: impl Fn() -> Drained,
        poll: u32,
    ) -> Result<SlotStep, Refusal> {
        self.request(generation, |word| {
            let enabled = || word.dried(drained()).enabled(mode, poll);
            if word.is_away() {
                Err(Refusal::Held)
            } else if word.may_be_shared_with(mode) {
                Err(Refusal::Shared)
            } else {
                Ok(enabled())
            }
        })
    }

    /// Enables a registration as [`Slot::enable`] does, with any `mode`. Its operations don't share
    /// the key, and the caller keeps it so meanwhile.
    pub(crate) fn enable_unshared(
        &self,
        generation: u32,
        mode: Mode,
        drained: impl Fn() -> Drained,
        poll: u32,
    ) -> Result<SlotStep, Refusal> {
        self.request(generation, |word| {
            let enabled = || word.dried(drained()).enabled(mode, poll);
            if word.is_away() { Err(Refusal::Held) } else { Ok(enabled()) }
        })
    }

    /// Fast path of [`Slot::enable`], if the kernel already watches everything in `mode`. Returns
    /// false and changes nothing if this is not the common case.
    #[inline]
    pub(crate) fn enable_plainly(
        &self,
        generation: u32,
        mode: Mode,
        drained: impl Fn() -> Drained,
        poll: u32,
    ) -> bool {
        let step = |word: Word| word.enabled_plainly(generation, mode, drained(), poll);
        self.change_if(|word| Some((step(word)?, ()))).is_some()
    }

    /// Requests `interest` in addition to the filter, until a packet has reported it. If the slot
    /// is held, it is armed for this when its key returns.
    pub(crate) fn enable_also(
        &self,
        generation: u32,
        interest: Interest,
        poll: u32,
    ) -> Result<SlotStep, Refusal> {
        self.request(generation, |word| Ok(word.enabled_also(interest, poll)))
    }

    /// Disables a registration. A packet of it that is already queued is dropped when it is
    /// dequeued.
    pub(crate) fn disable(&self, generation: u32) -> Result<(), Refusal> {
        self.request(generation, |word| Ok((word.disabled(), ())))
    }

    /// Marks a registration for removal. `collects`: the caller waits for the key itself. A caller
    /// that gets [`Removal::Owned`] owns the node.
    pub(crate) fn remove(&self, generation: u32, collects: bool) -> Result<Removal, Refusal> {
        let mark = if collects { COLLECTED } else { 0 };
        self.change(|word| match word.admits(generation) {
            Err(Refusal::Removing) => (word, Ok(Removal::Already)),
            Err(refusal) => (word, Err(refusal)),
            Ok(()) => {
                let (word, removal) = word.ending(REMOVING, mark);
                (word, Ok(removal))
            }
        })
    }

    /// Claims the node for the thread that waits for the key. Returns `None` while the node or the
    /// key has another owner, and an error once the registration has ended.
    pub(crate) fn collect(&self, generation: u32) -> Option<Result<(), Refusal>> {
        self.change(|word| {
            if word.admits(generation) == Err(Refusal::NotRegistered) {
                return (word, Some(Err(Refusal::NotRegistered)));
            }
            let (claimed, is_owned) = word.without(COLLECTED).claimed();
            if is_owned { (claimed, Some(Ok(()))) } else { (word, None) }
        })
    }

    /// Ends the wait for the key, so that the removal becomes an ordinary one. Returns true if the
    /// key is in its cell and the caller now owns the node.
    pub(crate) fn stop_collecting(&self, generation: u32) -> bool {
        self.change(|word| {
            let waits = word.names(generation) && word.has(COLLECTED);
            if waits { word.without(COLLECTED).claimed() } else { (word, false) }
        })
    }

    /// Begins the end of a registration, because the port is finishing. See [`Finish`].
    pub(crate) fn finish(&self, generation: u32, is_shared: bool) -> Option<Finish> {
        self.change_if(|word| word.finished(generation, is_shared))
    }

    /// Removes a finishing registration if nothing has its key. Returns `None` and changes nothing
    /// otherwise.
    pub(crate) fn finish_idle(&self, generation: u32) -> Option<Removal> {
        self.change_if(|word| word.finished_idle(generation))
    }

    /// Ends a registration whose descriptor was closed without being removed. A caller that gets
    /// [`Removal::Owned`] owns the node.
    pub(crate) fn retire(&self, generation: u32) -> Removal {
        self.request(generation, |word| Ok(word.ending(CLOSED, 0))).unwrap_or(Removal::Already)
    }

    /// Returns the key from its token and arms the slot, with a deadline if `timed`. A `mode` of
    /// `None` parks it.
    #[inline]
    pub(crate) fn put_back(
        &self,
        mode: Option<Mode>,
        timed: bool,
        drained: Drained,
        poll: u32,
    ) -> SlotStep {
        self.change(|word| word.returned(mode, timed, drained, poll))
    }

    /// Returns the key from its token, arms the slot as before, and requests a packet that comes
    /// whatever the kernel reports.
    pub(crate) fn put_back_again(&self, drained: Drained, poll: u32) -> SlotStep {
        self.change(|word| word.returned_again(drained, poll))
    }

    /// Fast path of [`Slot::put_back`]: arms the slot with `mode`, or as before if that is `None`.
    /// Returns false and changes nothing if this is not the common case.
    #[inline]
    pub(crate) fn rearm(
        &self,
        mode: Option<Mode>,
        timed: bool,
        drained: Drained,
        poll: u32,
    ) -> bool {
        self.change_if(|word| Some((word.rearmed(mode, timed, drained, poll)?, ()))).is_some()
    }

    /// Reports that the deadline of the arming has expired.
    pub(crate) fn expire(&self) -> Expiry {
        self.change(Word::expired)
    }

    /// Takes [`Slot::expire`] back, because the deadline was not that of this arming. Returns true
    /// if the caller still owns the node and queues it for something else. Otherwise the node is
    /// released.
    pub(crate) fn expire_not(&self) -> bool {
        self.change(Word::expired_not)
    }

    /// Prepares for a check: an edge that arrives from now on may be newer than the answer.
    pub(crate) fn begin_check(&self) {
        self.change(|word| (word.asking(), ()));
    }

    /// Accepts an edge from a one-shot reactor, found by poll number `poll`, as the answer to a
    /// check. Returns false and changes nothing if the slot was armed after that poll began. Only
    /// the owner of the node may call it.
    pub(crate) fn begin_answer(&self, poll: u32, newest: u32) -> bool {
        self.change_if(|word| Some((word.answered(poll, newest)?, ()))).is_some()
    }

    /// Applies the answer to a check. Only the owner of the node may call it.
    pub(crate) fn check(&self, answer: Answer) -> Checked {
        self.change(|word| word.checked(answer))
    }

    /// Decides what the dequeued node reports. Only the owner of the node may call it.
    pub(crate) fn take(&self) -> NodeTurn {
        self.change(Word::taken)
    }

    /// Fast path of [`Slot::take`] for [`NodeTurn::Held`]. Returns `None` and changes nothing if
    /// this is not the common case.
    #[inline]
    pub(crate) fn take_plainly(&self) -> Option<Events> {
        self.change_if(Word::taken_plainly)
    }

    /// Decides what the dequeued node reports, and parks a one-shot registration. Only the owner of
    /// the node may call it, after it has cloned the key: with [`NodeTurn::Held`], the caller no
    /// longer owns node and key. A one-shot packet is [`NodeTurn::Cloned`] if an additional request
    /// must be checked next.
    #[inline]
    pub(crate) fn take_and_park(&self) -> NodeTurn {
        self.change(Word::taken_and_parked)
    }

    /// Fast path of [`Slot::take_and_park`] for [`NodeTurn::Held`]; also returns the registration's
    /// generation. Returns `None` and changes nothing if this is not the common case.
    #[inline]
    pub(crate) fn take_and_park_plainly(&self) -> Option<(u32, Events)> {
        self.change_if(|word| {
            let (parked, events) = word.taken_and_parked_plainly()?;
            Some((parked, (word.generation(), events)))
        })
    }

    /// Continues after the key of a persistent packet was cloned. `unreported` has the events of a
    /// packet that was lost because the key could not be cloned. Only the owner of the node may
    /// call it.
    pub(crate) fn cloned(&self, unreported: Events) -> SlotStep {
        self.change(|word| word.cloned(unreported))
    }
}
