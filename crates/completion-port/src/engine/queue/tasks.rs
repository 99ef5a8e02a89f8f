//! Operations that are carried out wherever they are found to be due: no thread has to take a packet for that.
//!
//! The nodes of tasks do not go to the queue. They are deferred, and the thread that has found them goes on with them
//! when it has no lock.

use std::sync::atomic::Ordering::{Acquire, Release};

use super::Queue;
use super::lists::{Flags, Lists};
use crate::engine::context::PortPhase;
use crate::state::queue::{Node, NodeList, OP, is_op};

impl Queue {
    /// A task is about to be started on a port that perhaps has had none.
    pub(crate) fn begin_tasks(&self) {
        self.has_tasks.store(true, Release);
    }

    /// The operation of this record, which is about to be started, is a task, or is none.
    #[inline]
    pub(crate) fn mark(&self, op_index: u32, is_task: bool, begins_unasked: bool) {
        let op = self.nodes().op_index(op_index);
        op.mark_task(is_task);
        op.mark_unasked(begins_unasked);
    }

    fn is_task(&self, node: Node) -> bool {
        is_op(node) && self.nodes().op_index(node & !OP).is_task()
    }

    /// Puts a node aside, if it is that of a task. The caller has no lock.
    #[inline]
    pub(in crate::engine) fn defer(&self, node: Node) -> bool {
        if !self.has_tasks.load(Acquire) || !self.is_task(node) {
            return false;
        }
        self.lock().lists_mut().defer(self.nodes(), node);
        true
    }

    /// Of what timers have brought, what is to be queued: tasks are deferred. The caller has the lock.
    pub(in crate::engine) fn defer_due(&self, lists: &mut Lists, mut due: NodeList) -> NodeList {
        if !self.has_tasks.load(Acquire) {
            return due;
        }
        let mut rest = NodeList::new();
        while let Some(node) = due.pop(self.nodes()) {
            if self.is_task(node) {
                lists.defer(self.nodes(), node);
            } else {
                rest.push(self.nodes(), node);
            }
        }
        rest
    }

    /// The next operation that was deferred: its record, which is the caller's to go on with.
    pub(crate) fn take_deferred(&self) -> Option<u32> {
        let mut hub = self.lock();
        let node = hub.lists_mut().take_deferred(self.nodes())?;
        if !hub.lists().flags().has(Flags::DEFERRED) && hub.lists().phase() != PortPhase::Open {
            drop(self.end_if_over(hub));
        }
        Some(node & !OP)
    }
}
