//! Deadlines of armings: of readiness, and not of operations.

use super::Registry;
use crate::engine::queue::Lists;
use crate::state::deadline::{DeadlineTimer, DeadlineTimers};
use crate::state::moment::Moment;
use crate::state::queue::NodeList;
use crate::state::slot::Expiry;
use crate::state::timers::SlotTimer;
use crate::types::error::{Call, Error, ErrorKind};

impl Registry {
    /// Where the deadline of a held slot is stored. It is stored, then the slot is armed, and [`Registry::revalidate_deadline_timer`] called
    /// behind that.
    #[inline]
    pub(crate) fn deadline_timer(&self, index: u32, call: Call) -> Result<&DeadlineTimer, Error> {
        match self.deadline_timers.find(index) {
            Some(deadline_timer) => Ok(deadline_timer),
            None => self.make_deadline_timer(index, call),
        }
    }

    #[cold]
    #[inline(never)]
    fn make_deadline_timer(&self, index: u32, call: Call) -> Result<&DeadlineTimer, Error> {
        // It takes the port's lock, which may be locked for ever in a forked child.
        self.check_usable(call)?;
        // First the room for the timers of all that come into being by this.
        let last = DeadlineTimers::last_made_with(index);
        let has_room =
            self.lock().lists_mut().timers_mut().reserve_slot_timer(SlotTimer::DeadlineTimer, last);
        if has_room && self.deadline_timers.reserve(index) {
            Ok(self.deadline_timers.at(index))
        } else {
            Err(Error::new(call, ErrorKind::OutOfMemory))
        }
    }

    /// Sets the timer of an arming, if it rings too late for the deadline.
    #[inline]
    pub(crate) fn revalidate_deadline_timer(&self, index: u32, deadline_timer: &DeadlineTimer) {
        self.revalidate_timer(SlotTimer::DeadlineTimer, index, deadline_timer);
    }

    /// The calling thread has given the node of a slot back, which makes no packet. If its timer has rung meanwhile, there
    /// was a packet on its way, and the deadline was left alone; it is looked after again.
    #[inline(never)]
    pub(in crate::engine) fn revalidate_given_back(&self, index: u32) {
        // The word is this registration's, or that of a later arming, which looks after its deadline itself.
        if self.slot(index).word().is_timed()
            && !self.forked()
            && let Some(deadline_timer) = self.deadline_timers.find(index)
        {
            self.revalidate_deadline_timer(index, deadline_timer);
        }
    }

    /// The timer of an arming has rung. If a packet is to be queued by that, it is put at the end of `due`. The caller has
    /// the port's lock.
    pub(in crate::engine) fn ring_deadline_timer(
        &self,
        lists: &mut Lists,
        index: u32,
        now: Moment,
        due: &mut NodeList,
    ) {
        let deadline_timer = self.deadline_timers.at(index);
        // A thread that gives the node back sets the timer itself, too.
        lists.ring(SlotTimer::DeadlineTimer, index, deadline_timer, now, |_| {
            self.expire(index, deadline_timer, now, due)
        });
    }

    /// The deadline of an arming was over at `now`. Returns when to look again.
    fn expire(
        &self,
        index: u32,
        deadline_timer: &DeadlineTimer,
        now: Moment,
        due: &mut NodeList,
    ) -> Moment {
        let slot = self.slot(index);
        match slot.expire() {
            Expiry::Claimed if deadline_timer.deadline() > now => {
                // The slot was armed anew, with a later deadline, since that was read.
                if slot.expire_not() {
                    due.push(self.nodes(), index);
                }
                deadline_timer.deadline()
            }
            Expiry::Claimed => {
                due.push(self.nodes(), index);
                Moment::NEVER
            }
            // A packet is on its way, or is checked and may turn out to be none: see `revalidate_given_back`.
            Expiry::Queued | Expiry::Untimed => Moment::NEVER,
        }
    }
}
