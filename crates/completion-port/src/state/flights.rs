//! Operations in flight: those of one registration, by direction, and the order in which they are tried.
//!
//! In one direction of one registration operations are tried one at a time, in the order in which they were
//! started. So bytes are never swapped between two receives, and sends do not interleave. An operation that
//! cannot go on waits at the head of its lane until an edge says that it is worth trying again.
//!
//! Operations on files have no lane: they say where in the file they begin, and do not wait for each other. What
//! cannot be done at once is *handed* to the back end, until it comes back.
//!
//! An operation that a token starts is the only one of its registration. As long as it only waits for edges it has no
//! place in a lane: it is *lone*, and the slot's word says how it stands. What waits for something else besides goes on
//! in its lane.
//!
//! What an operation is, and what becomes of it, its caller knows. A [`Flight`] says where it stands, and is the
//! node by which it is queued: when it is to be tried, and again when it has ended. docs/design/FLIGHTS.md has
//! the table of its phases.

use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

use super::facts::Facts;
use super::moment::Moment;
use super::queue::{FLIGHT, Fifo, Links, MOST_FLIGHTS, NIL, Node};
use super::slot::{Next, Slot};
use crate::memory::arena::Arena;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex};

/// A direction: operations of one do not wait for those of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    In = 0,
    Out = 1,
}

impl Direction {
    const BOTH: [Self; 2] = [Self::In, Self::Out];

    pub(crate) fn facts(self) -> Facts {
        match self {
            Self::In => Facts::IN,
            Self::Out => Facts::OUT,
        }
    }
}

/// Where a flight stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It is none.
    Landed = 0,
    /// It stands in its lane.
    Waiting = 1,
    /// Its node is on its way to the thread that is to try it.
    Due = 2,
    /// A thread tries it.
    Tried = 3,
    /// It is over; its node is on its way to the thread that takes the packet.
    Ended = 4,
    /// The back end has it.
    Handed = 5,
    /// The word of its slot says whether it waits, or its node is with a thread.
    Lone = 6,
}

/// Why a flight has ended, or is to end at the next opportunity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The operation has come to an end of its own.
    Done = 0,
    Cancelled = 1,
    TimedOut = 2,
    /// Its descriptor turned out to be closed.
    Gone = 3,
}

/// One operation. It is changed under the lock of its registration's [`Desk`], with these exceptions:
/// - the link and the step from due to tried belong to the thread that has its node;
/// - the thread that starts it says beforehand whether it is a task;
/// - a lone one is started and landed without the lock, by the thread that owns its node; it is called off with the
///   lock, by one exchange of its claim;
/// - the thread that closes the port has it awaited, under the lock, and the thread that has its node ends that
///   without it.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    /// The next node of the list that it stands in.
    pub(crate) link: AtomicU32,
    /// The flight before it in the [`Roll`] that it stands in.
    back: AtomicU32,
    /// The slot of its registration.
    slot: AtomicU32,
    /// How often the record was used, which is part of the operation's name, and the verdict: see [`claim`].
    claim: AtomicU64,
    phase: AtomicU8,
    direction: AtomicU8,
    /// The waits of a port that was closed meanwhile go on until its packet is taken.
    is_awaited: AtomicBool,
    /// It is a task, which no packet tells of. Said before each start.
    is_task: AtomicBool,
    /// Its first attempt waits for nothing but its turn in its lane: a connect, or a task that says so. Said before each start by name.
    begins_unasked: AtomicBool,
    deadline: AtomicU64,
}

impl Flight {
    #[inline]
    pub(crate) fn slot(&self) -> u32 {
        self.slot.load(Relaxed)
    }

    #[inline]
    pub(crate) fn uses(&self) -> u32 {
        let claim = self.claim.load(Relaxed);
        (claim >> u32::BITS) as u32
    }

    /// It has not been used yet; `first` stands for its first use.
    pub(crate) fn begin_uses(&self, first: u32) {
        self.claim.store(claim(first, Verdict::Done), Relaxed);
    }

    /// Its node has come to the calling thread, which is to try it. False if that is not all there is to it: then
    /// [`Lanes::turn`] tells.
    #[inline]
    pub(crate) fn begin(&self) -> bool {
        // What is due is changed by no other thread but for the verdict, which is looked at again after the attempt.
        let is_due = self.phase() == Phase::Due && self.verdict() == Verdict::Done;
        if is_due {
            self.set(Phase::Tried);
        }
        is_due
    }

    /// Its node has come to the calling thread. How it has ended, if it has: that is settled, and nothing else is left
    /// to do in its lane.
    #[inline]
    pub(crate) fn end(&self) -> Option<Verdict> {
        (self.phase() == Phase::Ended).then(|| self.verdict())
    }

    /// The next operation of this record is a task, or is none.
    pub(crate) fn mark_task(&self, is_task: bool) {
        self.is_task.store(is_task, Relaxed);
    }

    /// Whether the first attempt at the next operation of this record waits for its turn alone, and for no edge.
    pub(crate) fn mark_unasked(&self, begins_unasked: bool) {
        self.begins_unasked.store(begins_unasked, Relaxed);
    }

    /// Whether it is a task.
    #[inline]
    pub(crate) fn is_task(&self) -> bool {
        self.is_task.load(Relaxed)
    }

    /// Whether it is a flight now.
    pub(crate) fn is_aloft(&self) -> bool {
        self.phase() != Phase::Landed
    }

    /// Whether the back end has it.
    pub(crate) fn is_handed(&self) -> bool {
        self.phase() == Phase::Handed
    }

    #[inline]
    fn phase(&self) -> Phase {
        match self.phase.load(Acquire) {
            0 => Phase::Landed,
            1 => Phase::Waiting,
            2 => Phase::Due,
            3 => Phase::Tried,
            4 => Phase::Ended,
            5 => Phase::Handed,
            _ => Phase::Lone,
        }
    }

    #[inline]
    fn set(&self, phase: Phase) {
        // What was stored before is seen by a thread that sees this, without the desk's lock too.
        self.phase.store(phase as u8, Release);
    }

    #[inline]
    fn verdict(&self) -> Verdict {
        match self.claim.load(Relaxed) & VERDICT {
            0 => Verdict::Done,
            1 => Verdict::Cancelled,
            2 => Verdict::TimedOut,
            _ => Verdict::Gone,
        }
    }

