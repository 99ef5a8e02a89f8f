//! Rules 36 to 40: the concurrency value, who is released, who counts as running, and the wait.
//!
//! A handler that *runs* spins here, and one that *blocks* waits for a channel: on the real system
//! the port looks at the thread, and a simulated kernel is told.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, LazyLock, Mutex, mpsc};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use completion_port::{
    Batch, BlockDetection, Events, Interest, OneShot, Packet, Port, Registration, sim,
};
use testkit::scheduler::ThreadNumber;
use testkit::{Socket, System, in_a_process_of_its_own, on_every_system};

use crate::call::{catch_signals, interrupt};
use crate::removal::with_many_descriptors;

/// What keeps a handler running until the test opens it.
#[derive(Default)]
pub(crate) struct Gate(AtomicBool);

impl Gate {
    pub(crate) fn open(&self) {
        self.0.store(true, SeqCst);
    }

    /// Spins until the gate is open; the thread counts as running all the time.
    pub(crate) fn pass(&self) {
        let begun = Instant::now();
        while !self.0.load(SeqCst) {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody opened the gate");
            thread::yield_now();
        }
    }

    /// The same, without a single call of the system.
    pub(crate) fn pass_without_a_call(&self) {
        let begun = Instant::now();
        while !self.0.load(SeqCst) {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody opened the gate");
            std::hint::spin_loop();
        }
    }
}

/// Ends a port's threads when the test is over, also if it has failed.
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

/// Waits until `condition` holds, bounded by [`System::soon`]; time goes on in steps of a
/// millisecond on a simulated kernel, and no faster than it really does, so that a thread which gets no
/// processor for a while does not find that much more time has passed than it could take.
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

/// The time by the clock of `on`.
pub(crate) fn now(on: &System) -> Duration {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    on.kernel().map_or_else(|| BEGUN.elapsed(), |kernel| kernel.now())
}

/// Checks that `condition` holds all the time for [`System::quiet`], while `waiting` threads wait.
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

/// Waits until exactly `count` threads wait on `port`. No time passes on a simulated kernel.
#[track_caller]
pub(crate) fn settle<K, M>(on: &System, port: &Port<K, M>, count: usize) {
    let begun = Instant::now();
    while port.stats().parked != count {
        assert!(begun.elapsed() < on.soon(), "{count} threads should wait: {port:#?}");
        thread::yield_now();
    }
    if let Some(kernel) = on.kernel() {
        assert!(kernel.wait_for_sleepers(count, on.soon()), "{count} should wait: {kernel:?}");
    }
}

/// Takes one message; `None` once the port is closed.
pub(crate) fn take<M>(port: &Port<impl Sized, M>) -> Option<M> {
    let mut batch = Batch::with_capacity(1);
    loop {
        match port.wait(&mut batch, None).ok()?.next() {
            Some(Packet::Posted(message)) => return Some(message),
            Some(_) => panic!("no message, but something else"),
            // Taken back before this thread came to it, and the port was closed then.
            None => {}
        }
    }
}

/// The message that a thread tells the test, which waits for it on either clock.
#[track_caller]
pub(crate) fn hear<T>(on: &System, heard: &mpsc::Receiver<T>, what: &str) -> T {
    let mut said = None;
    eventually(on, what, || {
        said = heard.try_recv().ok();
        said.is_some()
    });
    said.unwrap()
}

/// Marks `thread` as one that sleeps in the kernel, or does not, where the port cannot see for
/// itself.
pub(crate) fn script(on: &System, thread: ThreadId, asleep: bool) {
    if let Some(kernel) = on.kernel() {
        kernel.set_thread_asleep(thread, asleep);
    }
}

