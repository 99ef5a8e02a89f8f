//! The synchronization primitives of the engine and the simulated kernel, in one place, so that the
//! model checker and the thread simulation can replace them.

#[allow(unused_imports, reason = "for the simulated kernel")]
pub(crate) use std::sync::Condvar;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock};
pub(crate) use std::thread::yield_now;

use std::sync::atomic::Ordering::SeqCst;

/// Issues a full fence: everything that the thread did before, including system calls, takes effect
/// before its next reads.
///
/// No other thread may be using the word `own`. Its value is lost.
#[inline]
pub(crate) fn barrier(own: &AtomicU32) {
    if cfg!(target_arch = "x86_64") {
        // Any locked instruction is a full fence, and takes a quarter of the time of `mfence`.
        own.swap(0, SeqCst);
    } else {
        fence(SeqCst);
    }
}

/// Issues a full fence, for a thread whose last access was an atomic read-modify-write.
#[inline]
pub(crate) fn barrier_behind_exchange() {
    if !cfg!(target_arch = "x86_64") {
        fence(SeqCst);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    /// Runs a test of code that synchronizes with these primitives. The model checker replaces
    /// this, because its primitives work only inside a model.
    pub(crate) fn tested(test: impl Fn() + Send + Sync + 'static) {
        test();
    }
}
