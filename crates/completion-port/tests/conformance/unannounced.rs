//! Rule 39: a thread that sleeps unannounced loses its seat, and may exceed the limit afterwards.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, BlockDetection, Interest, OneShot, Packet, Port, Registration};
use testkit::{LIMIT, System, in_a_process_of_its_own, on_every_system};

#[cfg(target_os = "linux")]
use crate::kit::descriptors::leave_no_descriptor;
use crate::kit::takers::{Sockets, Takers, each_block_is_noticed};
use crate::kit::threads::{
    Computing, End, Gate, eventually, eventually_without_time, hear, script, settle, stays, take,
};

on_every_system! {
    /// Rule 39.
    fn a_block_that_nobody_announced_is_noticed(system: &System) {
        system.not_on_windows("call that reports a sleeping thread");
        let (blocked, heard) = Blocked::on(system, 1);
        thread::scope(|scope| {
            let _end = End::of(&blocked.port, [&blocked.gate]);
            let go_on = blocked.begin(scope, &heard, 2);
            blocked.port.post(2).unwrap();
            assert_eq!(hear(system, &heard, "another one takes over"), 2);
            drop(go_on);
        });
    }

    /// Rule 39: a packet that the kernel has yet to report does not wait for a blocked handler:
    /// another thread polls.
    fn a_block_that_nobody_announced_keeps_no_socket_waiting(system: &System) {
        system.not_on_windows("call that reports a sleeping thread");
        let (ours, theirs) = system.unix_pair();
        let (blocked, heard) = Blocked::on(system, 1);
        let registration = Registration::new(&ours, (), Interest::IN, OneShot::Level);
        blocked.port.register(registration).unwrap();
        thread::scope(|scope| {
            let _end = End::of(&blocked.port, [&blocked.gate]);
            let go_on = blocked.begin(scope, &heard, 1);
            theirs.write(b"x").unwrap();
            assert_eq!(hear(system, &heard, "somebody looks"), READY);
            drop(go_on);
        });
    }

    /// Rule 39: the same for a thread that got its packet from the kernel's wait, not from a post.
    fn who_blocks_is_noticed_though_it_has_come_from_the_kernels_wait(system: &System) {
        system.not_on_windows("call that reports a sleeping thread");
        let (ours, theirs) = system.unix_pair();
        let (blocked, heard) = Blocked::on(system, 1);
        let registration = Registration::new(&ours, (), Interest::IN, OneShot::Level);
        blocked.port.register(registration).unwrap();
        let (go_on, told) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let blocked = &blocked;
            let _end = End::of(&blocked.port, [&blocked.gate]);
            let go_on = go_on;
            scope.spawn(move || {
                let mut batch = Batch::with_capacity(1);
                let mut packets = blocked.port.wait(&mut batch, None).unwrap();
                let ready = packets.next();
                assert!(matches!(ready, Some(Packet::Ready(_))), "{ready:?}");
                let me = thread::current().id();
                script(system, me, true);
                blocked.say.send(READY).unwrap();
                let _ = told.recv();
                script(system, me, false);
            });
            settle(system, &blocked.port, 1);
            scope.spawn(|| blocked.run());
            settle(system, &blocked.port, 2);
            theirs.write(b"x").unwrap();
            assert_eq!(hear(system, &heard, "the first is taken"), READY);
            blocked.port.post(2).unwrap();
            assert_eq!(hear(system, &heard, "another one takes over"), 2);
            drop(go_on);
        });
    }

    /// Rule 39: if no other thread waits, one that only polls from time to time detects the block,
    /// whether the packet is queued or not yet reported by the kernel.
    fn a_block_is_noticed_by_who_only_looks_in(system: &System) {
        system.not_on_windows("call that reports a sleeping thread");
        // On a simulated kernel, time passes only between two waits.
        let times = [Duration::ZERO, Duration::from_micros(300), Duration::from_millis(1)];
        let times = if system.kernel().is_some() { &times[..1] } else { &times[..] };
        for (&time, is_queued) in times.iter().flat_map(|time| [(time, true), (time, false)]) {
            let (ours, theirs) = system.unix_pair();
            let (blocked, heard) = Blocked::on(system, 1);
            let registration = Registration::new(&ours, (), Interest::IN, OneShot::Level);
            blocked.port.register(registration).unwrap();
            thread::scope(|scope| {
                let _end = End::of(&blocked.port, [&blocked.gate]);
                let go_on = blocked.begin(scope, &heard, 0);
                if is_queued {
                    blocked.port.post(2).unwrap();
                } else {
                    theirs.write(b"x").unwrap();
                }
                let mut batch = Batch::with_capacity(1);
                eventually(system, "a thread that looks in takes the packet", || {
                    blocked.port.wait(&mut batch, Some(time)).unwrap().next().is_some()
                });
                drop(go_on);
            });
        }
    }

    /// Rule 39: a thread whose block has ended runs, whatever the limit. Then nothing is delivered
    /// until there is room again.
    fn who_blocks_no_longer_may_exceed_the_limit(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let (first, second) = (Gate::default(), Gate::default());
        let takers = Takers::of(system, &port);
        let (go_on, blocked) = mpsc::channel::<()>();
        let blocked = Mutex::new(blocked);
        thread::scope(|scope| {
            let _end = End::of(&port, [&first, &second]);
            takers.start(scope, 3, |message| match message {
                0 => {
                    let _ = port.blocking(|| blocked.lock().unwrap().recv());
                    first.pass();
                }
                1 => second.pass(),
                _ => {}
            });
            port.post(0).unwrap();
            assert_eq!(takers.hear("the first is taken"), (0, 2));
            eventually(system, "it blocks", || port.stats().blocked == 1);
            port.post(1).unwrap();
            assert_eq!(takers.hear("the second is taken"), (1, 1));
            assert_eq!((port.stats().running, port.stats().blocked), (1, 1));

            drop(go_on);
            eventually(system, "both run", || port.stats().running == 2);
            assert_eq!(port.stats().blocked, 0);
            port.post(2).unwrap();
            stays(system, 1, "nothing is handed out", || port.stats().queued == 1);
            // One of the two returns. The other one still has the only seat.
            second.open();
            settle(system, &port, 2);
            stays(system, 2, "nothing is handed out", || port.stats().queued == 1);
            assert_eq!(port.stats().running, 1);
            first.open();
            assert_eq!(takers.hear("the third is taken"), (2, 2));
            settle(system, &port, 3);
        });
    }

    /// Rule 39: the block was not announced, so the port must detect its end. Here the thread that
    /// blocked has the only seat.
    fn who_blocked_unannounced_and_runs_again_has_the_only_seat(system: &System) {
        system.not_on_windows("call that reports a sleeping thread");
        who_blocked_runs_again(system, 1);
    }

    /// Rule 39: the same with another thread in the second of two seats.
    fn who_blocked_unannounced_and_runs_again_has_one_of_two_seats(system: &System) {
        system.not_on_windows("call that reports a sleeping thread");
        who_blocked_runs_again(system, 2);
    }
}

