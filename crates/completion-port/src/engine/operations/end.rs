//! How an operation ends: its packet is taken, it is cancelled, or its deadline passes.

use super::{OpRef, Operations};
use crate::backend::sockets::{Rest, SocketAttempt};
use crate::engine::context::{Name, name_parts};
use crate::engine::queue::{Lists, OpThread};
use crate::engine::worker::Worker;
use crate::state::facts::Facts;
use crate::state::moment::Moment;
use crate::state::operations::{EndReason, Op, OpEntry, OpTable, Tried};
use crate::state::queue::{NodeList, OP};
use crate::state::slot::{Slot, SlotStep};
use crate::state::timers::SlotTimer;
use crate::types::error::{Call, Error};
use crate::types::interest::Direction;

/// Completing an operation as its packet is taken.
impl Operations {
    /// Aborts a connect that was cancelled or timed out while the system continues it.
    ///
    /// Called just before the packet of an ended operation is delivered. Does nothing for any other
    /// operation. The connect must be gone before anything else starts on the descriptor or takes
    /// it over.
    #[inline]
    pub(crate) fn abandon_connect(&self, op_ref: &OpRef<'_>, reason: EndReason) {
        if matches!(reason, EndReason::Cancelled | EndReason::TimedOut) {
            let abandon = || self.backend().abandon_connect(op_ref.descriptor());
            if op_ref.entry.abandon_connect(op_ref.op_index, abandon) {
                // A connect whose turn came meanwhile may be waiting for this one to be gone.
                self.pull_in(op_ref.registration(), Direction::Out);
            }
        }
    }

    /// Completes an ended operation that was started by a token, as its packet is taken.
    ///
    /// The caller then owns the key. The operation stays in its cell until the token starts another
    /// one.
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

    /// Completes an operation that has a share in the key, as its packet is taken, or its outcome
    /// without one.
    ///
    /// The key has been cloned for the packet, which the thread of `worker` takes.
    /// [`Queue::free_op`](crate::engine::queue::Queue::free_op) frees the op index afterwards.
    pub(crate) fn complete_shared(&self, op_ref: &OpRef<'_>, worker: Option<&Worker>) {
        let OpRef { index, op, slot, entry, .. } = *op_ref;
        let mut queues = entry.lock();
        let next = if queues.complete(op) { slot.complete_last() } else { SlotStep::Nothing };
        drop(queues);
        self.follow(next, index, worker);
        self.stop_awaiting(op);
    }

    /// Completes a task that ended without a packet, since the caller already has its result.
    ///
    /// `worker` is the calling thread's.
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

    /// Completes a task that an attempt of the calling thread has done, and whose end was called.
    ///
    /// `worker` is the thread's. The task leaves its queue and completes in one step, as a [direct
    /// attempt](Operations::try_directly) does.
    pub(crate) fn complete_done(
        &self,
        op_ref: &OpRef<'_>,
        attempt: SocketAttempt<Rest>,
        worker: Option<&Worker>,
    ) {
        let OpRef { op_index, index, op, slot, entry } = *op_ref;
        debug_assert!(!op.is_lone(), "a task has no token");
        let dry = matches!(attempt, SocketAttempt::Done(Rest::Nothing)) && slot.word().is_plain();
        let mut queues = entry.lock();
        if queues.complete_only_task(op, slot, dry) {
            drop(queues);
            self.stop_awaiting(op);
            return self.free_op(op_index, worker);
        }
        let poll = self.current_poll();
        let (name, direction) = (op_ref.registration(), op.direction());
        let done = Tried::Done { dry };
        let (_, follow_up) = queues.tried(self.nodes(), slot, op_index | OP, done, poll);
        // If another operation waits or is due, this one is not the last, so the registration
        // continues. If the slot's node is to be queued, this thread owns it, and the slot stays.
        let is_blocked = queues.blocked().has(direction.facts());
        let next = if queues.complete(op) { slot.complete_last() } else { SlotStep::Nothing };
        drop(queues);
        if is_blocked {
            self.watch_for(name, slot, direction);
        }
        self.see_to(follow_up, index, worker.into());
        self.stop_awaiting(op);
        self.free_op(op_index, worker);
        self.follow(next, index, None);
    }

    /// Stops the waits of a closed port from waiting for this operation's packet, if they do.
    #[inline]
    pub(super) fn stop_awaiting(&self, op: &Op) {
        if op.stop_awaiting() {
            self.end_awaiting();
        }
    }
}

/// Cancelling operations, and their deadlines.
impl Operations {
    /// Cancels an operation. False if it has ended already; its packet says how.
    pub(crate) fn cancel_operation(&self, operation: u64) -> Result<bool, Error> {
        self.check_usable(Call::Cancel)?;
        Ok(self.until_queued(|| self.try_to_cancel(operation)))
    }

    fn try_to_cancel(&self, operation: u64) -> bool {
        #[allow(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
        let (op_index, uses) = (operation as u32, (operation >> 32) as u32);
        let Some(op) = self.nodes().find_op(op_index) else { return false };
        let node = op_index | OP;
        while op.uses() == uses {
            let index = op.slot();
            let Some(entry) = self.entry(index) else { return false };
            let slot = self.slot(index);
            let poll = self.current_poll();
            let mut queues = entry.lock();
            // Checked again under the lock: the op index may have been reused, even for another
            // registration.
            if op.uses() != uses || !op.is_in_flight() {
                break;
            }
            if op.slot() != index {
                // The op index was reused for another registration after its slot was read.
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
            queues.begin_next(self.nodes(), slot, &mut ended);
            drop(queues);
            self.see_to(follow_up, index, OpThread::ANY);
            self.submit_all(ended);
            self.follow(next, index, None);
            return true;
        }
        false
    }

    /// Cancels the operations of a registration, because the registration or the port ends.
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

    /// Ends all operations of a registration, or marks them to end at their next step.
    ///
    /// Appends the nodes of those that have ended to `ended`. Returns what the slot requires.
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
            // The registration has ended meanwhile, and the slot may have been reused.
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

    /// Handles the expiry of the timer for a slot's operations. The caller holds the port's lock.
    ///
    /// Appends the nodes that must be queued to `due`, or puts the slot on the list of slots to
    /// check.
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

    /// Ends the operations of a slot whose deadline has passed at `now`.
    ///
    /// Returns when to check again.
    fn end_late(
        &self,
        lists: &mut Lists,
        index: u32,
        entry: &OpEntry,
        now: Moment,
        due: &mut NodeList,
    ) -> Moment {
        let slot = self.slot(index);
        // The start of a lone operation publishes its claim, then changes the slot's word, and then
        // checks the timer. `touch` is ordered with that change. So either the start sees that the
        // timer has expired, or this thread sees the claim.
        slot.touch();
        let mut queues = entry.lock();
        if let Some((node, uses)) = self.lone_of(entry) {
            // Read after the claim: the deadline is this operation's or a later one's.
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
