//! How many packets a thread takes at a time if it cannot give any back.
//!
//! A batch goes to an idle thread if the thread that has it sleeps or is stuck. Packets that a
//! caller has moved into memory of its own cannot. So where threads have slept or been stuck
//! lately, such a caller takes a single packet at a time, and step by step more while they do not.

use std::time::Duration;

use super::Moment;

/// The highest limit. Each one is four times the one before.
const MOST: u32 = 64;

/// The limit rises if no thread has been found asleep or stuck for so long. That time becomes four
/// times as long whenever the rise was too soon, but not longer than the second number. If nothing
/// has happened for that long, it is the first number again.
const CALM: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(64)];

/// How often, at most, the port asks whether a thread is still stuck.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// A thread that does not come back for so long is stuck, and not just preempted. In nanoseconds,
/// as the crew counts.
pub(crate) const AWAY: u64 = 6_000_000;

/// What a thread takes, at most. Guarded by the port's lock.
#[derive(Debug)]
pub(crate) struct Advice {
    room: u32,
    /// When a thread was last found asleep or stuck, or the limit was last raised.
    at: Moment,
    /// How long it stays as it is; zero if it was never lowered.
    calm: Duration,
}

impl Advice {
    /// There is no limit.
    pub(crate) const ALL: u32 = u32::MAX;

    pub(crate) fn new() -> Self {
        Self { room: Self::ALL, at: Moment::ZERO, calm: Duration::ZERO }
    }

    /// The limit.
    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    /// A thread has been found asleep.
    pub(crate) fn lower(&mut self, now: Moment) {
        if self.calm.is_zero() || now.since(self.at) >= CALM[1] {
            self.calm = CALM[0];
        } else if self.room > 1 {
            self.calm = (4 * self.calm).min(CALM[1]);
        }
        self.room = 1;
        self.at = now;
    }

    /// A thread that took several packets has not come back for a while: perhaps it is stuck.
    pub(crate) fn suspect(&mut self, now: Moment) {
        if self.room == Self::ALL {
            if now.since(self.at) >= CALM[1] {
                // What was before is forgotten.
                self.calm = Duration::ZERO;
            }
            self.room = MOST;
            self.at = now;
        }
    }

    /// Raises the limit if it is time to. Now and then it is asked whether a thread `is_away` with what it
    /// took; if so, the limit goes down.
    pub(crate) fn look(&mut self, now: Moment, is_away: impl FnOnce() -> bool) {
        let calm = now.since(self.at);
        if calm >= LOOK && is_away() {
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

    /// So long after the beginning.
    fn at(time: Duration) -> Moment {
        Moment::ZERO + time
    }

    #[test]
    fn the_limit_goes_down_to_one_and_back_to_none() {
        let mut advice = Advice::new();
        assert_eq!(advice.room(), Advice::ALL);
        advice.lower(Moment::from_nanoseconds(5));
        advice.look(Moment::from_nanoseconds(4) + SECOND, || false);
        assert_eq!(advice.room(), 1);
        let up = [1, 2, 3, 4, 5].map(|time| {
            advice.look(Moment::from_nanoseconds(5) + time * SECOND, || false);
            advice.room()
        });
        assert_eq!(up, [4, 16, 64, Advice::ALL, Advice::ALL]);
    }

    #[test]
    fn the_limit_stays_where_threads_are_found_asleep_now_and_then() {
        let mut advice = Advice::new();
        for turn in 0..100 {
            advice.lower(at(turn * SECOND));
            advice.look(at(turn * SECOND + SECOND / 2), || false);
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
                advice.look(now, || false);
            }
            now.since(lowered).as_secs()
        });
        assert_eq!(pauses, [1, 4, 16, 64, 64]);
        (0..4).for_each(|_| {
            now += CALM[1];
            advice.look(now, || false);
        });
        assert_eq!(advice.room(), Advice::ALL);
        for is_suspected in [false, true] {
            let mut advice = Advice { ..advice };
            let now = now + CALM[1];
            if is_suspected {
                advice.suspect(now);
            }
            advice.lower(now);
            advice.look(now + SECOND, || false);
            assert_eq!(advice.room(), 4, "it was long ago");
        }
    }

    #[test]
    fn a_thread_that_may_be_stuck_is_asked_about_before_much_is_done() {
        let mut advice = Advice::new();
        advice.suspect(Moment::ZERO);
        assert_eq!(advice.room(), MOST);
        advice.look(at(LOOK) - Duration::from_nanos(1), || panic!("it is too soon to ask"));
        advice.look(at(LOOK), || false);
        assert_eq!(advice.room(), MOST);
        advice.look(at(SECOND), || true);
        assert_eq!(advice.room(), 1);
        advice.suspect(at(SECOND));
        advice.look(at(2 * SECOND), || false);
        assert_eq!(advice.room(), 4, "it was known already");
        advice.look(at(2 * SECOND + LOOK), || true);
        assert_eq!(advice.room(), 1);
    }
}
