//! The place where a thread sleeps until it is woken.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Parks one thread.
///
/// It does not use the standard library's `park`: each thread has one token for it, which belongs
/// to the program. A program's `unpark` would be lost here.
#[derive(Default)]
pub(in crate::sys) struct Parking {
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The next `park` returns immediately, or the current one is about to return.
    is_unparked: bool,
    is_asleep: bool,
}

impl Parking {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::sys) fn park(&self, timeout: Option<Duration>) {
        let mut state = self.state();
        if !state.is_unparked {
            state.is_asleep = true;
            // A spurious wake-up is allowed: the caller checks again.
            state = match timeout {
                None => self.given.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    let woken = self.given.wait_timeout(state, timeout);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *state = State::default();
    }

    pub(in crate::sys) fn unpark(&self) {
        let mut state = self.state();
        state.is_unparked = true;
        let is_asleep = state.is_asleep;
        drop(state);
        // A notification is a system call, even if no thread waits for it.
        if is_asleep {
            self.given.notify_one();
        }
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
        assert!(!parking.state().is_unparked);
    }
}
