//! Random tasks that use everything a runtime has, and rules that hold whatever they do.
//!
//! It takes about a second, or as many seconds as `CHAOS_SECONDS` says. A failure shows the seed and
//! the round: `TESTKIT_SEED` and `CHAOS_ROUND` start there again, although threads interleave differently.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::VecDeque;
use std::future::{Future, pending, poll_fn};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use completion_port_runtime::fs::File;
use completion_port_runtime::net::{TcpListener, TcpStream};
use completion_port_runtime::{
    AbortHandle, Handle, JoinError, JoinHandle, Runtime, Shutdown, sleep, spawn_blocking, timeout,
    yield_now,
};
use testkit::Dice;

const LIMIT: Duration = Duration::from_secs(120);
/// How many tasks begin a round.
const ROOTS: usize = 40;
/// How many tasks a round has at most.
const MOST: usize = 300;
const MAILBOXES: usize = 8;

/// How often something happened.
#[derive(Default)]
struct Count(AtomicUsize);

impl Count {
    fn add(&self) -> usize {
        self.0.fetch_add(1, SeqCst)
    }

    fn get(&self) -> usize {
        self.0.load(SeqCst)
    }
}

/// Values for whichever task takes them first.
#[derive(Default)]
struct Mailbox(Mutex<(VecDeque<usize>, Vec<Waker>)>);

impl Mailbox {
    fn send(&self, value: usize) {
        let wakers = {
            let mut inner = self.0.lock().unwrap();
            inner.0.push_back(value);
            std::mem::take(&mut inner.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    fn poll_receive(&self, context: &Context<'_>, received: &Count) -> Poll<usize> {
        let mut inner = self.0.lock().unwrap();
        if let Some(value) = inner.0.pop_front() {
            received.add();
            return Poll::Ready(value);
        }
        inner.1.push(context.waker().clone());
        Poll::Pending
    }
}

/// What the tasks of a round share.
struct World {
    dice: Dice,
    folder: PathBuf,
    /// Whether tasks may wait forever.
    may_wait_forever: bool,
    spawned: Count,
    completed: Count,
    panicked: Count,
    aborted: Count,
    /// Values that tasks and closures have, and that were dropped.
    made: Count,
    dropped: Count,
    sent: Count,
    received: Count,
    /// The runtime has ended: nothing may run.
    is_over: AtomicBool,
    mailboxes: [Mailbox; MAILBOXES],
    /// Of tasks that may have ended.
    aborts: Mutex<Vec<AbortHandle>>,
    wakers: Mutex<Vec<Waker>>,
    faults: Mutex<Vec<String>>,
}

impl World {
    fn new(dice: Dice, folder: PathBuf, may_wait_forever: bool) -> Self {
        Self {
            dice,
            folder,
            may_wait_forever,
            spawned: Count::default(),
            completed: Count::default(),
            panicked: Count::default(),
            aborted: Count::default(),
            made: Count::default(),
            dropped: Count::default(),
            sent: Count::default(),
            received: Count::default(),
            is_over: AtomicBool::new(false),
            mailboxes: Default::default(),
            aborts: Mutex::default(),
            wakers: Mutex::default(),
            faults: Mutex::default(),
        }
    }

    /// Records a violation. A panic would only end the task.
    fn demand(&self, holds: bool, rule: &str) {
        if !holds {
            self.faults.lock().unwrap().push(rule.to_owned());
        }
    }

    fn one_of<T: Clone>(list: &Mutex<Vec<T>>, dice: &mut Dice) -> Option<T> {
        let list = list.lock().unwrap();
        (!list.is_empty()).then(|| list[below(dice, list.len())].clone())
    }
}

fn below(dice: &mut Dice, most: usize) -> usize {
    usize::try_from(dice.roll(most as u64)).unwrap()
}

fn micros(dice: &mut Dice, most: u64) -> Duration {
    Duration::from_micros(dice.roll(most))
}

/// Counts how often such a value is made and dropped.
struct Counted(Arc<World>);

impl Counted {
    fn new(world: &Arc<World>) -> Self {
        world.made.add();
        Self(Arc::clone(world))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.dropped.add();
    }
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Completed,
    Panicked,
    Aborted,
}

type Record = Arc<Mutex<Option<End>>>;

/// The future of a task, which checks how the runtime treats it.
struct Watched {
    future: Pin<Box<dyn Future<Output = usize> + Send>>,
    world: Arc<World>,
    is_polled: AtomicBool,
    record: Record,
}

impl Watched {
    fn end(&self, end: End) {
        let before = self.record.lock().unwrap().replace(end);
        self.world.demand(before.is_none(), "a task ends once");
        match end {
            End::Completed => self.world.completed.add(),
            End::Panicked => self.world.panicked.add(),
            End::Aborted => self.world.aborted.add(),
        };
    }
}

impl Future for Watched {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<usize> {
        /// Ends the poll, also if it panics.
        struct Polling<'w>(&'w AtomicBool);
        impl Drop for Polling<'_> {
            fn drop(&mut self) {
                self.0.store(false, SeqCst);
            }
        }

        let this = &mut *self;
        let was_polled = this.is_polled.swap(true, SeqCst);
        this.world.demand(!was_polled, "one thread polls a task");
        this.world.demand(!this.world.is_over.load(SeqCst), "nothing runs after the end");
        this.world.demand(this.record.lock().unwrap().is_none(), "no poll follows the end");
        let polling = Polling(&this.is_polled);
        let future = this.future.as_mut();
        let polled =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| future.poll(context)));
        drop(polling);
        match polled {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(number)) => {
                this.end(End::Completed);
                Poll::Ready(number)
            }
            Err(panic) => {
                this.world.demand(panic.is::<usize>(), "a task panics only on purpose");
                this.end(End::Panicked);
                std::panic::resume_unwind(panic)
            }
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.world.demand(!self.is_polled.load(SeqCst), "a task is not dropped during a poll");
        if self.record.lock().unwrap().is_none() {
            self.end(End::Aborted);
        }
    }
}

