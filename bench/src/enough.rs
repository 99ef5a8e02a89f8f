//! How many rounds are taken: a usual number of them, and more where the processors were moved so often that some
//! ratio has too few rounds in which they were as far apart for both.

use std::time::{Duration, Instant};

use crate::report::{Row, too_few};

/// How many rounds a cell takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    /// So many in any case.
    pub(crate) least: usize,
    /// More for want of comparable ones may begin until then; none without it.
    pub(crate) until: Option<Instant>,
}

impl Amount {
    /// Whether another round follows so many, which have brought `rows`.
    pub(crate) fn goes_on(self, rounds: usize, rows: &[Row], compared: &str) -> bool {
        let is_time = || self.until.is_some_and(|until| Instant::now() < until);
        rounds < self.least || (is_time() && !too_few(rows, compared).is_empty())
    }
}

/// Until when a run may take more rounds than usual.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(Option<Instant>);

impl Limit {
    /// A run that begins now takes no more rounds than usual when this time is over; without a time it takes no
    /// more at all.
    pub(crate) fn new(time: Option<Duration>) -> Limit {
        Limit(time.and_then(|time| Instant::now().checked_add(time)))
    }

    /// Until when a cell may take more, if what is measured after it takes `rest`.
    pub(crate) fn before(self, rest: Duration) -> Option<Instant> {
        self.0.and_then(|end| end.checked_sub(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::APART;

    /// Two rows with so many rounds, in the first `near` of which the processors were as far apart for both.
    fn rows(rounds: usize, near: usize) -> Vec<Row> {
        let mut rows =
            ["ours", "mio"].map(|name| Row { contender: name.to_owned(), ..Row::default() });
        for round in 0..rounds {
            let apart = [50.0, if round < near { 50.0 } else { 500.0 }];
            for (row, apart) in rows.iter_mut().zip(apart) {
                row.push("cpu", "ns", Some(1.0));
                row.push(APART, "ns", Some(apart));
            }
        }
        rows.to_vec()
    }

    #[test]
    fn rounds_are_taken_until_they_are_enough_or_the_time_is_over() {
        let later = Instant::now().checked_add(Duration::from_secs(1000));
        let amount = |until| Amount { least: 9, until };
        assert!(amount(None).goes_on(8, &rows(8, 8), "cpu"));
        assert!(!amount(later).goes_on(9, &rows(9, 6), "cpu"));
        assert!(amount(later).goes_on(9, &rows(9, 5), "cpu"));
        assert!(!amount(None).goes_on(9, &rows(9, 5), "cpu"));
        assert!(!amount(Some(Instant::now())).goes_on(9, &rows(9, 5), "cpu"));
    }

    #[test]
    fn time_is_left_for_what_follows() {
        let limit = Limit::new(Some(Duration::from_secs(100)));
        let until = limit.before(Duration::from_secs(90)).unwrap();
        let left = until.saturating_duration_since(Instant::now());
        assert!(left <= Duration::from_secs(10) && left > Duration::ZERO, "{left:?}");
        let now = Instant::now();
        assert!(limit.before(Duration::from_secs(101)).is_none_or(|until| until <= now));
        assert_eq!(Limit::new(None).before(Duration::ZERO), None);
    }
}
