//! Storage whose entries never move: an array of arrays, each twice as long as the one before.
//!
//! An entry is found by its number without a lock, and stays where it is until the arena is dropped.
//! [`Arena`] has the entries, [`Spares`] knows which of them are free.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;

use super::queue::{Links, NIL, Node};

/// Entries in the first array.
const FIRST: u32 = 32;
/// Arrays; together they hold 2^31 - 32 entries.
const ARRAYS: usize = 26;

/// Entries that never move.
pub(crate) struct Arena<T> {
    arrays: [OnceLock<Box<[T]>>; ARRAYS],
}

impl<T: Default> Arena<T> {
    pub(crate) const fn new() -> Self {
        Self { arrays: [const { OnceLock::new() }; ARRAYS] }
    }

    #[inline]
    fn place(number: u32) -> (usize, usize) {
        let shifted = u64::from(number) + u64::from(FIRST);
        let array = shifted.ilog2() - FIRST.ilog2();
        let first = u64::from(FIRST) << array;
        #[allow(clippy::cast_possible_truncation, reason = "below 2^31 by construction")]
        let offset = (shifted - first) as usize;
        (array as usize, offset)
    }

    /// Makes sure that `number` can be used. False if there is no memory, or no such number.
    pub(crate) fn reserve(&self, number: u32) -> bool {
        let (array, _) = Self::place(number);
        let Some(cell) = self.arrays.get(array) else { return false };
        if cell.get().is_some() {
            return true;
        }
        let wanted = (FIRST as usize) << array;
        let mut entries = Vec::new();
        if entries.try_reserve_exact(wanted).is_err() {
            return false;
        }
        entries.resize_with(wanted, T::default);
        // Another thread may have been faster; then this array is dropped.
        let _ = cell.set(entries.into_boxed_slice());
        true
    }

    /// The entry with this number.
    ///
    /// # Panics
    ///
    /// If the number was never reserved, which would be a defect of the engine.
    #[inline]
    pub(crate) fn at(&self, number: u32) -> &T {
        let (array, offset) = Self::place(number);
        let entries = self.arrays[array].get().expect("a node's number was reserved");
        &entries[offset]
    }

    /// The entry with this number, if it was reserved.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<&T> {
        let (array, offset) = Self::place(number);
        self.arrays.get(array)?.get()?.get(offset)
    }
}

/// Numbers that are linked with each other, from the first to the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linked {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) count: usize,
}

/// Which numbers of an arena are free: those given back, newest first, then those never used.
#[derive(Debug)]
pub(crate) struct Spares {
    first: Node,
    unused: u32,
    in_use: usize,
}

impl Spares {
    pub(crate) const fn new() -> Self {
        Self { first: NIL, unused: 0, in_use: 0 }
    }

    /// A free number; `reserve` is asked before one is used for the first time. `mark` turns the
    /// number into the node's name.
    pub(crate) fn take(
        &mut self,
        links: &impl Links,
        mark: Node,
        reserve: impl FnOnce(u32) -> bool,
    ) -> Option<u32> {
        let number = if self.first == NIL {
            let number = self.unused;
            if number >= super::queue::POSTED - FIRST || !reserve(number) {
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

    /// Gives a number back.
    pub(crate) fn give_back(&mut self, links: &impl Links, mark: Node, number: u32) {
        links.link(number | mark).store(self.first, Relaxed);
        self.first = number;
        self.in_use -= 1;
    }

    /// Gives all of these numbers back; the first of them is taken first.
    #[inline]
    pub(crate) fn give_back_all(&mut self, links: &impl Links, mark: Node, numbers: Linked) {
        links.link(numbers.last | mark).store(self.first, Relaxed);
        self.first = numbers.first;
        self.in_use -= numbers.count;
    }

    /// Gives a number up for good: it is never taken again.
    pub(crate) fn retire(&mut self) {
        self.in_use -= 1;
    }

    /// How many numbers are in use.
    #[inline]
    pub(crate) fn in_use(&self) -> usize {
        self.in_use
    }

    /// All numbers below this one have been used at some time.
    pub(crate) fn highest(&self) -> u32 {
        self.unused
    }
}
