//! Running a future on a thread that is not of the pool.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::state::unpark::Unpark;

/// Polls `future` until it completes, and parks the thread meanwhile.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let unpark = Arc::new(Unpark::new());
    let waker = Waker::from(Arc::clone(&unpark));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        unpark.wait();
    }
}
