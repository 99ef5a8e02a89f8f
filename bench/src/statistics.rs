//! Medians, and the interval in which the true median lies.
//!
//! The interval comes from the order statistics of the sample: the median of the distribution is
//! between the k-th smallest and the k-th largest of n independent values with a probability that
//! is the same for every distribution (a sum of binomial coefficients). It needs six values.

/// The fewest values that have an interval.
pub(crate) const ENOUGH: usize = 6;

/// A median with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Estimate {
    pub(crate) median: f64,
    /// The bounds of the interval of at least 95 %; `None` with fewer than six values.
    pub(crate) interval: Option<(f64, f64)>,
}

impl Estimate {
    /// The estimate for values divided by this number.
    pub(crate) fn over(self, parts: f64) -> Estimate {
        let interval = self.interval.map(|(low, high)| (low / parts, high / parts));
        Estimate { median: self.median / parts, interval }
    }
}

/// The median of the values, and its interval; `None` without values.
pub(crate) fn estimate(values: impl IntoIterator<Item = f64>) -> Option<Estimate> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    let middle = sorted.get(count / 2)?;
    let median =
        if count % 2 == 1 { *middle } else { f64::midpoint(sorted[count / 2 - 1], *middle) };
    let interval = rank(count).map(|rank| (sorted[rank - 1], sorted[count - rank]));
    Some(Estimate { median, interval })
}

/// The estimate of the values that are present.
pub(crate) fn estimate_present(values: &[Option<f64>]) -> Option<Estimate> {
    estimate(values.iter().flatten().copied())
}

/// The estimate of the ratios `above / below`, round by round.
pub(crate) fn paired_ratio(above: &[Option<f64>], below: &[Option<f64>]) -> Option<Estimate> {
    let ratios = above.iter().zip(below).filter_map(|(above, below)| {
        let ratio = (*above)? / (*below)?;
        ratio.is_finite().then_some(ratio)
    });
    estimate(ratios)
}

/// The estimate of the differences `above - below`, round by round.
pub(crate) fn paired_difference(above: &[Option<f64>], below: &[Option<f64>]) -> Option<Estimate> {
    estimate(above.iter().zip(below).filter_map(|(above, below)| Some((*above)? - (*below)?)))
}

/// The largest k so that the median lies between the k-th smallest and the k-th largest of `count`
/// values with a probability of 95 % or more.
fn rank(count: usize) -> Option<usize> {
    // The probability that exactly `below` of the values are smaller than the median; the two tails
    // that are left out are equal.
    let half = 0.5_f64.powi(i32::try_from(count).ok()?);
    let (mut term, mut tail, mut rank) = (half, half, None);
    for below in 0..count / 2 {
        if 2.0 * tail > 0.05 {
            break;
        }
        rank = Some(below + 1);
        #[allow(clippy::cast_precision_loss, reason = "these are numbers of rounds")]
        let factor = (count - below) as f64 / (below + 1) as f64;
        term *= factor;
        tail += term;
    }
    rank
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_or_between_the_two_in_the_middle() {
        assert_eq!(estimate([]), None);
        assert_eq!(estimate([3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(estimate([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }

    #[test]
    fn differences_are_of_rounds_that_have_both() {
        let (above, below) =
            ([Some(5.0), None, Some(9.0), Some(8.0)], [Some(1.0), Some(1.0), None, Some(2.0)]);
        let difference = paired_difference(&above, &below).unwrap();
        assert_eq!(difference, Estimate { median: 5.0, interval: None });
        let each = Estimate { median: 6.0, interval: Some((4.0, 10.0)) }.over(2.0);
        assert_eq!(each, Estimate { median: 3.0, interval: Some((2.0, 5.0)) });
    }

    /// From the tables of the sign test.
    #[test]
    fn the_ranks_are_those_of_the_tables() {
        for (count, expected) in [
            (5, None),
            (6, Some(1)),
            (8, Some(1)),
            (9, Some(2)),
            (11, Some(2)),
            (12, Some(3)),
            (20, Some(6)),
            (25, Some(8)),
            (50, Some(18)),
            (100, Some(40)),
        ] {
            assert_eq!(rank(count), expected, "{count} values");
        }
    }

    #[test]
    fn the_interval_is_taken_from_the_sorted_values() {
        let values = (1..=20).rev().map(f64::from);
        assert_eq!(estimate(values).unwrap().interval, Some((6.0, 15.0)));
        assert_eq!(estimate(vec![1.0; ENOUGH - 1]).unwrap().interval, None);
        assert_eq!(estimate(vec![1.0; ENOUGH]).unwrap().interval, Some((1.0, 1.0)));
    }

    /// Drawn from a known distribution, the interval holds the median about 95 times of 100.
    #[test]
    fn the_interval_holds_the_true_median_as_often_as_it_says() {
        let mut state = 88_172_645_463_325_252_u64;
        let mut uniform = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            f64::from(u32::try_from(state >> 32).unwrap()) / f64::from(u32::MAX)
        };
        let held = (0..2000)
            .filter(|_| {
                let sample: Vec<f64> = (0..20).map(|_| uniform().powi(3)).collect();
                let (low, high) = estimate(sample).unwrap().interval.unwrap();
                low <= 0.125 && 0.125 <= high
            })
            .count();
        assert!((1880..=1960).contains(&held), "{held} of 2000");
    }

    #[test]
    fn ratios_are_made_round_by_round_and_only_where_both_are_there() {
        let above = [Some(2.0), None, Some(9.0), Some(8.0)];
        let below = [Some(1.0), Some(5.0), Some(3.0), None];
        assert_eq!(paired_ratio(&above, &below).unwrap().median, 2.5);
        assert_eq!(paired_ratio(&[Some(1.0)], &[Some(0.0)]), None);
        assert_eq!(estimate_present(&above).unwrap().median, 8.0);
    }
}
