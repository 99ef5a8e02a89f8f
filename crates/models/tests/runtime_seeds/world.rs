//! Runs a program: its runtime, sockets, threads and clock.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use completion_port::sim::{Kernel, Socket};
use completion_port::{BlockDetection, BorrowedSource, Source};

use crate::activity::AsRawSource;
use crate::program::{End, MAILBOXES, Program, WIRES};
use crate::readiness::Io;
use crate::records::{Asleep, Records};
use crate::runtime::{Handle, Runtime, Shutdown};
use crate::steps::Kept;
use crate::task::AbortHandle;
use crate::turns::{self, Joiner, fail, point};
use crate::{search, sync};

/// A task that may run, and has not for this long, never will. The manager tries every 10 ms to
/// start a thread.
const LATE: Duration = Duration::from_millis(60);
/// If no thread can run for this long, no thread waits for a time.
const FOR_EVER: Duration = Duration::from_secs(100);

/// A simulated socket, as the runtime watches one.
pub(crate) struct Near(pub(crate) Socket);

impl Source for Near {
    fn as_source(&self) -> BorrowedSource<'_> {
        self.0.as_source()
    }
}

impl AsRawSource for Near {
    #[cfg(unix)]
    fn raw(&self) -> std::os::fd::RawFd {
        self.0.number()
    }
    #[cfg(windows)]
    fn raw(&self) -> std::os::windows::io::RawSocket {
        u64::try_from(self.0.number()).unwrap()
    }
}

pub(crate) struct Wire {
    pub(crate) near: Mutex<Option<Arc<Io<Near>>>>,
    pub(crate) far: Socket,
}

/// The values for whichever task takes them, and the tasks that wait.
type Mailbox = Mutex<(usize, Vec<(usize, Waker)>)>;

pub(crate) struct World {
    pub(crate) kernel: Kernel,
    pub(crate) program: Program,
    pub(crate) records: Records,
    pub(crate) aborts: Mutex<Vec<(usize, AbortHandle)>>,
    pub(crate) wakers: Mutex<Vec<(usize, Waker)>>,
    pub(crate) mailboxes: [Mailbox; MAILBOXES],
    pub(crate) wires: Vec<Wire>,
    /// The closures that run.
    pub(crate) closures: AtomicUsize,
    /// The end of the runtime has begun.
    pub(crate) ends: AtomicBool,
    /// The runtime has ended: nothing may run.
    pub(crate) is_over: AtomicBool,
    /// Only the thread that ends the run is left.
    stops: AtomicBool,
    handle: Handle,
    runtime: Mutex<Option<Runtime>>,
}

impl World {
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn sleep(&self, time: Duration) {
        turns::sleep_until(self.kernel.now() + time);
    }

    /// Returns whether the end of the runtime may drop a task that nobody has aborted.
    pub(crate) fn may_drop(&self, task: usize) -> bool {
        let is_early = self.records.with(task, |record| record.is_early);
        self.ends.load(SeqCst) && !(is_early && self.program.end == End::Drain)
    }

    /// Returns whether a shutdown may have ended before the tasks.
    pub(crate) fn has_given_up(&self) -> bool {
        let waits = matches!(self.program.end, End::Drain | End::Abort | End::Drop);
        self.ends.load(SeqCst) && !waits
    }

    // ---- the clock ----

    fn tick(&self) {
        let mut step = Duration::from_micros(50);
        let mut in_vain = Duration::ZERO;
        let mut late = None;
        while !self.stops.load(SeqCst) {
            let is_idle = turns::idle();
            if self.stops.load(SeqCst) {
                break;
            }
            if !is_idle {
                let time = [1, 5, 40, 300][turns::lot_below(4)];
                self.pass(Duration::from_micros(time));
                (step, in_vain) = (Duration::from_micros(50), Duration::ZERO);
                continue;
            }
            late = self.look_for_what_is_due(late);
            self.pass(step);
            if turns::another_can_run() {
                (step, in_vain) = (Duration::from_micros(50), Duration::ZERO);
            } else {
                in_vain += step;
                step = (step * 2).min(Duration::from_secs(1));
                if in_vain > FOR_EVER {
                    fail("all threads block for ever");
                }
            }
        }
    }

    fn pass(&self, time: Duration) {
        self.kernel.advance(time);
        sync::time_is(self.kernel.now());
    }

