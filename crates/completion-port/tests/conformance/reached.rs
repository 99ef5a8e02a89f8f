//! Rules 36, 37 and 39: the concurrency value is reached whenever there is work for it, and no
//! packet waits for long while a thread is idle. The tests run in virtual time (see
//! [`virtual_time`](super::virtual_time)), and on the system's own kernel, where other programs may
//! need the processors.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, Id, Interest, OneShot, Packet, Port, Registration, sim};
use testkit::{Socket, System, effort};

use crate::kit::crew::Crew;

/// The number of threads, and of seats. The last one is tested only if `TEST_EFFORT` is raised,
/// since it lies between the others.
const THREADS: [usize; 3] = [2, 16, 4];

fn threads() -> &'static [usize] {
    if effort() == 1 { &THREADS[..2] } else { &THREADS }
}

/// The time that a handler takes. The last two are tested only if `TEST_EFFORT` is raised.
const HANDLERS: [Duration; 5] = [micros(1), micros(5), micros(50), micros(2), micros(10)];

fn handlers() -> &'static [Duration] {
    if effort() == 1 { &HANDLERS[..3] } else { &HANDLERS }
}

/// The longest time until all threads work, and the longest that a packet may wait while a thread
/// is idle.
const SOON: Duration = micros(1_000);

/// The largest clock step while a packet waits, so that the watchdog wakes in time.
const STEP: Duration = micros(5);

const fn micros(number: u64) -> Duration {
    Duration::from_micros(number)
}

/// A port with as many seats as threads, and two sockets for each thread.
struct Site<'s> {
    kernel: &'s sim::Kernel,
    crew: Crew<'s>,
    port: Port<usize, ()>,
    /// The registered sockets, their ids, and their peers, which make them readable.
    ours: Vec<Socket>,
    ids: Vec<Id>,
    theirs: Vec<Socket>,
    /// The time that a handler takes, in microseconds.
    takes: AtomicU64,
    /// Handlers leave the data unread, so that a socket is ready again once it is armed.
    supply: AtomicBool,
    book: Mutex<Book>,
}

/// Records when each socket was ready, and how much each thread handled.
struct Book {
    /// Since when each socket has been ready and armed without a handler.
    since: Vec<Option<Duration>>,
    /// The sockets that were parked.
    parked: Vec<bool>,
    /// The number of packets that each thread has handled.
    handled: Vec<u64>,
    /// The last time at which no thread was idle.
    all_worked: Duration,
}

/// Observations over a stretch of time.
#[derive(Debug, Default)]
struct Seen {
    /// The most threads at work at the same time.
    peak: usize,
    /// The total working time of all threads.
    work: Duration,
    time: Duration,
    /// The longest time that a packet waited while an idle thread could have taken it.
    stood: Duration,
}

impl Seen {
    /// Returns the average number of working threads.
    fn average(&self) -> f64 {
        self.work.as_secs_f64() / self.time.as_secs_f64()
    }
}