/// A task's handle, its number, and how it really ended.
struct Spawned {
    handle: JoinHandle<usize>,
    number: usize,
    record: Record,
}

impl Spawned {
    /// The handle reports what happened to the task.
    fn check(&self, world: &World, result: Result<usize, JoinError>) {
        let end = *self.record.lock().unwrap();
        let reported = match result {
            Ok(number) => {
                world.demand(number == self.number, "a handle has the output of its task");
                End::Completed
            }
            Err(error) if error.is_aborted() => End::Aborted,
            Err(error) => {
                let number = error.try_into_panic().unwrap().downcast::<usize>();
                let is_own = number.is_ok_and(|number| *number == self.number);
                world.demand(is_own, "a handle has the panic of its task");
                End::Panicked
            }
        };
        world.demand(end == Some(reported), "a handle reports how its task ended");
    }

    async fn join(&mut self, world: &World) {
        let result = (&mut self.handle).await;
        self.check(world, result);
    }
}

fn spawn_watched(on: &Handle, world: &Arc<World>) -> Spawned {
    let number = world.spawned.add();
    let (dice, record) = (world.dice.another(number), Record::default());
    let watched = Watched {
        future: Box::pin(live(Counted::new(world), number, dice)),
        world: Arc::clone(world),
        is_polled: AtomicBool::new(false),
        record: Arc::clone(&record),
    };
    let handle = on.spawn(watched);
    world.aborts.lock().unwrap().push(handle.abort_handle());
    Spawned { handle, number, record }
}

/// What a task does: a few random things.
async fn live(counted: Counted, number: usize, mut dice: Dice) -> usize {
    let world = &counted.0;
    for _ in 0..1 + dice.roll(6) {
        match dice.roll(14) {
            0 => yield_now().await,
            1 => sleep(micros(&mut dice, 2_000)).await,
            2 => block(micros(&mut dice, 2_000)),
            3 => compute(micros(&mut dice, 200)),
            4 => talk(number, &mut dice).await,
            5 => use_file(world, number, &mut dice).await,
            6 | 7 => have_child(world, &mut dice).await,
            8 => {
                world.sent.add();
                world.mailboxes[below(&mut dice, MAILBOXES)].send(number);
            }
            9 => receive(world, &mut dice).await,
            10 => disturb(world, &mut dice).await,
            11 => work_elsewhere(world, &mut dice).await,
            12 if dice.roll(4) == 0 => std::panic::resume_unwind(Box::new(number)),
            13 if world.may_wait_forever && dice.roll(4) == 0 => pending().await,
            _ => {
                let waiting = timeout(micros(&mut dice, 500), pending::<()>()).await;
                world.demand(waiting.is_err(), "a timeout ends");
            }
        }
    }
    number
}

#[allow(clippy::disallowed_methods, reason = "a task that blocks is what the runtime is for")]
fn block(time: Duration) {
    thread::sleep(time);
}

