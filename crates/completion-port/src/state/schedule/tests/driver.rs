//! A port without threads, clock or kernel. It uses a schedule as the engine does, one locked
//! section at a time.
//!
//! [`Does`] is the state of a virtual thread, and [`Rig::step`] makes it do the next thing. So a
//! test can choose any interleaving that real threads could have.

mod checks;

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use super::super::super::facts::Presence;
use super::super::Moment;
use super::super::{
    Action, Found, Query, Schedule, SchedulePort, Status, Turn, Waited, Wake, WorkerNumber,
};

/// A packet that the port hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) number: u32,
    pub(super) posted: bool,
}

/// What a thread keeps during a wait, besides its worker.
#[derive(Debug)]
pub(super) struct Wait {
    turn: Turn,
    queries: Vec<Query>,
    is_filled: bool,
}

/// What the kernel has reported to a thread that has not taken the lock since.
#[derive(Debug)]
pub(super) struct Polled {
    edges: Vec<Packet>,
    woken: bool,
    /// The thread returns from the kernel's wait.
    slept: bool,
}

/// What a virtual thread is doing.
#[derive(Debug)]
pub(super) enum Does {
    /// It has left the port.
    Gone,
    /// It is in user code.
    Out,
    /// It will ask the schedule.
    Looks(Wait),
    /// It has checked registrations, and these are ready.
    Checks(Wait, Vec<Packet>),
    /// It will ask the kernel for edges. These packets go after them.
    Asks(Wait, Vec<Packet>),
    Returns(Wait, Polled, Vec<Packet>),
    /// The system has answered this query. The fields are the query, the generation of the thread
    /// in question, its processor time, and whether it sleeps.
    Answers(Wait, Query, u32, Duration, bool),
    Polls(Wait, Option<Moment>),
    Parks(Wait, Option<Moment>),
}

impl Does {
    pub(super) fn sleeps(&self) -> bool {
        matches!(self, Self::Polls(..) | Self::Parks(..))
    }

    pub(super) fn waits(&self) -> bool {
        !matches!(self, Self::Gone | Self::Out)
    }

    /// Returns when a sleep ends on its own.
    pub(super) fn until(&self) -> Option<Moment> {
        match self {
            Self::Polls(_, until) | Self::Parks(_, until) => *until,
            _ => None,
        }
    }
}

/// A virtual thread. Its index is the number of its worker.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) does: Does,
    pub(super) hand: VecDeque<Packet>,
    /// How its last wait ended.
    pub(super) waited: Option<Waited>,
    progress: u32,
    /// How many threads had this worker's number before.
    generation: u32,
    /// Since when the thread has been asleep in user code.
    pub(super) asleep: Option<Moment>,
    /// How long it slept there in earlier sleeps.
    slept: Duration,
    /// The schedule presumes that it sleeps.
    pub(super) presumed: bool,
    has_records: bool,
    pub(super) token: bool,
    /// It has announced that it blocks.
    pub(super) blocks: bool,
    /// The value of `Rig::lists` when it last joined the list of idle workers.
    listed: u64,
}

impl Thread {
    /// Returns its processor time: it runs whenever it does not sleep.
    fn processor_time(&self, now: Moment) -> Duration {
        let asleep = self.asleep.map_or(Duration::ZERO, |since| now.since(since));
        now.since(Moment::ZERO) - self.slept - asleep
    }
}

/// A wake-up to make after the lock is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    Thread(WorkerNumber),
    Kernel,
}

