//! One registration: an atomic word, and every transition that it can make.
//!
//! A transition is a pure function from word to word; [`Slot`] repeats it until its compare-and-swap
//! succeeds. Each module answers one question:
//!
//! - [`alone`]: how far is the operation that waits by this word alone?
//! - [`operations`]: which operations have the key?
//! - [`ownership`]: which thread or token owns the node, and so the key?
//! - [`readiness`]: what does the slot remember of the kernel?
//! - [`report`]: what does a packet report?
//!
//! Imports among them go down this list only. The word and its table of bits, which all but `report` share, are in this
//! file. Nothing outside this folder knows where a bit is.

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

pub(crate) use ownership::{Checked, Delivery, Expiry, NodeTurn, Refusal, Removal, SlotStep};
pub(crate) use readiness::Drained;
pub(crate) use report::{Answer, depends_on_kind, depends_on_unread};

// The table of bits. docs/design/SLOT.md says what sets and clears each, and which are reserved.

/// The generation stands above the bits; it changes whenever a slot is given up.
pub(crate) const GENERATION: u32 = 44;
/// How many generations a slot has. Each is used once: a name that has ended never comes back.
pub(crate) const GENERATIONS: u32 = 1 << (u64::BITS - GENERATION);

// What the registration asks for.

/// The event filter: one bit each for IN, OUT and HANGUP, as in [`Interest`].
const FILTER: u64 = 0b111;
/// Those for IN and OUT.
const DIRECTIONS: u64 = 0b11;
/// Edge-triggered rather than level-triggered.
const EDGE: u64 = 1 << 3;
/// A packet disables the registration.
const ONE_SHOT: u64 = 1 << 4;

// The owner of the node.

/// Packets may be made. Never together with `HELD`, `REMOVING` or `CLOSED`; and unless `QUEUED` is set as
/// well, nothing is pending and nothing unchecked.
const ENABLED: u64 = 1 << 5;
/// The node is on its way to a thread. Together with [`LONE`] it is the operation's node, which is on its way to a
/// thread, or with the one that tries the operation.
const QUEUED: u64 = 1 << 12;
/// To be removed: the next packet is the last one.
const REMOVING: u64 = 1 << 13;
/// The key is out with a handler, unless `LENT` is set as well. Nothing is pending and nothing unchecked; never together
/// with `QUEUED` but for [`LONE`].
const HELD: u64 = 1 << 14;
/// The slot is in use.
const LIVE: u64 = 1 << 15;
/// A thread waits for the removed key itself; no packet is made. Only together with `REMOVING`.
const COLLECTED: u64 = 1 << 18;
/// The descriptor was closed without being removed: the key is dropped, no packet is made. Never together
/// with `REMOVING`.
const CLOSED: u64 = 1 << 19;
/// The key does not own the descriptor, which may be closed at any time.
const BORROWED: u64 = 1 << 20;

// What is remembered of the kernel.

/// As far as is known, a read (a write) would not block.
const READY: u64 = DIRECTIONS << READY_SHIFT;
const READY_SHIFT: u32 = 6;
/// An edge came since the last packet was taken, by direction.
const EDGES: u64 = DIRECTIONS << EDGES_SHIFT;
const EDGES_SHIFT: u32 = 8;
/// A check has found that the peer has ended the stream. After a short read no further edge may
/// report that.
const HALF_CLOSED: u64 = 1 << 10;
/// An error, a hang-up, urgent data or an end of either side was seen: enabling the slot asks the kernel.
const RECHECK: u64 = 1 << 11;
/// What is pending must be checked with the kernel before it is reported.
const UNCHECKED: u64 = 1 << 16;
/// The socket was seen connected or listening, so a hang-up is its end, and not that of a connect.
const ALIVE: u64 = 1 << 17;
/// The mask of the pending packet: IN, OUT, HANGUP, WRITE_CLOSED and, in the highest of the five bits, ERR.
const PENDING: u64 = 0b1_1111 << PENDING_SHIFT;
const PENDING_SHIFT: u32 = 21;
const PENDING_ERR: u64 = 0b1_0000 << PENDING_SHIFT;
/// The number of the poll at which the slot was armed, modulo [`POLLS`].
const POLL: u64 = (POLLS as u64 - 1) << ARMED_AT;
const POLLS: u32 = 1 << 6;
const ARMED_AT: u32 = 26;
/// A packet has reported what the registration did not ask for; none does so again until the slot is
/// enabled. It stands above the other bits, since the short ways only clear it.
const REPORTED: u64 = 1 << 32;
/// How far up the two bits stand of the directions that the kernel has been asked for. It reports no change of
/// another one.
const WATCHED_SHIFT: u32 = 33;
/// A one-shot reactor watches the descriptor until it is detached, since the last edge was nothing to report.
const LASTING: u64 = 1 << 35;

