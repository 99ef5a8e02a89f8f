//! Storage whose entries never move: an array of arrays, each twice as long as the previous one.
//!
//! Finding an entry by its number takes no lock. The entry stays at its address until the arena is
//! dropped. The arena does not track which numbers are free.

use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

/// The number of entries in the first array.
pub(crate) const FIRST: u32 = 32;
/// Arrays are indexed by the highest bit of `number + FIRST`. So the first places are unused, and
/// no index needs a bounds check.
const ARRAYS: usize = u32::BITS as usize + 1;
/// Arrays from this index on are never made. Those before it have 2^31 - 32 entries.
const END: usize = 31;

/// The first 992 messages have a cache line for each link and each cell. Otherwise several would
/// share one, and threads that post and take different messages would wait for it. If more are in
/// use, most are timers, which change rarely. This many are made in five steps
/// ([`Arena::last_made_with`]).
pub(crate) const APART: u32 = 992;

/// Entries that never move.
pub(crate) struct Arena<T> {
    /// The first entry of each array; null if the array does not exist yet. Array `n` has `1 << n`
    /// entries. It is made once, and lives as long as the arena, which owns it.
    arrays: [AtomicPtr<T>; ARRAYS],
    /// The arena is `Send` and `Sync` if this is.
    owned: PhantomData<[OnceLock<Box<[T]>>; ARRAYS]>,
}

impl<T> Arena<T> {
    /// Returns the number of entries in an array.
    #[inline]
    const fn length(array: usize) -> usize {
        1 << array
    }

    /// Returns the array of an entry, and its offset there, which is less than the array's length.
    #[inline]
    fn place(number: u32) -> (usize, usize) {
        let shifted = u64::from(number) + u64::from(FIRST);
        let highest = shifted.ilog2();
        #[allow(
            clippy::cast_possible_truncation,
            reason = "an offset that does not fit is of an array that cannot be"
        )]
        let offset = (shifted & !(1 << highest)) as usize;
        (highest as usize, offset)
    }
}

impl<T> Arena<T> {
    /// Returns the highest number whose entry is made together with that of `number`.
    pub(crate) fn last_made_with(number: u32) -> u32 {
        // The numbers of an array have the same highest bit once `FIRST` is added.
        let shifted = u64::from(number) + u64::from(FIRST);
        let last = (2 << shifted.ilog2()) - 1 - u64::from(FIRST);
        u32::try_from(last).unwrap_or(u32::MAX)
    }
}

impl<T: Default> Arena<T> {
    pub(crate) const fn new() -> Self {
        Self { arrays: [const { AtomicPtr::new(ptr::null_mut()) }; ARRAYS], owned: PhantomData }
    }

    /// Makes sure that `number` can be used. Returns false if there is no memory or no such number.
    pub(crate) fn reserve(&self, number: u32) -> bool {
        let (array, _) = Self::place(number);
        if array >= END {
            return false;
        }
        let first = &self.arrays[array];
        if !first.load(Acquire).is_null() {
            return true;
        }
        let wanted = Self::length(array);
        let mut entries = Vec::new();
        if entries.try_reserve_exact(wanted).is_err() {
            return false;
        }
        entries.resize_with(wanted, T::default);
        let made = Box::into_raw(entries.into_boxed_slice());
        if first.compare_exchange(ptr::null_mut(), made.cast(), AcqRel, Acquire).is_err() {
            // SAFETY: `from_raw` requires a pointer from `into_raw` that nothing else uses.
            // - from `into_raw`: just above. Another thread was faster, so no thread has seen this
            //   pointer.
            drop(unsafe { Box::from_raw(made) });
        }
        true
    }

    /// Returns the entry with this number.
    ///
    /// # Panics
    ///
    /// If the number was never reserved, which would be a bug in the engine.
    #[inline]
    pub(crate) fn at(&self, number: u32) -> &T {
        match self.find(number) {
            Some(entry) => entry,
            None => never_reserved(),
        }
    }

    /// Returns the entry with this number, if it was reserved.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<&T> {
        let (array, offset) = Self::place(number);
        let first = self.arrays[array].load(Acquire);
        if first.is_null() {
            return None;
        }
        // SAFETY: `add` requires that the result stays within the pointer's allocation.
        // - `first` is the beginning of array `array`, which has `length(array)` entries, and
        //   `offset` is less than that: the highest bit of `shifted` is `length(array)`, and
        //   `offset` is the remaining bits.
        let entry = unsafe { first.add(offset) };
        // SAFETY: a reference requires a value that nothing accesses exclusively while it lives.
        // - a value: all entries were made before the pointer was stored, which the load acquires;
        // - nothing: an array is dropped only with the arena, which this reference borrows, and
        //   until then nothing makes an exclusive reference to an entry.
        Some(unsafe { &*entry })
    }
}

#[cold]
#[inline(never)]
fn never_reserved() -> ! {
    panic!("a node's number was never reserved")
}

impl<T> Drop for Arena<T> {
    fn drop(&mut self) {
        for (array, first) in self.arrays.iter_mut().enumerate() {
            let first = *first.get_mut();
            if !first.is_null() {
                let entries = ptr::slice_from_raw_parts_mut(first, Self::length(array));
                // SAFETY: `from_raw` requires a pointer from `into_raw` that nothing else uses.
                // - from `into_raw`: by `reserve`, with that many entries;
                // - nothing else: the arena is borrowed exclusively, and its pointers are not used
                //   again.
                drop(unsafe { Box::from_raw(entries) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;

    /// Counts its instances.
    struct Counted(AtomicUsize);

    static COUNT: AtomicUsize = AtomicUsize::new(0);

    impl Default for Counted {
        fn default() -> Self {
            COUNT.fetch_add(1, SeqCst);
            Self(AtomicUsize::new(0))
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            COUNT.fetch_sub(1, SeqCst);
        }
    }

    #[test]
    fn each_number_has_an_entry_of_its_own_as_long_as_the_arena_lives() {
        let arena = Arena::<Counted>::new();
        // The last numbers of some arrays, and the first ones of the next arrays.
        let numbers = [0, 1, 31, 32, 95, 96, 223, 224, 1000, 5000];
        assert!(arena.find(0).is_none());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in numbers {
                        assert!(arena.reserve(number));
                        arena.at(number).0.fetch_add(number as usize + 1, SeqCst);
                    }
                });
            }
        });
        for number in numbers {
            assert_eq!(arena.at(number).0.load(SeqCst), 4 * (number as usize + 1));
        }
        // Array 9 has the numbers from 480 to 991, of which none was reserved.
        assert!(arena.find(480).is_none() && arena.find(991).is_none());
        assert!(arena.find(Arena::<Counted>::last_made_with(1000)).is_some());
        assert_eq!([0, 31, 32, 991].map(Arena::<Counted>::last_made_with), [31, 31, 95, 991]);
        let made: usize = [5, 6, 7, 8, 10, 12].map(Arena::<Counted>::length).iter().sum();
        assert_eq!(COUNT.load(SeqCst), made);
        drop(arena);
        assert_eq!(COUNT.load(SeqCst), 0);
    }

    #[test]
    fn there_is_no_entry_beyond_the_last_array() {
        let arena = Arena::<u8>::new();
        assert!(!arena.reserve(u32::MAX) && arena.find(u32::MAX).is_none());
        assert!(!arena.reserve(u32::MAX - FIRST));
    }
}
