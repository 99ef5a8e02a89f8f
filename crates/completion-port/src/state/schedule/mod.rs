//! Which thread does what. This module alone decides which thread takes packets, how the others
//! sleep, which one is woken, and which one is the watchdog.
//!
//! Nothing here calls the system or sleeps. Each thing that happens at the port is a method of
//! [`Schedule`], called with the port's lock held. What the schedule has to know of the port it
//! asks its [`SchedulePort`]. What is to be done comes back as a value. A thread in a wait calls
//! [`Schedule::next`] again and again, and does what that says.

mod advice;
mod controller;
mod pace;
mod sleepers;
#[cfg(any(test, fuzzing))]
pub(crate) mod tests;
mod turn;
mod view;
mod wait;
mod watchdog;
mod workers;

use std::fmt;

use self::advice::AWAY;
pub(crate) use self::advice::{Advice, LOOK};
use self::controller::Controller;
use self::sleepers::Sleepers;
pub(crate) use self::turn::{Action, Query, Turn, Waited, Wake};
pub(crate) use self::view::SchedulePort;
pub(crate) use self::wait::most_further;
use self::watchdog::{STUCK, Watchdog};
use self::workers::WorkerTable;
pub(crate) use self::workers::{Status, WorkerNumber};
use super::moment::Moment;

/// How many edges a thread asks the kernel for at once. A thread that runs alone may ask for more
/// later; where several may run, one would wait for the edges of another.
pub(crate) const USUAL_EDGES: usize = 64;

/// One quota in so many is measured: reading the clock costs as much as a packet.
pub(crate) const SAMPLED: u32 = 32;

/// The threads of a port, and what decides about them.
#[derive(Debug)]
pub(crate) struct Schedule {
    workers: WorkerTable,
    controller: Controller,
    advice: Advice,
    watchdog: Watchdog,
    sleepers: Sleepers,
    /// When the next timer is due; [`Moment::NEVER`] if there is none.
    due: Moment,
    /// The thread that sleeps no longer than until this moment, when a timer was due as it went to sleep.
    carrier: Option<(WorkerNumber, Moment)>,
    /// There may be a timer or a carrier; each wait finds out.
    watches_time: bool,
    /// Seats whose threads were handed several packets, and may still have some.
    loaded: Vec<bool>,
    loads: usize,
    /// How often the kernel was asked for edges; wraps.
    asked: u32,
    /// Packets handed out so far.
    handed: u64,
    /// Threads that were woken, and those of them that were called to search and found nothing.
    wakes: u64,
    spurious: u64,
}

/// Numbers for statistics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) running: usize,
    pub(crate) idle: usize,
    pub(crate) blocked: usize,
    pub(crate) wakes: u64,
    pub(crate) spurious: u64,
    pub(crate) blocks_found: u64,
}

impl Schedule {
    /// The schedule of a port that lets `limit` threads run at once. `begin` is where counters that
    /// wrap begin.
    pub(crate) fn new(limit: usize, begin: u32) -> Self {
        Self {
            workers: WorkerTable::new(limit),
            controller: Controller::new(limit),
            advice: Advice::new(),
            watchdog: Watchdog::default(),
            sleepers: Sleepers::default(),
            due: Moment::NEVER,
            carrier: None,
            watches_time: false,
            loaded: Vec::new(),
            loads: 0,
            asked: begin,
            handed: 0,
            wakes: 0,
            spurious: 0,
        }
    }

    // ---- what threads do ----

    /// A thread takes a seat. Whatever it does next moves its progress on from `progress`.
    pub(crate) fn join(&mut self, is_observed: bool, progress: u32) -> WorkerNumber {
        let worker = self.workers.join();
        if self.loaded.len() <= worker {
            self.loaded.resize(worker + 1, false);
        }
        self.watchdog.worker(worker, progress);
        self.controller.worker(worker);
        self.sleepers.worker(worker);
        if is_observed {
            self.sleepers.observe(worker);
        }
        worker
    }

    /// The thread of `worker` has gone for good; what it had not come to is in the queue again.
    pub(crate) fn leave(&mut self, worker: WorkerNumber, port: &impl SchedulePort) -> Option<Wake> {
        self.unload(worker);
        self.sleepers.worker(worker);
        self.workers.leave(worker);
        self.controller.rest(worker);
        self.relieve(port)
    }

