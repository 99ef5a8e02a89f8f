//! The engine joins what the port knows (`state`) and what the system does (`sys`). It has the one
//! loop in which threads wait.
//!
//! It knows neither the type of the keys nor that of the messages, only the numbers of the cells in
//! which they lie; [`port`](crate::port) moves them in and out. Everything that threads share beside
//! the slots' words is under one lock, which is never held while user code runs, while a thread
//! sleeps, or while the kernel is asked about more than what holds at this moment.

mod answer;
mod armings;
mod aside;
mod check;
mod delays;
mod desks;
mod dispatch;
mod end;
mod faults;
mod files;
mod operations;
mod outstanding;
mod packets;
mod peek;
mod poll;
mod quota;
mod registrations;
mod report;
mod seat;
mod sleep;
mod sockets;
mod stage;
mod threads;
mod wait;

use std::fmt;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, OnceLock, PoisonError, Weak};

use crate::backend::Backend;
use crate::backend::host::Origin;
use crate::backend::thread::Thread;
use crate::memory::arena::Arena;
use crate::memory::trace::hears_changes;
use crate::state::arming::Armings;
use crate::state::operations::{Desks, Flight};
use crate::state::queue::{FLIGHT, Fifo, Links, Node, POSTED, cell_of, is_flight};
use crate::state::schedule::{Advice, SAMPLED, Schedule, SeatNumber};
use crate::state::slot::{GENERATION, Refusal, Slot};
use crate::state::spares::Spares;
use crate::state::strays::Strays;
pub(crate) use crate::state::timers::Name as TimerName;
use crate::state::timers::Timers;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex, MutexGuard, RwLock};
use crate::types::config::BlockDetection;
use crate::types::error::Fault;
use crate::types::error::{Call, Error, ErrorKind};
use delays::Delays;
use outstanding::Outstanding;

pub(crate) use crate::state::operations::{Clearance, Desk, Step, Verdict};
pub(crate) use crate::state::schedule::Waited;
pub(crate) use aside::GoesOn;
pub(crate) use delays::Histogram;
pub(crate) use dispatch::Taken;
pub(crate) use operations::{Aloft, Place, Plan};
pub(crate) use packets::Posting;
pub(crate) use poll::Scratch;
pub(crate) use registrations::{Entry, Return};
pub(crate) use seat::{Seat, Tally};

/// A registration's name: the index of its slot, and the generation in the bits where the slot's
/// word has it.
pub(crate) type Name = u64;

#[inline]
pub(crate) fn name_of(index: u32, generation: u32) -> Name {
    u64::from(generation) << GENERATION | u64::from(index)
}

#[allow(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
#[inline]
pub(crate) fn name_parts(name: Name) -> (u32, u32) {
    (name as u32, (name >> GENERATION) as u32)
}

/// A registration's name as it is shown.
pub(crate) struct Shown(pub(crate) Name);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, generation) = name_parts(self.0);
        write!(f, "Id({index}#{generation})")
    }
}

/// Where counters of 32 bits begin: shortly before they wrap, as the kernel's own clock does. So
/// every run tests the wrap.
const BEGIN: u32 = 0_u32.wrapping_sub(10 * SAMPLED);

/// Whether the port takes work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open = 0,
    /// Every registration is being removed; over once none is left.
    ShuttingDown = 1,
    /// Over once the queue is empty.
    Closed = 2,
    /// Over, whatever is left.
    Abandoned = 3,
}

/// A thread at the port, as other threads see it. Only the port keeps it for long, so that the
/// descriptors by which threads are queried are closed with the port.
#[derive(Clone)]
struct Member {
    seat: Arc<Seat>,
    thread: Arc<dyn Thread>,
    /// How often the thread was woken.
    wakes: u64,
    /// How often it was found asleep without having said so.
    blocks_found: u64,
}

/// What is true of few ports at few times, in one word: so that all of it together is one question to a
/// wait, and to what is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Notable(u8);

impl Notable {
    const NOTHING: Self = Self(0);
    /// The phase is not [`Phase::Open`].
    const ENDING: u8 = 1;
    /// A thread sleeps in `remove_and_wait`.
    const COLLECTED: u8 = 2;
    /// It is measured how long packets stand in the port.
    const MEASURED: u8 = 4;
    /// A thread was found asleep, and no event tells of it yet.
    const FOUND: u8 = 8;
    /// Operations were put aside.
    const ASIDE: u8 = 16;

    #[inline]
    fn is_any(self) -> bool {
        self != Self::NOTHING
    }

    #[inline]
    fn has(self, what: u8) -> bool {
        self.0 & what != 0
    }

    fn set(&mut self, what: u8, holds: bool) {
        self.0 = if holds { self.0 | what } else { self.0 & !what };
    }
}

/// What the lock guards.
struct State {
    schedule: Schedule,
    stock: Stock,
}