/// Rule 39: a thread that was thought asleep counts as running again as soon as it takes its next
/// packet, not only after another thread has checked. No time passes here, so no thread checks.
#[test]
fn who_comes_back_for_a_packet_is_counted_at_once_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let port = on.port::<(), usize>(1);
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            let port = &port;
            port.post(0).unwrap();
            let mut batch = Batch::with_capacity(1);
            let mut packets = port.wait(&mut batch, None).unwrap();
            assert!(matches!(packets.next(), Some(Packet::Posted(0))));
            scope.spawn(move || {
                while let Some(message) = take(port) {
                    let _ = say.send(message);
                }
            });
            settle(on, port, 1);
            script(on, thread::current().id(), true);
            port.post(1).unwrap();
            assert_eq!(hear(on, &heard, "the block is noticed"), 1);
            settle(on, port, 1);
            script(on, thread::current().id(), false);
            assert!(packets.next().is_none());
            port.post(2).unwrap();
            assert!(heard.recv_timeout(on.quiet()).is_err(), "two run, the limit is one");
            drop(packets);
            assert_eq!(take(port), Some(2));
        });
    });
}

/// Rule 39: the same with no descriptor left, for a thread that has not slept before.
#[cfg(target_os = "linux")]
#[test]
fn who_sleeps_for_the_first_time_is_found_with_no_descriptor_left_epoll() {
    if !in_a_process_of_its_own(
        "unannounced::who_sleeps_for_the_first_time_is_found_with_no_descriptor_left_epoll",
    ) {
        return;
    }
    let on = System::native();
    let ways = [BlockDetection::Automatic, BlockDetection::Tick];
    let ports = ways.map(|way| on.port_that(1, way).unwrap());
    each_block_is_noticed(&on, &ports, 1, leave_no_descriptor);
}

