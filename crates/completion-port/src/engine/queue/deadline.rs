//! Timers of deadlines: those of armings and those of operations.

use super::Queue;
use super::lists::Lists;
use crate::state::deadline::DeadlineTimer;
use crate::state::moment::Moment;
use crate::state::timers::SlotTimer;

impl Queue {
    /// Moves the timer of a deadline to an earlier time if it would expire after the deadline.
    #[inline]
    pub(in crate::engine) fn revalidate_timer(
        &self,
        timer: SlotTimer,
        index: u32,
        deadline: &DeadlineTimer,
    ) {
        if deadline.missed().is_some() {
            self.pull_timer_in(timer, index, deadline);
        }
    }

    #[cold]
    #[inline(never)]
    fn pull_timer_in(&self, timer: SlotTimer, index: u32, deadline: &DeadlineTimer) {
        let mut hub = self.lock();
        // Read the deadline once, so that the timer never moves to a later time: threads that have
        // found it early enough rely on that.
        let Some(at) = deadline.missed() else { return };
        let (schedule, lists) = hub.parts_mut();
        let before = lists.timers().next();
        lists.timers_mut().set_slot_timer(timer, index, at);
        deadline.set_slot_timer(at);
        let wake = if at < before { schedule.timer_set(at) } else { None };
        let notice = wake.map(|wake| lists.notice(wake));
        drop(hub);
        self.notify(notice);
    }
}

impl Lists {
    /// Handles the expiry of a slot's timer.
    ///
    /// If the deadline has passed at `now`, calls `end`, which returns when to check again.
    pub(in crate::engine) fn ring(
        &mut self,
        timer: SlotTimer,
        index: u32,
        deadline: &DeadlineTimer,
        now: Moment,
        end: impl FnOnce(&mut Self) -> Moment,
    ) {
        // From here on, a thread that moves the deadline sets the timer itself.
        deadline.set_slot_timer(Moment::NEVER);
        let at = deadline.deadline();
        let again = if at > now { at } else { end(self) };
        if again != Moment::NEVER {
            self.timers_mut().set_slot_timer(timer, index, again);
            deadline.set_slot_timer(again);
        }
    }
}