    fn judge(&self, verdict: Verdict) {
        self.claim.store(claim(self.uses(), verdict), Relaxed);
    }

    /// The operation of this token is in flight from here on, unless that is refused, and lone. Its desk has its deadline
    /// already.
    #[inline]
    pub(crate) fn begin_alone(&self, slot: u32, direction: Direction, deadline: Moment) {
        self.slot.store(slot, Relaxed);
        self.direction.store(direction as u8, Relaxed);
        self.deadline.store(deadline.nanoseconds(), Relaxed);
        self.set(Phase::Lone);
    }

    /// Whether the slot's word says how it stands.
    #[inline]
    pub(crate) fn is_lone(&self) -> bool {
        self.phase() == Phase::Lone
    }

    /// The operation was done by its token, and its packet is about to be queued.
    #[inline]
    pub(crate) fn begin_ended(&self, slot: u32) {
        self.slot.store(slot, Relaxed);
        self.set(Phase::Ended);
    }

    /// Its packet is taken. Of a lone one the slot is told afterwards.
    #[inline]
    pub(crate) fn land(&self) {
        // In this order: a thread that sees the next claim sees this phase, or that of the next operation.
        self.set(Phase::Landed);
        self.claim.store(claim(self.uses().wrapping_add(1), Verdict::Done), Release);
    }

    /// Why the lone operation is to end, unless it comes to an end of its own. The thread that has called it off says so
    /// to the slot afterwards, which the caller has asked before.
    #[inline]
    pub(crate) fn called_off(&self) -> Option<Verdict> {
        Some(self.verdict()).filter(|verdict| *verdict != Verdict::Done)
    }

    /// Calls the lone operation off that the record was used for as `uses` says, if nothing has before. False if it has
    /// landed. Afterwards the caller claims its node. The caller has the lock of the desk.
    pub(crate) fn call_off_alone(&self, uses: u32, verdict: Verdict) -> bool {
        let (expected, wanted) = (claim(uses, Verdict::Done), claim(uses, verdict));
        match self.claim.compare_exchange(expected, wanted, AcqRel, Acquire) {
            Ok(_) => true,
            Err(now) => now >> u32::BITS == u64::from(uses),
        }
    }

    /// The caller has claimed the node of a lone operation, and queues it. If the operation is called off it has ended by
    /// that; it may be another one than the caller thought.
    pub(crate) fn end_if_called_off(&self) {
        if self.is_called_off() {
            self.set(Phase::Ended);
        }
    }

    /// The use of the record, if its operation is lone. What is read of it afterwards is this one's, or that of a later
    /// one.
    pub(crate) fn lone_use(&self) -> Option<u32> {
        let uses = (self.claim.load(Acquire) >> u32::BITS) as u32;
        self.is_lone().then_some(uses)
    }

    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        Direction::BOTH[usize::from(self.direction.load(Relaxed))]
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanoseconds(self.deadline.load(Relaxed))
    }

    /// Whether it is to end, unless it comes to an end of its own. It becomes so under the desk's lock.
    pub(crate) fn is_called_off(&self) -> bool {
        self.verdict() != Verdict::Done
    }

    /// Its packet is taken. Whether it was awaited.
    #[inline]
    pub(crate) fn stop_awaiting(&self) -> bool {
        self.is_awaited.load(Relaxed) && self.is_awaited.swap(false, Relaxed)
    }

    /// Its packet is awaited from here on. False if it was before.
    pub(crate) fn start_awaiting(&self) -> bool {
        !self.is_awaited.swap(true, AcqRel)
    }

    fn is_over(&self, now: Moment) -> bool {
        self.deadline() <= now && self.deadline() != Moment::NEVER
    }
}

/// The bits of a claim that are the verdict; the uses stand in the upper half.
const VERDICT: u64 = 0b11;

/// What a flight's claim says.
fn claim(uses: u32, verdict: Verdict) -> u64 {
    u64::from(uses) << u32::BITS | verdict as u64
}

/// Where flights lie, and their links.
pub(crate) trait Records: Links {
    fn flight(&self, node: Node) -> &Flight;
}

/// What an attempt has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// The operation has come to its end. `dry`: it has taken what was there.
    Done { dry: bool },
    /// It would have to wait for an edge.
    Blocked,
    /// It is to be tried again at this moment, or at an edge before.
    Scarce(Moment),
}

/// What becomes of a flight that was to be tried, or was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    /// It is to be tried, by the caller.
    Try,
    /// It waits.
    Waits,
    /// It has ended; the caller takes its packet, or queues its node.
    Ends(Verdict),
}

/// Flights in the order of their starts. Each may leave before the others, however many there are.
#[derive(Debug)]
struct Roll {
    first: Node,
    last: Node,
    len: usize,
}

impl Roll {
    const EMPTY: Self = Self { first: NIL, last: NIL, len: 0 };

    fn is_empty(&self) -> bool {
        self.first == NIL
    }

    /// Puts `node` at the end.
    fn enter(&mut self, records: &impl Records, node: Node) {
        let flight = records.flight(node);
        flight.link.store(NIL, Relaxed);
        flight.back.store(self.last, Relaxed);
        match self.last {
            NIL => self.first = node,
            last => records.flight(last).link.store(node, Relaxed),
        }
        self.last = node;
        self.len += 1;
    }

    /// Puts `node` in front of the others.
    fn enter_first(&mut self, records: &impl Records, node: Node) {
        let flight = records.flight(node);
        flight.link.store(self.first, Relaxed);
        flight.back.store(NIL, Relaxed);
        match self.first {
            NIL => self.last = node,
            first => records.flight(first).back.store(node, Relaxed),
        }
        self.first = node;
        self.len += 1;
    }

    /// Takes the first one.
    fn pop(&mut self, records: &impl Records) -> Option<Node> {
        let first = Some(self.first).filter(|first| *first != NIL)?;
        self.leave(records, first);
        Some(first)
    }

    /// Takes `node`, which is in the list.
    fn leave(&mut self, records: &impl Records, node: Node) {
        let flight = records.flight(node);
        let (back, next) = (flight.back.load(Relaxed), flight.link.load(Relaxed));
        match back {
            NIL => self.first = next,
            back => records.flight(back).link.store(next, Relaxed),
        }
        match next {
            NIL => self.last = back,
            next => records.flight(next).back.store(back, Relaxed),
        }
        self.len -= 1;
    }
}