// What was asked for besides.

/// What the registration is to report besides its filter, until a packet has reported it: one bit each for IN,
/// OUT and HANGUP. Only together with `ENABLED` or `HELD`, or where the registration is about to end.
const ALSO: u64 = FILTER << ALSO_SHIFT;
const ALSO_SHIFT: u32 = 36;

// What operations and deadlines need.

/// Operations of this direction are in flight: they wait, or one is being tried. Readiness of the direction is
/// theirs, and is not reported. Only together with `LENT`.
const FLYING: u64 = DIRECTIONS << FLYING_SHIFT;
const FLYING_SHIFT: u32 = 39;
/// Operations have the key, until the last of their packets is taken: it stays in its cell and is not moved out.
/// Where the registration has tokens, that is one operation, which alone has the key: never together with `ENABLED`
/// then, and with `HELD` and `QUEUED` as [`LONE`] only.
const LENT: u64 = 1 << 41;
/// An operation that a token has started has the key, and waits for an edge, or is tried, by this word alone: it has
/// no place in an operation queue.
const LONE: u64 = HELD | LENT;
/// The arming has a deadline. Only together with `ENABLED`.
const TIMED: u64 = 1 << 42;
/// The deadline is over: the next packet tells. Only together with `QUEUED`, or where the registration is about
/// to end.
const LATE: u64 = 1 << 43;

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

impl Word {
    /// A free slot's word.
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

    /// Whether this is the registration that `generation` names.
    #[inline]
    fn names(self, generation: u32) -> bool {
        self.is_live() && self.generation() == generation
    }

    /// What packets report: the filter, and what was asked for besides, but for the directions that operations
    /// have.
    #[inline]
    pub(crate) fn interest(self) -> Interest {
        let flying = self.0 >> FLYING_SHIFT & DIRECTIONS;
        Interest::from_bits(((self.0 | self.0 >> ALSO_SHIFT) & FILTER & !flying) as u8)
    }

    /// What was asked for besides the filter.
    #[inline]
    fn besides(self) -> Interest {
        Interest::from_bits((self.0 >> ALSO_SHIFT & FILTER) as u8)
    }

    /// The directions in which operations are in flight.
    pub(crate) fn flying(self) -> Facts {
        Facts::of_directions(self.0 >> FLYING_SHIFT & DIRECTIONS)
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
            (1 << FLYING_SHIFT, "flying-in"),
            (2 << FLYING_SHIFT, "flying-out"),
            (LENT, "lent"),
            (TIMED, "timed"),
            (LATE, "late"),
        ];
        for (bit, name) in names {
            if self.has(bit) {
                let name = if bit == HELD && self.is_lone() { "lone" } else { name };
                write!(f, " {name}")?;
            }
        }
        if self.pending().is_empty() { Ok(()) } else { write!(f, " pending {:?}", self.pending()) }
    }
}

