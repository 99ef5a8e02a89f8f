//! Between the tasks that receive and the future that sends: how much of a pass has come.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::task::{Poll, Waker};

use super::pairs::{Driver, check};
use crate::work::MESSAGE;

/// How many messages have come; shared, since some runtimes want tasks that can move to another
/// thread.
#[derive(Default)]
pub(super) struct Tally {
    taken: AtomicUsize,
    wanted: AtomicUsize,
    /// The waker of the task that waits for the last message of the pass, and any error meanwhile.
    waiting: Mutex<(Option<Waker>, Option<io::Error>)>,
}

impl Tally {
    /// Records a task's receive. Returns false if the task must end.
    pub(super) fn note(&self, received: io::Result<usize>) -> bool {
        match received {
            Ok(MESSAGE) => {
                if self.taken.fetch_add(1, Relaxed) + 1 == self.wanted.load(Relaxed) {
                    self.wake(None);
                }
                true
            }
            // The sender is gone: the bench has ended.
            Ok(0) => false,
            Ok(read) => {
                self.wake(Some(io::Error::other(format!("{read} bytes were received together"))));
                false
            }
            Err(error) => {
                self.wake(Some(error));
                false
            }
        }
    }

    fn wake(&self, failure: Option<io::Error>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if failure.is_some() {
            waiting.1 = failure;
        }
        if let Some(waker) = waiting.0.take() {
            waker.wake();
        }
    }

    /// Makes all passes, while tasks receive.
    pub(super) async fn passes(&self, driver: &mut Driver<'_>) -> io::Result<()> {
        loop {
            self.taken.store(0, Relaxed);
            self.wanted.store(driver.connections(), Relaxed);
            let Some(messages) = driver.send()? else { return Ok(()) };
            poll_fn(|context| {
                let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(error) = waiting.1.take() {
                    return Poll::Ready(Err(error));
                }
                if self.taken.load(Relaxed) < messages {
                    waiting.0 = Some(context.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(check(self.taken.load(Relaxed), messages))
            })
            .await?;
        }
    }
}
