//! Timers that fire, on a runtime; and what is recorded of them, on any contender.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::api::Timed;
use super::{nanoseconds, spread, warm_up};
use crate::processor_time::Clock;

/// From the beginning of arming until the first deadline, for each timer and at least.
const LEAD: Duration = Duration::from_micros(5);
const LEAST_LEAD: Duration = Duration::from_millis(20);
/// From one deadline to the next, on average: long enough that no contender falls behind, even on one
/// processor.
const APART: Duration = Duration::from_micros(10);
/// A timer that has not fired yet.
const NOT_YET: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::runtimes) struct Fired {
    pub(super) timers: usize,
    /// Processor time of the process from arming the last one until all have fired, in nanoseconds.
    pub(super) processor: u64,
    /// How late they were, in nanoseconds.
    pub(super) p50: u64,
    pub(super) p99: u64,
}

/// From the first deadline to the last one.
pub(super) fn spread_of(count: usize) -> Duration {
    APART * u32::try_from(count).unwrap_or(u32::MAX)
}

/// The timers of a round, as their handlers see them.
pub(super) struct Firing {
    /// The first deadline.
    base: Instant,
    time: Duration,
    /// How late each timer was.
    late: Vec<AtomicU64>,
    armed: AtomicUsize,
    fired: AtomicUsize,
    /// Whether a timer has fired before its deadline or twice.
    is_wrong: AtomicBool,
    /// Receives a message when all are armed, and one when all have fired.
    steps: Sender<()>,
}

impl Firing {
    fn new(count: usize, lead: Duration) -> (Arc<Firing>, Receiver<()>) {
        let (steps, receiver) = mpsc::channel();
        let late = (0..count).map(|_| AtomicU64::new(NOT_YET)).collect();
        let firing = Firing {
            base: Instant::now() + lead,
            time: spread_of(count),
            late,
            armed: AtomicUsize::new(0),
            fired: AtomicUsize::new(0),
            is_wrong: AtomicBool::new(false),
            steps,
        };
        (Arc::new(firing), receiver)
    }

    pub(super) fn timers(&self) -> usize {
        self.late.len()
    }

    /// The deadline of a timer.
    pub(super) fn at(&self, number: usize) -> Instant {
        self.base + spread(number, self.time)
    }

    /// Another timer is armed.
    pub(super) fn arm(&self) {
        self.step(&self.armed);
    }

    /// A timer fires now.
    pub(super) fn fire(&self, number: usize) {
        let late = Instant::now().checked_duration_since(self.at(number));
        let before = self.late[number].swap(late.map_or(0, nanoseconds), Ordering::Relaxed);
        if late.is_none() || before != NOT_YET {
            self.is_wrong.store(true, Ordering::Relaxed);
        }
        self.step(&self.fired);
    }

    /// Counts, and sends a message after the last one.
    fn step(&self, count: &AtomicUsize) {
        // With release and acquire, the one that counts last has seen what the others have stored.
        if count.fetch_add(1, Ordering::AcqRel) + 1 == self.timers() {
            // The receiver stays until it has both messages.
            let _ = self.steps.send(());
        }
    }

    /// Waits until all have fired. `None` if some of them have fired before all were armed, so the
    /// time of arming includes some of firing. If a timer is lost, this does not end, and
    /// the process is killed.
    fn result(&self, steps: &Receiver<()>) -> io::Result<Option<Fired>> {
        steps.recv().map_err(io::Error::other)?;
        let used = Clock::Process.now();
        let early = self.fired.load(Ordering::Relaxed);
        steps.recv().map_err(io::Error::other)?;
        let processor = nanoseconds(Clock::Process.now() - used);
        if self.is_wrong.load(Ordering::Relaxed) {
            return Err(io::Error::other("a timer has fired before its deadline or twice"));
        }
        let mut late: Vec<u64> = self.late.iter().map(|it| it.load(Ordering::Relaxed)).collect();
        late.sort_unstable();
        let percent = |share: usize| late[(late.len() * share / 100).min(late.len() - 1)];
        let fired = Fired { timers: late.len(), processor, p50: percent(50), p99: percent(99) };
        Ok((early == 0).then_some(fired))
    }
}

/// Performs it with all timers after a warm-up with some of them. `arm` arms the timers, or lets
/// other threads do so. On a busy machine arming may take longer than until the first deadline; then
/// all is repeated with more time.
pub(super) fn repeat(
    count: usize,
    arm: impl Fn(&Arc<Firing>) -> io::Result<()>,
) -> io::Result<Fired> {
    let attempt = |count, lead| {
        let (firing, steps) = Firing::new(count, lead);
        arm(&firing)?;
        firing.result(&steps)
    };
    let mut lead = LEAST_LEAD.max(LEAD * u32::try_from(count).unwrap_or(u32::MAX));
    attempt(warm_up(count), lead)?;
    loop {
        if let Some(fired) = attempt(count, lead)? {
            return Ok(fired);
        }
        lead *= 2;
    }
}

/// Each timer has a separate task, which waits for it.
pub(super) fn on_runtime<R: Timed>(runtime: &R, count: usize) -> io::Result<Fired> {
    repeat(count, |firing| {
        let firing = Arc::clone(firing);
        runtime.begin(async move {
            for number in 0..firing.timers() {
                R::detach(R::spawn(wait_for::<R>(Arc::clone(&firing), number)));
            }
        });
        Ok(())
    })
}

async fn wait_for<R: Timed>(firing: Arc<Firing>, number: usize) {
    let mut timer = pin!(R::timer(firing.at(number)));
    let mut is_armed = false;
    poll_fn(|context| {
        let polled = timer.as_mut().poll(context).map(drop);
        if !is_armed {
            is_armed = true;
            firing.arm();
        }
        polled
    })
    .await;
    firing.fire(number);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn firing(count: usize) -> (Arc<Firing>, Receiver<()>) {
        Firing::new(count, Duration::ZERO)
    }

    #[test]
    fn a_timer_that_fires_early_or_twice_is_an_error() {
        let (early, steps) = Firing::new(1, Duration::from_secs(3600));
        early.arm();
        early.fire(0);
        assert!(early.result(&steps).is_err());
        let (twice, steps) = firing(2);
        (0..2).for_each(|_| twice.arm());
        while Instant::now() < twice.at(1) {}
        (0..2).for_each(|_| twice.fire(0));
        assert!(twice.result(&steps).is_err());
    }

    #[test]
    fn timers_that_fire_before_all_are_armed_give_no_result() {
        let (firing, steps) = firing(2);
        while Instant::now() < firing.at(0).max(firing.at(1)) {}
        firing.arm();
        firing.fire(0);
        firing.arm();
        firing.fire(1);
        assert_eq!(firing.result(&steps).unwrap(), None);
    }

    #[test]
    fn it_is_repeated_until_all_are_armed_in_time() {
        let attempts = AtomicUsize::new(0);
        let fired = repeat(1, |firing| {
            let firing = Arc::clone(firing);
            // The first attempt is the warm-up.
            let is_late = attempts.fetch_add(1, Ordering::Relaxed) < 2;
            if !is_late {
                firing.arm();
            }
            std::thread::spawn(move || {
                while Instant::now() < firing.at(0) {}
                firing.fire(0);
                if is_late {
                    firing.arm();
                }
            });
            Ok(())
        });
        assert_eq!(fired.unwrap().timers, 1);
        assert!(attempts.into_inner() >= 3);
    }
}
