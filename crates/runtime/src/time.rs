//! Time: sleeping, deadlines and intervals.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use completion_port::TimerId;
use pin_project_lite::pin_project;

use crate::context;
use crate::readiness::{no_runtime, replace_waker};
use crate::shared::{Message, Shared};

/// A timer of the port, and the task that waits for it.
pub(crate) struct Timer(Mutex<TimerState>);

struct TimerState {
    /// When the future completes. The port's timer may be set for an earlier time.
    deadline: Instant,
    /// The port's timer, unless it has expired.
    set: Option<TimerId>,
    waker: Option<Waker>,
}

impl Timer {
    fn lock(&self) -> std::sync::MutexGuard<'_, TimerState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles the message of an expired timer.
    pub(crate) fn expire(self: Arc<Self>, shared: &Shared) {
        let waker = {
            let mut state = self.lock();
            state.set = None;
            if Instant::now() < state.deadline {
                // The deadline was moved to a later time.
                state.set = set(shared, state.deadline, &self);
            }
            if state.set.is_some() { None } else { state.waker.take() }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Sets a timer of the port. `None` if the port is closed or out of memory.
fn set(shared: &Shared, at: Instant, timer: &Arc<Timer>) -> Option<TimerId> {
    shared.port.post_at(at, Message::Timer(Arc::clone(timer))).ok()
}

/// Waits until a time. [`sleep`] and [`sleep_until`] make it.
///
/// Dropping it cancels the timer. Moving the deadline to a later time ([`Sleep::reset`]) sets no
/// timer.
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    deadline: Instant,
    timer: Option<(Arc<Timer>, Arc<Shared>)>,
}

impl Sleep {
    /// Returns when it completes.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether its time has come.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Moves the deadline, even after it has passed.
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        let Some((timer, shared)) = &self.timer else { return };
        let mut state = timer.lock();
        let is_earlier = deadline < state.deadline;
        state.deadline = deadline;
        if let Some(set) = state.set.take_if(|_| is_earlier) {
            // If it has expired already, its message finds nothing to do.
            drop(shared.port.cancel_post(set));
        }
    }
}

impl Future for Sleep {
    type Output = ();

    /// # Panics
    ///
    /// Outside a runtime, or after the runtime has ended.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let deadline = self.deadline;
        if Instant::now() >= deadline {
            return Poll::Ready(());
        }
        let (timer, shared) = self.timer.get_or_insert_with(|| {
            let handle = context::current().unwrap_or_else(|| panic!("{}", no_runtime()));
            let state = TimerState { deadline, set: None, waker: None };
            (Arc::new(Timer(Mutex::new(state))), Arc::clone(handle.shared()))
        });
        // The timer may expire before its name is stored: its handler waits for the lock.
        let mut state = timer.lock();
        let old = replace_waker(&mut state.waker, context.waker());
        if state.set.is_none() {
            state.set = set(shared, deadline, timer);
        }
        let is_set = state.set.is_some();
        drop(state);
        drop(old);
        assert!(is_set, "the runtime has ended, or no memory is left for a timer");
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some((timer, shared)) = self.timer.take() {
            let (set, waker) = {
                let mut state = timer.lock();
                (state.set.take(), state.waker.take())
            };
            if let Some(set) = set {
                drop(shared.port.cancel_post(set));
            }
            drop(waker);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Waits for a duration.
///
/// It never completes early, and at most a millisecond late while a thread of the runtime waits.
/// Cancelling it (dropping the future) cancels the timer.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, sleep};
/// use std::time::{Duration, Instant};
///
/// let begun = Instant::now();
/// Runtime::new()?.block_on(sleep(Duration::from_millis(10)));
/// assert!(begun.elapsed() >= Duration::from_millis(10));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(far(Instant::now(), duration))
}

/// Waits until a time. See [`sleep`].
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, timer: None }
}

/// Returns `from + duration`, or a time that nobody lives to see.
fn far(from: Instant, duration: Duration) -> Instant {
    from.checked_add(duration).unwrap_or(from + Duration::from_secs(86_400 * 365 * 30))
}

pin_project! {
    /// A future with a deadline. [`timeout`] makes it.
    #[derive(Debug)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        #[pin]
        sleep: Sleep,
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        this.sleep.poll(context).map(|()| Err(Elapsed(())))
    }
}

/// The deadline of a [`Timeout`] has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the deadline has passed")
    }
}

impl std::error::Error for Elapsed {}

impl From<Elapsed> for std::io::Error {
    fn from(_: Elapsed) -> Self {
        std::io::ErrorKind::TimedOut.into()
    }
}

/// Ends a future when the duration has passed.
///
/// The future is polled first, so a future that is ready completes even if the time has passed. It
/// is dropped with the `Timeout`.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, timeout};
/// use std::time::Duration;
///
/// let runtime = Runtime::new()?;
/// let never = std::future::pending::<()>();
/// assert!(runtime.block_on(timeout(Duration::from_millis(10), never)).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(duration) }
}

/// Ends a future at a time. See [`timeout`].
pub fn timeout_at<F: Future>(deadline: Instant, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep_until(deadline) }
}

/// Ticks at regular times. [`interval`] makes it.
#[derive(Debug)]
pub struct Interval {
    period: Duration,
    next: Sleep,
}

impl Interval {
    /// Waits for the next tick and returns its time. If ticks were missed, the next one comes
    /// immediately, and later ones at the original times; a tick is not repeated.
    ///
    /// Cancelling it loses no tick.
    pub async fn tick(&mut self) -> Instant {
        Pin::new(&mut self.next).await;
        let tick = self.next.deadline();
        let late = Instant::now().saturating_duration_since(tick);
        let missed = late.as_nanos() / self.period.as_nanos().max(1);
        let missed = u32::try_from(missed).unwrap_or(u32::MAX);
        self.next.reset(tick + self.period.saturating_mul(missed.saturating_add(1)));
        tick
    }
}

/// Returns an [`Interval`] whose first tick is immediate.
///
/// # Panics
///
/// If `period` is zero.
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval of zero would never wait");
    Interval { period, next: sleep_until(Instant::now()) }
}