impl<'s> Site<'s> {
    fn new(on: &'s System, threads: usize) -> Self {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..2 * threads).map(|_| on.unix_pair()).unzip();
        let port = on.port(threads);
        let register = |(key, ours)| {
            port.register(Registration::new(ours, key, Interest::IN, OneShot::Level)).unwrap()
        };
        let ids: Vec<_> = ours.iter().enumerate().map(register).collect();
        let book = Book {
            since: vec![None; ours.len()],
            parked: vec![false; ours.len()],
            handled: vec![0; threads],
            all_worked: Duration::ZERO,
        };
        Self {
            kernel,
            crew: Crew::new(kernel, threads),
            port,
            ours,
            ids,
            theirs,
            takes: AtomicU64::new(0),
            supply: AtomicBool::new(false),
            book: Mutex::new(book),
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handlers_take(&self, time: Duration) {
        self.takes.store(u64::try_from(time.as_micros()).unwrap(), SeqCst);
    }

    /// Handles a packet on thread `me`.
    fn handle(&self, me: usize, packet: Packet<'_, usize, ()>) {
        let Packet::Ready(mut ready) = packet else { panic!("no socket, but {packet:?}") };
        let key = *ready.key();
        {
            let mut book = self.book();
            book.since[key] = None;
            book.handled[me] += 1;
        }
        self.crew.work(me, micros(self.takes.load(SeqCst)));
        // Refused once the test has ended and has closed the port.
        if self.supply.load(SeqCst) {
            self.book().since[key] = Some(self.kernel.now());
            let _ = ready.rearm();
            return;
        }
        self.ours[key].drain();
        if key.is_multiple_of(2) {
            ready.read_drained();
            let _ = ready.rearm();
        } else {
            self.book().parked[key] = true;
            let _ = ready.park();
        }
    }

    /// Makes a socket ready.
    fn write(&self, key: usize) {
        if std::mem::take(&mut self.book().parked[key]) {
            self.port.enable(self.ids[key], Interest::IN, OneShot::Level).unwrap();
        }
        self.book().since[key] = Some(self.kernel.now());
        self.theirs[key].write(b"x").unwrap();
    }

    /// Makes all sockets ready, and ready again whenever they are armed.
    fn begin_supply(&self) {
        self.supply.store(true, SeqCst);
        (0..self.theirs.len()).for_each(|key| self.write(key));
    }

    /// Ends the supply: sockets that are ready now are handled for the last time.
    fn end_supply(&self) {
        self.supply.store(false, SeqCst);
    }

    /// Lets `time` pass, or less if `enough` returns true for the number of working threads.
    fn pass(&self, time: Duration, enough: impl Fn(usize) -> bool) -> Seen {
        let mut seen = Seen::default();
        loop {
            let working = self.crew.settle();
            seen.peak = seen.peak.max(working);
            let left = time - seen.time;
            if left.is_zero() || enough(working) {
                return seen;
            }
            let oldest = self.book().since.iter().flatten().min().copied();
            let most = if oldest.is_some() { STEP } else { SOON / 4 };
            let passed = self.crew.pass(left.min(most));
            seen.time += passed;
            seen.work += passed * u32::try_from(working).unwrap();
            let (now, mut book) = (self.kernel.now(), self.book());
            if working == self.crew.size() {
                book.all_worked = now;
            } else if let Some(oldest) = oldest {
                seen.stood = seen.stood.max(now - oldest.max(book.all_worked));
            }
        }
    }

    /// Lets time pass until all `packets` are handled: at most a little longer than one thread
    /// would need.
    #[track_caller]
    fn pass_until_idle(&self, packets: usize) -> Seen {
        let handler = micros(self.takes.load(SeqCst));
        let limit = handler * u32::try_from(packets).unwrap() + 2 * SOON;
        let is_empty = || self.book().since.iter().all(Option::is_none);
        let seen = self.pass(limit, |working| working == 0 && is_empty());
        assert!(is_empty(), "packets are left after {:?}: {:#?}", seen.time, self.port);
        seen
    }
}

/// Ends the threads at the end of the test, even if it fails.
struct End<'a>(&'a Site<'a>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.supply.store(false, SeqCst);
        self.0.port.close();
        self.0.crew.end();
    }
}

/// Runs `act` on a site whose threads all wait, on a separate kernel. Batches hold `room` packets.
fn on_site(threads: usize, room: usize, act: impl FnOnce(&Site<'_>)) {
    let on = System::simulated();
    {
        let site = Site::new(&on, threads);
        thread::scope(|scope| {
            let site = &site;
            let _end = End(site);
            for me in 0..threads {
                scope.spawn(move || {
                    site.crew.serve(me, &site.port, room, |me, packet| site.handle(me, packet));
                });
            }
            assert_eq!(site.crew.settle(), 0);
            // For the port, the threads' arrival is long ago.
            site.pass(2 * SOON, |_| false);
            act(site);
        });
    }
    on.assert_nothing_left();
}

/// The faults found in several situations.
#[derive(Default)]
struct Faults(String);

impl Faults {
    fn check(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            writeln!(self.0, "{}", what()).unwrap();
        }
    }

    #[track_caller]
    fn assert_none(&self) {
        assert!(self.0.is_empty(), "\n{}", self.0);
    }
}

