//! The simulation: processors, one port, and connections that send again some time after each
//! answer.
//!
//! Threads get the lock in the order of their requests. So a section is executed immediately at the
//! time the thread gets the lock, and only its end is delayed.

mod kernel;
mod port;

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use super::costs::Costs;
use crate::histogram::Histogram;
use crate::state::schedule::{Query, Schedule, Turn, USUAL_EDGES, Wake};

const AT_ONCE: u64 = 0;
const NEVER: u64 = u64::MAX;

/// On which processor a thread is woken. Threads are alike: running the newest idle thread on
/// another thread's processor is the same as waking that thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Placement {
    /// Each on its own.
    Own,
    /// Where the data of the first packet came in.
    Data,
    /// In the waker's socket.
    Near,
    /// In another one.
    Away,
}

/// The simulated setup.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) cores: usize,
    pub(crate) connections: usize,
    /// In nanoseconds, like all times.
    pub(crate) handler: u64,
    /// From an answer to the next request of its connection: the mean of an exponential distribution.
    pub(crate) think: u64,
    /// The number of processors, from the first one, that receive the data of the connections; 0:
    /// it costs the same everywhere.
    pub(crate) incoming: usize,
    pub(crate) placement: Placement,
    /// There is no port: each thread takes what one-shot epoll gives it.
    pub(crate) is_bare: bool,
    /// Divides the port's estimate of the time of its packets.
    pub(crate) patience: u64,
    /// Another one makes the connections ask at other times.
    pub(crate) seed: u32,
    pub(crate) costs: Costs,
    /// The initial time that is not counted, while the port starts.
    pub(crate) warm_up: u64,
    pub(crate) duration: u64,
}

/// The results.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Outcome {
    pub(crate) handled: u64,
    /// The part of the processors' time in which handlers ran.
    pub(crate) efficiency: f64,
    /// The parts of the time in which the lock was held or handed over, and in which the set was
    /// polled.
    pub(crate) lock: f64,
    pub(crate) set: f64,
    /// The fractions of the processors' time in which threads wait for the lock, wait for the set,
    /// and sleep because there are no packets.
    pub(crate) for_lock: f64,
    pub(crate) for_set: f64,
    pub(crate) asleep: f64,
    /// From the arrival of a request until its handler begins, in nanoseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// Packets for each claim.
    pub(crate) share: f64,
    /// Wakes by other threads, for each request.
    pub(crate) wakes: f64,
    /// Processor time for each request, in nanoseconds.
    pub(crate) cpu: f64,
    /// The part of the requests that were handled where their data came in.
    pub(crate) at_home: f64,
}

#[derive(Clone, Copy, Debug)]
struct Packet {
    connection: usize,
    /// The thread that queued it.
    from: usize,
}

/// What a thread does next. Times are when it stops sleeping without a wake.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Begins a wait.
    Enter,
    /// Continues its wait.
    Resume,
    /// Asks the kernel for events; sleeps there until then.
    Poll { until: u64 },
    /// Queues the events it found; it may have slept for them, and been woken by another thread.
    Polled { slept: bool, woken: bool },
    /// Sleeps until then, or until it is woken.
    Park { until: u64 },
    /// Wakes another thread, and goes off to its packets.
    Notify(Wake),
    /// Turns to the next of its packets.
    Handle,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    Awake,
    Parked,
    InKernel,
    /// Woken, and not there yet.
    Woken,
}

#[derive(Debug)]
struct Thread {
    step: Step,
    /// The processor that it runs on, or would. No other thread runs there.
    cpu: usize,
    /// Which of the steps that were put on the calendar is the valid one.
    turn: u64,
    sleep: Sleep,
    /// Its next parking returns immediately.
    token: bool,
    /// The times for which it has to wake the threads that sleep for the lock.
    debt: u64,
    chain: VecDeque<Packet>,
    found: Vec<Packet>,
    /// Moves on with each packet and each wait.
    progress: u32,
    shares: u32,
    /// When it was handed how many packets, if that is timed, and how long each one took.
    timed: Option<(u64, u64)>,
    measured: Option<u64>,
}

/// What a thread brings to a wait.
#[derive(Debug)]
struct Waiting {
    turn: Turn,
    queries: Vec<Query>,
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    /// The step of a thread that was put on the calendar with this number.
    Turn(usize, u64),
}

#[derive(Default)]
struct Counters {
    handled: u64,
    claims: u64,
    claimed: u64,
    wakes: u64,
    for_lock: u64,
    for_set: u64,
    asleep: u64,
    /// The part of `for_lock` in which threads sleep.
    asleep_for_lock: u64,
    at_home: u64,
}

