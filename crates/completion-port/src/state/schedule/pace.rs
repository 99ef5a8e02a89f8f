//! How often looks search for sleeping workers if they must ask the system about each of them.
//!
//! A sleeping worker keeps its place under the concurrency value until a look finds it, and each
//! look takes processor time. So a look that finds a sleeper makes the period much shorter, and a
//! look that finds none makes it a little longer. However often workers fall asleep, the total cost
//! of looks and of sleepers found late is at most twice what it would be with the best fixed
//! period.
//!
//! * The period is at most a tick.
//! * It is at least [`SHORTEST`] and at least [`REST`] times the duration of the last look, up to a
//!   tick. So looks take at most a ninth of one processor, provided that a look takes at most an
//!   eighth of a tick.
//! * After 43 looks without a sleeper, the period is a tick again.

use std::time::Duration;

use super::watchdog::TICK;

/// The shortest period. A look asks about a worker that has made no progress since the previous
/// look. So a worker that sleeps for less than this stays counted: a wake-up costs as much.
pub(super) const SHORTEST: Duration = Duration::from_micros(75);

/// A look that finds a sleeper divides the period by this.
const SHORTER: u32 = 4;

/// A look that finds none adds this fraction to the period: one part in 16.
const LONGER: u32 = 16;

/// The pause after a look is at least this many times its duration.
const REST: u32 = 8;

/// The period of looks.
#[derive(Debug)]
pub(super) struct Pace {
    period: Duration,
    /// The shortest period that the duration of the last look permits.
    rest: Duration,
    /// The system has reported a sleeper since the last look ended.
    has_found: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self { period: TICK, rest: Duration::ZERO, has_found: false }
    }
}

impl Pace {
    /// Returns the time from one look to the next.
    pub(super) fn period(&self) -> Duration {
        self.period.max(self.rest).min(TICK)
    }

    /// Returns whether recent looks have found sleepers. The period is then shorter than a tick,
    /// unless looks take too long.
    #[inline]
    pub(super) fn hurries(&self) -> bool {
        self.period < TICK
    }

    /// Notes that the system has reported a sleeper.
    pub(super) fn found(&mut self) {
        self.has_found = true;
    }

    /// Notes that a look has ended. `took` is its total duration, including interruptions.
    pub(super) fn looked(&mut self, took: Duration) {
        self.rest = took.saturating_mul(REST);
        self.period = if std::mem::take(&mut self.has_found) {
            (self.period / SHORTER).max(SHORTEST)
        } else {
            (self.period + self.period / LONGER).min(TICK)
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MICROSECOND: Duration = Duration::from_micros(1);

    /// Makes a look that takes no time and may find a sleeper. Returns the new period.
    fn look(pace: &mut Pace, finds: bool) -> Duration {
        if finds {
            pace.found();
        }
        pace.looked(Duration::ZERO);
        pace.period()
    }

    #[test]
    fn looks_are_a_tick_apart_until_one_finds_a_thread_asleep() {
        let mut pace = Pace::default();
        for _ in 0..100 {
            assert!(!pace.hurries());
            assert_eq!(look(&mut pace, false), TICK);
        }
        assert_eq!([true; 3].map(|finds| look(&mut pace, finds)), [TICK / 4, SHORTEST, SHORTEST]);
        assert!(pace.hurries());
    }

    #[test]
    fn where_no_thread_sleeps_any_more_looks_become_rare_step_by_step() {
        let mut pace = Pace::default();
        (0..2).for_each(|_| {
            look(&mut pace, true);
        });
        let mut before = pace.period();
        let mut looks = 0;
        while pace.hurries() {
            let period = look(&mut pace, false);
            assert!(before < period && period <= before + before / 16, "{before:?} {period:?}");
            before = period;
            looks += 1;
        }
        assert_eq!((looks, before), (43, TICK));
    }

    #[test]
    fn a_look_that_takes_long_is_followed_by_a_rest_and_the_next_short_one_ends_that() {
        let mut pace = Pace::default();
        (0..2).for_each(|_| {
            look(&mut pace, true);
        });
        for (took, period) in [(50, 400), (5, 75), (500, 1000)] {
            pace.found();
            pace.looked(took * MICROSECOND);
            assert_eq!(pace.period(), period * MICROSECOND);
            assert!(pace.hurries());
        }
    }

    /// Workers fall asleep at a steady rate, and each sleeper is found by the next look but one.
    /// The total cost of looks, with their wake-ups, and of sleepers that are still counted is at
    /// most twice that of the best fixed period.
    #[test]
    fn looks_and_sleepers_that_are_found_late_cost_little_together() {
        const LOOK: f64 = 8.0;
        for between in [100_u32, 300, 500, 1_000, 2_000, 4_000, 8_000, 30_000, 100_000] {
            let mut pace = Pace::default();
            let (mut now, mut next, mut looks, mut waste) = (0.0, 0.0, 0.0, 0.0);
            let mut asleep = Vec::new();
            while now < 1e7 {
                now += pace.period().as_secs_f64() * 1e6;
                looks += 1.0;
                if !asleep.is_empty() {
                    pace.found();
                    waste += asleep.drain(..).map(|since| now - since).sum::<f64>();
                }
                while next <= now {
                    asleep.push(next);
                    next += f64::from(between);
                }
                pace.looked(Duration::ZERO);
            }
            let cost = (looks * LOOK + waste) / now;
            // On average, a sleeper is found after one and a half periods.
            let period = (f64::from(between) * LOOK / 1.5).sqrt().clamp(75.0, 1_000.0);
            let best = LOOK / period + 1.5 * period / f64::from(between);
            assert!(cost < 2.0 * best, "one in {between} us: {cost:.4}, {best:.4} at best");
        }
    }

    proptest! {
        /// Whatever looks find and however long they take, the period stays within its bounds.
        #[test]
        fn the_bounds_hold(looks in prop::collection::vec((any::<bool>(), 0_u32..300), 1..200)) {
            let mut pace = Pace::default();
            let mut in_vain = 100;
            for (finds, took) in looks {
                let took = took * MICROSECOND;
                if finds {
                    pace.found();
                }
                pace.looked(took);
                in_vain = if finds { 0 } else { in_vain + 1 };
                prop_assert!((SHORTEST..=TICK).contains(&pace.period()));
                prop_assert!(pace.period() >= TICK.min(REST * took));
                prop_assert!(in_vain == 0 || in_vain < 43 || !pace.hurries());
                prop_assert_eq!(pace.hurries(), pace.period < TICK);
            }
        }
    }
}
