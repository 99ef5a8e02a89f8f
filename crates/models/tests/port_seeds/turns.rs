//! Threads of which one runs at a time. At every point where threads interact, the seed determines
//! which one runs next, so a seed replays a run.
//!
//! The threads are real, so their thread-local values and destructors are real too. A thread runs
//! while it has the turn. It passes the turn on at a *point*, or where it blocks. Threads outside a
//! run have no points.

use std::cell::Cell;
use std::fmt::Write as _;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

/// A deterministic random number generator.
#[derive(Clone, Debug)]
pub(crate) struct Lot(u64);

impl Lot {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut lot = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ stream.rotate_left(32));
        lot.next();
        lot
    }

    /// Returns the next number (SplitMix64).
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// Returns true with probability 1/`times`.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// How the next thread is chosen.
#[derive(Clone, Copy, Debug)]
enum Draw {
    /// Any thread that can run, with probability 1/`once_in` at each point. Otherwise the current
    /// thread continues.
    Any { once_in: usize },
    /// The ready thread with the highest rank. With probability 1/`once_in` at each point, the
    /// current thread gets the lowest rank. A thread may thus be delayed for long at one place
    /// while all others run.
    Rank { once_in: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ready,
    /// Waits for the lock or condition at this address.
    Blocked(usize),
    /// Sleeps until this virtual time.
    Asleep(Duration),
    Joins(usize),
    /// Waits until no other thread but the clock can run.
    Quiet,
    /// Waits until no other thread can run. Only the clock does.
    Idle,
    Over,
}

struct WorkerEntry {
    name: String,
    status: Status,
    rank: u64,
    /// Where it blocks.
    place: Option<&'static Location<'static>>,
}

struct Run {
    entries: Vec<WorkerEntry>,
    current: usize,
    lot: Lot,
    draw: Draw,
    /// At each point, the clock may run with probability 1/`ticks_once_in` though other threads
    /// can.
    ticks_once_in: usize,
    lowest: u64,
    points: u64,
    most_points: u64,
    /// A hash of all turns so far.
    hash: u64,
}

const MOST_THREADS: usize = 16;
const NONE: usize = usize::MAX;
const ALL_BLOCK: &str = "all threads block, and no time is awaited";

static RUN: Mutex<Option<Run>> = Mutex::new(None);
static TURN: [(Mutex<bool>, Condvar); MOST_THREADS] =
    [const { (Mutex::new(false), Condvar::new()) }; MOST_THREADS];
/// Whether the system serializes the start and the exit of threads, including the destructors of
/// thread-local values. Windows does, under its loader lock. A thread that waited for its turn in
/// such a destructor would keep the thread that has the turn from starting or ending another one.
/// So a thread holds [`LOADER`], a lock of the run, while it exits or starts a thread.
const ENDS_ONE_AT_A_TIME: bool = cfg!(windows);
static LOADER: AtomicBool = AtomicBool::new(false);
/// The run has failed, and one thread reports it.
static FAILED: AtomicBool = AtomicBool::new(false);
/// Prints the rest of a failure report, after the threads.
static REPORT: Mutex<Option<Box<dyn Fn() + Send>>> = Mutex::new(None);

thread_local! {
    static ME: Cell<usize> = const { Cell::new(NONE) };
    /// The first thread-local value to be created, and so the last to be destroyed.
    static END: End = const { End };
}

struct End;

impl Drop for End {
    fn drop(&mut self) {
        let me = ME.replace(NONE);
        if me == NONE {
            // The process is exiting.
            return;
        }
        let mut guard = run();
        let run = guard.as_mut().unwrap();
        run.entries[me].status = Status::Over;
        run.wake_all(&Status::Joins(me));
        if ENDS_ONE_AT_A_TIME {
            LOADER.store(false, SeqCst);
            run.wake_all(&Status::Blocked(loader()));
        }
        let next = run.draw_next(None);
        run.current = next;
        drop(guard);
        if next == NONE {
            fail(ALL_BLOCK);
        }
        give_turn(next);
    }
}

fn run() -> MutexGuard<'static, Option<Run>> {
    RUN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address by which threads block for [`LOADER`].
fn loader() -> usize {
    std::ptr::from_ref(&LOADER) as usize
}

fn take_loader() {
    while ENDS_ONE_AT_A_TIME && LOADER.swap(true, SeqCst) {
        block(loader());
    }
}

fn give_loader() {
    if ENDS_ONE_AT_A_TIME {
        LOADER.store(false, SeqCst);
        wake(loader(), true);
    }
}

fn give_turn(to: usize) {
    *TURN[to].0.lock().unwrap() = true;
    TURN[to].1.notify_one();
}

fn await_turn(me: usize) {
    let mut turn = TURN[me].0.lock().unwrap();
    while !*turn {
        turn = TURN[me].1.wait(turn).unwrap();
    }
    *turn = false;
}

impl Run {
    fn wake_all(&mut self, from: &Status) {
        for entry in self.entries.iter_mut().filter(|entry| entry.status == *from) {
            entry.status = Status::Ready;
        }
    }