fn compute(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Talks to itself over a connection.
async fn talk(number: usize, dice: &mut Dice) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    // It ends with a reset. Otherwise the kernel keeps its port for a minute, and ten minutes of
    // this use up all ports.
    near.socket().set_linger(Some(Duration::ZERO)).unwrap();
    let (far, _) = listener.accept().await.unwrap();
    let (mut reader, mut writer) = far.into_split();
    for _ in 0..dice.roll(4) {
        let sent = number.to_le_bytes().repeat(1 + below(dice, 50));
        let mut got = vec![0; sent.len()];
        if dice.roll(2) == 0 {
            let early = timeout(micros(dice, 300), reader.read(&mut got)).await;
            assert!(early.is_err(), "nothing was sent");
        }
        near.write_all(&sent).await.unwrap();
        reader.read_exact(&mut got).await.unwrap();
        writer.write_all(&got).await.unwrap();
        near.read_exact(&mut got).await.unwrap();
        assert_eq!(got, sent);
    }
}

async fn use_file(world: &World, number: usize, dice: &mut Dice) {
    let file = File::create(world.folder.join(format!("{number}-{}", dice.roll(1 << 32)))).unwrap();
    let bytes = number.to_le_bytes().repeat(1 + below(dice, 1_000));
    let (written, bytes) = file.write_at(bytes, 0).await;
    assert_eq!(written.unwrap(), bytes.len());
    if dice.roll(4) == 0 {
        // It may be cancelled.
        let _ = timeout(micros(dice, 300), file.sync_data()).await;
    }
    let (read, got) = file.read_at(Vec::with_capacity(bytes.len()), 0).await;
    assert_eq!((read.unwrap(), got), (bytes.len(), bytes));
}

async fn have_child(world: &Arc<World>, dice: &mut Dice) {
    if world.spawned.get() >= MOST {
        return;
    }
    let mut child = spawn_watched(&Handle::current(), world);
    match dice.roll(4) {
        // It is detached.
        0 => {}
        1 => {
            child.handle.abort();
            child.join(world).await;
        }
        2 => drop(timeout(micros(dice, 1_000), child.join(world)).await),
        _ => {
            // The parent's end must not depend on a child that waits forever.
            if timeout(Duration::from_millis(20), child.join(world)).await.is_err() {
                child.handle.abort();
                child.join(world).await;
            }
        }
    }
}

async fn receive(world: &World, dice: &mut Dice) {
    let mailbox = &world.mailboxes[below(dice, MAILBOXES)];
    let receive = poll_fn(|context| {
        let mut wakers = world.wakers.lock().unwrap();
        if wakers.len() < 100 {
            wakers.push(context.waker().clone());
        }
        drop(wakers);
        mailbox.poll_receive(context, &world.received)
    });
    if let Ok(sender) = timeout(micros(dice, 2_000), receive).await {
        world.demand(sender < world.spawned.get(), "a value is what was sent");
    }
}

/// Aborts or wakes any task.
async fn disturb(world: &World, dice: &mut Dice) {
    if dice.roll(3) == 0
        && let Some(abort) = World::one_of(&world.aborts, dice)
    {
        abort.abort();
    }
    for _ in 0..dice.roll(20) {
        if let Some(waker) = World::one_of(&world.wakers, dice) {
            waker.wake();
        }
    }
    yield_now().await;
}

async fn work_elsewhere(world: &Arc<World>, dice: &mut Dice) {
    let (counted, time) = (Counted::new(world), micros(dice, 1_000));
    let work = spawn_blocking(move || {
        counted.0.demand(!counted.0.is_over.load(SeqCst), "no closure runs after the end");
        block(time);
    });
    if dice.roll(2) == 0 {
        // A shutdown refuses it.
        let _ = work.await;
    }
}

/// Wakes, aborts and spawns from outside of the runtime until it has ended.
fn disturb_from_outside(handle: &Handle, world: &Arc<World>, ends: &AtomicBool) -> Vec<Spawned> {
    let mut dice = world.dice.another(usize::MAX / 2);
    let mut spawned = Vec::new();
    while !ends.load(SeqCst) {
        if let Some(waker) = World::one_of(&world.wakers, &mut dice) {
            waker.wake();
        }
        match dice.roll(50) {
            0 => drop(World::one_of(&world.aborts, &mut dice).map(|abort| abort.abort())),
            1 if spawned.len() < 100 => spawned.push(spawn_watched(handle, world)),
            _ => thread::yield_now(),
        }
    }
    spawned
}

/// Joins some of the tasks while the runtime runs. Returns the others.
fn join_some(
    runtime: &Runtime,
    world: &World,
    roots: Vec<Spawned>,
    dice: &mut Dice,
) -> Vec<Spawned> {
    let mut others = Vec::new();
    for mut root in roots {
        match dice.roll(4) {
            0 => others.push(root),
            1 => drop(root),
            how => runtime.block_on(async {
                if how == 2 {
                    root.handle.abort();
                } else if timeout(Duration::from_millis(20), root.join(world)).await.is_ok() {
                    return;
                }
                root.handle.abort();
                timeout(LIMIT, root.join(world)).await.expect("a handle resolves");
            }),
        }
    }
    others
}

