//! What the scheduler does with a thread.

use std::fs;
use std::thread;

use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

/// A thread of this process, as the system names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadNumber(i32);

impl ThreadNumber {
    /// The calling thread.
    #[must_use]
    pub fn current() -> Self {
        Self(gettid().as_raw_nonzero().get())
    }

    /// The number itself.
    #[must_use]
    pub fn get(self) -> i32 {
        self.0
    }

    fn status(self, field: &str) -> String {
        let status = fs::read_to_string(format!("/proc/self/task/{}/status", self.0)).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.trim().to_owned()
    }

    /// How often it was switched out although it could have run on.
    #[must_use]
    pub fn preemptions(self) -> u64 {
        self.status("nonvoluntary_ctxt_switches:").parse().unwrap()
    }

    /// How often it went to sleep.
    #[must_use]
    pub fn sleeps_begun(self) -> u64 {
        self.status("voluntary_ctxt_switches:").parse().unwrap()
    }

    /// Whether it sleeps in the kernel at this moment.
    #[must_use]
    pub fn sleeps(self) -> bool {
        let state = self.status("State:");
        state.starts_with(['S', 'D'])
    }
}

/// Leaves the calling thread one processor only; the same one in every thread of the process.
pub fn share_one_processor() {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|number| allowed.is_set(*number)).unwrap();
    let mut only = CpuSet::new();
    only.set(first);
    sched_setaffinity(None, &only).unwrap();
    // It may take a switch to get there.
    thread::yield_now();
}
