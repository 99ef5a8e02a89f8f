//! The storage of keys and messages. A key stays in its cell while a handler has it.
//!
//! The engine tracks which thread or token owns a cell, but doesn't know the type of its value. The
//! code here moves values in and out, and lends them to their owners, as the engine directs.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use crate::memory::arena::{APART, Arena};
use crate::types::source::SourceName;

/// Room for one value.
pub(crate) struct Cell<T>(UnsafeCell<MaybeUninit<T>>);

impl<T> Default for Cell<T> {
    fn default() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }
}

// SAFETY: a shared cell passes values of `T` between threads, to one owner at a time.
// - passing is sound because `T: Send`;
// - one at a time, because every access goes through the unsafe methods of `Cell` and `Cells`,
//   whose callers own the cell.
unsafe impl<T: Send> Sync for Cell<T> {}

impl<T> Cell<T> {
    /// Puts a value into the cell.
    ///
    /// # Safety
    ///
    /// The caller owns the cell, and it is empty (a value in it would be leaked).
    #[inline]
    pub(crate) unsafe fn put(&self, value: T) {
        // SAFETY: writing through a raw pointer requires that it is valid and that nothing else
        // accesses the place.
        // - valid: it is a pointer to the contents of `self`;
        // - nothing else: the caller owns the cell.
        unsafe { self.0.get().write(MaybeUninit::new(value)) };
    }

    /// Returns the value in the cell.
    ///
    /// # Safety
    ///
    /// The cell holds a value, which is neither changed nor taken while the reference lives.
    #[inline]
    pub(crate) unsafe fn get(&self) -> &T {
        // SAFETY: making a reference from a raw pointer requires that it is valid, and that nothing
        // is written there while the reference lives.
        // - valid: it is a pointer to the contents of `self`;
        // - nothing is written: the caller ensures that.
        let value = unsafe { &*self.0.get() };
        // SAFETY: `assume_init_ref` requires a value.
        // - the caller ensures that there is one.
        unsafe { value.assume_init_ref() }
    }

    /// Returns the value in the cell, mutably.
    ///
    /// # Safety
    ///
    /// The cell holds a value, which nothing else accesses while the reference lives.
    #[allow(clippy::mut_from_ref, reason = "the caller has the cell to himself")]
    #[inline]
    pub(crate) unsafe fn get_mut(&self) -> &mut T {
        // SAFETY: making an exclusive reference from a raw pointer requires that it is valid, and
        // that nothing else accesses the place while the reference lives.
        // - valid: it is a pointer to the contents of `self`;
        // - nothing else: the caller ensures that.
        let value = unsafe { &mut *self.0.get() };
        // SAFETY: `assume_init_mut` requires a value.
        // - the caller ensures that there is one.
        unsafe { value.assume_init_mut() }
    }

    /// Moves the value out of the cell.
    ///
    /// # Safety
    ///
    /// The caller owns the cell. It holds a value, which must not be taken again.
    #[inline]
    pub(crate) unsafe fn take(&self) -> T {
        // SAFETY: reading through a raw pointer requires that it is valid and that nothing is
        // written there meanwhile.
        // - valid: it is a pointer to the contents of `self`;
        // - nothing is written: the caller owns the cell.
        let value = unsafe { self.0.get().read() };
        // SAFETY: `assume_init` requires a value.
        // - the caller ensures that there is one, and takes it only once.
        unsafe { value.assume_init() }
    }

    /// Takes a part of the value out of the cell, and drops the rest.
    ///
    /// # Safety
    ///
    /// As for [`Cell::take`].
    #[inline]
    pub(crate) unsafe fn take_part<R>(&self, part: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value, and nothing else: the caller owns the cell, and ensures that it holds a value.
        let taken = part(unsafe { self.get_mut() });
        // SAFETY: dropping a value in place requires that it is valid, and not used again.
        // - valid: `part` leaves it valid. If `part` panics, the value is not dropped;
        // - not again: the caller takes it only once.
        unsafe { self.place().drop_in_place() };
        taken
    }

    /// Returns a pointer to the place of the value, which need not exist yet.
    #[inline]
    pub(crate) fn place(&self) -> *mut T {
        self.0.get().cast()
    }
}

/// Cells that never move. The engine tracks which of them hold a value.
pub(crate) struct Cells<T>(Arena<Cell<T>>);

