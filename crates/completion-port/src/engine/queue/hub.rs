//! What the port's lock guards.

use super::entries::Notice;
use super::lists::Lists;
use crate::state::schedule::{Schedule, Wake};

/// The schedule, and what it decides about.
pub(in crate::engine) struct Hub {
    schedule: Schedule,
    lists: Lists,
}

impl Hub {
    pub(super) fn new(schedule: Schedule, lists: Lists) -> Self {
        Self { schedule, lists }
    }

    #[inline]
    pub(in crate::engine) fn schedule(&mut self) -> &mut Schedule {
        &mut self.schedule
    }

    #[inline]
    pub(in crate::engine) fn lists(&self) -> &Lists {
        &self.lists
    }

    #[inline]
    pub(in crate::engine) fn lists_mut(&mut self) -> &mut Lists {
        &mut self.lists
    }

    #[inline]
    pub(in crate::engine) fn parts(&self) -> (&Schedule, &Lists) {
        (&self.schedule, &self.lists)
    }

    /// Both parts: the schedule decides with the lists in view.
    #[inline]
    pub(in crate::engine) fn parts_mut(&mut self) -> (&mut Schedule, &mut Lists) {
        (&mut self.schedule, &mut self.lists)
    }

    /// What it takes to wake each thread that still waits.
    pub(super) fn dismiss_all(&mut self) -> Vec<Notice> {
        let mut notices = Vec::new();
        while let Some(wake) = self.schedule.dismiss() {
            notices.push(self.lists.notice(wake));
        }
        notices
    }

    /// What it takes to wake a thread.
    #[inline]
    pub(in crate::engine) fn notice(&mut self, wake: Wake) -> Notice {
        self.lists.notice(wake)
    }
}
