//! Slots, links of posted messages, and operations.

use crate::memory::arena::Arena;
use crate::state::operations::{Flight, Records};
use crate::state::queue::{FLIGHT, Links, Node, POSTED, cell_of, is_flight};
use crate::state::slot::Slot;
use crate::sync::AtomicU32;

/// See the module's documentation.
pub(super) struct Nodes {
    slots: Arena<Slot>,
    posts: Arena<AtomicU32>,
    flights: Arena<Flight>,
}

impl Nodes {
    pub(super) const fn new() -> Self {
        Self { slots: Arena::new(), posts: Arena::new(), flights: Arena::new() }
    }

    #[inline]
    pub(super) fn slot(&self, index: u32) -> &Slot {
        self.slots.at(index)
    }

    /// The slot, if it was ever used.
    #[inline]
    pub(super) fn find_slot(&self, index: u32) -> Option<&Slot> {
        self.slots.find(index)
    }

    /// Makes sure that there is such a slot. False if there is no memory.
    pub(super) fn reserve_slot(&self, index: u32) -> bool {
        self.slots.reserve(index)
    }

    /// The link of a posted message.
    #[inline]
    pub(super) fn post(&self, cell: u32) -> &AtomicU32 {
        self.posts.at(cell)
    }

    /// The same as [`Nodes::reserve_slot`] for a message.
    pub(super) fn reserve_post(&self, cell: u32) -> bool {
        self.posts.reserve(cell)
    }

    #[inline]
    pub(super) fn record(&self, record: u32) -> &Flight {
        self.flights.at(record)
    }

    /// The record, if it was ever used.
    pub(super) fn find_record(&self, record: u32) -> Option<&Flight> {
        self.flights.find(record)
    }

    /// The same as [`Nodes::reserve_slot`] for a record.
    pub(super) fn reserve_record(&self, record: u32) -> bool {
        self.flights.reserve(record)
    }
}

impl Links for Nodes {
    #[inline]
    fn link(&self, node: Node) -> &AtomicU32 {
        if node & POSTED == 0 {
            &self.slots.at(node).link
        } else if is_flight(node) {
            &self.flights.at(node & !FLIGHT).link
        } else {
            self.posts.at(cell_of(node))
        }
    }
}

impl Records for Nodes {
    #[inline]
    fn flight(&self, node: Node) -> &Flight {
        self.flights.at(node & !FLIGHT)
    }
}