/// Runs `act` for each number of threads and each handler time, with all sockets just made ready.
fn with_supply(mut act: impl FnMut(&Site<'_>, usize, Duration)) {
    for &threads in threads() {
        for &handler in handlers() {
            on_site(threads, ROOM, |site| {
                site.handlers_take(handler);
                site.begin_supply();
                act(site, threads, handler);
            });
        }
    }
}

/// The usual capacity of a batch.
const ROOM: usize = 64;

/// Returns how long to watch a supply: `many` milliseconds, or `few` if these contain thousands of
/// packets. The short time reveals a regular fault. `TEST_EFFORT` finds an occasional one.
fn stretch(few: u32, many: u32, threads: usize, handler: Duration) -> Duration {
    let packets = u128::try_from(threads).unwrap() * 1_000 / handler.as_micros();
    let is_long = packets > 3_000 && effort() == 1;
    micros(1_000) * if is_long { few } else { many }
}

/// Rule 36: this holds however short the handlers are.
#[test]
fn as_many_threads_work_as_may_within_a_millisecond_sim() {
    let mut faults = Faults::default();
    with_supply(|site, threads, handler| {
        let seen = site.pass(SOON, |working| working == threads);
        println!("{threads} threads, {handler:?}: {} work after {:?}", seen.peak, seen.time);
        faults.check(seen.peak == threads, || {
            format!("{} of {threads} threads work at once, handlers take {handler:?}", seen.peak)
        });
    });
    faults.assert_none();
}

/// Rule 36: they keep working as long as there is work. From time to time a port may briefly try
/// whether fewer threads suffice.
#[test]
fn as_many_threads_work_as_may_as_long_as_there_is_work_sim() {
    const SHARE: f64 = 0.85;
    let mut faults = Faults::default();
    with_supply(|site, threads, handler| {
        site.pass(SOON, |_| false);
        // Long enough for a trial, which takes half a millisecond of it.
        let average = site.pass(stretch(4, 10, threads, handler), |_| false).average();
        println!("{threads} threads, {handler:?}: {average:.2} work");
        faults.check(average >= SHARE * f64::from(u32::try_from(threads).unwrap()), || {
            format!("{average:.2} of {threads} threads work, handlers take {handler:?}")
        });
    });
    faults.assert_none();
}

/// Rule 37: while there is work, a packet waits for less time next to an idle thread.
#[test]
fn in_a_supply_no_packet_stands_for_long_beside_an_idle_thread_sim() {
    // In the queue and then in a batch, even while a trial has fewer threads at work.
    const LONG: Duration = micros(200);
    let mut faults = Faults::default();
    with_supply(|site, threads, handler| {
        site.pass(SOON, |_| false);
        let stood = site.pass(stretch(1, 3, threads, handler), |_| false).stood;
        println!("{threads} threads, {handler:?}: {stood:?}");
        faults.check(stood <= LONG + STEP, || {
            format!("{threads} threads, handlers take {handler:?}: a packet stood for {stood:?}")
        });
    });
    faults.assert_none();
}

/// Rule 39 (see also 37): when the supply ends, all threads go idle and make no calls. Then single
/// packets, one at a time, are always handled by the same thread.
#[test]
fn with_the_work_done_all_are_idle_and_a_single_packet_takes_one_of_them_sim() {
    const PAUSES: [Duration; 4] = [Duration::ZERO, micros(20), micros(300), micros(3_000)];
    let mut faults = Faults::default();
    with_supply(|site, threads, handler| {
        let situation = format!("{threads} threads, handlers take {handler:?}");
        site.pass(stretch(1, 2, threads, handler), |_| false);
        site.end_supply();
        site.pass_until_idle(site.ours.len());
        // The watchdog stops when it has seen that nothing happens.
        for _ in 0..3 {
            assert_eq!(site.pass(SOON, |_| false).peak, 0, "{situation}: there is no packet");
        }
        let before = site.kernel.calls();
        for _ in 0..20 {
            site.pass(SOON, |_| false);
        }
        let calls = site.kernel.calls() - before;
        faults.check(calls.total() == 0, || {
            format!("{situation}: nothing happens, and yet there are {calls:?}")
        });

        // More than one of them may still be in the kernel's wait since all had work.
        for key in 0..threads {
            site.write(key);
            site.pass_until_idle(1);
        }
        site.book().handled.fill(0);
        for round in 0..10 {
            for pause in PAUSES {
                site.write(round % site.ours.len());
                site.pass_until_idle(1);
                site.pass(pause, |_| false);
            }
        }
        let handled = site.book().handled.clone();
        println!("{situation}: {handled:?}");
        faults.check(handled.iter().filter(|handled| **handled > 0).count() == 1, || {
            format!("{situation}: single packets were handled by several, {handled:?}")
        });
    });
    faults.assert_none();
}

/// Rule 37: this holds for any ready sockets, any handler times, and any earlier ones.
#[test]
fn no_packet_stands_for_long_beside_an_idle_thread_sim() {
    let mut faults = Faults::default();
    let mut check = |most: Duration, stood: Duration, situation: String| {
        println!("{situation}: {stood:?}");
        faults.check(stood <= most + STEP, || format!("{situation}: a packet stood for {stood:?}"));
    };
    with_supply(|site, threads, handler| {
        let stood = site.pass(stretch(1, 3, threads, handler), |_| false).stood;
        check(SOON, stood, format!("{threads} threads, a supply, handlers take {handler:?}"));
    });
    for (threads, room) in threads().iter().flat_map(|&threads| [(threads, 1), (threads, ROOM)]) {
        for handler in [5, 50, 400, 3_000].map(micros) {
            for used_to in [None, Some(micros(2))] {
                // Take half of these, alternately, since each takes long.
                if threads == 16 && effort() == 1 && (room == 1) == used_to.is_some() {
                    continue;
                }
                // The port must learn that handlers take hundreds of times as long as before. The
                // packets in a thread's batch move to another thread only a further millisecond
                // later.
                let most = if room == 1 { 2 * SOON } else { 3 * SOON } + SOON / 4;
                on_site(threads, room, |site| {
                    let situation = |what: String| {
                        format!(
                            "{threads} threads, batches of {room}, {what}, handlers take {handler:?} \
                             and took {used_to:?} before"
                        )
                    };
                    if let Some(before) = used_to {
                        site.handlers_take(before);
                        site.begin_supply();
                        site.pass(SOON, |_| false);
                        site.end_supply();
                        site.pass_until_idle(site.ours.len());
                    }
                    site.handlers_take(handler);
                    // This many at the same time.
                    for packets in [2, 3, threads, 2 * threads] {
                        (0..packets).for_each(|key| site.write(key));
                        let stood = site.pass_until_idle(packets).stood;
                        check(most, stood, situation(format!("{packets} at once")));
                    }
                    // One after the other, while the first ones are being handled.
                    for distance in [1, 30, 137, 450, 1_100].map(micros) {
                        let mut stood = Duration::ZERO;
                        for key in 0..threads {
                            site.write(key);
                            stood = stood.max(site.pass(distance, |_| false).stood);
                        }
                        stood = stood.max(site.pass_until_idle(threads).stood);
                        check(most, stood, situation(format!("{threads}, one each {distance:?}")));
                    }
                });
            }
        }
    }
    faults.assert_none();
}

/// Two threads have had a packet each, so a trial of one thread begins, and the second one stays in
/// its handler. Then the first one waits, and `offer` makes a packet. Returns how long it takes
/// until the packet is taken.
fn taken_beside_a_long_handler(
    on: &System,
    before: impl Fn(&Port<u32, u32>),
    offer: impl Fn(&Socket),
) -> Duration {
    on.several_threads_wait();
    let kernel = on.kernel().unwrap();
    kernel.advance(Duration::from_secs(1));
    let port: Port<u32, u32> = on.port(2);
    let (ours, theirs) = on.unix_pair();
    port.register(Registration::new(&ours, 7, Interest::IN, OneShot::Level)).unwrap();
    let serve = |go: mpsc::Receiver<Option<Duration>>, say: mpsc::Sender<usize>| {
        kernel.set_thread_asleep(thread::current().id(), false);
        let mut batch = Batch::new();
        while let Ok(timeout) = go.recv() {
            let Ok(packets) = port.wait(&mut batch, timeout) else { return };
            // Dropping a token ends its registration.
            say.send(packets.count()).unwrap();
        }
    };
    thread::scope(|scope| {
        let threads = [(); 2].map(|()| {
            let ((go, told), (say, heard)) = (mpsc::channel(), mpsc::channel());
            let serve = &serve;
            scope.spawn(move || serve(told, say));
            (go, heard)
        });
        let wait = |thread: usize, timeout: Option<Duration>| {
            threads[thread].0.send(timeout).unwrap();
            threads[thread].1.recv_timeout(on.soon()).unwrap()
        };
        assert_eq!([0, 1].map(|thread| wait(thread, Some(Duration::ZERO))), [0, 0]);
        for round in 0..2 {
            for thread in [0, 1] {
                port.post(0).unwrap();
                assert_eq!(wait(thread, None), 1);
            }
            if round == 0 {
                kernel.advance(3 * SOON);
            }
        }
        before(&port);
        let begun = kernel.now();
        threads[0].0.send(None).unwrap();
        let mut is_taken = threads[0].1.recv_timeout(Duration::from_millis(50)).is_ok();
        offer(&theirs);
        while !is_taken && kernel.now() < begun + 10 * SOON {
            kernel.advance(SOON / 10);
            is_taken = threads[0].1.recv_timeout(Duration::from_millis(20)).is_ok();
        }
        let taken = kernel.now() - begun;
        port.raw().abandon();
        drop(threads);
        taken
    })
}

/// Rule 39: in a trial with one thread, a thread that has left the port to the other one acts as
/// its watchdog if that stays away.
#[test]
fn a_thread_that_leaves_the_port_to_a_long_handler_looks_after_it_sim() {
    testkit::run(System::simulated, |on| {
        let taken = taken_beside_a_long_handler(on, |_| {}, |theirs| drop(theirs.write(b"x")));
        assert!(taken <= SOON + SOON / 10, "{taken:?}");
    });
}

/// Rule 33: no thread goes idle while a message is queued.
#[test]
fn a_post_does_not_wait_for_a_long_handler_while_a_trial_has_one_thread_at_work_sim() {
    testkit::run(System::simulated, |on| {
        let taken = taken_beside_a_long_handler(on, |port| port.post(1).unwrap(), |_| {});
        assert_eq!(taken, Duration::ZERO);
    });
}

/// Rule 36, in real time: with sockets that are always ready and handlers of a few microseconds,
/// neither of two threads does nearly all the work. Other programs may need the processors for a
/// while, so there are several windows.
#[test]
fn two_threads_share_a_supply_that_one_could_go_on_with_for_ever_epoll() {
    const WINDOWS: u32 = 40;
    const WINDOW: Duration = Duration::from_millis(500);
    if thread::available_parallelism().is_ok_and(|processors| processors.get() < 2) {
        println!("SKIPPED two_threads_share_a_supply: there is a single processor");
        return;
    }
    let on = System::native();
    let port = on.port::<usize, ()>(2);
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..8).map(|_| on.unix_pair()).unzip();
    for (key, socket) in ours.iter().enumerate() {
        theirs[key].write(b"x").unwrap();
        port.register(Registration::new(socket, key, Interest::IN, OneShot::Level)).unwrap();
    }
    let handled = [const { AtomicU64::new(0) }; 2];
    let serve = |handled: &AtomicU64| {
        let mut batch = Batch::new();
        while let Ok(packets) = port.wait(&mut batch, None) {
            for packet in packets {
                let Packet::Ready(ready) = packet else { continue };
                let end = Instant::now() + micros(5);
                while Instant::now() < end {
                    std::hint::spin_loop();
                }
                handled.fetch_add(1, SeqCst);
                // Refused once the port is closed.
                let _ = ready.rearm();
            }
        }
    };
    thread::scope(|scope| {
        for handled in &handled {
            scope.spawn(move || serve(handled));
        }
        let counts = || [handled[0].load(SeqCst), handled[1].load(SeqCst)];
        let mut seen = Vec::new();
        let shared = (0..WINDOWS).any(|_| {
            let before = counts();
            thread::park_timeout(WINDOW);
            let now = counts();
            let did = [now[0] - before[0], now[1] - before[1]];
            seen.push(did);
            did[0].min(did[1]) * 4 > did[0].max(did[1])
        });
        port.raw().abandon();
        assert!(shared, "one thread did nearly everything: {seen:?}");
    });
}
