//! A first-in first-out list of nodes that lie elsewhere.
//!
//! A node is a slot or a posted message, named by a number; the list uses the link that lies beside
//! it. So queueing a packet allocates nothing, and the queue never has more nodes than there are
//! registrations and posted messages. A node stands in one list at a time. The owner of the node
//! (see [`slot`](super::slot)) decides in which.

use std::sync::atomic::Ordering::Relaxed;

use crate::sync::AtomicU32;

/// The number of a node: a slot's index, a posted message's with [`POSTED`] set, or an operation's with
/// [`OP`].
pub(crate) type Node = u32;

/// No node.
pub(crate) const NIL: Node = u32::MAX;

/// Set in the number of a posted message.
pub(crate) const POSTED: Node = 1 << 31;

/// Set in the number of an operation: [`POSTED`], so that one look tells that a node is no slot, and a bit
/// that no message's number has.
pub(crate) const OP: Node = POSTED | 1 << 30;

/// Set, beside [`POSTED`], in the number of a message that tells of an operation: no thread has posted it to
/// have it handled by another one.
pub(crate) const TELLS: Node = 1 << 29;

/// Of operations there are fewer than this.
pub(crate) const MOST: u32 = 1 << 30;

/// Records of operations have numbers below this. The two numbers above mean something else in an operation queue.
pub(crate) const MOST_OPS: u32 = MOST - 2;

/// Of messages there are fewer than this.
pub(crate) const MOST_MESSAGES: u32 = TELLS;

/// The cell of a message, from its node.
#[inline]
pub(crate) fn cell_of(node: Node) -> u32 {
    node & !(POSTED | TELLS)
}

/// Whether a node that is no slot is an operation.
#[inline]
pub(crate) fn is_op(node: Node) -> bool {
    node & OP == OP && node != NIL
}

/// Where the links lie.
pub(crate) trait Links {
    /// The link of `node`.
    fn link(&self, node: Node) -> &AtomicU32;
}

/// A list that is being made by a thread that has the link of each node at hand.
#[derive(Debug)]
pub(crate) struct NodeListBuilder<'l> {
    list: NodeList,
    last: Option<&'l AtomicU32>,
}

impl<'l> NodeListBuilder<'l> {
    pub(crate) const fn new() -> Self {
        Self { list: NodeList::new(), last: None }
    }

    /// Puts `node` at the end.
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

    /// The list as it is.
    #[inline]
    pub(crate) fn into_list(self) -> NodeList {
        self.list
    }
}

/// A list of nodes, in order. The links are not part of it: every call is given them.
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

    /// Puts `node` at the end.
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

    /// Takes the first node.
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

    /// Takes the first `count` nodes, or all if there are fewer.
    // Each wait does this: a call would cost as much as what is called.
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

    /// Puts all of `other` at the end, in its order.
    // As `split`.
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

    /// Puts all of `other` in front, in its order.
    pub(crate) fn prepend(&mut self, links: &impl Links, mut other: Self) {
        let rest = std::mem::replace(self, Self::new());
        other.append(links, rest);
        *self = other;
    }

    /// The first node, for a list that is handed over by its head alone: a chain.
    #[inline]
    pub(crate) fn into_head(self) -> Node {
        self.head
    }

    /// The list that begins with `head`, which no other thread has.
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

    /// Whether the first node is a posted message, and not one that tells of an operation.
    #[inline]
    pub(crate) fn begins_with_post(&self) -> bool {
        self.head & (OP | TELLS) == POSTED
    }

    /// Whether `holds` is true of some node.
    pub(crate) fn any(&self, links: &impl Links, holds: impl Fn(Node) -> bool) -> bool {
        Self::any_from(links, self.head, holds)
    }

    /// The same of the list that begins with `head`, which no other thread changes meanwhile.
    pub(crate) fn any_from(links: &impl Links, head: Node, holds: impl Fn(Node) -> bool) -> bool {
        let mut here = head;
        while here != NIL && !holds(here) {
            here = links.link(here).load(Relaxed);
        }
        here != NIL
    }

    /// The numbers of all nodes, in order, for a dump.
    pub(crate) fn nodes(&self, links: &impl Links) -> Vec<Node> {
        let mut nodes = Vec::with_capacity(self.len);
        let mut here = self.head;
        while here != NIL {
            nodes.push(here);
            here = links.link(here).load(Relaxed);
        }
        nodes
    }

    /// Takes `node` out of the middle; false if it is not there. Walks the list.
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
