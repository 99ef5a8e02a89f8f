//! The lock, and the packets on their way to a thread.
//!
//! The lock guards [`Hub`]: the schedule, and the [`Lists`] that it decides about. The schedule
//! sees them through a [`PortView`].

mod deadline;
mod delays;
mod entries;
mod hub;
mod lists;
mod next_operation;
mod post;
mod take;
mod tasks;
mod view;

use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::context::{BEGIN, Context, PortPhase};
use super::worker::Worker;
use crate::memory::trace::traces_packets;
use crate::state::operations::OpTable;
use crate::state::queue::{Links, MOST_OPS, NIL, Node, NodeList, OP};
use crate::state::schedule::{Advice, Schedule};
use crate::sync::{AtomicBool, AtomicU32, Mutex, MutexGuard, lock};
use crate::types::error::{Call, Error, ErrorKind, Fault};
use delays::Delays;

pub(crate) use delays::Histogram;
pub(super) use entries::{PendingWake, WorkerEntry};
pub(super) use hub::Hub;
pub(super) use lists::{Flags, Lists};
pub(crate) use next_operation::OpThread;
pub(crate) use post::Posting;
pub(crate) use take::Taken;
pub(super) use view::PortView;

/// How many op indexes a thread keeps after it has taken their packets, until it next waits.
const MOST_COMPLETED: u32 = 64;

/// See the module's documentation.
#[repr(C)]
pub(crate) struct Queue {
    context: Context,
    /// How many packets a thread takes if it cannot return any, for threads without the lock.
    advised: AtomicU32,
    /// Whether a task was ever started.
    has_tasks: AtomicBool,
    /// Whether a [fault](Lists::fault) is kept, for threads without the lock. It orders nothing and
    /// no loom model sets it, so it is an atomic of the standard library, which keeps the models
    /// small.
    has_fault: std::sync::atomic::AtomicBool,
    /// Whether tasks are deferred, for threads without the lock. Changed with the lock held.
    has_deferred: AtomicBool,
    hub: Mutex<Hub>,
    /// Created when a program first measures how long packets are queued.
    delays: OnceLock<Box<Delays>>,
}

impl Deref for Queue {
    type Target = Context;

    #[inline]
    fn deref(&self) -> &Context {
        &self.context
    }
}

/// The lock.
impl Queue {
    pub(super) fn new(context: Context) -> Self {
        let hub = Hub::new(Schedule::new(context.limit(), BEGIN), Lists::new(context.number()));
        Self {
            context,
            advised: AtomicU32::new(Advice::ALL),
            has_tasks: AtomicBool::new(false),
            has_fault: std::sync::atomic::AtomicBool::new(false),
            has_deferred: AtomicBool::new(false),
            hub: Mutex::new(hub),
            delays: OnceLock::new(),
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Hub> {
        // No user code runs under the lock. If the engine itself panics under it, the other threads
        // continue with the state they find.
        lock(&self.hub)
    }

    /// Takes the lock, unless another thread has it. In a forked child it may never be released.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Hub>> {
        self.hub.try_lock().ok()
    }

    /// Lets another thread run whenever packets have waited this long while all running threads
    /// compute.
    pub(crate) fn overcommit_after(&self, time: Duration) {
        self.lock().schedule().overcommit_after(time);
    }

    /// Returns what the schedule sees of this port, for the thread of `own`, which holds the lock.
    #[inline]
    pub(super) fn view<'a>(
        &'a self,
        lists: &'a mut Lists,
        own: impl Into<Option<&'a Worker>>,
    ) -> PortView<'a> {
        PortView::new(self, lists, own.into())
    }

    /// Returns how many packets a thread takes if it cannot return any.
    pub(super) fn advised(&self) -> u32 {
        self.advised.load(Relaxed)
    }

    pub(super) fn set_advised(&self, room: u32) {
        self.advised.store(room, Relaxed);
    }
}

/// Waking threads.
impl Queue {
    #[inline]
    pub(super) fn notify(&self, notice: Option<PendingWake>) {
        if let Some(notice) = notice {
            self.release(notice);
        }
    }

    #[inline(never)]
    fn release(&self, notice: PendingWake) {
        let (thread, worker, in_kernel) = notice.into_parts();
        if in_kernel {
            self.backend().wake();
        } else {
            thread.unpark();
        }
        if traces_packets() {
            self.trace_woken(worker, in_kernel);
        }
    }

    /// Wakes every thread that still waits, if the port has ended.
    ///
    /// Releases the lock for that, and takes it again.
    #[inline(never)]
    pub(super) fn end_if_over<'e>(&'e self, mut hub: MutexGuard<'e, Hub>) -> MutexGuard<'e, Hub> {
        if !hub.lists().is_over() {
            return hub;
        }
        let notices = hub.dismiss_all();
        drop(hub);
        notices.into_iter().for_each(|notice| self.notify(Some(notice)));
        self.lock()
    }

