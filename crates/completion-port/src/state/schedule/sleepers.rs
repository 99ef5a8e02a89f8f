//! Which of the threads that are counted sleep without having said so.
//!
//! There are two ways. A thread may be *observed*: the scheduler keeps a record of its sleeps.
//! Every thread that comes to the port, and the watchdog, read that record without a call. About
//! the other threads the watchdog asks the system, if they have made no progress since its last
//! look.

use std::time::Duration;

use super::pace::Pace;
use super::watchdog::TICK;
use super::workers::{Status, WorkerNumber};
use super::{Moment, Query, Schedule, SchedulePort};
use crate::state::facts::Presence;

/// A thread that sleeps no longer than this goes on being counted: a wake-up costs as much.
const GRACE: Duration = Duration::from_micros(100);

/// For so long after a thread was found asleep, others are thought likely to follow.
const LIKELY: Duration = Duration::from_millis(100);

/// What is known of threads that sleep.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    /// For each seat: its progress and how long its thread had run when the system was last asked
    /// about it.
    ran: Vec<Option<(u32, Duration)>>,
    /// Seats whose threads are observed, and how many there are.
    observed: Vec<bool>,
    observers: usize,
    /// When one was last found asleep.
    found_at: Option<Moment>,
    /// How often the system is asked about threads that do not move.
    pub(super) pace: Pace,
    /// When the system was last asked about those that were found asleep.
    asked_at: Moment,
    /// How many were found asleep so far.
    found: u64,
    /// Of the threads that had just begun to sleep at the last scan: when the first one will have
    /// slept for long enough.
    due: Option<Moment>,
}

impl Sleepers {
    /// The thread of this seat is not observed: it is another one from now on, or gone.
    pub(super) fn worker(&mut self, worker: WorkerNumber) {
        if self.observed.len() <= worker {
            self.observed.resize(worker + 1, false);
            self.ran.resize(worker + 1, None);
        }
        self.ran[worker] = None;
        self.observers -= usize::from(std::mem::take(&mut self.observed[worker]));
    }

    /// The thread of `worker` is observed.
    pub(super) fn observe(&mut self, worker: WorkerNumber) {
        self.observers += usize::from(!std::mem::replace(&mut self.observed[worker], true));
    }

    /// A look that began at `begun` has ended.
    pub(super) fn end_look(&mut self, begun: Moment, port: &impl SchedulePort) {
        let took = if self.pace.hurries() { port.now().since(begun) } else { Duration::ZERO };
        self.pace.looked(took);
    }

    /// How long the thread of `worker` had run when the system was last asked about it, if its `progress`
    /// was the same.
    pub(super) fn ran(&self, worker: WorkerNumber, progress: u32) -> Option<Duration> {
        self.ran[worker].filter(|(seen, _)| *seen == progress).map(|(_, ran)| ran)
    }

    pub(super) fn found(&self) -> u64 {
        self.found
    }
}

impl Schedule {
    /// How long after a look the next one comes, and how long the watchdog may leave the port to
    /// the threads that run. Less than usual where threads have been found asleep.
    pub(super) fn until_next_look(&self, now: Moment) -> Duration {
        let Sleepers { observers, found_at, due, ref pace, .. } = self.sleepers;
        let is_likely = observers > 0 && found_at.is_some_and(|found| now < found + LIKELY);
        if !is_likely {
            return pace.period();
        }
        let tick = pace.period().min(TICK / 4);
        due.filter(|due| now < *due).map_or(tick, |due| due.since(now).min(tick))
    }

    /// Stops counting the running threads whose records say that they sleep.
    #[inline]
    pub(super) fn scan(&mut self, port: &mut impl SchedulePort) {
        if self.sleepers.observers > 0 {
            self.scan_all(port);
        }
    }

