//! Operations in the order of their starts.

use std::sync::atomic::Ordering::Relaxed;

use super::op::OpTable;
use crate::state::queue::{NIL, Node};

/// A doubly linked list of operations in the order of their starts. Removing any of them takes
/// constant time.
#[derive(Debug)]
pub(super) struct OpList {
    first: Node,
    last: Node,
    len: usize,
}

impl OpList {
    pub(super) const EMPTY: Self = Self { first: NIL, last: NIL, len: 0 };

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn first(&self) -> Option<Node> {
        Some(self.first).filter(|first| *first != NIL)
    }

    /// Returns the operation after `node`, which must be in the list.
    pub(super) fn next(ops: &impl OpTable, node: Node) -> Option<Node> {
        Some(ops.op(node).link.load(Relaxed)).filter(|next| *next != NIL)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first == NIL
    }

    /// Appends `node`.
    pub(super) fn enter(&mut self, ops: &impl OpTable, node: Node) {
        let op = ops.op(node);
        op.link.store(NIL, Relaxed);
        op.set_back(self.last);
        match self.last {
            NIL => self.first = node,
            last => ops.op(last).link.store(node, Relaxed),
        }
        self.last = node;
        self.len += 1;
    }

    /// Prepends `node`.
    pub(super) fn enter_first(&mut self, ops: &impl OpTable, node: Node) {
        let op = ops.op(node);
        op.link.store(self.first, Relaxed);
        op.set_back(NIL);
        match self.first {
            NIL => self.last = node,
            first => ops.op(first).set_back(node),
        }
        self.first = node;
        self.len += 1;
    }

    /// Removes and returns the first operation.
    pub(super) fn pop(&mut self, ops: &impl OpTable) -> Option<Node> {
        let first = self.first()?;
        self.leave(ops, first);
        Some(first)
    }

    /// Removes `node`, which must be in the list.
    #[inline]
    pub(super) fn leave(&mut self, ops: &impl OpTable, node: Node) {
        let op = ops.op(node);
        let (back, next) = (op.back(), op.link.load(Relaxed));
        match back {
            NIL => self.first = next,
            back => ops.op(back).link.store(next, Relaxed),
        }
        match next {
            NIL => self.last = back,
            next => ops.op(next).set_back(back),
        }
        self.len -= 1;
    }
}
