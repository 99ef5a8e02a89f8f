//! One registration: an atomic word, and every transition it can make.
//!
//! The word says who owns the *node*, that is, the right to touch the slot's key cell and to link
//! the slot into a queue:
//!
//! - nobody, while neither `QUEUED` nor `HELD` is set: the key rests in its cell;
//! - whoever set `QUEUED` by a compare-and-swap, and after him whoever takes the slot off the queue,
//!   until one of them clears the bit;
//! - the token of a packet, while `HELD` is set.
//!
//! So at any time at most one thread may touch the key, and a slot stands in a queue at most once.
//! Each transition is a pure function from word to word; [`Slot`] repeats it until its
//! compare-and-swap succeeds.

use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use crate::interest::{Events, Interest};
use crate::state::facts::{Facts, Kind};
use crate::sync::{AtomicU32, AtomicU64};

// The table of bits in ARCHITECTURE.md says who sets and clears each, and which are reserved.

/// The generation stands above the bits; it changes whenever a slot is given up.
pub(crate) const GENERATION: u32 = 40;
/// How many generations a slot has. Each is used once: a name that has ended never comes back.
pub(crate) const GENERATIONS: u32 = 1 << (u64::BITS - GENERATION);
/// The number of the harvest at which the slot was armed, modulo 128, stands in these seven bits.
const ARMED_AT: u32 = 25;

/// The event filter: one bit each for IN, OUT and HANGUP, as in [`Interest`].
const FILTER: u32 = 0b111;
/// Edge-triggered rather than level-triggered.
const EDGE: u32 = 1 << 3;
/// A packet disables the registration.
const ONE_SHOT: u32 = 1 << 4;
/// Packets may be made.
const ENABLED: u32 = 1 << 5;
/// Cached readiness: as far as is known, a read (a write) would not block.
const READY: u32 = 0b11 << 6;
const READY_SHIFT: u32 = 6;
/// An edge came since the last packet was taken, by direction.
const EDGES: u32 = 0b11 << 8;
const EDGES_SHIFT: u32 = 8;
/// The peer has ended the stream, as a check has found out; a short read can leave this behind without
/// a further edge.
const HALF_CLOSED: u32 = 1 << 10;
/// An error, a hang-up, urgent data or an end that may be anybody's was seen: whatever enables the slot
/// asks the kernel.
const RECHECK: u32 = 1 << 11;
/// The node is on its way to a thread.
const QUEUED: u32 = 1 << 12;
/// To be removed: the next packet is the last one.
const REMOVING: u32 = 1 << 13;
/// The key is out with a handler.
const HELD: u32 = 1 << 14;
/// The slot is in use.
const LIVE: u32 = 1 << 15;
/// What is pending must be checked with the kernel before it is reported.
const UNCHECKED: u32 = 1 << 16;
/// The socket was seen connected or listening, so a hang-up is its end, and not that of a connect.
const ALIVE: u32 = 1 << 17;
/// A thread waits for the removed key itself, no packet is wanted.
const COLLECTED: u32 = 1 << 18;
/// The descriptor was closed without being removed: the key is dropped, no packet is made.
const CLOSED: u32 = 1 << 19;
/// The key does not own the descriptor, which may be closed at any time.
const BORROWED: u32 = 1 << 20;
/// The mask of the pending packet: IN, OUT, HANGUP and, in the highest of the four bits, ERR.
const PENDING: u32 = 0b1111 << 21;
const PENDING_SHIFT: u32 = 21;
const PENDING_ERR: u32 = 0b1000 << PENDING_SHIFT;
/// By how much ERR is further up in a mask than in these bits.
const ERR_SHIFT: u32 = 3;
/// The bits of that number.
const HARVEST: u32 = 0x7f << ARMED_AT;
/// What nobody asked for was told once; not again until the slot is enabled. It stands above the other
/// bits, since the short ways only clear it.
const REPORTED: u64 = 1 << 32;

/// What a registration asks for: filter and trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mode {
    /// The event filter.
    pub(crate) interest: Interest,
    /// Edge-triggered rather than level-triggered.
    pub(crate) edge: bool,
    /// A packet disables the registration.
    pub(crate) one_shot: bool,
}

impl Mode {
    #[inline]
    fn bits(self) -> u32 {
        u32::from(self.interest.bits())
            | if self.edge { EDGE } else { 0 }
            | if self.one_shot { ONE_SHOT } else { 0 }
    }
}

/// What a handler says it has drained, by direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drained(u8);

impl Drained {
    /// Nothing is said.
    pub(crate) const NONE: Self = Self(0);
    /// Reading would block.
    pub(crate) const READ: Self = Self(1);
    /// Writing would block.
    pub(crate) const WRITE: Self = Self(2);

    /// What either of the two says.
    #[inline]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[inline]
    fn directions(self) -> u32 {
        self.0.into()
    }
}

/// A value of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u64);

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
    /// The descriptor was closed: the key stays with the caller, who frees the slot.
    Gone,
}

/// What an edge from the kernel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The slot has been given up since; the kernel still reports the old descriptor.
    Stale,
    /// Noted.
    Noted(Next),
}

/// Why a request about a registration is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such registration, or it has ended.
    NotRegistered,
    /// It is being removed.
    Removing,
    /// Its key is out with a handler.
    Held,
}

/// What a request for removal found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    /// The caller owns the node now.
    Owned,
    /// Whoever has the node or the key sees to it.
    Marked,
    /// It is being removed already.
    Already,
}

