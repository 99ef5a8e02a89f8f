//! The clock for all deadlines, and the clocks of the threads' processor time.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::state::moment::Moment;
use crate::sys::unix::once::Once;

/// Returns the current time of the clock.
pub(super) fn now() -> Moment {
    // This clock always exists.
    read(libc::CLOCK_MONOTONIC).unwrap_or(Moment::ZERO)
}

thread_local! {
    /// The last instant that the thread converted, and its moment.
    static LAST: Cell<Option<(Instant, Moment)>> = const { Cell::new(None) };
}

/// Converts an instant to the clock's time, rounding up.
///
/// It reads no clock: an [`Instant`] comes from the same clock, so their offset is measured once.
///
/// A program that moves the deadlines of a batch usually passes the same instant for all of them.
/// Each thread therefore keeps the last one: the conversion takes longer than the rest of a move.
#[inline]
pub(super) fn moment_of(instant: Instant) -> Moment {
    match LAST.get() {
        Some((last, moment)) if last == instant => moment,
        _ => compute(instant),
    }
}

#[cold]
#[inline(never)]
fn compute(instant: Instant) -> Moment {
    static ANCHOR: Once<(Instant, Moment)> = Once::new();
    // The instant is taken first, so the computed moments are not too early.
    let (earlier, moment) = ANCHOR.get_or_init(|| (Instant::now(), now()));
    let ahead = instant.saturating_duration_since(earlier);
    let moment = moment.checked_add(ahead).unwrap_or(Moment::NEVER);
    LAST.set(Some((instant, moment)));
    moment
}

/// Returns the processor time of a thread of this process, or `None` if it has ended.
pub(super) fn processor_time(thread: libc::c_long) -> Option<Duration> {
    // The kernel's number for the clock of a thread: the complement of the thread id, and which of
    // its clocks. The C library computes the same number, but only from a `pthread_t`, which must
    // not belong to a thread that has ended.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_no_earlier_by_the_ports_clock_and_hardly_later() {
        for _ in 0..1000 {
            let before = now();
            let instant = Instant::now();
            let after = now();
            let moment = moment_of(instant);
            assert!(moment >= before);
            // The most by which the anchor's two readings may differ.
            assert!(moment <= after + Duration::from_millis(100), "{moment:?} {after:?}");
        }
        let long_ago = Instant::now().checked_sub(Duration::from_secs(60));
        assert!(long_ago.is_none_or(|instant| moment_of(instant) <= now()));
    }
}