fn round(dice: &mut Dice, folder: PathBuf) -> usize {
    let how = if dice.roll(2) == 0 { Shutdown::Drain } else { Shutdown::Abort };
    let runtime = Runtime::builder().concurrency(16).build().unwrap();
    let handle = runtime.handle().clone();
    let world = Arc::new(World::new(dice.clone(), folder, how == Shutdown::Abort));
    let ends = AtomicBool::new(false);
    let remaining = thread::scope(|scope| {
        let outside = scope.spawn(|| disturb_from_outside(&handle, &world, &ends));
        let roots = (0..ROOTS).map(|_| spawn_watched(&handle, &world)).collect();
        let mut remaining = join_some(&runtime, &world, roots, dice);
        let has_ended = runtime.shutdown(how, Some(LIMIT));
        // What the other thread spawns from now on is dropped without a poll.
        world.is_over.store(true, SeqCst);
        ends.store(true, SeqCst);
        remaining.extend(outside.join().unwrap());
        assert!(has_ended, "{how:?}: tasks remain: {}", handle.dump());
        remaining
    });
    // A late wake runs nothing, and each handle is ready.
    std::mem::take(&mut *world.wakers.lock().unwrap()).into_iter().for_each(Waker::wake);
    for mut task in remaining {
        let result = Pin::new(&mut task.handle).poll(&mut Context::from_waker(Waker::noop()));
        match result {
            Poll::Ready(result) => task.check(&world, result),
            Poll::Pending => world.demand(false, "each handle resolves"),
        }
    }
    drop(handle);
    check(world)
}

/// The rules for the whole round, after its end. Returns how many tasks completed: in one round an
/// early shutdown may abort them all.
fn check(world: Arc<World>) -> usize {
    assert_eq!(*world.faults.lock().unwrap(), Vec::<String>::new());
    let ended = world.completed.get() + world.panicked.get() + world.aborted.get();
    assert_eq!(ended, world.spawned.get(), "each task ends");
    assert_eq!(world.dropped.get(), world.made.get(), "each value is dropped");
    let unread = world.mailboxes.iter().map(|mailbox| mailbox.0.lock().unwrap().0.len());
    assert_eq!(world.received.get() + unread.sum::<usize>(), world.sent.get());
    // Wakers and handles keep no future.
    assert_eq!(Arc::strong_count(&world), 1, "a future is left");
    world.completed.get()
}

/// Waits until the process has as many threads as before, and the same descriptors.
#[cfg(target_os = "linux")]
fn as_before<T>(act: impl FnOnce() -> T) -> T {
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    let (before, descriptors) = (threads(), testkit::descriptors::open());
    let result = act();
    testkit::descriptors::await_same(&descriptors);
    let begun = Instant::now();
    while threads() > before {
        assert!(begun.elapsed() < LIMIT, "{} threads, not {before}", threads());
        thread::yield_now();
    }
    result
}

#[cfg(not(target_os = "linux"))]
fn as_before<T>(act: impl FnOnce() -> T) -> T {
    act()
}

#[test]
fn random_tasks_break_no_rule() {
    let number = |name| env::var(name).ok().map(|value: String| value.parse::<u64>().unwrap());
    let time = Duration::from_secs(number("CHAOS_SECONDS").unwrap_or(1));
    let first = usize::try_from(number("CHAOS_ROUND").unwrap_or(0)).unwrap();
    let (dice, begun, mut at, mut completed) = (Dice::new(), Instant::now(), first, 0);
    let folder = env::temp_dir().join(format!("runtime-chaos-{}", std::process::id()));
    while at == first || begun.elapsed() < time {
        /// Names the round of a failure.
        struct Round(usize);
        impl Drop for Round {
            fn drop(&mut self) {
                if thread::panicking() {
                    println!("CHAOS_ROUND={}", self.0);
                }
            }
        }

        let _round = Round(at);
        fs::create_dir_all(&folder).unwrap();
        completed += as_before(|| round(&mut dice.another(at), folder.clone()));
        // Some systems refuse it while an operation in the background has a file.
        let ended = Instant::now();
        while let Err(error) = fs::remove_dir_all(&folder) {
            assert!(ended.elapsed() < LIMIT, "{error}");
            thread::yield_now();
        }
        at += 1;
    }
    println!("{} rounds, {completed} tasks completed", at - first);
    assert!(completed > 0, "no task completed");
}