/// The kernel's answer to a check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// What holds.
    pub(crate) facts: Facts,
    /// What kind of object it is; `None`: not asked.
    pub(crate) kind: Option<Kind>,
    /// How many bytes can be read; `None`: not asked, or not known.
    pub(crate) unread: Option<usize>,
    /// The facts tell of an end, but it is the process that shut a half of its own; the peer goes on.
    pub(crate) is_own_end: bool,
}

impl From<Facts> for Answer {
    /// An answer that tells nothing but what holds.
    fn from(facts: Facts) -> Self {
        Self { facts, kind: None, unread: None, is_own_end: false }
    }
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
    /// [`Slot::cloned`].
    Cloned(Events),
    /// The last packet: the caller owns node and key, and frees the slot.
    Removed,
    /// The descriptor was closed: the caller owns node and key, and frees the slot.
    Gone,
    /// The key was left in its cell for a thread that waits for it; the node has been given back.
    Collect,
}

impl Word {
    /// A free slot's word.
    fn free(generation: u32) -> Self {
        Self(u64::from(generation) << GENERATION)
    }

    #[inline]
    pub(crate) fn generation(self) -> u32 {
        (self.0 >> GENERATION) as u32
    }

    #[allow(clippy::cast_possible_truncation, reason = "the lower half is meant")]
    #[inline]
    fn bits(self) -> u32 {
        self.0 as u32
    }

    #[inline]
    fn has(self, bit: u32) -> bool {
        self.bits() & bit != 0
    }

    #[inline]
    fn with(self, bits: u32) -> Self {
        Self(self.0 | u64::from(bits))
    }

    #[inline]
    fn without(self, bits: u32) -> Self {
        Self(self.0 & !u64::from(bits))
    }

    pub(crate) fn interest(self) -> Interest {
        Interest::from_bits((self.bits() & FILTER) as u8)
    }

    pub(crate) fn is_live(self) -> bool {
        self.has(LIVE)
    }

    pub(crate) fn is_held(self) -> bool {
        self.has(HELD)
    }

    pub(crate) fn is_borrowed(self) -> bool {
        self.has(BORROWED)
    }

    fn is_reported(self) -> bool {
        self.0 & REPORTED != 0
    }

    #[inline]
    fn with_reported(self, reported: bool) -> Self {
        Self(self.0 & !REPORTED | if reported { REPORTED } else { 0 })
    }

    pub(crate) fn is_removing(self) -> bool {
        self.has(REMOVING | CLOSED)
    }

    /// Whether the peer is known to have ended the stream.
    pub(crate) fn is_half_closed(self) -> bool {
        self.has(HALF_CLOSED)
    }

    /// Whether the node's turn brings a packet, without a check.
    pub(crate) fn is_due(self) -> bool {
        let may_report = self.has(ENABLED) && !self.has(UNCHECKED) && !self.pending().is_empty();
        !self.has(CLOSED | COLLECTED) && (self.has(REMOVING) || may_report)
    }

    /// Whether the node's turn asks for a check.
    pub(crate) fn is_unclear(self) -> bool {
        !self.has(CLOSED | COLLECTED | REMOVING) && self.has(ENABLED) && self.has(UNCHECKED)
    }

    pub(crate) fn mode(self) -> Mode {
        Mode { interest: self.interest(), edge: self.has(EDGE), one_shot: self.has(ONE_SHOT) }
    }

    #[inline]
    fn names(self, generation: u32) -> bool {
        self.is_live() && self.generation() == generation
    }

    fn armed_at(self) -> u32 {
        (self.bits() & HARVEST) >> ARMED_AT
    }

    /// Whether the slot was armed at `harvest` or at a later one. Read from this word, the number of the
    /// harvest at which it was armed is no higher than `newest`. An old one may be taken for a later
    /// one, since the numbers come round again.
    fn armed_since(self, harvest: u32, newest: u32) -> bool {
        let ago = newest.wrapping_sub(self.armed_at()) & (HARVEST >> ARMED_AT);
        ago <= newest.wrapping_sub(harvest)
    }

    fn with_armed_at(self, harvest: u32) -> Self {
        self.without(HARVEST).with((harvest << ARMED_AT) & HARVEST)
    }

    #[inline]
    fn pending(self) -> Events {
        let pending = ((self.bits() & PENDING) >> PENDING_SHIFT) as u8;
        Events::from_bits(pending & 0b111 | (pending & 0b1000) << ERR_SHIFT)
    }

    #[inline]
    fn with_pending(self, events: Events) -> Self {
        let bits = u32::from(events.bits());
        let pending = bits & 0b111 | bits >> ERR_SHIFT & 0b1000;
        self.without(PENDING).with(pending << PENDING_SHIFT)
    }

    /// The conditions of both directions that `bits` (cached readiness or edges) and the filter
    /// have in common.
    fn wanted(self, directions: u32) -> Events {
        Events::from_bits((directions & self.bits() & 0b11) as u8)
    }

    fn ready(self) -> u32 {
        (self.bits() & READY) >> READY_SHIFT
    }

    fn edges(self) -> u32 {
        (self.bits() & EDGES) >> EDGES_SHIFT
    }

    /// A new registration of a free slot, held by whoever makes it.
    fn registered(self, mode: Mode, borrowed: bool) -> Self {
        Self::free(self.generation()).with(LIVE | HELD | mode.bits()).with(if borrowed {
            BORROWED
        } else {
            0
        })
    }

    /// The slot is given up: a new generation, and nothing else.
    fn freed(self) -> Self {
        Self::free((self.generation() + 1) % GENERATIONS)
    }

