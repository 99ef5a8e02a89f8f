//! The timers of deadlines: those of armings, and those of operations.

use super::Queue;
use super::lists::Lists;
use crate::state::deadline::DeadlineTimer;
use crate::state::moment::Moment;
use crate::state::timers::SlotTimer;

impl Queue {
    /// Sets the timer of a deadline, if it rings too late for it.
    #[inline]
    pub(in crate::engine) fn mind_timer(
        &self,
        timer: SlotTimer,
        index: u32,
        timer: &DeadlineTimer,
    ) {
        if timer.missed().is_some() {
            self.hasten_timer(timer, index, timer);
        }
    }

    #[cold]
    #[inline(never)]
    fn hasten_timer(&self, timer: SlotTimer, index: u32, timer: &DeadlineTimer) {
        let mut hub = self.lock();
        // It is read once, so that the timer is never set to a later time than that for which it was set before:
        // threads that have found it early enough rely on it.
        let Some(at) = timer.missed() else { return };
        let (schedule, lists) = hub.parts_mut();
        let before = lists.timers().next();
        lists.timers_mut().set_slot_timer(timer, index, at);
        timer.set_slot_timer(at);
        let wake = if at < before { schedule.timer_set(at) } else { None };
        let notice = wake.map(|wake| lists.notice(wake));
        drop(hub);
        self.notify(notice);
    }
}

impl Lists {
    /// The alarm of a deadline has rung. If the deadline is over at `now`, `end` does what is to be done then, and
    /// returns when to look again.
    pub(in crate::engine) fn ring(
        &mut self,
        timer: SlotTimer,
        index: u32,
        timer: &DeadlineTimer,
        now: Moment,
        end: impl FnOnce(&mut Self) -> Moment,
    ) {
        // From here on a thread that moves the deadline sets the alarm itself.
        timer.set_slot_timer(Moment::NEVER);
        let deadline = timer.deadline();
        let again = if deadline > now { deadline } else { end(self) };
        if again != Moment::NEVER {
            self.timers_mut().set_slot_timer(timer, index, again);
            timer.set_slot_timer(again);
        }
    }
}
