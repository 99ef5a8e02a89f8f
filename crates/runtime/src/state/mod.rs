//! The runtime's own synchronization. Nothing here knows the port, so that the models in
//! `crates/models` check this code itself.
//!
//! The lock of timers or of a socket's direction is never held while a waker is dropped or called,
//! because both may drop a task, and its futures take such locks.

pub(crate) mod abort;
pub(crate) mod ending;
pub(crate) mod pending;
pub(crate) mod places;
pub(crate) mod threads;
pub(crate) mod timer;
pub(crate) mod unpark;
pub(crate) mod waiters;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::task::Waker;

use crate::sync::{Mutex, MutexGuard};

/// Makes room in a list of free places for all `places`, none of which is free, so that giving one up
/// allocates no memory. Before `malloc` of glibc looks for a large piece, it merges all small ones
/// that were freed: after 65,536 tasks, the list grew for 11 to 15 ms while it was locked.
fn reserve_free(free: &mut Vec<usize>, places: usize) {
    if free.capacity() < places {
        free.reserve_exact(places);
    }
}

/// Locks a mutex. A panic elsewhere leaves what it guards in order.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the program's code where its panic must stop nothing else. Returns whether it returned.
pub(crate) fn contain(f: impl FnOnce()) -> bool {
    let Err(panic) = catch_unwind(AssertUnwindSafe(f)) else { return true };
    // Dropping what it panicked with may panic too, and so on.
    if let Err(again) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(again);
    }
    false
}

/// Wakes all of these tasks, even if a waker panics.
fn wake_each(wakers: impl IntoIterator<Item = Waker>) {
    for waker in wakers {
        contain(|| waker.wake());
    }
}

/// Stores a waker, and returns the one before it if that wakes another task. The caller drops it
/// without a lock, because that may drop the other task and its futures.
pub(crate) fn replace_waker(place: &mut Option<Waker>, waker: &Waker) -> Option<Waker> {
    if place.as_ref().is_some_and(|old| old.will_wake(waker)) {
        return None;
    }
    place.replace(waker.clone())
}
