//! The simulation: processors, one port, and connections that ask again some time after each answer.
//!
//! What happens under the lock happens in the order in which the threads ask for it, each at the time
//! at which it gets it; so a section is carried out at once, and only its end is put off.

mod kernel;
mod port;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::costs::Costs;
use super::crew::Crew;
use super::seats::Seats;
use crate::histogram::Histogram;

/// Events that a harvest brings at most, and packets that a wait has room for.
const ROOM: usize = 64;

const AT_ONCE: u64 = 0;
const NEVER: u64 = u64::MAX;

/// How much a thread takes of what is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Claim {
    /// What the port gives it
    Part,
    /// All, up to its room
    Whole,
}

/// Whom a thread asks that looks without sleeping, if there are several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Search {
    /// The next set that nobody harvests, as the port does
    Own,
    /// The set that watches the others, then each that is ready and that nobody harvests
    Top,
}

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) cores: usize,
    /// At most 64.
    pub(crate) sets: usize,
    pub(crate) connections: usize,
    /// In nanoseconds, like all times.
    pub(crate) handler: u64,
    /// From an answer to the next request of its connection: the mean of an exponential distribution.
    pub(crate) think: u64,
    pub(crate) claim: Claim,
    pub(crate) search: Search,
    pub(crate) costs: Costs,
    /// What is not counted, since the port has to get going first.
    pub(crate) warm_up: u64,
    pub(crate) duration: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) handled: u64,
    /// The part of the processors' time in which handlers ran.
    pub(crate) efficiency: f64,
    /// The parts of the time in which the lock was held or handed over, and in which the busiest set
    /// was harvested.
    pub(crate) lock: f64,
    pub(crate) set: f64,
    /// From the arrival of a request until its handler begins, in nanoseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Packets for each claim.
    pub(crate) share: f64,
    /// Wakes for each request.
    pub(crate) wakes: f64,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    connection: usize,
    /// The thread that queued it.
    from: usize,
}

/// What a thread does next.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Begins a wait.
    Enter,
    /// Is back from being parked.
    Return,
    /// Asks the set that watches the others; sleeps there until then.
    Doze { until: u64 },
    /// Asks a set for events; sleeps there until then.
    Harvest { set: usize, until: u64 },
    /// Queues what it found, and looks into further sets.
    Merge { set: Option<usize> },
    /// Sleeps until then, or until it is woken.
    Park { until: u64 },
    /// Wakes another thread.
    Notify { seat: usize, polls: bool },
    /// Turns to the next of its packets.
    Handle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    Awake,
    Parked,
    InKernel,
}

