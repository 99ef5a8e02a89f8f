//! Rules 36, 37 and 39: the concurrency value is reached whenever there is work for it, and no packet stands
//! for long beside a thread that idles. In virtual time: see [`virtual_time`](super::virtual_time); and on
//! the system's own kernel, whose processors others may need as well.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, Id, Interest, OneShot, Packet, Port, Registration, sim};
use testkit::{Socket, System, effort};

use crate::kit::crew::Crew;

/// How many threads there are, and may run.
const THREADS: [usize; 3] = [2, 4, 16];

/// What a handler takes. The last two are tried only with a `TEST_EFFORT`: the others lie around them.
const HANDLERS: [Duration; 5] = [micros(1), micros(5), micros(50), micros(2), micros(10)];

fn handlers() -> &'static [Duration] {
    if effort() == 1 { &HANDLERS[..3] } else { &HANDLERS }
}

/// How soon all threads are at work, and the longest time that a packet may stand beside an idle thread.
const SOON: Duration = micros(1_000);

/// The clock moves no further at once while a packet stands, so that the thread that looks after the
/// port gets up in time.
const STEP: Duration = micros(5);

const fn micros(number: u64) -> Duration {
    Duration::from_micros(number)
}

/// A port with as many seats as there are threads, and two sockets for each of them.
struct Site<'s> {
    kernel: &'s sim::Kernel,
    crew: Crew<'s>,
    port: Port<usize, ()>,
    /// What is registered, under which name, and by what it becomes readable.
    ours: Vec<Socket>,
    ids: Vec<Id>,
    theirs: Vec<Socket>,
    /// What a handler takes, in microseconds.
    takes: AtomicU64,
    /// Handlers leave what there is to read, so that the socket is ready again once it is armed.
    supply: AtomicBool,
    book: Mutex<Book>,
}

/// What was ready when, and which thread handled how much.
struct Book {
    /// Since when each socket has been ready, armed, and in no handler.
    since: Vec<Option<Duration>>,
    /// Sockets that were parked.
    parked: Vec<bool>,
    /// How many packets each thread has handled.
    handled: Vec<u64>,
    /// When there last was no idle thread.
    all_worked: Duration,
}

/// What was seen in a stretch of time.
#[derive(Debug, Default)]
struct Seen {
    /// Threads at work at once, at most.
    peak: usize,
    /// The time that all threads worked, taken together.
    work: Duration,
    time: Duration,
    /// The longest time that a packet stood while a thread was idle, which might have taken it.
    stood: Duration,
}

impl Seen {
    /// How many threads worked on the average.
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

    /// A packet, in the hands of thread `me`.
    fn handle(&self, me: usize, packet: Packet<'_, usize, ()>) {
        let Packet::Ready(mut ready) = packet else { panic!("no socket, but {packet:?}") };
        let key = *ready.key();
        {
            let mut book = self.book();
            book.since[key] = None;
            book.handled[me] += 1;
        }
        self.crew.work(me, micros(self.takes.load(SeqCst)));
        // Refused once the test is over and has closed the port.
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

    /// All sockets are ready, and are so again as soon as they are armed.
    fn begin_supply(&self) {
        self.supply.store(true, SeqCst);
        (0..self.theirs.len()).for_each(|key| self.write(key));
    }

    /// What is ready now is handled, and then there is no more.
    fn end_supply(&self) {
        self.supply.store(false, SeqCst);
    }

    /// Lets `time` pass, or less if `enough` says so: it is told how many threads work.
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

    /// Lets time pass until all of so many packets are handled: at most as long as one thread would need
    /// for them, and a little more.
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

/// Ends the threads when the test is over, also if it has failed.
struct End<'a>(&'a Site<'a>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.supply.store(false, SeqCst);
        self.0.port.close();
        self.0.crew.end();
    }
}

/// Runs `act` on a site all of whose threads wait, on a kernel of its own. A wait brings at most `room`
/// packets.
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
            // What the threads did when they came is long ago for the port.
            site.pass(2 * SOON, |_| false);
            act(site);
        });
    }
    on.assert_nothing_left();
}

/// What was found to be wrong in any of several situations.
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

