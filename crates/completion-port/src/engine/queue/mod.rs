//! The lock, and the packets on their way to a thread.
//!
//! [`Hub`] is what the lock guards: the schedule, and the [`Lists`] it decides about. The schedule sees them as a
//! [`PortView`].

mod deadline;
mod delays;
mod entries;
mod hub;
mod lists;
mod post;
mod take;
mod tasks;
mod view;

use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{OnceLock, PoisonError};

use super::context::{BEGIN, Context, PortPhase};
use super::worker::Worker;
use crate::memory::trace::hears_packets;
use crate::state::operations::OpTable;
use crate::state::queue::{MOST_OPS, NIL, Node, NodeList, OP};
use crate::state::schedule::{Advice, Schedule};
use crate::sync::{AtomicBool, AtomicU32, Mutex, MutexGuard};
use crate::types::error::{Call, Error, ErrorKind, Fault};
use delays::Delays;

pub(crate) use delays::Histogram;
pub(super) use entries::{Notice, WorkerEntry};
pub(super) use hub::Hub;
pub(super) use lists::{Flags, Lists};
pub(crate) use post::Posting;
pub(crate) use take::Taken;
pub(super) use view::PortView;

/// How many records a thread keeps whose packets it has taken, until it next waits.
const MOST_COMPLETED: u32 = 64;

/// See the module's documentation.
#[repr(C)]
pub(crate) struct Queue {
    context: Context,
    /// How many packets a thread takes if it cannot give any back, for threads that do not have the
    /// lock.
    advised: AtomicU32,
    /// A task was started. It stays so.
    has_tasks: AtomicBool,
    /// A [fault](Lists::fault) was kept, for threads that do not have the lock. It orders nothing, and no model of loom sets it:
    /// as one of the standard library it makes those no larger.
    has_fault: std::sync::atomic::AtomicBool,
    hub: Mutex<Hub>,
    /// Made when a program first has the port measure how long packets stand in it.
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
            hub: Mutex::new(hub),
            delays: OnceLock::new(),
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> MutexGuard<'_, Hub> {
        // No user code runs under the lock. Should the engine itself ever panic under it, the other
        // threads go on with what they find.
        self.hub.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lock, unless another thread has it: in a forked child it may never be given up.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, Hub>> {
        self.hub.try_lock().ok()
    }

