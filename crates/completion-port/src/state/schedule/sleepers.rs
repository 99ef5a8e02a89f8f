//! Which running workers sleep without having announced it.
//!
//! There are two ways to find out. A worker may be *observed*: the system's scheduler keeps a sleep
//! record of its thread, which every arriving worker and the watchdog read without a system call.
//! The watchdog asks the system about the other workers if they have made no progress since its
//! last look.

use std::time::Duration;

use super::pace::Pace;
use super::watchdog::TICK;
use super::workers::{Status, WorkerNumber};
use super::{Advice, Moment, Query, Schedule, SchedulePort, Turn};
use crate::state::facts::Presence;

/// A worker that sleeps for no longer than this stays counted: a wake-up costs as much.
const GRACE: Duration = Duration::from_micros(100);

/// A worker that was seen to sleep for this long was worth an immediate wake-up.
const LONG: Duration = Duration::from_millis(1);

/// This many long sleeps outweigh a brief one, for which another worker was woken needlessly. If they
/// do, a worker that sleeps is replaced immediately.
const MANY: u8 = 4;

/// If more workers than this were found asleep, they are not recounted each time: reading their sleep
/// records takes some 50 nanoseconds for each.
const FEW: usize = 4;

/// For this long after a worker was found asleep, others are likely to follow.
const LIKELY: Duration = Duration::from_millis(100);

/// After this many long sleeps, each found within [`LIKELY`] of the one before, a caller that cannot
/// return packets should take a single one.
const SEVERAL: u8 = 4;

/// Long sleeps, each found soon after the one before.
#[derive(Debug, Default)]
struct LongSleeps {
    /// How many they are, at most [`SEVERAL`].
    count: u8,
    /// When the last one was found.
    at: Option<Moment>,
}

/// What is known of sleeping workers.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    /// For each worker, its progress and its processor time when the system was last asked about
    /// it.
    ran: Vec<Option<(u32, Duration)>>,
    /// Which workers are observed, and how many they are.
    observed: Vec<bool>,
    observers: usize,
    /// When a worker was last found asleep.
    found_at: Option<Moment>,
    /// When one was last found asleep that had no sleep record yet. How long it sleeps is unknown.
    pub(super) unrecorded_at: Option<Moment>,
    /// How often the system is asked about workers without progress.
    pub(super) pace: Pace,
    /// When the system was last asked about workers that were found asleep.
    asked_at: Moment,
    long_sleeps: LongSleeps,
    /// How often workers were found asleep so far.
    found: u64,
    /// Which workers were found asleep by their records, and not seen to sleep for [`LONG`] yet.
    brief: Vec<bool>,
    /// How many sleeps were long lately, at most twice [`MANY`]. A brief one takes [`MANY`] off.
    long: u8,
    /// When the first of the workers that had just fallen asleep at the last scan will have slept
    /// for [`GRACE`].
    due: Option<Moment>,
    /// When more than [`FEW`] workers that were found asleep are recounted next: a tick after the last
    /// time, or when the first of their sleeps becomes long.
    recount_at: Moment,
}

impl Sleepers {
    /// Resets `worker`, which is new or gone: it is not observed.
    pub(super) fn worker(&mut self, worker: WorkerNumber) {
        if self.observed.len() <= worker {
            self.observed.resize(worker + 1, false);
            self.ran.resize(worker + 1, None);
            self.brief.resize(worker + 1, false);
        }
        self.ran[worker] = None;
        self.brief[worker] = false;
        self.observers -= usize::from(std::mem::take(&mut self.observed[worker]));
    }

    /// Notes that `worker` is observed.
    pub(super) fn observe(&mut self, worker: WorkerNumber) {
        self.observers += usize::from(!std::mem::replace(&mut self.observed[worker], true));
    }

    /// Notes that a look that began at `begun` has ended.
    pub(super) fn end_look(&mut self, begun: Moment, port: &impl SchedulePort) {
        let took = if self.pace.hurries() { port.now().since(begun) } else { Duration::ZERO };
        self.pace.looked(took);
    }

    /// Returns the processor time of `worker` when the system was last asked about it, if its
    /// `progress` was the same then.
    pub(super) fn ran(&self, worker: WorkerNumber, progress: u32) -> Option<Duration> {
        self.ran[worker].filter(|(seen, _)| *seen == progress).map(|(_, ran)| ran)
    }