pub(crate) struct Simulation {
    setup: Setup,
    now: u64,
    calendar: BinaryHeap<Reverse<(u64, u64, Event)>>,
    entries: u64,
    dice: u64,
    threads: Vec<Thread>,
    connections: Vec<Connection>,
    /// What each thread brings to its wait.
    waiting: Vec<Waiting>,
    // What the lock guards.
    lock: Serial,
    schedule: Schedule,
    queue: VecDeque<Packet>,
    /// The additional cost of the current section.
    spent: Cell<u64>,
    // The kernel.
    set: KernelSet,
    /// Threads in the kernel's wait, the one that came last at the end.
    in_kernel: Vec<usize>,
    /// A thread in the kernel's wait was to be woken, and none has noticed yet.
    rung: bool,
    // The counters.
    idle: usize,
    idle_since: u64,
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
        let thread = |cpu| Thread {
            step: if setup.is_bare { Step::Poll { until: NEVER } } else { Step::Enter },
            cpu,
            turn: 0,
            sleep: Sleep::Awake,
            token: false,
            debt: 0,
            chain: VecDeque::new(),
            found: Vec::new(),
            progress: 0,
            shares: 0,
            timed: None,
            measured: None,
        };
        let waiting = |me| Waiting { turn: Turn::new(me, USUAL_EDGES, None), queries: Vec::new() };
        let mut this = Self {
            setup,
            now: 0,
            calendar: BinaryHeap::new(),
            entries: 0,
            dice: 0x9e37_79b9_7f4a_7c15 ^ u64::from(setup.seed),
            threads: (0..setup.cores).map(thread).collect(),
            connections: vec![Connection { arrived: 0, owner: 0 }; setup.connections],
            waiting: (0..setup.cores).map(waiting).collect(),
            lock: Serial::default(),
            schedule: Schedule::new(setup.cores, 0),
            queue: VecDeque::new(),
            spent: Cell::new(0),
            set: KernelSet::default(),
            in_kernel: Vec::new(),
            rung: false,
            idle: 0,
            idle_since: 0,
            delays: Histogram::default(),
            counters: Counters::default(),
        };
        for connection in 0..setup.connections {
            let first = this.thinks();
            this.note(first, Event::Arrival(connection));
        }
        for thread in 0..setup.cores {
            let worker = this.schedule.join(false, 0);
            debug_assert_eq!(worker, thread);
            let step = this.threads[thread].step;
            this.turn_to(thread, step, 0);
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
        self.count_idle(0);
    }

    /// One processor more idles from now on, or one less, or as many as before.
    fn count_idle(&mut self, change: isize) {
        self.counters.asleep += self.idle as u64 * (self.now - self.idle_since);
        self.idle = self.idle.wrapping_add_signed(change);
        self.idle_since = self.now;
    }

