//! An allocator that counts.
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: testkit::alloc::Counting = testkit::alloc::Counting;
//!
//! let (_, allocations) = testkit::alloc::count(|| Box::new(7));
//! assert_eq!(allocations, 1);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The system's allocator, which counts allocations and enlargements; freeing is not counted.
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "named as the value of a static")]
pub struct Counting;

static ALL: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static HERE: Cell<u64> = const { Cell::new(0) };
}

fn note() {
    ALL.fetch_add(1, Relaxed);
    // A thread that is about to end has no counter any more, and nothing asks for it.
    let _ = HERE.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: an implementation must keep the contract of `GlobalAlloc`, and must not unwind.
// - every method hands its arguments on to `System`, which keeps it, and returns its answer;
// - `note` neither allocates nor unwinds: its counters are an atomic and a `const` cell without drop.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: `alloc` demands a layout that is not empty.
        // - it is the caller's, who promised the same to this method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: `alloc_zeroed` demands a layout that is not empty.
        // - it is the caller's, who promised the same to this method.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: `realloc` demands a block of this allocator with this layout, and a size that is
        // not 0 and does not overflow when rounded up.
        // - all three are the caller's, who promised the same to this method, and every block of
        //   this allocator is one of `System`.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `dealloc` demands a block of this allocator with this layout.
        // - both are the caller's, who promised the same to this method, and every block of this
        //   allocator is one of `System`.
        unsafe { System.dealloc(block, layout) }
    }
}

/// Runs `act` and returns how often this thread allocated meanwhile. Always 0 unless [`Counting`]
/// is the global allocator.
pub fn count<R>(act: impl FnOnce() -> R) -> (R, u64) {
    let before = HERE.get();
    let done = act();
    (done, HERE.get() - before)
}

/// Runs `act` and returns how often any thread of the process allocated meanwhile.
pub fn count_all_threads<R>(act: impl FnOnce() -> R) -> (R, u64) {
    let before = ALL.load(Relaxed);
    let done = act();
    (done, ALL.load(Relaxed) - before)
}