#[derive(Debug)]
struct Thread {
    step: Step,
    /// Which of the steps that were put on the calendar is the valid one.
    turn: u64,
    sleep: Sleep,
    /// Its next parking returns at once.
    token: bool,
    /// It is wanted, and is not to sleep in the kernel's wait.
    notified: bool,
    /// The times for which it has to wake those who sleep for the lock.
    debt: u64,
    chain: VecDeque<Packet>,
    found: Vec<Packet>,
    /// Ready sets that it has not looked into yet.
    sets: u64,
    /// The set that it asks next, and how many it has asked in this wait, with [`Search::Own`].
    next_set: usize,
    tried: usize,
    patient: bool,
    /// It has come back, and leaves the port to the others until it is woken.
    rests: bool,
    asked: u64,
    loaded: bool,
    shares: u64,
    /// When it was handed how many packets, if that is timed.
    timed: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Connection {
    arrived: u64,
    /// Who touched its slot and its socket last.
    owner: usize,
}

/// Something that one thread at a time has.
#[derive(Clone, Copy, Debug, Default)]
struct Serial {
    free_at: u64,
    owner: usize,
    busy: u64,
}

#[derive(Debug, Default)]
struct KernelSet {
    serial: Serial,
    ready: VecDeque<usize>,
    /// Stands in the list of the set that watches the others.
    listed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    /// The step of a thread that was put on the calendar with this number.
    Turn(usize, u64),
}

struct Counters {
    handled: u64,
    claims: u64,
    claimed: u64,
    wakes: u64,
}

pub(crate) struct Simulation {
    setup: Setup,
    now: u64,
    calendar: BinaryHeap<Reverse<(u64, u64, Event)>>,
    entries: u64,
    dice: u64,
    threads: Vec<Thread>,
    connections: Vec<Connection>,
    // What the lock guards.
    lock: Serial,
    seats: Seats,
    queue: VecDeque<Packet>,
    asked: u64,
    harvesting: Vec<bool>,
    loaded: usize,
    due: Option<u64>,
    crew: Crew,
    handed: u64,
    handed_seen: u64,
    // The kernel.
    sets: Vec<KernelSet>,
    top: Serial,
    // What is counted.
    delays: Histogram,
    counters: Counters,
}

/// Runs a simulation.
pub(crate) fn simulate(setup: Setup) -> Outcome {
    let mut simulation = Simulation::new(setup);
    simulation.run_until(setup.warm_up);
    simulation.forget();
    simulation.run_until(setup.warm_up + setup.duration);
    simulation.outcome()
}

impl Simulation {
    pub(crate) fn new(setup: Setup) -> Self {
        let thread = || Thread {
            step: Step::Enter,
            turn: 0,
            sleep: Sleep::Awake,
            token: false,
            notified: false,
            debt: 0,
            chain: VecDeque::new(),
            found: Vec::new(),
            sets: 0,
            next_set: 0,
            tried: 0,
            patient: true,
            rests: false,
            asked: 0,
            loaded: false,
            shares: 0,
            timed: None,
        };
        let mut this = Self {
            setup,
            now: 0,
            calendar: BinaryHeap::new(),
            entries: 0,
            dice: 0x9e37_79b9_7f4a_7c15,
            threads: (0..setup.cores).map(|_| thread()).collect(),
            connections: vec![Connection { arrived: 0, owner: 0 }; setup.connections],
            lock: Serial::default(),
            seats: Seats::new(setup.cores),
            queue: VecDeque::new(),
            asked: 0,
            harvesting: vec![false; setup.sets],
            loaded: 0,
            due: None,
            crew: Crew::new(setup.cores),
            handed: 0,
            handed_seen: 0,
            sets: (0..setup.sets).map(|_| KernelSet::default()).collect(),
            top: Serial::default(),
            delays: Histogram::default(),
            counters: Counters { handled: 0, claims: 0, claimed: 0, wakes: 0 },
        };
        for connection in 0..setup.connections {
            let first = this.thinks();
            this.note(first, Event::Arrival(connection));
        }
        for thread in 0..setup.cores {
            let seat = this.seats.join();
            debug_assert_eq!(seat, thread);
            this.crew.seat(seat);
            this.turn_to(thread, Step::Enter, 0);
        }
        this
    }

    fn run_until(&mut self, end: u64) {
        while let Some(Reverse((time, _, event))) = self.calendar.peek().copied() {
            if time >= end {
                break;
            }
            self.calendar.pop();
            self.now = time;
            match event {
                Event::Arrival(connection) => self.arrive(connection),
                Event::Turn(thread, turn) if self.threads[thread].turn == turn => self.step(thread),
                Event::Turn(..) => {}
            }
        }
        self.now = end;
    }

    /// Counts from here on.
    fn forget(&mut self) {
        self.delays.clear();
        self.counters = Counters { handled: 0, claims: 0, claimed: 0, wakes: 0 };
        self.lock.busy = 0;
        self.sets.iter_mut().for_each(|set| set.serial.busy = 0);
    }

    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn outcome(&self) -> Outcome {
        let duration = self.setup.duration as f64;
        let Counters { handled, claims, claimed, wakes } = self.counters;
        let busiest = self.sets.iter().map(|set| set.serial.busy).max().unwrap_or(0);
        Outcome {
            handled,
            efficiency: (handled * self.setup.handler) as f64
                / (duration * self.setup.cores as f64),
            lock: self.lock.busy as f64 / duration,
            set: busiest as f64 / duration,
            p50: self.delays.per_mille(500).unwrap_or(0.0),
            p99: self.delays.per_mille(990).unwrap_or(0.0),
            share: claimed as f64 / claims.max(1) as f64,
            wakes: wakes as f64 / handled.max(1) as f64,
        }
    }

    // ---- the calendar ----

    fn note(&mut self, time: u64, event: Event) {
        self.entries += 1;
        self.calendar.push(Reverse((time, self.entries, event)));
    }

    /// What `thread` does at `time`, in place of whatever it was to do.
    fn turn_to(&mut self, thread: usize, step: Step, time: u64) {
        let it = &mut self.threads[thread];
        it.turn += 1;
        it.step = step;
        let (turn, time) = (it.turn, time + std::mem::take(&mut it.debt));
        self.note(time, Event::Turn(thread, turn));
    }

