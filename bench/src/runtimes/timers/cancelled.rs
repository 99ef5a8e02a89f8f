//! Timers that are armed, moved and cancelled, on a runtime.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::api::Timed;
use super::{nanoseconds, spread, warm_up};
use crate::processor_time::Clock;

/// When the first timer would fire. By then, the process that measures is killed.
pub(super) const LATER: Duration = Duration::from_secs(120);
/// The others follow within that time.
pub(super) const SPREAD: Duration = Duration::from_secs(30);
/// By how much each timer is moved.
const MOVED_BY: Duration = Duration::from_secs(10);

/// What one kind of operation has cost in all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::runtimes) struct Spent {
    pub(super) operations: usize,
    /// Nanoseconds from the first operation until the end of the last one.
    pub(super) elapsed: u64,
    /// Processor time of the process meanwhile, in nanoseconds.
    pub(super) processor: u64,
}

impl Spent {
    /// Millions of operations in a second.
    pub(super) fn rate(self) -> f64 {
        super::count(self.operations) / super::to_float(self.elapsed.max(1)) * 1e3
    }

    /// The processor time of each operation, in nanoseconds.
    pub(super) fn each(self) -> f64 {
        super::to_float(self.processor) / super::count(self.operations)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::runtimes) struct Cancelled {
    pub(super) schedule: Spent,
    /// `None` without such an operation.
    pub(super) moved: Option<Spent>,
    pub(super) cancel: Spent,
}

/// The beginning of operations that are measured.
pub(super) struct Begin(Instant, Duration);

impl Begin {
    pub(super) fn now() -> Begin {
        let used = Clock::Process.now();
        Begin(Instant::now(), used)
    }

    /// What that many operations have cost since then.
    pub(super) fn spent(self, operations: usize) -> Spent {
        let elapsed = nanoseconds(self.0.elapsed());
        Spent { operations, elapsed, processor: nanoseconds(Clock::Process.now() - self.1) }
    }
}

/// Counts the timers that have called their waker.
#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Arms, moves and cancels that many timers in a task, since the main thread is not one of the
/// runtime's.
pub(super) fn on_runtime<R: Timed>(runtime: &R, count: usize) -> io::Result<Cancelled> {
    runtime.block_on(async {
        R::spawn(R::unlimited(in_task::<R>(warm_up(count)))).await?;
        R::spawn(R::unlimited(in_task::<R>(count))).await
    })
}

async fn in_task<R: Timed>(count: usize) -> io::Result<Cancelled> {
    let counter = Arc::new(Counter::default());
    let cost = arm_move_cancel::<R>(count, &counter)?;
    // smol removes the last of them from its list only when its reactor runs. If a timer were not
    // cancelled, this would not end, and the process would be killed.
    while Arc::strong_count(&counter) > 1 {
        R::sleep(Duration::from_millis(1)).await;
    }
    match counter.0.load(Ordering::Relaxed) {
        0 => Ok(cost),
        woken => Err(io::Error::other(format!("{woken} timers fired that were cancelled"))),
    }
}

fn arm_move_cancel<R: Timed>(count: usize, counter: &Arc<Counter>) -> io::Result<Cancelled> {
    let waker = Waker::from(Arc::clone(counter));
    let mut context = Context::from_waker(&waker);
    let base = Instant::now() + LATER;
    let mut timers = Vec::with_capacity(count);
    let mut armed = 0;
    let begin = Begin::now();
    for number in 0..count {
        let mut timer = Box::pin(R::timer(base + spread(number, SPREAD)));
        armed += usize::from(timer.as_mut().poll(&mut context).is_pending());
        timers.push(timer);
    }
    let schedule = begin.spent(count);
    let begin = Begin::now();
    for (number, timer) in timers.iter_mut().enumerate() {
        R::move_to(timer.as_mut(), base + MOVED_BY + spread(number, SPREAD));
    }
    let moved = begin.spent(count);
    // Each of them has given its waker to the runtime.
    if armed < count || Arc::strong_count(counter) < count {
        return Err(io::Error::other(format!("{armed} of {count} timers were armed")));
    }
    let begin = Begin::now();
    drop(timers);
    let cancel = begin.spent(count);
    Ok(Cancelled { schedule, moved: Some(moved), cancel })
}