/// What a change leaves to be done besides.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct Effects {
    /// This flight is to be tried next: its node is to be queued. `NIL`: none.
    pub(crate) due: Node,
    /// What the slot asks for.
    pub(crate) next: Next,
}

impl Effects {
    const NONE: Self = Self { due: NIL, next: Next::Nothing };
}

/// In place of the node of an active flight: a thread tries work without a record, see [`Lanes::begin_unrecorded`].
const CALLER: Node = MOST_FLIGHTS | FLIGHT;

/// The operations of one direction.
#[derive(Debug)]
struct Lane {
    waiting: Roll,
    /// The flight that is due or being tried, or [`CALLER`]; `NIL` if there is none.
    active: Node,
    /// How many edges concerned the lane, and how many had before the attempt began.
    edges: u32,
    begun: u32,
    /// When the first one is to be tried again, for want of what no edge tells of.
    retry: Moment,
    /// What no edge tells of has come while the active one is tried.
    is_hastened: bool,
}

impl Lane {
    const fn new() -> Self {
        Self {
            waiting: Roll::EMPTY,
            active: NIL,
            edges: 0,
            begun: 0,
            retry: Moment::NEVER,
            is_hastened: false,
        }
    }

    fn is_empty(&self) -> bool {
        self.active == NIL && self.waiting.is_empty()
    }

    /// The flight that is due or being tried, if there is one.
    fn active_flight(&self) -> Option<Node> {
        if self.active == NIL || self.active == CALLER { None } else { Some(self.active) }
    }

    /// Whether the flight that is to be tried next is to be tried though the direction is not known to be ready. It may
    /// have been tried before: then it finds that it has to wait once more.
    fn begins_unasked(&self, records: &impl Records) -> bool {
        self.active == NIL
            && self.waiting.first != NIL
            && records.flight(self.waiting.first).begins_unasked.load(Relaxed)
    }

    /// The flight that is to be tried next, if none is: its node is to be queued.
    fn next_due(&mut self, records: &impl Records) -> Node {
        if self.active != NIL {
            return NIL;
        }
        let Some(first) = self.waiting.pop(records) else { return NIL };
        self.active = first;
        self.begun = self.edges;
        self.retry = Moment::NEVER;
        self.is_hastened = false;
        records.flight(first).set(Phase::Due);
        first
    }
}

/// The operations of one registration.
pub(crate) struct Lanes {
    lanes: [Lane; 2],
    /// Operations on files that have not ended.
    files: Roll,
    /// Flights whose packets have not been taken.
    aloft: u32,
    /// The registration is shared: operations are started by its name, and any number of them are in flight.
    pub(crate) is_shared: bool,
}

impl fmt::Debug for Lanes {
    /// For each direction how many wait, and the node of the one that is due or being tried; and how many have packets
    /// to come in all.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (lane, name) in self.lanes.iter().zip(["in", "out"]) {
            write!(f, "{name} {} waiting", lane.waiting.len)?;
            match lane.active {
                NIL => {}
                CALLER => f.write_str(" a call active")?,
                active => write!(f, " {} active", active & !FLIGHT)?,
            }
            f.write_str(", ")?;
        }
        if self.files.len > 0 {
            write!(f, "{} on files, ", self.files.len)?;
        }
        write!(f, "{} aloft", self.aloft)
    }
}

impl Default for Lanes {
    fn default() -> Self {
        let lanes = [Lane::new(), Lane::new()];
        Self { lanes, files: Roll::EMPTY, aloft: 0, is_shared: false }
    }
}

/// See [`Desk::note_rare`].
const RARE_TOLD: u8 = 1 << 2;

/// What a registration has beside its slot, once an operation needs it.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) lanes: Mutex<Lanes>,
    /// When the first of the flights is to end or to be tried again.
    deadline: AtomicU64,
    /// When the desk's timer rings; [`Moment::NEVER`] if none is set. Changed under the port's lock.
    alarm: AtomicU64,
    /// There is room for the desk's timer.
    pub(crate) has_timer: AtomicBool,
    /// How the descriptor carries bytes, in the back end's terms, plus one; 0: not asked yet.
    transport: AtomicU8,
    /// With a one-shot reactor: whether more than readiness was told since it was last asked for an edge ([`RARE_TOLD`]),
    /// and which directions it watches lastingly since then. Asked for and changed under the lock of the descriptor's
    /// number, but that `RARE_TOLD` is set at any time.
    lasting: AtomicU8,
    /// The record that the operations of registrations with tokens use in turn; `NIL` if there is none. The desk
    /// keeps it.
    own: AtomicU32,
    /// The record of the connect that the system has of this descriptor, though the operation may have ended; or
    /// [`NO_CONNECT`], [`ABANDONING`] or [`ABANDONED`].
    connect: AtomicU32,
    /// The descriptor was made non-blocking.
    pub(crate) is_nonblocking: AtomicBool,
    /// The descriptor is a file's, which nothing watches.
    pub(crate) is_file: AtomicBool,
    /// Whether reads are tried at once: 0 if it is not known yet, 1 if not, 2 if so.
    reads_now: AtomicU8,
}

/// In place of a record, which is less: the system has no connect of the descriptor.
const NO_CONNECT: u32 = u32::MAX;
/// It has one, which a thread is just giving up.
const ABANDONING: u32 = u32::MAX - 1;
/// It had one that was cancelled, and cannot be given up: the descriptor is not connected any more.
const ABANDONED: u32 = u32::MAX - 2;

/// Whether a connect may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clearance {
    Clear,
    /// Another thread is giving up an earlier connect. It hastens this one when that is done.
    NotYet,
    /// An earlier one was cancelled, and may still be under way.
    Never,
}

impl Default for Desk {
    fn default() -> Self {
        Self {
            lanes: Mutex::default(),
            deadline: AtomicU64::new(Moment::NEVER.nanoseconds()),
            alarm: AtomicU64::new(Moment::NEVER.nanoseconds()),
            has_timer: AtomicBool::new(false),
            transport: AtomicU8::new(0),
            lasting: AtomicU8::new(0),
            own: AtomicU32::new(NIL),
            connect: AtomicU32::new(NO_CONNECT),
            is_nonblocking: AtomicBool::new(false),
            is_file: AtomicBool::new(false),
            reads_now: AtomicU8::new(0),
        }
    }
}

