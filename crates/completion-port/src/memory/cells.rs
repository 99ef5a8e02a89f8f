//! Where keys and messages lie. A key stays in its cell while a handler has it.
//!
//! The engine knows at any time which thread or token owns a cell, but not the type of what lies in
//! it. The code here moves values in and out, and lends them to their owners, as the engine says.

use std::cell::UnsafeCell;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use crate::memory::arena::Arena;
use crate::types::source::SourceName;

/// Room for one value.
pub(crate) struct Cell<T>(UnsafeCell<MaybeUninit<T>>);

impl<T> Default for Cell<T> {
    fn default() -> Self {
        Self(UnsafeCell::new(MaybeUninit::uninit()))
    }
}

// SAFETY: a shared cell lets values of `T` pass between threads, one owner at a time.
// - passing is sound because `T: Send`;
// - one at a time because every access goes through the unsafe methods of `Cells`, whose callers own
//   the cell.
unsafe impl<T: Send> Sync for Cell<T> {}

impl<T> Cell<T> {
    /// Puts a value into the cell.
    ///
    /// # Safety
    ///
    /// The caller owns the cell, and it is empty (a value in it would be leaked).
    #[inline]
    pub(crate) unsafe fn put(&self, value: T) {
        // SAFETY: writing through a raw pointer demands that it is valid and that nothing else
        // accesses the place.
        // - valid: it is that of `self`;
        // - nothing else: the caller owns the cell.
        unsafe { self.0.get().write(MaybeUninit::new(value)) };
    }

    /// The value in the cell.
    ///
    /// # Safety
    ///
    /// There is a value in it, which is neither changed nor taken as long as the reference lives.
    #[inline]
    pub(crate) unsafe fn get(&self) -> &T {
        // SAFETY: making a reference from a raw pointer demands that it is valid, and that nothing
        // is written there as long as the reference lives.
        // - valid: it is that of `self`;
        // - nothing is written: the caller says so.
        let value = unsafe { &*self.0.get() };
        // SAFETY: `assume_init_ref` demands a value.
        // - the caller says that there is one.
        unsafe { value.assume_init_ref() }
    }

    /// The value in the cell, to be changed.
    ///
    /// # Safety
    ///
    /// There is a value in it, which nothing else accesses as long as the reference lives.
    #[allow(clippy::mut_from_ref, reason = "the caller has the cell to himself")]
    #[inline]
    pub(crate) unsafe fn get_mut(&self) -> &mut T {
        // SAFETY: making an exclusive reference from a raw pointer demands that it is valid, and
        // that nothing else accesses the place as long as the reference lives.
        // - valid: it is that of `self`;
        // - nothing else: the caller says so.
        let value = unsafe { &mut *self.0.get() };
        // SAFETY: `assume_init_mut` demands a value.
        // - the caller says that there is one.
        unsafe { value.assume_init_mut() }
    }

    /// Moves the value out of the cell.
    ///
    /// # Safety
    ///
    /// The caller owns the cell, and there is a value in it, which must not be taken out again.
    #[inline]
    pub(crate) unsafe fn take(&self) -> T {
        // SAFETY: reading through a raw pointer demands that it is valid and that nothing is
        // written there meanwhile.
        // - valid: it is that of `self`;
        // - nothing is written: the caller owns the cell.
        let value = unsafe { self.0.get().read() };
        // SAFETY: `assume_init` demands a value.
        // - the caller says that there is one, and takes it out only once.
        unsafe { value.assume_init() }
    }

    /// Takes a part out of the value in the cell, and drops what is left.
    ///
    /// # Safety
    ///
    /// As for [`Cell::take`].
    #[inline]
    pub(crate) unsafe fn take_part<R>(&self, part: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: `get_mut` demands a value that nothing else accesses as long as the reference lives.
        // - a value, and nothing else: the caller owns the cell, and says that there is one.
        let taken = part(unsafe { self.get_mut() });
        // SAFETY: dropping a value in place demands that it is valid, and not used again.
        // - valid: `part` leaves it so; should it panic, the value is not dropped;
        // - not again: the caller takes it once.
        unsafe { self.place().drop_in_place() };
        taken
    }

    /// Where the value lies, or is to lie.
    #[inline]
    pub(crate) fn place(&self) -> *mut T {
        self.0.get().cast()
    }
}

/// Cells that never move, each empty or with a value; whether it is empty is known to the engine.
pub(crate) struct Cells<T>(Arena<Cell<T>>);

impl<T> Cells<T> {
    pub(crate) const fn new() -> Self {
        Self(Arena::new())
    }

    /// Makes sure that cell `number` can be used. False if there is no memory.
    pub(crate) fn reserve(&self, number: u32) -> bool {
        self.0.reserve(number)
    }

    /// The cell with this number, which was reserved.
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
        // SAFETY: `put` demands that the caller owns the cell and that it is empty.
        // - the caller says so.
        unsafe { self.at(number).put(value) };
    }

    /// Moves the value out of a cell.
    ///
    /// # Safety
    ///
    /// As for [`Cell::take`].
    pub(crate) unsafe fn take(&self, number: u32) -> T {
        // SAFETY: `take` demands that the caller owns the cell, with a value in it.
        // - the caller says so.
        unsafe { self.at(number).take() }
    }

    /// Clones the value in a cell.
    ///
    /// # Safety
    ///
    /// The caller owns the cell until this returns, and there is a value in it.
    pub(crate) unsafe fn clone_with(&self, number: u32, clone: fn(&T) -> T) -> T {
        // SAFETY: `get` demands a value that is neither changed nor taken meanwhile.
        // - a value: the caller says so;
        // - neither changed nor taken: the caller owns the cell until `clone` has returned.
        clone(unsafe { self.at(number).get() })
    }
}

impl<T> fmt::Debug for Cells<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cells")
    }
}

/// The keys of a port, and what can be done with one.
#[derive(Debug)]
pub(crate) struct Keys<K> {
    pub(crate) cells: Cells<K>,
    /// How keys are cloned; set before the first persistent registration.
    pub(crate) clone: OnceLock<fn(&K) -> K>,
    /// Which source a key is; set before the first owned registration.
    pub(crate) source_of: OnceLock<fn(&K) -> SourceName>,
}

impl<K> Keys<K> {
    pub(crate) const fn new() -> Self {
        Self { cells: Cells::new(), clone: OnceLock::new(), source_of: OnceLock::new() }
    }

    /// Says how keys are cloned, before a registration or a wait that needs it.
    #[inline]
    pub(crate) fn know_clone(&self, clone: Option<fn(&K) -> K>) {
        if let Some(clone) = clone {
            self.clone.get_or_init(|| clone);
        }
    }
}