    /// Counts from here on.
    fn forget(&mut self) {
        self.delays.clear();
        self.counters = Counters::default();
        self.lock.busy = 0;
        self.set.serial.busy = 0;
    }

    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn outcome(&self) -> Outcome {
        let duration = self.setup.duration as f64;
        let Counters { handled, claims, claimed, wakes, for_lock, for_set, asleep, .. } =
            self.counters;
        let Counters { asleep_for_lock, at_home, .. } = self.counters;
        let processors = duration * self.setup.cores as f64;
        Outcome {
            handled,
            efficiency: (handled * self.setup.handler) as f64 / processors,
            for_lock: for_lock as f64 / processors,
            for_set: for_set as f64 / processors,
            asleep: asleep as f64 / processors,
            lock: self.lock.busy as f64 / duration,
            set: self.set.serial.busy as f64 / duration,
            p50: self.delays.per_mille(500).unwrap_or(0.0),
            p99: self.delays.per_mille(990).unwrap_or(0.0),
            share: claimed as f64 / claims.max(1) as f64,
            wakes: wakes as f64 / handled.max(1) as f64,
            cpu: (processors - (asleep + asleep_for_lock) as f64) / handled.max(1) as f64,
            at_home: at_home as f64 / handled.max(1) as f64,
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

    /// The thread sleeps. It does `step` when it is woken or at `until`.
    fn fall_asleep(&mut self, thread: usize, sleep: Sleep, step: Step, until: u64) {
        let it = &mut self.threads[thread];
        it.turn += 1;
        it.step = step;
        let turn = it.turn;
        if std::mem::replace(&mut it.sleep, sleep) == Sleep::Awake {
            self.count_idle(1);
        }
        if sleep == Sleep::InKernel {
            self.in_kernel.push(thread);
        }
        if until != NEVER {
            let end = until.max(self.now) + self.setup.costs.latency;
            self.note(end, Event::Turn(thread, turn));
        }
    }

    /// The thread, which sleeps, is woken from processor `by`, if any, for a packet whose data came in by
    /// processor `data`, if that is known.
    fn wake(&mut self, thread: usize, by: Option<usize>, data: Option<usize>) {
        self.place(thread, by, data);
        let it = &mut self.threads[thread];
        let step = it.step;
        it.sleep = Sleep::Woken;
        let costs = self.setup.costs;
        let across = by.map_or(0, |by| costs.wake_across(by, it.cpu));
        self.turn_to(thread, step, self.now + costs.latency + across);
    }

    /// The sleeping `thread` gets the processor that the placement wants, if no other thread runs there.
    fn place(&mut self, thread: usize, by: Option<usize>, data: Option<usize>) {
        let socket = self.setup.costs.socket;
        let fits = |cpu: usize| match self.setup.placement {
            Placement::Own => false,
            Placement::Data => data == Some(cpu),
            Placement::Near => by.is_some_and(|by| by / socket == cpu / socket),
            Placement::Away => by.is_some_and(|by| by / socket != cpu / socket),
        };
        if fits(self.threads[thread].cpu) {
            return;
        }
        // In the socket of the data, if not on its processor.
        let is_close = |cpu: usize| data.is_some_and(|data| data / socket == cpu / socket);
        let wants_close =
            self.setup.placement == Placement::Data && !is_close(self.threads[thread].cpu);
        let is_free = |it: &Thread| matches!(it.sleep, Sleep::Parked | Sleep::InKernel);
        let free = |fits: &dyn Fn(usize) -> bool| {
            self.threads.iter().position(|it| is_free(it) && fits(it.cpu))
        };
        let close = || if wants_close { free(&is_close) } else { None };
        if let Some(other) = free(&fits).or_else(close) {
            let cpu = self.threads[other].cpu;
            self.threads[other].cpu = std::mem::replace(&mut self.threads[thread].cpu, cpu);
        }
    }

    /// The processor by which the data of the connection comes in.
    fn home(&self, connection: usize) -> Option<usize> {
        (self.setup.incoming > 0).then(|| connection % self.setup.incoming)
    }

    /// The cost for `thread` of fetching a line that `owner` wrote last. A thread that is woken
    /// elsewhere counts as if it had written its lines there.
    fn line(&self, owner: usize, thread: usize) -> u64 {
        self.setup.costs.line(self.threads[owner].cpu, self.threads[thread].cpu)
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
        if std::mem::replace(&mut self.threads[thread].sleep, Sleep::Awake) != Sleep::Awake {
            self.in_kernel.retain(|sleeper| *sleeper != thread);
            self.count_idle(-1);
        }
        match self.threads[thread].step {
            Step::Enter => self.enter(thread),
            Step::Resume => self.resume(thread),
            Step::Poll { until } => self.poll(thread, until),
            Step::Polled { slept, woken } => self.queue_found(thread, slept, woken),
            Step::Park { until } => {
                if std::mem::take(&mut self.threads[thread].token) {
                    self.turn_to(thread, Step::Resume, self.now);
                } else {
                    self.fall_asleep(thread, Sleep::Parked, Step::Resume, until);
                }
            }
            Step::Notify(wake) => {
                self.counters.wakes += 1;
                let cost = self.notify(thread, wake);
                self.turn_to(thread, Step::Handle, self.now + cost);
            }
            Step::Handle => self.handle(thread),
        }
    }

    fn handle(&mut self, thread: usize) {
        let costs = self.setup.costs;
        let thread_at = &mut self.threads[thread];
        let Some(packet) = thread_at.chain.pop_front() else {
            let timed = thread_at.timed.take();
            let patience = self.setup.patience;
            thread_at.measured =
                timed.map(|(since, packets)| (self.now - since) / packets / patience);
            let bare = Step::Poll { until: NEVER };
            let step = if self.setup.is_bare { bare } else { Step::Enter };
            return self.turn_to(thread, step, self.now);
        };
        thread_at.progress = thread_at.progress.wrapping_add(1);
        let line = self.line(self.connections[packet.connection].owner, thread);
        let cpu = self.threads[thread].cpu;
        let home = self.home(packet.connection).unwrap_or(cpu);
        let it = &mut self.connections[packet.connection];
        it.owner = thread;
        let begin = self.now + costs.take + line * costs.take_percent / 100;
        self.delays.record(Duration::from_nanos(begin - it.arrived));
        let end = begin + costs.data_lines * costs.line(home, cpu) + self.setup.handler;
        let end = if self.setup.is_bare { self.modify(thread, end) } else { end + costs.arm };
        self.counters.handled += 1;
        self.counters.at_home += u64::from(home == cpu);
        let next = end + self.thinks();
        self.note(next, Event::Arrival(packet.connection));
        self.turn_to(thread, Step::Handle, end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight processors in two sockets far apart; the data comes in by those of the first socket.
    fn far_apart(placement: Placement, is_bare: bool) -> Setup {
        let far = 500;
        Setup {
            cores: 8,
            connections: 32,
            handler: 1_000,
            think: 30_000,
            incoming: 4,
            placement,
            is_bare,
            patience: 1,
            seed: 0,
            costs: Costs { near: 25, far, socket: 4, wake_lines: 20, ..Costs::default() },
            warm_up: 20_000_000,
            duration: 40_000_000,
        }
    }

    #[test]
    fn each_thread_has_a_processor_of_its_own_wherever_it_is_woken() {
        for placement in [Placement::Own, Placement::Data, Placement::Near, Placement::Away] {
            let mut simulation = Simulation::new(far_apart(placement, false));
            let mut has_moved = false;
            for end in (1..100).map(|turn| turn * 77_777) {
                simulation.run_until(end);
                let mut cpus: Vec<usize> = simulation.threads.iter().map(|it| it.cpu).collect();
                has_moved |= !cpus.is_sorted();
                cpus.sort_unstable();
                assert_eq!(cpus, (0..8).collect::<Vec<_>>(), "{placement:?} at {end}");
            }
            assert_eq!(has_moved, placement != Placement::Own, "{placement:?}");
        }
    }

    #[test]
    fn what_is_far_costs_nothing_where_the_data_comes_in() {
        let alone = |data_lines, incoming| {
            let setup = far_apart(Placement::Own, false);
            let costs = Costs { data_lines, ..setup.costs };
            simulate(Setup { cores: 1, connections: 4, incoming, costs, ..setup })
        };
        assert_eq!(alone(17, 1), alone(0, 1));
        assert_eq!(alone(17, 1).at_home, 1.0);
        // Nowhere in particular is everywhere at home.
        assert_eq!(alone(17, 0), alone(0, 0));
    }

    #[test]
    fn far_data_makes_a_request_dearer_and_a_thread_woken_at_the_data_cheaper() {
        let own = simulate(far_apart(Placement::Own, false));
        let no_data = far_apart(Placement::Own, false);
        let costs = Costs { data_lines: 0, ..no_data.costs };
        assert!(own.cpu > simulate(Setup { costs, ..no_data }).cpu, "{own:?}");
        let data = simulate(far_apart(Placement::Data, false));
        assert!(data.at_home > own.at_home, "{own:?} {data:?}");
        assert!(data.cpu < own.cpu, "{own:?} {data:?}");
    }

    /// Without a port one thread that has all connections pays the set and nothing else.
    #[test]
    fn bare_one_shot_epoll_costs_what_can_be_added_up() {
        let setup = far_apart(Placement::Own, true);
        let setup = Setup { cores: 1, connections: 16, think: 0, incoming: 0, ..setup };
        let costs = setup.costs;
        let each = costs.event + costs.take + setup.handler + costs.modify;
        let cycle = costs.poll + 16 * each;
        let outcome = simulate(setup);
        let expected = 16 * setup.duration / cycle;
        assert!(outcome.handled.abs_diff(expected) <= 16, "{outcome:?}, not {expected}");
    }

    #[test]
    fn a_wake_across_sockets_costs_both_sides_more() {
        let price = |placement, worker: usize| {
            let mut simulation = Simulation::new(far_apart(placement, false));
            simulation.threads[worker].sleep = Sleep::Parked;
            simulation.threads[6].sleep = Sleep::Parked;
            let price = simulation.notify(0, Wake { worker, in_kernel: false });
            let Some(Reverse((woken, ..))) =
                simulation.calendar.iter().max_by_key(|Reverse((_, number, _))| *number).copied()
            else {
                panic!("the thread has nothing to do");
            };
            (price, woken, simulation.threads[worker].cpu)
        };
        let Costs { wake, latency, .. } = Costs::default();
        assert_eq!(price(Placement::Own, 1), (wake, latency, 1));
        assert_eq!(price(Placement::Own, 5), (wake + 5_000, latency + 5_000, 5));
        assert_eq!(price(Placement::Near, 1), (wake, latency, 1));
        assert_eq!(price(Placement::Away, 1), (wake + 5_000, latency + 5_000, 6));
    }

    /// Each connection has one request under way, or one to come: it is in one place at a time.
    #[test]
    fn no_request_is_lost_or_doubled() {
        for (cores, is_bare) in [(1, false), (8, false), (32, false), (8, true)] {
            let mut simulation = Simulation::new(Setup {
                cores,
                connections: 16 * cores,
                handler: 5_000,
                think: 30_000,
                incoming: 0,
                placement: Placement::Own,
                is_bare,
                patience: 1,
                seed: 0,
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
                let in_kernel = simulation.set.ready.iter().copied();
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
