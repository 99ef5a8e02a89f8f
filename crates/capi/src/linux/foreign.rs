//! Objects that the headers in `compat/include` make in C: searches for files. This library only knows how to take and
//! release their shares.

use std::ffi::c_void;
use std::fmt;

/// A function of the header that made the object.
pub(crate) type Callback = unsafe extern "C" fn(*mut c_void);

/// An object of a header, with a share of it for its handle.
pub(crate) struct Foreign {
    object: *mut c_void,
    kind: u32,
    retain: Callback,
    release: Callback,
}

// SAFETY: the object is only handed to its own functions and to callers.
// - these may be called from any thread: `new` demands it.
unsafe impl Send for Foreign {}
// SAFETY: a shared reference only gives the object's address away.
// - only its own functions access it, which several threads may call concurrently: `new` demands
//   it.
unsafe impl Sync for Foreign {}

impl Foreign {
    /// Takes over one share of the object.
    ///
    /// # Safety
    ///
    /// The functions may be called with `object` from any thread, and `release` once more than `retain`.
    pub(crate) unsafe fn new(
        object: *mut c_void,
        kind: u32,
        retain: Callback,
        release: Callback,
    ) -> Self {
        Self { object, kind, retain, release }
    }

    /// The object, with a share of it for the caller, if it is of this kind.
    pub(crate) fn share(&self, kind: u32) -> Option<*mut c_void> {
        (self.kind == kind).then(|| {
            // SAFETY: `retain` demands an object that is there.
            // - `self` has a share of it, which it gives up when it is dropped.
            unsafe { (self.retain)(self.object) };
            self.object
        })
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        // SAFETY: `release` demands a share of the object that is given up.
        // - the one that `new` has taken over; nothing is dropped twice.
        unsafe { (self.release)(self.object) };
    }
}

impl fmt::Debug for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Foreign").field("kind", &self.kind).finish_non_exhaustive()
    }
}
