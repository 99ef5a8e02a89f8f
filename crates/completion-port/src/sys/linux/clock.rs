//! The clock of every deadline.

use crate::state::moment::Moment;

/// The time that the clock shows.
pub(super) fn now() -> Moment {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one timespec at the pointer.
    // - valid for writes: `time` lives until the call returns. This clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let [seconds, nanoseconds] =
        [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    Moment::from_nanoseconds(seconds.saturating_mul(1_000_000_000)).after(nanoseconds)
}