    /// The thread of `turn` comes to wait, and has nothing in its hands: what was left has been taken back.
    /// `packet` is what each of its packets took, if that was measured, in nanoseconds.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    pub(crate) fn arrive(
        &mut self,
        turn: &mut Turn,
        packet: Option<u64>,
        queries: &mut Vec<Query>,
        port: &mut impl SchedulePort,
    ) {
        if let Some(packet) = packet {
            self.controller.note(packet);
        }
        self.unload(turn.me);
        turn.rests = self.workers.arrive(turn.me);
        let hurries = self.workers.running() > 0 && self.sleepers.pace.hurries();
        if (self.loads > 0 || hurries) && self.looks_first(turn, hurries, queries, port) {
            return;
        }
        self.begin(turn, port);
    }

    /// Whether the thread of `turn`, which has just come, looks after the port. Another one has a quota
    /// that it may be stuck with, and perhaps there is no watchdog. Most likely that thread was preempted,
    /// which would last for a millisecond or more. Or looks have lately found sleepers (`hurries`), and one
    /// that runs with a single packet may sleep as well.
    #[inline(never)]
    fn looks_first(
        &mut self,
        turn: &mut Turn,
        hurries: bool,
        queries: &mut Vec<Query>,
        port: &mut impl SchedulePort,
    ) -> bool {
        let now = port.now();
        let time = if hurries { self.sleepers.pace.period().min(STUCK) } else { STUCK };
        let looks = self.watchdog.is_stale(now, time);
        if looks {
            turn.is_new = true;
            self.begin_look(turn, now, queries, port);
        }
        looks
    }

    /// The thread has looked after the port. It leaves the port to the threads at work if others
    /// have come since it went off, and if they will soon come again.
    #[inline]
    fn begin(&self, turn: &mut Turn, port: &impl SchedulePort) {
        turn.asked = self.asked;
        if turn.rests {
            let queued = port.ready() + port.unchecked();
            let others = self.workers.others_at_work(turn.me);
            turn.rests =
                port.posts() == 0 && self.controller.leaves(turn.me, queued, others, || port.now());
        }
    }

    /// The thread of `worker` says that it is about to block. `None` if it is not counted anyway; otherwise
    /// what it had not come to is in the queue again.
    pub(crate) fn block(
        &mut self,
        worker: WorkerNumber,
        port: &mut impl SchedulePort,
    ) -> Option<Option<Wake>> {
        if self.workers.status(worker) == Status::FoundAsleep {
            // The thread was found asleep, and is awake. From here on it says itself that it
            // blocks.
            self.found_awake(worker, port);
        }
        if !self.workers.block(worker, true) {
            return None;
        }
        self.controller.rest(worker);
        self.take_back(worker, port);
        Some(self.relieve(port))
    }

    /// The thread of `worker` blocks no longer.
    pub(crate) fn unblock(&mut self, worker: WorkerNumber) {
        self.workers.unblock(worker);
    }

    /// Whether the thread of `worker` is counted as one that runs.
    pub(crate) fn is_running(&self, worker: WorkerNumber) -> bool {
        self.workers.status(worker) == Status::Running
    }

    /// Whether the thread of `worker` was handed a packet while it slept, and has not woken up yet.
    pub(crate) fn is_given(&self, worker: WorkerNumber) -> bool {
        self.workers.status(worker) == Status::Given
    }

    /// What the thread of `worker` was handed and has not come to goes back to the front of the queue.
    #[inline]
    pub(crate) fn take_back(&mut self, worker: WorkerNumber, port: &mut impl SchedulePort) -> bool {
        self.unload(worker);
        port.take_back(worker)
    }

    #[inline]
    fn unload(&mut self, worker: WorkerNumber) {
        if self.loaded[worker] {
            self.loaded[worker] = false;
            self.loads -= 1;
        }
    }

    // ---- what happens to the queue ----

    /// A packet was put at the end of the queue by a thread that does not take it.
    #[inline]
    pub(crate) fn queued(&mut self, port: &mut impl SchedulePort) -> Option<Wake> {
        if !self.workers.has_room() && self.workers.idle() > 0 {
            self.scan(port);
        }
        if self.workers.presumed_blocked() > 0 {
            // A thread that was found asleep may run again. The thread that comes for the packet
            // checks that first.
            if let Some(wake) = self.call() {
                return Some(wake);
            }
        } else if let Some(worker) = self.workers.give() {
            port.give(worker);
            self.handed += 1;
            return Some(self.wake(worker));
        }
        self.look_after(port)
    }

    /// The thread of `worker`, which runs, has put a packet in front of what it has left.
    pub(crate) fn kept(&mut self, worker: WorkerNumber, port: &impl SchedulePort) -> Option<Wake> {
        self.handed += 1;
        if !std::mem::replace(&mut self.loaded[worker], true) {
            self.loads += 1;
        }
        self.look_after(port)
    }

    /// A timer was set for the moment `at`, before all others.
    pub(crate) fn timer_set(&mut self, at: Moment) -> Option<Wake> {
        self.due = at;
        self.watches_time = true;
        if self.workers.idle() == 0 || self.is_carried() {
            return None;
        }
        let worker = match (self.workers.watching(), self.carrier) {
            (Some(_), _) if self.watchdog.comes_by(at) => return None,
            // The watchdog or the carrier sleeps past `at`: it is woken, and goes to sleep anew.
            (Some(worker), _) | (None, Some((worker, _)))
                if self.workers.status(worker) == Status::Idle =>
            {
                worker
            }
            // The watchdog is awake already, and goes to sleep anew.
            (Some(_), _) => return None,
            _ => {
                let worker = self.workers.appoint()?;
                // If no thread is left in the kernel's wait but this one, it goes back there.
                self.watchdog.is_appointed(self.workers.in_kernel() == 0);
                worker
            }
        };
        Some(self.wake(worker))
    }

    /// The next timer is due at the moment `due`, which is no earlier than before.
    pub(crate) fn next_timer(&mut self, due: Moment) {
        self.due = due;
    }

    /// Whether the port waits for a time to come.
    pub(crate) fn has_timers(&self) -> bool {
        self.due != Moment::NEVER
    }

    /// Whether a thread sleeps no longer than until the next timer is due.
    #[inline]
    fn is_carried(&self) -> bool {
        self.due == Moment::NEVER || self.carrier.is_some_and(|(_, until)| until <= self.due)
    }

    /// Something that has to be checked was left to the next wait, or packets were left in the
    /// queue that are not worth a wake.
    #[inline]
    pub(crate) fn look_after(&mut self, port: &impl SchedulePort) -> Option<Wake> {
        // Every packet that is queued asks this.
        if self.workers.idle() == 0 { None } else { self.appoint_watchdog(port) }
    }

    /// A thread that is idle becomes the watchdog, if there is none and nobody else attends to what is left.
    #[inline(never)]
    fn appoint_watchdog(&mut self, port: &impl SchedulePort) -> Option<Wake> {
        let is_attended = self.is_attended(port) && self.is_carried();
        if is_attended || self.workers.watching().is_some() {
            return None;
        }
        let worker = self.workers.appoint()?;
        // If all that is missing is a thread that carries a timer, this one need not leave the kernel's wait.
        self.watchdog.is_appointed(!self.is_attended(port));
        Some(self.wake(worker))
    }

    /// The calling thread goes off to user code. It calls another thread if it leaves too much
    /// behind.
    pub(crate) fn depart(&mut self, port: &mut impl SchedulePort) -> Option<Wake> {
        let left = port.ready();
        if left > 0 && self.workers.idle() > 0 && !self.workers.has_room() {
            self.scan(port);
        }
        let is_much = self.controller.is_worth_a_wake(left, self.workers.at_work());
        self.depart_calling(is_much || left > 0 && port.begins_with_post(), port)
    }

    /// The calling thread goes off to user code. It calls another thread if that is `wanted`.
    #[inline]
    pub(crate) fn depart_calling(
        &mut self,
        wanted: bool,
        port: &impl SchedulePort,
    ) -> Option<Wake> {
        let called = if wanted { self.call() } else { None };
        called.or_else(|| self.look_after(port))
    }

    /// The port has ended: the next one of the threads that still wait.
    pub(crate) fn dismiss(&mut self) -> Option<Wake> {
        let worker = self.workers.call_anyway()?;
        Some(self.wake(worker))
    }

    /// A seat has become free. Calls another thread to search if there may be something to find.
    fn relieve(&mut self, port: &impl SchedulePort) -> Option<Wake> {
        let is_quiet = port.ready() == 0 && port.unchecked() == 0;
        if is_quiet && self.workers.in_kernel() > 0 {
            return None;
        }
        self.call().or_else(|| self.look_after(port))
    }

    fn call(&mut self) -> Option<Wake> {
        let worker = self.workers.call()?;
        Some(self.wake(worker))
    }

    fn wake(&mut self, worker: WorkerNumber) -> Wake {
        self.wakes += 1;
        Wake { worker, in_kernel: self.workers.is_in_kernel(worker) }
    }

    /// Whether a thread is in the kernel's wait, and nothing else is left to be done.
    #[inline]
    fn is_attended(&self, port: &impl SchedulePort) -> bool {
        self.workers.in_kernel() > 0 && self.is_quiet(port)
    }

    /// Whether every packet found so far is being handled.
    #[inline]
    fn is_quiet(&self, port: &impl SchedulePort) -> bool {
        port.ready() == 0 && port.unchecked() == 0 && self.loads == 0
    }

    // ---- what others ask ----

    /// How many packets a thread takes at a time if it cannot give any back.
    pub(crate) fn advise(&mut self, now: Moment) -> u32 {
        let Self { advice, controller, .. } = self;
        advice.look(now, || controller.absent(now, AWAY) > 0);
        advice.room()
    }

    /// The threads and what they do, for hunting stalls.
    pub(crate) fn workers(&self) -> &dyn fmt::Debug {
        &self.workers
    }

    /// What the thread of `worker` does.
    pub(crate) fn status(&self, worker: WorkerNumber) -> Status {
        self.workers.status(worker)
    }

    pub(crate) fn figures(&self) -> Figures {
        let is_blocked =
            |(_, status): &(_, Status)| matches!(status, Status::Blocked | Status::FoundAsleep);
        Figures {
            running: self.workers.running(),
            idle: self.workers.idle(),
            blocked: self.workers.statuses().filter(is_blocked).count(),
            wakes: self.wakes,
            spurious: self.spurious,
            blocks_found: self.sleepers.found(),
        }
    }
}
