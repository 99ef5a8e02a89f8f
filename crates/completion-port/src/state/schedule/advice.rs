//! How many packets a thread should take at a time if it cannot return them to the queue.
//!
//! If a worker sleeps or is stuck, its remaining packets go to an idle worker. Packets that a
//! caller has moved into its own memory cannot. So if workers have recently slept or been stuck,
//! such a caller takes one packet at a time, and gradually more while no worker does so again.

use std::time::Duration;

use super::Moment;

/// The highest limit. Each limit is four times the previous one.
const MOST: u32 = 64;

/// The limit rises after this time without a worker that was asleep or stuck. If a rise was too
/// early, the time is quadrupled, up to the second value. After that long without such a worker, it
/// is reset to the first value.
const CALM: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(64)];

/// How often, at most, the port checks for stuck workers.
pub(crate) const LOOK: Duration = Duration::from_millis(1);

/// A worker that does not return for this long is stuck rather than preempted. In nanoseconds, as
/// in the controller.
pub(crate) const AWAY: u64 = 6_000_000;

/// The limit on the number of packets, guarded by the port's lock.
#[derive(Debug)]
pub(crate) struct Advice {
    room: u32,
    /// When a worker was last found asleep or stuck, or when the limit last rose.
    at: Moment,
    /// How long the limit stays; zero if it was never lowered.
    calm: Duration,
}

impl Advice {
    /// No limit.
    pub(crate) const ALL: u32 = u32::MAX;

    pub(crate) fn new() -> Self {
        Self { room: Self::ALL, at: Moment::ZERO, calm: Duration::ZERO }
    }

    pub(crate) fn room(&self) -> u32 {
        self.room
    }

    /// Lowers the limit to one, because a worker was found asleep or stuck.
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

    /// Raises the limit if it is time to. First calls `is_away`, from time to time, to find out
    /// whether a worker is stuck with its packets. If so, the limit goes down.
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

    /// The moment this long after the beginning.
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
