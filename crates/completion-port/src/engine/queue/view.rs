//! What the schedule sees of a port.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Queue;
use super::lists::Lists;
use crate::engine::context::PortPhase;
use crate::engine::worker::Worker;
use crate::state::facts::Presence;
use crate::state::moment::Moment;
use crate::state::queue::{Links, NIL};
use crate::state::schedule::{SchedulePort, WorkerNumber};
use crate::types::config::BlockDetection;

/// The port, as a thread that holds the lock sees it.
pub(in crate::engine) struct PortView<'a> {
    queue: &'a Queue,
    lists: &'a mut Lists,
    /// The thread's own worker. A thread without one takes no packets.
    own: Option<&'a Worker>,
}

impl<'a> PortView<'a> {
    #[inline]
    pub(super) fn new(queue: &'a Queue, lists: &'a mut Lists, own: Option<&'a Worker>) -> Self {
        Self { queue, lists, own }
    }

    #[inline]
    pub(in crate::engine) fn lists_mut(&mut self) -> &mut Lists {
        self.lists
    }

    fn worker(&self, worker: WorkerNumber) -> &Worker {
        self.lists.entries().worker(worker)
    }
}

impl SchedulePort for PortView<'_> {
    #[inline]
    fn now(&self) -> Moment {
        self.queue.backend().now()
    }

    #[inline]
    fn ready(&self) -> usize {
        self.lists.ready().len()
    }

    #[inline]
    fn begins_with_post(&self) -> bool {
        self.lists.ready().begins_with_post()
    }

    #[inline]
    fn unchecked(&self) -> usize {
        self.lists.recheck().len()
    }

    #[inline]
    fn posts(&self) -> usize {
        self.lists.posts()
    }

    #[inline]
    fn registered(&self) -> usize {
        self.lists.registered()
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.lists.is_over()
    }

    #[inline]
    fn takes_edges(&self) -> bool {
        let phase = self.lists.phase();
        phase == PortPhase::Open || phase.returns_keys()
    }

    #[inline]
    fn is_replacing(&self) -> bool {
        self.lists.is_replacing()
    }

    fn is_full_of_stale_events(&self) -> bool {
        self.lists.is_full_of_stale_events()
    }

    fn detects(&self) -> bool {
        self.queue.detection() != BlockDetection::Announced
    }

    fn progress(&self, worker: WorkerNumber) -> u32 {
        self.worker(worker).progress()
    }

    fn notice_progress(&mut self, worker: WorkerNumber, now: Moment) {
        self.lists.members_mut().notice_progress(worker, now);
    }

    fn presence(&self, worker: WorkerNumber) -> Option<Presence> {
        self.lists.entries().get(worker).and_then(|entry| entry.thread().read_record())
    }

    fn presume_asleep(&mut self, worker: WorkerNumber, asleep: bool) {
        self.worker(worker).presume_blocked(asleep);
        if asleep {
            self.lists.note_found(worker);
        }
    }

    #[inline]
    fn take(&mut self, packets: usize) {
        let Some(own) = self.own else { return };
        let list = self.lists.split(self.queue.nodes(), packets);
        own.begin_quota(list.len(), || self.queue.backend().now());
        own.assign(list.into_head());
    }

    #[inline]
    fn give(&mut self, worker: WorkerNumber) {
        let nodes = self.queue.nodes();
        let first = self.lists.pop(nodes).expect("the queue is not empty");
        nodes.link(first).store(NIL, Relaxed);
        self.worker(worker).assign(first);
    }

    fn take_back(&mut self, worker: WorkerNumber) -> bool {
        let Some(entry) = self.lists.entries().get(worker) else { return false };
        let worker = Arc::clone(entry.worker());
        self.queue.take_list_back(self.lists, &worker)
    }

    fn adopt(&mut self, from: WorkerNumber) {
        let Some(own) = self.own else { return };
        // The chain is empty unless the thread was assigned a packet.
        own.assign(self.worker(from).take_chain());
    }

    fn advise(&mut self, room: u32) {
        self.queue.set_advised(room);
    }
}
