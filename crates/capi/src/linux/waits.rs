//! Threads that wait for the end of an operation without an event, and which thread has begun one.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};

use crate::linux::objects::cp_signal;

/// Threads that wait for the end of an operation without an event.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// The calling thread waits for the end of operations, as long as this is there.
pub(crate) struct Waits;

impl Waits {
    pub(crate) fn begin() -> Self {
        WAITING.fetch_add(1, SeqCst);
        Self
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, SeqCst);
    }
}

/// An operation has ended, and its OVERLAPPED says so: threads that wait for it without an event look again.
pub(crate) fn wake_waiting() {
    fence(SeqCst);
    if WAITING.load(SeqCst) > 0 {
        cp_signal();
    }
}

/// What tells the calling thread from every other, also from those that have ended.
pub(crate) fn this_thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static NAME: u64 = THREADS.fetch_add(1, Relaxed);
    }
    NAME.with(|name| *name)
}
