//! Tells a forked child from its parent, and keeps what belongs to one process.
//!
//! The C library calls a handler in each forked child, before anything else runs there (pthread_atfork(3)). It takes
//! away the pointer to what the process has, its table of descriptors, and counts up a mark. The child makes a table
//! of its own, since the parent's names the parent's ports and may have been locked when it was copied.

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};

use crate::backend::host::Origin;
use crate::state::table::Descriptors;

/// Of the running process; null until it makes a port. Never freed.
static TABLE: AtomicPtr<Descriptors> = AtomicPtr::new(ptr::null_mut());

/// Another number in each forked child.
static MARK: AtomicUsize = AtomicUsize::new(0);

/// Whether the handler is known to the C library.
static IS_NOTED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    TABLE.store(ptr::null_mut(), Relaxed);
    MARK.fetch_add(1, Relaxed);
}

/// A process, as it was when a port was made.
#[derive(Clone, Copy)]
pub(super) struct Process {
    descriptors: &'static Descriptors,
    mark: usize,
}

impl Process {
    /// This process.
    pub(super) fn current() -> Self {
        // Two threads may do this at once, which does no harm. A lock would: it might be held when another thread
        // forks.
        if !IS_NOTED.load(Acquire) {
            // SAFETY: pthread_atfork(3) demands that the handlers do only what is allowed in a child of a process
            // with several threads.
            // - `in_child` changes two atomic variables.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
            IS_NOTED.store(true, Release);
        }
        let mut table = TABLE.load(Acquire);
        if table.is_null() {
            let made = Box::into_raw(Box::new(Descriptors::new()));
            match TABLE.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
                Ok(_) => table = made,
                Err(other) => {
                    // SAFETY: `from_raw` demands a pointer of `into_raw` that nothing else uses.
                    // - it was made just now, and not published.
                    drop(unsafe { Box::from_raw(made) });
                    table = other;
                }
            }
        }
        // SAFETY: a shared reference demands a valid object that nothing changes.
        // - what was published here was made by `into_raw` in this process; it is never freed and only changed through
        //   its locks.
        let descriptors = unsafe { &*table };
        Self { descriptors, mark: MARK.load(Relaxed) }
    }

    /// Whether this is the running process, and not a parent of it.
    pub(super) fn is_current(self) -> bool {
        MARK.load(Relaxed) == self.mark
    }

    /// The same as a value that the engine can look at.
    pub(super) fn origin(self) -> Origin {
        Origin::Marked(&MARK, self.mark)
    }

    /// Which port of the process has which descriptor.
    pub(super) fn descriptors(self) -> &'static Descriptors {
        self.descriptors
    }
}
