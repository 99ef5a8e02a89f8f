//! Converts durations to the types of Windows. No other file does.
//!
//! It rounds up: a wait may be late, never early. A duration that is too long for the system's type
//! becomes the longest it has; the caller checks the clock again.

use std::time::Duration;

/// The longest limited wait. One more would be `INFINITE`.
const LONGEST: u32 = u32::MAX - 1;

/// Converts to milliseconds for `GetQueuedCompletionStatusEx` and the waits for objects.
pub(super) fn whole_milliseconds(duration: Duration) -> u32 {
    let rounded = duration.as_nanos().div_ceil(1_000_000);
    u32::try_from(rounded).unwrap_or(LONGEST).min(LONGEST)
}

/// Converts to the due time of a waitable timer.
///
/// Its unit is 100 nanoseconds. It is negative because it is relative.
pub(super) fn relative_due_time(duration: Duration) -> i64 {
    let rounded = duration.as_nanos().div_ceil(100);
    -i64::try_from(rounded).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            (any::<u64>(), 0..1_000_000_000_u32).prop_map(|(s, n)| Duration::new(s, n)),
            (0..100_u64, 0..1_000_000_000_u32).prop_map(|(s, n)| Duration::new(s, n)),
            (0..5_000_000_u32).prop_map(|n| Duration::new(0, n)),
        ]
    }

    proptest! {
        #[test]
        fn milliseconds_are_never_short_and_never_a_whole_one_too_long(given in any_duration()) {
            let cut = Duration::from_millis(whole_milliseconds(given).into());
            let longest = Duration::from_millis(LONGEST.into());
            if given <= longest {
                prop_assert!(cut >= given);
                prop_assert!(cut < given + Duration::from_millis(1));
            } else {
                prop_assert_eq!(cut, longest);
            }
        }

        #[test]
        fn a_due_time_is_never_short_and_always_relative(given in any_duration()) {
            let due = relative_due_time(given);
            prop_assert!(due <= 0);
            let hundreds = u128::from(due.unsigned_abs());
            let exact = given.as_nanos();
            if exact <= i64::MAX as u128 * 100 {
                prop_assert!(hundreds * 100 >= exact && hundreds * 100 < exact + 100);
            } else {
                prop_assert_eq!(due, -i64::MAX);
            }
        }
    }
}
