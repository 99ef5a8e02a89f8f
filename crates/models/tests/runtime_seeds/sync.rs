//! Replaces `src/sync.rs`: locks, threads and the time of a run. Each use is a point where another
//! thread may run. Memory is sequentially consistent here; `crates/models` checks weaker orderings.

use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{self, Ordering};
use std::sync::{Arc, LockResult, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use completion_port::sim::Kernel;

use crate::turns::{self, Joiner, block, is_inside, point, wake};

#[path = "../port_seeds/sync.rs"]
mod primitives;

pub(crate) use primitives::{AtomicBool, AtomicU8, AtomicU32};

/// What a run has besides its threads. It has no points.
#[derive(Default)]
struct Run {
    kernel: Option<Kernel>,
    /// The threads that the runtime has started.
    threads: Vec<Arc<std::sync::Mutex<Option<Joiner>>>>,
    /// The times at which a place is woken.
    timed: Vec<(Duration, usize)>,
    /// How many threads cannot be started.
    refusals: usize,
    /// When the last one was refused.
    refused_at: Duration,
    places: usize,
}

static RUN: std::sync::Mutex<Option<Run>> = std::sync::Mutex::new(None);

fn with<T>(act: impl FnOnce(&mut Run) -> T) -> T {
    act(RUN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// Begins a run on this kernel.
pub(crate) fn begin(kernel: &Kernel) {
    with(|run| *run = Run { kernel: Some(kernel.clone()), ..Run::default() });
}

/// Ends a run.
pub(crate) fn end() {
    with(|run| *run = Run::default());
}

/// Refuses the next threads that the runtime wants to start.
pub(crate) fn refuse_threads(count: usize) {
    with(|run| run.refusals = count);
}

/// Returns whether the system refuses threads, and has refused one since this time.
pub(crate) fn refuses_since(time: Duration) -> bool {
    with(|run| run.refusals > 0 && run.refused_at >= time)
}

/// Returns how many threads the runtime has that have not ended.
pub(crate) fn threads() -> usize {
    let is_alive = |thread: &Arc<std::sync::Mutex<Option<Joiner>>>| {
        thread.lock().unwrap().as_ref().is_some_and(|joiner| !joiner.is_over())
    };
    with(|run| run.threads.clone()).iter().filter(|thread| is_alive(thread)).count()
}

/// Wakes those who wait for a time until `now`.
pub(crate) fn time_is(now: Duration) {
    turns::time_is(now);
    let due: Vec<usize> = with(|run| {
        let due = run.timed.iter().filter(|(until, _)| *until <= now).map(|(_, place)| *place);
        let due = due.collect();
        run.timed.retain(|(until, _)| *until > now);
        due
    });
    due.into_iter().for_each(|place| wake(place, true));
}

fn virtual_now() -> Duration {
    let kernel = with(|run| run.kernel.clone());
    kernel.expect("a run has a kernel").now()
}

/// Returns the time. That of a run is the time of its kernel.
pub(crate) fn now() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    let base = *BASE.get_or_init(Instant::now);
    if is_inside() { base + virtual_now() } else { Instant::now() }
}

/// Returns a time as the port's timers take it: the simulated kernel's clock is not the system's.
pub(crate) fn deadline(at: Instant) -> Duration {
    at.saturating_duration_since(now())
}

/// Addresses differ between two runs of a seed.
pub(crate) fn part_of<T>(_: *const T, _: usize) -> usize {
    0
}

/// A place where threads block. An address would not do: it may be used again while a time is
/// awaited, and that would differ between two runs of a seed.
#[derive(Debug, Default)]
struct Place(OnceLock<usize>);

impl Place {
    fn number(&self) -> usize {
        with(|run| self.number_in(run))
    }

    /// Blocks until the place is woken, or the time has passed.
    fn block_until(&self, until: Duration) {
        let number = with(|run| {
            let number = self.number_in(run);
            run.timed.push((until, number));
            number
        });
        block(number);
    }

    fn number_in(&self, run: &mut Run) -> usize {
        // Odd, so that it is nobody's address.
        *self.0.get_or_init(|| {
            run.places += 1;
            run.places * 2 - 1
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct AtomicUsize(atomic::AtomicUsize);

impl AtomicUsize {
    pub(crate) const fn new(value: usize) -> Self {
        Self(atomic::AtomicUsize::new(value))
    }

    pub(crate) fn load(&self, _: Ordering) -> usize {
        point();
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn fetch_add(&self, value: usize, _: Ordering) -> usize {
        point();
        self.0.fetch_add(value, Ordering::SeqCst)
    }

    pub(crate) fn fetch_sub(&self, value: usize, _: Ordering) -> usize {
        point();
        self.0.fetch_sub(value, Ordering::SeqCst)
    }

    pub(crate) fn fetch_update(
        &self,
        _: Ordering,
        _: Ordering,
        change: impl FnMut(usize) -> Option<usize>,
    ) -> Result<usize, usize> {
        point();
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, change)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(primitives::Mutex<T>);

#[derive(Debug)]
pub(crate) struct MutexGuard<'m, T> {
    mutex: &'m Mutex<T>,
    guard: primitives::MutexGuard<'m, T>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(primitives::Mutex::new(value))
    }

    #[track_caller]
    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(MutexGuard { mutex: self, guard })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

#[derive(Debug, Default)]
pub(crate) struct Condvar(Place);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Returns the guard, and whether the time has passed.
    #[track_caller]
    pub(crate) fn wait_timeout<'m, T>(
        &self,
        guard: MutexGuard<'m, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'m, T>, bool)> {
        let mutex = guard.mutex;
        let until = virtual_now().saturating_add(timeout);
        // There is no point between these two calls, so no notification is missed.
        drop(guard);
        self.0.block_until(until);
        let guard = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        Ok((guard, virtual_now() >= until))
    }

    pub(crate) fn notify_all(&self) {
        point();
        wake(self.0.number(), true);
    }
}

#[derive(Debug, Default)]
struct Token {
    is_set: atomic::AtomicBool,
    place: Place,
}

/// A thread, as something that can be unparked.
#[derive(Clone, Debug)]
pub(crate) struct Thread(Arc<Token>);

thread_local! {
    static CURRENT: RefCell<Thread> = RefCell::new(Thread(Arc::default()));
}

impl Thread {
    pub(crate) fn unpark(&self) {
        point();
        self.0.is_set.store(true, Ordering::SeqCst);
        wake(self.0.place.number(), true);
    }
}

pub(crate) fn current() -> Thread {
    CURRENT.with_borrow(Clone::clone)
}

pub(crate) fn park() {
    let Thread(token) = current();
    point();
    while !token.is_set.swap(false, Ordering::SeqCst) {
        block(token.place.number());
    }
}

pub(crate) fn park_timeout(timeout: Duration) {
    let Thread(token) = current();
    let until = virtual_now().saturating_add(timeout);
    if !token.is_set.load(Ordering::SeqCst) {
        token.place.block_until(until);
    }
    token.is_set.store(false, Ordering::SeqCst);
}

/// A thread that was started.
pub(crate) struct JoinHandle<T> {
    joiner: Arc<std::sync::Mutex<Option<Joiner>>>,
    thread: Thread,
    result: PhantomData<T>,
}

impl<T> JoinHandle<T> {
    pub(crate) fn thread(&self) -> &Thread {
        &self.thread
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.joiner.lock().unwrap().as_ref().is_none_or(Joiner::is_over)
    }

    pub(crate) fn join(self) -> Result<(), ()> {
        let joiner = self.joiner.lock().unwrap().take();
        joiner.map(Joiner::join).ok_or(())
    }
}

/// Starts a thread of the run, or refuses it as a system does that has no threads left.
pub(crate) fn start_thread(
    name: String,
    _stack_size: Option<usize>,
    work: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    point();
    // Before the lock, since the kernel's clock has a point.
    let now = with(|run| run.kernel.clone()).map_or(Duration::ZERO, |kernel| kernel.now());
    let is_refused = with(|run| {
        let left = run.refusals.checked_sub(1);
        run.refusals = left.unwrap_or(0);
        if left.is_some() {
            run.refused_at = now;
        }
        left.is_some()
    });
    if is_refused {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let thread = Thread(Arc::default());
    let own = thread.clone();
    let joiner = turns::spawn(name, move || {
        CURRENT.set(own);
        work();
    });
    let joiner = Arc::new(std::sync::Mutex::new(Some(joiner)));
    with(|run| run.threads.push(Arc::clone(&joiner)));
    Ok(JoinHandle { joiner, thread, result: PhantomData })
}