impl Desk {
    /// The deadline as of now. It may have been moved since the timer was set.
    #[inline]
    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanoseconds(self.deadline.load(SeqCst))
    }

    /// Moves the deadline.
    #[inline]
    pub(crate) fn set_deadline(&self, at: Moment) {
        self.deadline.store(at.nanoseconds(), SeqCst);
    }

    /// Moves the deadline to `at`, if that is earlier.
    pub(crate) fn hasten(&self, at: Moment) {
        self.deadline.fetch_min(at.nanoseconds(), SeqCst);
    }

    /// The deadline, if the timer rings too late for it, or was not set.
    #[inline]
    pub(crate) fn missed(&self) -> Option<Moment> {
        let deadline = self.deadline.load(SeqCst);
        (deadline < self.alarm.load(SeqCst)).then(|| Moment::from_nanoseconds(deadline))
    }

    /// How the descriptor carries bytes, in the back end's terms. `ask` tells if it was not asked yet.
    #[inline]
    pub(crate) fn transport(&self, ask: impl FnOnce() -> u8) -> u8 {
        match self.transport.load(Relaxed).checked_sub(1) {
            Some(known) => known,
            None => {
                let told = ask();
                self.transport.store(told + 1, Relaxed);
                told
            }
        }
    }

    /// Whether a read from the file is tried at once. `ask` tells if it was not asked yet.
    #[inline]
    pub(crate) fn reads_now(&self, ask: impl FnOnce() -> bool) -> bool {
        match self.reads_now.load(Relaxed) {
            0 => {
                let reads_now = ask();
                self.reads_now.store(1 + u8::from(reads_now), Relaxed);
                reads_now
            }
            known => known > 1,
        }
    }

    /// It has turned out that no read from the file is done at once.
    pub(crate) fn stop_reading_now(&self) {
        self.reads_now.store(1, Relaxed);
    }

    /// A one-shot reactor has told of more than readiness. That may hold on, though no attempt comes to anything: it would
    /// be told of again at once, and again, if it were asked for one edge at a time.
    pub(crate) fn note_rare(&self) {
        self.lasting.fetch_or(RARE_TOLD, Relaxed);
    }

    /// The one-shot reactor is asked for one edge, or has a new set.
    pub(crate) fn watch_briefly(&self) {
        self.lasting.store(0, Relaxed);
    }

    /// Which directions operations and the registration want a one-shot reactor to watch, if that is to watch lastingly.
    /// `Some(None)`: it does already.
    pub(crate) fn to_watch_lastingly(&self, wanted: Facts) -> Option<Option<Facts>> {
        let lasting = self.lasting.load(Relaxed);
        if lasting & RARE_TOLD == 0 {
            return None;
        }
        let watched = Facts::of_directions(lasting.into());
        Some(if watched.has(wanted) { None } else { Some(wanted | watched) })
    }

    /// The one-shot reactor watches these directions lastingly.
    pub(crate) fn watch_lastingly(&self, wanted: Facts) {
        #[allow(clippy::cast_possible_truncation, reason = "two bits")]
        self.lasting.fetch_or(wanted.directions() as u8, Relaxed);
    }

    /// The record that operations of a registration with tokens use, if there is one.
    #[inline]
    pub(crate) fn own(&self) -> Option<Node> {
        Some(self.own.load(Relaxed)).filter(|own| *own != NIL)
    }

    /// The desk keeps a record for operations of registrations with tokens. The caller has the token.
    pub(crate) fn keep(&self, own: Node) {
        self.own.store(own, Relaxed);
    }

    /// The desk is a new registration's.
    pub(crate) fn begin(&self) {
        self.set_deadline(Moment::NEVER);
        self.transport.store(0, Relaxed);
        self.lasting.store(0, Relaxed);
        self.connect.store(NO_CONNECT, Relaxed);
        self.is_nonblocking.store(false, Relaxed);
        self.is_file.store(false, Relaxed);
        self.reads_now.store(0, Relaxed);
    }

    /// A connect is about to begin. The system may have an earlier one, whose operation was cancelled: `abandon` gives
    /// that up, and says whether that could be done. Only one connect at a time is tried.
    pub(crate) fn clear_for_connect(&self, abandon: impl FnOnce() -> bool) -> Clearance {
        match self.connect.load(Acquire) {
            NO_CONNECT => Clearance::Clear,
            ABANDONED => Clearance::Never,
            ABANDONING => Clearance::NotYet,
            record => {
                self.abandon_connect(record, abandon);
                match self.connect.load(Acquire) {
                    NO_CONNECT => Clearance::Clear,
                    ABANDONED => Clearance::Never,
                    // The thread that has the packet of that one gives it up.
                    _ => Clearance::NotYet,
                }
            }
        }
    }

    /// The system has the connect of `record` from here on.
    pub(crate) fn connect_begun(&self, record: u32) {
        self.connect.store(record, Release);
    }

    /// The connect that was under way, which is being tried, has come to an end.
    pub(crate) fn connect_ended(&self) {
        self.connect.store(NO_CONNECT, Release);
    }

    /// Cancels the connect of `record`: `abandon` gives it up, and returns whether that succeeded. Returns false and changes
    /// nothing if the connect was given up before, or another thread is giving it up.
    pub(crate) fn abandon_connect(&self, record: u32, abandon: impl FnOnce() -> bool) -> bool {
        let is_ours = self.connect.compare_exchange(record, ABANDONING, AcqRel, Acquire).is_ok();
        if is_ours {
            let left = if abandon() { NO_CONNECT } else { ABANDONED };
            self.connect.store(left, Release);
        }
        is_ours
    }

    /// The timer was set for this moment, or taken out.
    pub(crate) fn set_alarm(&self, at: Moment) {
        self.alarm.store(at.nanoseconds(), SeqCst);
    }
}

impl Lanes {
    fn lane(&mut self, direction: Direction) -> &mut Lane {
        &mut self.lanes[direction as usize]
    }

