//! Rules 38 and 39 with each method of block detection: announced blocks, and blocks that the port
//! detects.
//!
//! A handler blocks on an obstacle of the kit. The test tells a simulated kernel that the handler's
//! thread sleeps.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::kit::packets::each_packet;
use completion_port::{
    Batch, BlockDetection, Call, ErrorKind, Interest, OneShot, Packet, Port, Registration, Stats,
    sim,
};
use testkit::scheduler::{self, ThreadNumber};
use testkit::{
    Obstacle, SOON, System, in_a_process_of_its_own, in_forked_child_with_clock, late, sandbox,
};

use crate::kit::takers::{Takers, each_block_is_noticed};
use crate::kit::threads::{
    End, Gate, a_seat_is_freed_by, eventually, eventually_without_time, hear, script, settle,
    stays, take,
};

/// A system, and the block detection method of a claim's ports.
struct Rung<'s> {
    on: &'s System,
    detection: BlockDetection,
}

impl Rung<'_> {
    fn port<K, M>(&self, limit: usize) -> Port<K, M> {
        self.on.port_that(limit, self.detection).unwrap()
    }
}

/// Tests `claim` with one method, if the machine supports it.
fn test(on: &System, detection: BlockDetection, name: &str, claim: fn(&Rung<'_>)) {
    on.several_threads_wait();
    match on.port_that::<(), ()>(1, detection) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            assert_eq!(detection, BlockDetection::Switches, "the others need nothing");
            println!("SKIPPED {name}: {error}");
        }
        made => {
            drop(made.unwrap());
            claim(&Rung { on, detection });
        }
    }
}

macro_rules! tests {
    ($($name:ident: $system:ident $detection:ident,)+) => {$(
        #[test]
        fn $name() {
            const NAME: &str = concat!(module_path!(), "::", stringify!($name));
            testkit::run(System::$system, |on| test(on, BlockDetection::$detection, NAME, claim));
        }
    )+};
}