on_every_system! {
    /// Rule 36.
    fn the_usual_concurrency_is_the_number_of_processors(system: &System) {
        let processors = thread::available_parallelism().unwrap().get();
        assert_eq!(system.port::<(), ()>(0).concurrency(), processors);
        assert_eq!(system.port::<(), ()>(0).stats().concurrency, processors);
        assert_eq!(system.port::<(), ()>(3).concurrency(), 3);
    }

    /// Rule 36: the limit of one.
    fn at_most_one_of_eight_threads_runs(system: &System) {
        at_most(system, 1);
    }

    /// Rule 36: two.
    fn at_most_two_of_eight_threads_run(system: &System) {
        at_most(system, 2);
    }

    /// Rule 36: four.
    fn at_most_four_of_eight_threads_run(system: &System) {
        at_most(system, 4);
    }

    /// Rule 40: and an idle thread is released for it.
    fn what_is_left_in_an_iterator_reaches_a_thread_that_waits(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(2);
        let (say, heard) = mpsc::channel();
        let gate = Gate::default();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            let (port, gate) = (&port, &gate);
            scope.spawn(move || {
                while let Some(message) = take(port) {
                    let _ = say.send(message);
                }
            });
            settle(system, port, 1);
            // The newest gets the message, does not want it, and does something else.
            scope.spawn(move || {
                drop(port.wait(&mut Batch::new(), None));
                gate.pass();
            });
            settle(system, port, 2);
            port.post(7).unwrap();
            assert_eq!(hear(system, &heard, "somebody takes it"), 7);
        });
    }

    /// Rule 36: the limit is not only kept but reached, whatever the number of processors.
    fn as_many_threads_run_as_the_limit_says(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(4);
        let together = AtomicUsize::new(0);
        let gate = Gate::default();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            for count in 1..=8 {
                scope.spawn(|| {
                    while take(&port).is_some() {
                        together.fetch_add(1, SeqCst);
                        gate.pass();
                        together.fetch_sub(1, SeqCst);
                    }
                });
                settle(system, &port, count);
            }
            (0..8).for_each(|message| port.post(message).unwrap());
            eventually(system, "four run", || together.load(SeqCst) == 4);
            assert_eq!(port.stats().running, 4);
            stays(system, 4, "four run", || together.load(SeqCst) == 4);
        });
    }

    /// Rule 37: threads are released in the opposite order of their coming, packets in that of
    /// theirs.
    fn the_thread_that_came_last_is_released_first(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(8);
        let gate = Gate::default();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            for name in 0..4 {
                let (say, port, gate) = (say.clone(), &port, &gate);
                scope.spawn(move || {
                    let Some(message) = take(port) else { return };
                    say.send((message, name)).unwrap();
                    gate.pass();
                });
                settle(system, port, name + 1);
            }
            (0..4).for_each(|message| port.post(message).unwrap());
            let mut released: Vec<_> =
                (0..4).map(|_| hear(system, &heard, "a message is taken")).collect();
            released.sort_unstable();
            assert_eq!(released, [(0, 3), (1, 2), (2, 1), (3, 0)]);
            assert_eq!(port.stats().queued, 0);
        });
    }

    /// Rule 37: also where packets take long, so that several threads sleep in the kernel's wait.
    fn a_crowd_in_the_kernels_wait_is_released_newest_first(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(8);
        make_packets_long(system, &port);
        let (say, heard) = mpsc::channel();
        let gate = Gate::default();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            for name in 0..4 {
                let (say, port, gate) = (say.clone(), &port, &gate);
                scope.spawn(move || {
                    let Some(message) = take(port) else { return };
                    say.send((message, name)).unwrap();
                    gate.pass();
                });
                settle(system, port, name + 1);
            }
            for message in 0..4 {
                port.post(message).unwrap();
                assert_eq!(hear(system, &heard, "a message is taken"), (message, 3 - message));
            }
        });
    }

    /// Rule 39: while a long packet is handled the kernel itself releases a thread for the next one; up
    /// to the limit.
    fn sockets_with_long_handlers_are_taken_without_anybody_being_woken_by_the_port(system: &System) {
        system.several_threads_wait();
        let port = system.port::<usize, ()>(2);
        make_packets_long(system, &port);
        let pairs: Vec<_> = (0..3).map(|_| system.unix_pair()).collect();
        let (ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        register(&port, &ours);
        let gate = Gate::default();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            for count in 1..=3 {
                let (say, port, gate) = (say.clone(), &port, &gate);
                scope.spawn(move || take_sockets(port, &say, gate));
                settle(system, port, count);
            }
            let before = port.stats().wakes;
            for (key, socket) in theirs[..2].iter().enumerate() {
                socket.write(b"x").unwrap();
                assert_eq!(hear(system, &heard, "a socket is taken"), key);
                if key == 0 && !system.spreads() {
                    assert_eq!(port.stats().wakes, before);
                }
            }
            theirs[2].write(b"x").unwrap();
            stays(system, 1, "two run", || heard.try_recv().is_err());
            gate.open();
            assert_eq!(hear(system, &heard, "the third is taken"), 2);
        });
    }

    /// Rule 6: what a caller has moved elsewhere cannot be taken back, so that it should take less at a time
    /// where threads are found asleep.
    fn who_can_give_nothing_back_is_advised_to_take_less_where_threads_sleep(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let (say, heard) = mpsc::channel();
        let (go_on, told) = mpsc::channel::<()>();
        let told = Mutex::new(told);
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            for count in 1..=2 {
                let (say, port, told) = (say.clone(), &port, &told);
                scope.spawn(move || {
                    let me = thread::current().id();
                    script(system, me, false);
                    while let Some(message) = take(port) {
                        if message == 0 {
                            script(system, me, true);
                            say.send(message).unwrap();
                            let _ = told.lock().unwrap().recv();
                            script(system, me, false);
                        } else {
                            say.send(message).unwrap();
                        }
                    }
                });
                settle(system, port, count);
            }
            assert!(port.advised_room() > 1_000_000, "{}", port.advised_room());
            for _ in 0..2 {
                let begun = now(system);
                for message in [0, 1] {
                    port.post(message).unwrap();
                    assert_eq!(hear(system, &heard, "a message is taken"), message);
                }
                let advised = port.advised_room();
                // What is advised rises again after a second, which a starved thread may have taken.
                assert!(advised == 1 || now(system) - begun > Duration::from_millis(900), "{advised}");
                go_on.send(()).unwrap();
                settle(system, &port, 2);
            }
            let Some(kernel) = system.kernel() else { return };
            for least in [4, 16, 64, 1_000_000] {
                kernel.advance(Duration::from_secs(1));
                assert!(port.advised_room() >= least, "{}", port.advised_room());
            }
            drop(go_on);
        });
    }

    /// Rule 37: who comes back while packets are queued is served before those that wait.
    fn a_thread_that_comes_back_takes_the_next_packet_itself(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let gate = Gate::default();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            for name in 0..3 {
                let (say, port, gate) = (say.clone(), &port, &gate);
                scope.spawn(move || {
                    while let Some(message) = take(port) {
                        gate.pass();
                        say.send((message, name)).unwrap();
                    }
                });
                settle(system, port, name + 1);
            }
            (0..6).for_each(|message| port.post(message).unwrap());
            eventually(system, "the newest runs", || port.stats().running == 1);
            stays(system, 2, "five wait", || port.stats().queued == 5);
            gate.open();
            for message in 0..6 {
                assert_eq!(hear(system, &heard, "a message is taken"), (message, 2));
            }
            settle(system, &port, 3);
            assert!(heard.try_recv().is_err(), "a message came twice");
        });
    }

    /// Rule 38: a wait that ends for lack of time leaves its thread running.
    fn a_thread_whose_time_is_over_counts_as_running(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let (say, heard) = mpsc::channel();
        let gate = Gate::default();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            let (early, late) = (say.clone(), say);
            let (port, gate) = (&port, &gate);
            scope.spawn(move || {
                let mut batch = Batch::new();
                assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
                early.send(("empty", 0)).unwrap();
                gate.pass();
                while let Some(message) = take(port) {
                    early.send(("first", message)).unwrap();
                }
            });
            assert_eq!(hear(system, &heard, "time is over"), ("empty", 0));
            assert_eq!(port.stats().running, 1);
            scope.spawn(move || {
                while let Some(message) = take(port) {
                    late.send(("second", message)).unwrap();
                }
            });
            settle(system, port, 1);
            port.post(7).unwrap();
            stays(system, 1, "the seat is taken", || port.stats().queued == 1);
            gate.open();
            assert_eq!(hear(system, &heard, "the message is taken"), ("first", 7));
            settle(system, port, 2);
            assert!(heard.try_recv().is_err());
        });
    }

    /// Rule 38: with every seat taken nothing is handed out, however the others ask.
    fn with_every_seat_taken_nobody_gets_a_packet(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let gate = Gate::default();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            scope.spawn(|| {
                while let Some(message) = take(&port) {
                    say.send(message).unwrap();
                    gate.pass();
                }
            });
            settle(system, &port, 1);
            (0..3).for_each(|message| port.post(message).unwrap());
            assert_eq!(hear(system, &heard, "the first is taken"), 0);
            let mut batch = Batch::new();
            for _ in 0..20 {
                assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
            }
            assert_eq!(port.stats().queued, 2);
            gate.open();
            // This thread runs as well now, because its time was over, until it waits again. Then
            // it takes what the other one leaves.
            let mut seen = vec![0];
            while seen.len() < 3 {
                let packets = port.wait(&mut batch, Duration::ZERO).unwrap();
                seen.extend(packets.filter_map(|packet| match packet {
                    Packet::Posted(message) => Some(message),
                    _ => None,
                }));
                seen.extend(heard.try_iter());
            }
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2]);
        });
    }

    /// Rule 38: spinning is running, for however long.
    fn a_thread_that_spins_keeps_its_seat(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let gate = Gate::default();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            for name in 0..2 {
                let (say, port, gate) = (say.clone(), &port, &gate);
                scope.spawn(move || {
                    while let Some(message) = take(port) {
                        say.send((message, name)).unwrap();
                        if message == 0 {
                            gate.pass();
                        }
                    }
                });
                settle(system, port, name + 1);
            }
            port.post(0).unwrap();
            port.post(1).unwrap();
            assert_eq!(hear(system, &heard, "the first is taken"), (0, 1));
            stays(system, 1, "the other waits", || {
                let stats = port.stats();
                stats.queued == 1 && stats.running == 1 && stats.blocked == 0
            });
            gate.open();
            assert_eq!(hear(system, &heard, "the second is taken"), (1, 1));
            settle(system, &port, 2);
        });
    }

    /// Rule 38.
    fn a_thread_that_exits_frees_its_seat(system: &System) {
        a_seat_is_freed_by(system, two_ports(system), |_| {});
    }

    /// Rule 38.
    fn a_thread_that_panics_frees_its_seat(system: &System) {
        // Without the words that a panic prints.
        a_seat_is_freed_by(system, two_ports(system), |_| resume_unwind(Box::new("on purpose")));
    }

    /// Rule 38: a thread runs with packets of one port at a time.
    fn a_thread_that_waits_on_another_port_frees_its_seat(system: &System) {
        a_seat_is_freed_by(system, two_ports(system), |other| {
            assert_eq!(take(other), None);
        });
    }

    /// Rule 38.
    fn blocking_frees_the_seat_at_once(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let (say, heard) = mpsc::channel();
        let (go_on, blocked) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            let port = &port;
            for name in 0..2 {
                let say = say.clone();
                scope.spawn(move || {
                    while let Some(message) = take(port) {
                        say.send((message, name)).unwrap();
                    }
                });
                settle(system, port, name + 1);
            }
            scope.spawn(move || {
                assert_eq!(take(port), Some(0));
                // Ends when the test gives up as well.
                let _ = port.blocking(|| blocked.recv());
                assert!(port.stats().running >= 1, "it runs again");
            });
            settle(system, port, 3);
            port.post(0).unwrap();
            eventually_without_time(system, "it blocks", || port.stats().blocked == 1);
            port.post(1).unwrap();
            // No tick is needed: the clock of a simulated kernel stands still.
            let taken = heard.recv_timeout(system.soon()).expect("the seat was not given away");
            assert_eq!(taken, (1, 1));
            drop(go_on);
        });
    }

    /// Rule 38: the end of an inner block is not that of the outer one.
    fn blocking_within_blocking_ends_with_the_outer_one(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let (say, heard) = mpsc::channel();
        let gate = Gate::default();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            let port = &port;
            scope.spawn(move || {
                while let Some(message) = take(port) {
                    say.send(message).unwrap();
                }
            });
            settle(system, port, 1);
            let gate = &gate;
            scope.spawn(move || {
                assert_eq!(take(port), Some(0));
                port.blocking(|| {
                    assert_eq!(port.blocking(|| 5), 5);
                    gate.pass();
                });
                assert_eq!(port.stats().blocked, 0);
                assert!(port.stats().running >= 1);
            });
            settle(system, port, 2);
            port.post(0).unwrap();
            eventually_without_time(system, "it blocks", || port.stats().blocked == 1);
            stays(system, 1, "it blocks", || port.stats().blocked == 1);
            port.post(1).unwrap();
            assert_eq!(hear(system, &heard, "the other one takes over"), 1);
        });
    }

    /// Rule 38: a panic ends a block as a return does.
    fn a_panic_while_blocking_ends_the_block(system: &System) {
        let port = system.port::<(), usize>(1);
        let mut batch = Batch::new();
        port.post(1).unwrap();
        assert_eq!(port.wait(&mut batch, system.soon()).unwrap().count(), 1);
        assert_eq!((port.stats().running, port.stats().blocked), (1, 0));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            port.blocking(|| {
                assert_eq!((port.stats().running, port.stats().blocked), (0, 1));
                resume_unwind(Box::new("on purpose"))
            })
        }));
        assert!(panicked.is_err());
        assert_eq!((port.stats().running, port.stats().blocked), (1, 0));
        port.post(2).unwrap();
        assert_eq!(port.wait(&mut batch, system.soon()).unwrap().count(), 1);
        assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
    }

    /// Rule 38: a thread that has no packets of the port may say so too, which changes nothing.
    fn blocking_without_a_seat_changes_nothing(system: &System) {
        let port = system.port::<(), usize>(1);
        let before = port.stats();
        assert_eq!(port.blocking(|| port.stats()), before);
        assert_eq!(port.stats(), before);
    }

    /// Rule 38: who says that he blocks keeps no other packet of his batch from the others.
    fn what_a_blocking_thread_has_not_looked_at_goes_to_others(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            let port = &port;
            (0..4).for_each(|message| port.post(message).unwrap());
            let (go_on, blocked) = mpsc::channel::<()>();
            let (batched, took) = mpsc::channel();
            scope.spawn(move || {
                let mut batch = Batch::new();
                let mut packets = port.wait(&mut batch, None).unwrap();
                let first = packets.next();
                assert!(matches!(first, Some(Packet::Posted(0))));
                batched.send(()).unwrap();
                let _ = port.blocking(|| blocked.recv());
                // They are gone.
                assert_eq!(packets.count(), 0);
            });
            took.recv_timeout(system.soon()).unwrap();
            eventually_without_time(system, "it blocks", || port.stats().blocked == 1);
            scope.spawn(move || {
                while let Some(message) = take(port) {
                    say.send(message).unwrap();
                }
            });
            for message in 1..4 {
                assert_eq!(heard.recv_timeout(system.soon()).unwrap(), message);
            }
            drop(go_on);
        });
        assert_eq!(port.stats().queued, 0);
    }

    /// Rule 39.
    fn a_block_that_nobody_announced_is_noticed(system: &System) {
        let (blocked, heard) = Blocked::on(system, 1);
        thread::scope(|scope| {
            let _end = End::of(&blocked.port, [&blocked.gate]);
            let go_on = blocked.begin(scope, &heard, 2);
            blocked.port.post(2).unwrap();
            assert_eq!(hear(system, &heard, "another one takes over"), 2);
            drop(go_on);
        });
    }

    /// Rule 39: a packet that the kernel has yet to report is one that would be found if somebody
    /// looked.
    fn a_block_that_nobody_announced_keeps_no_socket_waiting(system: &System) {
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

    /// Rule 39: a thread whose block is over runs, whatever the limit; then nothing is handed out
    /// until there is room again.
    fn who_blocks_no_longer_may_exceed_the_limit(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let (first, second) = (Gate::default(), Gate::default());
        let (say, heard) = mpsc::channel();
        let (go_on, blocked) = mpsc::channel::<()>();
        let blocked = Mutex::new(blocked);
        thread::scope(|scope| {
            let _end = End::of(&port, [&first, &second]);
            for name in 0..3 {
                let (say, port, blocked) = (say.clone(), &port, &blocked);
                let (first, second) = (&first, &second);
                scope.spawn(move || {
                    while let Some(message) = take(port) {
                        say.send((message, name)).unwrap();
                        match message {
                            0 => {
                                let _ = port.blocking(|| blocked.lock().unwrap().recv());
                                first.pass();
                            }
                            1 => second.pass(),
                            _ => {}
                        }
                    }
                });
                settle(system, port, name + 1);
            }
            port.post(0).unwrap();
            assert_eq!(hear(system, &heard, "the first is taken"), (0, 2));
            eventually(system, "it blocks", || port.stats().blocked == 1);
            port.post(1).unwrap();
            assert_eq!(hear(system, &heard, "the second is taken"), (1, 1));
            assert_eq!((port.stats().running, port.stats().blocked), (1, 1));

            drop(go_on);
            eventually(system, "both run", || port.stats().running == 2);
            assert_eq!(port.stats().blocked, 0);
            port.post(2).unwrap();
            stays(system, 1, "nothing is handed out", || port.stats().queued == 1);
            // One of the two comes back; the other one still has the only seat.
            second.open();
            settle(system, &port, 2);
            stays(system, 2, "nothing is handed out", || port.stats().queued == 1);
            assert_eq!(port.stats().running, 1);
            first.open();
            assert_eq!(hear(system, &heard, "the third is taken"), (2, 2));
            settle(system, &port, 3);
        });
    }

    /// Rule 39: the same if the block was not announced; then the port has to find out that it is
    /// over. Here with the one seat taken by who has blocked.
    fn who_blocked_unannounced_and_runs_again_has_the_only_seat(system: &System) {
        who_blocked_runs_again(system, 1);
    }

    /// Rule 39: and with another thread in the other one of two seats.
    fn who_blocked_unannounced_and_runs_again_has_one_of_two_seats(system: &System) {
        who_blocked_runs_again(system, 2);
    }

    /// Rule 39: while handlers run and nobody is in the kernel's wait, somebody looks.
    fn a_port_whose_handlers_do_not_come_back_is_not_deaf(system: &System) {
        an_unattended_port_is_looked_at(system, || {});
    }

    /// Rule 39: with every seat taken packets are found, but not handed out.
    fn with_every_seat_taken_packets_are_found_and_kept(system: &System) {
        system.several_threads_wait();
        let port = system.port::<usize, ()>(1);
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..2).map(|_| system.unix_pair()).unzip();
        let gate = Gate::default();
        let (say, heard) = mpsc::channel();
        register(&port, &ours);
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            for count in 1..=2 {
                let (say, port, gate) = (say.clone(), &port, &gate);
                scope.spawn(move || take_sockets(port, &say, gate));
                settle(system, port, count);
            }
            theirs[0].write(b"x").unwrap();
            assert_eq!(hear(system, &heard, "the first is taken"), 0);
            theirs[1].write(b"x").unwrap();
            eventually(system, "the second is found", || port.stats().queued == 1);
            stays(system, 1, "it is not handed out", || port.stats().queued == 1);
            assert!(heard.try_recv().is_err());
            gate.open();
            assert_eq!(hear(system, &heard, "the second is taken"), 1);
            settle(system, &port, 2);
        });
    }

    /// Rule 40: what a thread does not take is the next thing that anybody takes.
    fn what_is_left_in_an_iterator_goes_back_to_the_front(system: &System) {
        let port = system.port::<(), usize>(1);
        let mut batch = Batch::new();
        (0..5).for_each(|message| port.post(message).unwrap());
        let mut packets = port.wait(&mut batch, system.soon()).unwrap();
        assert!(matches!(packets.next(), Some(Packet::Posted(0))));
        port.post(5).unwrap();
        drop(packets);
        assert_eq!(port.stats().queued, 5);
        assert_eq!(messages(&port, system), [1, 2, 3, 4, 5]);
        assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
    }

    /// Rule 40: also if the thread leaves without having dropped its iterator.
    fn what_a_thread_leaves_behind_goes_back_to_the_front(system: &System) {
        let port = system.port::<(), usize>(1);
        (0..4).for_each(|message| port.post(message).unwrap());
        thread::scope(|scope| {
            let leaves = scope.spawn(|| {
                let mut batch = Batch::with_capacity(3);
                let mut packets = port.wait(&mut batch, system.soon()).unwrap();
                assert!(matches!(packets.next(), Some(Packet::Posted(0))));
                std::mem::forget(packets);
            });
            // The end of the scope does not wait until the thread has given up its seat.
            leaves.join().unwrap();
        });
        // Messages 1 and 2 were handed to it, 3 was not.
        assert_eq!(messages(&port, system), [1, 2, 3]);
        assert_eq!(port.wait(&mut Batch::new(), system.quiet()).unwrap().count(), 0);
    }

    /// Rule 40: two iterators of one thread have what it was handed between them.
    fn two_iterators_of_one_thread_lose_nothing(system: &System) {
        let port = system.port::<(), usize>(1);
        (0..9).for_each(|message| port.post(message).unwrap());
        let (mut first, mut second) = (Batch::with_capacity(3), Batch::with_capacity(4));
        let mut taken = Vec::new();
        let mut take = |packet| match packet {
            Some(Packet::Posted(message)) => taken.push(message),
            None => {}
            other => panic!("{other:?}"),
        };
        let mut early = port.wait(&mut first, system.soon()).unwrap();
        take(early.next());
        let mut late = port.wait(&mut second, system.soon()).unwrap();
        take(late.next());
        take(early.next());
        take(late.next());
        drop(early);
        take(late.next());
        drop(late);
        taken.extend(messages(&port, system));
        taken.sort_unstable();
        assert!(taken.iter().copied().eq(0..9), "{taken:?}");
        assert_eq!(port.wait(&mut first, system.quiet()).unwrap().count(), 0);
    }

    /// Rule 40: an iterator whose thread has waited on another port since has lost its seat, and
    /// takes one again if it has to wait.
    fn an_iterator_may_be_used_after_a_wait_on_another_port(system: &System) {
        let (here, there) = (system.port::<(), usize>(1), system.port::<(), usize>(1));
        let (ours, theirs) = system.unix_pair();
        let one_shot = Registration::new(&ours, (), Interest::IN, OneShot::Level);
        let id = here.register(one_shot).unwrap();
        theirs.write(b"x").unwrap();
        let (mut batch, mut other) = (Batch::new(), Batch::new());
        let mut packets = here.wait(&mut batch, system.soon()).unwrap();
        // What was handed out comes to nothing.
        here.remove_and_wait(id, system.soon()).unwrap();
        assert_eq!(there.wait(&mut other, Duration::ZERO).unwrap().count(), 0);
        assert_eq!((here.stats().running, there.stats().running), (0, 1));
        here.post(1).unwrap();
        assert!(matches!(packets.next(), Some(Packet::Posted(1))));
        assert_eq!((here.stats().running, there.stats().running), (1, 0));
        drop(packets);
        assert_eq!(there.wait(&mut other, Duration::ZERO).unwrap().count(), 0);
        assert_eq!((here.stats().running, there.stats().running), (0, 1));
        // The seat is free for somebody else.
        thread::scope(|scope| {
            here.post(2).unwrap();
            scope.spawn(|| assert_eq!(messages(&here, system), [2]));
        });
        assert_eq!(here.wait(&mut batch, system.quiet()).unwrap().count(), 0);
    }

    /// Rule 40: a packet, or nothing when the time is over, and not before.
    fn a_wait_ends_with_a_packet_or_with_its_time(system: &System) {
        let port = system.port::<(), usize>(1);
        let mut batch = Batch::new();
        let time = system.quiet();
        let (begun, begun_virtually) = (Instant::now(), system.kernel().map(|it| it.now()));
        assert_eq!(port.wait(&mut batch, time).unwrap().count(), 0);
        match system.kernel() {
            Some(kernel) => assert_eq!(Some(kernel.now()), begun_virtually.map(|it| it + time)),
            None => assert!(begun.elapsed() >= time),
        }
        port.post(1).unwrap();
        assert_eq!(messages(&port, system), [1]);
        // Without time it looks, and takes what there is.
        let (ours, theirs) = system.unix_pair();
        port.register(Registration::new(&ours, (), Interest::IN, OneShot::Level)).unwrap();
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
        theirs.write(b"x").unwrap();
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 1);
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
    }

    /// Rule 40: without room nothing is taken, and nothing is waited for.
    fn a_wait_without_room_returns_at_once_and_takes_nothing(system: &System) {
        let port = system.port::<(), usize>(1);
        port.post(1).unwrap();
        let mut none = Batch::with_capacity(0);
        assert_eq!(port.wait(&mut none, None).unwrap().count(), 0);
        assert_eq!(port.stats().queued, 1);
        assert_eq!(messages(&port, system), [1]);
        assert_eq!(port.wait(&mut none, None).unwrap().count(), 0);
    }

    /// Rule 40: nobody shares with a thread that is alone.
    fn a_thread_that_is_alone_takes_all_that_is_ready_and_fits(system: &System) {
        let port = system.port::<usize, ()>(0);
        // A thread that has waited here, and is gone, shares nothing.
        thread::scope(|scope| {
            let waits = || drop(port.wait(&mut Batch::new(), Duration::ZERO).unwrap());
            // Joined: it gives its place up at its very end.
            scope.spawn(waits).join().unwrap();
        });
        let _alone = with_many_descriptors();
        let events: Vec<_> = (0..200).map(|_| system.event()).collect();
        let register = |(key, event)| {
            port.register(Registration::new(event, key, Interest::IN, OneShot::Level)).unwrap()
        };
        let ids: Vec<_> = events.iter().enumerate().map(register).collect();
        let signal = || events.iter().for_each(|event| event.signal(1).unwrap());
        signal();
        let mut batch = Batch::new();
        let mut seen = HashSet::new();
        for (room, expected) in [(100, 100), (10, 10), (256, 90)] {
            batch.set_capacity(room);
            let packets: Vec<_> = port.wait(&mut batch, system.soon()).unwrap().collect();
            assert_eq!(packets.len(), expected, "with room for {room}");
            for packet in packets {
                let Packet::Ready(ready) = packet else { panic!("{packet:?}") };
                assert!(seen.insert(*ready.key()));
                ready.park().unwrap();
            }
        }
        // However many there are; and the batch keeps what it has grown to: once for each set is enough.
        batch.set_capacity(usize::MAX);
        let mut harvests = Vec::new();
        for _ in 0..4 {
            for (id, event) in ids.iter().zip(&events) {
                event.read(&mut [0; 8]).unwrap();
                port.rearm(*id, Interest::IN, OneShot::Level).unwrap();
            }
            assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
            signal();
            let before = port.stats().harvests;
            let packets: Vec<_> = port.wait(&mut batch, system.soon()).unwrap().collect();
            harvests.push(port.stats().harvests - before);
            assert_eq!(packets.len(), events.len());
            for packet in packets {
                let Packet::Ready(ready) = packet else { panic!("{packet:?}") };
                ready.park().unwrap();
            }
        }
        let sets = if system.spreads() { 4 } else { 1 };
        assert_eq!(harvests.last(), Some(&sets), "{harvests:?}");
    }

    /// Rule 40: what the kernel had to tell first, and nobody wanted, hides nothing.
    fn a_wait_without_time_finds_what_stands_behind_what_nobody_asked_for(system: &System) {
        let _alone = with_many_descriptors();
        for room in [1, 64] {
            let port = system.port::<usize, ()>(1);
            // Each of them can be written to, which is news to the kernel.
            let pairs: Vec<_> = (0..100).map(|_| system.unix_pair()).collect();
            for (key, (ours, _)) in pairs.iter().enumerate() {
                let once = Registration::new(ours, key, Interest::IN, OneShot::Level);
                port.register(once).unwrap();
            }
            pairs[99].1.write(b"x").unwrap();
            let mut batch = Batch::with_capacity(room);
            let packet = port.wait(&mut batch, Duration::ZERO).unwrap().next();
            let Some(Packet::Ready(ready)) = packet else { panic!("{packet:?}") };
            assert_eq!((*ready.key(), ready.events()), (99, Events::IN));
        }
    }

    /// Rule 40: a wait takes no more than there is room for; the rest is there for the next.
    fn a_wait_takes_no_more_than_there_is_room_for(system: &System) {
        let port = system.port::<(), usize>(1);
        (0..5).for_each(|message| port.post(message).unwrap());
        let mut batch = Batch::with_capacity(2);
        for left in [3, 1, 0] {
            let count = port.wait(&mut batch, system.soon()).unwrap().count();
            assert!(count == 2 || left == 0 && count == 1);
            assert_eq!(port.stats().queued, left);
        }
        assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
    }
}