    /// The directions in which operations wait for an edge. Where the first one waits for some time to pass, an edge
    /// would have it tried for nothing, and a one-shot reactor would bring one at once, again and again.
    pub(crate) fn blocked(&self) -> Facts {
        let mut blocked = Facts::NONE;
        for direction in Direction::BOTH {
            let lane = &self.lanes[direction as usize];
            let waits = lane.active == NIL && !lane.waiting.is_empty();
            if waits && lane.retry == Moment::NEVER {
                blocked |= direction.facts();
            }
        }
        blocked
    }

    pub(crate) fn aloft(&self) -> u32 {
        self.aloft
    }

    /// The slot is a new registration.
    pub(crate) fn begin(&mut self, is_shared: bool) {
        debug_assert!(self.aloft == 0, "a slot is given up when nothing is in flight");
        *self = Self { is_shared, ..Self::default() };
    }

    /// The operation `node` is in flight. True if the caller is to try it: nothing else of its direction is in
    /// flight, and that is ready as far as is known.
    pub(crate) fn start(
        &mut self,
        records: &impl Records,
        node: Node,
        slot: u32,
        direction: Direction,
        deadline: Moment,
        is_ready: bool,
    ) -> Course {
        let flight = records.flight(node);
        flight.direction.store(direction as u8, Relaxed);
        self.begin_flight(flight, slot, deadline);
        let lane = self.lane(direction);
        if lane.is_empty() {
            // Of one that has been called off.
            lane.retry = Moment::NEVER;
        }
        if lane.is_empty() && (is_ready || flight.begins_unasked.load(Relaxed)) {
            lane.active = node;
            lane.begun = lane.edges;
            lane.is_hastened = false;
            flight.set(Phase::Tried);
            Course::Try
        } else {
            lane.waiting.enter(records, node);
            flight.set(Phase::Waiting);
            Course::Waits
        }
    }

    fn begin_flight(&mut self, flight: &Flight, slot: u32, deadline: Moment) {
        flight.slot.store(slot, Relaxed);
        flight.deadline.store(deadline.nanoseconds(), Relaxed);
        flight.judge(Verdict::Done);
        self.aloft += 1;
    }

    /// The operation `node` on a file is in flight, and the caller tries it.
    pub(crate) fn start_file(
        &mut self,
        records: &impl Records,
        node: Node,
        slot: u32,
        deadline: Moment,
    ) {
        let flight = records.flight(node);
        self.begin_flight(flight, slot, deadline);
        flight.set(Phase::Tried);
        self.files.enter(records, node);
    }

    /// The operation on a file that the caller has tried is not done, and goes to the back end; unless it has been
    /// called off meanwhile.
    pub(crate) fn hand_over(&mut self, records: &impl Records, node: Node) -> Course {
        let flight = records.flight(node);
        match flight.verdict() {
            Verdict::Done => {
                flight.set(Phase::Handed);
                Course::Waits
            }
            verdict => {
                self.end_file(records, node, verdict);
                Course::Ends(verdict)
            }
        }
    }

    /// An operation on a file has ended: as it says itself, or called off. Its node is the caller's.
    pub(crate) fn end_file(&mut self, records: &impl Records, node: Node, verdict: Verdict) {
        self.files.leave(records, node);
        let flight = records.flight(node);
        flight.judge(verdict);
        flight.set(Phase::Ended);
    }

    /// The back end has let go of an operation on a file, which was done, or was called off before that. Its node is
    /// the caller's.
    pub(crate) fn come_back(&mut self, records: &impl Records, node: Node, was_called_off: bool) {
        let verdict = match (was_called_off, records.flight(node).verdict()) {
            (false, _) => Verdict::Done,
            // The back end has ended by itself.
            (true, Verdict::Done) => Verdict::Cancelled,
            (true, verdict) => verdict,
        };
        self.end_file(records, node, verdict);
    }

    /// The flight that the caller has tried goes to the back end, which carries it out; unless it has been called off
    /// meanwhile.
    pub(crate) fn hand_over_active(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        node: Node,
        poll: u32,
    ) -> (Course, Effects) {
        let flight = records.flight(node);
        match flight.verdict() {
            Verdict::Done => {
                flight.set(Phase::Handed);
                (Course::Waits, Effects::NONE)
            }
            verdict => (Course::Ends(verdict), self.end_active(records, slot, node, poll)),
        }
    }

    /// The back end has let go of the active flight of a lane, which has ended by that, unless it `goes_on`: then it is to
    /// be tried. Its node is the caller's to queue.
    pub(crate) fn come_back_active(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        node: Node,
        (was_called_off, goes_on): (bool, bool),
        poll: u32,
    ) -> Effects {
        let flight = records.flight(node);
        let direction = flight.direction();
        // No edge tells whether the direction is ready: what comes next is tried.
        slot.know(direction.facts(), true);
        if goes_on {
            let lane = self.lane(direction);
            lane.begun = lane.edges;
            flight.set(Phase::Due);
            return Effects::NONE;
        }
        let verdict = match (was_called_off, flight.verdict()) {
            (false, _) => Verdict::Done,
            // The back end has ended by itself.
            (true, Verdict::Done) => Verdict::Cancelled,
            (true, verdict) => verdict,
        };
        flight.judge(verdict);
        self.end_active(records, slot, node, poll)
    }

    /// Whether a flight is the active one of its lane.
    pub(crate) fn is_active(&self, records: &impl Records, node: Node) -> bool {
        self.lanes[records.flight(node).direction() as usize].active == node
    }

    /// The flights of the lanes that are called off, and that the back end has; `NIL` where there is none.
    pub(crate) fn called_off_at_back_end(&self, records: &impl Records) -> [Node; 2] {
        Direction::BOTH.map(|direction| match self.lanes[direction as usize].active_flight() {
            None => NIL,
            Some(node) => {
                let flight = records.flight(node);
                if flight.is_handed() && flight.is_called_off() { node } else { NIL }
            }
        })
    }

    /// The back end has given the active flight of a lane back, which was called off: it has ended, and its node is the
    /// caller's.
    pub(crate) fn end_recalled(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        node: Node,
        poll: u32,
    ) -> Effects {
        slot.know(records.flight(node).direction().facts(), true);
        self.end_active(records, slot, node, poll)
    }

