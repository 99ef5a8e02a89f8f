//! Slots, links of posted messages, and operations.

use crate::memory::arena::{APART, Arena};
use crate::state::operations::{Op, OpTable};
use crate::state::queue::{Links, Node, OP, POSTED, cell_of, is_op};
use crate::state::slot::Slot;
use crate::sync::AtomicU32;

/// The link of a message, alone in its cache line.
#[repr(align(64))]
#[derive(Default)]
struct LoneLink(AtomicU32);

/// See the module's documentation.
pub(super) struct Nodes {
    slots: Arena<Slot>,
    first_posts: Arena<LoneLink>,
    /// The links of the other messages, whose numbers start at [`APART`].
    posts: Arena<AtomicU32>,
    ops: Arena<Op>,
}

impl Nodes {
    pub(super) const fn new() -> Self {
        Self {
            slots: Arena::new(),
            first_posts: Arena::new(),
            posts: Arena::new(),
            ops: Arena::new(),
        }
    }

    #[inline]
    pub(super) fn slot(&self, index: u32) -> &Slot {
        self.slots.at(index)
    }

    /// Returns the slot, if it was ever used.
    #[inline]
    pub(super) fn find_slot(&self, index: u32) -> Option<&Slot> {
        self.slots.find(index)
    }

    /// Makes sure that this slot exists. False if there is no memory.
    pub(super) fn reserve_slot(&self, index: u32) -> bool {
        self.slots.reserve(index)
    }

    /// Returns the link of a posted message.
    #[inline]
    pub(super) fn post(&self, cell: u32) -> &AtomicU32 {
        match cell.checked_sub(APART) {
            None => &self.first_posts.at(cell).0,
            Some(number) => self.posts.at(number),
        }
    }

    /// Like [`Nodes::reserve_slot`], for a message.
    #[inline]
    pub(super) fn reserve_post(&self, cell: u32) -> bool {
        match cell.checked_sub(APART) {
            None => self.first_posts.reserve(cell),
            Some(number) => self.posts.reserve(number),
        }
    }

    #[inline]
    pub(super) fn op_at(&self, op_index: u32) -> &Op {
        self.ops.at(op_index)
    }

    /// Returns the `Op`, if its index was ever used.
    pub(super) fn find_op(&self, op_index: u32) -> Option<&Op> {
        self.ops.find(op_index)
    }

    /// Like [`Nodes::reserve_slot`], for an op index.
    pub(super) fn reserve_op(&self, op_index: u32) -> bool {
        self.ops.reserve(op_index)
    }
}

impl Links for Nodes {
    #[inline]
    fn link(&self, node: Node) -> &AtomicU32 {
        if node & POSTED == 0 {
            &self.slots.at(node).link
        } else if is_op(node) {
            &self.ops.at(node & !OP).link
        } else {
            self.post(cell_of(node))
        }
    }
}

impl OpTable for Nodes {
    #[inline]
    fn op(&self, node: Node) -> &Op {
        self.ops.at(node & !OP)
    }
}
