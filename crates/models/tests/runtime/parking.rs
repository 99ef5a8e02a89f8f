//! Replaces parking. loom's own `unpark` also wakes a thread that is blocked on a mutex or a join,
//! which ends the model.

use std::sync::Arc;

use loom::sync::{Condvar, Mutex};

/// A thread, with the token that `unpark` leaves.
#[derive(Clone)]
pub(crate) struct Thread(Arc<(Mutex<bool>, Condvar)>);

loom::thread_local! {
    static CURRENT: Thread = Thread(Arc::new((Mutex::new(false), Condvar::new())));
}

pub(crate) fn current() -> Thread {
    CURRENT.with(Clone::clone)
}

/// Waits for the token, and takes it.
pub(crate) fn park() {
    let thread = current();
    let mut token = thread.0.0.lock().unwrap();
    while !*token {
        token = thread.0.1.wait(token).unwrap();
    }
    *token = false;
}

impl Thread {
    pub(crate) fn unpark(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_one();
    }
}