    /// Calls all operations on files off, or those whose deadlines are over at `now`. Each one that the back end
    /// has is passed to `recall`, once: true if the back end has given it back, so that it ends. Its node is put at
    /// the end of `ended` then. Returns the first deadline of the others, if those count.
    pub(crate) fn call_off_files(
        &mut self,
        records: &impl Records,
        verdict: Verdict,
        now: Option<Moment>,
        mut recall: impl FnMut(Node) -> bool,
        ended: &mut Fifo,
    ) -> Moment {
        let mut first = Moment::NEVER;
        let mut next = self.files.first;
        while next != NIL {
            let node = next;
            let flight = records.flight(node);
            // Before the node may be put elsewhere.
            next = flight.link.load(Relaxed);
            if flight.verdict() != Verdict::Done {
                continue;
            }
            if now.is_some_and(|now| !flight.is_over(now)) {
                first = first.min(flight.deadline());
                continue;
            }
            flight.judge(verdict);
            if flight.is_handed() && recall(node) {
                self.end_file(records, node, verdict);
                ended.push(records, node);
            }
        }
        first
    }

    /// An edge concerns the operations of these directions, as the slot has said when it noted the edge. Returns
    /// the flights that are to be tried, and whether no operation of one of these is in flight any more: the
    /// slot is to note the edge again then, which an attempt may have overtaken.
    pub(crate) fn stir(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        flying: Facts,
    ) -> ([Node; 2], bool) {
        let (mut due, mut is_missed) = ([NIL; 2], false);
        for direction in Direction::BOTH {
            if !flying.has(direction.facts()) {
                continue;
            }
            let lane = self.lane(direction);
            if lane.is_empty() {
                is_missed = true;
                continue;
            }
            lane.edges = lane.edges.wrapping_add(1);
            if !slot.word().is_known_ready(direction.facts()) {
                // An attempt that ended since the slot noted the edge has found otherwise before.
                slot.know(direction.facts(), true);
            }
            due[direction as usize] = lane.next_due(records);
        }
        (due, is_missed)
    }

    /// What operations of this direction may have waited for, and no edge tells of, is there at `now`. True if the first
    /// one that waits is to be tried when the desk's timer rings. One that is being tried just now is tried once more,
    /// should it have to wait for that.
    pub(crate) fn hasten(&mut self, direction: Direction, now: Moment) -> bool {
        let lane = self.lane(direction);
        lane.is_hastened = lane.active != NIL;
        if lane.is_hastened || lane.waiting.is_empty() {
            return false;
        }
        lane.retry = now;
        true
    }

    /// The node of a flight has come to a thread.
    pub(crate) fn turn(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        node: Node,
        poll: u32,
    ) -> (Course, Effects) {
        let flight = records.flight(node);
        match (flight.phase(), flight.verdict()) {
            (Phase::Due, Verdict::Done) => {
                flight.set(Phase::Tried);
                (Course::Try, Effects::NONE)
            }
            (Phase::Due, verdict) => {
                (Course::Ends(verdict), self.end_active(records, slot, node, poll))
            }
            (_, verdict) => (Course::Ends(verdict), Effects::NONE),
        }
    }

    /// The caller has tried a flight that was started by a token, and takes its packet: it has ended. `dry`: it has
    /// taken what was there.
    pub(crate) fn tried_and_landed(&mut self, flight: &Flight, slot: &Slot, dry: bool) {
        let direction = flight.direction();
        let lane = self.lane(direction);
        lane.active = NIL;
        let is_dry = dry && lane.edges == lane.begun;
        self.land(flight);
        slot.land(if is_dry { direction.facts() } else { Facts::NONE });
    }

    /// The lone operation `node` that the caller has tried goes on here, as the active one. `is_stirred`: an edge has
    /// come since it was last begun.
    pub(crate) fn adopt(&mut self, records: &impl Records, node: Node, is_stirred: bool) {
        let flight = records.flight(node);
        let lane = self.lane(flight.direction());
        (lane.active, lane.retry) = (node, Moment::NEVER);
        lane.begun = lane.edges.wrapping_sub(u32::from(is_stirred));
        self.aloft += 1;
        flight.set(Phase::Tried);
    }

    /// The calling thread is about to try work without a record, in one direction of a shared registration. Returns false
    /// and changes nothing if the work would have to wait for its turn or for an edge, or if the slot refuses it.
    pub(crate) fn begin_unrecorded(
        &mut self,
        slot: &Slot,
        generation: u32,
        direction: Direction,
    ) -> bool {
        let is_shared = self.is_shared;
        let lane = self.lane(direction);
        let begins = is_shared
            && lane.is_empty()
            && slot.word().may_be_ready(direction.facts())
            && slot.share(generation, direction.facts()).is_ok();
        if begins {
            (lane.active, lane.retry) = (CALLER, Moment::NEVER);
            lane.begun = lane.edges;
            lane.is_hastened = false;
            self.aloft += 1;
        }
        begins
    }

    /// The caller has tried work without a record, which leaves the lane.
    pub(crate) fn tried_unrecorded(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        direction: Direction,
        tried: Tried,
        poll: u32,
    ) -> (Effects, Next) {
        let lane = self.lane(direction);
        let is_dry = matches!(tried, Tried::Blocked | Tried::Done { dry: true });
        if is_dry && lane.edges == lane.begun {
            slot.know(direction.facts(), false);
        }
        let effects = self.clear_active(records, slot, direction, poll);
        (effects, self.landed(slot))
    }

    /// Work without a record has ended. Returns what the slot asks for if nothing else is in flight.
    fn landed(&mut self, slot: &Slot) -> Next {
        self.aloft -= 1;
        if self.aloft == 0 { slot.land_last() } else { Next::Nothing }
    }

