//! The port: the input of its schedule, and how a thread executes the schedule's decisions.
//!
//! The schedule is the port's own. A thread does the same as in the port's engine, as far as it
//! matters while nothing is posted or removed.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use super::{AT_ONCE, Counters, NEVER, Packet, Serial, Setup, Simulation, Step, Thread, Waiting};
use crate::state::facts::Presence;
use crate::state::moment::Moment;
use crate::state::schedule::{
    Action, Found, SAMPLED, Schedule, SchedulePort, Turn, USUAL_EDGES, WorkerNumber,
};

/// The simulated port, as the thread sees it that has the lock.
struct Stage<'a> {
    setup: &'a Setup,
    now: u64,
    queue: &'a mut VecDeque<Packet>,
    threads: &'a mut [Thread],
    counters: &'a mut Counters,
    own: usize,
    /// The cost of following links and checking other threads.
    spent: &'a Cell<u64>,
}

impl Stage<'_> {
    fn spend(&self, time: u64) {
        self.spent.set(self.spent.get() + time);
    }
}

impl SchedulePort for Stage<'_> {
    fn now(&self) -> Moment {
        Moment::from_nanoseconds(self.now)
    }

    fn ready(&self) -> usize {
        self.queue.len()
    }

    fn begins_with_post(&self) -> bool {
        false
    }

    fn unchecked(&self) -> usize {
        0
    }

    fn posts(&self) -> usize {
        0
    }

    fn registered(&self) -> usize {
        self.setup.connections
    }

    fn is_over(&self) -> bool {
        false
    }

    fn takes_edges(&self) -> bool {
        true
    }

    fn is_replacing(&self) -> bool {
        false
    }

    fn is_full_of_stale_events(&self) -> bool {
        false
    }

    fn detects(&self) -> bool {
        false
    }

    fn progress(&self, worker: WorkerNumber) -> u32 {
        let (one, own) = (self.threads[worker].cpu, self.threads[self.own].cpu);
        self.spend(self.setup.costs.line(one, own));
        self.threads[worker].progress
    }

    fn presence(&self, _: WorkerNumber) -> Option<Presence> {
        None
    }

    fn presume_asleep(&mut self, _: WorkerNumber, _: bool) {}

    fn take(&mut self, share: usize) {
        let costs = self.setup.costs;
        let cpu = |thread: usize| self.threads[thread].cpu;
        let line = |packet: &Packet| costs.line(cpu(packet.from), cpu(self.own));
        let link = |packet: &Packet| costs.link + line(packet) * costs.link_percent / 100;
        // A queue that is taken whole is not walked through.
        if share < self.queue.len() {
            self.spend(self.queue.iter().take(share).map(link).sum());
        }
        let it = &mut self.threads[self.own];
        it.chain.extend(self.queue.drain(..share));
        if it.shares.is_multiple_of(SAMPLED) {
            it.timed = Some((self.now, share as u64));
        }
        it.shares += 1;
        self.counters.claims += 1;
        self.counters.claimed += share as u64;
    }

    fn give(&mut self, worker: WorkerNumber) {
        self.threads[worker].chain.extend(self.queue.pop_front());
    }

    fn take_back(&mut self, worker: WorkerNumber) -> bool {
        let chain = &mut self.threads[worker].chain;
        let had_any = !chain.is_empty();
        while let Some(packet) = chain.pop_back() {
            self.queue.push_front(packet);
        }
        had_any
    }

    fn advise(&mut self, _: u32) {
        // The threads of the model can give packets back.
    }

    fn adopt(&mut self, from: WorkerNumber) {
        self.threads[self.own].chain = std::mem::take(&mut self.threads[from].chain);
    }
}

impl Simulation {
    /// When the thread gets the lock; `None` if it has to sleep for it first.
    fn acquire(&mut self, thread: usize) -> Option<u64> {
        let Serial { free_at, owner, .. } = self.lock;
        if free_at > self.now + self.setup.costs.spin {
            let it = &mut self.threads[owner];
            it.debt += self.setup.costs.wake;
            let step = self.threads[thread].step;
            let woken = free_at + self.setup.costs.latency;
            self.counters.for_lock += woken - self.now;
            self.counters.asleep_for_lock += woken - self.now - self.setup.costs.spin;
            self.turn_to(thread, step, woken);
            return None;
        }
        let begin = free_at.max(self.now);
        self.counters.for_lock += begin - self.now;
        Some(begin)
    }

