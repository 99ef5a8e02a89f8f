//! How many packets a thread should take at a time if it cannot return them to the queue.
//!
//! If a worker sleeps or is stuck, its remaining packets go to an idle worker. Packets that a
//! caller has moved into its own memory cannot. So if workers have recently slept for long or been
//! stuck, such a caller takes one packet at a time, and gradually more while no worker does so again.

use std::time::Duration;

use super::{Moment, WorkerNumber};

/// The highest limit. Each limit is four times the previous one.
const MOST: u32 = 64;

/// The limit rises after this time without a worker that was asleep or stuck. If a rise was too
/// early, the time is quadrupled, up to the second value. After that long without such a worker, it
/// is reset to the first value.
const CALM: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(64)];

/// How often, at most, the port checks for stuck workers.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// A worker that is still away this long after it was expected back may be stuck.
const AWAY: Duration = Duration::from_millis(5);

/// If it has also run for this long since a thread first asked about it, its handlers compute. A
/// worker that was preempted has run for less: it returns as soon as it has handled what it took.
const COMPUTES: Duration = Duration::from_millis(3);

/// A worker that is away for this long is stuck, even if it was preempted. Its absence may have been
/// noticed too late to tell.
const LONG: Duration = Duration::from_millis(20);

/// The absence of a worker that took packets and has not returned for a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Absence {
    pub(crate) worker: WorkerNumber,
    /// When it was expected back.
    pub(super) since: Moment,
    /// Its processor time when the absence was noticed, if the system reports that.
    ran: Option<Duration>,
    is_stuck: bool,
}

impl Absence {
    /// Finds out at `now` whether the worker is stuck. `ran` is its processor time, and `asleep`
    /// asks the system whether it sleeps; `None`: the system does not report this.
    ///
    /// On a busy machine a worker may be preempted for longer than [`AWAY`]. That says nothing
    /// about its handlers.
    pub(crate) fn judge(
        &mut self,
        now: Moment,
        ran: Option<Duration>,
        asleep: impl FnOnce() -> Option<bool>,
    ) {
        let before = *self.ran.get_or_insert(ran.unwrap_or_default());
        let computes = ran.is_none_or(|ran| ran.saturating_sub(before) >= COMPUTES);
        let away = now.since(self.since);
        self.is_stuck =
            away >= LONG || away >= AWAY && (computes || asleep().is_none_or(|asleep| asleep));
    }
}

/// The limit on the number of packets, guarded by the port's lock.
#[derive(Debug)]
pub(crate) struct Advice {
    room: u32,
    /// When a worker was last found asleep or stuck, or when the limit last rose.
    at: Moment,
    /// How long the limit stays; zero if it was never lowered.
    calm: Duration,
    /// The absences at the last look.
    absences: Vec<Absence>,
}

impl Advice {
    /// No limit.
    pub(crate) const ALL: u32 = u32::MAX;

    pub(crate) fn new() -> Self {
        let absences = Vec::new();
        Self { room: Self::ALL, at: Moment::ZERO, calm: Duration::ZERO, absences }
    }

    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    /// Lowers the limit to one, because workers sleep for long or one is stuck.
    pub(crate) fn lower(&mut self, now: Moment) {
        if self.calm.is_zero() || now.since(self.at) >= CALM[1] {
            self.calm = CALM[0];
        } else if self.room > 1 {
            self.calm = (4 * self.calm).min(CALM[1]);
        }
        self.room = 1;
        self.at = now;
    }

    /// Lowers the limit a little, because a worker that took several packets has not returned for a
    /// while and may be stuck.
    pub(crate) fn suspect(&mut self, now: Moment) {
        if self.room == Self::ALL {
            if now.since(self.at) >= CALM[1] {
                // Earlier events no longer matter.
                self.calm = Duration::ZERO;
            }
            self.room = MOST;
            self.at = now;
        }
    }

    /// Returns the absences to ask about, one for each worker that is `away` at `now`, with the
    /// time at which it was expected back.
    pub(crate) fn absences(
        &self,
        now: Moment,
        away: impl Iterator<Item = (WorkerNumber, Moment)>,
    ) -> Vec<Absence> {
        if now.since(self.at) < LOOK {
            return Vec::new();
        }
        let absence = |(worker, since)| {
            let is_known = |it: &&Absence| it.worker == worker && it.since == since;
            let known = self.absences.iter().find(is_known);
            Absence { worker, since, ran: known.and_then(|it| it.ran), is_stuck: false }
        };
        away.map(absence).collect()
    }

