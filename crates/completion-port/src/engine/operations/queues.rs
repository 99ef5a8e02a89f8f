//! How edges and completed requests reach the operations of a registration.

use std::sync::{Arc, PoisonError};

use super::Operations;
use crate::state::facts::Facts;
use crate::state::operations::{EdgeNotes, OpEntry, OpQueues, OpTable};
use crate::state::queue::{NIL, Node, OP};
use crate::state::slot::{Slot, SlotStep};
use crate::sync::MutexGuard;

/// What to queue after a request has completed. `NIL` means none.
pub(in crate::engine) struct CompletedNodes {
    nodes: [Node; 3],
    /// A slot that must be checked before it is queued.
    to_check: Node,
}

impl CompletedNodes {
    const NOTHING: Self = Self { nodes: [NIL; 3], to_check: NIL };

    /// Returns the nodes to queue, and the slot to check before it is queued.
    pub(in crate::engine) fn into_parts(self) -> ([Node; 3], Node) {
        (self.nodes, self.to_check)
    }
}

impl OpEntry {
    #[inline]
    pub(in crate::engine) fn lock(&self) -> MutexGuard<'_, OpQueues> {
        // Nothing outside the engine that could panic is called under this lock. If the engine
        // panics, other threads continue with the state they find.
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Operations {
    /// Passes an edge to the slot's operations of the directions `in_flight`.
    ///
    /// Calls `queue` with the node of each operation that is due. True if the slot must note the
    /// edge again.
    #[inline(never)]
    pub(in crate::engine) fn notify_ready(
        &self,
        index: u32,
        slot: &Slot,
        in_flight: Facts,
        mut queue: impl FnMut(Node),
    ) -> bool {
        let Some(entry) = self.entry(index) else { return false };
        let (due, is_missed) = entry.lock().notify_ready(self.nodes(), slot, in_flight);
        due.into_iter().filter(|node| *node != NIL).for_each(&mut queue);
        is_missed
    }

    /// Keeps what a task tells about edges, until it ends. Ignored if it has ended, or is no task.
    ///
    /// A one-shot reactor would report the same readiness again and again while nothing takes it. So
    /// there, each edge has the task tried.
    pub(crate) fn keep_edge_notes(&self, task: u64, notes: &Arc<EdgeNotes>) {
        if self.forked() || self.is_one_shot() {
            return;
        }
        #[allow(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
        let (op_index, uses) = (task as u32, (task >> 32) as u32);
        let Some(op) = self.nodes().find_op(op_index) else { return };
        let index = op.slot();
        let Some(entry) = self.entry(index) else { return };
        let mut queues = entry.lock();
        // Checked under the lock: the op index may have been reused, even for another registration.
        if op.uses() == uses && op.slot() == index && op.is_in_flight() && op.is_task() {
            queues.keep_notes(op.direction(), task, Arc::clone(notes));
        }
    }

    /// Takes the completed request with this name from the back end and ends its operation.
    ///
    /// An edge has reported the completion.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn bring_back(&self, name: u64) -> CompletedNodes {
        #[allow(clippy::cast_possible_truncation, reason = "the lower half is the node")]
        let node = name as u32;
        let op_index = node & !OP;
        let request = self.backend().socket_requests().and_then(|it| it.take_completed(name));
        let Some(request) = request else { return CompletedNodes::NOTHING };
        let was_cancelled = request.is_cancelled;
        let runs_deferred = request.target.is_declined;
        // Before the operation ends: a thread that sees the end takes the request.
        self.keep_socket(op_index, request);
        let index = self.nodes().op(node).slot();
        let (slot, entry) = (self.slot(index), self.entry_of_operation(index));
        let mut queues = entry.lock();
        let poll = self.current_poll();
        let outcome = (was_cancelled, runs_deferred);
        let follow_up = queues.complete_submitted(self.nodes(), slot, node, outcome, poll);
        drop(queues);
        match follow_up.next {
            SlotStep::Queue => {
                CompletedNodes { nodes: [node, follow_up.due, index], to_check: NIL }
            }
            SlotStep::Recheck => {
                CompletedNodes { nodes: [node, follow_up.due, NIL], to_check: index }
            }
            _ => CompletedNodes { nodes: [node, follow_up.due, NIL], to_check: NIL },
        }
    }
}
