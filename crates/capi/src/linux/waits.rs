//! Threads that wait for the end of an operation without an event, and which thread has started
//! one.
//!
//! Such a thread sleeps on the first word of the OVERLAPPED until it changes.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::time::Duration;

use crate::abi::Overlapped;
use crate::linux::words::{ANY, sleep, wake};

/// Threads that wait for the end of an operation without an event.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Marks the calling thread as waiting for the end of an operation, for as long as this value lives.
pub(crate) struct Waits<'o>(&'o Overlapped);

/// The half of the status that changes when the operation ends.
fn word(overlapped: *const Overlapped) -> *const u32 {
    let half = usize::from(cfg!(target_endian = "big"));
    overlapped.cast::<u32>().wrapping_add(half)
}

impl<'o> Waits<'o> {
    pub(crate) fn begin(overlapped: &'o Overlapped) -> Self {
        WAITING.fetch_add(1, SeqCst);
        Self(overlapped)
    }

    /// Sleeps while the operation has this status, for `limit` at most. May return early.
    pub(crate) fn sleep(&self, status: u32, limit: Option<Duration>) {
        // SAFETY: `sleep` demands a number that is only used atomically and stays there.
        // - it is half of an atomic one, and borrowed.
        unsafe { sleep(word(self.0), status, limit, ANY) };
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, SeqCst);
    }
}

/// Wakes the threads that wait without an event for an operation. The operation has written its OVERLAPPED, which may be
/// freed by now.
pub(crate) fn wake_waiting(overlapped: *const Overlapped) {
    fence(SeqCst);
    if WAITING.load(SeqCst) > 0 {
        wake(word(overlapped), i32::MAX, ANY);
    }
}

/// Distinguishes the calling thread from all others, including finished ones.
pub(crate) fn this_thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NAME: u64 = THREADS.fetch_add(1, Relaxed);
    }
    NAME.with(|name| *name)
}