/// Rule 39: a thread that was thought to sleep and takes its next packet is counted from then on, not
/// only once somebody has looked. No time passes here, so nobody looks.
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

/// Interrupts the sleep of `thread` by a signal, and waits until it sleeps again.
fn interrupt_sleep(on: &System, thread: ThreadNumber) {
    eventually(on, "the thread sleeps", || thread.sleeps());
    let before = thread.sleeps_begun();
    interrupt(thread.get());
    eventually(on, "it sleeps again", || thread.sleeps_begun() > before && thread.sleeps());
}

/// Rule 37: of several threads in the kernel's wait the oldest is interrupted by a signal, which would
/// make it the newest there.
#[test]
fn a_signal_changes_nothing_in_the_order_of_a_crowd_epoll() {
    testkit::run(System::native, |on| {
        catch_signals();
        let port: Port<(), usize> = on.port(4);
        make_packets_long(on, &port);
        let (say, heard) = mpsc::channel();
        let threads = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            for name in 0..2 {
                let (say, port, threads) = (say.clone(), &port, &threads);
                scope.spawn(move || {
                    threads.lock().unwrap().push(ThreadNumber::current());
                    if take(port).is_some() {
                        say.send(name).unwrap();
                    }
                });
                settle(on, port, name + 1);
                let newest = threads.lock().unwrap()[name];
                eventually(on, "it is in the kernel's wait", || newest.sleeps());
            }
            interrupt_sleep(on, threads.lock().unwrap()[0]);
            assert!(heard.try_recv().is_err());
            port.post(1).unwrap();
            assert_eq!(hear(on, &heard, "the message is taken"), 1);
        });
    });
}