    fn ready(&self) -> Vec<usize> {
        let ready = |entry: &WorkerEntry| entry.status == Status::Ready;
        (0..self.entries.len()).filter(|number| ready(&self.entries[*number])).collect()
    }

    /// Chooses the thread that runs next: not `but`, unless no other thread can run.
    fn draw_next(&mut self, but: Option<usize>) -> usize {
        let mut ready = self.ready();
        if let Some(but) = but
            && ready.len() > 1
        {
            ready.retain(|number| *number != but);
        }
        if ready.is_empty() {
            let first = |status| self.entries.iter().position(|entry| entry.status == status);
            return first(Status::Quiet).or_else(|| first(Status::Idle)).unwrap_or(NONE);
        }
        match self.draw {
            Draw::Any { .. } => ready[self.lot.below(ready.len())],
            Draw::Rank { .. } => {
                ready.into_iter().max_by_key(|number| self.entries[*number].rank).unwrap()
            }
        }
    }

    fn sink(&mut self, number: usize) {
        self.lowest -= 1;
        self.entries[number].rank = self.lowest;
    }

    /// Chooses the thread that gets the turn at a point of `me`.
    fn at_point(&mut self, me: usize) -> usize {
        if self.lot.once_in(self.ticks_once_in) {
            let idle = |entry: &WorkerEntry| entry.status == Status::Idle;
            if let Some(clock) = self.entries.iter().position(idle) {
                return clock;
            }
        }
        match self.draw {
            Draw::Any { once_in } if self.lot.once_in(once_in) => self.draw_next(None),
            Draw::Any { .. } => me,
            Draw::Rank { once_in } => {
                if self.lot.once_in(once_in) {
                    self.sink(me);
                }
                self.draw_next(None)
            }
        }
    }
}

/// Passes the turn from `me` to `next`, and waits to get it back.
fn pass(mut guard: MutexGuard<'_, Option<Run>>, me: usize, next: usize) {
    let run = guard.as_mut().unwrap();
    run.hash = (run.hash.rotate_left(5) ^ next as u64).wrapping_mul(0x0100_0000_01B3);
    if next == me {
        run.entries[me].status = Status::Ready;
        return;
    }
    run.current = next;
    drop(guard);
    if next == NONE {
        fail(ALL_BLOCK);
    }
    give_turn(next);
    await_turn(me);
}

/// A place where another thread may run.
pub(crate) fn point() {
    let me = ME.get();
    if me == NONE || FAILED.load(SeqCst) {
        return;
    }
    let mut guard = run();
    let run = guard.as_mut().unwrap();
    run.points += 1;
    if run.points > run.most_points {
        drop(guard);
        fail("the run does not end: a thread spins, or packets come for ever");
    }
    let next = run.at_point(me);
    if next != me {
        pass(guard, me, next);
    }
}

/// Lets another thread run, if one can.
pub(crate) fn yield_now() {
    let me = ME.get();
    if me == NONE {
        return thread::yield_now();
    }
    point();
    let mut guard = run();
    let run = guard.as_mut().unwrap();
    run.sink(me);
    let next = run.draw_next(Some(me));
    pass(guard, me, next);
}

/// Simulates user code that takes a while: other threads may do a lot meanwhile.
pub(crate) fn linger() {
    if lot_below(3) == 0 {
        (0..=lot_below(24)).for_each(|_| yield_now());
    }
}

#[track_caller]
fn suspend(status: Status) {
    let me = ME.get();
    if FAILED.load(SeqCst) {
        // A report that would have to wait for another thread ends here.
        end_process();
    }
    let mut guard = run();
    let run = guard.as_mut().unwrap();
    run.entries[me].status = status;
    run.entries[me].place = Some(Location::caller());
    let next = run.draw_next(None);
    pass(guard, me, next);
}

/// Returns whether the calling thread belongs to a run.
pub(crate) fn is_inside() -> bool {
    ME.get() != NONE
}

/// Blocks until [`wake`] is called for `address`.
#[track_caller]
pub(crate) fn block(address: usize) {
    suspend(Status::Blocked(address));
}

/// Wakes the threads blocked at `address`: all of them, or a random one.
pub(crate) fn wake(address: usize, all: bool) {
    if !is_inside() {
        return;
    }
    let mut guard = run();
    let run = guard.as_mut().unwrap();
    let blocked = |entry: &WorkerEntry| entry.status == Status::Blocked(address);
    let mut blocked: Vec<usize> =
        (0..run.entries.len()).filter(|number| blocked(&run.entries[*number])).collect();
    if !all && blocked.len() > 1 {
        blocked = vec![blocked[run.lot.below(blocked.len())]];
    }
    for number in blocked {
        run.entries[number].status = Status::Ready;
    }
}

/// Sleeps until [`time_is`] is called with `until` or a later time.
pub(crate) fn sleep_until(until: Duration) {
    suspend(Status::Asleep(until));
}

/// Wakes the threads whose sleep has ended.
pub(crate) fn time_is(now: Duration) {
    for entry in &mut run().as_mut().unwrap().entries {
        if matches!(entry.status, Status::Asleep(until) if until <= now) {
            entry.status = Status::Ready;
        }
    }
}

/// Waits until no other thread can run, or until the clock may run anyway. Returns true if no other
/// thread can run.
pub(crate) fn idle() -> bool {
    suspend(Status::Idle);
    let mut guard = run();
    let run = guard.as_mut().unwrap();
    run.entries[ME.get()].status = Status::Ready;
    run.ready().len() == 1
}

/// Waits until only the calling thread and the clock can run.
pub(crate) fn quiet() {
    suspend(Status::Quiet);
    run().as_mut().unwrap().entries[ME.get()].status = Status::Ready;
}

/// Returns whether another thread can run.
pub(crate) fn another_can_run() -> bool {
    run().as_ref().unwrap().ready().len() > 1
}

/// Returns a random number of the run.
pub(crate) fn lot_below(bound: usize) -> usize {
    run().as_mut().unwrap().lot.below(bound)
}

/// Returns the number of points so far.
pub(crate) fn points() -> u64 {
    run().as_ref().map_or(0, |run| run.points)
}

/// A thread of a run.
#[must_use]
pub(crate) struct Joiner {
    number: usize,
    thread: thread::JoinHandle<()>,
}

impl Joiner {
    pub(crate) fn is_over(&self) -> bool {
        run().as_ref().unwrap().entries[self.number].status == Status::Over
    }

