//! A first-in first-out list of nodes that are stored elsewhere.
//!
//! A node is a slot, a posted message or an operation, identified by a number. The list uses the
//! link stored with the node, so queueing a packet never allocates, and the queue never has more
//! nodes than there are registrations, messages and operations. A node is in one list at a time.
//! The owner of the node (see [`slot`](super::slot)) decides in which.

use std::sync::atomic::Ordering::Relaxed;

use crate::sync::AtomicU32;

/// The number of a node: a slot's index, a posted message's with [`POSTED`] set, or an operation's
/// with [`OP`].
pub(crate) type Node = u32;

/// No node.
pub(crate) const NIL: Node = u32::MAX;

/// Set in the number of a posted message.
pub(crate) const POSTED: Node = 1 << 31;

/// Set in the number of an operation: [`POSTED`], so that a single test tells a slot from any other
/// node, and a bit that no message's number has.
pub(crate) const OP: Node = POSTED | 1 << 30;

/// Set, together with [`POSTED`], in the number of a message that reports an operation. No thread
/// has posted it for another thread to handle.
pub(crate) const TELLS: Node = 1 << 29;

/// Operations have numbers below this.
pub(crate) const MOST: u32 = 1 << 30;

/// An `Op` has an index below this. The two numbers from here on mean something else in an
/// operation queue.
pub(crate) const MOST_OPS: u32 = MOST - 2;

/// Messages have numbers below this.
pub(crate) const MOST_MESSAGES: u32 = TELLS;

/// Returns the cell of a message, from its node.
#[inline]
pub(crate) fn cell_of(node: Node) -> u32 {
    node & !(POSTED | TELLS)
}

/// Returns whether a node that is not a slot is an operation.
#[inline]
pub(crate) fn is_op(node: Node) -> bool {
    node & OP == OP && node != NIL
}

/// Access to the links of nodes.
pub(crate) trait Links {
    /// Returns the link of `node`.
    fn link(&self, node: Node) -> &AtomicU32;
}

/// Builds a list in a thread that already has a reference to each node's link.
#[derive(Debug)]
pub(crate) struct NodeListBuilder<'l> {
    list: NodeList,
    last: Option<&'l AtomicU32>,
}

impl<'l> NodeListBuilder<'l> {
    pub(crate) const fn new() -> Self {
        Self { list: NodeList::new(), last: None }
    }

    /// Appends `node`.
    #[inline]
    pub(crate) fn push(&mut self, node: Node, link: &'l AtomicU32) {
        link.store(NIL, Relaxed);
        match self.last {
            None => self.list.head = node,
            Some(last) => last.store(node, Relaxed),
        }
        self.last = Some(link);
        self.list.tail = node;
        self.list.len += 1;
    }

    /// Returns the finished list.
    #[inline]
    pub(crate) fn into_list(self) -> NodeList {
        self.list
    }
}

/// An ordered list of nodes. The links are not part of it: every method takes them as an argument.
#[derive(Debug)]
pub(crate) struct NodeList {
    head: Node,
    tail: Node,
    len: usize,
}

