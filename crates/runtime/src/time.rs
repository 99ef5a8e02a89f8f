//! Time: sleeping, deadlines and intervals.
//!
//! All are timers of the runtime's port, and need a runtime that has not ended.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use completion_port::TimerId;
use pin_project_lite::pin_project;

use crate::activity::{self, Wait};
use crate::context;
use crate::fork;
use crate::readiness::no_runtime;
use crate::shared::{Message, Shared};
use crate::state;
use crate::sync;

/// The timers that have been polled, in parts so that threads rarely meet at a lock.
#[derive(Default)]
pub(crate) struct Timers([state::timer::Timers<TimerId>; 16]);

impl Timers {
    /// Wakes the tasks that wait for a timer. Their next poll panics.
    pub(crate) fn close(&self) {
        self.0.iter().for_each(state::timer::Timers::close);
    }
}

/// Where a timer is: a part, and a place there. Small, because it is part of a message.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    part: u8,
    number: u32,
}

impl Place {
    /// `None` if there are too many places.
    fn new(part: usize, number: usize) -> Option<Self> {
        Some(Self { part: u8::try_from(part).ok()?, number: u32::try_from(number).ok()? })
    }

    fn timers(self, shared: &Shared) -> &state::timer::Timers<TimerId> {
        &shared.timers.0[usize::from(self.part)]
    }

    fn number(self) -> usize {
        self.number as usize
    }
}

/// Handles the message of an expired timer.
pub(crate) fn expire(shared: &Shared, place: Place, generation: u32) {
    let set = |at, next| set(shared, at, place, next);
    place.timers(shared).expire(place.number(), generation, sync::now(), set);
}

/// Sets a timer of the port. `None` if the port is closed or out of memory.
fn set(shared: &Shared, at: Instant, place: Place, generation: u32) -> Option<TimerId> {
    shared.port.post_at(sync::deadline(at), Message::Timer(place, generation)).ok()
}

/// Whether this process is a forked child. There a lock may be held forever, by a thread of the
/// parent.
fn is_forked(shared: &Shared) -> bool {
    shared.forks != fork::count()
}

/// A timer that was polled.
struct Started {
    place: Place,
    shared: Arc<Shared>,
}

impl Started {
    /// Returns a timer of the current runtime. `None` if that has ended, in a forked child, or
    /// without memory.
    fn new(deadline: Instant, now: Instant, waker: &Waker) -> Option<Self> {
        let handle = context::current().unwrap_or_else(|| panic!("{}", no_runtime()));
        let shared = handle.into_shared();
        if is_forked(&shared) {
            return None;
        }
        // Most wakers are the task's own. So its timers are in one part, where a new one can follow
        // an old one in its place.
        let part = sync::part_of(waker.data(), shared.timers.0.len());
        let set = |at, number, generation| set(&shared, at, Place::new(part, number)?, generation);
        let number = shared.timers.0[part].start(deadline, now, waker.clone(), set)?;
        Some(Self { place: Place::new(part, number)?, shared })
    }

    fn timers(&self) -> &state::timer::Timers<TimerId> {
        self.place.timers(&self.shared)
    }

    fn set(&self) -> impl FnOnce(Instant, u32) -> Option<TimerId> {
        |at, generation| set(&self.shared, at, self.place, generation)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if is_forked(&self.shared) {
            return;
        }
        let (set, waker) = self.timers().abandon(self.place.number());
        if let Some(set) = set {
            drop(self.shared.port.cancel_post(set));
        }
        drop(waker);
    }
}

/// Waits until a time. [`sleep`] and [`sleep_until`] make it.
///
/// Dropping it gives the timer up; the runtime may keep it for the next one. Moving the deadline to a later time ([`Sleep::reset`]) sets no
/// timer.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, time::sleep};
/// use std::time::{Duration, Instant};
///
/// Runtime::new()?.block_on(async {
///     // A request must arrive within an hour. Once it has begun, it must end soon.
///     let mut deadline = sleep(Duration::from_secs(3600));
///     deadline.reset(Instant::now() + Duration::from_millis(1));
///     (&mut deadline).await;
///     assert!(deadline.is_elapsed());
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    deadline: Instant,
    started: Option<Started>,
}

impl Sleep {
    /// Returns when it completes.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::time::sleep_until;
    /// use std::time::{Duration, Instant};
    ///
    /// let at = Instant::now() + Duration::from_secs(60);
    /// let timer = sleep_until(at);
    /// assert_eq!(timer.deadline(), at);
    /// assert!(!timer.is_elapsed());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns whether its time has come.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        sync::now() >= self.deadline
    }

    /// Moves the deadline, even after it has passed.
    ///
    /// A task that waits for it is woken at the new time.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, time::sleep};
    /// use std::time::{Duration, Instant};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let mut idle = sleep(Duration::from_millis(1));
    ///     (&mut idle).await;
    ///     let later = Instant::now() + Duration::from_millis(5);
    ///     idle.reset(later); // it can be awaited again
    ///     (&mut idle).await;
    ///     assert!(Instant::now() >= later);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn reset(&mut self, deadline: Instant) {
        self.deadline = deadline;
        if let Some(started) = &self.started
            && !is_forked(&started.shared)
        {
            // If the port's timer has expired already, its message has no effect.
            let cancel = |set| drop(started.shared.port.cancel_post(set));
            started.timers().reset(started.place.number(), deadline, cancel, started.set());
        }
    }
}

