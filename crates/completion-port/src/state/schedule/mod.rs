//! The schedule: which worker takes packets, how the others sleep, which one is woken, and which
//! one is the watchdog.
//!
//! Nothing here calls the system or sleeps. Each event at the port is a method of [`Schedule`],
//! called with the port's lock held. The schedule asks its [`SchedulePort`] about the port, and
//! returns what the caller must do. A thread in a wait calls [`Schedule::next`] repeatedly and does
//! what it returns.

mod advice;
mod controller;
mod overcommit;
mod pace;
mod sleepers;
mod sources;
#[cfg(any(test, fuzzing))]
pub(crate) mod tests;
mod turn;
mod view;
mod wait;
mod watchdog;
mod workers;

pub(crate) use self::advice::{Absence, Advice, LOOK};
use self::controller::{Controller, PART};
use self::overcommit::Overcommit;
use self::sleepers::Sleepers;
pub(crate) use self::sources::Found;
use self::sources::Sources;
pub(crate) use self::turn::{Action, Query, Turn, Waited, Wake};
pub(crate) use self::view::SchedulePort;
pub(crate) use self::wait::most_further;
use self::watchdog::{STUCK, Watchdog};
use self::workers::WorkerTable;
pub(crate) use self::workers::{Status, WorkerNumber};
use super::moment::Moment;

/// How many edges a worker requests from the kernel at a time. A worker that runs alone may request
/// more later. If several may run, a larger batch would keep edges from the others.
pub(crate) const USUAL_EDGES: usize = 64;

/// One share in this many is measured: reading the clock costs as much as a packet.
pub(crate) const SAMPLED: u32 = 32;

/// The workers of a port, and the policies that decide about them.
#[derive(Debug)]
pub(crate) struct Schedule {
    workers: WorkerTable,
    controller: Controller,
    advice: Advice,
    watchdog: Watchdog,
    sleepers: Sleepers,
    sources: Sources,
    overcommit: Overcommit,
    /// When the next timer is due; [`Moment::NEVER`] if there is none.
    due: Moment,
    /// The worker that sleeps no longer than until this moment, because a timer was due then when
    /// it went to sleep.
    carrier: Option<(WorkerNumber, Moment)>,
    /// There may be a timer or a carrier. Each wait updates this.
    watches_time: bool,
    /// Which workers were handed several packets, and may still have some; and how many they are.
    loaded: Vec<bool>,
    loads: usize,
    /// How often the kernel was asked for edges. Wraps around.
    asked: u32,
    /// Packets handed out so far.
    handed: u64,
    /// How many workers were woken, and how many of them were called to search but found nothing.
    wakes: u64,
    spurious: u64,
}

/// Statistics.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Figures {
    pub(crate) running: usize,
    pub(crate) idle: usize,
    pub(crate) blocked: usize,
    pub(crate) excess: usize,
    pub(crate) wakes: u64,
    pub(crate) spurious: u64,
    pub(crate) blocks_found: u64,
}

