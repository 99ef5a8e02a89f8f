//! Counts latencies without allocating: log-linear, each value within 1.6 % of where it is counted.

use std::time::Duration;

/// Each power of two is divided into this many parts.
const PARTS: usize = 64;
const PART_BITS: u32 = PARTS.trailing_zeros();
/// Up to 2^40 ns, which is 18 minutes; longer times are counted there.
const LARGEST: u64 = (1 << 40) - 1;
const BUCKETS: usize = bucket(LARGEST) + 1;

/// A histogram of times in nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Histogram {
    counts: Box<[u64]>,
    total: u64,
}

/// Values below 64 have a bucket each, then there are 64 buckets for each power of two.
#[allow(clippy::cast_possible_truncation, reason = "the result is at most BUCKETS - 1")]
const fn bucket(value: u64) -> usize {
    if value < PARTS as u64 {
        return value as usize;
    }
    let shift = value.ilog2() - PART_BITS;
    (shift as usize) * PARTS + (value >> shift) as usize
}

/// The middle of the values that are counted in a bucket.
fn middle(bucket: usize) -> f64 {
    if bucket < 2 * PARTS {
        return f64::from(u32::try_from(bucket).unwrap_or(u32::MAX));
    }
    let shift = u32::try_from(bucket / PARTS - 1).unwrap_or(u32::MAX);
    let first = u32::try_from(bucket % PARTS + PARTS).unwrap_or(u32::MAX);
    (f64::from(first) + 0.5) * f64::from(shift).exp2()
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: vec![0; BUCKETS].into(), total: 0 }
    }
}

impl Histogram {
    pub(crate) fn clear(&mut self) {
        self.counts.fill(0);
        self.total = 0;
    }

    /// How many values it has.
    #[cfg(test)]
    pub(crate) fn count(&self) -> u64 {
        self.total
    }

    pub(crate) fn record(&mut self, time: Duration) {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(LARGEST).min(LARGEST);
        self.counts[bucket(nanoseconds)] += 1;
        self.total += 1;
    }

    /// Records a time, and those of hypothetical requests sent each millisecond in between: a
    /// closed loop sends least often while it waits longest, and so hides its waits.
    pub(crate) fn record_as_if_asked_each_millisecond(&mut self, time: Duration) {
        self.record(time);
        let mut left = time;
        while let Some(rest) = left.checked_sub(Duration::from_millis(1)) {
            self.record(rest);
            left = rest;
        }
    }

    /// The time in nanoseconds that this many of 1000 values do not exceed; `None` if it is empty.
    pub(crate) fn per_mille(&self, share: u64) -> Option<f64> {
        if self.total == 0 {
            return None;
        }
        let wanted = (self.total * share).div_ceil(1000).max(1);
        let mut seen = 0;
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(middle(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_one_another_without_gap() {
        let mut last = 0;
        for value in (0..100_000).chain((17..40).map(|power| (1_u64 << power) - 1)) {
            if value < 100_000 {
                assert!(bucket(value) == last || bucket(value) == last + 1, "{value}");
                last = bucket(value);
            }
            assert!(bucket(value) <= bucket(value + 1));
            assert!(bucket(value) < BUCKETS);
        }
    }

    #[test]
    fn a_value_is_close_to_where_it_is_counted() {
        for value in [0, 1, 63, 64, 65, 127, 128, 1000, 12_345, 5_000_000, 3_000_000_000] {
            let (true_value, found) = (Duration::from_nanos(value), middle(bucket(value)));
            let off = (found - true_value.as_secs_f64() * 1e9).abs();
            assert!(off <= 0.016 * found, "{value} is counted at {found}");
        }
    }

    #[test]
    fn shares_are_counted_from_the_smallest() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.per_mille(500), None);
        (1..=60).for_each(|n| histogram.record(Duration::from_nanos(n)));
        assert_eq!(histogram.per_mille(500), Some(30.0));
        assert_eq!(histogram.per_mille(1000), Some(60.0));
        assert_eq!(histogram.per_mille(1), Some(1.0));
        histogram.record(Duration::from_secs(100_000));
        assert!(histogram.per_mille(1000).unwrap() > 1e12);
        histogram.clear();
        assert_eq!(histogram.per_mille(500), None);
    }

    #[test]
    fn a_long_wait_stands_for_all_who_would_have_asked_meanwhile() {
        let mut histogram = Histogram::default();
        (0..90).for_each(|_| {
            histogram.record_as_if_asked_each_millisecond(Duration::from_micros(100));
        });
        histogram.record_as_if_asked_each_millisecond(Duration::from_micros(9_500));
        assert_eq!(histogram.total, 100);
        assert!((histogram.per_mille(1000).unwrap() - 9.5e6).abs() < 2e5);
        assert!((histogram.per_mille(910).unwrap() - 0.5e6).abs() < 2e4);
    }

    #[test]
    fn one_slow_request_in_a_hundred_is_seen_at_99_9_but_not_at_99() {
        let mut histogram = Histogram::default();
        (0..990).for_each(|_| histogram.record(Duration::from_micros(50)));
        (0..10).for_each(|_| histogram.record(Duration::from_millis(5)));
        assert!((histogram.per_mille(990).unwrap() - 50e3).abs() < 1e3);
        assert!((histogram.per_mille(999).unwrap() - 5e6).abs() < 1e5);
    }
}
