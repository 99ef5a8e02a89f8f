//! What the port does under its lock: the rules by which a thread searches, takes its share, wakes
//! another one, and sleeps.
//!
//! They are those of the port, as far as they matter while no handler blocks, nothing is posted or
//! removed, and there are no more threads than may run.

use super::{AT_ONCE, Claim, NEVER, Packet, ROOM, Search, Serial, Simulation, Step};
use crate::model::crew::{Portion, View};
use crate::model::seats::Status;

/// How long a parked thread lets the port go unattended.
const TICK: u64 = 1_000_000;
/// One share in so many is timed.
const SAMPLED: u64 = 8;

/// What a thread does after its look at the port.
enum Decision {
    Take(Option<(usize, bool)>, u64),
    Ask(u64),
    Park(u64),
}

impl Simulation {
    /// When the thread gets the lock; `None` if it has to sleep for it first.
    pub(super) fn acquire(&mut self, thread: usize) -> Option<u64> {
        let Serial { free_at, owner, .. } = self.lock;
        if free_at > self.now + self.setup.costs.spin {
            let it = &mut self.threads[owner];
            it.debt += self.setup.costs.wake;
            let step = self.threads[thread].step;
            self.turn_to(thread, step, free_at + self.setup.costs.latency);
            return None;
        }
        Some(free_at.max(self.now))
    }

    /// When the thread, which got the lock at `begin`, is rid of it, having spent so much time on links.
    fn release(&mut self, thread: usize, begin: u64, links: u64) -> u64 {
        let costs = self.setup.costs;
        let fetched = costs.section_lines * costs.line(self.lock.owner, thread);
        let end = begin + costs.section + fetched + links;
        self.lock.busy += end - begin;
        self.lock.free_at = end;
        self.lock.owner = thread;
        end
    }

    pub(super) fn enter(&mut self, thread: usize) {
        let Some(begin) = self.acquire(thread) else { return };
        let it = &mut self.threads[thread];
        it.tried = 0;
        it.patient = true;
        it.asked = self.asked;
        if let Some((since, packets)) = it.timed.take() {
            self.crew.note((self.now - since) / packets);
        }
        if std::mem::take(&mut it.loaded) {
            self.loaded -= 1;
        }
        let others_came = self.seats.arrive(thread);
        let others = self.seats.others_at_work(thread);
        self.threads[thread].rests =
            others_came && self.crew.leaves(thread, self.queue.len(), others, || begin);
        self.decide_and_release(thread, begin);
    }

    pub(super) fn merge(&mut self, thread: usize, set: Option<usize>) {
        let Some(begin) = self.acquire(thread) else { return };
        if let Some(set) = set {
            self.harvesting[set] = false;
        }
        if self.seats.is_polling(thread) {
            self.seats.end_polling(thread);
        }
        self.queue.extend(self.threads[thread].found.drain(..));
        let sets = &mut self.threads[thread].sets;
        while *sets != 0 {
            let next = sets.trailing_zeros() as usize;
            *sets &= *sets - 1;
            if !std::mem::replace(&mut self.harvesting[next], true) {
                let end = self.release(thread, begin, 0);
                return self.turn_to(thread, Step::Harvest { set: next, until: AT_ONCE }, end);
            }
        }
        self.decide_and_release(thread, begin);
    }

    pub(super) fn decide_and_release(&mut self, thread: usize, begin: u64) {
        match self.decide(thread, begin) {
            Decision::Take(notice, links) => {
                let end = self.release(thread, begin, links);
                let next = match notice {
                    Some((seat, polls)) => Step::Notify { seat, polls },
                    None => Step::Handle,
                };
                self.turn_to(thread, next, end);
            }
            Decision::Ask(until) => {
                let Some(step) = self.ask(thread, until) else {
                    // Nobody but others who are at it already: what is queued is taken.
                    return self.decide_and_release(thread, begin);
                };
                let end = self.release(thread, begin, 0);
                self.turn_to(thread, step, end);
            }
            Decision::Park(until) => {
                let end = self.release(thread, begin, 0);
                self.turn_to(thread, Step::Park { until }, end);
            }
        }
    }

    fn ask(&mut self, thread: usize, until: u64) -> Option<Step> {
        self.asked += 1;
        if self.setup.sets == 1 {
            if until != AT_ONCE {
                self.poll(thread);
            } else if self.harvesting[0] {
                return None;
            }
            self.harvesting[0] = true;
            return Some(Step::Harvest { set: 0, until });
        }
        if self.setup.search == Search::Own {
            let it = &mut self.threads[thread];
            while it.tried < self.setup.sets {
                let set = (thread + it.next_set) % self.setup.sets;
                it.next_set += 1;
                it.tried += 1;
                if !std::mem::replace(&mut self.harvesting[set], true) {
                    return Some(Step::Harvest { set, until: AT_ONCE });
                }
            }
            if until == AT_ONCE {
                return None;
            }
        }
        if until != AT_ONCE {
            self.poll(thread);
        }
        Some(Step::Doze { until })
    }

