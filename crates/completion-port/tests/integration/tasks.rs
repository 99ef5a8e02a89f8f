//! Tasks: operations that the program performs itself and that end without a packet.

#![cfg(any(unix, windows))]

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
#[cfg(not(windows))]
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(not(windows))]
use completion_port::raw::EdgeNotes;
use completion_port::raw::{Attempt, Ending, Hints, Side, Task};
use completion_port::{
    Batch, Buffer, Interest, OpId, Operation, Packet, Persistent, Port, Started,
};
use testkit::{SOON, Stream, connected, in_a_process_of_its_own, number};

/// Reads a byte, and reports how it ended or that it was dropped instead.
struct ReadByte {
    socket: Arc<Stream>,
    byte: Option<u8>,
    sender: Sender<(Option<Ending>, Option<u8>)>,
    is_told: bool,
}

// SAFETY: `Buffer` has requirements for the memory of `filled` and `room`.
// - there is no memory.
unsafe impl Buffer for ReadByte {
    fn filled<'b>(&'b self, _: &mut dyn FnMut(&'b [u8])) {}
    unsafe fn room<'b>(&'b mut self, _: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {}
    unsafe fn set_filled(&mut self, _: usize) {}
}

impl Task for ReadByte {
    fn attempt(&mut self, descriptor: i32) -> Attempt {
        assert_eq!(descriptor, number(&self.socket));
        let mut byte = [0];
        match (&*self.socket).read(&mut byte) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Attempt::Blocked,
            outcome => {
                self.byte = outcome.ok().filter(|read| *read > 0).map(|_| byte[0]);
                assert_ne!(self.byte, Some(b'!'), "a fault of the task");
                Attempt::Done
            }
        }
    }

    fn end(mut self, ending: Ending) {
        self.is_told = true;
        self.sender.send((Some(ending), self.byte)).unwrap();
    }
}

impl Drop for ReadByte {
    fn drop(&mut self) {
        if !self.is_told {
            let _ = self.sender.send((None, self.byte));
        }
    }
}

type TaskPort = Port<u32, u32, ReadByte>;

/// A port with an association, and the reports of its tasks.
struct Bench {
    port: Arc<TaskPort>,
    id: completion_port::SharedId,
    near: Arc<Stream>,
    far: Stream,
    sender: Sender<(Option<Ending>, Option<u8>)>,
    told: Receiver<(Option<Ending>, Option<u8>)>,
}

impl Bench {
    fn new() -> Self {
        let port: TaskPort = Port::builder().buffers().build().unwrap();
        let (near, far) = connected();
        near.set_nonblocking(true).unwrap();
        let id = port.raw().associate_number(number(&near), 7).unwrap();
        let (sender, told) = channel();
        Self { port: Arc::new(port), id, near: Arc::new(near), far, sender, told }
    }

    fn start(&self) -> Started<(ReadByte, Ending)> {
        let (socket, sender) = (Arc::clone(&self.near), self.sender.clone());
        let task = ReadByte { socket, byte: None, sender, is_told: false };
        self.port.raw().start_task(self.id, Side::In, task).map_err(|it| it.error()).unwrap()
    }

    fn begin(&self) -> OpId {
        match self.start() {
            Started::InFlight(name) => name,
            Started::Completed(_) => panic!("nothing is there to be read"),
        }
    }

    fn told(&self) -> (Option<Ending>, Option<u8>) {
        self.told.recv_timeout(SOON).unwrap()
    }
}

#[test]
fn a_task_that_is_done_at_once_comes_back() {
    let bench = Bench::new();
    (&bench.far).write_all(b"a").unwrap();
    let Started::Completed((mut task, Ending::Done)) = bench.start() else { panic!() };
    assert_eq!(task.byte, Some(b'a'));
    task.is_told = true;
}

#[test]
fn tasks_of_one_side_are_done_in_order_by_a_call_that_takes_nothing() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.begin();
    }
    (&bench.far).write_all(b"abc").unwrap();
    for byte in *b"abc" {
        // Tasks make no packets.
        while !bench.port.raw().has_packets(&mut Batch::new()).unwrap() {
            match bench.told.try_recv() {
                Ok(told) => {
                    assert_eq!(told, (Some(Ending::Done), Some(byte)));
                    break;
                }
                Err(_) => thread::yield_now(),
            }
        }
    }
}

