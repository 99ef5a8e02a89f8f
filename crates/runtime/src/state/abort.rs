//! The request to abort a task.

use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use crate::sync::AtomicBool;

/// Whether a task is to be aborted.
pub(crate) struct Abort(AtomicBool);

impl Abort {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Makes the task's next poll end it. `waker` wakes the task.
    pub(crate) fn request(&self, waker: &Waker) {
        self.0.store(true, Relaxed);
        // The task is polled once more, and then sees the flag: the wake orders the two.
        waker.wake_by_ref();
    }

    /// Returns whether the poll that begins now ends the task.
    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Relaxed)
    }
}