impl<T> Cells<T> {
    pub(crate) const fn new() -> Self {
        Self(Arena::new())
    }

    /// Makes sure that cell `number` can be used. Returns false if there is no memory.
    pub(crate) fn reserve(&self, number: u32) -> bool {
        self.0.reserve(number)
    }

    /// Returns the cell with this number, which was reserved.
    #[inline]
    pub(crate) fn at(&self, number: u32) -> &Cell<T> {
        self.0.at(number)
    }

    /// Puts a value into a cell.
    ///
    /// # Safety
    ///
    /// As for [`Cell::put`].
    pub(crate) unsafe fn put(&self, number: u32, value: T) {
        // SAFETY: `put` requires that the caller owns the cell and that it is empty.
        // - the caller ensures both.
        unsafe { self.at(number).put(value) };
    }

    /// Moves the value out of a cell.
    ///
    /// # Safety
    ///
    /// As for [`Cell::take`].
    pub(crate) unsafe fn take(&self, number: u32) -> T {
        // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
        // - the caller ensures both.
        unsafe { self.at(number).take() }
    }

    /// Clones the value in a cell.
    ///
    /// # Safety
    ///
    /// The caller owns the cell until this returns, and it holds a value.
    pub(crate) unsafe fn clone_with(&self, number: u32, clone: fn(&T) -> T) -> T {
        // SAFETY: `get` requires a value that is neither changed nor taken meanwhile.
        // - a value: the caller ensures that there is one;
        // - neither changed nor taken: the caller owns the cell until `clone` has returned.
        clone(unsafe { self.at(number).get() })
    }
}

impl<T> fmt::Debug for Cells<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cells")
    }
}

/// Like [`Cells`], but the first ones have a cache line each.
pub(crate) struct CellsApart<T> {
    first: Arena<LoneCell<T>>,
    /// The others, whose numbers start at [`APART`].
    others: Cells<T>,
}

/// A cell, alone in its cache line if its value is not larger.
#[repr(align(64))]
struct LoneCell<T>(Cell<T>);

impl<T> Default for LoneCell<T> {
    fn default() -> Self {
        Self(Cell::default())
    }
}

impl<T> CellsApart<T> {
    pub(crate) const fn new() -> Self {
        Self { first: Arena::new(), others: Cells::new() }
    }

    /// Makes sure that cell `number` can be used. Returns false if there is no memory.
    pub(crate) fn reserve(&self, number: u32) -> bool {
        match number.checked_sub(APART) {
            None => self.first.reserve(number),
            Some(number) => self.others.reserve(number),
        }
    }

    /// Returns the cell with this number, which was reserved.
    #[inline]
    fn at(&self, number: u32) -> &Cell<T> {
        match number.checked_sub(APART) {
            None => &self.first.at(number).0,
            Some(number) => self.others.at(number),
        }
    }

    /// Puts a value into a cell.
    ///
    /// # Safety
    ///
    /// As for [`Cell::put`].
    pub(crate) unsafe fn put(&self, number: u32, value: T) {
        // SAFETY: `put` requires that the caller owns the cell and that it is empty.
        // - the caller ensures both.
        unsafe { self.at(number).put(value) };
    }

    /// Moves the value out of a cell.
    ///
    /// # Safety
    ///
    /// As for [`Cell::take`].
    pub(crate) unsafe fn take(&self, number: u32) -> T {
        // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
        // - the caller ensures both.
        unsafe { self.at(number).take() }
    }
}

impl<T> fmt::Debug for CellsApart<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CellsApart")
    }
}

/// The keys of a port, and the functions that clone and identify them.
#[derive(Debug)]
pub(crate) struct Keys<K> {
    pub(crate) cells: Cells<K>,
    /// How keys are cloned; set before the first persistent registration.
    pub(crate) clone: OnceLock<fn(&K) -> K>,
    /// How to get a key's source; set before the first owned registration.
    pub(crate) source_of: OnceLock<fn(&K) -> SourceName>,
}

impl<K> Keys<K> {
    pub(crate) const fn new() -> Self {
        Self { cells: Cells::new(), clone: OnceLock::new(), source_of: OnceLock::new() }
    }

    /// Sets how keys are cloned. Call this before a registration or a wait that clones keys.
    #[inline]
    pub(crate) fn know_clone(&self, clone: Option<fn(&K) -> K>) {
        if let Some(clone) = clone {
            self.clone.get_or_init(|| clone);
        }
    }
}
