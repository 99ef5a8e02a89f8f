//! Operations that are carried out wherever they are found to be due: no thread has to take a packet for that.
//!
//! The nodes of tasks do not go to the queue. They are put aside, and the thread that has found them goes on with them
//! when it has no lock.

use std::sync::atomic::Ordering::{Acquire, Release};

use super::{Engine, Nodes, Notable, Stock};
use crate::state::queue::{FLIGHT, Fifo, Node, is_flight};

/// A port that goes on with the operations that its engine has put aside.
pub(crate) trait GoesOn {
    /// Goes on until none is left. Whether there were any. The caller has no lock.
    fn go_on(&self) -> bool;
}

impl Stock {
    pub(super) fn put_aside(&mut self, nodes: &Nodes, node: Node) {
        self.aside.push(nodes, node);
        self.notable.set(Notable::ASIDE, true);
    }

    pub(super) fn take_aside(&mut self, nodes: &Nodes) -> Option<Node> {
        let node = self.aside.pop(nodes);
        self.notable.set(Notable::ASIDE, !self.aside.is_empty());
        node
    }
}

impl Engine {
    /// A task is about to be started on a port that perhaps has had none.
    pub(crate) fn begin_tasks(&self) {
        self.has_tasks.store(true, Release);
    }

    /// The operation of this record, which is about to be started, is a task, or is none.
    #[inline]
    pub(crate) fn mark(&self, record: u32, is_task: bool, begins_unasked: bool) {
        let flight = self.nodes.flights.at(record);
        flight.mark_task(is_task);
        flight.mark_unasked(begins_unasked);
    }

    fn is_task(&self, node: Node) -> bool {
        is_flight(node) && self.nodes.flights.at(node & !FLIGHT).is_task()
    }

    /// Puts a node aside, if it is that of a task. The caller has no lock.
    #[inline]
    pub(super) fn put_aside(&self, node: Node) -> bool {
        if !self.has_tasks.load(Acquire) || !self.is_task(node) {
            return false;
        }
        self.lock().stock.put_aside(&self.nodes, node);
        true
    }

    /// Of what timers have brought, what is to be queued: tasks are put aside. The caller has the lock.
    pub(super) fn put_due_aside(&self, stock: &mut Stock, mut due: Fifo) -> Fifo {
        if !self.has_tasks.load(Acquire) {
            return due;
        }
        let mut rest = Fifo::new();
        while let Some(node) = due.pop(&self.nodes) {
            if self.is_task(node) {
                stock.put_aside(&self.nodes, node);
            } else {
                rest.push(&self.nodes, node);
            }
        }
        rest
    }
}