impl NodeList {
    pub(crate) const fn new() -> Self {
        Self { head: NIL, tail: NIL, len: 0 }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends `node`.
    #[inline]
    pub(crate) fn push(&mut self, links: &impl Links, node: Node) {
        links.link(node).store(NIL, Relaxed);
        if self.head == NIL {
            self.head = node;
        } else {
            links.link(self.tail).store(node, Relaxed);
        }
        self.tail = node;
        self.len += 1;
    }

    /// Prepends `node`.
    #[inline]
    pub(crate) fn push_front(&mut self, links: &impl Links, node: Node) {
        links.link(node).store(self.head, Relaxed);
        if self.head == NIL {
            self.tail = node;
        }
        self.head = node;
        self.len += 1;
    }

    /// Removes and returns the first node.
    #[inline]
    pub(crate) fn pop(&mut self, links: &impl Links) -> Option<Node> {
        if self.head == NIL {
            return None;
        }
        let node = self.head;
        self.head = links.link(node).load(Relaxed);
        if self.head == NIL {
            self.tail = NIL;
        }
        self.len -= 1;
        Some(node)
    }

    /// Removes and returns the first `count` nodes, or all if there are fewer.
    // Each wait does this: the function call would cost as much as its body.
    #[inline(always)]
    pub(crate) fn split(&mut self, links: &impl Links, count: usize) -> Self {
        if count == 0 {
            return Self::new();
        }
        if count >= self.len {
            return std::mem::replace(self, Self::new());
        }
        let head = self.head;
        let mut tail = head;
        for _ in 1..count {
            tail = links.link(tail).load(Relaxed);
        }
        self.head = links.link(tail).load(Relaxed);
        self.len -= count;
        links.link(tail).store(NIL, Relaxed);
        Self { head, tail, len: count }
    }

    /// Appends all nodes of `other`, in their order.
    // For the same reason as `split`.
    #[inline(always)]
    pub(crate) fn append(&mut self, links: &impl Links, other: Self) {
        if other.head == NIL {
            return;
        }
        if self.head == NIL {
            *self = other;
            return;
        }
        links.link(self.tail).store(other.head, Relaxed);
        self.tail = other.tail;
        self.len += other.len;
    }

    /// Prepends all nodes of `other`, in their order.
    pub(crate) fn prepend(&mut self, links: &impl Links, mut other: Self) {
        let rest = std::mem::replace(self, Self::new());
        other.append(links, rest);
        *self = other;
    }

    /// Returns the first node, which alone represents the list: a chain.
    #[inline]
    pub(crate) fn into_head(self) -> Node {
        self.head
    }

    /// Rebuilds the list that begins with `head`. No other thread may have it.
    pub(crate) fn from_head(links: &impl Links, head: Node) -> Self {
        if head == NIL {
            return Self::new();
        }
        let (mut tail, mut len) = (head, 1);
        loop {
            let next = links.link(tail).load(Relaxed);
            if next == NIL {
                return Self { head, tail, len };
            }
            tail = next;
            len += 1;
        }
    }

    /// Returns whether the first node is a posted message, except one that reports an operation.
    #[inline]
    pub(crate) fn begins_with_post(&self) -> bool {
        self.head & (OP | TELLS) == POSTED
    }

    /// Returns whether `holds` is true for any node.
    pub(crate) fn any(&self, links: &impl Links, holds: impl Fn(Node) -> bool) -> bool {
        Self::any_from(links, self.head, holds)
    }

    /// Returns whether `holds` is true for any node of the list that begins with `head`. No other
    /// thread may change the list during the call.
    pub(crate) fn any_from(links: &impl Links, head: Node, holds: impl Fn(Node) -> bool) -> bool {
        let mut here = head;
        while here != NIL && !holds(here) {
            here = links.link(here).load(Relaxed);
        }
        here != NIL
    }

    /// Returns the numbers of all nodes in order, for a dump.
    pub(crate) fn nodes(&self, links: &impl Links) -> Vec<Node> {
        let mut nodes = Vec::with_capacity(self.len);
        let mut here = self.head;
        while here != NIL {
            nodes.push(here);
            here = links.link(here).load(Relaxed);
        }
        nodes
    }

    /// Walks the list and removes `node`. Returns false if it is not there.
    pub(crate) fn unlink(&mut self, links: &impl Links, node: Node) -> bool {
        let mut before = NIL;
        let mut here = self.head;
        while here != NIL {
            let next = links.link(here).load(Relaxed);
            if here == node {
                if before == NIL {
                    self.head = next;
                } else {
                    links.link(before).store(next, Relaxed);
                }
                if next == NIL {
                    self.tail = before;
                }
                self.len -= 1;
                return true;
            }
            before = here;
            here = next;
        }
        false
    }
}
