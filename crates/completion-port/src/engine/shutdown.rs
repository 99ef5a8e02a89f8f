//! How a port ends.

use std::sync::atomic::Ordering::SeqCst;

use super::Engine;
use super::context::{Context, PortPhase, name_of};
use super::queue::{Hub, Notice};
use crate::state::moment::Moment;
use crate::state::operations::{EndReason, Op};
use crate::state::queue::{OP, POSTED, cell_of};
use crate::sync::fence;
use crate::types::error::{Call, Error};

/// What a dropped port still holds: the numbers of slots with a key, and of cells with a message.
pub(crate) struct Remains {
    pub(crate) keys: Vec<u32>,
    pub(crate) messages: Vec<u32>,
    /// Records of operations whose cells are not empty.
    pub(crate) operations: Vec<u32>,
}

impl Engine {
    /// Refuses new work; waits go on until the queue is empty.
    pub(crate) fn close(&self) {
        self.end_in(PortPhase::Closed);
    }

    /// Refuses new work, and ends every wait at once.
    pub(crate) fn abandon(&self) {
        self.end_in(PortPhase::Abandoned);
    }

    fn end_in(&self, phase: PortPhase) {
        let mut hub = self.lock();
        if hub.lists().phase() == PortPhase::Abandoned {
            return;
        }
        let notice = self.leave_open(&mut hub, phase);
        if phase == PortPhase::Closed {
            // Until all packets of operations are queued the waits go on.
            hub.lists_mut().begin_await();
            let (slots, ops) = (hub.lists().highest_slot(), hub.lists().highest_record());
            drop(hub);
            self.notify(notice);
            self.cancel_everywhere(slots, ops);
            let mut hub = self.lock();
            hub.lists_mut().end_await();
            drop(self.end_if_over(hub));
        } else {
            drop(self.end_if_over(hub));
            self.notify(notice);
        }
    }

    /// Operations would wait for ever for peers that say nothing: they end, and their packets are queued.
    /// The packets of those that are being tried, or have just ended, are awaited.
    fn cancel_everywhere(&self, slots: u32, ops: u32) {
        // The port is closed, which was said under its lock. A thread that starts an operation looks for that under the
        // lock of the registration's operation entry: either it sees it, or this thread sees the operation from here on. The slots
        // and records beyond these numbers, and an operation entry that is not found, are taken under the port's lock, behind that
        // word.
        for entry in (0..slots).filter_map(|index| self.entry(index)) {
            drop(entry.lock());
        }
        // The thread that starts a lone one has no lock. It looks behind the exchange that puts the operation in flight: either
        // it sees that the port is closed, or this thread sees the operation from here on.
        fence(SeqCst);
        for op_index in 0..ops {
            self.await_packet(self.nodes().op_index(op_index));
        }
        for index in 0..slots {
            let Some(slot) = self.nodes().find_slot(index) else { continue };
            self.cancel_op(slot, name_of(index, slot.word().generation()), EndReason::Cancelled);
        }
    }

    /// Has the waits of the closed port go on until the packet of this operation is taken, if a thread may be about to
    /// queue it.
    fn await_packet(&self, op: &Op) {
        while op.is_in_flight() {
            let index = op.slot();
            let mut hub = self.lock();
            let Some(entry) = self.entry(index) else { return };
            let mut queues = entry.lock();
            // It may have been another operation.
            if op.slot() == index {
                let uses = op.uses();
                if op.is_lone() || self.slot(index).word().is_lone() {
                    if self.await_alone(index, op, uses) {
                        hub.lists_mut().begin_await();
                    }
                } else if queues.await_packet(op) {
                    hub.lists_mut().begin_await();
                }
                return;
            }
        }
    }

    /// The same for an operation that may be lone, and may complete meanwhile.
    fn await_alone(&self, index: u32, op: &Op, uses: u32) -> bool {
        if !op.start_awaiting() {
            return false;
        }
        // The thread that completes it tells the slot, and then looks whether it was awaited. If that comes after this claim
        // it sees the word above.
        let slot = self.slot(index);
        slot.touch();
        if slot.word().is_lone() && op.uses() == uses {
            return true;
        }
        // Otherwise this thread takes the word back, unless the other one has seen it by then.
        !op.stop_awaiting()
    }

