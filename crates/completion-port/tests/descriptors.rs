//! A dropped port releases everything that it opened and mapped, whatever its threads do later and
//! whatever is in flight. Runs one test at a time, because the tests examine the whole process.
// The tests read the state of the process from /proc.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::ffi::OsString;
use std::fs;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, BlockDetection, Buffer, Interest, OneShot, Operation, Packet, Port, SharedSource,
};
use testkit::{SOON, Socket, System};

/// The numbers of the threads that run tests. The harness starts and ends them at any time.
static OF_TESTS: Mutex<Vec<OsString>> = Mutex::new(Vec::new());

/// Held by the test that is examining the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let this = fs::read_link("/proc/thread-self").unwrap();
    OF_TESTS.lock().unwrap().push(this.file_name().unwrap().into());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of open descriptors, and of perf event mappings.
fn held() -> (usize, usize) {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, maps.lines().filter(|line| line.ends_with("[perf_event]")).count())
}

/// A thread takes a packet and blocks until it is detected, and until after the port is dropped.
/// Returns what the process held before, after the detection, and without the port.
fn outlived(detection: BlockDetection) -> Option<[(usize, usize); 3]> {
    let before = held();
    let settings = Port::builder().concurrency(1).block_detection(detection);
    let port: Arc<Port<(), u32>> = Arc::new(settings.build().ok()?);
    let (say, hear) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let blocks = {
        let port = Arc::clone(&port);
        thread::spawn(move || {
            port.post(1).unwrap();
            let mut batch = Batch::new();
            for packet in port.wait(&mut batch, None).unwrap() {
                assert!(matches!(packet, Packet::Posted(1)));
            }
            drop(port);
            say.send(()).unwrap();
            // It lives on, with a seat at a port that will be dropped.
            ended.recv().unwrap_err();
        })
    };
    hear.recv().unwrap();
    let mut found = 0;
    while found == 0 {
        // This waiting thread acts as the watchdog for the blocking one.
        assert_eq!(port.wait(&mut Batch::new(), Duration::from_millis(5)).unwrap().count(), 0);
        found = port.stats().blocks_found;
    }
    let meanwhile = held();
    drop(port);
    let afterwards = held();
    drop(end);
    blocks.join().unwrap();
    Some([before, meanwhile, afterwards])
}

#[test]
fn a_dropped_port_leaves_nothing_to_its_threads() {
    let _alone = alone();
    let [before, meanwhile, afterwards] = outlived(BlockDetection::Tick).unwrap();
    // The epoll set, the eventfd, and for each of the two threads a descriptor that shows whether
    // it sleeps.
    assert_eq!(meanwhile, (before.0 + 4, before.1));
    assert_eq!(afterwards, before);
    match outlived(BlockDetection::Switches) {
        Some([before, meanwhile, afterwards]) => {
            assert!(meanwhile.1 > before.1, "{meanwhile:?} after {before:?}");
            assert_eq!(afterwards, before);
        }
        None => println!(
            "SKIPPED a_dropped_port_leaves_nothing_to_its_threads with records: no perf_event_open here"
        ),
    }
}

/// The number of live buffers and messages.
static BUFFERS: AtomicUsize = AtomicUsize::new(0);

/// A buffer or message that is counted while it is alive.
struct Counted(Vec<u8>);

impl Counted {
    fn new(bytes: Vec<u8>) -> Self {
        BUFFERS.fetch_add(1, SeqCst);
        Self(bytes)
    }

    fn room() -> Self {
        Self::new(Vec::with_capacity(16))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        BUFFERS.fetch_sub(1, SeqCst);
    }
}

// SAFETY: `Buffer` requires stable memory and truthful lengths.
// - the memory is the vector's, whose own implementation promises the same.
unsafe impl Buffer for Counted {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        self.0.filled(part);
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        // SAFETY: the caller must write only initialized bytes.
        // - the memory is the vector's, so the caller's promise to `room` holds for it.
        unsafe { self.0.room(part) };
    }

    unsafe fn set_filled(&mut self, len: usize) {
        // SAFETY: `set_filled` requires that the first `len` bytes are initialized.
        // - the memory is the vector's, so the caller's promise to `set_filled` holds for it.
        unsafe { self.0.set_filled(len) };
    }
}

/// A key that owns its socket, of any kind.
type Key = SharedSource<Socket>;

/// A listener with room in its queue, and one that answers no connect, with the client that fills
/// its queue.
struct Listeners {
    open: Socket,
    full: Socket,
    _client: Socket,
}

impl Listeners {
    fn on(system: &System) -> Self {
        let full = system.tcp_listener(0);
        let client = system.tcp_connect(&full);
        Self { open: system.tcp_listener(128), full, _client: client }
    }
}

