//! Where a thread sleeps until it is woken.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The standard library's `park` would not do: each thread has one token for it, which belongs to the user's code. An
/// `unpark` of that code would be lost here.
#[derive(Default)]
pub(in crate::sys) struct Parking {
    /// Whether the next `park` returns at once.
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
            // Waking for no reason is allowed: the caller looks again.
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