    fn poll(&mut self, thread: usize) {
        self.seats.begin_polling(thread);
        self.threads[thread].notified = false;
    }

    fn is_quiet(&self) -> bool {
        self.queue.is_empty() && self.loaded == 0
    }

    fn is_attended(&self) -> bool {
        self.seats.polling() > 0 && self.is_quiet()
    }

    /// As many as may run, of whom some sleep in the kernel, if packets are long.
    fn may_poll(&self, thread: usize, now: u64) -> bool {
        let others = self.seats.polling();
        let running = self.seats.running();
        let searching = self.seats.others_at_work(thread) - running;
        let may_join = || self.crew.may_join(others, running, searching, || now);
        others == 0 || self.setup.sets == 1 && may_join()
    }

    fn decide(&mut self, thread: usize, now: u64) -> Decision {
        loop {
            if self.seats.status(thread) == Status::Called {
                self.seats.answer(thread);
                self.threads[thread].rests = false;
            }
            // As many threads as may run: whoever waits has room.
            debug_assert!(self.seats.has_room());
            let rests = self.threads[thread].rests;
            if !self.queue.is_empty() && !rests {
                if self.asked == self.threads[thread].asked && self.seats.polling() == 0 {
                    return Decision::Ask(AT_ONCE);
                }
                let (links, call) = self.claim(thread, now);
                return Decision::Take(self.depart(call), links);
            }
            let can_poll = self.may_poll(thread, now);
            let is_attended = if can_poll { self.is_quiet() } else { self.is_attended() };
            if !is_attended && self.seats.watching().is_none() {
                self.seats.watch(thread);
                self.due = None;
                self.threads[thread].patient = rests || !can_poll;
            }
            let mut until = NEVER;
            let mut yields = rests;
            if self.seats.watching() == Some(thread) {
                let due = self.due.unwrap_or(now + TICK);
                if due <= now {
                    self.tick(now);
                    self.threads[thread].patient = false;
                    self.threads[thread].rests = false;
                    continue;
                }
                self.due = Some(due);
                until = due;
                yields |= self.threads[thread].patient && !self.crew.is_long();
            }
            self.seats.rest(thread);
            self.crew.rest(thread);
            if can_poll && !yields {
                self.threads[thread].patient = false;
                return Decision::Ask(until);
            }
            return Decision::Park(until);
        }
    }

    fn tick(&mut self, now: u64) {
        self.due = Some(now + TICK);
        let is_calm = self.handed == self.handed_seen;
        self.handed_seen = self.handed;
        if self.is_quiet() && is_calm {
            self.seats.resign();
        }
    }

    /// The thread takes its share. What following the links costs, and whether it calls another one.
    fn claim(&mut self, thread: usize, now: u64) -> (u64, bool) {
        let queued = self.queue.len();
        let view = View {
            queued,
            room: ROOM,
            others: self.seats.others_at_work(thread),
            helpers: self.seats.helpers(thread),
            threads: self.setup.cores,
            handed: self.handed,
        };
        let Portion { packets, call } = self.crew.divide(thread, view, || now);
        let share = match self.setup.claim {
            Claim::Part => packets,
            Claim::Whole => queued.min(ROOM),
        };
        let costs = self.setup.costs;
        let link = |packet: &Packet| {
            costs.link + costs.line(packet.from, thread) * costs.link_percent / 100
        };
        // A queue that is taken whole is not walked through.
        let links = if share < queued { self.queue.iter().take(share).map(link).sum() } else { 0 };
        let it = &mut self.threads[thread];
        it.chain.extend(self.queue.drain(..share));
        if it.shares.is_multiple_of(SAMPLED) {
            it.timed = Some((now, share as u64));
        }
        it.shares += 1;
        if share > 1 {
            it.loaded = true;
            self.loaded += 1;
        }
        self.handed += share as u64;
        self.counters.claims += 1;
        self.counters.claimed += share as u64;
        self.seats.run(thread);
        (links, call)
    }

    /// Who is to be woken, now that a thread goes off to its packets.
    fn depart(&mut self, call: bool) -> Option<(usize, bool)> {
        let seat = if call { self.seats.call() } else { None };
        let seat = seat.or_else(|| {
            if self.is_attended() || self.seats.watching().is_some() {
                return None;
            }
            let seat = self.seats.appoint()?;
            self.due = None;
            Some(seat)
        })?;
        self.counters.wakes += 1;
        Some((seat, self.seats.is_polling(seat)))
    }
}
