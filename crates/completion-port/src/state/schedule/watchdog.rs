//! The watchdog: the idle thread that looks after the port, so that what the kernel reports is
//! always found. Where threads may be stuck, a thread that comes to wait looks as well.

use std::time::Duration;

use super::turn::Looking;
use super::workers::{Status, WorkerNumber};
use super::{Action, Moment, Query, Schedule, SchedulePort, Turn};

/// How long an idle thread lets a port go unattended.
pub(crate) const TICK: Duration = Duration::from_millis(1);

/// A thread that has had several packets for so long without coming to the next one is stuck, or
/// preempted. A thread that comes to wait looks for such threads if none has looked for so long.
pub(super) const STUCK: Duration = Duration::from_micros(150);

/// How soon the watchdog's second look follows its first.
const SOON: Duration = Duration::from_micros(250);

/// What the watchdog remembers. The seats know which thread it is.
#[derive(Debug, Default)]
pub(super) struct Watchdog {
    /// The progress of each seat at the last look.
    seen: Vec<u32>,
    /// When the watchdog looks next; `None` if it has not begun.
    due: Option<Moment>,
    /// The watchdog began with what another thread had seen before, so `seen` is older than its
    /// appointment.
    is_outdated: bool,
    /// When a thread last looked.
    last_look: Moment,
    /// No look asks the system about threads that do not move before this time.
    next_query: Moment,
    /// When a thread other than the watchdog last polled, if that still matters.
    last_poll: Option<Moment>,
    /// It leaves the port to the threads that run, since they come back by themselves.
    pub(super) defers: bool,
    /// How many packets had been handed out at the last look, and how many together with those in the queue.
    handed: u64,
    queued: u64,
}

impl Watchdog {
    /// There is a seat of this number, whose thread moves on from `progress` with whatever it does.
    pub(super) fn worker(&mut self, worker: WorkerNumber, progress: u32) {
        if self.seen.len() <= worker {
            self.seen.resize(worker + 1, 0);
        }
        self.seen[worker] = progress;
    }

    /// A thread is the watchdog from now on, and has not begun. If it `defers`, it leaves the port
    /// to the threads that run.
    pub(super) fn is_appointed(&mut self, defers: bool) {
        self.due = None;
        self.defers = defers;
    }

    pub(super) fn has_begun(&self) -> bool {
        self.due.is_some()
    }

    /// Whether the watchdog looks by the moment `at`.
    pub(super) fn comes_by(&self, at: Moment) -> bool {
        self.due.is_some_and(|due| due <= at)
    }

    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Whether no thread has looked for so long.
    pub(super) fn is_stale(&self, now: Moment, time: Duration) -> bool {
        now >= self.last_look + time
    }
}