#[test]
fn a_thread_that_waits_goes_on_with_tasks_and_sees_no_packet() {
    let bench = Bench::new();
    bench.begin();
    let port = Arc::clone(&bench.port);
    let waiter = thread::spawn(move || port.wait(&mut Batch::new(), SOON).unwrap().count());
    (&bench.far).write_all(b"x").unwrap();
    assert_eq!(bench.told(), (Some(Ending::Done), Some(b'x')));
    bench.port.post(1).unwrap();
    assert_eq!(waiter.join().unwrap(), 1);
}

#[test]
fn a_task_is_cancelled_and_told_when_the_caller_goes_on() {
    let bench = Bench::new();
    let (first, second) = (bench.begin(), bench.begin());
    assert!(bench.port.cancel(first).unwrap());
    assert!(bench.told.try_recv().is_err());
    bench.port.raw().run_deferred();
    assert_eq!(bench.told(), (Some(Ending::Cancelled), None));
    assert!(!bench.port.cancel(first).unwrap());
    assert!(bench.port.cancel(second).unwrap());
    bench.port.raw().run_deferred();
    assert_eq!(bench.told(), (Some(Ending::Cancelled), None));
}

#[test]
fn other_operations_make_packets_beside_tasks() {
    let bench = Bench::new();
    let first = bench.begin();
    assert!(bench.port.cancel(first).unwrap());
    bench.port.raw().run_deferred();
    assert_eq!(bench.told(), (Some(Ending::Cancelled), None));
    let (socket, sender) = (Arc::clone(&bench.near), bench.sender.clone());
    let buffer = ReadByte { socket, byte: None, sender, is_told: true };
    bench.port.start(bench.id, Operation::recv(buffer)).map_err(|it| it.error()).unwrap();
    let port = Arc::clone(&bench.port);
    let waiter = thread::spawn(move || port.wait(&mut Batch::new(), SOON).unwrap().count());
    (&bench.far).write_all(b"x").unwrap();
    assert_eq!(waiter.join().unwrap(), 1);
}

#[test]
fn a_registration_that_is_forgotten_ends_its_tasks() {
    let bench = Bench::new();
    bench.begin();
    bench.port.raw().forget(bench.id.id()).unwrap();
    bench.port.raw().run_deferred();
    assert_eq!(bench.told(), (Some(Ending::Closed), None));
    assert_eq!(bench.port.wait(&mut Batch::new(), Duration::ZERO).unwrap().count(), 0);
    assert_eq!(bench.port.stats().registered, 0);
}

#[test]
fn a_port_that_is_closed_cancels_its_tasks() {
    let bench = Bench::new();
    bench.begin();
    bench.port.close();
    let _ = bench.port.wait(&mut Batch::new(), None);
    assert_eq!(bench.told(), (Some(Ending::Cancelled), None));
}

#[test]
fn a_port_that_is_dropped_drops_its_tasks() {
    let bench = Bench::new();
    bench.begin();
    let Bench { port, told, .. } = bench;
    drop(port);
    assert_eq!(told.recv_timeout(SOON).unwrap(), (None, None));
}

#[test]
fn a_task_that_panics_has_failed() {
    let bench = Bench::new();
    bench.begin();
    (&bench.far).write_all(b"!").unwrap();
    let port = Arc::clone(&bench.port);
    let waiter = thread::spawn(move || {
        let _ = port.wait(&mut Batch::new(), SOON).map(Iterator::count);
    });
    assert!(waiter.join().is_err());
    bench.port.raw().run_deferred();
    assert_eq!(bench.told(), (Some(Ending::Failed), Some(b'!')));
}