    /// What the schedule sees of this port, for the thread of `own`, which has the lock.
    #[inline]
    pub(super) fn view<'a>(
        &'a self,
        lists: &'a mut Lists,
        own: impl Into<Option<&'a Worker>>,
    ) -> PortView<'a> {
        PortView::new(self, lists, own.into())
    }

    /// How many packets a thread takes if it cannot give any back.
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
    pub(super) fn notify(&self, notice: Option<Notice>) {
        if let Some(notice) = notice {
            self.release(notice);
        }
    }

    #[inline(never)]
    fn release(&self, notice: Notice) {
        let (thread, worker, in_kernel) = notice.into_parts();
        if in_kernel {
            self.backend().wake();
        } else {
            thread.unpark();
        }
        if hears_packets() {
            self.tell_woken(worker, in_kernel);
        }
    }

    /// Wakes every thread that still waits, if there is nothing left to wait for. The lock is given up for
    /// that, and taken again.
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

    /// The calling thread goes off to user code. If it leaves too much behind, this calls another
    /// thread, or appoints one watchdog.
    pub(super) fn depart(&self, hub: &mut Hub) -> Option<Notice> {
        let (schedule, lists) = hub.parts_mut();
        let wake = schedule.depart(&mut self.view(lists, None));
        wake.map(|wake| lists.notice(wake))
    }

    /// Does what ends operations and then queues their packets. The waits of a port that is closed in between go on
    /// until that is done.
    pub(super) fn until_queued<R>(&self, end: impl FnOnce() -> R) -> R {
        self.lock().lists_mut().begin_await();
        let ended = end();
        let mut hub = self.lock();
        hub.lists_mut().end_await();
        drop(self.end_if_over(hub));
        ended
    }

    /// The packet of an operation is taken that the waits of the closed port have gone on for.
    #[cold]
    pub(super) fn end_awaiting(&self) {
        if self.forked() {
            return;
        }
        let mut hub = self.lock();
        hub.lists_mut().end_await();
        drop(self.end_if_over(hub));
    }

    /// The key of a removed registration is in its cell, and a thread waits for it.
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
    /// Queues a packet and releases the newest waiting thread for it, if one may run.
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

    /// Queues a packet that is the doing of the calling thread, which has the lock. If that thread runs at the port it soon
    /// comes for its next packets: then another one is woken for this as it is for a check that is left to the next
    /// wait.
    pub(super) fn submit_own_locked(
        &self,
        hub: &mut Hub,
        node: Node,
        worker: Option<&Worker>,
    ) -> Option<Notice> {
        let (schedule, lists) = hub.parts_mut();
        let Some(worker) = worker.filter(|worker| worker.runs(schedule)) else {
            return self.submit_locked(hub, node);
        };
        lists.push(self.nodes(), node);
        if lists.flags().is_any() {
            self.note_queued_one(lists, node);
        }
        let wake = schedule.look_after(&self.view(lists, worker));
        wake.map(|wake| lists.notice(wake))
    }

    /// The same as [`Queue::submit`], for a thread that has the lock.
    pub(super) fn submit_locked(&self, hub: &mut Hub, node: Node) -> Option<Notice> {
        let (schedule, lists) = hub.parts_mut();
        lists.push(self.nodes(), node);
        if lists.flags().is_any() {
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

    /// An operation has ended: its packet is queued.
    pub(crate) fn queue_operation(&self, op_index: u32) {
        if !self.forked() {
            self.submit(op_index | OP);
        }
    }

    /// What `worker` was handed and its thread has not looked at goes back to the front of the queue. False if
    /// there was nothing.
    #[inline]
    pub(super) fn take_list_back(&self, lists: &mut Lists, worker: &Worker) -> bool {
        // Only under the lock is anything put there.
        !worker.is_chain_empty() && self.take_links_back(lists, worker)
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

/// Slots and records.
impl Queue {
    /// A free slot, for `Registry::register` or `Registry::cancel`.
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

    /// Gives back a slot that has been given up, unless it has no name left to give.
    pub(super) fn give_back_slot(&self, index: u32) {
        // The slot was given up at least once, so it has its first generation again only if every
        // generation was used.
        let is_used_up = self.slot(index).word().generation() == self.first_generation();
        let mut hub = self.lock();
        let lists = hub.lists_mut();
        lists.give_back_slot(self.nodes(), index, is_used_up);
        lists.tell_collectors();
        drop(self.end_if_over(hub));
    }

    pub(super) fn take_op(&self, call: Call, also: impl FnOnce(u32) -> bool) -> Result<u32, Error> {
        let reserve = |number| {
            let reserved = number < MOST_OPS && self.nodes().reserve_record(number) && also(number);
            if reserved {
                self.nodes().op(number).begin_uses(self.of_this_port());
            }
            reserved
        };
        let op_index = self.lock().lists_mut().take_op(self.nodes(), reserve);
        op_index.ok_or(Error::new(call, ErrorKind::OutOfMemory))
    }

    /// A record without an operation, the cell of which is empty.
    pub(crate) fn give_back_op(&self, op_index: u32) {
        if !self.forked() {
            self.lock().lists_mut().give_back_op(self.nodes(), op_index);
        }
    }

    /// The operation of a record has been moved out of its cell by the calling thread, the seat of which this is.
    pub(crate) fn free_op(&self, op_index: u32, worker: Option<&Worker>) {
        match worker {
            // The thread may never wait again, and take packets that others have waited for.
            Some(worker) if worker.completed().len() < MOST_COMPLETED => {
                worker.completed().push(op_index, &self.nodes().op(op_index).link);
            }
            _ => self.give_back_op(op_index),
        }
    }
}

/// Refusals of the kernel for good to say what is ready: kept until a wait can report them.
impl Queue {
    /// Keeps a refusal until a wait of any thread reports it.
    #[cold]
    pub(crate) fn keep_fault(&self, fault: Fault) {
        let mut hub = self.lock();
        hub.lists_mut().set_fault(fault);
        self.has_fault.store(true, Relaxed);
    }

    /// Whether there is a refusal that no wait has reported.
    #[inline]
    pub(crate) fn has_fault(&self) -> bool {
        self.has_fault.load(Relaxed)
    }

    /// The error of the calling wait: the refusal that was kept last, perhaps of another thread. It stays, since two waits
    /// may have met a refusal before one of them reports it.
    #[cold]
    pub(crate) fn take_fault(&self) -> Error {
        let hub = self.lock();
        self.has_fault.store(false, Relaxed);
        let fault = hub.lists().fault();
        let fault = fault.unwrap_or(Fault { kind: ErrorKind::Other, code: None });
        Error::new(Call::Wait, fault.kind).with_code(fault.code)
    }
}