/// Everything in the port except the schedule.
#[derive(Debug)]
pub(super) struct Fake {
    pub(super) now: Moment,
    pub(super) queue: VecDeque<Packet>,
    pub(super) unchecked: Vec<Packet>,
    /// Messages that are not due yet, earliest first.
    pub(super) timers: Vec<(Moment, Packet)>,
    /// The kernel's pending edges, in order, and how many it reports at a time.
    pub(super) kernel: VecDeque<Packet>,
    pub(super) edges: usize,
    pub(super) eventfd: bool,
    pub(super) threads: Vec<Thread>,
    pub(super) taken: Vec<Packet>,
    pub(super) registered: usize,
    /// A thread is replacing the kernel's set.
    pub(super) replacing: bool,
    pub(super) closed: bool,
    pub(super) abandoned: bool,
    /// The system knows whether a thread sleeps; and it keeps sleep records of a thread that was
    /// found asleep.
    pub(super) detects: bool,
    pub(super) observes: bool,
    pub(super) advised: Option<u32>,
    /// What the kernel has reported to a thread that is no worker: packets, and whether there was a
    /// wake-up.
    pub(super) peek: Option<(Vec<Packet>, bool)>,
    /// All queries, and whether the system had to be asked.
    pub(super) queries: Vec<(Query, bool)>,
    own: Option<WorkerNumber>,
    /// How many packets were handed to threads, including those taken back.
    handed: u64,
    found: u64,
    /// How often a thread has asked for the length of the queue in one step. The driver fails if a
    /// thread loops.
    asked: Cell<u32>,
}

impl Fake {
    /// Queues the messages that are due at `now`. Returns when the next timer is due.
    fn queue_due(&mut self, now: Moment) -> Moment {
        let due = self.timers.iter().take_while(|(at, _)| *at <= now).count();
        self.queue.extend(self.timers.drain(..due).map(|(_, packet)| packet));
        self.due()
    }
}

impl SchedulePort for Fake {
    fn now(&self) -> Moment {
        self.now
    }

    fn ready(&self) -> usize {
        self.asked.set(self.asked.get() + 1);
        assert!(self.asked.get() < 1_000, "a thread goes round in circles: {self:#?}");
        self.queue.len()
    }

    fn begins_with_post(&self) -> bool {
        self.queue.front().is_some_and(|packet| packet.posted)
    }

    fn unchecked(&self) -> usize {
        self.unchecked.len()
    }

    fn posts(&self) -> usize {
        let hands = self.threads.iter().flat_map(|thread| &thread.hand);
        self.queue.iter().chain(hands).filter(|packet| packet.posted).count()
    }

    fn registered(&self) -> usize {
        self.registered
    }

    fn is_over(&self) -> bool {
        let is_empty = self.queue.is_empty() && self.unchecked.is_empty() && self.peek.is_none();
        self.abandoned || self.closed && is_empty
    }

    fn takes_edges(&self) -> bool {
        !self.closed
    }

    fn is_replacing(&self) -> bool {
        self.replacing
    }

    fn is_full_of_stale_events(&self) -> bool {
        false
    }

    fn detects(&self) -> bool {
        self.detects
    }

    fn progress(&self, worker: WorkerNumber) -> u32 {
        self.threads[worker].progress
    }

    fn presence(&self, worker: WorkerNumber) -> Option<Presence> {
        let thread = &self.threads[worker];
        let presence = thread.asleep.map_or(Presence::Awake, |since| Presence::Asleep { since });
        thread.has_records.then_some(presence)
    }

    fn presume_asleep(&mut self, worker: WorkerNumber, asleep: bool) {
        self.threads[worker].presumed = asleep;
        self.found += u64::from(asleep);
    }

    fn take(&mut self, packets: usize) {
        let own = &mut self.threads[self.own.expect("a thread takes")];
        assert!(own.hand.is_empty(), "what it had is in the queue");
        let Does::Gone = own.does else { panic!("the thread is in a step") };
        assert!((1..=self.queue.len()).contains(&packets));
        own.hand.extend(self.queue.drain(..packets));
        self.handed += packets as u64;
    }

    fn give(&mut self, worker: WorkerNumber) {
        let first = self.queue.pop_front().expect("the queue is not empty");
        assert!(self.threads[worker].hand.is_empty(), "an idle thread has nothing");
        self.threads[worker].hand.push_back(first);
        self.handed += 1;
    }

    fn take_back(&mut self, worker: WorkerNumber) -> bool {
        let hand = mem::take(&mut self.threads[worker].hand);
        hand.iter().rev().for_each(|packet| self.queue.push_front(*packet));
        !hand.is_empty()
    }

    fn advise(&mut self, room: u32) {
        self.advised = Some(room);
    }

    fn adopt(&mut self, from: WorkerNumber) {
        let hand = mem::take(&mut self.threads[from].hand);
        let own = self.own.expect("a thread adopts");
        assert_ne!(own, from);
        assert!(self.threads[own].hand.is_empty(), "a thread that was not meant has nothing");
        self.threads[own].hand = hand;
    }
}

