//! The primitives that the engine and the simulated kernel synchronise with, in one place so that the
//! model checker and the simulation of threads can replace them by their own.

#[allow(unused_imports, reason = "for the simulated kernel")]
pub(crate) use std::sync::Condvar;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock};
pub(crate) use std::thread::yield_now;

use std::sync::atomic::Ordering::SeqCst;

/// A full fence: what the thread did before, system calls included, is done before what it reads
/// next. `own` is a word that no other thread uses at the moment; its value is lost.
#[inline]
pub(crate) fn barrier(own: &AtomicU32) {
    if cfg!(target_arch = "x86_64") {
        // Any locked instruction is one, in a quarter of the time of `mfence`.
        own.swap(0, SeqCst);
    } else {
        fence(SeqCst);
    }
}

/// The same, for a thread that has just made an atomic read-modify-write.
#[inline]
pub(crate) fn barrier_behind_exchange() {
    if !cfg!(target_arch = "x86_64") {
        fence(SeqCst);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    /// Runs a test of what synchronises with these primitives: the model checker's are used in a model alone.
    pub(crate) fn tested(test: impl Fn() + Send + Sync + 'static) {
        test();
    }
}