/// Makes a module for each claim, with the given tests.
macro_rules! claims {
    ($tests:tt $($(#[$attribute:meta])* fn $name:ident($rung:ident: $type:ty) $body:block)+) => {$(
        mod $name {
            use super::*;

            $(#[$attribute])*
            fn claim($rung: $type) $body

            tests! $tests
        }
    )+};
}

/// Tests each claim on each back end with each method.
macro_rules! on_every_rung {
    ($($claims:tt)+) => { claims! {
        {
            epoll_automatic: native Automatic,
            epoll_announced: native Announced,
            epoll_switches: native Switches,
            epoll_tick: native Tick,
            sim_automatic: simulated Automatic,
            sim_announced: simulated Announced,
            sim_switches: simulated Switches,
            sim_tick: simulated Tick,
        }
        $($claims)+
    } };
}

/// As `on_every_rung`, without the method that detects nothing.
macro_rules! where_blocks_are_found {
    ($($claims:tt)+) => { claims! {
        {
            epoll_automatic: native Automatic,
            epoll_switches: native Switches,
            epoll_tick: native Tick,
            sim_automatic: simulated Automatic,
            sim_switches: simulated Switches,
            sim_tick: simulated Tick,
        }
        $($claims)+
    } };
}

/// As `on_every_rung`, for what only a real kernel can do to a thread.
macro_rules! where_the_kernel_is_asked {
    ($($claims:tt)+) => { claims! {
        {
            epoll_automatic: native Automatic,
            epoll_switches: native Switches,
            epoll_tick: native Tick,
        }
        $($claims)+
    } };
}

on_every_rung! {
    /// Rule 38: the statistics show the requested method, or the best available instead of
    /// `Automatic`.
    fn a_port_tells_how_it_finds_out_who_blocks(rung: &Rung<'_>) {
        let told = rung.port::<(), ()>(1).stats().block_detection;
        if rung.detection == BlockDetection::Automatic {
            let switches = rung.on.port_that::<(), ()>(1, BlockDetection::Switches);
            let best = match switches.map_err(|error| error.kind()) {
                Ok(_) => BlockDetection::Switches,
                Err(kind) => {
                    assert_eq!(kind, ErrorKind::Unsupported);
                    BlockDetection::Tick
                }
            };
            assert_eq!(told, best);
        } else {
            assert_eq!(told, rung.detection);
        }
    }

    /// Rule 38: a spinning thread counts as running with every method.
    fn who_spins_keeps_its_seat_on_every_rung(rung: &Rung<'_>) {
        let port = rung.port::<(), usize>(1);
        let gate = Gate::default();
        let takers = Takers::of(rung.on, &port);
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            takers.start(scope, 2, |message| {
                if message == 0 {
                    gate.pass();
                }
            });
            port.post(0).unwrap();
            assert_eq!(takers.hear("the first is taken").0, 0);
            port.post(1).unwrap();
            stays(rung.on, 1, "the seat is taken", || {
                let stats = port.stats();
                (stats.queued, stats.running, stats.blocks_found) == (1, 1, 0)
            });
            gate.open();
            assert_eq!(takers.hear("the second is taken").0, 1);
            settle(rung.on, &port, 2);
        });
    }

    /// Rule 38.
    fn who_exits_frees_its_seat_on_every_rung(rung: &Rung<'_>) {
        a_seat_is_freed_by(rung.on, [rung.port(1), rung.port(1)], |_| {});
    }

    /// Rule 38.
    fn who_panics_frees_its_seat_on_every_rung(rung: &Rung<'_>) {
        a_seat_is_freed_by(rung.on, [rung.port(1), rung.port(1)], |_| {
            resume_unwind(Box::new("on purpose"));
        });
    }

    /// Rule 38.
    fn who_waits_on_another_port_frees_its_seat_on_every_rung(rung: &Rung<'_>) {
        a_seat_is_freed_by(rung.on, [rung.port(1), rung.port(1)], |other| {
            assert_eq!(take(other), None);
        });
    }

    /// Rule 38: a caught panic in a handler loses nothing of the batch.
    fn a_caught_panic_costs_no_packet_and_no_seat(rung: &Rung<'_>) {
        const MESSAGES: usize = 12;
        let port = rung.port::<(), usize>(1);
        let (say, heard) = mpsc::channel();
        (0..MESSAGES).for_each(|message| port.post(message).unwrap());
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            for _ in 0..2 {
                let (say, port) = (say.clone(), &port);
                scope.spawn(move || {
                    let mut batch = Batch::with_capacity(4);
                    let mut serve = || {
                        while let Ok(packets) = port.wait(&mut batch, None) {
                            for packet in packets {
                                let Packet::Posted(message) = packet else { panic!("{packet:?}") };
                                say.send(message).unwrap();
                                if message.is_multiple_of(3) {
                                    resume_unwind(Box::new("on purpose"));
                                }
                            }
                        }
                    };
                    while catch_unwind(AssertUnwindSafe(&mut serve)).is_err() {}
                });
            }
            let mut seen: Vec<_> =
                (0..MESSAGES).map(|_| hear(rung.on, &heard, "all are taken")).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..MESSAGES));
            settle(rung.on, &port, 2);
            let stats = port.stats();
            assert_eq!((stats.running, stats.blocked, stats.queued), (0, 0, 0));
            assert!(heard.try_recv().is_err(), "a message came twice");
        });
    }

    /// Rule 39: while a spinning handler has the only seat, another thread polls within a
    /// millisecond of virtual time. The real time is printed, and must be less than the handler's:
    /// half of the polls must be prompt, or the claim runs again.
    fn an_unattended_port_is_looked_at_on_every_rung(rung: &Rung<'_>) {
        const SOCKETS: usize = 20;
        let port = rung.port::<(), usize>(1);
        let (ours, theirs): (Vec<_>, Vec<_>) =
            (0..SOCKETS).map(|_| rung.on.unix_pair()).unzip();
        for ours in &ours {
            port.register(Registration::new(ours, (), Interest::IN, OneShot::Level)).unwrap();
        }
        let gate = Gate::default();
        let running = AtomicBool::new(false);
        let mut latencies = Vec::new();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            for count in 1..=2 {
                scope.spawn(|| {
                    let mut batch = Batch::with_capacity(1);
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        packets.for_each(drop);
                        running.store(true, SeqCst);
                        gate.pass();
                    }
                });
                settle(rung.on, &port, count);
            }
            port.post(0).unwrap();
            eventually(rung.on, "the seat is taken", || running.load(SeqCst));
            for (number, theirs) in theirs.iter().enumerate() {
                settle(rung.on, &port, 1);
                let begun = Instant::now();
                theirs.write(b"x").unwrap();
                if let Some(kernel) = rung.on.kernel() {
                    kernel.advance(Duration::from_millis(1));
                }
                let found = || port.stats().queued == number + 1;
                eventually_without_time(rung.on, "somebody looks", found);
                latencies.push(begun.elapsed());
            }
            let stats = port.stats();
            assert_eq!((stats.running, stats.parked, stats.blocks_found), (1, 1, 0));
        });
        latencies.sort_unstable();
        println!("found after {:?}, at most {:?}", latencies[SOCKETS / 2], latencies[SOCKETS - 1]);
        if latencies[SOCKETS / 2] >= Duration::from_millis(200) {
            late();
        }
    }
}

