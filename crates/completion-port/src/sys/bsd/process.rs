//! Distinguishes a forked child from its parent, and owns the state of one process.
//!
//! The C library calls a handler in each forked child before any other code runs there
//! (pthread_atfork(3)). The handler clears the pointer to the process's table of descriptors and
//! increments a mark. The child makes its own table, since the parent's names the parent's ports
//! and may have been locked when it was copied.

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize};

use crate::backend::host::Origin;
use crate::state::table::Descriptors;

/// The table of the running process; null until it makes a port. Never freed.
static TABLE: AtomicPtr<Descriptors> = AtomicPtr::new(ptr::null_mut());

/// A number that differs in each forked child.
static MARK: AtomicUsize = AtomicUsize::new(0);

/// Whether the handler was registered with the C library.
static IS_NOTED: AtomicBool = AtomicBool::new(false);

extern "C" fn in_child() {
    TABLE.store(ptr::null_mut(), Relaxed);
    MARK.fetch_add(1, Relaxed);
}

/// The process that made a port.
#[derive(Clone, Copy)]
pub(super) struct Process {
    descriptors: &'static Descriptors,
    mark: usize,
}

impl Process {
    /// Returns this process.
    pub(super) fn current() -> Self {
        // Two threads may register the handler at the same time, which is harmless. A lock might be
        // held when another thread forks.
        if !IS_NOTED.load(Acquire) {
            // SAFETY: pthread_atfork(3) requires that the handlers do only what is allowed in a
            // child of a process with several threads.
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
                    // SAFETY: `from_raw` requires a pointer from `into_raw` that nothing else uses.
                    // - it was made above and not published.
                    drop(unsafe { Box::from_raw(made) });
                    table = other;
                }
            }
        }
        // SAFETY: a shared reference requires a valid object that nothing changes.
        // - `into_raw` made the published object in this process; it is never freed and only
        //   changed through its locks.
        let descriptors = unsafe { &*table };
        Self { descriptors, mark: MARK.load(Relaxed) }
    }

    /// Returns whether this is the running process and not a parent of it.
    pub(super) fn is_current(self) -> bool {
        MARK.load(Relaxed) == self.mark
    }

    /// Returns the identity in a form that the engine can check.
    pub(super) fn origin(self) -> Origin {
        Origin::Marked(&MARK, self.mark)
    }

    /// Returns the table of which port of the process has which descriptor.
    pub(super) fn descriptors(self) -> &'static Descriptors {
        self.descriptors
    }
}
