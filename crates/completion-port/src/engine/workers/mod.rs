//! The threads at the port: how they come and go, block, sleep, and are relieved and observed.

mod quota;
mod report;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::context::BEGIN;
use super::queue::{Hub, Queue, WorkerEntry};
use super::worker::Worker;
use crate::backend::thread::Thread;
use crate::state::schedule::Query;
use crate::sync::{AtomicU64, MutexGuard};
use crate::types::config::BlockDetection;

/// See the module's documentation.
#[repr(C)]
pub(crate) struct Workers {
    queue: Queue,
    /// When the advice is to be computed again, in nanoseconds.
    advise_at: AtomicU64,
    /// Threads are observed from the first, not only once they have been found asleep.
    observes_all: bool,
}

impl Deref for Workers {
    type Target = Queue;

    #[inline]
    fn deref(&self) -> &Queue {
        &self.queue
    }
}

/// How threads come and go, and say that they block.
impl Workers {
    pub(super) fn new(queue: Queue, observes_all: bool) -> Self {
        Self { queue, advise_at: AtomicU64::new(0), observes_all }
    }

    /// The calling thread takes a seat.
    pub(crate) fn join(&self) -> Arc<Worker> {
        let thread: Arc<dyn Thread> = self.backend().this_thread().into();
        let is_observed = self.observes_all && thread.observe();
        if self.detection() != BlockDetection::Announced {
            thread.prepare();
        }
        let mut hub = self.lock();
        // The thread's progress moves on with its first action after this.
        let number = hub.schedule().join(is_observed, BEGIN.wrapping_sub(1));
        let worker = Arc::new(Worker::new(number));
        let entry = WorkerEntry::new(Arc::clone(&worker), thread);
        hub.lists_mut().members_mut().add(number, entry);
        worker
    }

    /// The thread of `worker` leaves the port: it exits, or waits on another one. Packets that it had
    /// not looked at go back to the front of the queue.
    pub(crate) fn leave(&self, worker: &Worker) {
        let mut hub = self.lock();
        if worker.leave() {
            return;
        }
        let (schedule, lists) = hub.parts_mut();
        self.take_list_back(lists, worker);
        lists.give_back_emptied(self.nodes(), worker);
        lists.members_mut().remove(worker);
        let wake = schedule.leave(worker.number(), &self.view(lists, worker));
        let notice = wake.map(|wake| lists.notice(wake));
        drop(self.end_if_over(hub));
        self.notify(notice);
    }

    /// The thread of `worker` says that it is about to block; false if it is not counted anyway.
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

    /// The thread of `worker` blocks no longer. Nothing happens in a child that was forked meanwhile.
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

    /// The thread of `worker` does not want the packets that it has not looked at: they go back to
    /// the front of the queue.
    #[inline]
    pub(crate) fn give_back(&self, worker: &Worker) {
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

/// How threads sleep, and what becomes known of those that do not wait.
impl Workers {
    /// Sleeps without the lock until another thread wakes this one, or `timeout` is over (`None`:
    /// no limit), or for no reason. The thread of `worker` calls it.
    #[inline(never)]
    pub(super) fn sleep<'e>(
        &'e self,
        hub: MutexGuard<'e, Hub>,
        worker: &Worker,
        timeout: Option<Duration>,
    ) -> MutexGuard<'e, Hub> {
        let entry = hub.lists().entries().get(worker.number()).expect("a thread that waits sits");
        let thread = Arc::clone(entry.thread());
        drop(hub);
        thread.park(timeout);
        self.lock()
    }

    /// Asks the system, without the lock, whether another thread sleeps, unless the processor time
    /// of that thread tells. If it has made no progress and sleeps, it is observed from now on.
    #[inline(never)]
    pub(super) fn query<'e>(
        &'e self,
        hub: MutexGuard<'e, Hub>,
        query: Query,
    ) -> MutexGuard<'e, Hub> {
        let Some(entry) = hub.lists().entries().get(query.worker).cloned() else { return hub };
        drop(hub);
        // First: what the thread runs while the system is asked is not counted as known.
        let ran = entry.thread().processor_time();
        let asleep = query.is_settled_by(ran).or_else(|| entry.thread().asleep());
        let is_observed = query.stuck_at.is_some()
            && asleep == Some(true)
            && self.detection() == BlockDetection::Switches
            && entry.thread().observe();
        let mut hub = self.lock();
        // The seat may be another thread's by now.
        if !entry.worker().has_left() {
            let (schedule, lists) = hub.parts_mut();
            schedule.answer(query, ran, asleep, is_observed, &mut self.view(lists, None));
        }
        hub
    }

    /// What any thread was handed and has not looked at goes back to the front of the queue, except for
    /// packets that are on their way.
    pub(super) fn take_back_all(&self, hub: &mut Hub) {
        let (schedule, lists) = hub.parts_mut();
        for number in 0..lists.entries().highest() {
            if lists.entries().get(number).is_some() && !schedule.is_given(number) {
                schedule.take_back(number, &mut self.view(lists, None));
            }
        }
    }
}