    /// An edge from the kernel, found by harvest number `harvest`; `newest` tells the highest number so
    /// far.
    fn delivered(
        self,
        generation: u32,
        facts: Facts,
        harvest: u32,
        newest: impl Fn() -> u32,
    ) -> (Self, Delivery) {
        if !self.names(generation) {
            return (self, Delivery::Stale);
        }
        let directions = facts.directions();
        let mut word = self.with(directions << READY_SHIFT | directions << EDGES_SHIFT);
        word = if facts.any(Facts::RARE) { word.noting_rare(facts) } else { word.with(ALIVE) };
        if word.bits() & (ENABLED | HELD | REMOVING | CLOSED) != ENABLED {
            return (word, Delivery::Noted(Next::Nothing));
        }
        let unclear = facts.any(Facts::ERR | Facts::HUP | Facts::RDHUP);
        let fresh = word.wanted(directions) - word.pending();
        // A level packet must be true of a moment after the slot was armed. The kernel may have
        // found this edge before the slot was armed only if that happened since the harvest began.
        if unclear || (!word.has(EDGE) && !fresh.is_empty() && word.armed_since(harvest, newest()))
        {
            word = word.with(UNCHECKED);
        } else {
            word = word.with_pending(word.pending() | fresh);
        }
        let news = unclear || !fresh.is_empty();
        if word.has(QUEUED) || !news {
            return (word, Delivery::Noted(Next::Nothing));
        }
        let next = if word.has(UNCHECKED) { Next::Recheck } else { Next::Queue };
        (word.with(QUEUED), Delivery::Noted(next))
    }

    /// The same for the common case: the registration is armed, and a direction that it asks for is
    /// ready; the caller owns the node then. `None` in any other.
    #[inline]
    fn queued(
        self,
        generation: u32,
        facts: Facts,
        harvest: u32,
        newest: impl Fn() -> u32,
    ) -> Option<Self> {
        const STATE: u32 = LIVE | ENABLED | QUEUED | HELD | REMOVING | CLOSED | UNCHECKED | PENDING;
        const ARMED: u64 = (LIVE | ENABLED) as u64;
        let state = self.0 & (u64::MAX << GENERATION | u64::from(STATE));
        let directions = facts.directions();
        let wanted = directions & self.bits() & 0b11;
        if state != u64::from(generation) << GENERATION | ARMED
            || wanted == 0
            || facts.any(Facts::RARE)
            || (!self.has(EDGE) && self.armed_since(harvest, newest()))
        {
            return None;
        }
        let known = directions << READY_SHIFT | directions << EDGES_SHIFT;
        Some(self.with(QUEUED | ALIVE | known | wanted << PENDING_SHIFT))
    }

    /// An edge tells of more than readiness.
    #[cold]
    fn noting_rare(self, facts: Facts) -> Self {
        let mut word = if facts.tell_of_life() { self.with(ALIVE) } else { self };
        // With urgent data a short read does not tell that nothing is left.
        let ended = facts.has(Facts::RDHUP) && !word.is_half_closed();
        if ended || facts.any(Facts::ERR | Facts::HUP | Facts::URGENT) {
            word = word.with(RECHECK);
        }
        if facts.any(Facts::ERR | Facts::HUP)
            && word.interest().intersects(Interest::IN | Interest::OUT)
        {
            word = word.with_reported(false);
        }
        if word.has(QUEUED) {
            // A check may be under way, and its answer be older than this.
            word = word.with(UNCHECKED);
        }
        word
    }

    /// The slot is enabled with `mode`; its key is in its cell. Sets what is pending from what is
    /// known.
    fn enabled(self, mode: Mode, harvest: u32) -> (Self, Next) {
        let word = self
            .without(FILTER | EDGE | ONE_SHOT)
            .with_reported(false)
            .with(ENABLED | mode.bits())
            .with_armed_at(harvest);
        let ends = Interest::IN | Interest::HANGUP;
        // Whatever the trigger: enabling says what holds.
        let unclear = word.has(RECHECK)
            || (word.has(HALF_CLOSED) && word.interest().intersects(ends))
            || !word.wanted(word.ready()).is_empty();
        let word = word.without(UNCHECKED).with_pending(Events::NONE);
        if !unclear {
            return (word, Next::Nothing);
        }
        let word = word.with(UNCHECKED);
        if word.has(QUEUED) { (word, Next::Nothing) } else { (word.with(QUEUED), Next::Recheck) }
    }

    /// What is drained is ready no more, unless an edge that came since the packet was taken proves
    /// that wrong.
    #[inline]
    fn dried(self, drained: Drained) -> Self {
        let dry = drained.directions() & !self.edges();
        self.without(dry << READY_SHIFT)
    }