where_blocks_are_found! {
    /// Rule 39.
    fn who_waits_for_a_condition_gives_its_seat_away(rung: &Rung<'_>) {
        a_seat_is_given_away_at(rung, &Obstacle::condition());
    }

    /// Rule 39: the other thread also finds packets that the kernel has yet to report.
    fn who_blocks_keeps_no_socket_waiting_on_every_rung(rung: &Rung<'_>) {
        let on = rung.on;
        let (ours, theirs) = on.unix_pair();
        let (port, obstacle) = (rung.port::<(), usize>(1), Obstacle::condition());
        let (say, heard) = mpsc::channel();
        port.register(Registration::new(&ours, (), Interest::IN, OneShot::Level)).unwrap();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            let _clear = Clear(&obstacle);
            for count in 1..=2 {
                let (say, port, obstacle) = (say.clone(), &port, &obstacle);
                scope.spawn(move || {
                    each_packet(port, Batch::with_capacity(1), |packet| {
                            if matches!(packet, Packet::Posted(_)) {
                                sleep_at(on, obstacle, || say.send("posted").unwrap());
                            } else {
                                say.send("ready").unwrap();
                            }
                    });
                });
                settle(on, port, count);
            }
            port.post(0).unwrap();
            assert_eq!(hear(on, &heard, "the first is taken"), "posted");
            theirs.write(b"x").unwrap();
            assert_eq!(hear(on, &heard, "the other one takes over"), "ready");
            assert!(port.stats().blocks_found >= 1);
        });
    }

    /// Rule 39: the limit is one.
    fn who_blocked_exceeds_a_limit_of_one_and_then_nothing_is_handed_out(rung: &Rung<'_>) {
        the_limit_is_exceeded_and_then_kept(rung, 1);
    }

    /// Rule 39: the limit is two.
    fn who_blocked_exceeds_a_limit_of_two_and_then_nothing_is_handed_out(rung: &Rung<'_>) {
        the_limit_is_exceeded_and_then_kept(rung, 2);
    }

    /// Rule 39: both seats are given away, so two other threads run together.
    fn every_seat_may_be_given_away(rung: &Rung<'_>) {
        const LIMIT: usize = 2;
        let on = rung.on;
        let port = rung.port::<(), usize>(LIMIT);
        let obstacles = [Obstacle::condition(), Obstacle::condition()];
        let gate = Gate::default();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            let _clear = [Clear(&obstacles[0]), Clear(&obstacles[1])];
            for count in 1..=2 * LIMIT {
                let (say, port, obstacles, gate) = (say.clone(), &port, &obstacles, &gate);
                scope.spawn(move || {
                    while let Some(message) = take(port) {
                        let tell = || say.send(message).unwrap();
                        if let Some(obstacle) = obstacles.get(message) {
                            sleep_at(on, obstacle, tell);
                        } else {
                            tell();
                            gate.pass();
                        }
                    }
                });
                settle(on, port, count);
            }
            for message in 0..2 * LIMIT {
                port.post(message).unwrap();
                assert_eq!(hear(on, &heard, "it is taken"), message);
            }
            let stats = port.stats();
            assert_eq!((stats.running, stats.blocked), (LIMIT, LIMIT));
            assert_eq!(stats.blocks_found, 2);
            gate.open();
            obstacles.iter().for_each(Obstacle::clear);
            settle(on, &port, 2 * LIMIT);
            assert_eq!((port.stats().running, port.stats().blocked), (0, 0));
        });
    }
}

