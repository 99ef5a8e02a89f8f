//! Operations that are carried out wherever they are found to be due: no thread has to take a packet for that.
//!
//! On a port that has tasks the nodes of operations do not go to the queue. They are put aside, and the thread that
//! has found them goes on with them when it has no lock.

use std::sync::atomic::Ordering::{Acquire, Release};

use super::{Engine, Stock};
use crate::state::queue::{Fifo, Node, is_flight};

impl Engine {
    /// A task is about to be started: from now on operations are put aside.
    pub(crate) fn begin_tasks(&self) {
        self.has_tasks.store(true, Release);
    }

    /// Puts a node aside, if it is that of an operation and the port has tasks. The caller has no lock.
    #[inline]
    pub(super) fn put_aside(&self, node: Node) -> bool {
        if !is_flight(node) || !self.has_tasks.load(Acquire) {
            return false;
        }
        self.lock().stock.aside.push(&self.nodes, node);
        true
    }

    /// Of what timers have brought, what is to be queued: operations are put aside. The caller has the lock.
    pub(super) fn put_due_aside(&self, stock: &mut Stock, mut due: Fifo) -> Fifo {
        if !self.has_tasks.load(Acquire) {
            return due;
        }
        let mut rest = Fifo::new();
        while let Some(node) = due.pop(&self.nodes) {
            let list = if is_flight(node) { &mut stock.aside } else { &mut rest };
            list.push(&self.nodes, node);
        }
        rest
    }
}
