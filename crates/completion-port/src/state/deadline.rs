//! A deadline that threads move without a lock, and the timer that is set for it.
//!
//! docs/design/OPERATIONS.md says how a thread that moves the deadline and the thread on which the
//! timer expires see each other.

use std::sync::atomic::Ordering::{Release, SeqCst};

use super::moment::Moment;
use crate::memory::arena::Arena;
use crate::sync::AtomicU64;

/// A deadline, and when its timer expires.
// Both words are used together, so they share a cache line.
#[repr(align(16))]
#[derive(Debug)]
pub(crate) struct DeadlineTimer {
    deadline: AtomicU64,
    /// When the timer expires; [`Moment::NEVER`] if none is set. Changed under the port's lock.
    timer: AtomicU64,
}

impl Default for DeadlineTimer {
    fn default() -> Self {
        let never = Moment::NEVER.nanoseconds();
        Self { deadline: AtomicU64::new(never), timer: AtomicU64::new(never) }
    }
}

impl DeadlineTimer {
    /// Returns the current deadline. It may have moved since the timer was set.
    #[inline]
    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanoseconds(self.deadline.load(SeqCst))
    }

    /// Moves the deadline, before an arming. After the store, the caller must pass a full barrier,
    /// as every arming does, and then check whether the timer has [missed](Self::missed) the
    /// deadline.
    #[inline]
    pub(crate) fn set_deadline(&self, at: Moment) {
        self.deadline.store(at.nanoseconds(), Release);
    }

    /// Moves the deadline if no full barrier follows.
    #[inline]
    pub(crate) fn move_deadline(&self, at: Moment) {
        self.deadline.store(at.nanoseconds(), SeqCst);
    }

    /// Moves the deadline to `at` if that is earlier.
    pub(crate) fn pull_in(&self, at: Moment) {
        self.deadline.fetch_min(at.nanoseconds(), SeqCst);
    }

    /// Returns the deadline if the timer is not set or expires too late for it.
    #[inline]
    pub(crate) fn missed(&self) -> Option<Moment> {
        let deadline = self.deadline.load(SeqCst);
        (deadline < self.timer.load(SeqCst)).then(|| Moment::from_nanoseconds(deadline))
    }

    /// Notes that the timer was set for `at`, or, with [`Moment::NEVER`], that it has expired.
    pub(crate) fn set_slot_timer(&self, at: Moment) {
        self.timer.store(at.nanoseconds(), SeqCst);
    }
}

/// The readiness deadlines of the port, indexed by slot. If the slot's word says that the arming
/// has no deadline, the entry is ignored. An entry exists only if there is also room for its timer.
///
/// The entries are small, so that moving the deadlines of many connections touches little memory.
pub(crate) type DeadlineTimers = Arena<DeadlineTimer>;