impl Future for Sleep {
    type Output = ();

    /// # Panics
    ///
    /// Outside a runtime, after the runtime has ended, in a forked child, and if no memory is left
    /// for a timer. A task that waits when its runtime ends is woken, and then panics here.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let now = sync::now();
        if now >= self.deadline {
            return Poll::Ready(());
        }
        let is_waiting = match &self.started {
            Some(started) if is_forked(&started.shared) => false,
            Some(started) => {
                started.timers().wait(started.place.number(), context.waker(), started.set())
            }
            None => {
                self.started = Started::new(self.deadline, now, context.waker());
                true
            }
        };
        let Some(started) = self.started.as_ref().filter(|_| is_waiting) else {
            panic!(
                "the runtime has ended, or no memory is left for a timer, or this is a forked child"
            );
        };
        let at = self.deadline.saturating_duration_since(started.shared.built_at).as_nanos();
        activity::note(Wait::Timer(u64::try_from(at).unwrap_or(u64::MAX)));
        Poll::Pending
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// Waits for a duration.
///
/// It never completes early, and at most a millisecond late while a thread of the runtime waits. If
/// the runtime ends first, polling it panics.
/// Cancelling it (dropping the future) gives the timer up.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, time::sleep};
/// use std::time::{Duration, Instant};
///
/// let begun = Instant::now();
/// Runtime::new()?.block_on(sleep(Duration::from_millis(10)));
/// assert!(begun.elapsed() >= Duration::from_millis(10));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(far(sync::now(), duration))
}

/// Waits until a time. See [`sleep`].
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, time::sleep_until};
/// use std::time::{Duration, Instant};
///
/// Runtime::new()?.block_on(async {
///     let begun = Instant::now();
///     let at = begun + Duration::from_millis(5);
///     sleep_until(at).await;
///     assert!(Instant::now() >= at);
///     sleep_until(begun).await; // its time has passed: it returns immediately
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, started: None }
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
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, time::timeout};
/// use std::time::Duration;
///
/// async fn answer() -> std::io::Result<u8> {
///     // An `Elapsed` becomes an `io::Error`.
///     timeout(Duration::from_millis(1), std::future::pending()).await?
/// }
///
/// let error = Runtime::new()?.block_on(answer()).unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
/// # Ok::<(), std::io::Error>(())
/// ```
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
/// use completion_port_runtime::{Runtime, time::timeout};
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
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, time::timeout_at, yield_now};
/// use std::time::{Duration, Instant};
///
/// Runtime::new()?.block_on(async {
///     // One deadline for two steps.
///     let deadline = Instant::now() + Duration::from_secs(60);
///     assert!(timeout_at(deadline, yield_now()).await.is_ok());
///     assert_eq!(timeout_at(deadline, async { 2 }).await, Ok(2));
///     // A future that is ready completes even if the time has passed.
///     assert_eq!(timeout_at(Instant::now(), async { 3 }).await, Ok(3));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn timeout_at<F: Future>(deadline: Instant, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep_until(deadline) }
}

/// Ticks at regular times. [`interval`] makes it.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, time::{interval, timeout}};
/// use std::time::Duration;
///
/// Runtime::new()?.block_on(async {
///     let mut hourly = interval(Duration::from_secs(3600));
///     hourly.tick().await; // immediately
///     assert!(timeout(Duration::from_millis(1), hourly.tick()).await.is_err());
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "an interval does nothing unless its ticks are awaited"]
pub struct Interval {
    period: Duration,
    next: Sleep,
}

impl Interval {
    /// Waits for the next tick and returns its time. If ticks were missed, the next one comes
    /// immediately, and later ones at the original times; a tick is not repeated.
    ///
    /// Cancelling it loses no tick.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, time::interval};
    /// use std::time::Duration;
    ///
    /// Runtime::new()?.block_on(async {
    ///     let period = Duration::from_millis(4);
    ///     let mut ticks = interval(period);
    ///     let first = ticks.tick().await;
    ///     std::thread::sleep(period * 5 / 2); // two ticks are missed
    ///     assert_eq!(ticks.tick().await - first, period); // once, immediately
    ///     let next = ticks.tick().await - first;
    ///     assert_eq!(next.as_nanos() % period.as_nanos(), 0); // the rhythm stays
    ///     assert!(next >= period * 3);
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn tick(&mut self) -> Instant {
        Pin::new(&mut self.next).await;
        let tick = self.next.deadline();
        let late = sync::now().saturating_duration_since(tick);
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
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, time::interval};
/// use std::time::Duration;
///
/// Runtime::new()?.block_on(async {
///     let mut ticks = interval(Duration::from_millis(5));
///     let first = ticks.tick().await;
///     assert_eq!(ticks.tick().await - first, Duration::from_millis(5));
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn interval(period: Duration) -> Interval {
    assert!(!period.is_zero(), "an interval of zero would never wait");
    Interval { period, next: sleep_until(sync::now()) }
}
