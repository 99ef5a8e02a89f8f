//! A deadline that threads move without a lock, and the timer that is set for it.
//!
//! docs/design/OPERATIONS.md says how a thread that moves the deadline and the one for which the timer rings find each other.

use std::sync::atomic::Ordering::{Release, SeqCst};

use super::moment::Moment;
use crate::memory::arena::Arena;
use crate::sync::AtomicU64;

/// When something ends at the latest, and when the timer for that rings.
// Two words that are used together lie in one cache line.
#[repr(align(16))]
#[derive(Debug)]
pub(crate) struct DeadlineTimer {
    deadline: AtomicU64,
    /// When the timer rings; [`Moment::NEVER`] if none is set. Changed under the port's lock.
    timer: AtomicU64,
}

impl Default for DeadlineTimer {
    fn default() -> Self {
        let never = Moment::NEVER.nanoseconds();
        Self { deadline: AtomicU64::new(never), timer: AtomicU64::new(never) }
    }
}

impl DeadlineTimer {
    /// The deadline as of now. It may have been moved since the timer was set.
    #[inline]
    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanoseconds(self.deadline.load(SeqCst))
    }

    /// Moves the deadline, before the arming. Behind the store the caller passes a full barrier, as each arming
    /// does, and then looks whether the timer [misses](Self::missed) it.
    #[inline]
    pub(crate) fn set_deadline(&self, at: Moment) {
        self.deadline.store(at.nanoseconds(), Release);
    }

    /// Moves the deadline, where no full barrier follows.
    #[inline]
    pub(crate) fn move_deadline(&self, at: Moment) {
        self.deadline.store(at.nanoseconds(), SeqCst);
    }

    /// Moves the deadline to `at`, if that is earlier.
    pub(crate) fn pull_in(&self, at: Moment) {
        self.deadline.fetch_min(at.nanoseconds(), SeqCst);
    }

    /// The deadline, if the timer rings too late for it, or was not set.
    #[inline]
    pub(crate) fn missed(&self) -> Option<Moment> {
        let deadline = self.deadline.load(SeqCst);
        (deadline < self.timer.load(SeqCst)).then(|| Moment::from_nanoseconds(deadline))
    }

    /// The timer was set for this moment, or has rung.
    pub(crate) fn set_slot_timer(&self, at: Moment) {
        self.timer.store(at.nanoseconds(), SeqCst);
    }
}

/// When the armings of slots end, by the numbers of slots. An arming does not end if the slot's word says that it has no
/// deadline. Where there is an entry there is room for its timer.
///
/// The entries are small: a program that moves the deadline of each of many connections touches little memory for that.
pub(crate) type DeadlineTimers = Arena<DeadlineTimer>;