impl Fake {
    /// Returns when the next message is due.
    pub(super) fn due(&self) -> Moment {
        self.timers.first().map_or(Moment::NEVER, |(at, _)| *at)
    }
}

/// A port: the schedule, and what the engine does with it.
#[derive(Debug)]
pub(super) struct Rig {
    pub(super) schedule: Schedule,
    pub(super) port: Fake,
    /// Wake-ups that have been decided on but not made yet.
    pub(super) notices: Vec<Notice>,
    /// Wake-ups wait until the test makes them.
    pub(super) delays: bool,
    pub(super) limit: usize,
    put_in: u32,
    wakes: u64,
    lists: u64,
}

impl Rig {
    /// Creates a port with some registrations, where at most `limit` threads run at a time and
    /// `threads` have just joined.
    pub(super) fn new(limit: usize, threads: usize) -> Self {
        let port = Fake {
            now: Moment::ZERO + Duration::from_secs(10),
            queue: VecDeque::new(),
            unchecked: Vec::new(),
            timers: Vec::new(),
            kernel: VecDeque::new(),
            edges: 64,
            eventfd: false,
            threads: Vec::new(),
            taken: Vec::new(),
            registered: 8,
            replacing: false,
            closed: false,
            abandoned: false,
            detects: true,
            observes: false,
            advised: None,
            peek: None,
            queries: Vec::new(),
            own: None,
            handed: 0,
            found: 0,
            asked: Cell::new(0),
        };
        // Counters that wrap around do so soon.
        let schedule = Schedule::new(limit, u32::MAX - 2);
        let mut rig = Self {
            schedule,
            port,
            limit,
            notices: Vec::new(),
            delays: false,
            put_in: 0,
            wakes: 0,
            lists: 0,
        };
        (0..threads).for_each(|_| {
            rig.join();
        });
        rig
    }

    // ---- events of threads ----

    pub(super) fn join(&mut self) -> WorkerNumber {
        let worker = self.schedule.join(false, u32::MAX - 1);
        let threads = &mut self.port.threads;
        let generation = threads.get(worker).map_or(0, |before| before.generation + 1);
        let thread = Thread {
            does: Does::Out,
            hand: VecDeque::new(),
            waited: None,
            progress: u32::MAX,
            generation,
            asleep: None,
            slept: Duration::ZERO,
            presumed: false,
            has_records: false,
            token: false,
            blocks: false,
            listed: 0,
        };
        if worker == threads.len() {
            threads.push(thread);
        } else {
            assert!(matches!(threads[worker].does, Does::Gone), "the seat is taken");
            threads[worker] = thread;
        }
        worker
    }

    fn advance_progress(&mut self, worker: WorkerNumber) {
        let thread = &mut self.port.threads[worker];
        assert!(thread.asleep.is_none(), "it sleeps");
        thread.progress = thread.progress.wrapping_add(1);
    }

    /// Begins a wait of `worker`.
    pub(super) fn wait(&mut self, worker: WorkerNumber, room: usize, timeout: Option<Duration>) {
        assert!(matches!(self.port.threads[worker].does, Does::Out));
        self.advance_progress(worker);
        self.port.threads[worker].presumed = false;
        self.port.threads[worker].blocks = false;
        let queued = self.port.queue.len();
        self.port.take_back(worker);
        self.port.own = Some(worker);
        let deadline = timeout.map(|timeout| self.port.now + timeout);
        let mut wait =
            Wait { turn: Turn::new(worker, room, deadline), queries: Vec::new(), is_filled: false };
        wait.turn.bring_back(self.port.queue.len() - queued);
        self.schedule.arrive(&mut wait.turn, None, &mut wait.queries, &mut self.port);
        self.port.threads[worker].does = Does::Looks(wait);
        self.check();
    }