    /// The thread, which got the lock at `begin`, gives it up, and then does `step`.
    fn release(&mut self, thread: usize, begin: u64, step: Step) {
        let costs = self.setup.costs;
        let fetched = costs.section_lines * self.line(self.lock.owner, thread);
        let end = begin + costs.section + fetched + self.spent.take();
        self.lock.busy += end - begin;
        self.lock.free_at = end;
        self.lock.owner = thread;
        self.turn_to(thread, step, end);
    }

    /// Something happens at the port by the thread, which has the lock since `begin`.
    fn decide<R>(
        &mut self,
        thread: usize,
        begin: u64,
        event: impl FnOnce(&mut Schedule, &mut Waiting, &mut Stage<'_>) -> R,
    ) -> R {
        let Self { setup, queue, threads, counters, spent, .. } = self;
        let own = thread;
        let mut stage = Stage { setup, now: begin, queue, threads, counters, own, spent };
        event(&mut self.schedule, &mut self.waiting[thread], &mut stage)
    }

    /// The thread begins a wait.
    pub(super) fn enter(&mut self, thread: usize) {
        let Some(begin) = self.acquire(thread) else { return };
        let it = &mut self.threads[thread];
        it.progress = it.progress.wrapping_add(1);
        let packet = it.measured.take();
        self.decide(thread, begin, |schedule, Waiting { turn, queries }, stage| {
            *turn = Turn::new(thread, USUAL_EDGES, None);
            schedule.arrive(turn, packet, queries, stage);
        });
        self.go_on(thread, begin);
    }

    /// The thread continues its wait.
    pub(super) fn resume(&mut self, thread: usize) {
        if let Some(begin) = self.acquire(thread) {
            self.go_on(thread, begin);
        }
    }

    /// The thread, which has had the lock since `begin`, executes the schedule's decision.
    fn go_on(&mut self, thread: usize, begin: u64) {
        let end = |timeout: Option<Duration>| {
            timeout.map_or(NEVER, |time| (Moment::from_nanoseconds(begin) + time).nanoseconds())
        };
        // There is nothing to ask the kernel further for: each edge is a packet, and there is no more
        // room for packets than for edges.
        let is_filled = false;
        let action = self.decide(thread, begin, |schedule, Waiting { turn, queries }, stage| {
            schedule.next(turn, queries, is_filled, stage, |_, _| Moment::NEVER)
        });
        let step = match action {
            Action::Return(_, None) => Step::Handle,
            Action::Return(_, Some(wake)) => Step::Notify(wake),
            Action::Check | Action::Query(_) => unreachable!("nothing has to be looked at"),
            Action::Ask { .. } => Step::Poll { until: AT_ONCE },
            Action::Poll(timeout) => Step::Poll { until: end(timeout) },
            Action::Park(timeout) => Step::Park { until: end(timeout) },
        };
        self.release(thread, begin, step);
    }

    /// The thread queues the events it found in the kernel's set; it may have `slept` for them, and
    /// been `woken`.
    pub(super) fn queue_found(&mut self, thread: usize, slept: bool, woken: bool) {
        if self.setup.is_bare {
            let it = &mut self.threads[thread];
            it.chain.extend(it.found.drain(..));
            return self.turn_to(thread, Step::Handle, self.now);
        }
        let Some(begin) = self.acquire(thread) else { return };
        let found = &self.threads[thread].found;
        let found = Found::of(found.iter().map(|packet| packet.connection as u64));
        self.decide(thread, begin, |schedule, _, stage| {
            if slept {
                schedule.end_in_kernel(thread);
            }
            schedule.polled(thread, found, stage);
        });
        self.queue.extend(self.threads[thread].found.drain(..));
        if woken {
            let again = self.decide(thread, begin, |it, _, stage| it.woken(thread, stage));
            debug_assert!(!again, "one thread at a time is called");
        }
        self.go_on(thread, begin);
    }
}
