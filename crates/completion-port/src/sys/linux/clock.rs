//! The clock of every deadline, and the clocks that show how long threads have run.

use std::time::Duration;

use crate::state::moment::Moment;

/// The time that the clock shows.
pub(super) fn now() -> Moment {
    // This clock always exists.
    read(libc::CLOCK_MONOTONIC).unwrap_or(Moment::ZERO)
}

/// How long processors have run a thread of this process so far; `None` if it has ended.
pub(super) fn processor_time(thread: libc::c_long) -> Option<Duration> {
    // The kernel's number for the clock of a thread: the complement of the thread's number, and
    // which of its clocks is meant. The C library makes the same number, but only of a
    // `pthread_t`, which must not be one of a thread that has ended.
    const OF_A_THREAD: libc::clockid_t = 4;
    const SCHEDULED: libc::clockid_t = 2;
    let thread = libc::clockid_t::try_from(thread).ok()?;
    read(!thread << 3 | OF_A_THREAD | SCHEDULED).map(|time| time.since(Moment::ZERO))
}

#[inline]
fn read(clock: libc::clockid_t) -> Option<Moment> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one timespec at the pointer.
    // - valid for writes: `time` lives until the call returns. A clock that does not exist is an
    //   error.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return None;
    }
    let [seconds, nanoseconds] =
        [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    Some(Moment::from_nanoseconds(seconds.saturating_mul(1_000_000_000)).after(nanoseconds))
}
