//! The watchdog: the idle worker that attends to the port, so that kernel events are always found.
//! It makes a *look* at short intervals. If workers may be stuck, an arriving worker makes looks as
//! well.

use std::time::Duration;

use super::turn::Looking;
use super::workers::{Status, WorkerNumber};
use super::{Action, Found, Moment, Query, Schedule, SchedulePort, Turn};

/// The longest time for which an idle worker leaves a port unattended.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// A worker that has held several packets for this long without starting the next one is stuck or
/// preempted. An arriving worker makes a look for such workers if there was none for this long.
pub(super) const STUCK: Duration = Duration::from_micros(150);

/// How soon the watchdog's second look follows its first.
const SOON: Duration = Duration::from_micros(250);

/// The state of the watchdog. [`WorkerTable`](super::WorkerTable) knows which worker it is.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    /// The progress of each worker at the last look.
    seen: Vec<u32>,
    /// When the watchdog makes its next look; `None` if it has not begun.
    due: Option<Moment>,
    /// The watchdog began with the progress that another worker noted, so `seen` is older than its
    /// appointment.
    is_outdated: bool,
    /// When a worker last made a look.
    last_look: Moment,
    /// Until this moment, looks do not ask the system about workers without progress.
    next_query: Moment,
    /// When a worker other than the watchdog last polled, if that still matters.
    last_poll: Option<Moment>,
    /// The watchdog leaves the port to the busy workers, since they return on their own.
    pub(super) defers: bool,
    /// The number of packets handed out by the last look, and that number plus the packets queued
    /// then.
    handed: u64,
    queued: u64,
}

impl Watchdog {
    /// Adds a worker whose progress is at `progress`.
    pub(super) fn worker(&mut self, worker: WorkerNumber, progress: u32) {
        if self.seen.len() <= worker {
            self.seen.resize(worker + 1, 0);
        }
        self.seen[worker] = progress;
    }

    /// Notes that a watchdog was appointed, which has not begun. If it `defers`, it leaves the port
    /// to the busy workers.
    pub(super) fn is_appointed(&mut self, defers: bool) {
        self.due = None;
        self.defers = defers;
    }

    pub(super) fn has_begun(&self) -> bool {
        self.due.is_some()
    }

    /// Returns whether the watchdog makes a look by the moment `at`.
    pub(super) fn comes_by(&self, at: Moment) -> bool {
        self.due.is_some_and(|due| due <= at)
    }

    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Returns whether there was no look for this long.
    pub(super) fn is_stale(&self, now: Moment, time: Duration) -> bool {
        now >= self.last_look + time
    }
}

impl Schedule {
    /// Returns when the watchdog makes its next look. If it begins now, this notes the progress of
    /// each worker.
    pub(super) fn next_look(&mut self, now: Moment, port: &impl SchedulePort) -> Moment {
        if let Some(due) = self.watchdog.due {
            return due;
        }
        let tick = self.until_next_look(now);
        let begins = self.watchdog.is_stale(now, tick);
        if begins {
            for (worker, _) in self.workers.statuses().filter(|(_, it)| *it != Status::Vacant) {
                self.watchdog.seen[worker] = port.progress(worker);
            }
            self.watchdog.last_look = now;
            self.watchdog.last_poll = None;
        }
        // Otherwise another worker noted the progress recently. If every new watchdog noted it
        // again, a port whose watchdog changes often would never find a stuck worker.
        self.watchdog.is_outdated = !begins;
        let due = self.no_later_than_overdue(self.watchdog.last_look + tick);
        self.watchdog.due = Some(due);
        due
    }

    /// Returns `due`, or the moment at which a worker's packets become overdue if that is earlier.
    fn no_later_than_overdue(&self, due: Moment) -> Moment {
        if self.loads == 0 || !self.workers.has_room() {
            return due;
        }
        let loaded = (0..self.loaded.len()).filter(|worker| self.loaded[*worker]);
        let overdue = loaded.filter_map(|worker| self.controller.overdue_at(worker)).min();
        overdue.map_or(due, |overdue| overdue.min(due))
    }

    /// Begins a look by the worker of `turn`, which is the watchdog or has just arrived. A look
    /// takes packets back from stuck workers and finds out which running workers sleep.
    #[inline(never)]
    pub(super) fn begin_look(
        &mut self,
        turn: &mut Turn,
        now: Moment,
        queries: &mut Vec<Query>,
        port: &mut impl SchedulePort,
    ) {
        let watchdog = &mut self.watchdog;
        // Set this first: a worker that arrives while this one works without the lock must not
        // begin a look as well.
        watchdog.last_look = now;
        let asks = now >= watchdog.next_query;
        if asks {
            watchdog.next_query = now + self.sleepers.pace.period();
        }
        // At the watchdog's first look, most workers that seem stuck have moved since their
        // progress was noted. The second look settles that, and asks the system about those that
        // have not.
        let is_first = std::mem::take(&mut watchdog.is_outdated) && watchdog.is_due(now);
        if is_first {
            watchdog.next_query = watchdog.next_query.min(now + SOON);
        }
        self.scan(port);
        for worker in 0..self.loaded.len() {
            if self.workers.status(worker) == Status::Vacant {
                continue;
            }
            port.notice_progress(worker, now);
            let progress = port.progress(worker);
            let is_stuck = std::mem::replace(&mut self.watchdog.seen[worker], progress) == progress;
            let is_late = self.loaded[worker] && self.controller.is_overdue(worker, now);
            let is_wanted = is_late && self.workers.has_room();
            if self.workers.status(worker) != Status::Running || !(is_stuck || is_wanted) {
                continue;
            }
            let gave_back = self.take_back(worker, port);
            if is_late && gave_back {
                // The packets have waited for long, and must not wait as long for the next worker.
                self.controller.was_unattended(self.handed + port.ready() as u64);
            } else if is_late {
                self.advice.suspect(now);
                port.advise(self.advice.room());
            }
            if is_stuck && asks && port.detects() && port.presence(worker).is_none() {
                // If looks are rare, leaving a worker to the next look costs a whole tick.
                let hurries = self.sleepers.pace.hurries();
                let ran = if hurries { self.sleepers.ran(worker, progress) } else { None };
                queries.push(Query { worker, stuck_at: Some(progress), ran });
            }
        }
        turn.looking = Looking::Stuck { now, is_first, asks };
    }

