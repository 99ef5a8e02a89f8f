//! Threads of which one runs at a time: what a crate needs that takes part in the turns.

use std::sync::PoisonError;
use std::time::Duration;

use crate::turns;

/// A deterministic random number generator.
#[derive(Clone, Debug)]
pub struct Lot(turns::Lot);

impl Lot {
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(turns::Lot::new(seed, stream))
    }

    /// Returns the next number.
    #[allow(clippy::should_implement_trait, reason = "it never ends")]
    pub fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound)
    }

    /// Returns true with probability 1/`times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.0.once_in(times)
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        self.0.pick(from)
    }
}

/// A thread of a run.
#[must_use]
#[allow(missing_debug_implementations, reason = "for tests")]
pub struct Joiner(turns::Joiner);

impl Joiner {
    pub fn is_over(&self) -> bool {
        self.0.is_over()
    }

    pub fn join(self) {
        self.0.join();
    }
}

/// Starts a thread of the run.
pub fn spawn(name: String, act: impl FnOnce() + Send + 'static) -> Joiner {
    Joiner(turns::spawn(name, act))
}

/// Runs `main` and the threads that it starts, with turns drawn from `seed`. Returns a hash that
/// identifies the sequence of turns.
pub fn simulate(seed: u64, most_points: u64, main: impl FnOnce()) -> u64 {
    turns::simulate(seed, most_points, main)
}

/// A place where another thread may run.
pub fn point() {
    turns::point();
}

/// Lets another thread run, if one can.
pub fn yield_now() {
    turns::yield_now();
}

/// Simulates user code that takes a while: other threads may do a lot meanwhile.
pub fn linger() {
    turns::linger();
}

/// Returns whether the calling thread belongs to a run.
pub fn is_inside() -> bool {
    turns::is_inside()
}

/// Blocks until [`wake`] is called for `address`.
#[track_caller]
pub fn block(address: usize) {
    turns::block(address);
}

/// Wakes the threads blocked at `address`: all of them, or a random one.
pub fn wake(address: usize, all: bool) {
    turns::wake(address, all);
}

/// Sleeps until [`time_is`] is called with `until` or a later time.
pub fn sleep_until(until: Duration) {
    turns::sleep_until(until);
}

/// Wakes the threads whose sleep has ended.
pub fn time_is(now: Duration) {
    turns::time_is(now);
}

/// Waits until no other thread can run, or until the clock may run anyway. Returns true if no other
/// thread can run.
pub fn idle() -> bool {
    turns::idle()
}

/// Returns whether another thread can run.
pub fn another_can_run() -> bool {
    turns::another_can_run()
}

/// Returns a random number of the run.
pub fn lot_below(bound: usize) -> usize {
    turns::lot_below(bound)
}

/// Returns the number of points so far.
pub fn points() -> u64 {
    turns::points()
}

/// Sets the function that prints the rest of a failure report, after the threads.
pub fn report_with(report: impl Fn() + Send + 'static) {
    turns::report_with(report);
}

/// Sets the function that names the run of a failure.
pub fn say_where_with(say: fn()) {
    *crate::search::SAY_WHERE.lock().unwrap_or_else(PoisonError::into_inner) = say;
}

/// Reports the failure of the run and ends the process, since threads can't be stopped halfway.
pub fn fail(why: &str) -> ! {
    turns::fail(why)
}

pub fn has_failed() -> bool {
    turns::has_failed()
}