    /// Notes that the calling thread leaves for user code.
    ///
    /// If it leaves too much in the queue, returns another thread to wake, or appoints a watchdog.
    pub(super) fn depart(&self, hub: &mut Hub) -> Option<PendingWake> {
        let (schedule, lists) = hub.parts_mut();
        let wake = schedule.depart(&mut self.view(lists, None));
        wake.map(|wake| lists.notice(wake))
    }

    /// Runs `end`, which ends operations and queues their packets.
    ///
    /// If the port is closed meanwhile, its waits continue until that is done.
    pub(super) fn until_queued<R>(&self, end: impl FnOnce() -> R) -> R {
        self.lock().lists_mut().begin_await();
        let ended = end();
        let mut hub = self.lock();
        hub.lists_mut().end_await();
        drop(self.end_if_over(hub));
        ended
    }

    /// Ends the closed port's wait for an operation whose packet is taken.
    #[cold]
    pub(super) fn end_awaiting(&self) {
        if self.forked() {
            return;
        }
        let mut hub = self.lock();
        hub.lists_mut().end_await();
        drop(self.end_if_over(hub));
    }

    /// Wakes the thread that waits for the key of a removed registration. The key is in its cell.
    pub(crate) fn announce_collected(&self) {
        if self.forked() {
            return;
        }
        // The lock orders this after the waiting thread's last look at the slot.
        self.lock().lists().tell_collectors();
    }
}

/// Queueing packets.
impl Queue {
    /// Queues a packet, and wakes the thread that started to wait last if one may run.
    pub(super) fn submit(&self, node: Node) {
        if self.defer(node) {
            return;
        }
        let mut hub = self.lock();
        let notice = self.submit_locked(&mut hub, node);
        drop(hub);
        self.notify(notice);
    }

    pub(super) fn submit_all(&self, mut nodes: NodeList) {
        while let Some(node) = nodes.pop(self.nodes()) {
            self.submit(node);
        }
    }

    /// Queues a packet that the calling thread has caused: see [`Queue::submit_own_locked`].
    pub(super) fn submit_own(&self, node: Node, worker: Option<&Worker>) {
        let mut hub = self.lock();
        let notice = self.submit_own_locked(&mut hub, node, worker);
        drop(hub);
        self.notify(notice);
    }

    /// Queues a packet that the calling thread has caused. The caller holds the lock.
    ///
    /// A thread that runs at the port soon waits for its next packets. So another thread is woken
    /// only as it would be for a check that is left to the next wait.
    pub(super) fn submit_own_locked(
        &self,
        hub: &mut Hub,
        node: Node,
        worker: Option<&Worker>,
    ) -> Option<PendingWake> {
        let (schedule, lists) = hub.parts_mut();
        let Some(worker) = worker.filter(|worker| worker.runs(schedule)) else {
            return self.submit_locked(hub, node);
        };
        lists.push(self.nodes(), node);
        if lists.flags().is_any_of_queue() {
            self.note_queued_one(lists, node);
        }
        let wake = schedule.look_after(&self.view(lists, worker));
        wake.map(|wake| lists.notice(wake))
    }

    /// Like [`Queue::submit`], for a thread that holds the lock.
    pub(super) fn submit_locked(&self, hub: &mut Hub, node: Node) -> Option<PendingWake> {
        let (schedule, lists) = hub.parts_mut();
        lists.push(self.nodes(), node);
        if lists.flags().is_any_of_queue() {
            self.note_queued_one(lists, node);
        }
        let wake = schedule.queued(&mut self.view(lists, None));
        wake.map(|wake| lists.notice(wake))
    }

    /// Queues a slot whose turn did not come. The caller owns the node.
    pub(crate) fn queue_again(&self, index: u32) {
        if !self.forked() {
            self.submit(index);
        }
    }

    /// Queues the packet of an operation that has ended.
    pub(crate) fn queue_operation(&self, op_index: u32) {
        if !self.forked() {
            self.submit(op_index | OP);
        }
    }

    /// Queues the packet of an operation that the calling thread has started and done.
    ///
    /// `worker` is that thread's. If it runs here, it soon waits, as in
    /// [`Queue::submit_own_locked`].
    pub(crate) fn queue_own_operation(&self, op_index: u32, worker: Option<&Worker>) {
        if self.forked() || self.defer(op_index | OP) {
            return;
        }
        let mut hub = self.lock();
        let notice = self.submit_own_locked(&mut hub, op_index | OP, worker);
        drop(hub);
        self.notify(notice);
    }

    /// Moves the packets that `worker` has not taken back to the front of the queue, and the
    /// messages that are to follow them to the end.
    ///
    /// False if there were none.
    #[inline]
    pub(super) fn take_list_back(&self, lists: &mut Lists, worker: &Worker) -> bool {
        // Each chain gets its first node from the holder of the lock, so an empty one stays empty.
        let had_packets = !worker.is_chain_empty() && self.take_links_back(lists, worker);
        let had_behind = worker.has_behind() && self.queue_behind(lists, worker);
        had_packets || had_behind
    }

