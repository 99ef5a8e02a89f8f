//! The common parts of all clients that wait for answers: how long they continue, and their
//! results.

use std::time::{Duration, Instant};

use crate::histogram::Histogram;
use crate::load::Pattern;

/// How long the answers to the last requests may take.
const DRAIN: Duration = Duration::from_secs(5);

/// Clients that send requests and wait for the answers.
pub(crate) trait Ask {
    /// Sends requests for as long as `time`, and until one of them is answered; then waits for the
    /// last answers. The latencies of the answers go into `latencies`.
    ///
    /// The error is a line of text; the clients are unusable after it.
    fn run(
        &mut self,
        pattern: Pattern,
        time: Duration,
        latencies: &mut Histogram,
    ) -> Result<Tally, String>;

    /// How many clients there are.
    fn connections(&self) -> usize;
}

/// The result of a round, without the latencies. Requests of a spinning connection are not
/// included.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Requests answered until the time was over, and that time in seconds.
    pub(crate) in_time: u64,
    pub(crate) seconds: f64,
    /// Requests answered in all.
    pub(crate) answered: u64,
    /// Requests answered in time on the connection that got the fewest answers.
    pub(crate) least: u64,
}

/// How far a round has come.
pub(crate) struct Progress {
    begin: Instant,
    end: Instant,
    is_sending: bool,
    tally: Tally,
}

impl Progress {
    /// A round of this length begins.
    pub(crate) fn new(time: Duration) -> Progress {
        let begin = Instant::now();
        Progress { begin, end: begin + time, is_sending: true, tally: Tally::default() }
    }

    /// Whether a client that got an answer is to ask again.
    pub(crate) fn is_sending(&self) -> bool {
        self.is_sending
    }

    /// The maximum time to wait while that many clients have no answer; `answered` has the number
    /// of answers for each. A round without any answer in its time continues until there is one: on
    /// a busy machine the server may have been without a processor for so long.
    pub(crate) fn left(
        &mut self,
        under_way: usize,
        all: usize,
        answered: impl Iterator<Item = u64> + Clone,
    ) -> Result<Duration, String> {
        let now = Instant::now();
        if self.is_sending && now >= self.end {
            self.tally.in_time = answered.clone().sum();
            self.tally.least = answered.min().unwrap_or(0);
            self.tally.seconds = (now - self.begin).as_secs_f64();
            self.is_sending = self.tally.in_time == 0;
        }
        let deadline = self.end + DRAIN;
        if now >= deadline {
            let seconds = DRAIN.as_secs();
            return Err(format!("stalled: {under_way} of {all} without answer for {seconds} s"));
        }
        let until = if now < self.end { self.end } else { deadline };
        Ok(until.saturating_duration_since(now))
    }

    /// The result of the round; `answered` as above.
    pub(crate) fn tally(self, answered: impl Iterator<Item = u64>) -> Tally {
        Tally { answered: answered.sum(), ..self.tally }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_without_an_answer_goes_on_until_there_is_one() {
        let mut progress = Progress::new(Duration::ZERO);
        let left = progress.left(1, 1, [0].into_iter()).unwrap();
        assert!(progress.is_sending() && left > Duration::from_secs(1), "{left:?}");
        progress.left(1, 2, [3, 1].into_iter()).unwrap();
        assert!(!progress.is_sending());
        // Later answers count for no time.
        progress.left(1, 2, [4, 1].into_iter()).unwrap();
        let tally = progress.tally([4, 2].into_iter());
        assert_eq!((tally.in_time, tally.least, tally.answered), (4, 1, 6));
        assert!(tally.seconds > 0.0);
    }

    #[test]
    fn the_last_answers_may_take_so_long_and_not_longer() {
        let mut progress = Progress::new(Duration::ZERO);
        progress.end = progress.end.checked_sub(DRAIN).unwrap();
        let stalled = progress.left(1, 2, [1].into_iter()).unwrap_err();
        assert_eq!(stalled, "stalled: 1 of 2 without answer for 5 s");
    }
}