    /// The handler's token gives the key back and arms the slot (`mode`) or parks it (`None`).
    fn returned(self, mode: Option<Mode>, drained: Drained, harvest: u32) -> (Self, Next) {
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
            Some(mode) => word.enabled(mode, harvest),
            None => (word, Next::Nothing),
        }
    }

    /// The same for the common case: armed with `mode`, or with the one it has, and nothing is known that
    /// speaks against it. `None` in any other.
    #[inline]
    fn rearmed(self, mode: Option<Mode>, drained: Drained, harvest: u32) -> Option<Self> {
        const SPECIAL: u32 = CLOSED | COLLECTED | REMOVING | RECHECK | HALF_CLOSED;
        let word = self.dried(drained);
        let word =
            mode.map_or(word, |mode| word.without(FILTER | EDGE | ONE_SHOT).with(mode.bits()));
        if self.has(SPECIAL) || word.ready() & word.bits() & 0b11 != 0 {
            return None;
        }
        let word = word.without(HELD | UNCHECKED).with_reported(false);
        Some(word.with(ENABLED).with_armed_at(harvest))
    }

    /// The kernel's answer to a check.
    fn checked(self, answer: Answer) -> (Self, Checked) {
        if self.has(UNCHECKED) {
            // Something unclear came since the question: it may be newer than the answer.
            return (self, Checked::Again);
        }
        let is_rare = answer.facts.any(Facts::RARE);
        let (mut word, directions) = if is_rare {
            self.knowing_rare(answer)
        } else {
            let word = if answer.facts.tell_of_life() { self.with(ALIVE) } else { self };
            (word.without(RECHECK), answer.facts.directions())
        };
        // What was not found, and what no edge brought since the question, is not ready.
        let kept = word.ready() & word.edges();
        word = word.without(READY).with((directions | kept) << READY_SHIFT);
        if !word.wanted(kept & !directions).is_empty() && !word.is_removing() {
            // An edge overtook the answer.
            return (word.with(UNCHECKED), Checked::Again);
        }
        let events = if is_rare {
            answer.report(word.interest(), word.is_reported(), word.has(ALIVE))
        } else {
            word.wanted(directions)
        };
        word = word.with_pending(events);
        // News since the packet, like an edge: a hint from before it proves nothing.
        word = word.with(u32::from(events.bits() & 0b11) << EDGES_SHIFT);
        if events.is_empty() && word.has(ENABLED) && !word.is_removing() {
            (word.without(QUEUED), Checked::Nothing)
        } else {
            (word, Checked::Hot)
        }
    }

    /// The answer to a check tells of more than readiness. In which directions something is ready.
    #[cold]
    fn knowing_rare(self, answer: Answer) -> (Self, u32) {
        let facts = answer.facts;
        if answer.is_fresh() {
            return (self.without(HALF_CLOSED).with(RECHECK), 0);
        }
        let mut word = if facts.tell_of_life() { self.with(ALIVE) } else { self };
        if facts.has(Facts::RDHUP) && !answer.is_own_end {
            word = word.with(HALF_CLOSED);
        }
        if !facts.any(Facts::ERR | Facts::HUP | Facts::URGENT) {
            word = word.without(RECHECK);
        }
        let nothing = answer.is_own_end && answer.unread == Some(0);
        let unready = if nothing { Facts::IN.directions() } else { 0 };
        (word, facts.directions() & !unready)
    }

    /// The node's turn has come.
    fn taken(self) -> (Self, Turn) {
        if self.has(CLOSED) {
            return (self, Turn::Gone);
        }
        if self.has(COLLECTED) {
            return (self.without(QUEUED), Turn::Collect);
        }
        if self.has(REMOVING) {
            return (self, Turn::Removed);
        }
        if !self.has(ENABLED) {
            return (self.without(QUEUED).with_pending(Events::NONE), Turn::Nothing);
        }
        if self.has(UNCHECKED) {
            return (self, Turn::Check);
        }
        let events = self.pending();
        if events.is_empty() {
            return (self.without(QUEUED), Turn::Nothing);
        }
        // The edges of a level registration only tell whether a hint is true of this packet; those of
        // an edge registration are news until they are reported.
        let reported = if self.has(EDGE) { self.bits() & 0b11 } else { 0b11 };
        let mut word = self.with_pending(Events::NONE).without(reported << EDGES_SHIFT);
        let asked = Events::from_bits(word.interest().bits());
        if !events.intersects(asked) {
            word = word.with_reported(true);
        }
        if word.has(RECHECK) {
            word = word.having_told(events);
        }
        if word.has(ONE_SHOT) {
            (word.without(QUEUED | ENABLED).with(HELD), Turn::Held(events))
        } else {
            (word, Turn::Cloned(events))
        }
    }

    /// A packet has told of `events`. If the last check has found a stream that was connected or listening
    /// and is as good as new, that was its end: from here on it is one that was never used.
    #[cold]
    fn having_told(self, events: Events) -> Self {
        let is_fresh = !self.has(READY | HALF_CLOSED) && !events.is_err();
        if is_fresh { self.without(ALIVE) } else { self }
    }

    /// The same for the common case: a one-shot, level-triggered packet of something that was asked
    /// for, with nothing suspect about it. `None` in any other.
    #[inline]
    fn handed(self) -> Option<(Self, Events)> {
        const SPECIAL: u32 =
            CLOSED | COLLECTED | REMOVING | UNCHECKED | EDGE | RECHECK | PENDING_ERR;
        let pending = (self.bits() & PENDING) >> PENDING_SHIFT;
        if self.bits() & (SPECIAL | ENABLED | ONE_SHOT) != ENABLED | ONE_SHOT
            || pending & self.bits() & FILTER == 0
        {
            return None;
        }
        let word = self.without(PENDING | EDGES | QUEUED | ENABLED).with(HELD);
        Some((word, Events::from_bits(pending as u8)))
    }

    /// The node's turn has come, and its key has been cloned: a one-shot registration is left as if
    /// its handler had parked it at once.
    fn taken_and_parked(self) -> (Self, Turn) {
        match self.taken() {
            (word, Turn::Held(events)) => {
                let (word, _) = word.returned(None, Drained::NONE, 0);
                (word, Turn::Held(events))
            }
            other => other,
        }
    }

    /// The key of a persistent packet has been cloned; the node is given back or queued again.
    /// `unreported` if it could not be cloned.
    fn cloned(self, unreported: Events) -> (Self, Next) {
        if self.has(REMOVING | CLOSED | COLLECTED) {
            return (self, Next::Queue);
        }
        if !self.has(ENABLED) {
            return (self.without(QUEUED).with_pending(Events::NONE), Next::Nothing);
        }
        if !self.has(EDGE) || !unreported.is_empty() {
            // The condition may still hold: whoever comes next asks the kernel.
            return (self.with(UNCHECKED), Next::Recheck);
        }
        if self.has(UNCHECKED) {
            return (self, Next::Recheck);
        }
        if self.pending().is_empty() {
            (self.without(QUEUED), Next::Nothing)
        } else {
            (self, Next::Queue)
        }
    }
}

