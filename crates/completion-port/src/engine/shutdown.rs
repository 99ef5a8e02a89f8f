//! How a port ends.

use std::sync::atomic::Ordering::SeqCst;

use super::Engine;
use super::context::{Context, PortPhase, name_of};
use super::queue::{Hub, PendingWake};
use super::registry::NO_DESCRIPTOR;
use crate::state::moment::Moment;
use crate::state::operations::{EndReason, Op};
use crate::state::queue::{OP, POSTED, cell_of};
use crate::sync::fence;
use crate::types::error::{Call, Error};

/// What a dropped port still holds: indexes of slots with a key, and of cells with a message.
pub(crate) struct UnclaimedCells {
    pub(crate) keys: Vec<u32>,
    pub(crate) messages: Vec<u32>,
    /// Op indexes whose cells are not empty.
    pub(crate) operations: Vec<u32>,
}

impl Engine {
    /// Refuses new work; waits continue until the queue is empty.
    pub(crate) fn close(&self) {
        self.end_in(PortPhase::Closed);
    }

    /// Refuses new work, and ends every wait immediately.
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
            // The waits continue until the packets of all operations are queued.
            hub.lists_mut().begin_await();
            let (slots, ops) = (hub.lists().highest_slot(), hub.lists().highest_op());
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

    /// Cancels all operations, which would wait indefinitely for silent peers.
    ///
    /// Queues their packets. The waits continue for the packets of those that are being tried or
    /// have just ended.
    fn cancel_everywhere(&self, slots: u32, ops: u32) {
        // The phase was set under the port's lock. A thread that starts an operation checks the
        // phase under the lock of the registration's `OpEntry`. So either that thread sees that the
        // port is closed, or this thread sees the operation from here on. Slots, op indexes and
        // entries that are not visited here are allocated under the port's lock, after the phase
        // was set.
        for entry in (0..slots).filter_map(|index| self.entry(index)) {
            drop(entry.lock());
        }
        // A lone operation starts without a lock. Its thread checks the phase after the exchange
        // that makes the operation pending. So either that thread sees that the port is closed, or
        // this thread sees the operation from here on.
        fence(SeqCst);
        for op_index in 0..ops {
            self.await_packet(self.nodes().op_at(op_index));
        }
        for index in 0..slots {
            let Some(slot) = self.nodes().find_slot(index) else { continue };
            self.cancel_op(slot, name_of(index, slot.word().generation()), EndReason::Cancelled);
        }
    }

    /// Makes the waits of the closed port continue until the packet of this operation is taken.
    ///
    /// Does so only if a thread may be about to queue that packet.
    fn await_packet(&self, op: &Op) {
        while op.is_in_flight() {
            let index = op.slot();
            let mut hub = self.lock();
            let Some(entry) = self.entry(index) else { return };
            let mut queues = entry.lock();
            // Otherwise the op index was reused for another registration: try again.
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

    /// Like `await_packet`, for an operation that may be lone and may complete meanwhile.
    fn await_alone(&self, index: u32, op: &Op, uses: u32) -> bool {
        if !op.start_awaiting() {
            return false;
        }
        // The thread that completes the operation changes the slot's word and then calls
        // `stop_awaiting`. If its change follows this `touch`, it sees that the packet is awaited.
        let slot = self.slot(index);
        slot.touch();
        if slot.word().is_lone() && op.uses() == uses {
            return true;
        }
        // Otherwise this thread withdraws the mark, unless the other thread has seen it by then.
        !op.stop_awaiting()
    }

    /// Ends the open or the finishing phase.
    ///
    /// Packets that are due by now are still queued, though no thread has checked since. All of
    /// them are queued in one hold of the lock, however many there are, since nothing is queued
    /// after this.
    fn leave_open(&self, hub: &mut Hub, phase: PortPhase) -> Option<PendingWake> {
        // Waits end when nothing is queued, although the thread that has posted it never waits.
        let mut is_more = self.queue_all_behind(hub);
        if hub.schedule().has_timers() && phase != PortPhase::Abandoned {
            let now = self.backend().now();
            while self.queue_due(hub.lists_mut(), now) <= now {}
            is_more = true;
        }
        let notice = if is_more { self.depart(hub) } else { None };
        hub.schedule().next_timer(Moment::NEVER);
        hub.lists_mut().set_phase(phase);
        Context::set_phase(self, phase);
        notice
    }

    /// Refuses new work and removes every registration; waits continue until none is left.
    pub(crate) fn shut_down(&self) -> Result<(), Error> {
        self.check_usable(Call::Shutdown)?;
        let mut hub = self.lock();
        let mut notice = None;
        if hub.lists().phase().allows_starts() {
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
                // There is nothing to do if the registration has ended or is being removed.
                let _ = self.remove(name_of(index, word.generation()));
            }
        }
        drop(self.end_if_over(self.lock()));
        Ok(())
    }

    /// Forgets every descriptor of a port that is dropped. Returns the keys and messages to drop.
    pub(crate) fn dismantle(&self) -> UnclaimedCells {
        let mut remains =
            UnclaimedCells { keys: Vec::new(), messages: Vec::new(), operations: Vec::new() };
        // In a forked child the lock may never be released: the thread that held it does not exist.
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
            let Some(op) = self.nodes().find_op(op_index) else { break };
            // A file operation is leaked in a forked child: another thread of the parent may have
            // been moving it to or from the back end.
            if op.is_in_flight() && !(forked && (op.is_on_file() || self.is_file(op.slot()))) {
                remains.operations.push(op_index);
                let reason = op.cancelled().unwrap_or(EndReason::Cancelled);
                if !forked {
                    self.abandon_connect(&self.op_ref(op_index), reason);
                }
            }
            if op.is_submitted() && !forked {
                // Before the keys are dropped: a system may continue a send after its socket is
                // closed.
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
                if !word.is_held() && slot.descriptor() != NO_DESCRIPTOR {
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
