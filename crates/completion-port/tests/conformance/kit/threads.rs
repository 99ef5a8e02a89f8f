//! Threads that wait on a port: how a test starts them, hears from them, and ends them.
//!
//! A handler that *runs* spins, and one that *blocks* waits for a channel. On a real system the
//! port examines the thread. The test scripts a simulated kernel.

#[cfg(target_os = "linux")]
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{LazyLock, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use completion_port::ThreadStatus;
use completion_port::{Batch, Buffer, Packet, Port};
#[cfg(target_os = "linux")]
use testkit::scheduler::{ThreadNumber, all_sleep};
use testkit::{LIMIT, System};

/// Keeps a handler running until the test opens it.
#[derive(Default)]
pub(crate) struct Gate(AtomicBool);

impl Gate {
    pub(crate) fn open(&self) {
        self.0.store(true, SeqCst);
    }

    /// Spins until the gate is open. The thread counts as running all the time.
    pub(crate) fn pass(&self) {
        let begun = Instant::now();
        while !self.0.load(SeqCst) {
            assert!(begun.elapsed() < LIMIT, "nobody opened the gate");
            thread::yield_now();
        }
    }

    /// Spins as `pass` does, without any system call.
    pub(crate) fn pass_without_a_call(&self) {
        let begun = Instant::now();
        while !self.0.load(SeqCst) {
            assert!(begun.elapsed() < LIMIT, "nobody opened the gate");
            std::hint::spin_loop();
        }
    }
}

/// Threads whose handlers compute. Even such a thread sleeps now and then on a busy machine, for a
/// page or for a lock of a sanitizer, and then the port rightly takes it for one that blocks.
#[derive(Default)]
pub(crate) struct Computing {
    #[cfg(target_os = "linux")]
    sleeps: Mutex<Vec<(ThreadNumber, u64)>>,
}

#[cfg(target_os = "linux")]
impl Computing {
    /// Adds the calling thread.
    pub(crate) fn join(&self) {
        let me = ThreadNumber::current();
        self.sleeps.lock().unwrap().push((me, me.sleeps_begun()));
    }

    /// Returns whether one of them has slept since it joined. A simulated kernel does not report
    /// that.
    pub(crate) fn have_slept(&self, on: &System) -> bool {
        let sleeps = self.sleeps.lock().unwrap();
        on.kernel().is_none() && sleeps.iter().any(|(thread, begun)| thread.sleeps_begun() > *begun)
    }
}

/// Other systems don't report that.
#[cfg(not(target_os = "linux"))]
impl Computing {
    pub(crate) fn join(&self) {}

    pub(crate) fn have_slept(&self, _: &System) -> bool {
        false
    }
}

/// Ends a port's threads at the end of the test, even if it fails.
pub(crate) struct End<'a, K, M> {
    port: &'a Port<K, M>,
    gates: Vec<&'a Gate>,
}

impl<'a, K, M> End<'a, K, M> {
    pub(crate) fn of(port: &'a Port<K, M>, gates: impl IntoIterator<Item = &'a Gate>) -> Self {
        Self { port, gates: gates.into_iter().collect() }
    }
}

impl<K, M> Drop for End<'_, K, M> {
    fn drop(&mut self) {
        self.gates.iter().for_each(|gate| gate.open());
        self.port.close();
    }
}

/// Waits until `condition` holds, at most for [`System::soon`]. A simulated clock advances in steps
/// of a millisecond, no faster than real time. Otherwise much virtual time might pass while a
/// thread gets no processor.
#[track_caller]
pub(crate) fn eventually(on: &System, what: &str, mut condition: impl FnMut() -> bool) {
    const STEP: Duration = Duration::from_millis(1);
    let begun = Instant::now();
    let mut passed = Duration::ZERO;
    while !condition() {
        assert!(begun.elapsed() < on.soon(), "it did not happen that {what}");
        if let Some(kernel) = on.kernel()
            && passed <= begun.elapsed()
        {
            kernel.advance(STEP);
            passed += STEP;
        }
        thread::yield_now();
    }
}

/// If the system reports events with a delay, waits until `count` packets are queued. Takes none of
/// them.
#[track_caller]
pub(crate) fn let_be_told<K, M, B: Buffer>(port: &Port<K, M, B>, on: &System, count: usize) {
    if on.tells_at_once() {
        return;
    }
    let mut batch = Batch::new();
    eventually(on, "the system tells of it", || {
        port.raw().drive(&mut batch).unwrap();
        port.stats().queued >= count
    });
}

/// Returns the time according to the clock of `on`.
pub(crate) fn now(on: &System) -> Duration {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    on.kernel().map_or_else(|| BEGUN.elapsed(), |kernel| kernel.now())
}

/// Checks that `condition` holds throughout [`System::quiet`], while `waiting` threads wait.
#[track_caller]
pub(crate) fn stays(on: &System, waiting: usize, what: &str, mut condition: impl FnMut() -> bool) {
    match on.kernel() {
        Some(kernel) => {
            let end = kernel.now() + on.quiet();
            loop {
                let asleep = kernel.wait_for_sleepers(waiting, on.soon());
                assert!(asleep, "{waiting} threads should wait: {kernel:?}");
                assert!(condition(), "it was not so for long that {what}");
                if kernel.now() >= end {
                    return;
                }
                kernel.advance(Duration::from_millis(1));
            }
        }
        None => {
            let begun = Instant::now();
            while begun.elapsed() < on.quiet() {
                assert!(condition(), "it was not so for long that {what}");
                thread::yield_now();
            }
        }
    }
}