/// Whether the kind of descriptor must be known to tell what `facts` mean.
pub(crate) fn depends_on_kind(interest: Interest, facts: Facts) -> bool {
    let ended = facts.any(Facts::HUP | Facts::RDHUP);
    let told = interest.contains(Interest::HANGUP) || interest == Interest::NONE;
    facts == Facts::OUT | Facts::HUP || (ended && told)
}

/// Whether the number of unread bytes must be known to tell what `facts` mean to `interest`.
pub(crate) fn depends_on_unread(interest: Interest, facts: Facts) -> bool {
    interest.contains(Interest::IN | Interest::HANGUP) && facts.any(Facts::HUP | Facts::RDHUP)
}

impl Answer {
    /// Whether this is the state of a stream socket that was never connected, or is so no more.
    fn is_fresh(self) -> bool {
        self.facts == Facts::OUT | Facts::HUP && self.kind == Some(Kind::Stream)
    }

    /// What a packet reports of it to a registration that asks for `interest`. `told`: what nobody asked
    /// for was told before; `alive`: the socket was seen connected or listening.
    fn report(self, interest: Interest, told: bool, alive: bool) -> Events {
        let Self { facts, kind, unread, is_own_end } = self;
        if self.is_fresh() && !alive {
            return Events::NONE;
        }
        let hung_up = facts.has(Facts::HUP);
        let ended =
            (hung_up || facts.has(Facts::RDHUP)) && kind != Some(Kind::Datagram) && !is_own_end;
        let failed = facts.has(Facts::ERR);
        let mut asked = Events::NONE;
        if ended && interest.contains(Interest::HANGUP) {
            asked |= Events::HANGUP;
        }
        if interest.contains(Interest::IN) && (facts.has(Facts::IN) || hung_up) {
            // The end of a stream makes a read return at once. Who asked for HANGUP is told so by that
            // and gets IN only for data, as does who has shut the reading half himself.
            let is_data = if is_own_end {
                unread.is_some_and(|unread| unread > 0)
            } else {
                !asked.is_hangup() || unread != Some(0)
            };
            if is_data {
                asked |= Events::IN;
            }
        }
        // A refused connect looks like a connection that was reset.
        let is_refused = failed && hung_up && !alive;
        if interest.contains(Interest::OUT) && (facts.has(Facts::OUT) || hung_up) && !is_refused {
            asked |= Events::OUT;
        }
        let unasked = if failed {
            Events::ERR
        } else if hung_up && ended && interest == Interest::NONE {
            Events::HANGUP
        } else {
            Events::NONE
        };
        if asked.is_empty() && told { Events::NONE } else { asked | unasked }
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.generation())?;
        if !self.is_live() {
            return f.write_str(" free");
        }
        write!(f, " {:?}", self.interest())?;
        let names = [
            (EDGE, "edge"),
            (ONE_SHOT, "one-shot"),
            (ENABLED, "enabled"),
            (READY & (1 << READY_SHIFT), "readable"),
            (READY & (2 << READY_SHIFT), "writable"),
            (EDGES & (1 << EDGES_SHIFT), "edge-in"),
            (EDGES & (2 << EDGES_SHIFT), "edge-out"),
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
        ];
        for (bit, name) in names {
            if self.has(bit) {
                write!(f, " {name}")?;
            }
        }
        if self.is_reported() {
            f.write_str(" reported")?;
        }
        if self.pending().is_empty() { Ok(()) } else { write!(f, " pending {:?}", self.pending()) }
    }
}

/// A registration's word and its links. Its key lies beside it, in an arena of the port.
#[derive(Debug)]
pub(crate) struct Slot {
    word: AtomicU64,
    /// The next node of the queue or batch that this one stands in, and of the list of free slots.
    pub(crate) link: AtomicU32,
    /// The descriptor's number, as bits.
    descriptor: AtomicU32,
}

impl Default for Slot {
    fn default() -> Self {
        Self { word: AtomicU64::new(0), link: AtomicU32::new(0), descriptor: AtomicU32::new(0) }
    }
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

    /// Repeats `step` until nobody changed the word meanwhile. Written also if the word stays as it
    /// is: whoever changes it next sees what this thread saw of the kernel.
    #[inline]
    fn change<R>(&self, step: impl Fn(Word) -> (Word, R)) -> R {
        let mut word = self.word.load(Acquire);
        loop {
            let (wanted, outcome) = step(Word(word));
            match self.word.compare_exchange_weak(word, wanted.0, AcqRel, Acquire) {
                Ok(_) => return outcome,
                Err(now) => word = now,
            }
        }
    }

    /// Repeats `step` until nobody changed the word meanwhile, or it has no answer: then nothing has
    /// changed.
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