    /// Moves the messages that `worker` has put behind its packets to the end of the queue.
    ///
    /// False if there were none.
    #[inline(never)]
    pub(super) fn queue_behind(&self, lists: &mut Lists, worker: &Worker) -> bool {
        let mut node = worker.take_behind();
        if node == NIL {
            return false;
        }
        // The newest is the first.
        let mut behind = NodeList::new();
        while node != NIL {
            let older = self.nodes().link(node).load(Relaxed);
            behind.push_front(self.nodes(), node);
            node = older;
        }
        lists.append(self.nodes(), behind);
        true
    }

    #[inline(never)]
    fn take_links_back(&self, lists: &mut Lists, worker: &Worker) -> bool {
        let head = worker.take_chain();
        if head == NIL {
            return false;
        }
        let rest = NodeList::from_head(self.nodes(), head);
        lists.prepend(self.nodes(), rest);
        lists.tell_collectors();
        true
    }
}

/// Slots and op indexes.
impl Queue {
    /// Reserves a free slot, for `Registry::register` or `Registry::cancel`.
    ///
    /// `also` reserves what else the caller needs for it.
    pub(crate) fn reserve_slot(
        &self,
        call: Call,
        also: impl FnOnce(u32) -> bool,
    ) -> Result<u32, Error> {
        self.check_open(call)?;
        let reserve = |number| {
            let reserved = self.nodes().reserve_slot(number) && also(number);
            if reserved {
                self.slot(number).begin_with(self.first_generation());
            }
            reserved
        };
        let mut hub = self.lock();
        if hub.lists().phase() != PortPhase::Open {
            return Err(Error::new(call, ErrorKind::Closed));
        }
        let index = hub.lists_mut().take_slot(self.nodes(), reserve);
        let index = index.ok_or(Error::new(call, ErrorKind::OutOfMemory))?;
        Ok(index)
    }

    /// Frees a slot that was given up, unless its names are used up.
    pub(super) fn release_slot(&self, index: u32) {
        // The slot was given up at least once, so it has its first generation again only if every
        // generation was used.
        let is_used_up = self.slot(index).word().generation() == self.first_generation();
        let mut hub = self.lock();
        let lists = hub.lists_mut();
        lists.release_slot(self.nodes(), index, is_used_up);
        lists.tell_collectors();
        drop(self.end_if_over(hub));
    }

    #[inline]
    pub(super) fn take_op(&self, call: Call, also: impl FnOnce(u32) -> bool) -> Result<u32, Error> {
        let reserve = |number| {
            let reserved = number < MOST_OPS && self.nodes().reserve_op(number) && also(number);
            if reserved {
                self.nodes().op(number).begin_uses(self.of_this_port());
            }
            reserved
        };
        let op_index = self.lock().lists_mut().take_op(self.nodes(), reserve);
        op_index.ok_or(Error::new(call, ErrorKind::OutOfMemory))
    }

    /// Frees an op index that has no operation and whose cell is empty.
    pub(crate) fn release_op(&self, op_index: u32) {
        if !self.forked() {
            self.lock().lists_mut().release_op(self.nodes(), op_index);
        }
    }

    /// Frees an op index after the calling thread has moved its operation out of the cell.
    ///
    /// `worker` is the calling thread's.
    pub(crate) fn free_op(&self, op_index: u32, worker: Option<&Worker>) {
        match worker {
            // A thread keeps only a few: it may take packets for which others wait, and never wait
            // itself.
            Some(worker) if worker.completed().len() < MOST_COMPLETED => {
                worker.completed().push(op_index, &self.nodes().op(op_index).link);
            }
            _ => self.release_op(op_index),
        }
    }
}

/// Faults: the kernel refuses, permanently, to report what is ready. A fault is kept until a wait
/// can report it.
impl Queue {
    /// Keeps a fault until a wait of any thread reports it.
    #[cold]
    pub(crate) fn keep_fault(&self, fault: Fault) {
        let mut hub = self.lock();
        hub.lists_mut().set_fault(fault);
        self.has_fault.store(true, Relaxed);
    }

    /// Whether there is a fault that no wait has reported.
    #[inline]
    pub(crate) fn has_fault(&self) -> bool {
        self.has_fault.load(Relaxed)
    }

    /// Returns the error for the calling wait: the newest fault, perhaps of another thread.
    ///
    /// The fault itself stays, since two waits may meet a refusal before either reports it.
    #[cold]
    pub(crate) fn take_fault(&self) -> Error {
        let hub = self.lock();
        self.has_fault.store(false, Relaxed);
        let fault = hub.lists().fault();
        let fault = fault.unwrap_or(Fault { kind: ErrorKind::Other, code: None });
        Error::new(Call::Wait, fault.kind).with_code(fault.code)
    }
}