    /// Finds a task that could run, and has not since the time that the previous call returned. No
    /// thread can run now.
    fn look_for_what_is_due(&self, since: Option<(u64, Duration)>) -> Option<(u64, Duration)> {
        let records = self.records.all();
        let now = self.kernel.now();
        let polled = records.iter().filter(|record| record.is_polled).count();
        let unannounced =
            records.iter().filter(|record| record.asleep == Some(Asleep::Unannounced)).count();
        let Program { limit, concurrency, detection, .. } = self.program;
        let has_seat = detection != BlockDetection::Announced || unannounced < concurrency;
        // A refused thread is to be started soon after.
        let is_refused = sync::refuses_since(now.saturating_sub(LATE));
        let has_thread = polled + self.closures.load(SeqCst) < limit && !is_refused;
        let is_due = |record: &crate::records::Record| {
            let reads = record.reads.is_some_and(|wire| self.is_readable(wire));
            let timer = record.timer.is_some_and(|due| due <= now);
            !record.is_polled && (record.is_woken || timer || reads)
        };
        let due: Vec<usize> = (0..records.len()).filter(|task| is_due(&records[*task])).collect();
        if due.is_empty() || !has_seat || !has_thread || self.ends.load(SeqCst) {
            return None;
        }
        let taken = self.handle.shared().port.stats().packets.total();
        let since = since.filter(|(packets, _)| *packets == taken).unwrap_or((taken, now));
        if now - since.1 > LATE {
            fail(&format!("at {now:?} tasks {due:?} could run since {:?}", since.1));
        }
        Some(since)
    }

    fn is_readable(&self, wire: usize) -> bool {
        let near = self.wires[wire].near.lock().unwrap().clone();
        near.is_some_and(|near| self.kernel.unread(&near.get().0).is_some_and(|bytes| bytes > 0))
    }

    // ---- the end ----

    /// Ends the runtime. Returns whether all tasks must have ended.
    fn end(self: &Arc<Self>) -> bool {
        let runtime = self.runtime.lock().unwrap().take().expect("it ends once");
        self.records.note(|| format!("the runtime ends: {:?}", self.program.end));
        self.ends.store(true, SeqCst);
        let limit = |time| Some(Duration::from_micros(time));
        match self.program.end {
            End::Drain => runtime.shutdown(Shutdown::Drain, None),
            End::Abort => runtime.shutdown(Shutdown::Abort, None),
            End::DrainFor(time) => runtime.shutdown(Shutdown::Drain, limit(time)),
            End::AbortFor(time) => runtime.shutdown(Shutdown::Abort, limit(time)),
            End::Drop => {
                drop(runtime);
                true
            }
            End::DropInTask => {
                let handle = runtime.handle().clone();
                drop(handle.spawn(async move { drop(runtime) }));
                false
            }
        }
    }

    /// Waits until the threads of the runtime have ended.
    fn await_threads(&self) {
        let begun = self.kernel.now();
        while sync::threads() > 0 {
            self.sleep(Duration::from_micros(500));
            if self.kernel.now() - begun > FOR_EVER {
                fail("the runtime has ended, and a thread of it does not");
            }
        }
    }
}

/// Runs a program, with turns drawn from `schedule`.
pub(crate) fn run(program: &Program, schedule: u64, writes_notes: bool) -> u64 {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        std::panic::set_hook(Box::new(|panic| {
            // A timer panics after the end of its runtime. Whether it may is checked where it does.
            let text = panic.to_string();
            if !text.contains("the runtime has ended, or no memory is left for a timer") {
                fail(&text);
            }
        }));
    });
    turns::simulate(schedule, 3_000_000, || run_inside(program, writes_notes))
}

fn build(program: &Program, kernel: &Kernel) -> Option<Runtime> {
    let builder = Runtime::builder()
        .concurrency(program.concurrency)
        .thread_limit(program.limit)
        .block_detection(program.detection)
        .overcommit_after(program.overcommit.map(Duration::from_micros))
        .port(completion_port::Port::builder().one_shot_kernel(program.one_shot_kernel));
    if program.refuses_first {
        sync::refuse_threads(program.refusals);
    }
    let built = builder.build_by(|port| port.build_simulated(kernel));
    if built.is_err() && !program.refuses_first {
        fail("a runtime is refused");
    }
    if !program.refuses_first {
        sync::refuse_threads(program.refusals);
    }
    built.ok()
}