/// Rule 39: a sleeping thread is checked even if the watchdog changes between any two scans, and
/// the scans are more frequent than usual because another thread sleeps briefly again and again.
#[test]
fn who_sleeps_is_found_though_the_watch_changes_hands_all_the_time_sim() {
    const STEPS: usize = 40;
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        kernel.advance(Duration::from_millis(2));
        let port = on.port_that::<usize, ()>(4, BlockDetection::Automatic).unwrap();
        let sockets = Sockets::of(on, &port, STEPS + 2);
        thread::scope(|scope| {
            let _end = sockets.end();
            let port = &port;
            sockets.start(scope, 4);
            sockets.write(0);
            // From now on the scheduler keeps records of this one.
            let (_, observed) = sockets.at_once();
            settle(on, port, 3);
            script(on, observed, true);
            let begun = kernel.now();
            while port.stats().blocks_found == 0 {
                kernel.advance(Duration::from_micros(250));
                settle(on, port, 3);
                assert!(kernel.now() < begun + Duration::from_millis(20), "it is not found");
            }
            script(on, observed, false);
            let sleep_anew = || {
                script(on, observed, false);
                script(on, observed, true);
            };
            sockets.write(1);
            let (_, stuck) = sockets.at_once();
            settle(on, port, 2);
            for _ in 0..2 {
                kernel.advance(Duration::from_millis(1));
                settle(on, port, 2);
            }
            let mut asked = u64::MAX;
            for step in 2..STEPS + 2 {
                if step == 10 {
                    asked = kernel.calls().asleep;
                    script(on, stuck, true);
                }
                if port.stats().blocks_found > 1 {
                    break;
                }
                sleep_anew();
                sockets.write(step);
                assert_eq!(sockets.at_once().0, step);
                settle(on, port, 1);
                for _ in 0..2 {
                    kernel.advance(Duration::from_micros(40));
                    settle(on, port, 1);
                    sleep_anew();
                }
                sockets.gates[step].open();
                settle(on, port, 2);
            }
            assert_eq!(port.stats().blocks_found, 2, "the other one is found as well");
            assert!(kernel.calls().asleep > asked, "it was asked about");
            script(on, observed, false);
            script(on, stuck, false);
        });
    });
}

/// Rule 39: when the last running thread announces a block, no thread will return for the kernel's
/// wait. The thread that is released for it is there immediately, however long it was the watchdog
/// before.
#[test]
fn who_is_called_for_one_who_blocks_is_there_at_once_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for ticks in 0..3 {
            let port = on.port::<usize, ()>(1);
            let sockets = Sockets::of(on, &port, 2);
            let over = Gate::default();
            thread::scope(|scope| {
                let _end = sockets.end();
                let _over = End::of(&port, [&over]);
                sockets.start_and_then(scope, 2, 1, || port.blocking(|| over.pass()));
                sockets.write(0);
                assert_eq!(sockets.at_once().0, 0);
                settle(on, &port, 1);
                for _ in 0..ticks {
                    let polls = port.stats().polls;
                    kernel.advance(Duration::from_millis(1));
                    let looked = || port.stats().polls > polls;
                    eventually_without_time(on, "it looks every millisecond", looked);
                    settle(on, &port, 1);
                }
                kernel.advance(Duration::from_micros(100));
                sockets.gates[0].open();
                eventually_without_time(on, "it blocks", || port.stats().blocked == 1);
                sockets.write(1);
                assert_eq!(sockets.at_once().0, 1, "after {ticks} ticks");
            });
        }
    });
}

/// Sent by a thread that got the packet of a socket.
const READY: usize = usize::MAX;

/// A port whose message 0 makes its handler block unannounced.
struct Blocked<'s> {
    on: &'s System,
    port: Port<(), usize>,
    /// Holds the handlers of message 1, and of message 0 after its block.
    gate: Gate,
    limit: usize,
    /// The handlers of message 2, which wait for each other until as many run as there are seats.
    together: AtomicUsize,
    /// The handler of message 0 no longer blocks.
    awake: AtomicBool,
    /// The threads that the gate holds.
    computing: Computing,
    say: mpsc::Sender<usize>,
}

