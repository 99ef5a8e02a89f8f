//! The clock of every deadline, and a timer on it that can be set anew while a thread sleeps by it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::timeout;
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

/// A timer of timerfd_create(2).
pub(super) struct Timer(OwnedFd);

impl Timer {
    /// `None` if the system gives none: no descriptor is left, or a sandbox does not know the call.
    pub(super) fn new() -> Option<Self> {
        // SAFETY: timerfd_create(2) demands nothing of memory.
        let timer = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
        if timer < 0 {
            return None;
        }
        // SAFETY: `from_raw_fd` demands an open descriptor that nobody else owns.
        // - the system call returned it just now.
        Some(Self(unsafe { OwnedFd::from_raw_fd(timer) }))
    }

    /// It will go off when the clock shows `until`, or at once if that is over; not for what it was set to
    /// before. False if the system refuses.
    pub(super) fn set(&self, until: Moment) -> bool {
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // Zero would stop it.
        let until = timeout::timespec(until.since(Moment::ZERO).max(Duration::from_nanos(1)));
        let time = libc::itimerspec { it_interval: never, it_value: until };
        // SAFETY: timerfd_settime(2) reads a value at the first pointer, and writes nothing where the
        // second one is null.
        // - valid for reads: `time` lives until the call returns.
        let done = unsafe {
            libc::timerfd_settime(
                self.0.as_raw_fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const time,
                std::ptr::null_mut(),
            )
        };
        done == 0
    }

    /// Sleeps until it goes off, or a signal comes. At once if it has gone off since it was last set.
    pub(super) fn wait(&self) {
        let mut count = [0_u8; 8];
        // SAFETY: read(2) writes at most as many bytes at the pointer as it is told.
        // - valid for writes: `count` has so many, which is what a timer's count takes.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(2);

    #[test]
    fn a_timer_goes_off_when_its_time_is_over_and_not_before() {
        let timer = Timer::new().unwrap();
        let until = now() + SHORT;
        assert!(timer.set(until));
        while now() < until {
            timer.wait();
        }
    }

    #[test]
    fn a_timer_that_is_set_to_what_is_over_goes_off_at_once() {
        let timer = Timer::new().unwrap();
        assert!(timer.set(now() + Duration::from_secs(3600)));
        assert!(timer.set(Moment::ZERO));
        timer.wait();
    }
}
