//! A point in time, as a type that cannot be confused with a duration.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A reading of a host's clock: nanoseconds since some fixed moment, enough for 584 years.
///
/// The time between two moments is a [`Duration`], or nanoseconds in a `u64` where a policy
/// calculates with it. Sums and differences saturate at the first and last moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// The fixed moment. No clock shows an earlier one.
    pub(crate) const ZERO: Self = Self(0);

    /// Later than any other moment.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// Returns the moment this many nanoseconds after the fixed one.
    #[inline]
    pub(crate) const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Returns the nanoseconds since the fixed moment, for an atomic or for arithmetic.
    #[inline]
    pub(crate) const fn nanoseconds(self) -> u64 {
        self.0
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    #[inline]
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanoseconds_since(earlier))
    }

    /// Returns the nanoseconds since `earlier`, or zero if `earlier` is later.
    #[inline]
    pub(crate) const fn nanoseconds_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the moment this many nanoseconds later.
    #[inline]
    pub(crate) const fn after(self, nanoseconds: u64) -> Self {
        Self(self.0.saturating_add(nanoseconds))
    }

    /// Adds a duration. Returns `None` if the result is out of range.
    pub(crate) fn checked_add(self, span: Duration) -> Option<Self> {
        let nanoseconds = u64::try_from(span.as_nanos()).ok()?;
        self.0.checked_add(nanoseconds).map(Self)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;
    #[inline]
    fn add(self, span: Duration) -> Self {
        self.after(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl AddAssign<Duration> for Moment {
    #[inline]
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;
    #[inline]
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const SOME: Moment = Moment::from_nanoseconds(5_000_000_000);
    const LAST: Moment = Moment(u64::MAX);

    #[test]
    fn a_span_leads_from_one_moment_to_the_other() {
        let later = SOME + SECOND;
        assert_eq!(later.nanoseconds(), 6_000_000_000);
        assert_eq!(later.since(SOME), SECOND);
        assert_eq!(later.nanoseconds_since(SOME), 1_000_000_000);
        assert_eq!(later - SECOND, SOME);
        assert_eq!(SOME.after(1_000_000_000), later);
        assert_eq!(SOME.checked_add(SECOND), Some(later));
        assert!(SOME < later);
        assert_eq!(SOME.since(later), Duration::ZERO);
    }

    #[test]
    fn nothing_leads_beyond_the_first_and_the_last_moment() {
        assert_eq!(SOME + Duration::MAX, LAST);
        assert_eq!(LAST + SECOND, LAST);
        assert_eq!(SOME - Duration::MAX, Moment::ZERO);
        assert_eq!(Moment::ZERO - SECOND, Moment::ZERO);
        assert_eq!(LAST.checked_add(SECOND), None);
        assert_eq!(SOME.checked_add(Duration::MAX), None);
        let rest = LAST.since(SOME);
        assert_eq!(SOME.checked_add(rest), Some(LAST));
    }
}
