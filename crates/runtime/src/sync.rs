//! Threads, locks and the time, in one place, so that the model checker and the random programs can
//! replace them.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{JoinHandle, Thread, current, park, park_timeout};

use std::io;
use std::thread;
use std::time::Instant;

/// Returns the time.
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Returns a time as the port's timers take it.
pub(crate) fn deadline(at: Instant) -> Instant {
    at
}

/// Returns which of `parts` the value at this address belongs to.
pub(crate) fn part_of<T>(value: *const T, parts: usize) -> usize {
    // The lowest bits of addresses are alike, and the others if all have the same distance.
    ((value.addr() >> 4).wrapping_mul(0x9e37_79b1) >> 16) % parts
}

/// Starts a thread. Without a stack size, it has the standard library's.
pub(crate) fn start_thread(
    name: String,
    stack_size: Option<usize>,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let mut thread = thread::Builder::new().name(name);
    if let Some(bytes) = stack_size {
        thread = thread.stack_size(bytes);
    }
    thread.spawn(work)
}
