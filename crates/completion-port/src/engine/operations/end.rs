//! How an operation ends: its packet is taken, it is cancelled, or its deadline is over.

use super::{OpRef, Operations};
use crate::engine::context::{Name, name_parts};
use crate::engine::queue::Lists;
use crate::engine::worker::Worker;
use crate::state::facts::Facts;
use crate::state::moment::Moment;
use crate::state::operations::{EndReason, Op, OpEntry, OpTable};
use crate::state::queue::{NodeList, OP};
use crate::state::slot::{Slot, SlotStep};
use crate::state::timers::SlotTimer;
use crate::types::error::{Call, Error};
use crate::types::interest::Direction;

/// Its packet is taken.
impl Operations {
    /// The operation of `op_index` has ended as this says, and its packet is about to be handed out. If it is a connect
    /// that the system continues with, that is given up, before anything else begins on the descriptor or has it.
    #[inline]
    pub(crate) fn abandon_connect(&self, op_ref: &OpRef<'_>, reason: EndReason) {
        if matches!(reason, EndReason::Cancelled | EndReason::TimedOut) {
            let abandon = || self.backend().abandon_connect(op_ref.descriptor());
            if op_ref.entry.abandon_connect(op_ref.op_index, abandon) {
                // A connect whose turn came meanwhile is waiting for this to end.
                self.pull_in(op_ref.registration(), Direction::Out);
            }
        }
    }

    /// The packet of an operation is taken that was started by a token, and had ended before. The key is the caller's
    /// now, and the operation stays in its cell until the token starts another one.
    #[inline]
    pub(crate) fn complete_own(&self, op_ref: &OpRef<'_>) {
        if op_ref.slot.word().is_lone() {
            return self.complete_alone(op_ref, false);
        }
        let mut queues = op_ref.entry.lock();
        queues.complete(op_ref.op);
        op_ref.slot.complete(Facts::NONE);
        drop(queues);
        self.stop_awaiting(op_ref.op);
    }

    /// The packet of an operation is taken that has a share in the key, which has been cloned for it. The record
    /// is given back by [`Queue::free_op`](crate::engine::queue::Queue::free_op).
    pub(crate) fn complete_shared(&self, op_ref: &OpRef<'_>, worker: &Worker) {
        let OpRef { index, op, slot, entry, .. } = *op_ref;
        let mut queues = entry.lock();
        let next = if queues.complete(op) { slot.complete_last() } else { SlotStep::Nothing };
        drop(queues);
        self.follow(next, index, Some(worker));
        self.stop_awaiting(op);
    }

    /// The same for an operation that has ended before it made a packet: the caller, the seat of which this is, has its
    /// outcome.
    pub(crate) fn complete_unseen(&self, op_index: u32, worker: Option<&Worker>) {
        if self.forked() {
            // The buffer's code has forked, and this is the child.
            return;
        }
        let op = self.nodes().op(op_index);
        let index = op.slot();
        let mut queues = self.entry_of_operation(index).lock();
        let next =
            if queues.complete(op) { self.slot(index).complete_last() } else { SlotStep::Nothing };
        drop(queues);
        self.stop_awaiting(op);
        self.free_op(op_index, worker);
        self.follow(next, index, None);
    }

    /// The packet of an operation is taken, which the waits of a port that was closed may have gone on for.
    #[inline]
    pub(super) fn stop_awaiting(&self, op: &Op) {
        if op.stop_awaiting() {
            self.end_awaiting();
        }
    }
}

/// It is cancelled, or its deadline is over.
impl Operations {
    /// Cancels an operation. False if it has ended already; its packet says how.
    pub(crate) fn cancel_operation(&self, operation: u64) -> Result<bool, Error> {
        self.check_usable(Call::Cancel)?;
        Ok(self.until_queued(|| self.try_to_cancel(operation)))
    }

