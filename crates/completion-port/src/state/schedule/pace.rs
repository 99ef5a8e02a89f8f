//! How often a thread looks for threads that sleep, where it has to ask the system about each of them.
//!
//! A thread that sleeps keeps its seat until a look finds it, and each look takes processor time.
//! So a look that finds one makes the time to the next look much shorter, and a look that finds
//! none makes it a little longer. However often threads fall asleep, that costs at most twice as much
//! as the best period for it would, looks and sleepers that are found late taken together.
//!
//! * No more than a tick passes between two looks.
//! * No less than [`SHORTEST`] passes, and no less than [`REST`] times what the last look has
//!   taken, up to a tick. So looking takes no more than a ninth of the time of one processor, as
//!   long as it can be done in an eighth of a tick at all.
//! * Where no look finds a thread asleep, a tick passes between two looks again after 43 of them.

use std::time::Duration;

use super::watchdog::TICK;

/// The shortest time between two looks. A thread is asked about if it has made no progress from
/// one look to the next. So one that sleeps for less than this keeps its seat: a wake costs as much.
pub(super) const SHORTEST: Duration = Duration::from_micros(75);

/// A look that finds a sleeper makes the time to the next one so many times shorter.
const SHORTER: u32 = 4;

/// A look that finds none makes it longer by one part in so many.
const LONGER: u32 = 16;

/// After a look that has taken some time, so many times as long passes until the next one.
const REST: u32 = 8;

/// The time between looks.
#[derive(Debug)]
pub(super) struct Pace {
    period: Duration,
    /// What the last look has taken demands at least so much.
    rest: Duration,
    /// The system has said of a thread that it sleeps, since the last look ended.
    has_found: bool,
}

impl Default for Pace {
    fn default() -> Self {
        Self { period: TICK, rest: Duration::ZERO, has_found: false }
    }
}

impl Pace {
    /// How long after a look the next one comes.
    pub(super) fn period(&self) -> Duration {
        self.period.max(self.rest).min(TICK)
    }

    /// Whether looks have lately found threads asleep, so that they come sooner than a tick after
    /// each other unless they take too long.
    #[inline]
    pub(super) fn hurries(&self) -> bool {
        self.period < TICK
    }

    /// The system has said of a thread that it sleeps.
    pub(super) fn found(&mut self) {
        self.has_found = true;
    }

    /// A look has ended. `took`: for how long it was under way, also if it was interrupted.
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

    /// A look that takes no time, and finds a thread asleep or not.
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

    /// Threads fall asleep every so often, and the next look but one finds each. What looks cost with
    /// the wakes for them, and what threads cost that keep seats while they sleep, is together at most
    /// twice what it is with the best period that there is.
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
            // Each sleeper is found after one and a half of a period in the middle.
            let period = (f64::from(between) * LOOK / 1.5).sqrt().clamp(75.0, 1_000.0);
            let best = LOOK / period + 1.5 * period / f64::from(between);
            assert!(cost < 2.0 * best, "one in {between} us: {cost:.4}, {best:.4} at best");
        }
    }

    proptest! {
        /// Whatever the looks find and take: the time to the next one is within its bounds.
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
