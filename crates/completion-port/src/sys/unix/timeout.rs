//! Converts durations to the types of system calls. No other file does.
//!
//! It rounds up: a wait may be late, never early. A duration that is too long for the system's type
//! becomes the longest it has; the caller checks the clock again.

use std::time::Duration;

/// Converts to milliseconds for `epoll_wait(2)`: rounded up, and at most the longest value.
#[allow(dead_code, reason = "not every system has a call that takes it")]
pub(in crate::sys) fn whole_milliseconds(duration: Duration) -> i32 {
    let rounded = duration.as_nanos().div_ceil(1_000_000);
    i32::try_from(rounded).unwrap_or(i32::MAX)
}

/// Converts to a `timespec`, at most the longest value.
pub(in crate::sys) fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn duration(time: libc::timespec) -> Duration {
        Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
    }

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
            let cut = Duration::from_millis(u64::try_from(whole_milliseconds(given)).unwrap());
            if given <= Duration::from_millis(i32::MAX as u64) {
                prop_assert!(cut >= given);
                prop_assert!(cut < given + Duration::from_millis(1));
            } else {
                prop_assert_eq!(cut, Duration::from_millis(i32::MAX as u64));
            }
        }

        #[test]
        fn a_timespec_is_exact_or_the_longest_there_is(given in any_duration()) {
            let back = duration(timespec(given));
            if given.as_secs() <= i64::MAX as u64 {
                prop_assert_eq!(back, given);
            } else {
                prop_assert_eq!(back.as_secs(), i64::MAX as u64);
            }
        }
    }
}