/// Every number of threads with every length of a handler, with all sockets ready since just now.
fn with_supply(mut act: impl FnMut(&Site<'_>, usize, Duration)) {
    for threads in THREADS {
        for &handler in handlers() {
            on_site(threads, ROOM, |site| {
                site.handlers_take(handler);
                site.begin_supply();
                act(site, threads, handler);
            });
        }
    }
}

/// The usual room of a batch.
const ROOM: usize = 64;

/// How long to watch a supply: `many` milliseconds, or `few` of them where these contain thousands of packets. The short
/// time shows a fault that occurs regularly; `TEST_EFFORT` finds one that occurs now and then.
fn stretch(few: u32, many: u32, threads: usize, handler: Duration) -> Duration {
    let packets = u128::try_from(threads).unwrap() * 1_000 / handler.as_micros();
    let is_long = packets > 3_000 && effort() == 1;
    micros(1_000) * if is_long { few } else { many }
}

/// Rule 36: however short the handlers are.
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

/// Rule 36: and go on doing so as long as there is work. Now and then a port may try for a moment whether
/// fewer threads would do.
#[test]
fn as_many_threads_work_as_may_as_long_as_there_is_work_sim() {
    const SHARE: f64 = 0.85;
    let mut faults = Faults::default();
    with_supply(|site, threads, handler| {
        site.pass(SOON, |_| false);
        // Long enough for a trial, which is half a millisecond of it.
        let average = site.pass(stretch(4, 10, threads, handler), |_| false).average();
        println!("{threads} threads, {handler:?}: {average:.2} work");
        faults.check(average >= SHARE * f64::from(u32::try_from(threads).unwrap()), || {
            format!("{average:.2} of {threads} threads work, handlers take {handler:?}")
        });
    });
    faults.assert_none();
}

/// Rule 37: as long as there is work packets stand for less, beside an idle thread.
#[test]
fn in_a_supply_no_packet_stands_for_long_beside_an_idle_thread_sim() {
    // In the queue and then in a batch, also while a trial has fewer threads at work.
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

/// Rule 39 (see also 37): when the supply ends all threads go idle, and make no call; and what comes then, one
/// packet at a time, is always handled by the same thread.
#[test]
fn with_the_work_done_all_are_idle_and_a_single_packet_takes_one_of_them_sim() {
    const PAUSES: [Duration; 4] = [Duration::ZERO, micros(20), micros(300), micros(3_000)];
    let mut faults = Faults::default();
    with_supply(|site, threads, handler| {
        let situation = format!("{threads} threads, handlers take {handler:?}");
        site.pass(stretch(1, 2, threads, handler), |_| false);
        site.end_supply();
        site.pass_until_idle(site.ours.len());
        // The thread that looks after the port stops when it has seen that nothing happens.
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

        // More than one of them may sit in the kernel's wait since there was work for all.
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

/// Rule 37: whatever is ready, whatever handlers take, and whatever they took before.
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
    for (threads, room) in THREADS.into_iter().flat_map(|threads| [(threads, 1), (threads, ROOM)]) {
        for handler in [5, 50, 400, 3_000].map(micros) {
            for used_to in [None, Some(micros(2))] {
                // Half of these, by turns, where each takes long.
                if threads == 16 && effort() == 1 && (room == 1) == used_to.is_some() {
                    continue;
                }
                // The port has to find out that handlers take hundreds of times as long as they did; what
                // a thread has in its batch goes to another one only after a further millisecond.
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
                    // So many at once.
                    for packets in [2, 3, threads, 2 * threads] {
                        (0..packets).for_each(|key| site.write(key));
                        let stood = site.pass_until_idle(packets).stood;
                        check(most, stood, situation(format!("{packets} at once")));
                    }
                    // One after the other, while the first ones are handled.
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

/// Two threads have had a packet each, so that a trial of one thread begins; the second one stays in its
/// handler. Then the first one waits, and `offer` gives it something to take: after how long it does.
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
            // A token that is dropped ends its registration.
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

/// Rule 39: a thread that leaves the port to others, since a trial has only one of them at work, looks after
/// it if the other one stays away.
#[test]
fn a_thread_that_leaves_the_port_to_a_long_handler_looks_after_it_sim() {
    testkit::run(System::simulated, |on| {
        let taken = taken_beside_a_long_handler(on, |_| {}, |theirs| drop(theirs.write(b"x")));
        assert!(taken <= SOON + SOON / 10, "{taken:?}");
    });
}

/// Rule 33: no thread goes to rest while a message is queued.
#[test]
fn a_post_does_not_wait_for_a_long_handler_while_a_trial_has_one_thread_at_work_sim() {
    testkit::run(System::simulated, |on| {
        let taken = taken_beside_a_long_handler(on, |port| port.post(1).unwrap(), |_| {});
        assert_eq!(taken, Duration::ZERO);
    });
}

/// Rule 36, where time is real: of two threads neither does nearly all the work while sockets are always
/// ready and handlers take a few microseconds. Others may need the processors for a while, so there are
/// several windows.
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