    pub(super) fn found(&self) -> u64 {
        self.found
    }

    /// Notes that `worker` is seen asleep `now`, by its record, and has slept `since` that moment. It
    /// `is_new` when that is found. Returns whether the sleep is now found to be long, which happens
    /// once; one that is still brief is recounted when it becomes long.
    fn sleeps(&mut self, worker: WorkerNumber, since: Moment, now: Moment, is_new: bool) -> bool {
        if now.since(since) < LONG {
            self.brief[worker] = true;
            self.recount_at = self.recount_at.min(since + LONG);
            return false;
        }
        let is_found = std::mem::take(&mut self.brief[worker]) || is_new;
        if is_found {
            self.long = (self.long + 1).min(2 * MANY);
        }
        is_found
    }

    /// Notes that `worker`, which may have been found asleep, is awake.
    #[inline]
    pub(super) fn woke(&mut self, worker: WorkerNumber) {
        if std::mem::take(&mut self.brief[worker]) {
            self.long = self.long.saturating_sub(MANY);
        }
    }

    #[inline(never)]
    fn may_requery(&mut self, port: &impl SchedulePort) -> bool {
        let now = port.now();
        if now < self.asked_at + TICK {
            return false;
        }
        self.asked_at = now;
        true
    }

    /// Returns whether more workers are likely to fall asleep for long: one was found asleep lately,
    /// and long sleeps outweigh brief ones, or it may still become a long one. Looks cost more than
    /// brief sleeps do.
    fn are_likely(&self, now: Moment) -> bool {
        let is_recent = |at: Option<Moment>| at.is_some_and(|at| now < at + LIKELY);
        let may_be_long = || self.long > 0 || self.brief.contains(&true);
        self.observers > 0
            && (is_recent(self.unrecorded_at) || is_recent(self.found_at) && may_be_long())
    }

    /// Returns whether a worker that sleeps is replaced immediately, since nearly all sleeps are long.
    #[inline]
    pub(super) fn replaces_at_once(&self) -> bool {
        self.long >= MANY
    }
}

/// A worker sleeps for long, `since` that moment if it is known. Its packets, which it may have moved
/// into its own memory, wait as long. If workers do so again and again, fewer packets are advised. A few
/// such sleeps, and brief ones, may have another cause: on a busy machine, threads that wait for a lock
/// of the library sleep until its holder has a processor again.
fn advise(
    advice: &mut Advice,
    long_sleeps: &mut LongSleeps,
    (since, now): (Option<Moment>, Moment),
    port: &mut impl SchedulePort,
) {
    let LongSleeps { count, at } = long_sleeps;
    let last = at.filter(|at| now < *at + LIKELY);
    let may_be_older = |last| since.map_or(now < last + LONG, |since| since <= last);
    if last.is_some_and(may_be_older) {
        // It may have the same cause.
        return;
    }
    *count = if last.is_some() { (*count + 1).min(SEVERAL) } else { 1 };
    *at = Some(now);
    if *count == SEVERAL {
        advice.lower(now);
    } else {
        advice.suspect(now);
    }
    port.advise(advice.room());
}

impl Schedule {
    /// Returns the time from one look to the next, which is also how long the watchdog may leave
    /// the port to the running workers. It is shorter if others are likely to fall asleep for long.
    pub(super) fn until_next_look(&self, now: Moment) -> Duration {
        let Sleepers { due, ref pace, .. } = self.sleepers;
        if !self.sleepers.are_likely(now) {
            return pace.period();
        }
        let tick = pace.period().min(TICK / 4);
        due.filter(|due| now < *due).map_or(tick, |due| due.since(now).min(tick))
    }

    /// Stops counting the running workers that are asleep according to their sleep records.
    #[inline]
    pub(super) fn scan(&mut self, port: &mut impl SchedulePort) {
        if self.sleepers.observers > 0 {
            self.scan_all(port);
        }
    }

