//! Waiting: a thread does what the schedule decides, step by step.

mod peek;
mod poll;

use std::time::Duration;

use super::Engine;
use super::context::PortPhase;
use super::queue::{Flags, Hub, Lists, PendingWake, PortView};
use super::worker::Worker;
use crate::state::moment::Moment;
use crate::state::queue::{NodeList, POSTED};
use crate::state::schedule::{Action, Turn, Waited};
use crate::state::timers::{Due, SlotTimer};
use crate::sync::MutexGuard;

pub(crate) use poll::Scratch;

/// How many due timers are handled in one hold of the lock.
const MOST_DUE: usize = 1024;

/// What a thread sees to before it sleeps in a wait.
const BEFORE_SLEEP: u8 = Flags::DEFERRED | Flags::FINISHING;

/// Carries out the tasks that the engine has deferred. The port implements this.
pub(crate) trait DeferredWork {
    /// Carries out deferred tasks until there are none. Returns whether there were any.
    ///
    /// The caller holds no lock.
    fn run_deferred(&self) -> bool;
}

impl Engine {
    /// Waits until `worker` has been assigned packets, or until `deadline` (`None`: no limit).
    ///
    /// Assigns at most `room` packets. Whenever tasks were deferred, `port` carries them out
    /// without the lock.
    pub(crate) fn wait(
        &self,
        worker: &Worker,
        scratch: &mut Scratch,
        room: usize,
        deadline: Option<Moment>,
        port: &dyn DeferredWork,
    ) -> Waited {
        if self.has_fault() {
            return Waited::Failed;
        }
        worker.come_to_wait();
        worker.clear_attention();
        let packet = worker.end_quota(|| self.backend().now());
        let mut hub = self.lock();
        let mut turn = Turn::new(worker.number(), room, deadline);
        let queued = hub.lists().ready().len();
        // Messages that it has put behind its packets; or the iterator of an earlier wait was
        // forgotten, or still exists.
        if self.take_list_back(hub.lists_mut(), worker) {
            turn.bring_back(hub.lists().ready().len() - queued);
        }
        turn.count_put(worker.take_put_alone());
        hub.lists_mut().free_cells(self.nodes(), worker);
        let (schedule, lists) = hub.parts_mut();
        let (queries, _) = scratch.for_schedule();
        schedule.arrive(&mut turn, packet, queries, &mut self.view(lists, worker));
        loop {
            let (schedule, lists) = hub.parts_mut();
            let mut view = self.view(lists, worker);
            let (queries, is_filled) = scratch.for_schedule();
            let queue_due = |view: &mut PortView<'_>, now| self.queue_due(view.lists_mut(), now);
            let action = schedule.next(&mut turn, queries, is_filled, &mut view, queue_due);
            if let Action::Return(waited, wake) = action {
                let notice = wake.map(|wake| hub.notice(wake));
                self.end_wait(hub, worker, waited, notice, port);
                // Queued packets come first; the next wait fails.
                let fails = turn.is_refused() && waited == Waited::TimedOut;
                return if fails { Waited::Failed } else { waited };
            }
            hub = self.act(action, hub, worker, scratch, port);
            if scratch.take_refusal() {
                hub.schedule().refuse(&mut turn);
            }
            // This wait must find the results, however soon it ends.
            if hub.lists().flags().has(Flags::DEFERRED) {
                hub = self.run_deferred(hub, worker, port);
            }
        }
    }

