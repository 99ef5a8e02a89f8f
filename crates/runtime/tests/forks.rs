//! What a forked child has of its parent's runtime.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use completion_port_runtime::Runtime;
#[cfg(feature = "tokio-compat")]
use completion_port_runtime::Shutdown;
use completion_port_runtime::time::sleep;

/// The parent's threads run the task, and the child has none of them. So the child must not wait
/// for it, and what the child does to the handle must not reach the parent.
#[test]
fn a_handle_in_a_forked_child_reports_an_abort() {
    let runtime = Runtime::builder().concurrency(1).build().unwrap();
    let (say, heard) = mpsc::channel::<u32>();
    let mut ended = runtime.spawn(async { 1 });
    while !ended.is_finished() {
        std::thread::yield_now();
    }
    let mut blocked = runtime.spawn(async move { heard.recv().unwrap() });
    let mut waiting = runtime.spawn(pending::<()>());
    assert!(poll_once(&mut waiting).is_none());
    let status = testkit::in_forked_child(|| {
        // An output that was there before the fork is there in both.
        let has_output = matches!(poll_once(&mut ended), Some(Ok(1)));
        blocked.abort();
        let blocked = matches!(poll_once(&mut blocked), Some(Err(error)) if error.is_aborted());
        let waiting = matches!(poll_once(&mut waiting), Some(Err(error)) if error.is_aborted());
        u8::from(!(has_output && blocked && waiting))
    });
    assert_eq!(status, 0);
    say.send(7).unwrap();
    assert_eq!(runtime.block_on(ended).unwrap(), 1);
    assert_eq!(runtime.block_on(blocked).unwrap(), 7);
    waiting.abort();
    assert!(runtime.block_on(waiting).unwrap_err().is_aborted());
}

/// A thread of the parent may hold a lock of its timers. The child neither waits for that lock nor
/// for a timer that never comes.
#[test]
fn a_timer_in_a_forked_child_panics_and_may_be_moved_and_dropped() {
    let runtime = Runtime::builder().concurrency(1).build().unwrap();
    let _entered = runtime.handle().enter();
    let hour = Duration::from_secs(3600);
    let mut started = sleep(hour);
    assert!(poll_once(&mut started).is_none());
    let status = testkit::in_forked_child(|| {
        let polled = catch_unwind(AssertUnwindSafe(|| poll_once(&mut started)));
        started.reset(Instant::now() + 2 * hour);
        let again = catch_unwind(AssertUnwindSafe(|| poll_once(&mut started)));
        drop(started);
        u8::from(polled.is_ok() || again.is_ok())
    });
    assert_eq!(status, 0);
}

/// The thread in tokio's driver is the parent's, and continues there.
#[cfg(feature = "tokio-compat")]
#[test]
fn a_forked_child_does_not_poll_tokio() {
    let builder = Runtime::builder().concurrency(1).tokio_compat().tokio_workers(0);
    let mut runtime = Some(builder.build().unwrap());
    let tokio = runtime.as_ref().unwrap().handle().tokio().unwrap().clone();
    let status = testkit::in_forked_child(|| {
        let of_tokio = tokio.spawn(async {});
        let has_ended = runtime.take().unwrap().shutdown(Shutdown::Abort, None);
        u8::from(of_tokio.is_finished() || has_ended)
    });
    assert_eq!(status, 0);
    let runtime = runtime.unwrap();
    let slept = runtime.spawn(async { tokio::time::sleep(Duration::from_millis(1)).await });
    runtime.block_on(slept).unwrap();
    assert_eq!(runtime.block_on(tokio.spawn(async { 1 })).unwrap(), 1);
}

/// Polls a future that must be ready. Waiting for it would never end in a child.
fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}