where_the_kernel_is_asked! {
    /// Rule 39.
    fn who_waits_for_a_lock_gives_its_seat_away_epoll(rung: &Rung<'_>) {
        a_seat_is_given_away_at(rung, &Obstacle::lock());
    }

    /// Rule 39.
    fn who_reads_from_an_empty_pipe_gives_its_seat_away_epoll(rung: &Rung<'_>) {
        a_seat_is_given_away_at(rung, &Obstacle::pipe());
    }

    /// Rule 39.
    fn who_reads_from_a_silent_socket_gives_its_seat_away_epoll(rung: &Rung<'_>) {
        a_seat_is_given_away_at(rung, &Obstacle::socket());
    }

    /// Rule 39.
    fn who_touches_a_missing_page_gives_its_seat_away_epoll(rung: &Rung<'_>) {
        match Obstacle::missing_page() {
            Ok(obstacle) => a_seat_is_given_away_at(rung, &obstacle),
            Err(error) => println!(
                "SKIPPED who_touches_a_missing_page_gives_its_seat_away_epoll: userfaultfd: {error}"
            ),
        }
    }

    /// Rule 38: two threads spin on one processor, one of them a handler. However often it is
    /// preempted, no thread is taken for a sleeping one.
    fn who_is_preempted_keeps_its_seat_epoll(rung: &Rung<'_>) {
        const PREEMPTIONS: u64 = 10;
        let port = rung.port::<(), usize>(1);
        let over = Gate::default();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, [&over]);
            for count in 1..=2 {
                let (say, port, over) = (say.clone(), &port, &over);
                scope.spawn(move || {
                    // The newest thread gets the first message.
                    if count == 2 {
                        scheduler::share_one_processor();
                    }
                    while let Some(message) = take(port) {
                        say.send((message, ThreadNumber::current())).unwrap();
                        if message == 0 {
                            over.pass_without_a_call();
                        }
                    }
                });
                settle(rung.on, port, count);
            }
            port.post(0).unwrap();
            let (message, handler) = hear(rung.on, &heard, "the first is taken");
            assert_eq!(message, 0);
            scope.spawn(|| {
                scheduler::share_one_processor();
                over.pass_without_a_call();
            });
            port.post(1).unwrap();
            let before = handler.preemptions();
            eventually(rung.on, "it is preempted", || {
                let stats = port.stats();
                assert_eq!((stats.queued, stats.running, stats.blocked), (1, 1, 0));
                assert_eq!(stats.blocks_found, 0);
                handler.preemptions() >= before + PREEMPTIONS
            });
            over.open();
            assert_eq!(hear(rung.on, &heard, "the second is taken").0, 1);
        });
    }
}

testkit::on_every_system! {
    /// Rule 38: a port that relies on announcements detects nothing.
    fn a_block_goes_unnoticed_where_only_announced_ones_count(system: &System) {
        system.several_threads_wait();
        let port = system.port_that::<(), usize>(1, BlockDetection::Announced).unwrap();
        let obstacles = [Obstacle::condition(), Obstacle::condition()];
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            let _clear = [Clear(&obstacles[0]), Clear(&obstacles[1])];
            for count in 1..=2 {
                let (say, port, [first, second]) = (say.clone(), &port, &obstacles);
                scope.spawn(move || {
                    while let Some(message) = take(port) {
                        if message == 0 {
                            sleep_at(system, first, || say.send("it sleeps").unwrap());
                            say.send("it announces").unwrap();
                            port.blocking(|| second.meet());
                        } else {
                            say.send("another one").unwrap();
                        }
                    }
                });
                settle(system, port, count);
            }
            port.post(0).unwrap();
            assert_eq!(hear(system, &heard, "it is taken"), "it sleeps");
            port.post(1).unwrap();
            stays(system, 1, "the seat is taken", || {
                let stats = port.stats();
                (stats.queued, stats.running, stats.blocked) == (1, 1, 0)
            });
            obstacles[0].clear();
            // From here on no time passes on a simulated kernel: no tick is needed.
            let next = || heard.recv_timeout(system.soon()).expect("the seat was not given away");
            assert_eq!(next(), "it announces");
            assert_eq!(next(), "another one");
            assert_eq!((port.stats().blocked, port.stats().blocks_found), (1, 0));
            obstacles[1].clear();
            settle(system, &port, 2);
            assert_eq!(port.stats().blocks_found, 0);
        });
    }
}