    /// The thread sleeps, and is to do `step` when it is woken or `until` is over.
    fn fall_asleep(&mut self, thread: usize, sleep: Sleep, step: Step, until: u64) {
        let it = &mut self.threads[thread];
        it.turn += 1;
        it.step = step;
        it.sleep = sleep;
        let turn = it.turn;
        if until != NEVER {
            self.note(until + self.setup.costs.latency, Event::Turn(thread, turn));
        }
    }

    fn wake(&mut self, thread: usize) {
        let step = self.threads[thread].step;
        self.threads[thread].sleep = Sleep::Awake;
        self.turn_to(thread, step, self.now + self.setup.costs.latency);
    }

    #[allow(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a random time need not be exact"
    )]
    fn thinks(&mut self) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        let uniform = ((self.dice >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
        (-uniform.ln() * self.setup.think as f64) as u64
    }

    // ---- the threads ----

    fn step(&mut self, thread: usize) {
        self.threads[thread].sleep = Sleep::Awake;
        match self.threads[thread].step {
            Step::Enter => self.enter(thread),
            Step::Return => {
                self.threads[thread].rests = false;
                if let Some(begin) = self.acquire(thread) {
                    self.decide_and_release(thread, begin);
                }
            }
            Step::Doze { until } => self.doze(thread, until),
            Step::Harvest { set, until } => self.harvest(thread, set, until),
            Step::Merge { set } => self.merge(thread, set),
            Step::Park { until } => {
                if std::mem::take(&mut self.threads[thread].token) {
                    self.turn_to(thread, Step::Return, self.now);
                } else {
                    self.fall_asleep(thread, Sleep::Parked, Step::Return, until);
                }
            }
            Step::Notify { seat, polls } => {
                let cost = self.notify(seat, polls);
                self.turn_to(thread, Step::Handle, self.now + cost);
            }
            Step::Handle => self.handle(thread),
        }
    }

    fn notify(&mut self, seat: usize, polls: bool) -> u64 {
        let costs = self.setup.costs;
        let it = &mut self.threads[seat];
        match (polls, it.sleep) {
            (true, Sleep::InKernel) => {
                self.wake(seat);
                costs.wake_kernel
            }
            (true, _) => {
                it.notified = true;
                0
            }
            (false, Sleep::Parked) => {
                self.wake(seat);
                costs.wake
            }
            (false, _) => {
                it.token = true;
                costs.tell
            }
        }
    }

    fn handle(&mut self, thread: usize) {
        let costs = self.setup.costs;
        let Some(packet) = self.threads[thread].chain.pop_front() else {
            return self.turn_to(thread, Step::Enter, self.now);
        };
        let it = &mut self.connections[packet.connection];
        let line = costs.line(it.owner, thread);
        it.owner = thread;
        let begin = self.now + costs.take + line * costs.take_percent / 100;
        self.delays.record(Duration::from_nanos(begin - it.arrived));
        let end = begin + self.setup.handler + costs.arm;
        self.counters.handled += 1;
        let next = end + self.thinks();
        self.note(next, Event::Arrival(packet.connection));
        self.turn_to(thread, Step::Handle, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each connection has one request under way, or one to come: it is in one place at a time.
    #[test]
    fn no_request_is_lost_or_doubled() {
        for (cores, sets, search) in
            [(1, 1, Search::Top), (8, 1, Search::Top), (8, 4, Search::Top), (32, 4, Search::Own)]
        {
            for claim in [Claim::Whole, Claim::Part] {
                let mut simulation = Simulation::new(Setup {
                    cores,
                    sets,
                    connections: 16 * cores,
                    handler: 5_000,
                    think: 30_000,
                    claim,
                    search,
                    costs: Costs::default(),
                    warm_up: 0,
                    duration: 0,
                });
                for end in (1..40).map(|turn| turn * 77_777) {
                    simulation.run_until(end);
                    let events = simulation.calendar.iter().filter_map(|entry| match entry.0.2 {
                        Event::Arrival(connection) => Some(connection),
                        Event::Turn(..) => None,
                    });
                    let in_kernel = simulation.sets.iter().flat_map(|set| &set.ready).copied();
                    let at_threads =
                        simulation.threads.iter().flat_map(|it| it.found.iter().chain(&it.chain));
                    let in_port = simulation.queue.iter().chain(at_threads).map(|it| it.connection);
                    let mut places: Vec<usize> = events.chain(in_kernel).chain(in_port).collect();
                    places.sort_unstable();
                    assert_eq!(places, (0..16 * cores).collect::<Vec<_>>(), "at {end}");
                }
                assert!(simulation.counters.handled > 300, "{}", simulation.counters.handled);
            }
        }
    }
}
