//! Finds out which of the threads that are counted sleep in the kernel without having said so.
//!
//! Two ways: the scheduler's own records of a thread that is *observed*, which are read without a call
//! by whoever comes to the port and by the watching thread; and, for the others, a question to the
//! system by the watching thread, about threads that have made no progress since its last tick.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::seat::Seat;
use super::watch::TICK;
use super::{Engine, Member, Shared};
use crate::detection::BlockDetection;
use crate::state::advice::Advice;
use crate::state::facts::Presence;
use crate::state::seats::Status;
use crate::sync::MutexGuard;

/// Who sleeps no longer than this keeps its place: to wake another thread costs as much.
const GRACE: Duration = Duration::from_micros(100);

/// For so long after a thread was found asleep, others are thought likely to follow.
const LIKELY: Duration = Duration::from_millis(100);

/// What is known of those who sleep; guarded by the engine's lock.
#[derive(Debug, Default)]
pub(super) struct Sleepers {
    /// Seats whose threads are observed.
    pub(super) observed: usize,
    /// When one was last found asleep.
    found_at: Option<Duration>,
    /// When the system was last asked about those who were found asleep.
    asked_at: Duration,
    /// How many were found asleep so far.
    pub(super) found: u64,
    /// When the first of those who had just begun to sleep at the last look will have slept for long
    /// enough.
    due: Option<Duration>,
}

impl Engine {
    /// How long the watching thread may look away, or leave the port to those who run: less than usual
    /// where they have been found to sleep.
    pub(super) fn until_next_look(shared: &Shared, now: Duration) -> Duration {
        let Sleepers { observed, found_at, due, .. } = shared.sleepers;
        let is_likely = observed > 0 && found_at.is_some_and(|found| now < found + LIKELY);
        if !is_likely {
            return TICK;
        }
        due.filter(|due| now < *due).map_or(TICK / 4, |due| (due - now).min(TICK / 4))
    }

    /// Whether any thread may be found asleep at all.
    pub(super) fn detects(&self) -> bool {
        self.detection != BlockDetection::Announced
    }

    /// Stops counting the running threads whose records say that they sleep.
    #[inline]
    pub(super) fn glance(&self, shared: &mut Shared) {
        if shared.sleepers.observed > 0 {
            self.glance_at_all(shared);
        }
    }

    #[inline(never)]
    fn glance_at_all(&self, shared: &mut Shared) {
        let mut now = None;
        shared.sleepers.due = None;
        for number in 0..shared.members.len() {
            if shared.seats.status(number) != Status::Running {
                continue;
            }
            let Some(other) = &shared.members[number] else { continue };
            let Some(Presence::Asleep { since }) = other.thread.glance() else { continue };
            let now = *now.get_or_insert_with(|| self.backend.now());
            if now.saturating_sub(since) >= GRACE {
                let other = Arc::clone(&other.seat);
                self.found_asleep(shared, &other, now);
            } else {
                let (due, first) = (since + GRACE, shared.sleepers.due);
                shared.sleepers.due = Some(first.map_or(due, |first| first.min(due)));
            }
        }
    }

    fn found_asleep(&self, shared: &mut Shared, seat: &Seat, now: Duration) {
        if shared.seats.block(seat.number, false) {
            shared.crew.rest(seat.number);
            self.take_back(shared, seat);
            seat.presumed_blocked.store(true, Relaxed);
            shared.sleepers.found_at = Some(now);
            shared.sleepers.found += 1;
            self.advise(shared, now, Advice::lower);
        }
    }

    /// Asks the system, without the lock, whether a running thread that makes no progress sleeps.
    /// One that does will be observed from now on.
    pub(super) fn examine<'e>(
        &'e self,
        shared: MutexGuard<'e, Shared>,
        member: &Member,
        progress: u32,
    ) -> MutexGuard<'e, Shared> {
        drop(shared);
        let Member { seat, thread } = member;
        let asleep = thread.asleep() == Some(true);
        let observed = asleep && self.detection == BlockDetection::Switches && thread.observe();
        let mut shared = self.lock();
        if seat.left.load(Relaxed) {
            return shared;
        }
        if observed {
            Self::count_observed(&mut shared, seat);
        }
        if asleep && seat.progress.load(Relaxed) == progress {
            let now = self.backend.now();
            self.found_asleep(&mut shared, seat, now);
        }
        shared
    }

    /// The thread of `seat` is observed.
    pub(super) fn count_observed(shared: &mut Shared, seat: &Seat) {
        if !seat.observed.swap(true, Relaxed) {
            shared.sleepers.observed += 1;
        }
    }

    /// Counts those again who were found asleep and whose records say that they are awake. One that
    /// has come back to the port has said so itself.
    #[inline]
    pub(super) fn recount(shared: &mut Shared) {
        if shared.seats.presumed_blocked() > 0 && shared.sleepers.observed > 0 {
            Self::recount_all(shared);
        }
    }

    #[inline(never)]
    fn recount_all(shared: &mut Shared) {
        for number in 0..shared.members.len() {
            if shared.seats.status(number) != Status::FoundAsleep {
                continue;
            }
            let Some(other) = &shared.members[number] else { continue };
            if other.thread.glance() == Some(Presence::Awake) {
                other.seat.presumed_blocked.store(false, Relaxed);
                shared.seats.unblock(number);
            }
        }
    }

    /// Whether it is time to ask the system again about those who were found asleep.
    #[inline]
    pub(super) fn may_inspect(&self, shared: &mut Shared) -> bool {
        shared.seats.presumed_blocked() > 0 && self.may_inspect_now(shared)
    }

    #[inline(never)]
    fn may_inspect_now(&self, shared: &mut Shared) -> bool {
        let now = self.backend.now();
        if now < shared.sleepers.asked_at + TICK {
            return false;
        }
        shared.sleepers.asked_at = now;
        true
    }

    /// Asks the system, without the lock, about those who were found asleep and have no records.
    #[inline(never)]
    pub(super) fn inspect<'e>(
        &'e self,
        mut shared: MutexGuard<'e, Shared>,
    ) -> MutexGuard<'e, Shared> {
        Self::recount(&mut shared);
        if shared.seats.presumed_blocked() == 0 {
            return shared;
        }
        for number in 0..shared.members.len() {
            if shared.seats.status(number) != Status::FoundAsleep {
                continue;
            }
            let Some(other) = shared.members[number].clone() else { continue };
            if other.thread.glance().is_some() {
                continue;
            }
            drop(shared);
            let awake = other.thread.asleep() == Some(false);
            shared = self.lock();
            if awake
                && !other.seat.left.load(Relaxed)
                && shared.seats.status(number) == Status::FoundAsleep
            {
                other.seat.presumed_blocked.store(false, Relaxed);
                shared.seats.unblock(number);
            }
        }
        shared
    }
}