/// Rule 38: requesting a method that the machine lacks fails.
#[test]
fn where_switches_are_refused_the_best_is_the_tick_sim() {
    testkit::run(System::simulated, |on| {
        on.kernel().unwrap().hide_switches(true);
        switches_are_refused(on, None);
        on.kernel().unwrap().hide_switches(false);
        let rung = Rung { on, detection: BlockDetection::Switches };
        assert_eq!(rung.port::<(), ()>(1).stats().block_detection, BlockDetection::Switches);
    });
}

/// Rule 38: the same on the real system, in a process whose sandbox refuses the call.
#[test]
fn where_switches_are_refused_the_best_is_the_tick_epoll() {
    if sandbox::is_inside() {
        return testkit::run(System::native, |on| switches_are_refused(on, Some(libc::EPERM)));
    }
    let name = "detection::where_switches_are_refused_the_best_is_the_tick_epoll";
    if let Err(error) = sandbox::run(name, &[libc::SYS_perf_event_open], libc::EPERM) {
        println!("SKIPPED {name}: seccomp: {error}");
    }
}

#[track_caller]
fn switches_are_refused(on: &System, code: Option<i32>) {
    on.several_threads_wait();
    let refused = on.port_that::<(), ()>(1, BlockDetection::Switches).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!(refused.call(), Call::Create);
    if code.is_some() {
        assert_eq!(refused.os_code(), code);
    }
    let rung = Rung { on, detection: BlockDetection::Automatic };
    assert_eq!(rung.port::<(), ()>(1).stats().block_detection, BlockDetection::Tick);
    a_seat_is_given_away_at(&rung, &Obstacle::condition());
}

/// The test's own thread holds a message of a port with one seat, and another thread waits. Passes
/// `act` a receiver of the messages that the other thread takes.
fn with_one_who_runs(
    detection: BlockDetection,
    act: impl Fn(&sim::Kernel, &Port<(), usize>, &mpsc::Receiver<usize>),
) {
    let on = &System::simulated();
    on.several_threads_wait();
    let port = on.port_that::<(), usize>(1, detection).unwrap();
    let (say, heard) = mpsc::channel();
    port.post(0).unwrap();
    assert_eq!(take(&port), Some(0));
    thread::scope(|scope| {
        let _end = End::of(&port, []);
        scope.spawn(|| {
            let say = say;
            while let Some(message) = take(&port) {
                say.send(message).unwrap();
            }
        });
        settle(on, &port, 1);
        let _drain = Drain(&port);
        act(on.kernel().unwrap(), &port, &heard);
    });
}

/// Closes the port and takes the remaining messages, so that a failing test ends.
struct Drain<'a>(&'a Port<(), usize>);

impl Drop for Drain<'_> {
    fn drop(&mut self) {
        self.0.close();
        while take(self.0).is_some() {}
    }
}

/// Rule 39: a posting thread reads the scheduler's records of the running threads, without waiting
/// for a tick. A thread that sleeps only briefly keeps its seat.
#[test]
fn a_block_is_noticed_by_who_posts_sim() {
    with_one_who_runs(BlockDetection::Switches, |kernel, port, heard| {
        let me = thread::current().id();
        kernel.set_thread_asleep(me, true);
        port.post(1).unwrap();
        assert_eq!((port.stats().queued, port.stats().blocks_found), (1, 0));
        // Less than until the next tick.
        kernel.advance(Duration::from_micros(200));
        assert!(kernel.wait_for_sleepers(1, SOON));
        assert_eq!((port.stats().queued, port.stats().blocks_found), (1, 0));
        port.post(2).unwrap();
        assert_eq!(heard.recv_timeout(SOON), Ok(1));
        assert_eq!(heard.recv_timeout(SOON), Ok(2));
        assert!(kernel.wait_for_sleepers(1, SOON));
        assert_eq!((port.stats().blocked, port.stats().blocks_found), (1, 1));
        kernel.set_thread_asleep(me, false);
        assert_eq!((port.stats().running, port.stats().blocked), (1, 0));
    });
}

