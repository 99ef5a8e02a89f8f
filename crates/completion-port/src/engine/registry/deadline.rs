//! Deadlines of armings. They concern readiness, not operations.

use std::sync::Arc;

use super::{NewRegistration, Registry};
use crate::engine::context::Name;
use crate::engine::queue::Lists;
use crate::engine::worker::Worker;
use crate::state::deadline::{DeadlineTimer, DeadlineTimers};
use crate::state::moment::Moment;
use crate::state::queue::NodeList;
use crate::state::slot::Expiry;
use crate::state::timers::SlotTimer;
use crate::types::error::{Call, Error, ErrorKind};

impl Registry {
    /// Like [`Registry::register`], with a deadline for the first packet. `entry` is not associated.
    #[inline(never)]
    pub(crate) fn register_until(
        &self,
        call: Call,
        index: u32,
        entry: NewRegistration,
        at: Moment,
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<Name, Error> {
        // Before the slot is a registration, so that a failure leaves nothing to undo.
        let deadline_timer = match self.deadline_timer(index, call) {
            Ok(deadline_timer) => deadline_timer,
            Err(error) => {
                // `release_slot` expects a slot that was freed at least once.
                self.slot(index).free();
                return Err(error);
            }
        };
        let name = self.enter(call, index, entry)?;
        // An earlier registration's timer may expire meanwhile. It finds no deadline before the
        // arming, and this one after it. No full barrier follows.
        deadline_timer.move_deadline(at);
        self.arm_entered(call, name, Some(entry.mode), true, worker)?;
        self.revalidate_deadline_timer(index, deadline_timer);
        self.trace_registered(name, entry);
        Ok(name)
    }

    /// Returns where the deadline of a held slot is stored.
    ///
    /// The caller stores the deadline, arms the slot, and then calls
    /// [`Registry::revalidate_deadline_timer`], in this order.
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
        // The code below takes the port's lock, which may never be released in a forked child.
        self.check_usable(call)?;
        // Make room for the timers of all the entries that `reserve` below creates, before it
        // creates them.
        let last = DeadlineTimers::last_made_with(index);
        let has_room =
            self.lock().lists_mut().timers_mut().reserve_slot_timer(SlotTimer::Readiness, last);
        if has_room && self.deadline_timers.reserve(index) {
            Ok(self.deadline_timers.at(index))
        } else {
            Err(Error::new(call, ErrorKind::OutOfMemory))
        }
    }

    /// Sets the timer of an arming, if it would expire after the deadline.
    #[inline]
    pub(crate) fn revalidate_deadline_timer(&self, index: u32, deadline_timer: &DeadlineTimer) {
        self.revalidate_timer(SlotTimer::Readiness, index, deadline_timer);
    }

    /// Revalidates the deadline's timer after the calling thread released a node without a packet.
    ///
    /// If the timer expired meanwhile, the node was queued, so the expiry left the deadline alone.
    #[inline(never)]
    pub(in crate::engine) fn revalidate_returned(&self, index: u32) {
        // The word is this registration's or a later arming's, which revalidates its own deadline.
        if self.slot(index).word().is_timed()
            && !self.forked()
            && let Some(deadline_timer) = self.deadline_timers.find(index)
        {
            self.revalidate_deadline_timer(index, deadline_timer);
        }
    }

    /// Handles the expiry of an arming's timer. The caller holds the port's lock.
    ///
    /// Appends the node to `due` if a packet must be queued.
    pub(in crate::engine) fn ring_deadline_timer(
        &self,
        lists: &mut Lists,
        index: u32,
        now: Moment,
        due: &mut NodeList,
    ) {
        let deadline_timer = self.deadline_timers.at(index);
        // If another thread releases the node meanwhile, that thread sets the timer itself.
        lists.ring(SlotTimer::Readiness, index, deadline_timer, now, |_| {
            self.expire(index, deadline_timer, now, due)
        });
    }

    /// Handles a deadline that has passed at `now`. Returns when to check again.
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
                // The slot was rearmed with a later deadline after the deadline was read.
                if slot.expire_not() {
                    due.push(self.nodes(), index);
                }
                deadline_timer.deadline()
            }
            Expiry::Claimed => {
                due.push(self.nodes(), index);
                Moment::NEVER
            }
            // A packet is on its way, or its node is being checked and may bring no packet: see
            // `revalidate_returned`.
            Expiry::Queued | Expiry::Untimed => Moment::NEVER,
        }
    }
}