    /// Makes `worker` do the next thing in its wait. Returns false if it sleeps or is not in a
    /// wait.
    pub(super) fn step(&mut self, worker: WorkerNumber) -> bool {
        let before = self.statuses();
        let running = self.schedule.workers.running();
        let does = mem::replace(&mut self.port.threads[worker].does, Does::Gone);
        let adopts = matches!(&does, Does::Returns(_, Polled { woken: true, .. }, _));
        let (does, moves) = self.go_on(worker, does);
        let exceeds =
            matches!(does, Does::Out) && moves && self.has_returned(worker, before[worker]);
        self.port.threads[worker].does = does;
        if !moves {
            return false;
        }
        self.compare(&before, running, exceeds, adopts);
        if self.schedule.workers.status(worker) == Status::Idle
            && self.port.threads[worker].does.sleeps()
            && before[worker] != Status::Idle
        {
            self.lists += 1;
            self.port.threads[worker].listed = self.lists;
        }
        self.check();
        true
    }

    /// Returns what `worker` does next, after what it `does` now. The flag is false if that does
    /// not change.
    fn go_on(&mut self, worker: WorkerNumber, does: Does) -> (Does, bool) {
        let next = match does {
            it @ (Does::Out | Does::Gone) => return (it, false),
            Does::Looks(wait) => self.look(worker, wait),
            Does::Checks(wait, ready) => {
                self.port.own = Some(worker);
                if !ready.is_empty() && self.schedule.asks(&self.port) {
                    Does::Asks(wait, ready)
                } else {
                    self.port.queue.extend(ready);
                    Does::Looks(wait)
                }
            }
            Does::Asks(mut wait, ready) => {
                let poll = self.poll(&mut wait, false);
                Does::Returns(wait, poll, ready)
            }
            Does::Returns(wait, polled, ready) => {
                self.polled(worker, polled, ready);
                Does::Looks(wait)
            }
            Does::Answers(wait, query, generation, ran, asleep) => {
                let other = &mut self.port.threads[query.worker];
                if !matches!(other.does, Does::Gone) && other.generation == generation {
                    let is_observed = query.stuck_at.is_some() && asleep && self.port.observes;
                    other.has_records |= is_observed;
                    self.port.own = None;
                    let port = &mut self.port;
                    self.schedule.answer(query, Some(ran), Some(asleep), is_observed, port);
                }
                Does::Looks(wait)
            }
            Does::Polls(mut wait, until) => {
                let is_over = until.is_some_and(|until| until <= self.port.now);
                if self.port.kernel.is_empty() && !self.port.eventfd && !is_over {
                    return (Does::Polls(wait, until), false);
                }
                let poll = self.poll(&mut wait, true);
                Does::Returns(wait, poll, Vec::new())
            }
            Does::Parks(wait, until) => {
                let is_over = until.is_some_and(|until| until <= self.port.now);
                if !mem::take(&mut self.port.threads[worker].token) && !is_over {
                    return (Does::Parks(wait, until), false);
                }
                Does::Looks(wait)
            }
        };
        (next, true)
    }

    /// Takes `worker` out of the kernel, with edges that go before what is `ready`.
    fn polled(&mut self, worker: WorkerNumber, polled: Polled, ready: Vec<Packet>) {
        let Polled { edges, woken, slept } = polled;
        if slept {
            self.schedule.end_in_kernel(worker);
        }
        // The packets of a while are of one descriptor.
        let names = edges.iter().map(|edge| u64::from(edge.number / 32));
        self.schedule.polled(worker, Found::of(names), &self.port);
        self.port.queue.extend(edges);
        self.port.own = Some(worker);
        if woken && self.schedule.woken(worker, &mut self.port) {
            self.notify(Notice::Kernel);
        }
        self.port.queue.extend(ready);
    }

    /// Checks the end of a wait of `worker`, whose status was `before`. Returns whether it may run
    /// in addition to the limit.
    fn has_returned(&self, worker: WorkerNumber, before: Status) -> bool {
        let thread = &self.port.threads[worker];
        let waited = thread.waited.expect("it has ended");
        if waited == Waited::Packets && before != Status::Given {
            let running = self.schedule.workers.running();
            assert!(running <= self.limit, "{running} run that were handed packets");
        }
        let is_submitted = waited == Waited::Packets;
        assert_eq!(!thread.hand.is_empty(), is_submitted, "what it says is what it has");
        waited == Waited::TimedOut
    }