/// Rule 38: a thread that was found asleep and then announces a block is blocked for as long as it
/// announces, whatever the scheduler's records show.
#[test]
fn who_was_found_asleep_may_announce_his_next_block_sim() {
    with_one_who_runs(BlockDetection::Switches, |kernel, port, heard| {
        let me = thread::current().id();
        kernel.set_thread_asleep(me, true);
        kernel.advance(Duration::from_micros(200));
        assert!(kernel.wait_for_sleepers(1, SOON));
        port.post(1).unwrap();
        assert_eq!(heard.recv_timeout(SOON), Ok(1));
        assert!(kernel.wait_for_sleepers(1, SOON));
        kernel.set_thread_asleep(me, false);
        port.blocking(|| {
            assert_eq!((port.stats().running, port.stats().blocked), (0, 1));
            port.post(2).unwrap();
            assert_eq!(heard.recv_timeout(SOON), Ok(2));
            assert!(kernel.wait_for_sleepers(1, SOON));
        });
        assert_eq!((port.stats().running, port.stats().blocked), (1, 0));
        assert_eq!(port.stats().blocks_found, 1);
    });
}

/// Rule 39: the watchdog detects a block at its next tick if the scheduler keeps records, otherwise
/// one tick later.
#[test]
fn a_block_is_noticed_within_one_tick_or_two_sim() {
    for (detection, ticks) in
        [(BlockDetection::Switches, 1), (BlockDetection::Tick, 2), (BlockDetection::Automatic, 2)]
    {
        with_one_who_runs(detection, |kernel, port, heard| {
            kernel.set_thread_asleep(thread::current().id(), true);
            let begun = kernel.now();
            port.post(1).unwrap();
            let mut taken = heard.try_recv();
            while taken.is_err() {
                let time = kernel.now() - begun;
                assert!(time < Duration::from_millis(ticks), "{detection:?}: {time:?}");
                kernel.advance(Duration::from_micros(250));
                // The other thread waits again, with or without the message.
                assert!(kernel.wait_for_sleepers(1, SOON));
                taken = heard.try_recv();
            }
            assert_eq!(taken, Ok(1));
            assert_eq!(port.stats().blocks_found, 1);
        });
    }
}

/// Rule 39: where threads often sleep and the scheduler keeps no records, the port asks the system
/// more often and detects each sleep sooner.
#[test]
fn who_sleeps_where_threads_often_sleep_is_noticed_sooner_sim() {
    with_one_who_runs(BlockDetection::Tick, |kernel, port, heard| {
        let me = thread::current().id();
        let mut batch = Batch::new();
        let times = [1, 2, 3, 4].map(|message| {
            kernel.set_thread_asleep(me, true);
            let begun = kernel.now();
            port.post(message).unwrap();
            while heard.try_recv() != Ok(message) {
                kernel.advance(Duration::from_micros(25));
                assert!(kernel.wait_for_sleepers(1, SOON));
            }
            let time = kernel.now() - begun;
            kernel.set_thread_asleep(me, false);
            // This wait times out, so the thread runs.
            assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
            time
        });
        assert!(times[0] <= Duration::from_millis(2), "{times:?}");
        assert!(times[3] <= Duration::from_micros(250), "{times:?}");
        assert_eq!(port.stats().blocks_found, 4);
    });
}

/// Rule 39: the port asks the system about a thread once. After that the scheduler keeps records.
#[test]
fn a_thread_that_was_found_asleep_is_not_asked_about_again_sim() {
    with_one_who_runs(BlockDetection::Automatic, |kernel, port, heard| {
        let me = thread::current().id();
        let mut batch = Batch::new();
        let mut asked = Vec::new();
        for message in 1..=3 {
            kernel.set_thread_asleep(me, true);
            port.post(message).unwrap();
            while heard.try_recv() != Ok(message) {
                kernel.advance(Duration::from_millis(1));
                assert!(kernel.wait_for_sleepers(1, SOON));
            }
            asked.push(kernel.calls().asleep);
            kernel.set_thread_asleep(me, false);
            // This wait times out, so the thread runs.
            assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
        }
        assert!(asked[0] > 0, "somebody must have asked");
        assert_eq!(asked, [asked[0]; 3]);
        assert_eq!(port.stats().blocks_found, 3);
    });
}