    /// The first generation of a slot that was never used, below [`GENERATIONS`]. Nobody else knows the
    /// slot.
    pub(crate) fn begin_with(&self, generation: u32) {
        self.change(|_| (Word::free(generation), ()));
    }

    /// A free slot becomes a registration, held by the caller until he has put its key back; returns
    /// its generation.
    pub(crate) fn register(&self, descriptor: i32, mode: Mode, borrowed: bool) -> u32 {
        self.descriptor.store(descriptor.cast_unsigned(), Relaxed);
        self.change(|word| (word.registered(mode, borrowed), word.generation()))
    }

    /// The slot is given up. Only the owner of the node or of the token may call it.
    pub(crate) fn free(&self) {
        self.change(|word| (word.freed(), ()));
    }

    /// An edge from the kernel, found by harvest number `harvest`; `newest` tells the highest number so
    /// far.
    pub(crate) fn deliver(
        &self,
        generation: u32,
        facts: Facts,
        harvest: u32,
        newest: impl Fn() -> u32,
    ) -> Delivery {
        self.change(|word| word.delivered(generation, facts, harvest, &newest))
    }

    /// The same in the common case: the caller owns the node now and queues a packet. False, and nothing
    /// has changed, in any other.
    #[inline]
    pub(crate) fn queue(
        &self,
        generation: u32,
        facts: Facts,
        harvest: u32,
        newest: impl Fn() -> u32,
    ) -> bool {
        self.change_if(|word| Some((word.queued(generation, facts, harvest, &newest)?, ())))
            .is_some()
    }

    /// Enables a registration whose key is in its cell. `drained` says what [`Slot::put_back`] is told;
    /// it is asked when the state is known that will be changed, and must be true of that state.
    pub(crate) fn enable(
        &self,
        generation: u32,
        mode: Mode,
        drained: impl Fn() -> Drained,
        harvest: u32,
    ) -> Result<Next, Refusal> {
        self.change(|word| {
            if !word.names(generation) || word.has(CLOSED) {
                (word, Err(Refusal::NotRegistered))
            } else if word.has(REMOVING) {
                (word, Err(Refusal::Removing))
            } else if word.has(HELD) {
                (word, Err(Refusal::Held))
            } else {
                let (word, next) = word.dried(drained()).enabled(mode, harvest);
                (word, Ok(next))
            }
        })
    }

    /// Disables a registration; a queued packet of it is dropped when its turn comes.
    pub(crate) fn disable(&self, generation: u32) -> Result<(), Refusal> {
        self.change(|word| {
            if !word.names(generation) || word.has(CLOSED) {
                (word, Err(Refusal::NotRegistered))
            } else if word.has(REMOVING) {
                (word, Err(Refusal::Removing))
            } else {
                (word.without(ENABLED), Ok(()))
            }
        })
    }

    /// Marks a registration for removal; `collect` if the caller waits for the key itself. Whoever
    /// gets [`Removal::Owned`] owns the node.
    pub(crate) fn remove(&self, generation: u32, collect: bool) -> Result<Removal, Refusal> {
        self.change(|word| {
            if !word.names(generation) || word.has(CLOSED) {
                return (word, Err(Refusal::NotRegistered));
            }
            if word.has(REMOVING) {
                return (word, Ok(Removal::Already));
            }
            let marked = word.without(ENABLED).with(REMOVING);
            if word.has(HELD | QUEUED) {
                (marked.with(if collect { COLLECTED } else { 0 }), Ok(Removal::Marked))
            } else {
                (marked.with(QUEUED), Ok(Removal::Owned))
            }
        })
    }

    /// The thread that waited for the key claims the node, or gives up waiting (`None` as long as
    /// somebody else has node or key).
    pub(crate) fn collect(&self, generation: u32) -> Option<Result<(), Refusal>> {
        self.change(|word| {
            if !word.names(generation) || word.has(CLOSED) {
                (word, Some(Err(Refusal::NotRegistered)))
            } else if word.has(HELD | QUEUED) {
                (word, None)
            } else {
                (word.with(QUEUED).without(COLLECTED), Some(Ok(())))
            }
        })
    }

    /// The thread that waited for the key waits no longer: the removal becomes an ordinary one.
    /// True if the key is in its cell and the caller owns the node now.
    pub(crate) fn stop_collecting(&self, generation: u32) -> bool {
        self.change(|word| {
            if !word.names(generation) || !word.has(COLLECTED) {
                (word, false)
            } else if word.has(HELD | QUEUED) {
                (word.without(COLLECTED), false)
            } else {
                (word.without(COLLECTED).with(QUEUED), true)
            }
        })
    }

    /// The descriptor was closed without being removed. Whoever gets [`Removal::Owned`] owns the
    /// node.
    pub(crate) fn retire(&self, generation: u32) -> Removal {
        self.change(|word| {
            if !word.names(generation) || word.has(REMOVING | CLOSED) {
                return (word, Removal::Already);
            }
            let gone = word.without(ENABLED).with(CLOSED);
            if word.has(HELD | QUEUED) {
                (gone, Removal::Marked)
            } else {
                (gone.with(QUEUED), Removal::Owned)
            }
        })
    }

    /// The token gives its key back, and arms the slot.
    #[inline]
    pub(crate) fn put_back(&self, mode: Option<Mode>, drained: Drained, harvest: u32) -> Next {
        self.change(|word| word.returned(mode, drained, harvest))
    }

