//! A point in time, so that none is mistaken for a span.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// What a host's clock shows: nanoseconds since some fixed moment, enough for 584 years.
///
/// A span between two moments is a [`Duration`]; where a policy calculates with spans they are nanoseconds in
/// a `u64`. Sums and differences stop at the first and the last moment instead of wrapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    /// The fixed moment. No clock shows an earlier one.
    pub(crate) const ZERO: Self = Self(0);

    /// Later than any other moment.
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The moment this many nanoseconds after the fixed one.
    #[inline]
    pub(crate) const fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// Nanoseconds since the fixed moment, for an atomic or for arithmetic.
    #[inline]
    pub(crate) const fn nanoseconds(self) -> u64 {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is the later one.
    #[inline]
    pub(crate) const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanoseconds_since(earlier))
    }

    /// The same in nanoseconds.
    #[inline]
    pub(crate) const fn nanoseconds_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment this many nanoseconds after this one.
    #[inline]
    pub(crate) const fn after(self, nanoseconds: u64) -> Self {
        Self(self.0.saturating_add(nanoseconds))
    }

    /// This moment and a span; `None` if no clock shows that.
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
