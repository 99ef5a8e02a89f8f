//! The synchronization primitives of the engine and the simulated kernel, in one place, so that the
//! model checker and the thread simulation can replace them.

#[allow(unused_imports, reason = "for the simulated kernel")]
pub(crate) use std::sync::Condvar;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock};
pub(crate) use std::thread::yield_now;

use std::hint::spin_loop;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{PoisonError, TryLockError};

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

/// Locks a mutex that threads hold only for a moment, also if one has panicked while it held it.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(error)) => error.into_inner(),
        Err(TryLockError::WouldBlock) => lock_contended(mutex),
    }
}

/// Tries for some microseconds before the calling thread sleeps, because a sleep and a wake-up take
/// longer. The standard library does so only while no other thread sleeps until the mutex is free.
#[cold]
fn lock_contended<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    /// How often it tries, and how long it waits before each try. A pause takes 10 to 50
    /// nanoseconds.
    const TRIES: u32 = 20;
    const PAUSES: u32 = 4;
    for _ in 0..TRIES {
        (0..PAUSES).for_each(|_| spin_loop());
        match mutex.try_lock() {
            Ok(guard) => return guard,
            Err(TryLockError::Poisoned(error)) => return error.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    /// Runs a test of code that synchronizes with these primitives. The model checker replaces
    /// this, because its primitives work only inside a model.
    pub(crate) fn tested(test: impl Fn() + Send + Sync + 'static) {
        test();
    }
}