/// Waits until exactly `count` threads wait on `port` and sleep. A simulated clock does not
/// advance.
///
/// A thread counts as waiting some time before it sleeps in the kernel, and the kernel releases
/// threads in the order in which they fell asleep.
#[track_caller]
pub(crate) fn settle<K, M>(on: &System, port: &Port<K, M>, count: usize) {
    let begun = Instant::now();
    while port.stats().parked != count || !who_waits_sleeps(on, port) {
        assert!(begun.elapsed() < on.soon(), "{count} threads should wait: {port:#?}");
        thread::yield_now();
    }
    if let Some(kernel) = on.kernel() {
        assert!(kernel.wait_for_sleepers(count, on.soon()), "{count} should wait: {kernel:?}");
    }
}

/// Returns whether all threads that wait on `port` sleep in this machine's kernel. [`settle`] asks
/// a simulated one.
#[cfg(target_os = "linux")]
fn who_waits_sleeps<K, M>(on: &System, port: &Port<K, M>) -> bool {
    let threads = port.thread_stats().into_iter();
    let waiting = threads.filter(|thread| thread.status == ThreadStatus::Idle);
    let numbers = waiting.filter_map(|thread| thread.system_number?.try_into().ok());
    on.kernel().is_some() || all_sleep(&numbers.map(ThreadNumber::of).collect::<Vec<_>>())
}

/// Other systems don't report that.
#[cfg(not(target_os = "linux"))]
fn who_waits_sleeps<K, M>(_: &System, _: &Port<K, M>) -> bool {
    true
}

/// Takes one message. Returns `None` once the port is closed.
pub(crate) fn take<M>(port: &Port<impl Sized, M>) -> Option<M> {
    let mut batch = Batch::with_capacity(1);
    loop {
        match port.wait(&mut batch, None).ok()?.next() {
            Some(Packet::Posted(message)) => return Some(message),
            Some(_) => panic!("no message, but something else"),
            // Another thread took the packet back before this one reached it, and the port may be
            // closed.
            None => {}
        }
    }
}

/// Returns the next value that a thread sends to the test, waiting on either clock.
#[track_caller]
pub(crate) fn hear<T>(on: &System, heard: &mpsc::Receiver<T>, what: &str) -> T {
    let mut said = None;
    eventually(on, what, || {
        said = heard.try_recv().ok();
        said.is_some()
    });
    said.unwrap()
}

/// Marks `thread` as asleep or awake in a simulated kernel, where the port can't find out itself.
pub(crate) fn script(on: &System, thread: ThreadId, asleep: bool) {
    if let Some(kernel) = on.kernel() {
        kernel.set_thread_asleep(thread, asleep);
    }
}

/// Waits as [`eventually`] does, without advancing a simulated clock.
#[track_caller]
pub(crate) fn eventually_without_time(
    on: &System,
    what: &str,
    mut condition: impl FnMut() -> bool,
) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < on.soon(), "it did not happen that {what}");
        thread::yield_now();
    }
}

/// Lets a thread take enough long packets for the port to expect long ones. The thread then leaves.
pub(crate) fn make_packets_long<K: Send, M: Send + Default>(on: &System, port: &Port<K, M>) {
    const PACKET: Duration = Duration::from_micros(50);
    let handle = || match on.kernel() {
        Some(kernel) => kernel.advance(PACKET),
        None => {
            let begun = Instant::now();
            while begun.elapsed() < PACKET {
                std::hint::spin_loop();
            }
        }
    };
    thread::scope(|scope| {
        let handler = scope.spawn(|| {
            for _ in 0..400 {
                port.post(M::default()).unwrap();
                take(port).unwrap();
                handle();
            }
        });
        // The end of the scope does not wait until the thread has given up its seat.
        handler.join().unwrap();
    });
}

/// On the first of two ports with a limit of one each, a thread takes a packet and calls `what`
/// with the second port. Checks that another thread then gets the next packet.
pub(crate) fn a_seat_is_freed_by(
    on: &System,
    [port, other]: [Port<(), usize>; 2],
    what: fn(&Port<(), usize>),
) {
    on.several_threads_wait();
    let gate = Gate::default();
    let (say, heard) = mpsc::channel();
    thread::scope(|scope| {
        let _end = End::of(&port, [&gate]);
        let _other_end = End::of(&other, []);
        let first = scope.spawn(|| {
            assert_eq!(take(&port), Some(0));
            say.send(0).unwrap();
            gate.pass();
            what(&other);
        });
        settle(on, &port, 1);
        port.post(0).unwrap();
        assert_eq!(hear(on, &heard, "the first is taken"), 0);
        let say = say.clone();
        scope.spawn(|| {
            let say = say;
            while let Some(message) = take(&port) {
                say.send(message).unwrap();
            }
        });
        settle(on, &port, 1);
        port.post(1).unwrap();
        stays(on, 1, "the seat is taken", || port.stats().queued == 1);
        gate.open();
        // The port knows immediately: a simulated clock does not advance.
        assert_eq!(heard.recv_timeout(on.soon()).expect("the seat is not freed"), 1);
        // If the first thread sleeps while it exits, the second need not wait until it is gone.
        eventually(on, "only the second is left", || {
            let stats = port.stats();
            (stats.parked, stats.running, stats.queued) == (1, 0, 0)
        });
        other.close();
        // Any panic is the test's own.
        let _ = first.join();
    });
}