    /// Continues the look of `turn` and returns its next action, or `None` when it is done.
    #[inline(never)]
    pub(super) fn go_on_looking(
        &mut self,
        turn: &mut Turn,
        queries: &mut Vec<Query>,
        port: &mut impl SchedulePort,
    ) -> Option<Action> {
        loop {
            if let Some(query) = queries.pop() {
                return Some(Action::Query(query));
            }
            match std::mem::replace(&mut turn.looking, Looking::No) {
                Looking::Stuck { now, is_first, asks } => {
                    if asks && self.may_requery(port) {
                        self.begin_requery(queries, port);
                    } else {
                        self.recount(port);
                    }
                    turn.looking = Looking::Asleep { now, is_first };
                }
                Looking::Asleep { now, is_first } => {
                    return self.end_look(turn.me, now, is_first, port);
                }
                Looking::BeforeTaking | Looking::No => return None,
            }
        }
    }

    /// Ends a look of `me`: sets the time of the next one, and whether the watchdog leaves the port
    /// to the busy workers.
    fn end_look(
        &mut self,
        me: WorkerNumber,
        now: Moment,
        is_first: bool,
        port: &mut impl SchedulePort,
    ) -> Option<Action> {
        self.sleepers.end_look(now, port);
        let tick = self.until_next_look(now);
        // Short periods are for finding sleepers. Running workers are left alone for as long as
        // they would be with sleep records.
        let away = tick.max(TICK / 4);
        let mut due = now + if is_first { tick.min(SOON) } else { tick };
        // If a busy worker polled recently, the watchdog leaves the next poll to it. It does not if
        // nearly a tick has passed since, because the remaining time is not worth another look.
        let is_busy = self.workers.is_another_busy(me);
        let polled = self.watchdog.last_poll;
        let polled = polled.filter(|polled| is_busy && now + away / 4 <= *polled + away);
        self.watchdog.last_poll = polled;
        if self.workers.running() > 0 && polled.is_none() {
            let found = port.ready() + port.registered();
            self.controller.was_unattended(self.handed + found as u64);
        }
        // The watchdog does not defer either if a packet of the last look is still queued.
        let is_overdue = self.is_overdue(port);
        // A watchdog in the kernel's wait takes what it finds there itself.
        let polls =
            self.workers.watching().is_some_and(|watching| self.workers.is_in_kernel(watching));
        self.watchdog.defers = polled.is_some() && !is_overdue && !polls;
        if let Some(polled) = polled {
            due = due.min(polled + away);
            // If the worker has not returned by then, the look asks about it, as after a whole
            // tick.
            let pause = self.sleepers.pace.period();
            self.watchdog.next_query = self.watchdog.next_query.min(polled + pause);
        }
        let due = self.no_later_than_overdue(due);
        self.watchdog.due = match self.watchdog.due {
            _ if self.workers.watching() == Some(me) => Some(due),
            // The watchdog may sleep until then. If it has not begun, its wake-up may be on its way,
            // and another worker may get that.
            before => before.map(|before| before.max(due)),
        };
        let is_calm = self.handed == std::mem::replace(&mut self.watchdog.handed, self.handed);
        if !self.workers.has_room() {
            self.overcommit(now, port);
        }
        if self.workers.has_room() {
            // From here on, this worker takes what is queued, or enters the kernel's wait if no
            // worker is there. It stays the watchdog while the port is busy.
            if is_calm && self.is_quiet(port) {
                self.workers.resign();
            }
            return None;
        }
        self.may_ask(port).then(|| self.ask(false))
    }

    /// Notes that `me` has polled the set, in the kernel's wait or without waiting, and what it has
    /// found.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    pub(crate) fn polled(&mut self, me: WorkerNumber, found: Found, port: &impl SchedulePort) {
        self.sources.note(found);
        if self.workers.watching().is_some_and(|watching| watching != me) {
            self.watchdog.last_poll = Some(port.now());
        }
    }

    /// Returns whether a packet that was queued at the last look is still queued.
    fn is_overdue(&mut self, port: &impl SchedulePort) -> bool {
        let queued = self.handed + port.ready() as u64;
        self.handed < std::mem::replace(&mut self.watchdog.queued, queued)
    }
}
