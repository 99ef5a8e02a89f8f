//! The calling thread's last error.

use std::cell::Cell;

thread_local! {
    /// Has no destructor, so that it can be used at any time in a thread's life.
    static LAST: Cell<u32> = const { Cell::new(0) };
}

/// Sets the calling thread's last error.
pub(crate) fn set_last(code: u32) {
    LAST.set(code);
}

/// The calling thread's last error.
pub(crate) fn last() -> u32 {
    LAST.get()
}
