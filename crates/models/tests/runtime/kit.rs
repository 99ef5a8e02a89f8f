//! Code shared by the models: the bound, threads, wakers, and stand-ins for a port's timers and for
//! a task of `async-task`.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, SeqCst};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use loom::sync::Mutex;
use loom::sync::atomic::AtomicUsize;
use loom::thread;

use crate::state::timer::Timers;
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

/// The timers of a runtime, and a stand-in for the port: what is set there, and its clock. There is
/// one timer, or one after the other, in the first place.
pub(crate) struct Clock {
    timers: Timers<u32>,
    start: Instant,
    alarms: Mutex<Vec<(Instant, u32)>>,
}

/// The place of the timer.
const PLACE: usize = 0;

impl Clock {
    pub(crate) fn new() -> Arc<Self> {
        let (timers, alarms) = (Timers::default(), Mutex::new(Vec::new()));
        Arc::new(Self { timers, start: Instant::now(), alarms })
    }

    fn set(&self, at: Instant, generation: u32) -> Option<u32> {
        self.alarms.lock().unwrap().push((at, generation));
        Some(generation)
    }

    /// Takes a timer back. It may be on its way already.
    fn cancel(&self, name: u32) {
        self.alarms.lock().unwrap().retain(|(_, generation)| *generation != name);
    }

    pub(crate) fn alarms(&self) -> usize {
        self.alarms.lock().unwrap().len()
    }

    fn at(&self, deadline: u64) -> Instant {
        self.start + Duration::from_secs(deadline)
    }

    /// Starts the timer.
    pub(crate) fn wait_until(&self, deadline: u64, waker: &Waker) {
        let set = |at, place, generation| {
            assert_eq!(place, PLACE);
            self.set(at, generation)
        };
        let place = self.timers.start(self.at(deadline), self.start, waker.clone(), set);
        assert_eq!(place, Some(PLACE));
    }

    pub(crate) fn reset(&self, deadline: u64) {
        let set = |at, generation| self.set(at, generation);
        self.timers.reset(PLACE, self.at(deadline), |name| self.cancel(name), set);
    }

    pub(crate) fn abandon(&self) {
        let (set, waker) = self.timers.abandon(PLACE);
        set.into_iter().for_each(|name| self.cancel(name));
        drop(waker);
    }

    /// Delivers the earliest timer at its time. Returns that, or `None` if there is none.
    pub(crate) fn fire(&self) -> Option<u64> {
        let due = {
            let mut alarms = self.alarms.lock().unwrap();
            let earliest = (0..alarms.len()).min_by_key(|place| alarms[*place].0);
            earliest.map(|place| alarms.swap_remove(place))
        };
        let (at, generation) = due?;
        self.timers.expire(PLACE, generation, at, |at, next| self.set(at, next));
        Some((at - self.start).as_secs())
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
