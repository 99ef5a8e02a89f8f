//! Code shared by the models: the bound, threads, wakers, and stand-ins for a port's timers and for
//! a task of `async-task`.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use loom::sync::Mutex;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use crate::state::timer::Timer;
use crate::state::unpark::Unpark;

pub(crate) fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    if builder.preemption_bound.is_none() {
        builder.preemption_bound = Some(3);
    }
    builder.check(model);
}

/// Starts a thread that runs `act` on the shared value.
pub(crate) fn spawn<S: 'static, T: 'static>(
    shared: &Arc<S>,
    act: impl FnOnce(&S) -> T + 'static,
) -> thread::JoinHandle<T> {
    let shared = Arc::clone(shared);
    thread::spawn(move || act(&shared))
}

/// Returns what `block_on` has: a way to wait, and the waker that ends the wait. A lost wake-up
/// leaves the thread parked, which loom reports.
pub(crate) fn unpark() -> (Arc<Unpark>, Waker) {
    let unpark = Arc::new(Unpark::new());
    let waker = Waker::from(Arc::clone(&unpark));
    (unpark, waker)
}

/// Counts wakes.
pub(crate) struct Wakes(AtomicUsize);

impl Wakes {
    pub(crate) fn new() -> (Arc<Self>, Waker) {
        let wakes = Arc::new(Self(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&wakes));
        (wakes, waker)
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(SeqCst)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A timer, and stand-in for the port: the timers that are set, and its clock.
pub(crate) struct Clock {
    pub(crate) timer: Timer<u32>,
    start: Instant,
    alarms: Mutex<Vec<(Instant, u32)>>,
    now: AtomicUsize,
}

impl Clock {
    /// Makes a timer for the time `deadline`.
    pub(crate) fn new(deadline: u64) -> Arc<Self> {
        let start = Instant::now();
        Arc::new(Self {
            timer: Timer::new(start + Duration::from_secs(deadline)),
            start,
            alarms: Mutex::new(Vec::new()),
            now: AtomicUsize::new(0),
        })
    }

    pub(crate) fn set(&self, at: Instant, generation: u32) -> Option<u32> {
        self.alarms.lock().unwrap().push((at, generation));
        Some(generation)
    }

    /// Takes a timer back. It may be on its way already.
    pub(crate) fn cancel(&self, name: u32) {
        self.alarms.lock().unwrap().retain(|(_, generation)| *generation != name);
    }

    pub(crate) fn alarms(&self) -> usize {
        self.alarms.lock().unwrap().len()
    }

    pub(crate) fn wait(&self, waker: &Waker) -> bool {
        self.timer.wait(waker, |at, generation| self.set(at, generation))
    }

    pub(crate) fn reset(&self, deadline: u64) {
        self.timer.reset(
            self.start + Duration::from_secs(deadline),
            |name| self.cancel(name),
            |at, generation| self.set(at, generation),
        );
    }

    pub(crate) fn abandon(&self) {
        let (set, waker) = self.timer.abandon();
        set.into_iter().for_each(|name| self.cancel(name));
        drop(waker);
    }

    /// Delivers the earliest timer at its time. Returns false if there is none.
    pub(crate) fn fire(&self) -> bool {
        let due = {
            let mut alarms = self.alarms.lock().unwrap();
            let earliest = (0..alarms.len()).min_by_key(|place| alarms[*place].0);
            earliest.map(|place| alarms.swap_remove(place))
        };
        let Some((at, generation)) = due else { return false };
        self.timer.expire(generation, at, |at, next| self.set(at, next));
        true
    }
}

const SCHEDULED: usize = 1;
const RUNNING: usize = 2;
const ENDED: usize = 4;

/// A stand-in for a task of `async-task`: its state, with the same orderings, and a queue in which
/// it is at most once.
pub(crate) struct Task {
    state: AtomicUsize,
    queued: AtomicUsize,
}

impl Task {
    /// Makes a task that was spawned, and is not in the queue yet.
    pub(crate) fn scheduled() -> Arc<Self> {
        Arc::new(Self { state: AtomicUsize::new(SCHEDULED), queued: AtomicUsize::new(0) })
    }

    /// Queues a task that was spawned.
    pub(crate) fn queue(&self) {
        self.queued.fetch_add(1, AcqRel);
    }

    /// Makes a task that was polled, and is not scheduled.
    pub(crate) fn idle() -> Arc<Self> {
        Arc::new(Self { state: AtomicUsize::new(0), queued: AtomicUsize::new(0) })
    }

    /// Runs the task if it is queued. `poll` returns whether the task ends.
    pub(crate) fn run(&self, poll: impl FnOnce() -> bool) {
        if self.queued.swap(0, AcqRel) == 0 {
            return;
        }
        let before = self.state.swap(RUNNING, AcqRel);
        assert_eq!(before, SCHEDULED, "it is polled by one thread, and not after its end");
        if poll() {
            self.state.swap(ENDED, AcqRel);
            return;
        }
        if self.state.fetch_and(!RUNNING, AcqRel) & SCHEDULED != 0 {
            self.queued.fetch_add(1, AcqRel);
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.state.load(SeqCst) == ENDED
    }
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let schedules = |state| match state {
            ENDED => None,
            // Nothing changes, but what the waker did before is visible to the next poll.
            scheduled if scheduled & SCHEDULED != 0 => Some(scheduled),
            other => Some(other | SCHEDULED),
        };
        if self.state.fetch_update(AcqRel, Acquire, schedules) == Ok(0) {
            self.queued.fetch_add(1, AcqRel);
        }
    }
}