/// A registration's word and its links. Its key lies beside it, in an arena of the port.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    word: AtomicU64,
    /// The next node of the queue or batch that this one stands in, and of the list of free slots.
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

    /// Repeats `step` until no other thread changed the word meanwhile, or `step` returns `None`: then
    /// nothing has changed.
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

    /// Repeats `step` until no other thread changed the word meanwhile. The word is written even if it stays
    /// as it is: the thread that changes it next sees what this thread saw of the kernel.
    #[inline]
    fn change<R>(&self, step: impl Fn(Word) -> (Word, R)) -> R {
        self.change_if(|word| Some(step(word))).expect("every word has an answer")
    }

    /// A request about the registration that `generation` names.
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

    /// The first generation of a slot that was never used, below [`GENERATIONS`]. No other thread knows the
    /// slot.
    pub(crate) fn begin_with(&self, generation: u32) {
        self.change(|_| (Word::free(generation), ()));
    }

    /// A free slot becomes a registration, held by the caller until it puts the key back. Returns its
    /// generation.
    pub(crate) fn register(&self, descriptor: i32, mode: Mode, is_borrowed: bool) -> u32 {
        self.descriptor.store(descriptor.cast_unsigned(), Relaxed);
        self.change(|word| (word.registered(mode, is_borrowed), word.generation()))
    }

    /// The kernel has been asked for these directions as well. The caller holds the lock of the descriptor's
    /// number, under which the slot's registration is the one that has the number.
    pub(crate) fn watch(&self, wanted: Facts) {
        self.change(|word| (word.watching(wanted), ()));
    }

    /// Whatever enables the slot asks the kernel. With a one-shot reactor it stays so.
    pub(crate) fn suspect(&self) {
        self.change(|word| (word.suspected(), ()));
    }

    /// What is done with a one-shot reactor instead of a check: the node is given back, and what was remembered
    /// is forgotten; the kernel is asked afterwards, and its answer is an edge. False, and the caller still owns
    /// the node, if its turn needs no answer. Only the owner of the node calls it.
    pub(crate) fn await_edge(&self) -> bool {
        self.change(Word::awaiting_edge)
    }

    /// A one-shot reactor is to watch the descriptor until it is detached. False if it does.
    pub(crate) fn make_lasting(&self, generation: u32) -> bool {
        self.change_if(|word| Some((word.lasting(generation)?, ()))).is_some()
    }

    /// The slot is given up. Only the owner of the node or of the token may call it.
    pub(crate) fn free(&self) {
        self.change(|word| (word.freed(), ()));
    }

    /// The kernel has reported an edge, found by poll number `poll`; `newest` gives the highest
    /// number so far.
    pub(crate) fn deliver(
        &self,
        generation: u32,
        facts: Facts,
        poll: u32,
        newest: impl Fn() -> u32,
    ) -> Delivery {
        self.change(|word| word.delivered(generation, facts, poll, &newest))
    }

    /// The short way of [`Slot::deliver`]: the caller owns the node now and queues a packet. False, and
    /// nothing has changed, in all but the common case.
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

    /// Whether a request about the registration that `generation` names would not be refused now.
    pub(crate) fn admits(&self, generation: u32) -> Result<(), Refusal> {
        self.word().admits(generation)
    }

    /// Whether [`Slot::enable`] would not be refused now.
    pub(crate) fn may_enable(&self, generation: u32) -> Result<(), Refusal> {
        let word = self.word();
        word.admits(generation)?;
        if word.is_away() { Err(Refusal::Held) } else { Ok(()) }
    }

    /// Enables a registration whose key is neither with a handler nor with an operation that a token has started.
    /// `drained` gives what [`Slot::put_back`] takes; it is
    /// called after the word was read, and must be true of the state that this word describes.
    pub(crate) fn enable(
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

    /// The short way of [`Slot::enable`], where the kernel has been asked for all of `mode` already. False, and nothing
    /// has changed, in all but the common case.
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

    /// Asks for more than the filter says, until a packet has reported it. A held slot is armed for it when its
    /// key comes back.
    pub(crate) fn enable_also(
        &self,
        generation: u32,
        interest: Interest,
        poll: u32,
    ) -> Result<SlotStep, Refusal> {
        self.request(generation, |word| Ok(word.enabled_also(interest, poll)))
    }

    /// Disables a registration; a queued packet of it is dropped when its turn comes.
    pub(crate) fn disable(&self, generation: u32) -> Result<(), Refusal> {
        self.request(generation, |word| Ok((word.disabled(), ())))
    }

    /// Marks a registration for removal; `collects` if the caller waits for the key itself. A caller that
    /// gets [`Removal::Owned`] owns the node.
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

    /// The thread that waited for the key claims the node, or gives up waiting (`None` as long as node or
    /// key has another owner).
    pub(crate) fn collect(&self, generation: u32) -> Option<Result<(), Refusal>> {
        self.change(|word| {
            if word.admits(generation) == Err(Refusal::NotRegistered) {
                return (word, Some(Err(Refusal::NotRegistered)));
            }
            let (claimed, is_owned) = word.without(COLLECTED).claimed();
            if is_owned { (claimed, Some(Ok(()))) } else { (word, None) }
        })
    }

    /// The thread that waited for the key waits no longer: the removal becomes an ordinary one.
    /// True if the key is in its cell and the caller owns the node now.
    pub(crate) fn stop_collecting(&self, generation: u32) -> bool {
        self.change(|word| {
            let waits = word.names(generation) && word.has(COLLECTED);
            if waits { word.without(COLLECTED).claimed() } else { (word, false) }
        })
    }

    /// The descriptor was closed without being removed. A caller that gets [`Removal::Owned`] owns the
    /// node.
    pub(crate) fn retire(&self, generation: u32) -> Removal {
        self.request(generation, |word| Ok(word.ending(CLOSED, 0))).unwrap_or(Removal::Already)
    }

    /// The token gives its key back, and arms the slot; with a deadline if it is `timed`.
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

    /// The short way of [`Slot::put_back`]: armed with `mode`, or as it was if that is `None`. False, and
    /// nothing has changed, in all but the common case.
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

    /// The deadline of the arming is over.
    pub(crate) fn expire(&self) -> Expiry {
        self.change(Word::expired)
    }

    /// The deadline that [`Slot::expire`] was told of is not the arming's. True if the caller, who owns the node
    /// by that, queues it all the same; it owns the node no longer otherwise.
    pub(crate) fn expire_not(&self) -> bool {
        self.change(Word::expired_not)
    }

    /// A check is about to be made: edges from now on are newer than its answer may be.
    pub(crate) fn begin_check(&self) {
        self.change(|word| (word.asking(), ()));
    }

    /// An edge of a one-shot reactor, found by poll number `poll`, is the answer to a check. False, and nothing has
    /// changed, if the slot was armed since that poll began. Only the owner of the node calls it.
    pub(crate) fn begin_answer(&self, poll: u32, newest: u32) -> bool {
        self.change_if(|word| Some((word.answered(poll, newest)?, ()))).is_some()
    }

    /// The answer to a check. Only the owner of the node calls it.
    pub(crate) fn check(&self, answer: Answer) -> Checked {
        self.change(|word| word.checked(answer))
    }

    /// The node's turn has come. Only the owner of the node calls it.
    pub(crate) fn take(&self) -> NodeTurn {
        self.change(Word::taken)
    }

    /// The short way of [`Slot::take`], for [`NodeTurn::Held`]. `None`, and nothing has changed, in all but the
    /// common case.
    #[inline]
    pub(crate) fn hand(&self) -> Option<Events> {
        self.change_if(Word::handed)
    }

    /// The node's turn has come. Only the owner of the node calls it, after it has cloned the key: after
    /// [`NodeTurn::Held`] node and key are the caller's no longer. A one-shot packet is [`NodeTurn::Cloned`] if what was
    /// asked for besides has to be checked next.
    #[inline]
    pub(crate) fn take_and_park(&self) -> NodeTurn {
        self.change(Word::taken_and_parked)
    }

    /// The short way of [`Slot::take_and_park`], for [`NodeTurn::Held`]: the registration's generation as well. `None`, and
    /// nothing has changed, in all but the common case.
    #[inline]
    pub(crate) fn hand_and_park(&self) -> Option<(u32, Events)> {
        self.change_if(|word| {
            let (parked, events) = word.handed_and_parked()?;
            Some((parked, (word.generation(), events)))
        })
    }

    /// The key of a persistent packet has been cloned. Only the owner of the node calls it.
    /// `unreported` if the key could not be cloned, and the packet is lost.
    pub(crate) fn cloned(&self, unreported: Events) -> SlotStep {
        self.change(|word| word.cloned(unreported))
    }
}
