//! The free numbers of an [arena](crate::memory::arena).

use std::sync::atomic::Ordering::Relaxed;

use super::queue::{Links, NIL, Node, POSTED};
use crate::memory::arena::FIRST;

/// Numbers that are linked to each other, from `first` to `last`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linked {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) count: usize,
}

/// The free numbers of an arena. Returned numbers are used first, the newest before the others, and
/// then those that were never used.
#[derive(Debug)]
pub(crate) struct FreeList {
    first: Node,
    unused: u32,
    in_use: usize,
}

impl FreeList {
    pub(crate) const fn new() -> Self {
        Self { first: NIL, unused: 0, in_use: 0 }
    }

    /// Takes a free number. Calls `reserve` before a number is used for the first time. `mark`
    /// turns the number into a node.
    #[inline]
    pub(crate) fn take(
        &mut self,
        links: &impl Links,
        mark: Node,
        reserve: impl FnOnce(u32) -> bool,
    ) -> Option<u32> {
        let number = if self.first == NIL {
            let number = self.unused;
            if number >= POSTED - FIRST || !reserve(number) {
                return None;
            }
            self.unused += 1;
            number
        } else {
            let number = self.first;
            self.first = links.link(number | mark).load(Relaxed);
            number
        };
        self.in_use += 1;
        Some(number)
    }

    /// Returns a number to the list.
    pub(crate) fn release(&mut self, links: &impl Links, mark: Node, number: u32) {
        links.link(number | mark).store(self.first, Relaxed);
        self.first = number;
        self.in_use -= 1;
    }

    /// Returns several numbers to the list. The first of them is taken first.
    #[inline]
    pub(crate) fn release_all(&mut self, links: &impl Links, mark: Node, numbers: Linked) {
        links.link(numbers.last | mark).store(self.first, Relaxed);
        self.first = numbers.first;
        self.in_use -= numbers.count;
    }

    /// Retires a number: it is never taken again.
    pub(crate) fn retire(&mut self) {
        self.in_use -= 1;
    }

    /// Returns how many numbers are in use.
    #[inline]
    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }

    /// Returns the lowest number that was never used.
    pub(crate) fn highest(&self) -> u32 {
        self.unused
    }
}
