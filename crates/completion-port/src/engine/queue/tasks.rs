//! Tasks: operations that are carried out where they are found to be due, without a packet.
//!
//! The node of a task does not enter the queue. It is deferred, and the thread that found it
//! carries the task out when it holds no lock.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::Queue;
use super::lists::{Flags, Lists};
use crate::engine::context::PortPhase;
use crate::state::queue::{Node, NodeList, OP, is_op};

impl Queue {
    /// Notes that a task is about to be started.
    pub(crate) fn begin_tasks(&self) {
        // Written once: all threads read its neighbours.
        if !self.has_tasks.load(Relaxed) {
            self.has_tasks.store(true, Release);
        }
    }

    /// Notes whether the operation that is about to start with this op index is a task.
    ///
    /// Also notes whether its first attempt waits for nothing but its turn. Returns what
    /// [`operation_of`](Self::operation_of) returns.
    #[inline]
    pub(crate) fn mark(&self, op_index: u32, is_task: bool, begins_unasked: bool) -> u64 {
        let op = self.nodes().op_at(op_index);
        op.mark_task(is_task);
        op.mark_unasked(begins_unasked);
        op.name(op_index)
    }

    fn is_task(&self, node: Node) -> bool {
        is_op(node) && self.nodes().op_at(node & !OP).is_task()
    }

    /// Whether a node is a task's, which is deferred and not queued.
    #[inline]
    pub(in crate::engine) fn is_deferrable(&self, node: Node) -> bool {
        self.has_tasks.load(Acquire) && self.is_task(node)
    }

    /// Defers a node if it is a task's. Returns whether it did. The caller holds no lock.
    #[inline]
    pub(in crate::engine) fn defer(&self, node: Node) -> bool {
        if !self.is_deferrable(node) {
            return false;
        }
        self.defer_locked(self.lock().lists_mut(), node);
        true
    }

    /// Defers the tasks among `due`, which timers have brought, and returns the rest.
    ///
    /// The caller holds the lock.
    pub(in crate::engine) fn defer_due(&self, lists: &mut Lists, mut due: NodeList) -> NodeList {
        if !self.has_tasks.load(Acquire) {
            return due;
        }
        let mut rest = NodeList::new();
        while let Some(node) = due.pop(self.nodes()) {
            if self.is_task(node) {
                self.defer_locked(lists, node);
            } else {
                rest.push(self.nodes(), node);
            }
        }
        rest
    }

    /// Defers the node of a task. The caller holds the lock.
    pub(in crate::engine) fn defer_locked(&self, lists: &mut Lists, node: Node) {
        lists.defer(self.nodes(), node);
        self.has_deferred.store(true, Relaxed);
    }

    /// Defers these nodes of tasks. The caller holds the lock.
    pub(in crate::engine) fn defer_all_locked(&self, lists: &mut Lists, tasks: NodeList) {
        lists.defer_all(self.nodes(), tasks);
        self.has_deferred.store(true, Relaxed);
    }

    /// Takes the op index of the next deferred task, which the caller carries out.
    ///
    /// Takes the lock only if there seems to be one. A thread sees each task that it has deferred
    /// itself, or that it knows of by the lock. Any other is carried out by the thread that has
    /// deferred it.
    pub(crate) fn take_deferred(&self) -> Option<u32> {
        if !self.has_deferred.load(Relaxed) {
            return None;
        }
        let mut hub = self.lock();
        let node = hub.lists_mut().take_deferred(self.nodes())?;
        if !hub.lists().flags().has(Flags::DEFERRED) {
            self.has_deferred.store(false, Relaxed);
            if hub.lists().phase() != PortPhase::Open {
                drop(self.end_if_over(hub));
            }
        }
        Some(node & !OP)
    }
}