/// Rule 39: after a block has ended, messages cost the same as before.
#[test]
fn a_block_that_is_over_costs_nothing_more_sim() {
    for detection in [BlockDetection::Switches, BlockDetection::Tick] {
        with_one_who_runs(detection, |kernel, port, heard| {
            // A thread that waits on another port no longer runs on this one.
            let elsewhere = System::simulated().port::<(), usize>(1);
            let mut batch = Batch::new();
            let mut goes_to = |port: &Port<(), usize>| {
                assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
            };
            // The cost of twenty-four messages to the waiting thread.
            let cost = || {
                assert!(kernel.wait_for_sleepers(1, SOON));
                let before = kernel.calls();
                for message in 0..24 {
                    port.post(message).unwrap();
                    assert_eq!(heard.recv_timeout(SOON), Ok(message));
                    assert!(kernel.wait_for_sleepers(1, SOON));
                }
                kernel.calls() - before
            };
            goes_to(&elsewhere);
            // With the first of them, the other thread gets the kernel's wait.
            cost();
            let before = cost();
            goes_to(port);
            kernel.set_thread_asleep(thread::current().id(), true);
            port.post(0).unwrap();
            while heard.try_recv() != Ok(0) {
                kernel.advance(Duration::from_millis(1));
                assert!(kernel.wait_for_sleepers(1, SOON));
            }
            assert_eq!((port.stats().running, port.stats().blocked), (0, 1));
            kernel.set_thread_asleep(thread::current().id(), false);
            goes_to(&elsewhere);
            // The watchdog stops when it has seen that nothing happens.
            for _ in 0..3 {
                kernel.advance(Duration::from_millis(1));
                assert!(kernel.wait_for_sleepers(1, SOON));
            }
            cost();
            assert_eq!(cost(), before);
            assert_eq!((port.stats().running, port.stats().blocked), (0, 0));
        });
    }
}

/// Clears an obstacle at the end of the test, even if it fails.
struct Clear<'a>(&'a Obstacle);

impl Drop for Clear<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// Calls `tell`, then sleeps on `obstacle`.
fn sleep_at(on: &System, obstacle: &Obstacle, tell: impl FnOnce()) {
    let me = thread::current().id();
    script(on, me, true);
    tell();
    obstacle.meet();
    script(on, me, false);
}

/// With a limit of one, a handler blocks on `obstacle`, and another thread takes its place.
fn a_seat_is_given_away_at(rung: &Rung<'_>, obstacle: &Obstacle) {
    let on = rung.on;
    let port = rung.port::<(), usize>(1);
    let passed = AtomicBool::new(false);
    let (say, heard) = mpsc::channel();
    thread::scope(|scope| {
        let _end = End::of(&port, []);
        let _clear = Clear(obstacle);
        for count in 1..=2 {
            let (say, port, passed) = (say.clone(), &port, &passed);
            scope.spawn(move || {
                while let Some(message) = take(port) {
                    if message == 0 {
                        sleep_at(on, obstacle, || say.send(message).unwrap());
                        passed.store(true, SeqCst);
                    } else {
                        say.send(message).unwrap();
                    }
                }
            });
            settle(on, port, count);
        }
        for message in 0..4 {
            port.post(message).unwrap();
            assert_eq!(hear(on, &heard, "it is taken"), message);
        }
        assert!(!passed.load(SeqCst), "the obstacle is none");
        assert!(port.stats().blocks_found >= 1);
        eventually(on, "one blocks, one waits", || {
            let stats = port.stats();
            (stats.running, stats.blocked, stats.parked) == (0, 1, 1)
        });
        obstacle.clear();
        settle(on, &port, 2);
        assert!(passed.load(SeqCst));
        assert_eq!((port.stats().running, port.stats().blocked), (0, 0));
        port.post(4).unwrap();
        assert_eq!(hear(on, &heard, "it is taken"), 4);
    });
}