    /// Ends the sleep of `worker` without a wake-up.
    pub(super) fn wake_spuriously(&mut self, worker: WorkerNumber) {
        let thread = &mut self.port.threads[worker];
        match mem::replace(&mut thread.does, Does::Gone) {
            Does::Parks(wait, _) => thread.does = Does::Looks(wait),
            does => return thread.does = does,
        }
        thread.token = false;
        // If a wake-up is on its way, its token is an additional one.
        if self.schedule.workers.is_awaited(worker) {
            self.notices.retain(|notice| *notice != Notice::Thread(worker));
        }
        self.check();
    }

    fn look(&mut self, worker: WorkerNumber, mut wait: Wait) -> Does {
        self.port.own = Some(worker);
        let Wait { turn, queries, is_filled } = &mut wait;
        match self.schedule.next(turn, queries, *is_filled, &mut self.port, Fake::queue_due) {
            Action::Return(waited, wake) => {
                assert!(!self.schedule.workers.is_in_kernel(worker));
                let thread = &mut self.port.threads[worker];
                thread.waited = Some(waited);
                thread.does = Does::Out;
                self.wake(wake);
                self.end_if_over();
                Does::Out
            }
            Action::Check => {
                let ready = mem::take(&mut self.port.unchecked);
                assert!(!ready.is_empty(), "there is nothing to check");
                Does::Checks(wait, ready)
            }
            Action::Ask { .. } => Does::Asks(wait, Vec::new()),
            Action::Query(query) => {
                let other = &self.port.threads[query.worker];
                let ran = other.processor_time(self.port.now);
                let settled = query.is_settled_by(Some(ran));
                let asleep = settled.unwrap_or(other.asleep.is_some() || other.does.sleeps());
                self.port.queries.push((query, settled.is_none()));
                Does::Answers(wait, query, other.generation, ran, asleep)
            }
            Action::Poll(timeout) => {
                let until = timeout.map(|timeout| self.port.now + timeout);
                Does::Polls(wait, until)
            }
            Action::Park(timeout) => {
                let until = timeout.map(|timeout| self.port.now + timeout);
                Does::Parks(wait, until)
            }
        }
    }

    fn poll(&mut self, wait: &mut Wait, slept: bool) -> Polled {
        let most = self.port.kernel.len().min(self.port.edges);
        let edges: Vec<_> = self.port.kernel.drain(..most).collect();
        let woken = mem::take(&mut self.port.eventfd);
        wait.is_filled = edges.len() + usize::from(woken) >= self.port.edges;
        Polled { edges, woken, slept }
    }

    /// Makes `worker` handle its next packet, if there is one.
    pub(super) fn take_packet(&mut self, worker: WorkerNumber) -> Option<u32> {
        assert!(matches!(self.port.threads[worker].does, Does::Out));
        if mem::take(&mut self.port.threads[worker].presumed) {
            let before = self.statuses();
            let running = self.schedule.workers.running();
            self.schedule.unblock(worker);
            self.compare(&before, running, false, false);
        }
        let packet = self.port.threads[worker].hand.pop_front()?;
        self.advance_progress(worker);
        self.port.taken.push(packet);
        self.check();
        Some(packet.number)
    }

    /// Makes `worker` put a message among its own packets, if it runs. Another worker may take it
    /// away.
    pub(super) fn keep(&mut self, worker: WorkerNumber) -> Option<Wake> {
        if self.status(worker) != Status::Running || self.port.closed {
            return None;
        }
        let packet = self.packet(true);
        self.port.threads[worker].hand.push_back(packet);
        self.port.handed += 1;
        self.event(|schedule, port| {
            schedule.keep(worker, true);
            schedule.look_after(port)
        })
    }

    pub(super) fn release(&mut self, worker: WorkerNumber) {
        self.event(|schedule, port| {
            schedule.take_back(worker, port).then(|| schedule.depart(port)).flatten()
        });
    }

    /// Makes `worker` announce that it blocks. Returns false if it is not counted anyway.
    pub(super) fn block(&mut self, worker: WorkerNumber) -> bool {
        let mut is_counted = false;
        self.event(|schedule, port| {
            let blocked = schedule.block(worker, port);
            is_counted = blocked.is_some();
            blocked.flatten()
        });
        self.port.threads[worker].blocks = is_counted;
        is_counted
    }