impl<'s> Blocked<'s> {
    fn on(on: &'s System, limit: usize) -> (Self, mpsc::Receiver<usize>) {
        on.several_threads_wait();
        let (say, heard) = mpsc::channel();
        let (port, gate, together) = (on.port(limit), Gate::default(), AtomicUsize::new(0));
        let (awake, computing) = (AtomicBool::new(false), Computing::default());
        (Self { on, port, gate, limit, together, awake, computing, say }, heard)
    }

    /// Starts `others`, and a thread that blocks until the returned value is dropped.
    fn begin<'t>(
        &'t self,
        scope: &'t thread::Scope<'t, '_>,
        heard: &mpsc::Receiver<usize>,
        others: usize,
    ) -> mpsc::Sender<()> {
        let (go_on, blocked) = mpsc::channel::<()>();
        for count in 1..=others {
            scope.spawn(|| self.run());
            settle(self.on, &self.port, count);
        }
        scope.spawn(move || {
            assert_eq!(take(&self.port), Some(0));
            let me = thread::current().id();
            script(self.on, me, true);
            self.say.send(0).unwrap();
            let _ = blocked.recv();
            script(self.on, me, false);
            self.computing.join();
            self.awake.store(true, SeqCst);
            self.gate.pass();
            self.run();
        });
        settle(self.on, &self.port, others + 1);
        self.port.post(0).unwrap();
        assert_eq!(hear(self.on, heard, "the first is taken"), 0);
        go_on
    }

    fn run(&self) {
        let mut batch = Batch::with_capacity(1);
        while let Ok(mut packets) = self.port.wait(&mut batch, None) {
            let message = match packets.next() {
                Some(Packet::Posted(message)) => message,
                Some(Packet::Ready(_)) => READY,
                // Taken back before this thread reached it.
                None => continue,
                other => panic!("{other:?}"),
            };
            if message == 1 {
                self.computing.join();
            }
            self.say.send(message).unwrap();
            if message == 1 {
                self.gate.pass();
            } else if message == 2 {
                self.together.fetch_add(1, SeqCst);
                let begun = Instant::now();
                while self.together.load(SeqCst) < self.limit && begun.elapsed() < self.on.soon() {
                    thread::yield_now();
                }
            }
        }
    }
}

/// All `limit` seats are taken, one of them by a thread that blocked and runs again. Checks that
/// nothing is delivered.
fn who_blocked_runs_again(on: &System, limit: usize) {
    let begun = Instant::now();
    while !nothing_is_delivered(on, limit) {
        assert!(begun.elapsed() < LIMIT, "a thread that computes went to sleep each time");
    }
}

/// Checks it once. Returns false if a thread went to sleep that should compute, so that it might
/// rightly lose its seat.
fn nothing_is_delivered(on: &System, limit: usize) -> bool {
    let (blocked, heard) = Blocked::on(on, limit);
    let port = &blocked.port;
    thread::scope(|scope| {
        let _end = End::of(port, [&blocked.gate]);
        let go_on = blocked.begin(scope, &heard, limit);
        // The others take all seats at the same time, so the block must be detected.
        (0..limit).for_each(|_| port.post(2).unwrap());
        (0..limit).for_each(|_| assert_eq!(hear(on, &heard, "another one takes over"), 2));
        settle(on, port, limit);
        assert_eq!((port.stats().running, port.stats().blocked), (0, 1));
        for _ in 1..limit {
            port.post(1).unwrap();
            assert_eq!(hear(on, &heard, "another one takes over"), 1);
        }
        drop(go_on);
        eventually_without_time(on, "it runs", || blocked.awake.load(SeqCst));
        let has_slept = || blocked.computing.have_slept(on);
        // Some time later the port knows.
        stays(on, 1, "one waits", || port.stats().parked == 1 || has_slept());
        port.post(3).unwrap();
        stays(on, 1, "nothing is handed out", || heard.try_recv().is_err() || has_slept());
        let knows = || port.stats().running == limit || has_slept();
        eventually_without_time(on, "the port knows", knows);
        assert!(port.stats().queued == 1 || has_slept());
        let is_checked = !has_slept();
        blocked.gate.open();
        if is_checked {
            assert_eq!(hear(on, &heard, "the rest is taken"), 3);
        }
        settle(on, port, limit + 1);
        is_checked
    })
}