    /// The port is open no longer. What is due by now is queued still, though no thread has looked since: all of
    /// it in one hold of the lock, however much that is, since nothing is queued from this moment on.
    fn leave_open(&self, hub: &mut Hub, phase: PortPhase) -> Option<Notice> {
        let mut notice = None;
        if hub.schedule().has_timers() && phase != PortPhase::Abandoned {
            let now = self.backend().now();
            while self.queue_due(hub.lists_mut(), now) <= now {}
            notice = self.depart(hub);
        }
        hub.schedule().next_timer(Moment::NEVER);
        hub.lists_mut().set_phase(phase);
        Context::set_phase(self, phase);
        notice
    }

    /// Refuses new work and removes every registration; waits go on until none is left.
    pub(crate) fn shut_down(&self) -> Result<(), Error> {
        self.check_usable(Call::Shutdown)?;
        let mut hub = self.lock();
        let mut notice = None;
        if hub.lists().phase() == PortPhase::Open {
            notice = self.leave_open(&mut hub, PortPhase::ShuttingDown);
        }
        let highest = hub.lists().highest_slot();
        drop(hub);
        self.notify(notice);
        // Either this thread sees a slot that is being registered, or the thread that registers it
        // sees the store above.
        fence(SeqCst);
        for index in 0..highest {
            let Some(slot) = self.nodes().find_slot(index) else { continue };
            let word = slot.word();
            if word.is_live() {
                // If the registration has ended or is being removed, there is nothing to do.
                let _ = self.remove(name_of(index, word.generation()));
            }
        }
        drop(self.end_if_over(self.lock()));
        Ok(())
    }

    /// The port is dropped: forgets every descriptor, and tells which slots and cells still hold a
    /// key or a message that is to be dropped.
    pub(crate) fn dismantle(&self) -> Remains {
        let mut remains =
            Remains { keys: Vec::new(), messages: Vec::new(), operations: Vec::new() };
        // In a forked child the lock may never be given up: the thread that had it is not there.
        let forked = self.forked();
        let hub = if forked { self.try_lock() } else { Some(self.lock()) };
        if let Some(mut hub) = hub {
            hub.lists_mut().set_phase(PortPhase::Closed);
            self.take_back_all(&mut hub);
            // This closes the descriptors by which threads are queried.
            hub.lists_mut().members_mut().clear();
            remains.messages.extend(hub.lists().timers().cells());
            let mut queued = hub.lists_mut().take_ready();
            drop(hub);
            while let Some(node) = queued.pop(self.nodes()) {
                if node & OP == POSTED {
                    remains.messages.push(cell_of(node));
                }
            }
        }
        for op_index in 0.. {
            let Some(op) = self.nodes().find_record(op_index) else { break };
            // What another thread of the parent was just moving to or from its back end is forgotten in a child.
            if op.is_in_flight() && !(forked && self.is_file(op.slot())) {
                remains.operations.push(op_index);
                let reason = op.cancelled().unwrap_or(EndReason::Cancelled);
                if !forked {
                    self.abandon_connect(&self.op_ref(op_index), reason);
                }
            }
            if op.is_submitted() && !forked {
                // Before the keys are dropped: a system may let a send go on behind the closing of its socket.
                drop(self.cancel_socket_request(op_index));
            }
        }
        for index in 0.. {
            let Some(slot) = self.nodes().find_slot(index) else { break };
            let word = slot.word();
            if word.is_live() {
                if !forked {
                    self.release_number(name_of(index, word.generation()));
                }
                slot.free();
                if !word.is_held() {
                    remains.keys.push(index);
                }
            }
        }
        if !forked {
            self.backend().descriptors().leave(self.number());
        }
        remains
    }
}