    /// The same in the common case, armed with `mode` or as it was; false, and nothing has changed, in any
    /// other.
    #[inline]
    pub(crate) fn rearm(&self, mode: Option<Mode>, drained: Drained, harvest: u32) -> bool {
        self.change_if(|word| Some((word.rearmed(mode, drained, harvest)?, ()))).is_some()
    }

    /// A check is about to be made: edges from now on are newer than its answer may be.
    pub(crate) fn begin_check(&self) {
        self.change(|word| (word.without(EDGES | UNCHECKED), ()));
    }

    /// The answer to a check. Only the owner of the node calls it.
    pub(crate) fn check(&self, answer: Answer) -> Checked {
        self.change(|word| word.checked(answer))
    }

    /// The node's turn has come. Only the owner of the node calls it.
    pub(crate) fn take(&self) -> Turn {
        self.change(Word::taken)
    }

    /// The same in the common case: [`Turn::Held`]. `None`, and nothing has changed, in any other.
    #[inline]
    pub(crate) fn hand(&self) -> Option<Events> {
        self.change_if(Word::handed)
    }

    /// The node's turn has come. Only the owner of the node calls it, who has cloned the key before:
    /// after [`Turn::Held`] node and key are the caller's no longer.
    #[inline]
    pub(crate) fn take_and_park(&self) -> Turn {
        self.change(Word::taken_and_parked)
    }