    #[inline(never)]
    fn scan_all(&mut self, port: &mut impl SchedulePort) {
        let mut now = None;
        self.sleepers.due = None;
        for worker in 0..self.loaded.len() {
            if self.workers.status(worker) != Status::Running {
                continue;
            }
            let Some(Presence::Asleep { since }) = port.presence(worker) else { continue };
            let now = *now.get_or_insert_with(|| port.now());
            if now.since(since) >= GRACE {
                self.found_asleep(worker, now, port);
            } else {
                let due = since + GRACE;
                self.sleepers.due = Some(self.sleepers.due.map_or(due, |first| first.min(due)));
            }
        }
    }

    fn found_asleep(&mut self, worker: WorkerNumber, now: Moment, port: &mut impl SchedulePort) {
        if self.workers.block(worker, false) {
            self.controller.rest(worker);
            self.take_back(worker, port);
            port.presume_asleep(worker, true);
            self.sleepers.found_at = Some(now);
            self.sleepers.found += 1;
            self.advice.lower(now);
            port.advise(self.advice.room());
        }
    }

    /// The thread of `worker`, if it was found asleep, is awake.
    pub(super) fn found_awake(&mut self, worker: WorkerNumber, port: &mut impl SchedulePort) {
        port.presume_asleep(worker, false);
        self.workers.unblock(worker);
    }

    /// Counts those again that were found asleep and whose records say that they are awake. A thread that
    /// has come back to the port has said so itself.
    #[inline]
    pub(super) fn recount(&mut self, port: &mut impl SchedulePort) {
        if self.workers.presumed_blocked() > 0 && self.sleepers.observers > 0 {
            self.recount_all(port);
        }
    }

    #[inline(never)]
    fn recount_all(&mut self, port: &mut impl SchedulePort) {
        for worker in 0..self.loaded.len() {
            if self.workers.status(worker) == Status::FoundAsleep
                && port.presence(worker) == Some(Presence::Awake)
            {
                self.found_awake(worker, port);
            }
        }
    }

    /// Whether it is time to ask the system again about those that were found asleep.
    #[inline]
    pub(super) fn may_requery(&mut self, port: &impl SchedulePort) -> bool {
        self.workers.presumed_blocked() > 0 && self.may_requery_now(port)
    }

    #[inline(never)]
    fn may_requery_now(&mut self, port: &impl SchedulePort) -> bool {
        let now = port.now();
        if now < self.sleepers.asked_at + TICK {
            return false;
        }
        self.sleepers.asked_at = now;
        true
    }

    /// The questions to the system about threads that were found asleep and have no record.
    #[inline(never)]
    pub(crate) fn begin_requery(&mut self, queries: &mut Vec<Query>, port: &mut impl SchedulePort) {
        self.recount(port);
        if self.workers.presumed_blocked() == 0 {
            return;
        }
        for worker in 0..self.loaded.len() {
            if self.workers.status(worker) == Status::FoundAsleep && port.presence(worker).is_none()
            {
                let ran = self.sleepers.ran(worker, port.progress(worker));
                queries.push(Query { worker, stuck_at: None, ran });
            }
        }
    }

    /// The answer to `query`: how long processors `ran` the thread, and whether it sleeps, if the system
    /// tells. `is_observed`: it is from now on.
    pub(crate) fn answer(
        &mut self,
        query: Query,
        ran: Option<Duration>,
        asleep: Option<bool>,
        is_observed: bool,
        port: &mut impl SchedulePort,
    ) {
        let Query { worker, stuck_at, .. } = query;
        self.sleepers.ran[worker] = ran.map(|ran| (stuck_at.unwrap_or(port.progress(worker)), ran));
        if is_observed {
            self.sleepers.observe(worker);
        }
        match (stuck_at, asleep) {
            (Some(progress), Some(true)) if port.progress(worker) == progress => {
                let now = port.now();
                self.found_asleep(worker, now, port);
                if !is_observed {
                    self.sleepers.pace.found();
                }
            }
            (None, Some(false)) if self.workers.status(worker) == Status::FoundAsleep => {
                self.found_awake(worker, port);
            }
            _ => {}
        }
    }
}