    fn try_to_cancel(&self, operation: u64) -> bool {
        #[allow(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
        let (op_index, uses) = (operation as u32, (operation >> 32) as u32);
        let Some(op) = self.nodes().find_record(op_index) else { return false };
        let node = op_index | OP;
        while op.uses() == uses {
            let index = op.slot();
            let Some(entry) = self.entry(index) else { return false };
            let slot = self.slot(index);
            let poll = self.current_poll();
            let mut queues = entry.lock();
            // Looked at again: the record may have been used anew, for another registration even.
            if op.uses() != uses || !op.is_in_flight() {
                break;
            }
            if op.slot() != index {
                // It has been started since that was read.
                continue;
            }
            let reason = EndReason::Cancelled;
            if op.is_lone() {
                let is_cancelled = op.cancel_alone(uses, reason);
                let is_ours = is_cancelled && self.claim_alone(slot, op);
                drop(queues);
                if is_ours {
                    self.submit(node);
                }
                return is_cancelled;
            }
            let follow_up = queues.cancel(self.nodes(), slot, node, reason, poll);
            let Some(follow_up) = follow_up else { break };
            let mut ended = NodeList::new();
            let next = self.cancel_request(&mut queues, slot, node, reason, &mut ended);
            queues.begin_unasked(self.nodes(), &mut ended);
            drop(queues);
            self.see_to(follow_up, index, None);
            self.submit_all(ended);
            self.follow(next, index, None);
            return true;
        }
        false
    }

    /// A registration ends, or the port: so do its operations.
    #[inline]
    pub(in crate::engine) fn cancel_op(&self, slot: &Slot, name: Name, reason: EndReason) {
        if slot.word().is_lent() {
            self.until_queued(|| {
                let mut ended = NodeList::new();
                let next = self.cancel_all_ops(name, reason, &mut ended);
                self.submit_all(ended);
                self.follow(next, name_parts(name).0, None);
            });
        }
    }

    /// Ends all operations of a registration, or has them ended at the next opportunity: puts the nodes of those
    /// that have ended at the end of `ended`. Returns what the slot asks for.
    pub(in crate::engine) fn cancel_all_ops(
        &self,
        name: Name,
        reason: EndReason,
        ended: &mut NodeList,
    ) -> SlotStep {
        let (index, generation) = name_parts(name);
        let slot = self.slot(index);
        let Some(entry) = self.entry(index) else { return SlotStep::Nothing };
        let poll = self.current_poll();
        let mut queues = entry.lock();
        if slot.word().generation() != generation {
            // The registration has ended meanwhile, and the slot may be used anew.
            return SlotStep::Nothing;
        }
        if let Some((node, uses)) = self.lone_of(entry)
            && self.cancel_alone(slot, node, uses, reason)
        {
            ended.push(self.nodes(), node);
        }
        self.cancel_files(&mut queues, reason, ended);
        let next = queues.cancel_all(self.nodes(), slot, reason, poll, ended);
        let next_of_cancelled = self.cancel_sockets(&mut queues, slot, ended);
        drop(queues);
        if next_of_cancelled == SlotStep::Nothing { next } else { next_of_cancelled }
    }

    /// The timer of the operations of a slot has rung. What is to be queued by that is put at the end of `due`, or put on
    /// the list of what is to be checked. The caller has the port's lock.
    pub(in crate::engine) fn ring(
        &self,
        lists: &mut Lists,
        index: u32,
        now: Moment,
        due: &mut NodeList,
    ) {
        let Some(entry) = self.entry(index) else { return };
        lists.ring(SlotTimer::Operations, index, entry.timer(), now, |lists| {
            self.end_late(lists, index, entry, now, due)
        });
    }

    /// A deadline of the operations of a slot was over at `now`. Returns when to look again.
    fn end_late(
        &self,
        lists: &mut Lists,
        index: u32,
        entry: &OpEntry,
        now: Moment,
        due: &mut NodeList,
    ) -> Moment {
        let slot = self.slot(index);
        // The start of a lone operation changes the slot's word before it looks at the timer, and behind its claim. So either it
        // sees that the timer has rung, or the claim is seen here.
        slot.touch();
        let mut queues = entry.lock();
        if let Some((node, uses)) = self.lone_of(entry) {
            // The deadline is read after that: it is the operation's, or that of a later one.
            let at = entry.timer().deadline();
            if at > now {
                return at;
            }
            if self.cancel_alone(slot, node, uses, EndReason::TimedOut) {
                due.push(self.nodes(), node);
            }
            return Moment::NEVER;
        }
        if queues.in_flight() == 0 {
            return Moment::NEVER;
        }
        let poll = self.current_poll();
        let (again, next) = queues.ring(self.nodes(), slot, now, poll, due);
        let again = again.min(self.cancel_late_files(&mut queues, now, due));
        let next_of_cancelled = self.cancel_sockets(&mut queues, slot, due);
        entry.timer().move_deadline(again);
        drop(queues);
        for next in [next, next_of_cancelled] {
            match next {
                SlotStep::Queue => due.push(self.nodes(), index),
                SlotStep::Recheck => lists.push_recheck(self.nodes(), index),
                _ => {}
            }
        }
        again
    }
}