    /// Raises the limit if it is time to. If a worker is stuck with its packets, according to the
    /// `absences`, the limit goes down.
    pub(crate) fn look(&mut self, now: Moment, absences: Vec<Absence>) {
        self.absences = absences;
        let calm = now.since(self.at);
        if self.absences.iter().any(|it| it.is_stuck) {
            self.lower(now);
        } else if calm >= self.calm.max(CALM[0]) {
            self.room = if self.room >= MOST { Self::ALL } else { self.room * 4 };
            self.at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = CALM[0];

    /// The moment this long after the beginning.
    fn at(time: Duration) -> Moment {
        Moment::ZERO + time
    }

    #[test]
    fn the_limit_goes_down_to_one_and_back_to_none() {
        let mut advice = Advice::new();
        assert_eq!(advice.room(), Advice::ALL);
        advice.lower(Moment::from_nanoseconds(5));
        advice.look(Moment::from_nanoseconds(4) + SECOND, Vec::new());
        assert_eq!(advice.room(), 1);
        let up = [1, 2, 3, 4, 5].map(|time| {
            advice.look(Moment::from_nanoseconds(5) + time * SECOND, Vec::new());
            advice.room()
        });
        assert_eq!(up, [4, 16, 64, Advice::ALL, Advice::ALL]);
    }

    #[test]
    fn the_limit_stays_where_threads_are_found_asleep_now_and_then() {
        let mut advice = Advice::new();
        for turn in 0..100 {
            advice.lower(at(turn * SECOND));
            advice.look(at(turn * SECOND + SECOND / 2), Vec::new());
        }
        assert_eq!(advice.room(), 1);
    }

    #[test]
    fn the_limit_rises_later_each_time_that_it_was_too_soon() {
        let mut advice = Advice::new();
        let mut now = Moment::ZERO;
        let pauses = [(); 5].map(|()| {
            advice.lower(now);
            let lowered = now;
            while advice.room() == 1 {
                now += SECOND;
                advice.look(now, Vec::new());
            }
            now.since(lowered).as_secs()
        });
        assert_eq!(pauses, [1, 4, 16, 64, 64]);
        (0..4).for_each(|_| {
            now += CALM[1];
            advice.look(now, Vec::new());
        });
        assert_eq!(advice.room(), Advice::ALL);
        for is_suspected in [false, true] {
            let mut advice = Advice { absences: Vec::new(), ..advice };
            let now = now + CALM[1];
            if is_suspected {
                advice.suspect(now);
            }
            advice.lower(now);
            advice.look(now + SECOND, Vec::new());
            assert_eq!(advice.room(), 4, "it was long ago");
        }
    }

    /// The worker took packets and was expected back at `since`. It has this processor time at `now`.
    fn look(advice: &mut Advice, since: Moment, now: Moment, ran: Option<Duration>, sleeps: bool) {
        let mut absences = advice.absences(now, [(0, since)].into_iter());
        absences.iter_mut().for_each(|it| it.judge(now, ran, || Some(sleeps)));
        advice.look(now, absences);
    }

    #[test]
    fn a_thread_that_may_be_stuck_is_asked_about_before_much_is_done() {
        let mut advice = Advice::new();
        advice.suspect(Moment::ZERO);
        assert_eq!(advice.room(), MOST);
        let away = || [(0, Moment::ZERO)].into_iter();
        assert!(advice.absences(at(LOOK) - Duration::from_nanos(1), away()).is_empty(), "too soon");
        assert_eq!(advice.absences(at(LOOK), away()).len(), 1);
        advice.look(at(LOOK), Vec::new());
        assert_eq!(advice.room(), MOST);
        look(&mut advice, Moment::ZERO, at(SECOND), None, false);
        assert_eq!(advice.room(), 1);
        advice.suspect(at(SECOND));
        advice.look(at(2 * SECOND), Vec::new());
        assert_eq!(advice.room(), 4, "it was known already");
        look(&mut advice, Moment::ZERO, at(2 * SECOND + LOOK), None, false);
        assert_eq!(advice.room(), 1);
    }

    /// Returns the limit after one look per millisecond at a worker that is away. It runs for this
    /// part of the time. Otherwise it `sleeps`, or waits for a processor.
    fn room_after(millis: u32, part: f64, sleeps: bool) -> u32 {
        let mut advice = Advice::new();
        advice.suspect(Moment::ZERO);
        for time in 1..=millis {
            let ran = SECOND + (time * LOOK).mul_f64(part);
            look(&mut advice, Moment::ZERO, at(time * LOOK), Some(ran), sleeps);
        }
        advice.room()
    }

    #[test]
    fn a_thread_is_stuck_if_it_computes_or_sleeps() {
        assert_eq!([4, 5].map(|millis| room_after(millis, 1.0, false)), [MOST, 1]);
        assert_eq!([4, 5].map(|millis| room_after(millis, 0.0, true)), [MOST, 1]);
        // It shares its processor with another thread.
        assert_eq!([6, 7].map(|millis| room_after(millis, 0.5, false)), [MOST, 1]);
    }

    #[test]
    fn a_thread_that_is_asked_about_late_is_stuck_if_it_was_away_for_long() {
        for (millis, room) in [(19, MOST), (20, 1)] {
            let mut advice = Advice::new();
            advice.suspect(Moment::ZERO);
            look(&mut advice, Moment::ZERO, at(millis * LOOK), Some(millis * LOOK), false);
            assert_eq!(advice.room(), room);
        }
    }

    #[test]
    fn a_thread_that_waits_for_a_processor_is_not_stuck() {
        assert_eq!(room_after(19, 0.0, false), MOST);
        // Absences of ten milliseconds each, in which it runs for a quarter of the time.
        let mut advice = Advice::new();
        advice.suspect(Moment::ZERO);
        for time in 1..100 {
            let since = at((time / 10) * 10 * LOOK);
            look(&mut advice, since, at(time * LOOK), Some((time / 4) * LOOK), false);
        }
        assert_eq!(advice.room(), MOST);
    }
}
