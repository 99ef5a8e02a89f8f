//! What the scheduler does with a thread.

use std::fs;
use std::io;
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

    /// The thread with this number.
    #[must_use]
    pub fn of(number: i32) -> Self {
        Self(number)
    }

    /// The number itself.
    #[must_use]
    pub fn get(self) -> i32 {
        self.0
    }

    fn all_status(self) -> io::Result<String> {
        fs::read_to_string(format!("/proc/self/task/{}/status", self.0))
    }

    fn status(self, field: &str) -> String {
        find(&self.all_status().unwrap(), field).to_owned()
    }

    /// How often it went to sleep, if it sleeps at this moment. A thread that has ended does not. A process that has no
    /// descriptor left cannot see, and takes it for one that does.
    fn asleep_since(self) -> Option<u64> {
        let status = match self.all_status() {
            Ok(status) => status,
            Err(error) => return (error.raw_os_error() == Some(libc::EMFILE)).then_some(0),
        };
        let sleeps = find(&status, STATE).starts_with(ASLEEP);
        sleeps.then(|| find(&status, SLEEPS_BEGUN).parse().unwrap())
    }

    /// How often it was switched out although it could have run on.
    #[must_use]
    pub fn preemptions(self) -> u64 {
        self.status("nonvoluntary_ctxt_switches:").parse().unwrap()
    }

    /// How often it went to sleep.
    #[must_use]
    pub fn sleeps_begun(self) -> u64 {
        self.status(SLEEPS_BEGUN).parse().unwrap()
    }

    /// Whether it sleeps in the kernel at this moment.
    #[must_use]
    pub fn sleeps(self) -> bool {
        self.status(STATE).starts_with(ASLEEP)
    }
}

const STATE: &str = "State:";
const SLEEPS_BEGUN: &str = "voluntary_ctxt_switches:";
/// How the state begins of a thread that sleeps.
const ASLEEP: [char; 2] = ['S', 'D'];

/// The value of a field.
fn find<'s>(status: &'s str, field: &str) -> &'s str {
    status.lines().find_map(|line| line.strip_prefix(field)).unwrap().trim()
}

/// Whether all of these threads sleep in the kernel simultaneously. So none of them is waiting for a lock that another of
/// them holds.
#[must_use]
pub fn all_sleep(threads: &[ThreadNumber]) -> bool {
    // Who sleeps at both looks, and has not got up in between, slept when all others did.
    let look = || threads.iter().map(|thread| thread.asleep_since()).collect::<Option<Vec<_>>>();
    look().is_some_and(|before| look() == Some(before))
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