/// Rule 39: a wake that the kernel gives to another thread than the one that is to look after the port
/// is not lost.
#[test]
fn a_signal_in_a_crowd_keeps_nobody_from_looking_after_the_port_epoll() {
    testkit::run(System::native, |on| {
        on.several_threads_wait();
        catch_signals();
        let port: Port<(), usize> = on.port_that(2, BlockDetection::Tick).unwrap();
        make_packets_long(on, &port);
        let (say, heard) = mpsc::channel();
        let (open, gate) = (Mutex::new(false), Condvar::new());
        let threads = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            for name in 0..4 {
                let (say, port, open, gate, threads) = (say.clone(), &port, &open, &gate, &threads);
                scope.spawn(move || {
                    threads.lock().unwrap().push(ThreadNumber::current());
                    while let Some(message) = take(port) {
                        say.send((message, name)).unwrap();
                        if message < 3 {
                            // Sleeps without saying so.
                            drop(gate.wait_while(open.lock().unwrap(), |open| !*open));
                        }
                    }
                });
                settle(on, port, name + 1);
            }
            // The two that came first are in the kernel's wait, the others parked.
            interrupt_sleep(on, threads.lock().unwrap()[0]);
            assert!(heard.try_recv().is_err());
            for message in 1..=2 {
                port.post(message).unwrap();
                let newest = 4 - message;
                assert_eq!(hear(on, &heard, "a message is taken"), (message, newest));
            }
            port.post(3).unwrap();
            assert_eq!(hear(on, &heard, "that two sleep is noticed").0, 3);
            *open.lock().unwrap() = true;
            gate.notify_all();
        });
    });
}

