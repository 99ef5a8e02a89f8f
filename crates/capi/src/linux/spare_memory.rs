//! Memory of operations that have ended, for those that follow.
//!
//! One thread begins an operation and another one ends it, again and again. To the usual allocator that is memory which
//! goes from one thread's share to another's, under a lock that both want.

use std::alloc::{Layout, dealloc};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

/// Memory of a box, without a value.
#[derive(Debug)]
struct Block {
    place: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a block may be used by a thread other than its creator, although it has a pointer.
// - it is memory that nothing else uses.
unsafe impl Send for Block {}

impl Block {
    /// What a box had, whose value is dropped.
    fn of<T>(value: Box<T>) -> Self {
        const { assert!(size_of::<T>() > 0, "there would be no memory") };
        let place = Box::into_raw(value);
        // First, so that the memory is given back if the value's end panics.
        // SAFETY: `new_unchecked` demands a pointer that is not null.
        // - it is a box's.
        let memory = unsafe { NonNull::new_unchecked(place) };
        let block = Self { place: memory.cast(), layout: Layout::new::<T>() };
        // SAFETY: `drop_in_place` demands a value that is valid, and not used afterwards.
        // - it was in the box, which is given up; the block is memory alone.
        unsafe { place.drop_in_place() };
        block
    }

    /// A box of it.
    ///
    /// # Safety
    ///
    /// The memory is for the layout of the type.
    unsafe fn into_box<T>(self) -> Box<MaybeUninit<T>> {
        let place = ManuallyDrop::new(self).place.cast::<MaybeUninit<T>>().as_ptr();
        // SAFETY: `from_raw` demands a value in memory of the global allocator with the type's
        // layout, and no other owner.
        // - a value: any bytes are one that need not be initialized;
        // - such memory: the caller guarantees it, and it was that of a box;
        // - no other owner: the block was, and is given up.
        unsafe { Box::from_raw(place) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: `dealloc` demands memory of the global allocator, with the layout that it was asked for with.
        // - it was that of a box of this layout, which is not empty, as `of` sees to.
        unsafe { dealloc(self.place.as_ptr(), self.layout) };
    }
}

/// Memory of a few operations.
#[derive(Debug, Default)]
pub(crate) struct SpareMemory(Vec<Block>);

/// What a socket with many operations in flight ends at a time, and begins again. More is given back.
const MOST: usize = 16;

impl SpareMemory {
    /// A box to be written, of memory that is here if there is such.
    pub(crate) fn boxed<T>(&mut self) -> Box<MaybeUninit<T>> {
        let is_for = |block: &Block| block.layout == Layout::new::<T>();
        match self.0.iter().position(is_for) {
            Some(at) => {
                let block = self.0.swap_remove(at);
                // SAFETY: `into_box` demands memory for the layout of the type.
                // - it was looked for by that.
                unsafe { block.into_box() }
            }
            None => Box::new_uninit(),
        }
    }

    /// Keeps the memory of an [emptied](Emptied) value. If there is enough already, the caller
    /// frees it when it holds no lock.
    pub(crate) fn keep(&mut self, emptied: Emptied) -> Option<Emptied> {
        if self.0.len() < MOST {
            self.0.push(emptied.0);
            return None;
        }
        Some(emptied)
    }
}

/// The memory of a box whose value was dropped.
#[derive(Debug)]
pub(crate) struct Emptied(Block);

impl Emptied {
    /// Drops the value.
    pub(crate) fn new<T>(value: Box<T>) -> Self {
        Self(Block::of(value))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn memory_is_used_again_by_what_has_its_layout() {
        let mut blocks = SpareMemory::default();
        let first = Box::new([7_u64; 9]);
        let place: *const [u64; 9] = &raw const *first;
        assert!(blocks.keep(Emptied::new(first)).is_none());
        let other = Box::write(blocks.boxed(), [7_u32; 9]);
        assert_ne!((&raw const *other).cast::<u8>(), place.cast::<u8>());
        let second = Box::write(blocks.boxed(), [8_u64; 9]);
        assert_eq!(&raw const *second, place);
        assert_eq!((*other, *second), ([7; 9], [8; 9]));
        assert!(blocks.0.is_empty());
    }

    #[test]
    fn values_are_dropped_once_and_memory_is_bounded() {
        let shared = Arc::new(());
        let mut blocks = SpareMemory::default();
        for _ in 0..2 {
            let new = |_| Box::write(blocks.boxed(), Arc::clone(&shared));
            let boxes: Vec<_> = (0..MOST + 3).map(new).collect();
            assert_eq!(Arc::strong_count(&shared), MOST + 4);
            let back = boxes.into_iter().filter_map(|one| blocks.keep(Emptied::new(one))).count();
            assert_eq!((Arc::strong_count(&shared), blocks.0.len(), back), (1, MOST, 3));
        }
    }
}
