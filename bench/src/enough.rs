//! How many rounds are taken: a usual number of them, and more where the processors were moved so often that some
//! ratio has too few rounds in which they were as far apart for both. A comparison of two builds takes more until the
//! intervals are narrow.

use std::time::{Duration, Instant};

use crate::compare;
use crate::report::{Row, too_few};

/// How many rounds a cell takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Amount {
    /// The minimum.
    pub(crate) least: usize,
    /// Additional rounds for comparable ones may start until then; none if it is `None`.
    pub(crate) until: Option<Instant>,
    /// More until the intervals are narrow, up to this number in all.
    pub(crate) narrow_or: Option<usize>,
}

impl Amount {
    /// This number, and no more.
    pub(crate) const fn exactly(rounds: usize) -> Amount {
        Amount { least: rounds, until: None, narrow_or: None }
    }

    /// Whether another round follows after that many, with results `rows`.
    pub(crate) fn goes_on(self, rounds: usize, rows: &[Row], compared: &str) -> bool {
        let is_time = || self.until.is_some_and(|until| Instant::now() < until);
        let would_help = || match self.narrow_or {
            None => !too_few(rows, compared).is_empty(),
            Some(most) => rounds < most && !compare::is_narrow(rows, compared),
        };
        rounds < self.least || (is_time() && would_help())
    }
}

/// Until when a run may take more rounds than usual.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(Option<Instant>);

impl Limit {
    /// A run that starts now takes no more rounds than usual after this time; without a time,
    /// never.
    pub(crate) fn new(time: Option<Duration>) -> Limit {
        Limit(time.and_then(|time| Instant::now().checked_add(time)))
    }

    /// The time until which a cell may take more rounds, if the later measurements take `rest`.
    pub(crate) fn before(self, rest: Duration) -> Option<Instant> {
        self.0.and_then(|end| end.checked_sub(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::APART;

    /// Two rows with that many rounds. In the first `near` of them the processors were equally far
    /// apart for both.
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
        let amount = |until| Amount { until, ..Amount::exactly(9) };
        assert!(amount(None).goes_on(8, &rows(8, 8), "cpu"));
        assert!(!amount(later).goes_on(9, &rows(9, 6), "cpu"));
        assert!(amount(later).goes_on(9, &rows(9, 5), "cpu"));
        assert!(!amount(None).goes_on(9, &rows(9, 5), "cpu"));
        assert!(!amount(Some(Instant::now())).goes_on(9, &rows(9, 5), "cpu"));
    }

    #[test]
    fn a_comparison_takes_rounds_until_the_interval_is_narrow() {
        let until = Instant::now().checked_add(Duration::from_secs(1000));
        let amount = Amount { until, narrow_or: Some(20), ..Amount::exactly(7) };
        let narrow = rows(7, 7);
        assert!(amount.goes_on(6, &narrow, "cpu"));
        assert!(!amount.goes_on(7, &narrow, "cpu"));
        let mut wide = rows(19, 19);
        wide[1].quantities[0].values[..9].fill(Some(2.0));
        assert!(amount.goes_on(19, &wide, "cpu"));
        assert!(!amount.goes_on(20, &wide, "cpu"));
        assert!(!Amount { until: None, ..amount }.goes_on(19, &wide, "cpu"));
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