/// Rule 6: also if a thread waits now and then for a moment, so that whoever looks after the port is
/// always another one, or the same one anew.
#[test]
fn packets_of_a_thread_that_does_not_go_on_are_taken_however_often_the_watch_changes_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for step in [100, 300] {
            let port = on.port::<(), usize>(2);
            (0..4).for_each(|message| port.post(message).unwrap());
            let (say, heard) = mpsc::channel();
            let gate = Gate::default();
            thread::scope(|scope| {
                let _end = End::of(&port, [&gate]);
                let (port, gate) = (&port, &gate);
                let said = say.clone();
                scope.spawn(move || {
                    let mut batch = Batch::with_capacity(4);
                    let mut packets = port.wait(&mut batch, None).unwrap();
                    assert!(matches!(packets.next(), Some(Packet::Posted(0))));
                    said.send(0).unwrap();
                    gate.pass();
                    drop(packets);
                });
                assert_eq!(heard.recv_timeout(on.soon()), Ok(0));
                scope.spawn(move || {
                    while let Some(message) = take(port) {
                        say.send(message).unwrap();
                    }
                });
                let begun = kernel.now();
                let mut rest = Vec::new();
                while rest.len() < 3 {
                    assert!(kernel.now() - begun < Duration::from_millis(4), "{rest:?}");
                    assert!(kernel.wait_for_sleepers(1, on.soon()));
                    kernel.advance(Duration::from_micros(step));
                    assert!(kernel.wait_for_sleepers(1, on.soon()));
                    port.post(1000).unwrap();
                    let taken = std::iter::repeat_with(|| heard.recv_timeout(on.soon()).unwrap());
                    rest.extend(taken.take_while(|message| *message != 1000));
                }
                assert_eq!(rest, [1, 2, 3]);
                gate.open();
            });
        }
    });
}

/// On a port that lets two threads run, so many messages are posted. A thread takes several of them at time
/// zero, and comes to the first one only: the others are taken from it while `act` runs.
fn beside_a_thread_that_does_not_go_on(
    on: &System,
    messages: usize,
    prepare: impl FnOnce(&Port<(), usize>),
    act: impl FnOnce(&Port<(), usize>, &sim::Kernel),
) {
    on.several_threads_wait();
    let kernel = on.kernel().unwrap();
    let port = on.port::<(), usize>(2);
    prepare(&port);
    (0..messages).for_each(|message| port.post(message).unwrap());
    let (say, heard) = mpsc::channel();
    let gate = Gate::default();
    thread::scope(|scope| {
        let _end = End::of(&port, [&gate]);
        let (port, gate) = (&port, &gate);
        scope.spawn(move || {
            let mut batch = Batch::with_capacity(4);
            let mut packets = port.wait(&mut batch, None).unwrap();
            assert!(matches!(packets.next(), Some(Packet::Posted(0))));
            say.send(()).unwrap();
            gate.pass();
            assert!(packets.next().is_none(), "the rest was taken");
        });
        // Without moving the clock meanwhile.
        heard.recv_timeout(on.soon()).expect("the first has a share");
        act(port, kernel);
        gate.open();
    });
}

/// Rule 6: a thread that spins with messages which it has moved elsewhere is noticed by another one that
/// runs, though no seat is free; and then with a single message as well, for as long as it goes on.
#[test]
fn who_can_give_nothing_back_is_advised_to_take_less_beside_a_thread_that_spins_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        let port = on.port::<(), usize>(2);
        let (say, heard) = mpsc::channel();
        let gates: [Gate; 2] = Default::default();
        thread::scope(|scope| {
            let _end = End::of(&port, &gates);
            assert!(port.advised_room() > 1_000_000, "{}", port.advised_room());
            for (gate, messages) in gates.iter().zip([3, 1]) {
                (0..messages).for_each(|message| port.post(message).unwrap());
                let (say, port) = (say.clone(), &port);
                let spins = scope.spawn(move || {
                    let taken = port.wait(&mut Batch::new(), None).unwrap().count();
                    say.send(taken).unwrap();
                    gate.pass();
                });
                // Without moving the clock meanwhile.
                assert_eq!(heard.recv_timeout(on.soon()), Ok(messages));
                for milliseconds in [10, 1500] {
                    for message in 0..milliseconds {
                        kernel.advance(Duration::from_millis(1));
                        port.post(message).unwrap();
                        assert_eq!(take(port), Some(message));
                    }
                    assert_eq!(port.advised_room(), 1, "it spins with {messages}");
                }
                gate.open();
                spins.join().unwrap();
            }
        });
    });
}

/// Rule 6: no thread is idle, and one that comes to wait takes what another one does not come to, a good
/// hundred microseconds after having seen it first.
#[test]
fn who_comes_to_wait_takes_what_a_thread_that_does_not_go_on_has_left_sim() {
    testkit::run(System::simulated, |on| {
        beside_a_thread_that_does_not_go_on(
            on,
            6,
            |_| {},
            |port, kernel| {
                kernel.advance(Duration::from_millis(1));
                assert_eq!(take(port), Some(4));
                kernel.advance(Duration::from_micros(140));
                assert_eq!(take(port), Some(5));
                let nothing = port.wait(&mut Batch::new(), Duration::ZERO).unwrap().count();
                assert_eq!(nothing, 0, "it may just have been slow");
                kernel.advance(Duration::from_micros(20));
                // All of it: in one wait or in two, since the first thread counts as one at work.
                assert_eq!([take(port), take(port), take(port)], [1, 2, 3].map(Some));
            },
        );
    });
}

/// Rule 37: what a thread has had for so long that it is due when another one begins to look after the port
/// goes to that one at once.
#[test]
fn what_is_overdue_when_a_thread_begins_to_watch_is_taken_at_once_sim() {
    testkit::run(System::simulated, |on| {
        // There are two threads when the first one takes its share, so that it is timed.
        let come = |port: &Port<(), usize>| {
            assert_eq!(port.wait(&mut Batch::new(), Duration::ZERO).unwrap().count(), 0);
        };
        beside_a_thread_that_does_not_go_on(on, 4, come, |port, kernel| {
            kernel.advance(Duration::from_micros(800));
            assert_eq!([take(port), take(port)], [2, 3].map(Some));
            kernel.advance(Duration::from_micros(120));
            let mut batch = Batch::new();
            let mut rest = port.wait(&mut batch, Duration::from_millis(1)).unwrap();
            assert!(matches!(rest.next(), Some(Packet::Posted(1))));
            assert_eq!(kernel.now(), Duration::from_micros(920));
        });
    });
}

/// Rule 39, to the millisecond: only a simulated kernel's clock stands still until it is moved.
#[test]
fn a_thread_that_waits_looks_within_a_millisecond_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for limit in [1, 3] {
            let port = on.port::<usize, ()>(limit);
            let (ours, theirs): (Vec<_>, Vec<_>) = (0..2).map(|_| on.unix_pair()).unzip();
            let gate = Gate::default();
            let (say, heard) = mpsc::channel();
            register(&port, &ours);
            thread::scope(|scope| {
                let _end = End::of(&port, [&gate]);
                for count in 1..=2 {
                    let (say, port, gate) = (say.clone(), &port, &gate);
                    scope.spawn(move || take_sockets(port, &say, gate));
                    settle(on, port, count);
                }
                theirs[0].write(b"x").unwrap();
                assert_eq!(heard.recv_timeout(on.soon()).unwrap(), 0);
                settle(on, &port, 1);
                theirs[1].write(b"x").unwrap();
                kernel.advance(Duration::from_millis(1));
                if limit == 1 {
                    let found = || port.stats().queued == 1;
                    eventually_without_time(on, "it is found within a millisecond", found);
                } else {
                    let taken = heard.recv_timeout(on.soon());
                    assert_eq!(taken.expect("it is taken within a millisecond"), 1);
                }
            });
        }
    });
}

/// Takes one packet at a time, says whose it is and who has it, and passes its gate.
fn take_one_by_one(port: &Port<usize, ()>, gates: &[Gate], say: &mpsc::Sender<(usize, ThreadId)>) {
    take_so_many(1, port, gates, say);
}

/// The same, with so many packets in a batch.
fn take_so_many(
    most: usize,
    port: &Port<usize, ()>,
    gates: &[Gate],
    say: &mpsc::Sender<(usize, ThreadId)>,
) {
    let mut batch = Batch::with_capacity(most);
    while let Ok(packets) = port.wait(&mut batch, None) {
        for packet in packets {
            let Packet::Ready(ready) = packet else { panic!("{packet:?}") };
            say.send((*ready.key(), thread::current().id())).unwrap();
            gates[*ready.key()].pass();
        }
    }
}