    pub(super) fn unblock(&mut self, worker: WorkerNumber) {
        self.advance_progress(worker);
        self.port.threads[worker].blocks = false;
        self.event(|schedule, _| {
            schedule.unblock(worker);
            None
        });
    }

    /// Puts `worker` to sleep in user code without an announcement, or wakes it up again.
    pub(super) fn nod(&mut self, worker: WorkerNumber, asleep: bool) {
        let now = self.port.now;
        let thread = &mut self.port.threads[worker];
        if let Some(since) = thread.asleep.filter(|_| !asleep) {
            thread.slept += now.since(since);
        }
        thread.asleep = match thread.asleep {
            since @ Some(_) if asleep => since,
            _ => asleep.then_some(now),
        };
    }

    /// Gives `worker` sleep records from now on.
    pub(super) fn observe(&mut self, worker: WorkerNumber) {
        self.port.threads[worker].has_records = true;
        self.schedule.sleepers.observe(worker);
    }

    pub(super) fn leave(&mut self, worker: WorkerNumber) {
        assert!(matches!(self.port.threads[worker].does, Does::Out));
        self.port.threads[worker].does = Does::Gone;
        self.port.threads[worker].presumed = false;
        self.port.take_back(worker);
        self.event(|schedule, port| schedule.leave(worker, port));
        self.end_if_over();
        self.check();
    }

    // ---- events of the port ----

    fn packet(&mut self, posted: bool) -> Packet {
        self.put_in += 1;
        Packet { number: self.put_in, posted }
    }

    /// Posts a message. Returns the wake-up, if there is one.
    pub(super) fn post(&mut self) -> Option<Wake> {
        let packet = self.packet(true);
        self.port.queue.push_back(packet);
        self.event(|schedule, port| schedule.queued(port))
    }

    /// Posts a message that is due after this time.
    pub(super) fn post_in(&mut self, time: Duration) {
        if self.port.closed {
            return;
        }
        let packet = self.packet(true);
        let at = self.port.now + time;
        let timers = &mut self.port.timers;
        let place = timers.partition_point(|(other, _)| *other <= at);
        timers.insert(place, (at, packet));
        if place == 0 {
            self.event(|schedule, _| schedule.timer_set(at));
        } else {
            self.check();
        }
    }

    /// Queues packets without waking a thread for them.
    pub(super) fn put(&mut self, packets: usize) {
        for _ in 0..packets {
            let packet = self.packet(false);
            self.port.queue.push_back(packet);
        }
    }

    /// Queues a message, as if it had been posted while the concurrency value was used up.
    pub(super) fn put_message(&mut self) {
        let packet = self.packet(true);
        self.port.queue.push_back(packet);
    }

    /// Adds this many edges to the kernel.
    pub(super) fn edge(&mut self, packets: usize) {
        for _ in 0..packets {
            let packet = self.packet(false);
            self.port.kernel.push_back(packet);
        }
    }

    /// Leaves the check of a registration to the next wait.
    pub(super) fn remember(&mut self) {
        let packet = self.packet(false);
        self.port.unchecked.push(packet);
        self.event(|schedule, port| schedule.look_after(port));
    }

    /// A thread that takes no packets begins to ask the kernel for edges.
    pub(super) fn begin_peek(&mut self) {
        if self.port.peek.is_some() || self.port.is_over() {
            return;
        }
        let mut peek = (Vec::new(), false);
        if self.schedule.may_ask(&self.port) {
            let most = self.port.kernel.len().min(self.port.edges);
            peek = (self.port.kernel.drain(..most).collect(), mem::take(&mut self.port.eventfd));
        }
        self.port.peek = Some(peek);
        self.check();
    }

    /// The thread has the kernel's answer.
    pub(super) fn end_peek(&mut self) {
        let Some((edges, woken)) = self.port.peek.take() else { return };
        let found = !edges.is_empty();
        self.port.queue.extend(edges);
        if woken && self.schedule.workers().in_kernel() > 0 {
            // A worker that the wake-up was meant for has entered the kernel's wait since.
            self.notify(Notice::Kernel);
        }
        self.event(|schedule, port| schedule.depart_calling(found, port));
        self.end_if_over();
        self.check();
    }

