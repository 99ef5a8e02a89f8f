//! An operation in flight, and the task that waits for it.

use std::task::{Poll, Waker};

use crate::state::{lock, replace_waker};
use crate::sync::Mutex;

/// An operation in flight, and the task that waits for it.
pub(crate) struct Pending<O>(Mutex<State<O>>);

struct State<O> {
    outcome: Option<O>,
    waker: Option<Waker>,
    /// Nobody waits for the outcome any more.
    is_dropped: bool,
}

impl<O> Default for Pending<O> {
    fn default() -> Self {
        Self(Mutex::new(State { outcome: None, waker: None, is_dropped: false }))
    }
}

impl<O> Pending<O> {
    /// Stores the outcome, and wakes the task that waits for it. Drops it if none does.
    pub(crate) fn complete(&self, outcome: O) {
        let mut unwanted = Some(outcome);
        let waker = {
            let mut state = lock(&self.0);
            if !state.is_dropped {
                state.outcome = unwanted.take();
            }
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Takes the outcome, or waits for it.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<O> {
        let old = {
            let mut state = lock(&self.0);
            if let Some(outcome) = state.outcome.take() {
                return Poll::Ready(outcome);
            }
            replace_waker(&mut state.waker, waker)
        };
        drop(old);
        Poll::Pending
    }

    /// Gives the outcome up.
    pub(crate) fn abandon(&self) {
        let abandoned = {
            let mut state = lock(&self.0);
            state.is_dropped = true;
            (state.outcome.take(), state.waker.take())
        };
        drop(abandoned);
    }
}