/// Rule 39: who comes back for the next packet by himself is left to do so, whether it is still with the
/// kernel or queued already. A millisecond begins anew whenever he does, and when it is over somebody else
/// looks.
#[test]
fn who_comes_back_by_himself_is_left_to_do_so_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for queued in [false, true] {
            let port = on.port::<usize, ()>(2);
            let (ours, theirs): (Vec<_>, Vec<_>) = (0..3).map(|_| on.unix_pair()).unzip();
            let gates = [Gate::default(), Gate::default(), Gate::default()];
            let (say, heard) = mpsc::channel();
            register(&port, &ours);
            thread::scope(|scope| {
                let _end = End::of(&port, &gates);
                for count in 1..=2 {
                    let (say, port, gates) = (say.clone(), &port, &gates);
                    scope.spawn(move || take_one_by_one(port, gates, &say));
                    settle(on, port, count);
                }
                let next = || heard.recv_timeout(on.soon()).expect("somebody takes it");
                theirs[0].write(b"x").unwrap();
                let (_, first) = next();
                settle(on, &port, 1);
                kernel.advance(Duration::from_micros(600));
                if queued {
                    // He finds both when he comes back, and leaves one of them in the queue.
                    theirs[1].write(b"x").unwrap();
                    theirs[2].write(b"x").unwrap();
                    gates[0].open();
                } else {
                    gates[0].open();
                    settle(on, &port, 2);
                    theirs[1].write(b"x").unwrap();
                }
                assert_eq!(next(), (1, first), "he has come back for it");
                settle(on, &port, 1);
                if !queued {
                    theirs[2].write(b"x").unwrap();
                }
                // The other one's first millisecond is over, but not that since the first one was there.
                kernel.advance(Duration::from_micros(400));
                assert!(heard.recv_timeout(Duration::from_millis(50)).is_err(), "too soon");
                kernel.advance(Duration::from_micros(600));
                let (socket, second) = next();
                assert_eq!(socket, 2);
                assert_ne!(second, first);
            });
        }
    });
}

/// Rule 39: as long as the only thread that runs keeps coming back within a millisecond, whoever watches is
/// not woken at all; and is when that one has stayed away for a millisecond, or when his own time is over.
#[test]
fn who_watches_is_not_woken_for_one_who_keeps_coming_sim() {
    const TIMES: usize = 12;
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for limit in [None, Some(Duration::from_micros(600 * TIMES as u64 - 100))] {
            // So that the first look is due a whole millisecond after the beginning.
            kernel.advance(Duration::from_millis(2));
            let port = on.port::<usize, ()>(2);
            let (ours, theirs): (Vec<_>, Vec<_>) = (0..=TIMES).map(|_| on.unix_pair()).unzip();
            let gates: Vec<_> = theirs.iter().map(|_| Gate::default()).collect();
            let (say, heard) = mpsc::channel();
            register(&port, &ours);
            thread::scope(|scope| {
                let _end = End::of(&port, &gates);
                let (port, gates) = (&port, &gates);
                let begun = kernel.now();
                scope.spawn(move || take_one_by_one(port, gates, &say));
                settle(on, port, 1);
                let other = scope.spawn(move || {
                    let taken: Vec<_> =
                        port.wait(&mut Batch::with_capacity(1), limit).unwrap().collect();
                    (taken.len(), kernel.now() - begun)
                });
                settle(on, port, 2);
                let next = || heard.recv_timeout(on.soon()).expect("somebody takes it").0;
                theirs[0].write(b"x").unwrap();
                assert_eq!(next(), 0);
                settle(on, port, 1);
                let before = kernel.calls();
                for socket in 1..TIMES {
                    kernel.advance(Duration::from_micros(600));
                    gates[socket - 1].open();
                    settle(on, port, 2);
                    theirs[socket].write(b"x").unwrap();
                    assert_eq!(next(), socket);
                    settle(on, port, 1);
                }
                let calls = kernel.calls() - before;
                assert_eq!((calls.park, calls.unpark), (0, 0), "nobody is woken");
                assert_eq!(calls.postpone, TIMES as u64 - 1);
                if let Some(limit) = limit {
                    kernel.advance(Duration::from_micros(500));
                    assert_eq!(other.join().unwrap(), (0, limit));
                    return;
                }
                theirs[TIMES].write(b"x").unwrap();
                kernel.advance(Duration::from_micros(999));
                settle(on, port, 1);
                kernel.advance(Duration::from_micros(1));
                let (taken, at) = other.join().unwrap();
                assert_eq!(taken, 1);
                assert_eq!(at, Duration::from_micros(600 * (TIMES as u64 - 1) + 1000));
            });
        }
    });
}

/// Two threads wait. The one that takes the first socket does not come back, and the other one has to find the
/// second, whatever was done before.
fn an_unattended_port_is_looked_at(on: &System, before: impl FnOnce()) {
    on.several_threads_wait();
    let port = on.port::<usize, ()>(3);
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..2).map(|_| on.unix_pair()).unzip();
    let gate = Gate::default();
    let (say, heard) = mpsc::channel();
    register(&port, &ours);
    thread::scope(|scope| {
        let _end = End::of(&port, [&gate]);
        for count in 1..=2 {
            let (say, port, gate) = (say.clone(), &port, &gate);
            scope.spawn(move || take_sockets(port, &say, gate));
            settle(on, port, count);
        }
        before();
        // The one in the kernel's wait goes off with the first; the other one takes its place.
        for (socket, theirs) in theirs.iter().enumerate() {
            theirs.write(b"x").unwrap();
            assert_eq!(hear(on, &heard, "somebody takes it"), socket);
        }
        assert_eq!(port.stats().running, 2);
    });
}

/// Rule 39: also where there is no descriptor left for the timer of who watches.
#[test]
fn a_port_is_looked_at_with_no_descriptor_left_epoll() {
    if !in_a_process_of_its_own("threads::a_port_is_looked_at_with_no_descriptor_left_epoll") {
        return;
    }
    an_unattended_port_is_looked_at(&System::native(), leave_no_descriptor);
}

/// From now on this process can open no descriptor.
fn leave_no_descriptor() {
    let lowest_free = File::open("/dev/null").unwrap().as_raw_fd();
    let limit = libc::rlim_t::try_from(lowest_free).unwrap();
    let none_left = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: setrlimit(2) reads a limit at the pointer.
    // - valid for reads: `none_left` is a local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none_left) }, 0);
    let refused = File::open("/dev/null").unwrap_err().raw_os_error();
    assert_eq!(refused, Some(libc::EMFILE));
}

/// Rule 39: also where there is no descriptor left, and nobody has slept before.
#[test]
fn who_sleeps_for_the_first_time_is_found_with_no_descriptor_left_epoll() {
    if !in_a_process_of_its_own(
        "threads::who_sleeps_for_the_first_time_is_found_with_no_descriptor_left_epoll",
    ) {
        return;
    }
    let on = System::native();
    let ways = [BlockDetection::Automatic, BlockDetection::Tick];
    let ports = ways.map(|way| on.port_that(1, way).unwrap());
    each_block_is_noticed(&on, &ports, 1, leave_no_descriptor);
}

/// Each port has one seat and two threads. Again and again the handler of one sleeps without a word, until the
/// other thread has its seat.
pub(crate) fn each_block_is_noticed(
    on: &System,
    ports: &[Port<(), usize>],
    times: usize,
    before: impl FnOnce(),
) {
    let (say, heard) = mpsc::channel();
    let (go_on, blocked) = mpsc::channel::<()>();
    let blocked = Mutex::new(blocked);
    thread::scope(|scope| {
        let go_on = go_on;
        let _end: Vec<_> = ports.iter().map(|port| End::of(port, [])).collect();
        for port in ports {
            for count in 1..=2 {
                let (say, blocked) = (say.clone(), &blocked);
                scope.spawn(move || {
                    while let Some(message) = take(port) {
                        say.send(message).unwrap();
                        if message == 0 {
                            let _ = blocked.lock().unwrap().recv();
                        }
                    }
                });
                settle(on, port, count);
            }
        }
        before();
        for port in ports {
            for _ in 0..times {
                for message in 0..2 {
                    port.post(message).unwrap();
                    assert_eq!(hear(on, &heard, "another one takes over"), message);
                }
                go_on.send(()).unwrap();
                settle(on, port, 2);
            }
        }
    });
}