    /// The caller has tried a flight.
    pub(crate) fn tried(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        node: Node,
        tried: Tried,
        poll: u32,
    ) -> (Course, Effects) {
        let flight = records.flight(node);
        let direction = flight.direction();
        let lane = self.lane(direction);
        let is_newest = lane.edges == lane.begun;
        let verdict = flight.verdict();
        match tried {
            Tried::Done { dry } => {
                if dry && is_newest {
                    slot.know(direction.facts(), false);
                }
                flight.judge(Verdict::Done);
                (Course::Ends(Verdict::Done), self.end_active(records, slot, node, poll))
            }
            Tried::Blocked if !is_newest && verdict == Verdict::Done => {
                lane.begun = lane.edges;
                (Course::Try, Effects::NONE)
            }
            Tried::Scarce(_) if lane.is_hastened && verdict == Verdict::Done => {
                lane.is_hastened = false;
                (Course::Try, Effects::NONE)
            }
            Tried::Blocked | Tried::Scarce(_) => {
                if tried == Tried::Blocked && is_newest {
                    slot.know(direction.facts(), false);
                }
                if verdict != Verdict::Done {
                    return (Course::Ends(verdict), self.end_active(records, slot, node, poll));
                }
                lane.active = NIL;
                lane.retry = if let Tried::Scarce(at) = tried { at } else { Moment::NEVER };
                flight.set(Phase::Waiting);
                lane.waiting.enter_first(records, node);
                (Course::Waits, Effects::NONE)
            }
        }
    }

    /// The flight that was due or tried has ended.
    fn end_active(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        node: Node,
        poll: u32,
    ) -> Effects {
        let flight = records.flight(node);
        flight.set(Phase::Ended);
        self.clear_active(records, slot, flight.direction(), poll)
    }

    /// The flight that was due or tried has left its lane.
    fn clear_active(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        direction: Direction,
        poll: u32,
    ) -> Effects {
        let lane = self.lane(direction);
        lane.active = NIL;
        let next = self.ground_if_empty(slot, direction, poll);
        // As at a start: after an end or an error there may be no further edge.
        let is_ready = slot.word().may_be_ready(direction.facts());
        let lane = self.lane(direction);
        let is_due = is_ready || lane.begins_unasked(records);
        Effects { due: if is_due { lane.next_due(records) } else { NIL }, next }
    }

    /// Flights that have waited were cancelled: those behind them that wait for their turn alone are due. Their nodes are
    /// put at the end of `due`.
    pub(crate) fn begin_unasked(&mut self, records: &impl Records, due: &mut Fifo) {
        for lane in &mut self.lanes {
            if lane.begins_unasked(records) {
                due.push(records, lane.next_due(records));
            }
        }
    }

    fn ground_if_empty(&mut self, slot: &Slot, direction: Direction, poll: u32) -> Next {
        if self.lane(direction).is_empty() {
            slot.ground(direction.facts(), poll)
        } else {
            Next::Nothing
        }
    }

    /// Ends a flight as `verdict` says, or has it ended at the next opportunity. If its node is the caller's to
    /// queue, that is told by [`Effects::due`]. `None` if it has ended already.
    pub(crate) fn call_off(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        node: Node,
        verdict: Verdict,
        poll: u32,
    ) -> Option<Effects> {
        let flight = records.flight(node);
        match flight.phase() {
            Phase::Waiting => {
                let direction = flight.direction();
                self.lane(direction).waiting.leave(records, node);
                flight.judge(verdict);
                flight.set(Phase::Ended);
                let next = self.ground_if_empty(slot, direction, poll);
                Some(Effects { due: node, next })
            }
            // For one that was handed over the caller asks the back end.
            Phase::Due | Phase::Tried | Phase::Handed => {
                if flight.verdict() == Verdict::Done {
                    flight.judge(verdict);
                }
                Some(Effects::NONE)
            }
            // Of a lone one the caller asks the slot.
            Phase::Landed | Phase::Ended | Phase::Lone => None,
        }
    }

    /// Ends all flights, or has them ended at the next opportunity. Those whose nodes are to be queued are
    /// put at the end of `ended`.
    pub(crate) fn call_off_all(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        verdict: Verdict,
        poll: u32,
        ended: &mut Fifo,
    ) -> Next {
        let mut outcome = Next::Nothing;
        for direction in Direction::BOTH {
            let lane = self.lane(direction);
            if lane.is_empty() {
                continue;
            }
            while let Some(node) = lane.waiting.pop(records) {
                let flight = records.flight(node);
                flight.judge(verdict);
                flight.set(Phase::Ended);
                ended.push(records, node);
            }
            // Work without a record is not cancelled: the call that tries it is about to end.
            if let Some(active) = lane.active_flight()
                && records.flight(active).verdict() == Verdict::Done
            {
                records.flight(active).judge(verdict);
            }
            let next = self.ground_if_empty(slot, direction, poll);
            if next != Next::Nothing {
                outcome = next;
            }
        }
        outcome
    }

    /// The packet of a flight that is being tried, was handed over, or has just ended need not stand in a queue yet: it is
    /// awaited. False if it is none of these, or is awaited already.
    pub(crate) fn await_packet(&mut self, flight: &Flight) -> bool {
        let is_under_way = matches!(flight.phase(), Phase::Tried | Phase::Handed | Phase::Ended);
        is_under_way && !flight.is_awaited.swap(true, Relaxed)
    }

    /// The desk's timer has rung: ends the flights whose deadlines are over at `now`, and has those tried again
    /// that waited for that. Nodes that are to be queued are put at the end of `due`. Returns when the timer is to
    /// ring again.
    pub(crate) fn ring(
        &mut self,
        records: &impl Records,
        slot: &Slot,
        now: Moment,
        poll: u32,
        due: &mut Fifo,
    ) -> (Moment, Next) {
        let mut again = Moment::NEVER;
        let mut outcome = Next::Nothing;
        for direction in Direction::BOTH {
            let lane = self.lane(direction);
            if lane.is_empty() {
                continue;
            }
            let mut next = lane.waiting.first;
            while next != NIL {
                let node = next;
                let flight = records.flight(node);
                // Before the node is put elsewhere.
                next = flight.link.load(Relaxed);
                if flight.is_over(now) {
                    lane.waiting.leave(records, node);
                    flight.judge(Verdict::TimedOut);
                    flight.set(Phase::Ended);
                    due.push(records, node);
                } else {
                    again = again.min(flight.deadline());
                }
            }
            if let Some(active) = lane.active_flight() {
                let flight = records.flight(active);
                if flight.is_over(now) && flight.verdict() == Verdict::Done {
                    flight.judge(Verdict::TimedOut);
                } else if !flight.is_over(now) {
                    again = again.min(flight.deadline());
                }
            }
            if lane.retry <= now || lane.begins_unasked(records) {
                match lane.next_due(records) {
                    NIL => {}
                    node => due.push(records, node),
                }
                lane.retry = Moment::NEVER;
            }
            again = again.min(lane.retry);
            let next = self.ground_if_empty(slot, direction, poll);
            if next != Next::Nothing {
                outcome = next;
            }
        }
        (again, outcome)
    }