/// Drops a port with operations that are waiting, due, done and cancelled, with deadlines, with
/// messages for later, and with packets that no thread has found, that are in a batch, or that were
/// taken.
fn fly_and_drop(number: usize, on: &System, listeners: &Listeners) {
    const HOUR: Duration = Duration::from_secs(3600);
    let port: Port<Key, Counted, Counted> = on.port_with_buffers(1);
    let (near, far) = on.unix_pair();
    let (other, other_far) = on.unix_pair();
    let (idle, _idle_far) = on.unix_pair();
    // Operations that wait in both directions. The sends wait for room.
    let id = port.associate_shared(Key::new(near)).unwrap();
    let full = Operation::send_all(Counted::new(vec![0; 300_000]));
    port.start(id, full).unwrap();
    let receives = [(); 3].map(|()| port.start(id, Operation::recv(Counted::room())).unwrap());
    port.start(id, Operation::send(Counted::new(vec![7])).deadline(HOUR)).unwrap();
    port.cancel(receives[1]).unwrap();
    // One that will be due, and one that waits until its deadline.
    port.associate(Key::new(other)).unwrap().recv(Counted::room()).unwrap();
    other_far.write(b"x").unwrap();
    let token = port.associate(Key::new(idle)).unwrap();
    token.start(Operation::recv(Counted::room()).deadline(HOUR)).unwrap();
    // A datagram that arrives, and one that doesn't.
    let datagrams = [on.udp_bound(), on.udp_bound()];
    datagrams[1].send_to(b"x", &datagrams[0].address()).unwrap();
    for socket in datagrams {
        let token = port.associate(Key::new(socket)).unwrap();
        token.start(Operation::recv_from(Counted::room()).deadline(HOUR)).unwrap();
    }
    // Connects that nothing answers, and one that is answered.
    let (address, full) =
        (listeners.open.address().for_port(), listeners.full.address().for_port());
    port.associate(Key::new(on.tcp_fresh())).unwrap().connect(full.clone()).unwrap();
    port.connect(full, Some(HOUR.into()), |source| Key::new(on.adopt(source))).unwrap();
    let answered = port.associate(Key::new(on.tcp_fresh())).unwrap().connect(address).unwrap();
    // A connection that no handler receives, in addition to the port's own.
    let accepting = Key::new(listeners.open.dup().unwrap());
    let accepting = port.associate_shared(accepting).unwrap();
    let connect = || on.tcp_connect(&listeners.open);
    let client = connect();
    (0..2).for_each(|_| drop(port.start_now(accepting, Operation::accept()).unwrap()));
    // A connection that waits in the listener's queue, and one accept more than there are
    // connections.
    let waiting = connect();
    for _ in 0..2 {
        port.start(accepting, Operation::accept().deadline(HOUR)).unwrap();
    }
    // Armed with a deadline.
    let (armed, _armed_far) = on.unix_pair();
    let token = port.associate(Key::new(armed)).unwrap();
    if number.is_multiple_of(2) {
        token.rearm_until(HOUR).unwrap();
    } else {
        token.rearm_as(Interest::IN, OneShot::Level).unwrap();
    }
    // Messages for later, one of which is due, and one for now.
    for time in [HOUR, Duration::ZERO, 2 * HOUR] {
        port.post_at(time, Counted::new(Vec::new())).unwrap();
    }
    let taken_back = port.post_at(HOUR, Counted::new(Vec::new())).unwrap();
    drop(port.cancel_post(taken_back).unwrap());
    port.post(Counted::new(Vec::new())).unwrap();
    let mut batch = Batch::new();
    match number % 4 {
        // No thread has waited.
        0 => {}
        // The packets were found and not taken.
        1 => drop(port.wait(&mut batch, Duration::ZERO).unwrap()),
        // The packets were found and not taken, and the thread still has them.
        2 => std::mem::forget(port.wait(&mut batch, Duration::ZERO).unwrap()),
        // One packet was taken, and the rest is in the batch.
        _ => {
            let mut packets = port.wait(&mut batch, Duration::ZERO).unwrap();
            assert!(packets.next().is_some());
        }
    }
    assert!(BUFFERS.load(SeqCst) >= 9);
    if number.is_multiple_of(5) {
        port.close();
    }
    if number.is_multiple_of(7) {
        let _ = port.cancel(answered);
    }
    drop(far);
    drop(port);
    assert_eq!(BUFFERS.load(SeqCst), 0, "port {number}");
    drop((client, waiting));
}

/// Returns the number of threads in the process other than its first and those that run tests.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().file_name());
    let tasks: Vec<OsString> = tasks.collect();
    let first = std::process::id().to_string();
    let of_tests = OF_TESTS.lock().unwrap();
    tasks.iter().filter(|&task| *task != *first && !of_tests.contains(task)).count()
}

/// Waits until no such thread is left. The kernel lists a joined thread for a while, and the
/// harness starts a thread before its test begins.
#[allow(clippy::disallowed_methods, reason = "nothing tells that the kernel has put a thread away")]
fn assert_no_thread_is_left() {
    let patience = Instant::now() + SOON;
    while threads() != 0 {
        assert!(Instant::now() < patience, "{} threads are left", threads());
        thread::sleep(Duration::from_millis(1));
    }
}

/// Drops `ports` ports, on the systems in turn. After each, the process must hold what it held
/// before.
fn many_fly_and_are_dropped(ports: usize, systems: &[System]) {
    let _alone = alone();
    let listeners: Vec<_> = systems.iter().map(Listeners::on).collect();
    let sockets = || systems.iter().map(System::open_sockets).sum::<usize>();
    let (before, sockets_before) = (held(), sockets());
    for number in 0..ports {
        let which = number % systems.len();
        fly_and_drop(number, &systems[which], &listeners[which]);
        if number.is_multiple_of(100) {
            assert_eq!(held(), before, "port {number}");
            assert_no_thread_is_left();
        }
    }
    assert_eq!((held(), sockets()), (before, sockets_before));
    assert_no_thread_is_left();
    drop(listeners);
    systems.iter().for_each(System::assert_nothing_left);
}

/// Returns the number of ports: enough for every combination in [`fly_and_drop`] to occur several
/// times. `PORTS` in the environment overrides it.
fn ports() -> usize {
    std::env::var("PORTS").map_or(1_000, |number| number.parse().unwrap())
}

#[test]
fn ports_that_are_dropped_with_all_in_flight_leave_nothing() {
    many_fly_and_are_dropped(ports(), &[System::native(), System::native().one_shot()]);
}

#[test]
fn simulated_ports_that_are_dropped_with_all_in_flight_leave_nothing() {
    many_fly_and_are_dropped(ports() / 2, &[System::simulated(), System::simulated().one_shot()]);
}