/// A handler blocks, the others take all `limit` seats, and the handler runs again. One more thread
/// than the limit then runs, and nothing is delivered until two of them have returned.
fn the_limit_is_exceeded_and_then_kept(rung: &Rung<'_>, limit: usize) {
    let on = rung.on;
    let port = rung.port::<(), usize>(limit);
    let obstacle = Obstacle::condition();
    // A gate for each message whose handler spins, including the first one that blocks.
    let gates: Vec<_> = (0..=limit).map(|_| Gate::default()).collect();
    let last = gates.len();
    let (say, heard) = mpsc::channel();
    thread::scope(|scope| {
        let _end = End::of(&port, &gates);
        let _clear = Clear(&obstacle);
        for count in 1..=limit + 2 {
            let (say, port, obstacle, gates) = (say.clone(), &port, &obstacle, &gates);
            scope.spawn(move || {
                while let Some(message) = take(port) {
                    let tell = || say.send(message).unwrap();
                    if message == 0 {
                        sleep_at(on, obstacle, tell)
                    } else {
                        tell()
                    }
                    if let Some(gate) = gates.get(message) {
                        gate.pass();
                    }
                }
            });
            settle(on, port, count);
        }
        for message in 0..=limit {
            port.post(message).unwrap();
            assert_eq!(hear(on, &heard, "it is taken"), message);
        }
        eventually(on, "one blocks", || (port.stats().running, port.stats().blocked) == (limit, 1));
        obstacle.clear();
        eventually(on, "all run", || {
            (port.stats().running, port.stats().blocked) == (limit + 1, 0)
        });
        port.post(last).unwrap();
        let kept = |running| move |stats: Stats| (stats.queued, stats.running) == (1, running);
        stays(on, 1, "nothing is handed out", || kept(limit + 1)(port.stats()));
        // First a thread that never blocked returns, then the one that did.
        gates[1].open();
        settle(on, &port, 2);
        stays(on, 2, "nothing is handed out", || kept(limit)(port.stats()));
        gates[0].open();
        assert_eq!(hear(on, &heard, "the last is taken"), last);
        settle(on, &port, 3);
        assert_eq!(port.stats().running, limit - 1);
    });
}

/// Rule 39: the scheduler's records use the machine's clock, which differs from that of a process
/// in a time namespace. A simulated kernel has one clock.
#[test]
fn a_block_is_noticed_where_the_clock_was_moved_epoll() {
    const NAME: &str = "detection::a_block_is_noticed_where_the_clock_was_moved_epoll";
    const CENTURY: i64 = 100 * 365 * 24 * 3600;
    if !in_a_process_of_its_own(NAME) {
        return;
    }
    // Behind by nearly the whole uptime. A record that seemed to lie in the future would do so for
    // longer than the claim waits.
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime: i64 = uptime.split('.').next().unwrap().parse().unwrap();
    for ahead in [CENTURY, 1 - uptime] {
        let status = in_forked_child_with_clock(ahead, || {
            let on = System::native();
            let ways = [BlockDetection::Automatic, BlockDetection::Switches, BlockDetection::Tick];
            let ports: Vec<_> =
                ways.into_iter().filter_map(|way| on.port_that(1, way).ok()).collect();
            each_block_is_noticed(&on, &ports, 3, || {});
            0
        });
        match status {
            Ok(status) => assert_eq!(status, 0, "by {ahead} s"),
            Err(refused) => println!("SKIPPED {NAME}: no time namespace can be made: {refused}"),
        }
    }
}

/// Rule 39: a thread that calls vfork(2) is suspended until the child executes its own program.
/// Runs in a child process, because the vforked process shares all descriptors until then.
#[test]
fn who_waits_for_a_vforked_child_gives_its_seat_away_epoll() {
    const NAME: &str = "detection::who_waits_for_a_vforked_child_gives_its_seat_away_epoll";
    if !in_a_process_of_its_own(NAME) {
        return;
    }
    testkit::run(System::native, |on| {
        for way in [BlockDetection::Automatic, BlockDetection::Switches, BlockDetection::Tick] {
            test(on, way, NAME, |rung| a_seat_is_given_away_at(rung, &Obstacle::slow_start()));
        }
    });
}