impl Schedule {
    /// Creates the schedule of a port that lets `limit` workers run at a time. Counters that wrap
    /// around start at `begin`.
    pub(crate) fn new(limit: usize, begin: u32) -> Self {
        Self {
            workers: WorkerTable::new(limit),
            controller: Controller::new(limit),
            advice: Advice::new(),
            watchdog: Watchdog::default(),
            sleepers: Sleepers::default(),
            sources: Sources::default(),
            overcommit: Overcommit::default(),
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

    // ---- events of workers ----

    /// Adds a worker. Its progress counter is at `progress` and changes with everything that the
    /// worker does.
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

    /// Removes a worker. Its remaining packets must be back in the queue.
    pub(crate) fn leave(&mut self, worker: WorkerNumber, port: &impl SchedulePort) -> Option<Wake> {
        self.unload(worker);
        self.sleepers.worker(worker);
        self.workers.leave(worker);
        self.controller.rest(worker);
        self.relieve(port)
    }

    /// Begins the wait of `turn`. The worker's remaining packets must be back in the queue.
    /// `packet` is the measured time per packet of its last share in nanoseconds, if any.
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
        self.handed += u64::from(turn.put);
        self.unload(turn.me);
        self.sleepers.woke(turn.me);
        turn.rests = self.workers.arrive(turn.me);
        let hurries = self.workers.running() > 0 && self.sleepers.pace.hurries();
        if (self.loads > 0 || hurries) && self.looks_first(turn, hurries, queries, port) {
            return;
        }
        self.begin(turn, port);
    }

    /// Begins a look if the arriving worker of `turn` should make one before anything else, and
    /// returns whether it does.
    ///
    /// Another worker may be stuck with its share, and there may be no watchdog. Most likely that
    /// worker was preempted, which would last a millisecond or more. With `hurries`, recent looks
    /// have found sleepers, and a worker that runs with a single packet may be asleep as well.
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

    /// Starts the search, after a look if there was one, and decides whether the worker rests. It
    /// rests only if another worker has arrived since it left, no message is waiting, except those
    /// that report operations, and the others suffice according to the controller.
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

    /// Notes that `worker` is about to block. Returns `None` if it is not counted anyway. Otherwise
    /// its remaining packets go back to the queue.
    pub(crate) fn block(
        &mut self,
        worker: WorkerNumber,
        port: &mut impl SchedulePort,
    ) -> Option<Option<Wake>> {
        if self.workers.status(worker) == Status::FoundAsleep {
            // The worker was found asleep but is awake. From here on, it announces its blocking
            // itself.
            self.found_awake(worker, port);
        }
        if !self.workers.block(worker, true) {
            return None;
        }
        self.controller.rest(worker);
        self.take_back(worker, port);
        Some(self.relieve(port))
    }

    /// Notes that `worker` no longer blocks, or is awake although it was found asleep.
    pub(crate) fn unblock(&mut self, worker: WorkerNumber) {
        self.sleepers.woke(worker);
        self.workers.unblock(worker);
    }

    /// Moves the remaining packets of `worker` back to the front of the queue.
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

    // ---- events of the queue ----

    /// Reacts to a packet that was appended to the queue by a thread that does not take it.
    #[inline]
    pub(crate) fn queued(&mut self, port: &mut impl SchedulePort) -> Option<Wake> {
        if !self.workers.has_room() && self.workers.idle() > 0 {
            self.scan(port);
        }
        if self.workers.presumed_blocked() > 0 {
            // A worker that was found asleep may be running again. The worker that comes for the packet
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

    /// Notes that the running `worker` has added a packet to its own, which another worker may take
    /// away. Counts it if it `comes_next`; otherwise it is counted after it was queued. The caller
    /// then calls [`Schedule::look_after`], or has woken a thread.
    pub(crate) fn keep(&mut self, worker: WorkerNumber, comes_next: bool) {
        self.handed += u64::from(comes_next);
        if !std::mem::replace(&mut self.loaded[worker], true) {
            self.loads += 1;
        }
    }

    /// Returns how many packets a running worker takes in a wait with this `room` if each of them
    /// makes the next one due. 0 if other packets are queued, which come first.
    ///
    /// If packets are long, other workers take them, as any that are left in the queue.
    #[inline]
    pub(crate) fn most_in_wait(&self, room: usize, port: &impl SchedulePort) -> usize {
        if port.ready() > 0 || port.unchecked() > 0 {
            0
        } else if self.workers.may_run() <= 1 {
            room.min(USUAL_EDGES)
        } else if self.controller.is_long() {
            0
        } else {
            room.min(PART)
        }
    }

    /// Notes a new timer for `at`, which is earlier than all others.
    pub(crate) fn timer_set(&mut self, at: Moment) -> Option<Wake> {
        self.due = at;
        self.watches_time = true;
        if self.workers.idle() == 0 || self.is_carried() {
            return None;
        }
        let worker = match (self.workers.watching(), self.carrier) {
            (Some(_), _) if self.watchdog.comes_by(at) => return None,
            // The watchdog or the carrier sleeps past `at`: wake it, and it goes back to sleep for
            // less time.
            (Some(worker), _) | (None, Some((worker, _)))
                if self.workers.status(worker) == Status::Idle =>
            {
                worker
            }
            // The watchdog is already awake, and will take the timer into account when it goes back
            // to sleep.
            (Some(_), _) => return None,
            _ => {
                let worker = self.workers.appoint()?;
                // The watchdog must not defer if a worker is in the kernel's wait: it may be the
                // watchdog itself, which must go back there.
                self.watchdog.is_appointed(self.workers.in_kernel() == 0);
                worker
            }
        };
        Some(self.wake(worker))
    }

    /// Updates when the next timer is due. It is no earlier than before.
    pub(crate) fn next_timer(&mut self, due: Moment) {
        self.due = due;
    }

    /// Returns whether a worker other than `except` is in user code with packets, or is about to
    /// be.
    pub(crate) fn is_any_in_handler(&self, except: Option<WorkerNumber>) -> bool {
        let is_busy = |status| {
            matches!(
                status,
                Status::Running | Status::Blocked | Status::FoundAsleep | Status::Given
            )
        };
        self.workers.statuses().any(|(worker, status)| Some(worker) != except && is_busy(status))
    }

    /// Returns whether the port has timers.
    pub(crate) fn has_timers(&self) -> bool {
        self.due != Moment::NEVER
    }

    /// Returns whether a worker sleeps no longer than until the next timer is due.
    #[inline]
    fn is_carried(&self) -> bool {
        self.due == Moment::NEVER || self.carrier.is_some_and(|(_, until)| until <= self.due)
    }

    /// Appoints a watchdog if needed, because a check was left to the next wait, or because packets
    /// stay in the queue that are not worth a wake-up.
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
        // If only a carrier for a timer is missing, this worker need not leave the kernel's wait.
        self.watchdog.is_appointed(!self.is_attended(port));
        Some(self.wake(worker))
    }

    /// The calling worker leaves for user code. Calls another worker if too much stays in the
    /// queue.
    pub(crate) fn depart(&mut self, port: &mut impl SchedulePort) -> Option<Wake> {
        let left = port.ready();
        if left > 0 && self.workers.idle() > 0 && !self.workers.has_room() {
            self.scan(port);
        }
        let is_much = self.controller.is_worth_a_wake(left, self.workers.at_work());
        self.depart_calling(is_much || left > 0 && port.begins_with_post(), port)
    }

    /// The calling worker leaves for user code. Calls another worker if `wanted`.
    #[inline]
    pub(crate) fn depart_calling(
        &mut self,
        wanted: bool,
        port: &impl SchedulePort,
    ) -> Option<Wake> {
        let called = if wanted { self.call() } else { None };
        called.or_else(|| self.look_after(port))
    }

    /// Dismisses the next waiting worker, because the port has ended.
    pub(crate) fn dismiss(&mut self) -> Option<Wake> {
        let worker = self.workers.call_anyway()?;
        Some(self.wake(worker))
    }

    /// Reacts to a place under the concurrency value becoming free: calls a worker to search if
    /// there may be something to find.
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

    /// Returns whether a worker is in the kernel's wait and nothing else needs attention.
    #[inline]
    fn is_attended(&self, port: &impl SchedulePort) -> bool {
        self.workers.in_kernel() > 0 && self.is_quiet(port)
    }

    /// Returns whether every packet found so far is being handled.
    #[inline]
    fn is_quiet(&self, port: &impl SchedulePort) -> bool {
        port.ready() == 0 && port.unchecked() == 0 && self.loads == 0
    }

    // ---- queries ----

    /// Returns how many packets a thread should take at a time if it cannot return them to the
    /// queue.
    ///
    /// `absences` is empty at first. If it is not empty afterwards, the caller judges each of them
    /// and calls this again.
    pub(crate) fn advise(&mut self, now: Moment, absences: &mut Vec<Absence>) -> u32 {
        let Self { advice, controller, loaded, .. } = self;
        if absences.is_empty() {
            let due = |worker| Some((worker, controller.overdue_at(worker)?));
            let away = (0..loaded.len()).filter_map(due).filter(|(_, due)| *due <= now);
            *absences = advice.absences(now, away);
            if !absences.is_empty() {
                return advice.room();
            }
        }
        // Some workers may have returned or left while they were asked about.
        let mut absences = std::mem::take(absences);
        absences.retain(|it| controller.overdue_at(it.worker) == Some(it.since));
        advice.look(now, absences);
        advice.room()
    }

    /// Returns the workers and what they are doing.
    pub(crate) fn workers(&self) -> &WorkerTable {
        &self.workers
    }

    pub(crate) fn figures(&self) -> Figures {
        let is_blocked =
            |(_, status): &(_, Status)| matches!(status, Status::Blocked | Status::FoundAsleep);
        Figures {
            running: self.workers.running(),
            idle: self.workers.idle(),
            blocked: self.workers.statuses().filter(is_blocked).count(),
            excess: self.workers.excess(),
            wakes: self.wakes,
            spurious: self.spurious,
            blocks_found: self.sleepers.found(),
        }
    }
}