#[test]
fn what_is_tried_before_it_is_a_task_is_done_at_once_or_waits() {
    // With a subscriber to packet events, nothing is tried before it is a task.
    if !in_a_process_of_its_own("tasks::what_is_tried_before_it_is_a_task_is_done_at_once_or_waits")
    {
        return;
    }
    let bench = Bench::new();
    let raw = bench.port.raw();
    let attempts = Cell::new(0);
    let try_to_read = |bench: &Bench| {
        attempts.set(0);
        let mut byte = [0];
        let is_done = bench.port.raw().try_now(bench.id, Side::In, |descriptor| {
            assert_eq!(descriptor, number(&bench.near));
            attempts.set(attempts.get() + 1);
            match (&*bench.near).read(&mut byte) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => Attempt::Blocked,
                outcome => {
                    outcome.unwrap();
                    Attempt::Done
                }
            }
        });
        is_done.then_some(byte[0])
    };
    (&bench.far).write_all(b"ab").unwrap();
    assert_eq!(try_to_read(&bench), Some(b'a'));
    assert_eq!(try_to_read(&bench), Some(b'b'));
    assert_eq!(try_to_read(&bench), None);
    assert!(attempts.get() > 0);
    // An edge will report more, so there is nothing to try. Windows has no edges.
    assert_eq!(try_to_read(&bench), None);
    assert_eq!(attempts.get(), if cfg!(unix) { 0 } else { 1 });
    let first = bench.begin();
    // The waiting task comes first.
    (&bench.far).write_all(b"c").unwrap();
    assert_eq!(try_to_read(&bench), None);
    while !raw.has_packets(&mut Batch::new()).unwrap() && bench.told.try_recv().is_err() {
        thread::yield_now();
    }
    assert!(!bench.port.cancel(first).unwrap(), "it is done");
    // The other side.
    assert!(raw.try_now(bench.id, Side::Out, |_| Attempt::Done));
    assert!(!raw.try_now(bench.id, Side::Out, |_| Attempt::OutOfResources));
    // An attempt that panics frees its turn.
    let panics = || raw.try_now(bench.id, Side::Out, |_| panic!("a fault of the attempt"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(raw.try_now(bench.id, Side::Out, |_| Attempt::Done));
    raw.forget(bench.id.id()).unwrap();
    assert!(!raw.try_now(bench.id, Side::Out, |_| unreachable!("there is no such registration")));
    assert_eq!(bench.port.stats().registered, 0);
    let id = raw.associate_number(number(&bench.near), 8).unwrap();
    bench.port.close();
    assert!(!raw.try_now(id, Side::Out, |_| unreachable!("the port is closed")));
}

#[test]
fn what_a_caller_tries_exclusively_changes_nothing() {
    const NAME: &str = "tasks::what_a_caller_tries_exclusively_changes_nothing";
    if !in_a_process_of_its_own(NAME) {
        return;
    }
    let bench = Bench::new();
    let raw = bench.port.raw();
    let found = |side, attempt| {
        let attempts = Cell::new(0);
        let is_done = raw.try_exclusively(bench.id, side, |descriptor| {
            assert_eq!(descriptor, number(&bench.near));
            attempts.set(attempts.get() + 1);
            attempt
        });
        (is_done, attempts.get())
    };
    // The port does not learn of it, so the next one is tried, too.
    for (attempt, is_done) in [
        (Attempt::Blocked, false),
        (Attempt::Drained, true),
        (Attempt::OutOfResources, false),
        (Attempt::Done, true),
    ] {
        assert_eq!(found(Side::Out, attempt), (is_done, 1), "{attempt:?}");
    }
    let panics = || raw.try_exclusively(bench.id, Side::Out, |_| panic!("a fault of the attempt"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    // A task that waits comes first, and concerns one side.
    let waiting = bench.begin();
    assert_eq!(found(Side::In, Attempt::Done), (false, 0));
    assert_eq!(found(Side::Out, Attempt::Done), (true, 1));
    assert!(bench.port.cancel(waiting).unwrap());
    raw.run_deferred();
    assert_eq!(bench.told(), (Some(Ending::Cancelled), None));
    // Readiness of an enabled association is reported.
    let id = bench.id.id();
    raw.enable(id, Interest::OUT, Persistent::Edge, Hints::default).unwrap();
    assert_eq!(found(Side::Out, Attempt::Done), (false, 0));
    raw.forget(id).unwrap();
    assert_eq!(found(Side::Out, Attempt::Done), (false, 0));
    let id = raw.associate_number(number(&bench.near), 8).unwrap();
    assert!(raw.try_exclusively(id, Side::Out, |_| Attempt::Done));
    bench.port.close();
    assert!(!raw.try_exclusively(id, Side::Out, |_| unreachable!("the port is closed")));
}

#[test]
fn a_registration_outlives_what_is_tried_before_it_is_a_task() {
    if !in_a_process_of_its_own("tasks::a_registration_outlives_what_is_tried_before_it_is_a_task")
    {
        return;
    }
    let bench = Bench::new();
    let raw = bench.port.raw();
    assert!(raw.try_now(bench.id, Side::Out, |_| {
        // Another one has to wait for its turn.
        assert!(!raw.try_now(bench.id, Side::Out, |_| unreachable!("it is not its turn")));
        bench.port.shutdown().unwrap();
        assert!(bench.port.wait(&mut Batch::new(), Duration::ZERO).unwrap().next().is_none());
        assert_eq!(bench.port.stats().registered, 1);
        Attempt::Done
    }));
    let mut batch = Batch::new();
    let mut packets = bench.port.wait(&mut batch, SOON).unwrap();
    assert!(matches!(packets.next(), Some(Packet::Removed(_, 7))), "{packets:?}");
}

/// Performs what a test specifies, and reports how it ended.
struct Does(Box<dyn FnMut() -> Attempt + Send>, Sender<Ending>);

/// A `Does` whose first attempt doesn't wait for readiness.
struct Begins(Does);

// SAFETY: `Buffer` has requirements for the memory of `filled` and `room`.
// - there is no memory.
unsafe impl Buffer for Begins {
    fn filled<'b>(&'b self, _: &mut dyn FnMut(&'b [u8])) {}
    unsafe fn room<'b>(&'b mut self, _: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {}
    unsafe fn set_filled(&mut self, _: usize) {}
}

impl Task for Begins {
    fn attempt(&mut self, descriptor: i32) -> Attempt {
        self.0.attempt(descriptor)
    }

    fn begins_unasked(&self) -> bool {
        true
    }

    fn end(self, ending: Ending) {
        self.0.end(ending);
    }
}

// SAFETY: `Buffer` has requirements for the memory of `filled` and `room`.
// - there is no memory.
unsafe impl Buffer for Does {
    fn filled<'b>(&'b self, _: &mut dyn FnMut(&'b [u8])) {}
    unsafe fn room<'b>(&'b mut self, _: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {}
    unsafe fn set_filled(&mut self, _: usize) {}
}

impl Task for Does {
    fn attempt(&mut self, _: i32) -> Attempt {
        (self.0)()
    }

    fn end(self, ending: Ending) {
        self.1.send(ending).unwrap();
    }
}

#[test]
fn a_task_that_begins_unasked_is_tried_though_nothing_is_ready() {
    let port: Arc<Port<u32, u32, Begins>> = Arc::new(Port::builder().buffers().build().unwrap());
    let (near, _far) = connected();
    let id = port.raw().associate_number(number(&near), 7).unwrap();
    let (sender, told) = channel();
    let start = |attempt: Attempt| {
        let does = Does(Box::new(move || attempt), sender.clone());
        let started = port.raw().start_task(id, Side::In, Begins(does));
        started.map_err(|it| it.error()).unwrap()
    };
    // Nothing ever arrives, which this attempt finds out.
    let Started::InFlight(first) = start(Attempt::Blocked) else { panic!("it waits") };
    let Started::InFlight(_) = start(Attempt::Done) else { panic!("it is not the first") };
    assert!(!port.raw().has_packets(&mut Batch::new()).unwrap());
    assert!(told.try_recv().is_err(), "it is tried in its turn");
    assert!(port.cancel(first).unwrap());
    port.raw().run_deferred();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [Ending::Cancelled, Ending::Done]);
    let Started::Completed((_, Ending::Done)) = start(Attempt::Done) else { panic!("it waits") };
}

#[test]
fn what_a_task_has_waited_for_is_told_by_a_call() {
    let port: Arc<Port<u32, u32, Does>> = Arc::new(Port::builder().buffers().build().unwrap());
    let (near, _far) = connected();
    let id = port.raw().associate_number(number(&near), 7).unwrap();
    let (sender, told) = channel();
    let is_there = Arc::new(AtomicBool::new(false));
    let start = |attempt: Box<dyn FnMut() -> Attempt + Send>| {
        let task = Does(attempt, sender.clone());
        port.raw().start_task(id, Side::Out, task).map_err(|it| it.error()).unwrap()
    };
    // There is no such task.
    port.raw().retry(id, Side::Out);
    let it = Arc::clone(&is_there);
    let attempt = move || if it.load(SeqCst) { Attempt::Done } else { Attempt::OutOfResources };
    let Started::InFlight(_) = start(Box::new(attempt)) else { panic!("it is not there") };
    port.raw().retry(id, Side::In);
    is_there.store(true, SeqCst);
    port.raw().retry(id, Side::Out);
    // Without `retry`, it would be tried again only after ten milliseconds.
    assert!(!port.raw().has_packets(&mut Batch::new()).unwrap());
    assert_eq!(told.try_recv(), Ok(Ending::Done));
    // While a task is being tried, there is no other attempt.
    let (other, mut is_first) = (Arc::clone(&port), true);
    let attempt = move || {
        if !std::mem::take(&mut is_first) {
            return Attempt::Done;
        }
        other.raw().retry(id, Side::Out);
        Attempt::OutOfResources
    };
    let Started::Completed((_, Ending::Done)) = start(Box::new(attempt)) else {
        panic!("it waits")
    };
    port.raw().forget(id.id()).unwrap();
    port.raw().retry(id, Side::Out);
}

#[test]
fn a_thread_that_waits_is_woken_for_what_a_task_has_waited_for() {
    let port: Arc<Port<u32, u32, Does>> = Arc::new(Port::builder().buffers().build().unwrap());
    let (near, _far) = connected();
    let id = port.raw().associate_number(number(&near), 7).unwrap();
    let (sender, told) = channel();
    let waiting = Arc::clone(&port);
    let waiter = thread::spawn(move || {
        while let Ok(packets) = waiting.wait(&mut Batch::new(), None) {
            packets.for_each(drop);
        }
    });
    // If the thread sleeps until the retry time, `retry` wakes it. On a busy machine that time often
    // passes before the call, and none is woken. Rarely, a thread is woken for something else.
    let is_woken = || {
        let is_there = Arc::new(AtomicBool::new(false));
        let it = Arc::clone(&is_there);
        let attempt = move || if it.load(SeqCst) { Attempt::Done } else { Attempt::OutOfResources };
        let begun = Instant::now();
        let task = Does(Box::new(attempt), sender.clone());
        port.raw().start_task(id, Side::Out, task).map_err(|it| it.error()).unwrap();
        // By now the waiting thread was woken to learn the retry time, and sleeps again.
        while begun.elapsed() < Duration::from_millis(3) {
            thread::yield_now();
        }
        let before = port.stats().wakes;
        is_there.store(true, SeqCst);
        port.raw().retry(id, Side::Out);
        let wakes = port.stats().wakes - before;
        assert_eq!(told.recv_timeout(SOON), Ok(Ending::Done));
        wakes > 0
    };
    let woken = (0..3_000).filter(|_| is_woken()).take(10).count();
    assert_eq!(woken, 10, "of three thousand");
    port.close();
    waiter.join().unwrap();
}

/// Reads a byte. Its end blocks until the test lets it return.
struct ReadsSlowly {
    socket: Arc<Stream>,
    byte: u8,
    sender: Sender<u8>,
    /// Reports that the end has begun, and receives the permission to return.
    gate: Option<(Sender<()>, Receiver<()>)>,
}

// SAFETY: `Buffer` has requirements for the memory of `filled` and `room`.
// - there is no memory.
unsafe impl Buffer for ReadsSlowly {
    fn filled<'b>(&'b self, _: &mut dyn FnMut(&'b [u8])) {}
    unsafe fn room<'b>(&'b mut self, _: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {}
    unsafe fn set_filled(&mut self, _: usize) {}
}

impl Task for ReadsSlowly {
    fn attempt(&mut self, _: i32) -> Attempt {
        let mut byte = [0];
        match (&*self.socket).read(&mut byte) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Attempt::Blocked,
            read => {
                assert_eq!(read.unwrap(), 1);
                self.byte = byte[0];
                Attempt::Done
            }
        }
    }

    fn end(self, ending: Ending) {
        assert_eq!(ending, Ending::Done);
        if let Some((ends, may_end)) = self.gate {
            ends.send(()).unwrap();
            may_end.recv().unwrap();
        }
        self.sender.send(self.byte).unwrap();
    }
}

#[test]
fn ends_of_a_direction_come_in_the_order_of_the_bytes_however_many_threads_there_are() {
    let port: Port<u32, u32, ReadsSlowly> = Port::builder().buffers().build().unwrap();
    let (near, far) = connected();
    near.set_nonblocking(true).unwrap();
    let near = Arc::new(near);
    let id = port.raw().associate_number(number(&near), 7).unwrap();
    let (sender, told) = channel();
    let task = |gate| {
        let (socket, sender) = (Arc::clone(&near), sender.clone());
        ReadsSlowly { socket, byte: 0, sender, gate }
    };
    let start = |gate| {
        let started = port.raw().start_task(id, Side::In, task(gate));
        assert!(matches!(started.map_err(|it| it.error()), Ok(Started::InFlight(_))));
    };
    let (ends, is_in_end) = channel();
    let (let_end, may_end) = channel();
    start(Some((ends, may_end)));
    start(None);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Dropped first if an assertion fails, which lets the thread end.
        let let_end = let_end;
        (&far).write_all(b"ab").unwrap();
        // Some systems report the bytes a little later.
        let first = scope.spawn(|| {
            let begun = Instant::now();
            while !is_over.load(SeqCst) && begun.elapsed() < SOON {
                port.raw().drive(&mut Batch::new()).unwrap();
                thread::yield_now();
            }
        });
        is_in_end.recv().unwrap();
        // Tasks that other threads try, or that are started meanwhile, end after the first task.
        let until = Instant::now() + Duration::from_millis(100);
        while Instant::now() < until {
            port.raw().drive(&mut Batch::new()).unwrap();
            thread::yield_now();
        }
        (&far).write_all(b"c").unwrap();
        start(None);
        port.raw().drive(&mut Batch::new()).unwrap();
        assert!(told.try_recv().is_err(), "an end has overtaken another one");
        is_over.store(true, SeqCst);
        let_end.send(()).unwrap();
        first.join().unwrap();
        let begun = Instant::now();
        let bytes = [(); 3].map(|()| {
            loop {
                port.raw().drive(&mut Batch::new()).unwrap();
                if let Ok(byte) = told.recv_timeout(Duration::from_millis(1)) {
                    return byte;
                }
                assert!(begun.elapsed() < SOON);
            }
        });
        assert_eq!(bytes, *b"abc");
    });
}

/// Stays in flight while it `stands`. At each attempt it reads a byte, if there is work.
struct Standing {
    stands: bool,
    socket: Arc<Stream>,
    shared: Arc<StandingShared>,
    sender: Sender<u8>,
}

#[derive(Default)]
struct StandingShared {
    work: AtomicUsize,
    attempts: AtomicUsize,
}

// SAFETY: `Buffer` has requirements for the memory of `filled` and `room`.
// - there is no memory.
unsafe impl Buffer for Standing {
    fn filled<'b>(&'b self, _: &mut dyn FnMut(&'b [u8])) {}
    unsafe fn room<'b>(&'b mut self, _: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {}
    unsafe fn set_filled(&mut self, _: usize) {}
}

impl Task for Standing {
    fn attempt(&mut self, _: i32) -> Attempt {
        if self.stands {
            self.shared.attempts.fetch_add(1, SeqCst);
            if self.shared.work.load(SeqCst) == 0 {
                return Attempt::Idle;
            }
            self.shared.work.fetch_sub(1, SeqCst);
        }
        let mut byte = [0];
        match (&*self.socket).read(&mut byte) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Attempt::Blocked,
            read => {
                assert_eq!(read.unwrap(), 1);
                self.sender.send(byte[0]).unwrap();
                if self.stands { Attempt::Idle } else { Attempt::Done }
            }
        }
    }

    fn end(self, ending: Ending) {
        // Instead of a byte.
        self.sender.send(if ending == Ending::Done { b'.' } else { b'!' }).unwrap();
    }
}

/// A port with a standing task, and what its tasks have read.
struct Stand {
    port: Port<u32, u32, Standing>,
    id: completion_port::SharedId,
    near: Arc<Stream>,
    far: Stream,
    shared: Arc<StandingShared>,
    sender: Sender<u8>,
    told: Receiver<u8>,
}

impl Stand {
    fn new() -> Self {
        let port = Port::builder().buffers().build().unwrap();
        let (near, far) = connected();
        near.set_nonblocking(true).unwrap();
        let id = Port::raw(&port).associate_number(number(&near), 7).unwrap();
        let (sender, told) = channel();
        Self { port, id, near: Arc::new(near), far, shared: Arc::default(), sender, told }
    }

    fn begin(&self, stands: bool) -> OpId {
        let (socket, sender) = (Arc::clone(&self.near), self.sender.clone());
        let task = Standing { stands, socket, shared: Arc::clone(&self.shared), sender };
        match self.port.raw().start_task(self.id, Side::In, task) {
            Ok(Started::InFlight(name)) => name,
            _ => panic!("it is in flight"),
        }
    }

    fn attempts(&self) -> usize {
        self.shared.attempts.load(SeqCst)
    }

    /// Lets the port continue until `is_over` returns true.
    fn go_on_until(&self, is_over: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_over() {
            assert!(began.elapsed() < SOON);
            assert!(!self.port.raw().has_packets(&mut Batch::new()).unwrap(), "tasks have none");
        }
    }

    /// What a task has sent.
    fn next(&self) -> u8 {
        let next = Cell::new(None);
        self.go_on_until(|| {
            next.set(self.told.try_recv().ok());
            next.get().is_some()
        });
        next.get().unwrap()
    }

    /// The byte has come, and the standing task has been tried because of that.
    fn send_and_see(&self, byte: u8) {
        let before = self.attempts();
        (&self.far).write_all(&[byte]).unwrap();
        self.go_on_until(|| self.attempts() > before);
    }

    /// The port looks for edges and finds none.
    fn is_at_rest(&self) -> bool {
        let before = self.attempts();
        for _ in 0..3 {
            let _ = self.port.raw().has_packets(&mut Batch::new()).unwrap();
        }
        // Windows has no edges.
        cfg!(windows) || self.attempts() == before
    }
}

#[test]
fn a_task_that_is_idle_stays_and_is_tried_at_each_edge() {
    let stand = Stand::new();
    let name = stand.begin(true);
    stand.send_and_see(b'a');
    assert!(stand.is_at_rest(), "there is a byte, which the task has left");
    stand.send_and_see(b'b');
    assert!(stand.is_at_rest());
    // It takes one byte at a time.
    stand.shared.work.store(3, SeqCst);
    stand.send_and_see(b'c');
    assert_eq!(stand.next(), b'a');
    assert!(stand.is_at_rest());
    assert!(stand.told.try_recv().is_err());
    assert!(stand.port.cancel(name).unwrap());
    stand.port.raw().run_deferred();
    assert_eq!(stand.next(), b'!');
    assert!(!stand.port.cancel(name).unwrap(), "it has ended");
}

#[test]
fn a_retry_tries_a_task_that_is_idle() {
    let stand = Stand::new();
    stand.begin(true);
    stand.send_and_see(b'a');
    assert!(stand.is_at_rest());
    stand.shared.work.store(1, SeqCst);
    stand.port.raw().retry(stand.id, Side::In);
    assert_eq!(stand.next(), b'a');
    let before = stand.attempts();
    stand.port.raw().retry(stand.id, Side::In);
    stand.go_on_until(|| stand.attempts() > before);
}

/// No edge comes for the byte that is there, however the task before them leaves.
#[test]
fn tasks_behind_one_that_is_idle_are_tried_when_it_leaves() {
    for waits_behind in [false, true] {
        let stand = Stand::new();
        let first = stand.begin(true);
        stand.send_and_see(b'a');
        assert!(stand.is_at_rest());
        let attempt = |_| unreachable!("a task is in flight");
        assert!(!stand.port.raw().try_now(stand.id, Side::In, attempt));
        if waits_behind {
            stand.begin(false);
            assert!(stand.is_at_rest());
            assert!(stand.told.try_recv().is_err(), "it waits for its turn");
        }
        assert!(stand.port.cancel(first).unwrap());
        if waits_behind {
            let mut told = [stand.next(), stand.next(), stand.next()];
            told.sort_unstable();
            assert_eq!(told, *b"!.a");
        } else {
            assert_eq!(stand.next(), b'!');
            let mut byte = [0];
            let is_done = stand.port.raw().try_now(stand.id, Side::In, |_| {
                assert_eq!((&*stand.near).read(&mut byte).unwrap(), 1);
                Attempt::Done
            });
            assert!(is_done && byte == *b"a", "the port still knows of the byte");
        }
    }
}

/// An idle task, a byte that it has left, and its notes. None of its work waits.
// On Windows, an idle task is tried every ten milliseconds.
#[cfg(not(windows))]
fn with_notes() -> (Stand, OpId, Arc<EdgeNotes>) {
    let stand = Stand::new();
    let (name, notes) = (stand.begin(true), Arc::new(EdgeNotes::new()));
    stand.port.raw().keep_edge_notes(name, &notes);
    stand.send_and_see(b'a');
    notes.end_wait();
    (stand, name, notes)
}

#[cfg(not(windows))]
#[test]
fn an_edge_is_only_noted_while_nothing_of_an_idle_task_waits() {
    let (stand, name, notes) = with_notes();
    let before = stand.attempts();
    (&stand.far).write_all(b"b").unwrap();
    stand.go_on_until(|| notes.may_be_ready());
    assert!(stand.is_at_rest());
    assert_eq!(stand.attempts(), before);
    // Work begins to wait, and finds the note.
    stand.shared.work.store(1, SeqCst);
    assert!(notes.wait());
    stand.port.raw().retry(stand.id, Side::In);
    assert_eq!(stand.next(), b'a');
    notes.begin_attempt();
    stand.shared.work.store(1, SeqCst);
    assert!(!notes.wait());
    (&stand.far).write_all(b"c").unwrap();
    assert_eq!(stand.next(), b'b');
    stand.shared.work.store(1, SeqCst);
    stand.port.raw().retry(stand.id, Side::In);
    assert_eq!(stand.next(), b'c');
    // Other tasks have no part in that.
    notes.end_wait();
    assert!(stand.port.cancel(name).unwrap());
    assert_eq!(stand.next(), b'!');
    for keeps_again in [false, true] {
        stand.begin(false);
        if keeps_again {
            stand.port.raw().keep_edge_notes(name, &notes);
        }
        (&stand.far).write_all(b"d").unwrap();
        assert_eq!([stand.next(), stand.next()], *b"d.");
    }
}

#[cfg(not(windows))]
#[test]
fn an_operation_that_is_no_task_has_no_part_in_notes_of_edges() {
    let port: Port<u32> = Port::new().unwrap();
    let (near, mut far) = connected();
    let token = Port::raw(&port).associate_number(number(&near), 7).unwrap();
    let started = port.start(token, Operation::recv(Vec::with_capacity(1)));
    let name = started.map_err(|refused| refused.error()).unwrap();
    let notes = Arc::new(EdgeNotes::new());
    notes.end_wait();
    port.raw().keep_edge_notes(name, &notes);
    far.write_all(b"a").unwrap();
    let mut batch = Batch::new();
    let packet = port.raw().wait_cloned(&mut batch, SOON).unwrap().next();
    assert!(matches!(packet, Some(Packet::SharedCompleted(_))), "{packet:?}");
}

/// There may be no further edge.
#[cfg(not(windows))]
#[test]
fn an_idle_task_is_tried_at_the_end_of_its_stream_even_if_nothing_waits() {
    let (stand, ..) = with_notes();
    let before = stand.attempts();
    stand.far.shutdown(Shutdown::Write).unwrap();
    stand.go_on_until(|| stand.attempts() > before);
}