/// The queue, and what else a port has one of.
struct Stock {
    ready: Fifo,
    /// Tasks that are due or have ended: no packet tells of them. See
    /// [`Engine::put_aside`].
    aside: Fifo,
    /// Registrations that the kernel has to be asked about before they can be queued.
    recheck: Fifo,
    /// The threads, by the numbers of their seats.
    members: Vec<Option<Member>>,
    phase: Phase,
    notable: Notable,
    slots: Spares,
    posts: Spares,
    /// Records of operations.
    flights: Spares,
    /// Posted messages whose time has not come, and deadlines.
    timers: Timers,
    strays: Strays,
    /// How many threads that take nothing ask the kernel without the lock. What they have found, or
    /// have taken off `recheck`, stands in no list meanwhile. Also a thread that calls off operations of a port
    /// which it closes, and operations that were being tried then: their packets are still to be queued.
    peeks: usize,
    /// Threads that sleep in `remove_and_wait`. They are woken whenever a key comes back, which may
    /// be theirs.
    collectors: Vec<Arc<dyn Thread>>,
    polls: u64,
    /// The polls that brought nothing.
    empty_polls: u64,
    former: Tally,
    /// Threads that were found asleep, and of which no event tells yet.
    found: Vec<SeatNumber>,
    /// Why the kernel has last refused to report what is ready.
    fault: Option<Fault>,
}

impl Stock {
    /// Whether no wait brings anything any more.
    #[inline]
    fn is_over(&self) -> bool {
        self.phase != Phase::Open && self.is_over_at_last()
    }

    #[cold]
    fn is_over_at_last(&self) -> bool {
        match self.phase {
            Phase::Open => false,
            Phase::ShuttingDown => self.slots.in_use() == 0 && self.ready.is_empty(),
            Phase::Closed => {
                self.ready.is_empty()
                    && self.recheck.is_empty()
                    && self.aside.is_empty()
                    && self.peeks == 0
            }
            Phase::Abandoned => true,
        }
    }

    /// Whether most reports of the kernel's set are about ended registrations.
    #[inline]
    fn is_full_of_strays(&self) -> bool {
        self.strays.are_many(self.slots.in_use())
    }

    /// Wakes the threads in `remove_and_wait`: nodes were queued, or a slot was given up, which may
    /// be what one of them waits for.
    #[inline]
    fn tell_collectors(&self) {
        if self.notable.has(Notable::COLLECTED) {
            self.unpark_collectors();
        }
    }

    #[cold]
    fn unpark_collectors(&self) {
        for collector in &self.collectors {
            collector.unpark();
        }
    }

    fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
        self.notable.set(Notable::ENDING, phase != Phase::Open);
    }

    /// The thread of `seat` was found asleep.
    fn note_found(&mut self, seat: SeatNumber) {
        if let Some(member) = &mut self.members[seat] {
            member.blocks_found += 1;
        }
        if hears_changes() && !self.found.contains(&seat) {
            self.found.push(seat);
            self.notable.set(Notable::FOUND, true);
        }
    }

    /// The threads that were found asleep since this was last called.
    fn take_found(&mut self) -> Vec<SeatNumber> {
        self.notable.set(Notable::FOUND, false);
        std::mem::take(&mut self.found)
    }
}

/// Slots, links of posted messages, and operations.
struct Nodes {
    slots: Arena<Slot>,
    posts: Arena<AtomicU32>,
    flights: Arena<Flight>,
}

impl Links for Nodes {
    #[inline]
    fn link(&self, node: Node) -> &AtomicU32 {
        if node & POSTED == 0 {
            &self.slots.at(node).link
        } else if is_flight(node) {
            &self.flights.at(node & !FLIGHT).link
        } else {
            self.posts.at(cell_of(node))
        }
    }
}

/// See the module's documentation. The fields that every packet needs come first, in as few cache
/// lines as possible: after a system call each line has to be fetched anew.
#[repr(C, align(64))]
pub(crate) struct Engine {
    origin: Origin,
    /// The phase, for threads that do not have the lock.
    phase: AtomicU8,
    nodes: Nodes,
    /// The port's number in the table of descriptors.
    number: u64,
    limit: usize,
    /// The reactor is one-shot: a registration is armed by asking the kernel, whose answer is an edge.
    is_one_shot: bool,
    /// How many packets a thread takes if it cannot give any back, for threads that do not have the
    /// lock.
    advised: AtomicU32,
    /// When `advised` is to be computed again, in nanoseconds.
    advise_at: AtomicU64,
    detection: BlockDetection,
    /// Threads are observed from the first, not only once they have been found asleep.
    observes_all: bool,
    backend: Box<dyn Backend>,
    state: Mutex<State>,
    /// The number of the poll that is under way, or of the last one.
    poll: AtomicU32,
    /// Held for reading while a descriptor is attached or detached, for writing while the kernel's
    /// set is replaced.
    set: RwLock<()>,
    /// What slots have beside their words, by the numbers of slots.
    desks: Desks,
    /// The deadlines of their armings, in the same way.
    armings: Armings,
    outstanding: Outstanding,
    /// A task was started. It stays so.
    has_tasks: AtomicBool,
    /// [`Stock::fault`] is there, for threads that do not have the lock. It orders nothing, and no model of loom sets it:
    /// as one of the standard library it makes those no larger.
    has_fault: std::sync::atomic::AtomicBool,
    /// Made when a program first has the port measure how long packets stand in it.
    delays: OnceLock<Box<Delays>>,
}