    pub(super) fn close(&mut self) {
        self.port.closed = true;
        // The kernel is not asked any more, so its edges never become packets.
        let mut lost: Vec<_> = self.port.kernel.drain(..).collect();
        self.port.queue_due(self.port.now);
        self.schedule.next_timer(Moment::NEVER);
        // Messages that are not due yet are lost as well.
        lost.extend(self.port.timers.drain(..).map(|(_, packet)| packet));
        self.port.taken.extend(&lost);
        self.end_if_over();
        self.check();
    }

    pub(super) fn abandon(&mut self) {
        self.port.abandoned = true;
        self.close();
    }

    fn end_if_over(&mut self) {
        if self.port.is_over() {
            while let Some(wake) = self.schedule.dismiss() {
                self.wake(Some(wake));
            }
        }
    }

    /// Applies an event outside of any wait.
    fn event(
        &mut self,
        event: impl FnOnce(&mut Schedule, &mut Fake) -> Option<Wake>,
    ) -> Option<Wake> {
        let before = self.statuses();
        let running = self.schedule.workers.running();
        self.port.own = None;
        let wake = event(&mut self.schedule, &mut self.port);
        self.wake(wake);
        self.compare(&before, running, false, false);
        self.check();
        wake
    }

    fn wake(&mut self, wake: Option<Wake>) {
        let Some(Wake { worker, in_kernel }) = wake else { return };
        self.wakes += 1;
        assert_eq!(in_kernel, self.schedule.workers.is_in_kernel(worker));
        self.notify(if in_kernel { Notice::Kernel } else { Notice::Thread(worker) });
    }

    fn notify(&mut self, notice: Notice) {
        self.notices.push(notice);
        if !self.delays {
            self.deliver();
        }
    }

    /// Makes all wake-ups that have been decided on.
    pub(super) fn deliver(&mut self) {
        for notice in mem::take(&mut self.notices) {
            match notice {
                Notice::Kernel => self.port.eventfd = true,
                Notice::Thread(worker) => self.port.threads[worker].token = true,
            }
        }
    }

    // ---- driving ----

    /// Runs `worker` until it sleeps or returns.
    pub(super) fn run(&mut self, worker: WorkerNumber) {
        for _ in 0..1_000 {
            if !self.step(worker) {
                return;
            }
        }
        panic!("a thread does not come to an end: {self:#?}");
    }

    /// Begins a wait of `worker` and runs it until it sleeps or returns.
    pub(super) fn run_wait(&mut self, worker: WorkerNumber) {
        self.wait(worker, 64, None);
        self.run(worker);
    }

    /// Makes all wake-ups and runs every thread until none can continue.
    pub(super) fn settle(&mut self) {
        for _ in 0..1_000 {
            self.end_peek();
            self.deliver();
            let mut moved = false;
            for worker in 0..self.port.threads.len() {
                moved |= self.port.threads[worker].does.waits() && self.step(worker);
                self.run(worker);
            }
            if !moved && self.notices.is_empty() {
                return;
            }
        }
        panic!("threads wake each other for ever: {self:#?}");
    }

    /// Advances the clock and lets sleepers react.
    pub(super) fn pass(&mut self, time: Duration) {
        self.port.now += time;
        self.settle();
    }

    /// Asks for the limit of a thread that cannot return packets, as such a thread does.
    pub(super) fn advise(&mut self) -> u32 {
        let now = self.port.now;
        let mut absences = Vec::new();
        let advised = self.schedule.advise(now, &mut absences);
        if absences.is_empty() {
            return advised;
        }
        for absence in &mut absences {
            let thread = &self.port.threads[absence.worker];
            let asleep = thread.asleep.is_some() || thread.does.sleeps();
            absence.judge(now, Some(thread.processor_time(now)), || Some(asleep));
        }
        self.schedule.advise(now, &mut absences)
    }

    // ---- state ----

    pub(super) fn status(&self, worker: WorkerNumber) -> Status {
        self.schedule.workers.status(worker)
    }

    pub(super) fn statuses(&self) -> Vec<Status> {
        self.schedule.workers.statuses().map(|(_, status)| status).collect()
    }
}
