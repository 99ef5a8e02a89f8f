//! Waking a thread that runs a future.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::Wake;

use crate::sync::{AtomicBool, Thread, current, park};

/// Wakes a parked thread.
pub(crate) struct Unpark {
    thread: Thread,
    /// The future was woken since its last poll. The thread's own token may be taken by the future.
    is_woken: AtomicBool,
}

impl Unpark {
    /// Returns a waker's data for the calling thread.
    pub(crate) fn new() -> Self {
        Self { thread: current(), is_woken: AtomicBool::new(false) }
    }

    /// Parks the calling thread until the future is woken.
    pub(crate) fn wait(&self) {
        while !self.is_woken.swap(false, SeqCst) {
            park();
        }
    }
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, SeqCst) {
            self.thread.unpark();
        }
    }
}