    /// Does what the schedule decides, other than to return.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    fn act<'e>(
        &'e self,
        action: Action,
        hub: MutexGuard<'e, Hub>,
        worker: &Worker,
        scratch: &mut Scratch,
        port: &dyn DeferredWork,
    ) -> MutexGuard<'e, Hub> {
        match action {
            Action::Return(..) => hub,
            Action::Check => self.recheck(hub, worker, scratch),
            Action::Ask { grow } => {
                if grow {
                    scratch.grow();
                }
                self.ask(hub, worker, scratch)
            }
            Action::Query(query) => self.query(hub, query),
            Action::Poll(timeout) if hub.lists().flags().has(BEFORE_SLEEP) => {
                let (hub, timeout) = self.prepare_to_sleep(hub, worker, timeout, port);
                self.sleep_in_kernel(hub, worker, scratch, timeout)
            }
            Action::Park(timeout) if hub.lists().flags().has(BEFORE_SLEEP) => {
                let (hub, timeout) = self.prepare_to_sleep(hub, worker, timeout, port);
                self.sleep(hub, worker, timeout)
            }
            Action::Poll(timeout) => self.sleep_in_kernel(hub, worker, scratch, timeout),
            Action::Park(timeout) => self.sleep(hub, worker, timeout),
        }
    }

    /// Ends the wait of the thread of `worker`. Another thread may have to be woken.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    fn end_wait<'e>(
        &'e self,
        hub: MutexGuard<'e, Hub>,
        worker: &Worker,
        waited: Waited,
        notice: Option<PendingWake>,
        port: &dyn DeferredWork,
    ) {
        if hub.lists().flags().is_any() {
            self.end_notably(hub, worker, waited, notice, port);
        } else {
            drop(hub);
            self.notify(notice);
        }
    }

    /// Does what may not wait for the end of a sleep of the thread of `worker`: deferred tasks, and
    /// what a finishing port requires. Returns for how long the thread may sleep then.
    #[cold]
    #[inline(never)]
    fn prepare_to_sleep<'e>(
        &'e self,
        mut hub: MutexGuard<'e, Hub>,
        worker: &Worker,
        timeout: Option<Duration>,
        port: &dyn DeferredWork,
    ) -> (MutexGuard<'e, Hub>, Option<Duration>) {
        let has_tasks = hub.lists().flags().has(Flags::DEFERRED);
        if has_tasks {
            hub = self.run_deferred(hub, worker, port);
        }
        let (hub, has_gone_on) = self.go_on_finishing(hub, Some(worker.number()));
        (hub, if has_tasks || has_gone_on { Some(Duration::ZERO) } else { timeout })
    }

    /// Carries out deferred tasks, without the lock.
    #[cold]
    fn run_deferred<'e>(
        &'e self,
        hub: MutexGuard<'e, Hub>,
        worker: &Worker,
        port: &dyn DeferredWork,
    ) -> MutexGuard<'e, Hub> {
        drop(hub);
        let runs_deferred = worker.begin_deferred();
        port.run_deferred();
        drop(runs_deferred);
        self.lock()
    }

    /// Ends the wait of the thread of `worker` if any of the port's flags is set.
    ///
    /// Wakes the other thread before it calls a subscriber, which may take its time.
    #[cold]
    #[inline(never)]
    fn end_notably<'e>(
        &'e self,
        mut hub: MutexGuard<'e, Hub>,
        worker: &Worker,
        waited: Waited,
        notice: Option<PendingWake>,
        port: &dyn DeferredWork,
    ) {
        let leaves_none_idle = self.leaves_none_idle(&mut hub, waited);
        let is_any_deferred = hub.lists().flags().has(Flags::DEFERRED);
        let is_finishing = hub.lists().flags().has(Flags::FINISHING);
        if hub.lists().flags().has(Flags::MEASURED) {
            worker.measure();
        }
        let found = hub.lists_mut().take_found();
        if hub.lists().phase() != PortPhase::Open {
            hub = self.end_if_over(hub);
        }
        drop(hub);
        self.notify(notice);
        if is_any_deferred {
            port.run_deferred();
        }
        if is_finishing {
            // With packets, the thread is about to run handlers.
            let own = worker.is_chain_empty().then_some(worker.number());
            drop(self.go_on_finishing(self.lock(), own));
        }
        self.trace_found_asleep(found);
        if leaves_none_idle {
            self.run_idle_hook();
        }
    }

    /// Whether waits return immediately because the port is closed and has no packets left.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase() != PortPhase::Open && self.lock().lists().is_over()
    }

    /// Queues the messages and deadlines that are due at `now`, or a good part of them.
    ///
    /// The port is locked meanwhile. Returns when the next timer is due.
    pub(super) fn queue_due(&self, lists: &mut Lists, now: Moment) -> Moment {
        let mut due = NodeList::new();
        for _ in 0..MOST_DUE {
            match lists.timers_mut().take_due(now) {
                None => break,
                Some(Due::Message(cell)) => due.push(self.nodes(), cell | POSTED),
                Some(Due::SlotTimer(SlotTimer::Readiness, slot)) => {
                    self.ring_deadline_timer(lists, slot, now, &mut due);
                }
                Some(Due::SlotTimer(SlotTimer::Operations, slot)) => {
                    self.ring(lists, slot, now, &mut due)
                }
                Some(Due::Port) => lists.note_overdue(),
            }
        }
        let due = self.defer_due(lists, due);
        if lists.flags().is_any_of_queue() {
            self.note_queued(lists, &due);
        }
        lists.append(self.nodes(), due);
        lists.timers().next()
    }
}
