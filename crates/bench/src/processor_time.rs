//! The processor time that a thread or the process has used.

use std::time::Duration;

/// Whose time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The calling thread's.
    Thread,
    /// That of all threads of the process, those that have ended included.
    Process,
}

impl Clock {
    /// The time used so far.
    ///
    /// By the C library, since `rustix` looks for the kernel's vDSO, which valgrind hides.
    pub(crate) fn now(self) -> Duration {
        let clock = match self {
            Clock::Thread => libc::CLOCK_THREAD_CPUTIME_ID,
            Clock::Process => libc::CLOCK_PROCESS_CPUTIME_ID,
        };
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: clock_gettime(2) writes one timespec at the pointer.
        // - valid for writes: `time` lives until the call returns. These clocks always exist.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn work_takes_time_of_the_thread_that_does_it_and_of_the_process() {
        let (here, all) = (Clock::Thread.now(), Clock::Process.now());
        let there = std::thread::spawn(|| {
            let begin = Clock::Thread.now();
            while Clock::Thread.now() < begin + Duration::from_millis(20) {
                black_box(begin);
            }
            Clock::Thread.now() - begin
        });
        let there = there.join().unwrap();
        assert!(Clock::Process.now() - all >= there);
        assert!(Clock::Thread.now() - here < there);
    }
}