    pub(crate) fn join(self) {
        loop {
            point();
            let over = run().as_ref().unwrap().entries[self.number].status == Status::Over;
            if over {
                break;
            }
            suspend(Status::Joins(self.number));
        }
        self.thread.join().unwrap();
    }
}

pub(crate) fn spawn(name: String, act: impl FnOnce() + Send + 'static) -> Joiner {
    take_loader();
    let number = {
        let mut guard = run();
        let run = guard.as_mut().unwrap();
        let rank = u64::from(u32::MAX) + run.lot.next() % 1_000_000;
        run.entries.push(WorkerEntry {
            name: name.clone(),
            status: Status::Ready,
            rank,
            place: None,
        });
        run.entries.len() - 1
    };
    assert!(number < MOST_THREADS);
    let (begins, has_begun) = mpsc::channel();
    let begin = move || {
        ME.set(number);
        END.with(|_| {});
        let _ = begins.send(());
        await_turn(number);
        act();
        take_loader();
    };
    let thread = thread::Builder::new().name(name).spawn(begin).unwrap();
    if ENDS_ONE_AT_A_TIME {
        has_begun.recv().unwrap();
    }
    give_loader();
    point();
    Joiner { number, thread }
}

/// Runs `main` and the threads that it starts, with turns drawn from `seed`. Returns a hash that
/// identifies the sequence of turns.
pub(crate) fn simulate(seed: u64, most_points: u64, main: impl FnOnce()) -> u64 {
    let mut lot = Lot::new(seed, 1);
    let draw = if lot.once_in(2) {
        Draw::Any { once_in: lot.pick(&[2, 4, 12, 40]) }
    } else {
        Draw::Rank { once_in: lot.pick(&[20, 60, 200, 600]) }
    };
    let main_member = WorkerEntry {
        name: "main".into(),
        status: Status::Ready,
        rank: u64::from(u32::MAX),
        place: None,
    };
    *run() = Some(Run {
        entries: vec![main_member],
        current: 0,
        draw,
        ticks_once_in: lot.pick(&[30, 100, 400, 3_000]),
        lot,
        lowest: u64::from(u32::MAX),
        points: 0,
        most_points,
        hash: seed,
    });
    ME.set(0);
    main();
    ME.set(NONE);
    *REPORT.lock().unwrap() = None;
    run().take().unwrap().hash
}

/// Sets the function that prints the rest of a failure report, after the threads.
pub(crate) fn report_with(report: impl Fn() + Send + 'static) {
    *REPORT.lock().unwrap() = Some(Box::new(report));
}

/// Reports the failure of the run and ends the process, since threads can't be stopped halfway.
pub(crate) fn fail(why: &str) -> ! {
    if FAILED.swap(true, SeqCst) {
        end_process();
    }
    let mut text = format!("FAILED: {why}\n");
    if let Some(run) = run().as_ref() {
        for (number, entry) in run.entries.iter().enumerate() {
            let WorkerEntry { name, status, place, .. } = entry;
            let place = match (status, place) {
                (Status::Ready | Status::Over, _) | (_, None) => String::new(),
                (_, Some(place)) => format!(" at {place}"),
            };
            let current = if number == run.current { " (running)" } else { "" };
            let _ = writeln!(text, "  {name}: {status:?}{place}{current}");
        }
    }
    crate::search::say_where();
    println!("{text}");
    if let Some(report) = REPORT.lock().unwrap_or_else(PoisonError::into_inner).as_ref() {
        report();
    }
    end_process();
}

pub(crate) fn has_failed() -> bool {
    FAILED.load(SeqCst)
}

fn end_process() -> ! {
    use std::io::Write as _;
    // This thread's local values are dropped now, outside the run.
    ME.set(NONE);
    let _ = std::io::stdout().flush();
    std::process::exit(3);
}