/// Rule 39 (see also 6): a thread that has had its packets for some microseconds keeps them, and its seat, however
/// long ago the last look was because the watch was put off.
#[test]
fn who_has_just_come_is_neither_robbed_nor_replaced_though_the_watch_was_put_off_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for limit in 1..=2 {
            kernel.advance(Duration::from_millis(2));
            let port = on.port::<usize, ()>(limit);
            let (ours, theirs): (Vec<_>, Vec<_>) = (0..4).map(|_| on.unix_pair()).unzip();
            let gates = [(); 4].map(|()| Gate::default());
            let (say, heard) = mpsc::channel();
            register(&port, &ours);
            thread::scope(|scope| {
                let _end = End::of(&port, &gates);
                let (port, gates) = (&port, &gates);
                for count in 1..=2 {
                    let say = say.clone();
                    scope.spawn(move || take_so_many(4, port, gates, &say));
                    settle(on, port, count);
                }
                let next = || heard.recv_timeout(on.soon()).expect("somebody takes it");
                theirs[0].write(b"x").unwrap();
                let (_, first) = next();
                settle(on, port, 1);
                kernel.advance(Duration::from_micros(600));
                theirs[1..].iter().for_each(|socket| socket.write(b"x").map(drop).unwrap());
                gates[0].open();
                assert_eq!(next(), (1, first));
                settle(on, port, 1);
                let asked = kernel.calls().asleep;
                for _ in 0..2 {
                    kernel.advance(Duration::from_micros(5));
                    script(on, first, true);
                    let taken = port.wait(&mut Batch::new(), Duration::ZERO).unwrap().count();
                    assert_eq!(taken, 0, "they are another one's");
                    script(on, first, false);
                }
                assert_eq!(kernel.calls().asleep, asked);
                assert_eq!(port.stats().blocks_found, 0);
            });
        }
    });
}

/// Rule 39: who has let the watch be put off, and then sleeps, is found soon after the millisecond is over
/// in which he should have come back; so is one who does not even look at his packets.
#[test]
fn who_stays_away_after_the_watch_was_put_off_is_found_soon_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for sleeps in [true, false] {
            kernel.advance(Duration::from_millis(2));
            let port = on.port_that::<usize, ()>(1, BlockDetection::Tick).unwrap();
            let (ours, theirs): (Vec<_>, Vec<_>) = (0..3).map(|_| on.unix_pair()).unzip();
            let gates = [(); 3].map(|()| Gate::default());
            let (say, heard) = mpsc::channel();
            register(&port, &ours);
            thread::scope(|scope| {
                let _end = End::of(&port, &gates);
                let (port, gates) = (&port, &gates);
                let said = say.clone();
                scope.spawn(move || {
                    let mut batch = Batch::new();
                    assert_eq!(port.wait(&mut batch, None).unwrap().count(), 1);
                    said.send((0, thread::current().id())).unwrap();
                    gates[0].pass();
                    let mut packets = port.wait(&mut batch, None).unwrap();
                    let first = sleeps.then(|| packets.next());
                    said.send((1, thread::current().id())).unwrap();
                    gates[1].pass();
                    drop(first);
                });
                settle(on, port, 1);
                scope.spawn(move || take_one_by_one(port, gates, &say));
                settle(on, port, 2);
                let next = || heard.recv_timeout(on.soon()).expect("somebody takes it");
                theirs[0].write(b"x").unwrap();
                let (_, first) = next();
                settle(on, port, 1);
                kernel.advance(Duration::from_micros(600));
                theirs[1..].iter().for_each(|socket| socket.write(b"x").map(drop).unwrap());
                gates[0].open();
                assert_eq!(next(), (1, first));
                settle(on, port, 1);
                script(on, first, true);
                kernel.advance(Duration::from_micros(1_000));
                settle(on, port, 1);
                kernel.advance(Duration::from_micros(249));
                settle(on, port, 1);
                assert!(heard.try_recv().is_err(), "too soon");
                kernel.advance(Duration::from_micros(1));
                let (_, second) = next();
                assert_ne!(second, first);
                assert_eq!(port.stats().blocks_found, 1);
                script(on, first, false);
            });
        }
    });
}

/// Rule 39: a thread that sleeps is asked about, also if the watch changes hands between any two looks, and
/// the looks follow each other sooner than usual, because another thread sleeps for a moment again and again.
#[test]
fn who_sleeps_is_found_though_the_watch_changes_hands_all_the_time_sim() {
    const STEPS: usize = 40;
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        kernel.advance(Duration::from_millis(2));
        let port = on.port_that::<usize, ()>(4, BlockDetection::Automatic).unwrap();
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..STEPS + 2).map(|_| on.unix_pair()).unzip();
        let gates: Vec<_> = theirs.iter().map(|_| Gate::default()).collect();
        let (say, heard) = mpsc::channel();
        register(&port, &ours);
        thread::scope(|scope| {
            let _end = End::of(&port, &gates);
            let (port, gates) = (&port, &gates);
            for count in 1..=4 {
                let say = say.clone();
                scope.spawn(move || take_one_by_one(port, gates, &say));
                settle(on, port, count);
            }
            let next = || heard.recv_timeout(on.soon()).expect("somebody takes it");
            theirs[0].write(b"x").unwrap();
            // From now on this one has records.
            let (_, observed) = next();
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
            theirs[1].write(b"x").unwrap();
            let (_, stuck) = next();
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
                theirs[step].write(b"x").unwrap();
                assert_eq!(next().0, step);
                settle(on, port, 1);
                for _ in 0..2 {
                    kernel.advance(Duration::from_micros(40));
                    settle(on, port, 1);
                    sleep_anew();
                }
                gates[step].open();
                settle(on, port, 2);
            }
            assert_eq!(port.stats().blocks_found, 2, "the other one is found as well");
            assert!(kernel.calls().asleep > asked, "it was asked about");
            script(on, observed, false);
            script(on, stuck, false);
        });
    });
}

/// Rule 39: what somebody who comes back in time has left in the queue twice is taken by another one.
#[test]
fn who_comes_back_in_time_but_never_to_the_end_is_helped_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        let port = on.port::<usize, ()>(2);
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..16).map(|_| on.unix_pair()).unzip();
        let gates: Vec<_> = theirs.iter().map(|_| Gate::default()).collect();
        let (say, heard) = mpsc::channel();
        register(&port, &ours);
        thread::scope(|scope| {
            let _end = End::of(&port, &gates);
            for count in 1..=2 {
                let (say, port, gates) = (say.clone(), &port, &gates);
                scope.spawn(move || take_one_by_one(port, gates, &say));
                settle(on, port, count);
            }
            let next = || heard.recv_timeout(on.soon()).expect("somebody takes it");
            theirs[0].write(b"x").unwrap();
            let (mut socket, first) = next();
            settle(on, &port, 1);
            for socket in &theirs[1..] {
                socket.write(b"x").unwrap();
            }
            for rounds in 0.. {
                kernel.advance(Duration::from_micros(600));
                // The thread that watches has looked, if it was time to: it sleeps again, or has a packet.
                let mut taken = None;
                eventually_without_time(on, "the thread that watches has looked", || {
                    taken = heard.try_recv().ok();
                    taken.is_some() || kernel.sleeping() == 1
                });
                gates[socket].open();
                let (another, who) = taken.unwrap_or_else(next);
                if who != first {
                    break;
                }
                // Until no thread is on its way.
                while port.stats().running + port.stats().parked < 2 {
                    thread::yield_now();
                }
                assert!(rounds < 5, "one thread is left alone with the queue");
                socket = another;
            }
        });
    });
}

/// Rule 39: whose time is over takes what is queued, or asks the kernel, even if he has left both to others
/// so far.
#[test]
fn who_leaves_a_packet_to_others_takes_it_when_his_time_is_over_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for queued in [false, true] {
            // So that the first look is due a whole millisecond after the beginning.
            kernel.advance(Duration::from_millis(2));
            let port = on.port::<usize, ()>(2);
            let (ours, theirs): (Vec<_>, Vec<_>) = (0..3).map(|_| on.unix_pair()).unzip();
            let gates = [Gate::default(), Gate::default(), Gate::default()];
            let (say, heard) = mpsc::channel();
            register(&port, &ours);
            thread::scope(|scope| {
                let _end = End::of(&port, &gates);
                let (port, gates) = (&port, &gates);
                scope.spawn(move || take_one_by_one(port, gates, &say));
                settle(on, port, 1);
                let other = scope.spawn(move || {
                    let mut batch = Batch::with_capacity(1);
                    let packets = port.wait(&mut batch, Duration::from_micros(700)).unwrap();
                    packets.map(|packet| matches!(packet, Packet::Ready(_))).collect::<Vec<_>>()
                });
                settle(on, port, 2);
                let next = || heard.recv_timeout(on.soon()).expect("somebody takes it").0;
                theirs[0].write(b"x").unwrap();
                assert_eq!(next(), 0);
                settle(on, port, 1);
                kernel.advance(Duration::from_micros(300));
                theirs[1].write(b"x").unwrap();
                if queued {
                    theirs[2].write(b"x").unwrap();
                }
                gates[0].open();
                assert_eq!(next(), 1);
                settle(on, port, 1);
                if !queued {
                    theirs[2].write(b"x").unwrap();
                }
                kernel.advance(Duration::from_micros(400));
                assert_eq!(other.join().unwrap(), [true], "it is there, and nobody else takes it");
            });
        }
    });
}

