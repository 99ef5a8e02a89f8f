//! How far a runtime has ended, and waiting for that.
//!
//! Shutdown refuses new tasks, then waits for the others or aborts them. An aborted task is woken,
//! and its next poll drops the future, on a thread of the pool. Then the port is closed, and the
//! threads leave. The manager stays until the last task has ended, and drops those that the closed
//! port refuses: dropping a future runs code that a waker must not run. The handle of a task reports
//! its end after its future has been dropped.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use crate::state::lock;
use crate::sync::{AtomicU8, Condvar, Mutex, now};

/// How far a runtime has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Phase {
    Open,
    /// New tasks are refused. The others continue, and may use sockets and timers.
    Ending,
    /// The port is being closed.
    Closed,
}

/// How far a runtime has ended, and the threads that wait for that.
pub(crate) struct Ending {
    phase: AtomicU8,
    mutex: Mutex<()>,
    changed: Condvar,
}

impl Ending {
    pub(crate) fn new() -> Self {
        Self {
            phase: AtomicU8::new(Phase::Open as u8),
            mutex: Mutex::new(()),
            changed: Condvar::new(),
        }
    }

    /// Returns whether the runtime has not reached this phase.
    pub(crate) fn is_before(&self, phase: Phase) -> bool {
        self.phase.load(SeqCst) < phase as u8
    }

    pub(crate) fn enter(&self, phase: Phase) {
        self.phase.store(phase as u8, SeqCst);
    }

    /// Lists a new task by `list`, and returns whether it may be queued.
    ///
    /// The phase is read afterwards, and is entered before the end of the runtime aborts or counts
    /// the tasks in the list. So either these include the new task, or it is refused.
    pub(crate) fn admit(&self, list: impl FnOnce()) -> bool {
        list();
        self.is_before(Phase::Ending)
    }

    /// Notes that a task has left the list. Returns whether the runtime is ending.
    pub(crate) fn task_ended(&self) -> bool {
        let is_ending = !self.is_before(Phase::Ending);
        if is_ending {
            self.signal();
        }
        is_ending
    }

    /// Wakes the threads in [`Ending::wait_until`].
    pub(crate) fn signal(&self) {
        let _guard = lock(&self.mutex);
        self.changed.notify_all();
    }

    /// Waits until `condition` holds, at most until `deadline`. Returns whether it holds.
    pub(crate) fn wait_until(
        &self,
        deadline: Option<Instant>,
        condition: impl Fn() -> bool,
    ) -> bool {
        let mut guard = lock(&self.mutex);
        while !condition() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            let left = left.unwrap_or(Duration::MAX).min(Duration::from_secs(3600));
            let waited = self.changed.wait_timeout(guard, left);
            guard = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
