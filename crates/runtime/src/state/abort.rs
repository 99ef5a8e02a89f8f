//! The request to abort a task.

use std::sync::atomic::Ordering::Relaxed;

use crate::sync::AtomicBool;

/// Whether a task is to be aborted.
pub(crate) struct Abort(AtomicBool);

impl Abort {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Makes the task's next poll end it. The caller then wakes the task: it is polled once more,
    /// and sees the flag, because the wake orders the two.
    pub(crate) fn request(&self) {
        self.0.store(true, Relaxed);
    }

    /// Returns whether the poll that begins now ends the task.
    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Relaxed)
    }
}
