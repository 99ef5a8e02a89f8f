//! The deadline of an arming, which lies beside the slot.
//!
//! It has an arena of its own, whose entries are small: a program that moves the deadline of each of many connections
//! touches little memory for that. docs/design/FLIGHTS.md says how a thread that moves it and the one for which the alarm
//! rings find each other.

use std::sync::atomic::Ordering::{Release, SeqCst};

use super::moment::Moment;
use crate::memory::arena::Arena;
use crate::sync::AtomicU64;

/// When the arming of a slot ends. It does not end if the slot's word says that it has no deadline.
// Two words that are used together lie in one cache line.
#[repr(align(16))]
#[derive(Debug)]
pub(crate) struct Arming {
    deadline: AtomicU64,
    /// When the timer rings; [`Moment::NEVER`] if none is set. Changed under the port's lock.
    alarm: AtomicU64,
}

impl Default for Arming {
    fn default() -> Self {
        let never = Moment::NEVER.nanoseconds();
        Self { deadline: AtomicU64::new(never), alarm: AtomicU64::new(never) }
    }
}

impl Arming {
    /// The deadline as of now. It may have been moved since the timer was set.
    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanoseconds(self.deadline.load(SeqCst))
    }

    /// Moves the deadline, before the arming. Behind the store the caller passes a full barrier, as each arming
    /// does, and then looks whether the timer [misses](Self::missed) it.
    #[inline]
    pub(crate) fn set_deadline(&self, at: Moment) {
        self.deadline.store(at.nanoseconds(), Release);
    }

    /// The deadline, if the timer rings too late for it, or was not set.
    #[inline]
    pub(crate) fn missed(&self) -> Option<Moment> {
        let deadline = self.deadline.load(SeqCst);
        (deadline < self.alarm.load(SeqCst)).then(|| Moment::from_nanoseconds(deadline))
    }

    /// The timer was set for this moment, or has rung.
    pub(crate) fn set_alarm(&self, at: Moment) {
        self.alarm.store(at.nanoseconds(), SeqCst);
    }
}

/// By the numbers of slots. Where there is an entry there is room for its timer.
pub(crate) type Armings = Arena<Arming>;