    /// The packet of a flight is taken. True if it was the last one.
    pub(crate) fn land(&mut self, flight: &Flight) -> bool {
        flight.land();
        self.aloft -= 1;
        self.aloft == 0
    }
}

/// The desks of a port, by the numbers of slots.
pub(crate) type Desks = Arena<Desk>;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::types::interest::Interest;
    use crate::types::interest::Mode;

    /// Counts how often a flight is looked at.
    struct Counting {
        flights: Vec<Flight>,
        looks: AtomicUsize,
    }

    impl Links for Counting {
        fn link(&self, node: Node) -> &AtomicU32 {
            &self.flight(node).link
        }
    }

    impl Records for Counting {
        fn flight(&self, node: Node) -> &Flight {
            self.looks.fetch_add(1, Relaxed);
            &self.flights[(node & !FLIGHT) as usize]
        }
    }

    /// A shared association without operations, and so many records.
    fn shared(records: usize) -> (Counting, Slot, Lanes) {
        let flights = (0..records).map(|_| Flight::default()).collect();
        let slot = Slot::default();
        let mode = Mode { interest: Interest::NONE, edge: false, one_shot: false };
        slot.register(3, mode, false);
        let mut lanes = Lanes::default();
        lanes.begin(true);
        (Counting { flights, looks: AtomicUsize::new(0) }, slot, lanes)
    }

    #[test]
    fn an_operation_is_called_off_without_a_look_at_those_in_front_of_it() {
        crate::sync::tested(|| {
            let (all, slot, mut lanes) = shared(16);
            let nodes: Vec<Node> = (0..16).map(|number| number | FLIGHT).collect();
            for node in &nodes {
                let course = lanes.start(&all, *node, 0, Direction::In, Moment::NEVER, false);
                assert_eq!(course, Course::Waits);
            }
            // From the end, from the middle and from the beginning.
            let (middle, last) = (nodes[8], nodes[15]);
            for node in [last, middle, nodes[0]] {
                all.looks.store(0, Relaxed);
                let effects = lanes.call_off(&all, &slot, node, Verdict::Cancelled, 0).unwrap();
                assert_eq!((effects.due, effects.next), (node, Next::Nothing));
                assert!(all.looks.load(Relaxed) < 10, "{:?} looks", all.looks);
                assert!(lanes.call_off(&all, &slot, node, Verdict::Cancelled, 0).is_none());
            }
            // What is left is due in the order of its start, and what has to wait once more comes first again.
            let (mut due, is_missed) = lanes.stir(&all, &slot, Facts::IN);
            assert!(!is_missed);
            let mut order = Vec::new();
            let mut has_waited = false;
            while due[0] != NIL {
                let node = due[0];
                assert_eq!(lanes.turn(&all, &slot, node, 0).0, Course::Try);
                if node == nodes[2] && !has_waited {
                    has_waited = true;
                    assert_eq!(lanes.tried(&all, &slot, node, Tried::Blocked, 0).0, Course::Waits);
                    (due, _) = lanes.stir(&all, &slot, Facts::IN);
                    assert_eq!(due[0], node);
                    continue;
                }
                let (course, effects) =
                    lanes.tried(&all, &slot, node, Tried::Done { dry: false }, 0);
                assert_eq!(course, Course::Ends(Verdict::Done));
                order.push(node);
                due[0] = effects.due;
            }
            let left: Vec<_> =
                nodes[1..15].iter().copied().filter(|node| *node != middle).collect();
            assert_eq!(order, left);
        });
    }

    #[test]
    fn a_deadline_ends_those_that_are_over_and_leaves_the_order_of_the_others() {
        crate::sync::tested(|| {
            let (all, slot, mut lanes) = shared(6);
            let moment = Moment::from_nanoseconds;
            for (number, at) in (0..).zip([5, 9, 5, 8, 9, 5]) {
                let node = number | FLIGHT;
                let _ = lanes.start(&all, node, 0, Direction::In, moment(at), false);
            }
            let mut ended = Fifo::new();
            let (again, next) = lanes.ring(&all, &slot, moment(6), 0, &mut ended);
            assert_eq!((again, next), (moment(8), Next::Nothing));
            assert_eq!(ended.nodes(&all), [0, 2, 5].map(|number| number | FLIGHT));
            let mut ended = Fifo::new();
            let _ = lanes.call_off_all(&all, &slot, Verdict::Cancelled, 0, &mut ended);
            assert_eq!(ended.nodes(&all), [1, 3, 4].map(|number| number | FLIGHT));
        });
    }

    #[test]
    fn a_connect_that_was_called_off_is_given_up_once() {
        crate::sync::tested(|| {
            let desk = Desk::default();
            let never = || -> bool { panic!("there is none") };
            assert_eq!(desk.clear_for_connect(never), Clearance::Clear);
            desk.abandon_connect(3, never);
            desk.connect_begun(3);
            desk.abandon_connect(4, never);
            // Whoever comes first: the next connect, or the packet. The other has to try again meanwhile.
            let is_clear = desk.clear_for_connect(|| {
                desk.abandon_connect(3, never);
                true
            });
            assert_eq!(is_clear, Clearance::Clear);
            desk.connect_begun(4);
            desk.abandon_connect(3, never);
            desk.abandon_connect(4, || {
                assert_eq!(desk.clear_for_connect(never), Clearance::NotYet);
                true
            });
            assert_eq!(desk.clear_for_connect(never), Clearance::Clear);
            // What has ended by itself needs it not.
            desk.connect_begun(5);
            desk.connect_ended();
            desk.abandon_connect(5, never);
            // Where it cannot be done there is no other connect until the descriptor is another registration's.
            desk.connect_begun(6);
            assert_eq!(desk.clear_for_connect(|| false), Clearance::Never);
            desk.abandon_connect(6, never);
            assert_eq!(desk.clear_for_connect(never), Clearance::Never);
            desk.begin();
            assert_eq!(desk.clear_for_connect(never), Clearance::Clear);
        });
    }
}