/// Rule 39: when the last one who runs announces that he blocks, nobody will come back for the kernel's
/// wait. Whoever is released for that is there at once, however long he has watched before.
#[test]
fn who_is_called_for_one_who_blocks_is_there_at_once_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for ticks in 0..3 {
            let port = on.port::<usize, ()>(1);
            let (ours, theirs): (Vec<_>, Vec<_>) = (0..2).map(|_| on.unix_pair()).unzip();
            let (until_blocked, gate) = (Gate::default(), Gate::default());
            let (say, heard) = mpsc::channel();
            register(&port, &ours);
            thread::scope(|scope| {
                let _end = End::of(&port, [&until_blocked, &gate]);
                for count in 1..=2 {
                    let (say, port) = (say.clone(), &port);
                    let (until_blocked, gate) = (&until_blocked, &gate);
                    scope.spawn(move || {
                        let mut batch = Batch::with_capacity(1);
                        while let Ok(packets) = port.wait(&mut batch, None) {
                            for packet in packets {
                                let Packet::Ready(ready) = packet else { panic!("{packet:?}") };
                                say.send(*ready.key()).unwrap();
                                until_blocked.pass();
                                port.blocking(|| gate.pass());
                            }
                        }
                    });
                    settle(on, port, count);
                }
                theirs[0].write(b"x").unwrap();
                assert_eq!(heard.recv_timeout(on.soon()), Ok(0));
                settle(on, &port, 1);
                for _ in 0..ticks {
                    let harvests = port.stats().harvests;
                    kernel.advance(Duration::from_millis(1));
                    let looked = || port.stats().harvests > harvests;
                    eventually_without_time(on, "it looks every millisecond", looked);
                    settle(on, &port, 1);
                }
                kernel.advance(Duration::from_micros(100));
                until_blocked.open();
                eventually_without_time(on, "it blocks", || port.stats().blocked == 1);
                theirs[1].write(b"x").unwrap();
                assert_eq!(heard.recv_timeout(on.soon()), Ok(1), "after {ticks} ticks");
            });
        }
    });
}

/// Rule 39: with nobody running nobody looks. On the real system this is counted by
/// `tests/syscalls.rs`; only a simulated kernel counts calls at no cost to them.
#[test]
fn a_port_on_which_nothing_happens_makes_no_call_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        let port = on.port::<usize, usize>(2);
        let (ours, theirs) = on.unix_pair();
        register(&port, std::slice::from_ref(&ours));
        let taken = AtomicUsize::new(0);
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            for count in 1..=4 {
                scope.spawn(|| {
                    let mut batch = Batch::new();
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        for packet in packets {
                            if let Packet::Ready(ready) = packet {
                                ours.drain();
                                let _ = ready.rearm();
                            }
                            taken.fetch_add(1, SeqCst);
                        }
                    }
                });
                settle(on, &port, count);
            }
            for round in 1..=3 {
                port.post(round).unwrap();
                theirs.write(b"x").unwrap();
                eventually(on, "both are taken", || taken.load(SeqCst) == 2 * round);
                // Whoever looks after the port gives up once it has seen that nothing happens.
                for _ in 0..3 {
                    settle(on, &port, 4);
                    kernel.advance(Duration::from_millis(1));
                }
                settle(on, &port, 4);
                let before = kernel.calls();
                for _ in 0..1000 {
                    kernel.advance(Duration::from_millis(1));
                    assert!(kernel.wait_for_sleepers(4, on.soon()));
                }
                assert_eq!(kernel.calls(), before, "a port on which nothing happens is busy");
                assert_eq!(port.stats().needless_wakes, 0);
            }
        });
    });
}

/// As [`eventually`], but a simulated clock stands still.
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

/// The messages of one wait.
fn messages(port: &Port<(), usize>, on: &System) -> Vec<usize> {
    let mut batch = Batch::new();
    let packets = port.wait(&mut batch, on.soon()).unwrap();
    packets
        .map(|packet| match packet {
            Packet::Posted(message) => message,
            other => panic!("no message, but {other:?}"),
        })
        .collect()
}

/// Lets a thread, which then leaves, take so many packets that take so long that the port expects the
/// next ones to be long as well.
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

fn register(port: &Port<usize, impl Sized>, sockets: &[Socket]) {
    for (key, socket) in sockets.iter().enumerate() {
        port.register(Registration::new(socket, key, Interest::IN, OneShot::Level)).unwrap();
    }
}

/// A thread that tells which sockets it gets, and runs with each until the gate is open.
fn take_sockets(port: &Port<usize, ()>, say: &mpsc::Sender<usize>, gate: &Gate) {
    let mut batch = Batch::with_capacity(1);
    while let Ok(packets) = port.wait(&mut batch, None) {
        for packet in packets {
            let Packet::Ready(ready) = packet else { panic!("no socket, but {packet:?}") };
            say.send(*ready.key()).unwrap();
            gate.pass();
        }
    }
}

/// Eight threads run with messages, a part of which their handlers post; never more than `limit` of
/// them at once. The handlers do not sleep, but for the port's own lock: who is found waiting for that,
/// because the machine is busy, may be one more when he goes on (rule 39).
fn at_most(on: &System, limit: usize) {
    const FROM_OUTSIDE: usize = 200;
    const ALL: usize = 2 * FROM_OUTSIDE;
    on.several_threads_wait();
    let port = on.port::<(), usize>(limit);
    let (inside, peak, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _end = End::of(&port, []);
        for _ in 0..8 {
            scope.spawn(|| {
                let mut batch = Batch::with_capacity(3);
                while let Ok(packets) = port.wait(&mut batch, None) {
                    for packet in packets {
                        let Packet::Posted(message) = packet else { panic!("{packet:?}") };
                        peak.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        (0..2_000).for_each(|_| std::hint::spin_loop());
                        inside.fetch_sub(1, SeqCst);
                        if message < FROM_OUTSIDE {
                            port.post(message + FROM_OUTSIDE).unwrap();
                        }
                        done.fetch_add(1, SeqCst);
                    }
                }
            });
        }
        (0..FROM_OUTSIDE).for_each(|message| port.post(message).unwrap());
        eventually(on, "all messages are taken", || done.load(SeqCst) == ALL);
        settle(on, &port, 8);
        assert_eq!(done.load(SeqCst), ALL);
        assert_eq!(port.stats().packets.posted, ALL as u64);
    });
    let (peak, found) = (peak.load(SeqCst), port.stats().blocks_found);
    let most = limit + usize::try_from(found).unwrap();
    assert!((1..=most).contains(&peak), "{peak} ran at once, the limit is {limit}, {found} slept");
}

fn two_ports(on: &System) -> [Port<(), usize>; 2] {
    [on.port(1), on.port(1)]
}

/// On the first of two ports, each with a limit of one, a thread takes a packet and does `what` with
/// the second; then another thread gets the next packet.
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
        // Known at once: the clock of a simulated kernel stands still.
        assert_eq!(heard.recv_timeout(on.soon()).expect("the seat is not freed"), 1);
        // Where the first one sleeps on its way out, the second one need not wait for it to be gone.
        eventually(on, "only the second is left", || {
            let stats = port.stats();
            (stats.parked, stats.running, stats.queued) == (1, 0, 0)
        });
        other.close();
        // A panic was the test's own.
        let _ = first.join();
    });
}

/// What a thread says when it has got the packet of a socket.
const READY: usize = usize::MAX;

/// A port whose message 0 makes its handler block without a word.
struct Blocked<'s> {
    on: &'s System,
    port: Port<(), usize>,
    /// Keeps the handlers of message 1, and of message 0 once it blocks no longer.
    gate: Gate,
    limit: usize,
    /// Handlers of message 2, which wait for each other until as many run as there are seats.
    together: AtomicUsize,
    /// The handler of message 0 blocks no longer.
    awake: AtomicBool,
    say: mpsc::Sender<usize>,
}

impl<'s> Blocked<'s> {
    fn on(on: &'s System, limit: usize) -> (Self, mpsc::Receiver<usize>) {
        on.several_threads_wait();
        let (say, heard) = mpsc::channel();
        let (port, gate, together) = (on.port(limit), Gate::default(), AtomicUsize::new(0));
        let awake = AtomicBool::new(false);
        (Self { on, port, gate, limit, together, awake, say }, heard)
    }

    /// Starts `others`, and a thread that blocks until what this returns is dropped.
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
                // Taken back before this thread came to it.
                None => continue,
                other => panic!("{other:?}"),
            };
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

/// All of `limit` seats are taken, one of them by a thread that blocked and runs again: nothing is
/// handed out.
fn who_blocked_runs_again(on: &System, limit: usize) {
    let (blocked, heard) = Blocked::on(on, limit);
    let port = &blocked.port;
    thread::scope(|scope| {
        let _end = End::of(port, [&blocked.gate]);
        let go_on = blocked.begin(scope, &heard, limit);
        // The others take the seats, all at once, for which the block has to be noticed.
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
        // Some time later the port knows.
        stays(on, 1, "one waits", || port.stats().parked == 1);
        port.post(3).unwrap();
        stays(on, 1, "nothing is handed out", || heard.try_recv().is_err());
        eventually_without_time(on, "the port knows", || port.stats().running == limit);
        assert_eq!(port.stats().queued, 1);
        blocked.gate.open();
        assert_eq!(hear(on, &heard, "the rest is taken"), 3);
        settle(on, port, limit + 1);
    });
}
