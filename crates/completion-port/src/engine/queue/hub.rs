//! What the port's lock guards.

use super::entries::PendingWake;
use super::lists::Lists;
use crate::state::schedule::{Schedule, Wake};

/// The schedule, and the lists that it decides about.
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

    /// Returns both parts, so that the schedule can decide while it sees the lists.
    #[inline]
    pub(in crate::engine) fn parts_mut(&mut self) -> (&mut Schedule, &mut Lists) {
        (&mut self.schedule, &mut self.lists)
    }

    /// Prepares the notices that wake all threads which are still waiting.
    pub(super) fn dismiss_all(&mut self) -> Vec<PendingWake> {
        let mut notices = Vec::new();
        while let Some(wake) = self.schedule.dismiss() {
            notices.push(self.lists.notice(wake));
        }
        notices
    }

    /// Prepares the notice that wakes a thread, and counts it.
    #[inline]
    pub(in crate::engine) fn notice(&mut self, wake: Wake) -> PendingWake {
        self.lists.notice(wake)
    }
}