impl Engine {
    /// A port's engine, which lets `limit` threads run at once. Refused if `detection` is not to be
    /// had here.
    pub(crate) fn new(
        limit: usize,
        detection: BlockDetection,
        backend: Box<dyn Backend>,
    ) -> Result<Arc<Self>, Error> {
        let observes_all = detection == BlockDetection::Switches;
        let detection = match detection {
            BlockDetection::Automatic | BlockDetection::Switches => match backend.can_observe() {
                Ok(()) => BlockDetection::Switches,
                Err(fault) if observes_all => {
                    return Err(Error::new(Call::Create, fault.kind).with_code(fault.code));
                }
                Err(_) => BlockDetection::Tick,
            },
            chosen => chosen,
        };
        Ok(Arc::new_cyclic(|this: &Weak<Self>| {
            let number = backend.descriptors().enter(this.clone());
            Self {
                number,
                limit,
                is_one_shot: backend.is_one_shot(),
                advised: AtomicU32::new(Advice::ALL),
                advise_at: AtomicU64::new(0),
                detection,
                observes_all,
                origin: backend.origin(),
                backend,
                nodes: Nodes { slots: Arena::new(), posts: Arena::new(), flights: Arena::new() },
                desks: Desks::new(),
                armings: Armings::new(),
                outstanding: Outstanding::new(),
                has_tasks: AtomicBool::new(false),
                has_fault: std::sync::atomic::AtomicBool::new(false),
                state: Mutex::new(State {
                    schedule: Schedule::new(limit, BEGIN),
                    stock: Stock {
                        ready: Fifo::new(),
                        aside: Fifo::new(),
                        recheck: Fifo::new(),
                        members: Vec::new(),
                        phase: Phase::Open,
                        notable: Notable::NOTHING,
                        slots: Spares::new(),
                        posts: Spares::new(),
                        flights: Spares::new(),
                        timers: Timers::new(number << 32),
                        strays: Strays::new(),
                        peeks: 0,
                        collectors: Vec::new(),
                        polls: 0,
                        empty_polls: 0,
                        former: Tally::default(),
                        found: Vec::new(),
                        fault: None,
                    },
                }),
                poll: AtomicU32::new(BEGIN),
                phase: AtomicU8::new(Phase::Open as u8),
                set: RwLock::new(()),
                delays: OnceLock::new(),
            }
        }))
    }

    #[inline]
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn detection(&self) -> BlockDetection {
        self.detection
    }

    /// Whether this process is a forked child of the one that made the port.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.origin.is_left()
    }

    #[inline]
    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, State> {
        // No user code runs under the lock. Should the engine itself ever panic under it, the other
        // threads go on with what they find.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The phase at this moment.
    #[inline]
    fn phase(&self) -> Phase {
        match self.phase.load(SeqCst) {
            0 => Phase::Open,
            1 => Phase::ShuttingDown,
            2 => Phase::Closed,
            _ => Phase::Abandoned,
        }
    }

    #[inline]
    pub(crate) fn slot(&self, index: u32) -> &Slot {
        self.nodes.slots.at(index)
    }

    /// Where what tells one use of a thing from the next one begins. It differs from port to port, so that a name used
    /// at the wrong port is hardly ever valid there.
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is as good as any")]
    pub(crate) fn of_this_port(&self) -> u32 {
        (self.number as u32).wrapping_mul(0x9e37_79b9)
    }

    /// The name that the operation of this record has, or will have: the record, and how often it was used before.
    #[inline]
    pub(crate) fn operation_of(&self, record: u32) -> u64 {
        u64::from(self.nodes.flights.at(record).uses()) << 32 | u64::from(record)
    }

    /// The number of the poll that is under way, or of the last one.
    #[inline]
    fn current_poll(&self) -> u32 {
        self.poll.load(SeqCst)
    }

    #[inline]
    fn known(&self, name: Name) -> Option<(&Slot, u32)> {
        let (index, generation) = name_parts(name);
        self.nodes.slots.find(index).map(|slot| (slot, generation))
    }

    #[inline]
    fn check_usable(&self, call: Call) -> Result<(), Error> {
        if self.forked() {
            return Err(Error::new(call, ErrorKind::Forked));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn check_open(&self, call: Call) -> Result<(), Error> {
        self.check_usable(call)?;
        if self.phase() != Phase::Open {
            return Err(Error::new(call, ErrorKind::Closed));
        }
        Ok(())
    }
}

fn kind_of(refusal: Refusal) -> ErrorKind {
    match refusal {
        Refusal::NotRegistered => ErrorKind::NotRegistered,
        Refusal::Removing => ErrorKind::Removing,
        Refusal::Held => ErrorKind::KeyHeld,
    }
}
