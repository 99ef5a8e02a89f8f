//! The place where a thread sleeps until it is woken.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Parks one thread.
///
/// It does not use the standard library's `park`: each thread has one token for it, which belongs
/// to the program. A program's `unpark` would be lost here.
#[derive(Default)]
pub(in crate::sys) struct Parking {
    /// Whether the next `park` returns immediately.
    unparked: Mutex<bool>,
    given: Condvar,
}

impl Parking {
    fn unparked(&self) -> MutexGuard<'_, bool> {
        self.unparked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::sys) fn park(&self, timeout: Option<Duration>) {
        let mut unparked = self.unparked();
        if !*unparked {
            // A spurious wake-up is allowed: the caller checks again.
            unparked = match timeout {
                None => self.given.wait(unparked).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    let woken = self.given.wait_timeout(unparked, timeout);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *unparked = false;
    }

    pub(in crate::sys) fn unpark(&self) {
        *self.unparked() = true;
        self.given.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unpark_ends_the_next_park() {
        let parking = Parking::default();
        parking.unpark();
        parking.park(None);
        assert!(!*parking.unparked());
    }
}
