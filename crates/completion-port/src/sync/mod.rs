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

/// Tries for a few microseconds before the calling thread sleeps, because a sleep and a wake-up take
/// longer. The standard library's mutex does that at most while no other thread sleeps for it.
#[cold]
fn lock_contended<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    /// How many pauses there are before each attempt: each attempt disturbs the thread that holds the
    /// lock. A pause takes 10 to 50 nanoseconds.
    const PAUSES: [u32; 5] = [4, 8, 16, 32, 32];
    for pauses in PAUSES {
        (0..pauses).for_each(|_| spin_loop());
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
    use std::sync::{Arc, mpsc};
    use std::thread;
    use std::time::Duration;

    use super::{Mutex, lock, lock_contended};

    /// Runs a test of code that synchronizes with these primitives. The model checker replaces
    /// this, because its primitives work only inside a model.
    pub(crate) fn tested(test: impl Fn() + Send + Sync + 'static) {
        test();
    }

    /// Panics while it holds the mutex, once `go_on` has a value or no sender.
    fn poison(mutex: &Arc<Mutex<u32>>, holds: &mpsc::Sender<()>, go_on: &mpsc::Receiver<()>) {
        let guard = lock(mutex);
        holds.send(()).unwrap();
        let _ = go_on.recv();
        assert_eq!(*guard, u32::MAX, "it panics while it holds the mutex");
    }

    #[test]
    fn a_mutex_whose_holder_has_panicked_is_locked_as_any_other() {
        for waits in [false, true] {
            let mutex = Arc::new(Mutex::new(7));
            let ((holds, held), (goes, go_on)) = (mpsc::channel(), mpsc::channel());
            let of_holder = Arc::clone(&mutex);
            let holder = thread::spawn(move || poison(&of_holder, &holds, &go_on));
            held.recv().unwrap();
            if waits {
                let (takes, taken) = mpsc::channel();
                let of_waiter = Arc::clone(&mutex);
                thread::spawn(move || takes.send(*lock(&of_waiter)).unwrap());
                // Until then it probably sleeps.
                let early = taken.recv_timeout(Duration::from_millis(20));
                assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout));
                goes.send(()).unwrap();
                assert_eq!(taken.recv(), Ok(7));
            }
            drop(goes);
            assert!(holder.join().is_err());
            assert_eq!(*lock(&mutex), 7);
            assert_eq!(*lock_contended(&mutex), 7);
        }
    }

    #[test]
    fn a_thread_waits_until_a_mutex_that_is_held_for_long_is_free() {
        let mutex = Arc::new(Mutex::new(7));
        let guard = lock(&mutex);
        let (takes, taken) = mpsc::channel();
        let of_waiter = Arc::clone(&mutex);
        let waiter = thread::spawn(move || takes.send(*lock(&of_waiter)).unwrap());
        let early = taken.recv_timeout(Duration::from_millis(20));
        assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout));
        drop(guard);
        assert_eq!(taken.recv(), Ok(7));
        waiter.join().unwrap();
    }
}
