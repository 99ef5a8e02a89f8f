//! The threads at the port: how they join and leave, block, sleep, and are relieved and observed.

mod quota;
mod report;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::context::BEGIN;
use super::queue::{Hub, Queue, WorkerEntry};
use super::worker::Worker;
use crate::backend::thread::Thread;
use crate::state::schedule::{Query, Status};
use crate::sync::{AtomicU64, MutexGuard};
use crate::types::config::BlockDetection;

/// See the module's documentation.
#[repr(C)]
pub(crate) struct Workers {
    queue: Queue,
    /// When to compute the advice again, in nanoseconds.
    advise_at: AtomicU64,
    /// Whether threads are observed from the start, rather than once they were found asleep.
    observes_all: bool,
}

impl Deref for Workers {
    type Target = Queue;

    #[inline]
    fn deref(&self) -> &Queue {
        &self.queue
    }
}

/// How threads join and leave, and announce that they block.
impl Workers {
    pub(super) fn new(queue: Queue, observes_all: bool) -> Self {
        Self { queue, advise_at: AtomicU64::new(0), observes_all }
    }

    /// Adds the calling thread to the port.
    pub(crate) fn join(&self) -> Arc<Worker> {
        let thread: Arc<dyn Thread> = self.backend().this_thread().into();
        let is_observed = self.observes_all && thread.observe();
        if self.detection() != BlockDetection::Announced {
            thread.prepare();
        }
        let mut hub = self.lock();
        // The thread's next action advances its progress beyond this.
        let number = hub.schedule().join(is_observed, BEGIN.wrapping_sub(1));
        let worker = Arc::new(Worker::new(number));
        let entry = WorkerEntry::new(Arc::clone(&worker), thread);
        hub.lists_mut().members_mut().add(number, entry);
        worker
    }

    /// Removes the thread of `worker` from the port: it exits, or waits on another one.
    ///
    /// The packets that it has not taken move to the front of the queue.
    pub(crate) fn leave(&self, worker: &Worker) {
        let mut hub = self.lock();
        if worker.leave() {
            return;
        }
        let (schedule, lists) = hub.parts_mut();
        self.take_list_back(lists, worker);
        lists.free_cells(self.nodes(), worker);
        lists.members_mut().remove(worker);
        let wake = schedule.leave(worker.number(), &self.view(lists, worker));
        let notice = wake.map(|wake| lists.notice(wake));
        drop(self.end_if_over(hub));
        self.notify(notice);
    }

    /// Announces that the thread of `worker` is about to block. False if it does not count anyway.
    pub(crate) fn begin_blocking(&self, worker: &Worker) -> bool {
        let mut hub = self.lock();
        if worker.has_left() {
            return false;
        }
        let (schedule, lists) = hub.parts_mut();
        let Some(wake) = schedule.block(worker.number(), &mut self.view(lists, worker)) else {
            return false;
        };
        let notice = wake.map(|wake| lists.notice(wake));
        drop(hub);
        self.notify(notice);
        true
    }

    /// Announces that the thread of `worker` no longer blocks.
    ///
    /// Does nothing in a child that was forked meanwhile.
    pub(crate) fn end_blocking(&self, worker: &Worker) {
        if self.forked() {
            return;
        }
        worker.advance_with_own(worker.own_left());
        let mut hub = self.lock();
        if !worker.has_left() {
            hub.schedule().unblock(worker.number());
        }
    }

    /// Moves the packets that the thread of `worker` has not taken back to the front of the queue.
    ///
    /// The thread does not want them.
    #[inline]
    pub(crate) fn return_packets(&self, worker: &Worker) {
        if worker.is_chain_empty() || self.forked() {
            return;
        }
        let mut hub = self.lock();
        let (schedule, lists) = hub.parts_mut();
        let gave_back = schedule.take_back(worker.number(), &mut self.view(lists, worker));
        let notice = if gave_back { self.depart(&mut hub) } else { None };
        drop(hub);
        self.notify(notice);
    }
}

/// How threads sleep, and how the port learns that others do.
impl Workers {
    /// Sleeps without the lock until another thread wakes this one, or for at most `timeout`.
    ///
    /// `None` is no limit. May also return early, for no reason. The thread of `worker` calls it.
    #[inline(never)]
    pub(super) fn sleep<'e>(
        &'e self,
        hub: MutexGuard<'e, Hub>,
        worker: &Worker,
        timeout: Option<Duration>,
    ) -> MutexGuard<'e, Hub> {
        let entry =
            hub.lists().entries().get(worker.number()).expect("a waiting thread has an entry");
        let thread = Arc::clone(entry.thread());
        drop(hub);
        thread.park(timeout);
        self.lock()
    }

    /// Asks the system, without the lock, whether another thread sleeps.
    ///
    /// The thread's processor time may answer that more cheaply. If the thread has made no progress
    /// and sleeps, it is observed from now on.
    #[inline(never)]
    pub(super) fn query<'e>(
        &'e self,
        hub: MutexGuard<'e, Hub>,
        query: Query,
    ) -> MutexGuard<'e, Hub> {
        let Some(entry) = hub.lists().entries().get(query.worker).cloned() else { return hub };
        drop(hub);
        // Read first, so that time for which the thread runs during the query does not count as
        // known.
        let ran = entry.thread().processor_time();
        let asleep = query.is_settled_by(ran).or_else(|| entry.thread().asleep());
        let is_observed = query.stuck_at.is_some()
            && asleep == Some(true)
            && self.detection() == BlockDetection::Switches
            && entry.thread().observe();
        let mut hub = self.lock();
        // The worker number may belong to another thread by now.
        if !entry.worker().has_left() {
            let (schedule, lists) = hub.parts_mut();
            schedule.answer(query, ran, asleep, is_observed, &mut self.view(lists, None));
        }
        hub
    }

    /// Queues the messages that threads have put behind their packets. Returns whether there were
    /// any.
    pub(super) fn queue_all_behind(&self, hub: &mut Hub) -> bool {
        let (_, lists) = hub.parts_mut();
        let mut were_any = false;
        for number in 0..lists.entries().highest() {
            let worker = lists.entries().get(number).map(|entry| Arc::clone(entry.worker()));
            were_any |= worker.is_some_and(|worker| self.queue_behind(lists, &worker));
        }
        were_any
    }

    /// Moves the untaken packets of all threads back to the front of the queue.
    ///
    /// A packet that was given to a thread which has not woken up yet stays with it.
    pub(super) fn take_back_all(&self, hub: &mut Hub) {
        let (schedule, lists) = hub.parts_mut();
        for number in 0..lists.entries().highest() {
            if lists.entries().get(number).is_some()
                && schedule.workers().status(number) != Status::Given
            {
                schedule.take_back(number, &mut self.view(lists, None));
            }
        }
    }
}