    /// The key of a persistent packet has been cloned. Only the owner of the node calls it.
    /// `unreported` if it could not be cloned, and the packet is lost.
    pub(crate) fn cloned(&self, unreported: Events) -> Next {
        self.change(|word| word.cloned(unreported))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Everything below the generation.
    fn word_bits() -> std::ops::Range<u64> {
        0..1 << GENERATION
    }

    proptest! {
        /// The short way of arming does what the long one does.
        #[test]
        fn the_common_case_of_arming_is_no_other(
            bits in word_bits(), generation in 0..GENERATIONS, read: bool, write: bool, harvest: u32,
            filter in 0..8_u8, edge: bool, one_shot: bool,
        ) {
            // What a held slot may look like.
            let word = Word(Word::free(generation).0 | bits)
                .with(LIVE | HELD | ONE_SHOT)
                .without(QUEUED | ENABLED | UNCHECKED | PENDING);
            let said = |said, drained| if said { drained } else { Drained::NONE };
            let drained = said(read, Drained::READ).and(said(write, Drained::WRITE));
            let other = Mode { interest: Interest::from_bits(filter), edge, one_shot };
            for mode in [None, Some(word.mode()), Some(other)] {
                if let Some(armed) = word.rearmed(mode, drained, harvest) {
                    let mode = mode.unwrap_or(word.mode());
                    let general = word.returned(Some(mode), drained, harvest);
                    prop_assert_eq!(general, (armed, Next::Nothing));
                }
            }
        }
    }

    proptest! {
        /// The short ways of an edge and of a turn do what the long ones do, whatever the word.
        #[test]
        fn the_common_case_of_an_edge_is_no_other(
            bits in word_bits(), generation in 0..GENERATIONS, stray: bool, rare: bool, facts in 0..4_u8, harvest: u32,
            ago in 0..200_u32,
        ) {
            let word = Word(Word::free(generation).0 | bits);
            let mut seen = [Facts::NONE, Facts::IN, Facts::OUT, Facts::IN | Facts::OUT][usize::from(facts)];
            if rare {
                seen |= Facts::RDHUP;
            }
            let newest = || harvest.wrapping_add(ago);
            // Rarely of another generation; mostly of a word that is armed.
            let generation = (generation + u32::from(stray)) % GENERATIONS;
            let likely = Word(word.with(LIVE | ENABLED).without(QUEUED | HELD | REMOVING | CLOSED).0);
            let armed = likely.without(UNCHECKED | PENDING);
            for word in [word, likely, armed] {
                if let Some(queued) = word.queued(generation, seen, harvest, newest) {
                    let general = word.delivered(generation, seen, harvest, newest);
                    prop_assert_eq!(general, (queued, Delivery::Noted(Next::Queue)));
                }
            }
        }

        #[test]
        fn the_common_case_of_a_turn_is_no_other(bits in word_bits(), generation in 0..GENERATIONS) {
            let word = Word(Word::free(generation).0 | bits);
            let likely = word.with(ENABLED | ONE_SHOT).without(CLOSED | COLLECTED | REMOVING | UNCHECKED);
            for word in [word, likely, likely.without(EDGE | PENDING_ERR)] {
                if let Some((handed, events)) = word.handed() {
                    prop_assert_eq!(word.taken(), (handed, Turn::Held(events)));
                }
            }
        }
    }

    proptest! {
        /// What is said of a turn beforehand is what it turns out to be.
        #[test]
        fn what_is_due_makes_a_packet(bits: u32, generation: u32) {
            let word = Word(u64::from(generation) << GENERATION | u64::from(bits));
            for word in [word, word.without(CLOSED | COLLECTED), word.without(CLOSED | COLLECTED | REMOVING)] {
                let (_, turn) = word.taken();
                let is_packet = matches!(turn, Turn::Held(_) | Turn::Cloned(_) | Turn::Removed);
                prop_assert_eq!(word.is_due(), is_packet);
                prop_assert_eq!(word.is_unclear(), turn == Turn::Check);
            }
        }
    }

    #[test]
    fn what_is_common_goes_the_short_way() {
        let armed = Word(u64::from(LIVE | ENABLED | ONE_SHOT | 1)).with_armed_at(3);
        let queued = armed.queued(0, Facts::IN | Facts::OUT, 5, || 5).expect("armed before");
        assert!(armed.queued(0, Facts::IN, 3, || 3).is_none(), "armed since the harvest began");
        assert!(armed.queued(0, Facts::OUT, 5, || 5).is_none(), "nobody asked for that");
        assert!(armed.queued(1, Facts::IN, 5, || 5).is_none(), "it is another one's");
        assert!(armed.queued(0, Facts::IN | Facts::ERR, 5, || 5).is_none());
        assert!(queued.queued(0, Facts::IN, 5, || 5).is_none(), "it is queued already");
        let (held, events) = queued.handed().expect("queued");
        assert_eq!(events, Events::IN);
        assert!(held.handed().is_none());
        assert!(queued.with(REMOVING).handed().is_none());
    }

    /// What a complete hang-up with an error is to who asked for `interest`.
    fn reset(interest: Interest, alive: bool) -> Events {
        let all = Facts::IN | Facts::OUT | Facts::RDHUP | Facts::HUP | Facts::ERR;
        let answer = Answer { kind: Some(Kind::Stream), unread: Some(0), ..all.into() };
        answer.report(interest, false, alive)
    }

    #[test]
    fn a_reset_is_told_from_a_refused_connect_by_what_was_seen_before() {
        for interest in [Interest::OUT, Interest::IN | Interest::OUT, Interest::ALL] {
            let refused = reset(interest, false);
            assert_eq!(reset(interest, true), refused | Events::OUT);
            assert!(refused.is_err() && !refused.is_out());
        }
        let mode = Mode { interest: Interest::OUT, edge: false, one_shot: true };
        let queued = Word(0).registered(mode, false).without(HELD).with(ENABLED | QUEUED);
        // A connect that is under way shows nothing, a stream that is not connected a hang-up.
        for silent in [Facts::NONE, Facts::OUT | Facts::HUP, Facts::IN | Facts::HUP] {
            let answer = Answer { kind: Some(Kind::Stream), ..silent.into() };
            assert!(!queued.checked(answer).0.has(ALIVE), "{silent:?}");
        }
        assert!(!queued.delivered(0, Facts::OUT | Facts::HUP, 2, || 2).0.has(ALIVE));
        assert!(queued.checked(Facts::OUT.into()).0.has(ALIVE));
        assert!(queued.delivered(0, Facts::IN, 2, || 2).0.has(ALIVE));
    }

    #[test]
    fn a_stream_that_is_fresh_again_is_told_once() {
        let mode = Mode { interest: Interest::IN, edge: false, one_shot: false };
        let live = Word(0).registered(mode, false).without(HELD).with(ENABLED | QUEUED | ALIVE);
        let fresh = Facts::OUT | Facts::HUP;
        let answer = Answer { kind: Some(Kind::Stream), unread: Some(0), ..fresh.into() };
        let (found, checked) = live.checked(answer);
        assert_eq!(checked, Checked::Hot);
        let (again, _) = found.enabled(mode, 0);
        assert_eq!(again.without(UNCHECKED).checked(answer).1, Checked::Hot, "it was not told");
        let (told, turn) = found.taken();
        assert_eq!(turn, Turn::Cloned(Events::IN));
        assert_eq!(told.checked(answer).1, Checked::Nothing);
    }

    #[test]
    fn an_error_of_a_connection_with_no_room_leaves_it_alive() {
        // The system's queue of errors, for instance: nothing else holds.
        let mode = Mode { interest: Interest::OUT, edge: false, one_shot: false };
        let live = Word(0).registered(mode, false).without(HELD).with(ENABLED | ALIVE);
        let (live, _) = live.delivered(0, Facts::ERR, 2, || 2);
        let (failed, checked) = live.without(UNCHECKED).checked(Facts::ERR.into());
        assert_eq!(checked, Checked::Hot);
        let (told, turn) = failed.taken();
        assert_eq!(turn, Turn::Cloned(Events::ERR));
        assert!(told.has(ALIVE));
    }

    #[test]
    fn the_own_end_is_asked_about_until_the_peer_has_ended() {
        let mode = Mode { interest: Interest::IN, edge: false, one_shot: true };
        let queued = Word(0).registered(mode, false).without(HELD).with(ENABLED | QUEUED);
        let facts = Facts::IN | Facts::OUT | Facts::RDHUP;
        let own = Answer { unread: Some(0), is_own_end: true, ..facts.into() };
        let (own, checked) = queued.checked(own);
        assert_eq!(checked, Checked::Nothing);
        assert!(!own.is_half_closed());
        // An edge with the same facts may be the peer's.
        assert!(own.delivered(0, facts, 2, || 2).0.has(RECHECK));
        let (ended, checked) = queued.checked(facts.into());
        assert_eq!(checked, Checked::Hot);
        assert!(ended.is_half_closed());
    }

    #[test]
    fn arming_with_a_hint_is_the_common_case() {
        let word = Word(u64::from(LIVE | HELD | ONE_SHOT | 1 | 1 << READY_SHIFT));
        let hint = Drained::READ;
        let room = Mode { interest: Interest::OUT, edge: false, one_shot: true };
        assert!(word.rearmed(None, hint, 3).is_some());
        assert!(word.rearmed(Some(room), hint, 3).is_some());
        assert!(word.rearmed(Some(Mode { edge: true, ..room }), hint, 3).is_some());
        assert!(word.rearmed(None, Drained::NONE, 3).is_none(), "it is still ready");
        assert!(word.with(RECHECK).rearmed(None, hint, 3).is_none());
    }
}
