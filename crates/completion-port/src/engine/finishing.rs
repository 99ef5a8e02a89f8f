//! A finishing port: what handlers have begun to send is sent, and then the keys are returned.
//!
//! A registration whose key is at the port is removed immediately. One whose key a handler or an
//! operation has is marked in its slot, and removed when the key is back. A shared registration has
//! no token, so a handler may have its clone of the key and be about to start an operation. It is
//! removed when no operation of it is in flight, no packet is queued, and no thread runs with
//! packets.

use super::Engine;
use super::context::{Context, PortPhase, name_of};
use super::queue::Hub;
use crate::state::moment::Moment;
use crate::state::schedule::WorkerNumber;
use crate::state::slot::{Finish, Removal};
use crate::sync::{MutexGuard, fence};
use crate::types::error::{Call, Error, ErrorKind};
use std::sync::atomic::Ordering::SeqCst;

impl Engine {
    /// Refuses new work except sends, and removes every registration when it is idle, or at `at`.
    ///
    /// Does nothing more if the port is shutting down or closed.
    pub(crate) fn finish_by(&self, at: Moment) -> Result<(), Error> {
        self.check_usable(Call::Shutdown)?;
        let now = self.backend().now();
        if at <= now {
            return self.shut_down();
        }
        let mut hub = self.lock();
        let phase = hub.lists().phase();
        if !phase.allows_starts() {
            return Ok(());
        }
        // As in `leave_open`.
        let mut is_more = self.queue_all_behind(&mut hub);
        if hub.schedule().has_timers() {
            // What is due by now is queued, though no thread has checked since.
            while self.queue_due(hub.lists_mut(), now) <= now {}
            is_more = true;
        }
        let departing = if is_more { self.depart(&mut hub) } else { None };
        let (schedule, lists) = hub.parts_mut();
        if at != Moment::NEVER && !lists.timers_mut().set_port_timer(at) {
            drop(hub);
            self.notify(departing);
            return Err(Error::new(Call::Shutdown, ErrorKind::OutOfMemory));
        }
        if phase == PortPhase::Open {
            lists.timers_mut().stop_messages();
            lists.set_phase(PortPhase::Finishing);
            Context::set_phase(self, PortPhase::Finishing);
        }
        let next = lists.timers().next();
        let wake = if next == Moment::NEVER {
            schedule.next_timer(next);
            None
        } else {
            schedule.timer_set(next)
        };
        let notice = wake.map(|wake| lists.notice(wake));
        let highest = lists.highest_slot();
        drop(hub);
        self.notify(departing);
        self.notify(notice);
        if phase == PortPhase::Open {
            self.finish_all(highest);
        }
        self.continue_finishing();
        drop(self.end_if_over(self.lock()));
        Ok(())
    }

    /// Begins the end of every registration. `highest` is a bound of the slots in use.
    fn finish_all(&self, highest: u32) {
        // Either this thread sees a slot that is being registered, or the thread that registers it
        // sees the phase, which was stored before.
        fence(SeqCst);
        for index in 0..highest {
            let Some(slot) = self.nodes().find_slot(index) else { continue };
            let word = slot.word();
            if !word.is_live() {
                continue;
            }
            let name = name_of(index, word.generation());
            let descriptor = slot.descriptor();
            // This takes the lock of the registration's `OpEntry`. So a thread that starts an
            // operation has either lent the key by now, or sees the phase.
            let is_shared = self.is_shared(index);
            match slot.finish(word.generation(), is_shared) {
                None => {}
                Some(Finish::Removed(removal)) => {
                    self.detach(descriptor, name);
                    if removal == Removal::Owned {
                        self.submit(index);
                    }
                    self.trace_removed(name, descriptor);
                }
                Some(Finish::Later) => self.cancel_inbound(name),
                Some(Finish::Idle) => self.lock().lists_mut().note_idle(name),
            }
        }
    }

    /// Goes on with a finishing port, if that is possible: its time is over, or registrations are
    /// idle.
    ///
    /// Returns whether it was. The thread of the worker `own` runs no handler.
    pub(super) fn go_on_finishing<'e>(
        &'e self,
        mut hub: MutexGuard<'e, Hub>,
        own: Option<WorkerNumber>,
    ) -> (MutexGuard<'e, Hub>, bool) {
        if hub.lists_mut().take_overdue() {
            drop(hub);
            // It fails in a forked child only, which does not get here.
            let _ = self.shut_down();
            return (self.lock(), true);
        }
        self.finish_idle(hub, own)
    }

    /// Continues with a finishing port, if that is possible.
    ///
    /// The calling thread may be about to sleep, to exit, or to run handlers.
    pub(crate) fn continue_finishing(&self) {
        if self.is_finishing() && !self.forked() {
            drop(self.go_on_finishing(self.lock(), None));
        }
    }
}