fn run_inside(program: &Program, writes_notes: bool) {
    let kernel = Kernel::new();
    kernel.manual_clock();
    kernel.hide_switches(program.hides_switches);
    sync::begin(&kernel);
    // Without a clock: nothing waits for a time while the runtime is built.
    if let Some(runtime) = build(program, &kernel) {
        run_in(program, &kernel, runtime, writes_notes);
    } else {
        // The manager notices without a call.
        while sync::threads() > 0 {
            turns::yield_now();
        }
    }
    sync::end();
    if kernel.open_descriptors() != 0 || kernel.ports() != 0 {
        fail(&format!("left open: {kernel:?}"));
    }
}

fn world_of(program: &Program, kernel: &Kernel, runtime: Runtime, notes: bool) -> Arc<World> {
    let handle = runtime.handle().clone();
    let entered = handle.enter();
    let wires = (0..WIRES).map(|_| {
        let (near, far) = kernel.unix_pair().unwrap();
        Wire { near: Mutex::new(Some(Arc::new(Io::new(Near(near)).unwrap()))), far }
    });
    let wires = wires.collect();
    drop(entered);
    let world = Arc::new(World {
        kernel: kernel.clone(),
        program: program.clone(),
        records: Records::new(program.tasks.len(), notes),
        aborts: Mutex::default(),
        wakers: Mutex::default(),
        mailboxes: Default::default(),
        wires,
        closures: AtomicUsize::new(0),
        ends: AtomicBool::new(false),
        is_over: AtomicBool::new(false),
        stops: AtomicBool::new(false),
        handle,
        runtime: Mutex::new(Some(runtime)),
    });
    let told = Arc::downgrade(&world);
    turns::report_with(move || {
        let Some(world) = told.upgrade() else { return };
        println!("{}", world.records.report());
        println!("{:?}\n{:#?}", world.handle, world.handle.shared().port);
        std::mem::forget(world);
    });
    world
}

fn run_in(program: &Program, kernel: &Kernel, runtime: Runtime, writes_notes: bool) {
    let world = world_of(program, kernel, runtime, writes_notes);
    let clock = {
        let world = Arc::clone(&world);
        turns::spawn("clock".to_owned(), move || world.tick())
    };
    let kept: Arc<Mutex<Kept>> = Arc::default();
    let actor = |number: usize| {
        let (world, remaining) = (Arc::clone(&world), Arc::clone(&kept));
        turns::spawn(format!("actor {number}"), move || {
            let mut kept = Kept::new();
            for step in &world.program.actors[number] {
                world.act_outside(*step, &mut kept);
                point();
            }
            remaining.lock().unwrap().extend(kept);
        })
    };
    let actors: Vec<Joiner> = (0..program.actors.len()).map(actor).collect();
    let mut actors = Some(actors);
    if program.ends_early {
        world.sleep(Duration::from_micros(turns::lot_below(2_000) as u64));
    } else {
        actors.take().into_iter().flatten().for_each(Joiner::join);
    }
    let has_ended = world.end();
    if has_ended {
        world.is_over.store(true, SeqCst);
        if sync::threads() > 0 {
            fail("a shutdown returns before the threads have ended");
        }
    }
    actors.into_iter().flatten().for_each(Joiner::join);
    world.await_threads();
    finish(world, clock, std::mem::take(&mut *kept.lock().unwrap()));
}

/// Checks a run, all of whose tasks must have ended.
fn finish(world: Arc<World>, clock: Joiner, kept: Kept) {
    for (task, mut handle) in kept {
        match Pin::new(&mut handle).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => world.check(task, result),
            Poll::Pending => fail(&format!("the handle of task {task} does not resolve")),
        }
    }
    // A late wake runs nothing.
    world.is_over.store(true, SeqCst);
    for (_, waker) in std::mem::take(&mut *world.wakers.lock().unwrap()) {
        waker.wake();
    }
    world.mailboxes.iter().for_each(|mailbox| mailbox.lock().unwrap().1.clear());
    world.aborts.lock().unwrap().clear();
    world.records.check_all_ended();
    let stats = world.handle.shared().port.stats();
    search::count(turns::points(), stats.packets.total());
    world.stops.store(true, SeqCst);
    clock.join();
    turns::report_with(|| {});
    let Some(world) = Arc::into_inner(world) else { fail("a future or a waker is left") };
    let World { handle, wires, .. } = world;
    drop(wires);
    drop(handle);
}
