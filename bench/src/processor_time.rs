//! The processor time that a thread or the process has used.

use std::time::Duration;

use crate::system;

/// Which time to read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The calling thread's.
    Thread,
    /// That of all threads of the process, those that have ended included.
    Process,
}

impl Clock {
    /// The time used so far.
    pub(crate) fn now(self) -> Duration {
        system::processor_time(self)
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