    #[inline(never)]
    fn scan_all(&mut self, port: &mut impl SchedulePort) {
        let mut now = None;
        let grace = if self.sleepers.replaces_at_once() { Duration::ZERO } else { GRACE };
        self.sleepers.due = None;
        for worker in 0..self.loaded.len() {
            if self.workers.status(worker) != Status::Running {
                continue;
            }
            let Some(Presence::Asleep { since }) = port.presence(worker) else { continue };
            let now = *now.get_or_insert_with(|| port.now());
            if now.since(since) >= grace {
                self.found_asleep(worker, Some(since), now, port);
            } else {
                let due = since + grace;
                self.sleepers.due = Some(self.sleepers.due.map_or(due, |first| first.min(due)));
            }
        }
    }

    /// Scans before the worker of `turn` goes to sleep, if sleeping workers are replaced immediately and
    /// something waits for one. Returns whether the worker now finds something to take.
    #[inline]
    pub(super) fn scan_before_sleep<S: SchedulePort>(
        &mut self,
        turn: &mut Turn,
        port: &mut S,
    ) -> bool {
        let is_left = |port: &S| port.ready() > 0 || port.unchecked() > 0 && !turn.is_refused;
        let may_find = self.loads > 0 || is_left(port);
        if !self.sleepers.replaces_at_once() || !may_find || turn.has_scanned {
            return false;
        }
        self.scan(port);
        let finds = self.workers.has_room() && is_left(port);
        turn.has_scanned = true;
        finds
    }

    fn found_asleep(
        &mut self,
        worker: WorkerNumber,
        since: Option<Moment>,
        now: Moment,
        port: &mut impl SchedulePort,
    ) {
        if self.workers.block(worker, false) {
            self.controller.rest(worker);
            self.take_back(worker, port);
            port.presume_asleep(worker, true);
            self.sleepers.found_at = Some(now);
            self.sleepers.found += 1;
            let is_long = match since {
                Some(since) => self.sleepers.sleeps(worker, since, now, true),
                None => {
                    self.sleepers.unrecorded_at = Some(now);
                    true
                }
            };
            if is_long {
                advise(&mut self.advice, &mut self.sleepers.long_sleeps, (since, now), port);
            }
        }
    }

    /// Counts `worker`, which was found asleep, as running again.
    pub(super) fn found_awake(&mut self, worker: WorkerNumber, port: &mut impl SchedulePort) {
        port.presume_asleep(worker, false);
        self.sleepers.woke(worker);
        self.workers.unblock(worker);
    }

    /// Counts workers again that were found asleep but are awake according to their sleep records. If
    /// there are many, only if it [is due](Sleepers::recount_at). Workers that have returned to the
    /// port are counted already.
    #[inline]
    pub(super) fn recount(&mut self, port: &mut impl SchedulePort) {
        let presumed = self.workers.presumed_blocked();
        if presumed > 0
            && self.sleepers.observers > 0
            && (presumed <= FEW || port.now() >= self.sleepers.recount_at)
        {
            self.recount_all(port);
        }
    }

    /// Does that, however many there are. Also notes which sleeps are long.
    #[inline(never)]
    pub(crate) fn recount_all(&mut self, port: &mut impl SchedulePort) {
        let now = port.now();
        self.sleepers.recount_at = now + TICK;
        for worker in 0..self.loaded.len() {
            if self.workers.status(worker) != Status::FoundAsleep {
                continue;
            }
            match port.presence(worker) {
                Some(Presence::Awake) => self.found_awake(worker, port),
                Some(Presence::Asleep { since })
                    if self.sleepers.brief[worker]
                        && self.sleepers.sleeps(worker, since, now, false) =>
                {
                    let slept = (Some(since), now);
                    advise(&mut self.advice, &mut self.sleepers.long_sleeps, slept, port);
                }
                _ => {}
            }
        }
    }

    /// Returns whether it is time to ask the system again about workers that were found asleep.
    #[inline]
    pub(super) fn may_requery(&mut self, port: &impl SchedulePort) -> bool {
        self.workers.presumed_blocked() > 0 && self.sleepers.may_requery(port)
    }

    /// Adds the questions about workers that were found asleep and have no sleep record.
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

    /// Applies the answer to `query`: the worker's processor time `ran` and whether it sleeps, if
    /// known. `is_observed`: the worker is observed from now on.
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
                self.found_asleep(worker, None, now, port);
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