impl Schedule {
    /// When the watchdog looks next. If it begins now, it notes the progress of each seat.
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
        // Otherwise another thread has noted the progress not long ago. If each new watchdog began
        // anew where it often changes, it would never find a thread stuck.
        self.watchdog.is_outdated = !begins;
        let due = self.no_later_than_overdue(self.watchdog.last_look + tick);
        self.watchdog.due = Some(due);
        due
    }

    /// The time `due`, or the earlier time at which packets that a thread holds are to go to
    /// another thread.
    fn no_later_than_overdue(&self, due: Moment) -> Moment {
        if self.loads == 0 || !self.workers.has_room() {
            return due;
        }
        let loaded = (0..self.loaded.len()).filter(|worker| self.loaded[*worker]);
        let overdue = loaded.filter_map(|worker| self.controller.overdue_at(worker)).min();
        overdue.map_or(due, |overdue| overdue.min(due))
    }

    /// The thread of `turn`, which is the watchdog or has come to wait, looks after the port. It
    /// takes back what stuck threads hold, and finds out which counted threads sleep.
    #[inline(never)]
    pub(super) fn begin_look(
        &mut self,
        turn: &mut Turn,
        now: Moment,
        queries: &mut Vec<Query>,
        port: &mut impl SchedulePort,
    ) {
        let watchdog = &mut self.watchdog;
        // First: a thread that comes while this one looks without the lock must not look at once.
        watchdog.last_look = now;
        let asks = now >= watchdog.next_query;
        if asks {
            watchdog.next_query = now + self.sleepers.pace.period();
        }
        // At the watchdog's first look most threads that seem stuck have moved since they were
        // seen. The second look tells, and asks the system about those that have not.
        let is_first = std::mem::take(&mut watchdog.is_outdated) && watchdog.is_due(now);
        if is_first {
            watchdog.next_query = watchdog.next_query.min(now + SOON);
        }
        self.scan(port);
        for worker in 0..self.loaded.len() {
            if self.workers.status(worker) == Status::Vacant {
                continue;
            }
            let progress = port.progress(worker);
            let is_stuck = std::mem::replace(&mut self.watchdog.seen[worker], progress) == progress;
            let is_late = self.loaded[worker] && self.controller.is_overdue(worker, now);
            let is_wanted = is_late && self.workers.has_room();
            if self.workers.status(worker) != Status::Running || !(is_stuck || is_wanted) {
                continue;
            }
            let gave_back = self.take_back(worker, port);
            if is_late && !gave_back {
                self.advice.suspect(now);
                port.advise(self.advice.room());
            }
            if is_stuck && asks && port.detects() && port.presence(worker).is_none() {
                // Where looks are rare, one that leaves a thread to the next one costs a tick.
                let hurries = self.sleepers.pace.hurries();
                let ran = if hurries { self.sleepers.ran(worker, progress) } else { None };
                queries.push(Query { worker, stuck_at: Some(progress), ran });
            }
        }
        turn.looking = Looking::Stuck { now, is_first, asks };
    }

    /// The thread of `turn` goes on looking, and does this next; `None` once it has done.
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
                Looking::Asleep { now, is_first } => return self.end_look(now, is_first, port),
                Looking::BeforeTaking | Looking::No => return None,
            }
        }
    }

    /// Ends a look: sets the time of the next one, and whether the watchdog leaves the port to the
    /// threads that run.
    fn end_look(
        &mut self,
        now: Moment,
        is_first: bool,
        port: &mut impl SchedulePort,
    ) -> Option<Action> {
        self.sleepers.end_look(now, port);
        let tick = self.until_next_look(now);
        // A hurry is about threads that sleep. Those that run are left alone for as long as with
        // records.
        let away = tick.max(TICK / 4);
        let mut due = now + if is_first { tick.min(SOON) } else { tick };
        // If a thread polled not long ago and runs, the watchdog leaves it to that thread to poll
        // again. It does not if that poll was nearly a tick ago, since the time left is not worth
        // another look.
        let runs = self.workers.running() > 0;
        let polled = self.watchdog.last_poll;
        let polled = polled.filter(|polled| runs && now + away / 4 <= *polled + away);
        self.watchdog.last_poll = polled;
        if runs && polled.is_none() {
            let found = port.ready() + port.registered();
            self.controller.was_unattended(self.handed + found as u64);
        }
        // The watchdog does not defer either if something is still queued that was queued at the
        // last look.
        let is_overdue = self.is_overdue(port);
        // A watchdog in the kernel's wait takes what it finds there itself.
        let polls =
            self.workers.watching().is_some_and(|watching| self.workers.is_in_kernel(watching));
        self.watchdog.defers = polled.is_some() && !is_overdue && !polls;
        if let Some(polled) = polled {
            due = due.min(polled + away);
            // A thread that has not come back by then is asked about, as after a whole tick.
            let pause = self.sleepers.pace.period();
            self.watchdog.next_query = self.watchdog.next_query.min(polled + pause);
        }
        self.watchdog.due = Some(self.no_later_than_overdue(due));
        let is_calm = self.handed == std::mem::replace(&mut self.watchdog.handed, self.handed);
        if self.workers.has_room() {
            // From here this thread takes what is queued, or enters the kernel's wait if no thread
            // is in it. It stays the watchdog as long as the port is busy.
            if is_calm && self.is_quiet(port) {
                self.workers.resign();
            }
            return None;
        }
        self.may_ask(port).then(|| self.ask(false))
    }

    /// The thread of `me` has polled the set, in the kernel's wait or without waiting.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    pub(crate) fn polled(&mut self, me: WorkerNumber, port: &impl SchedulePort) {
        if self.workers.watching().is_some_and(|watching| watching != me) {
            self.watchdog.last_poll = Some(port.now());
        }
    }

    /// Whether something is queued that was queued at the last look.
    fn is_overdue(&mut self, port: &impl SchedulePort) -> bool {
        let queued = self.handed + port.ready() as u64;
        self.handed < std::mem::replace(&mut self.watchdog.queued, queued)
    }
}
