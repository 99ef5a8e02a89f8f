//! Rule 6: packets that a thread was given and does not reach go to other threads.

use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, Operation, Packet, Port, sim};
use testkit::{System, on_every_system};

use crate::kit::operations::{Shared, room};
use crate::kit::packets::each_packet;
use crate::kit::threads::{End, Gate, eventually, hear, now, script, settle, take};

/// A thread has a batch of operations, takes the first one, and calls `stick` before it looks for
/// the next. Checks that another thread gets the others, each once, and that the first one gets
/// none of them.
fn the_others_are_done_elsewhere(
    system: &System,
    limit: usize,
    stick: impl FnOnce() + Send,
    let_go: impl FnOnce(),
) {
    const RECEIVES: usize = 4;
    system.several_threads_wait();
    let port: Port<Shared, u32> = system.port(limit);
    let (near, far): (Vec<_>, Vec<_>) = (0..=RECEIVES).map(|_| system.unix_pair()).unzip();
    let ids: Vec<_> =
        near.into_iter().map(|near| port.associate_shared(Shared::new(near)).unwrap()).collect();
    let receives = ids[1..].iter().map(|id| port.start(*id, Operation::recv(room(4))).unwrap());
    let mut operations: Vec<_> = receives.collect();
    for (number, far) in far[1..].iter().enumerate() {
        far.write(&[u8::try_from(number).unwrap()]).unwrap();
    }
    // The first has ended when it is found. The thread that reaches the others tries them.
    operations.push(port.start(ids[0], Operation::send(b"sent".to_vec())).unwrap());
    let (say, heard) = mpsc::channel();
    let done = |packet: Packet<'_, Shared, u32>| {
        let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
        assert!(finished.error().is_none(), "{:?}", finished.error());
        finished.operation()
    };
    thread::scope(|scope| {
        let _end = End::of(&port, []);
        let (port, said) = (&port, say.clone());
        let stuck = scope.spawn(move || {
            let me = thread::current().id();
            script(system, me, false);
            let mut batch = Batch::new();
            // The batch has all of them, since no other thread has arrived.
            let mut packets = port.wait(&mut batch, None).unwrap();
            assert_eq!(port.stats().queued, 0);
            said.send((done(packets.next().unwrap()), me)).unwrap();
            stick();
            assert!(packets.next().is_none(), "what it did not come to was taken");
        });
        let first = heard.recv_timeout(system.soon()).unwrap().0;
        operations.retain(|operation| *operation != first);
        assert_eq!(operations.len(), RECEIVES);
        let other = scope.spawn(move || {
            let me = thread::current().id();
            script(system, me, false);
            each_packet(port, Batch::new(), |packet| {
                say.send((done(packet), me)).unwrap();
            });
        });
        while !operations.is_empty() {
            let (operation, thread) = hear(system, &heard, "it goes to another thread");
            assert_eq!(thread, other.thread().id());
            assert!(operations.contains(&operation), "{operation:?} came twice");
            operations.retain(|left| *left != operation);
        }
        let_go();
        stuck.join().unwrap();
        assert!(heard.try_recv().is_err());
    });
    assert_eq!(port.stats().packets.completed, 1 + RECEIVES as u64);
    assert_eq!(far[0].read_within(system.soon(), 4), b"sent");
}

on_every_system! {
    /// Rules 6 and 54: if a thread does not reach its operations because it spins, another one
    /// tries them.
    fn operations_of_a_thread_that_spins_are_done_by_another_one(system: &System) {
        let gate = Gate::default();
        the_others_are_done_elsewhere(system, 2, || gate.pass(), || gate.open());
    }

    /// Rules 6 and 54: the same for a thread that sleeps, on a port with one seat.
    fn operations_of_a_thread_that_sleeps_are_done_by_another_one(system: &System) {
        system.not_on_windows("call that reports a sleeping thread");
        let (go_on, told) = mpsc::channel::<()>();
        let sleep = move || {
            let me = thread::current().id();
            script(system, me, true);
            let _ = told.recv();
            script(system, me, false);
        };
        the_others_are_done_elsewhere(system, 1, sleep, || drop(go_on));
    }

    /// Rule 6: packets that a caller has copied elsewhere can't be taken back, so where threads sleep
    /// for milliseconds it should take fewer at a time.
    fn who_can_give_nothing_back_is_advised_to_take_less_where_threads_sleep(system: &System) {
        system.not_on_windows("call that reports a sleeping thread");
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
            assert!(port.raw().advised_room() > 1_000_000, "{}", port.raw().advised_room());
            // Four sleeps are enough, each found within 100 ms of the one before. On a busy machine they
            // may be found further apart. The number rises again each second, in which this thread may
            // have been starved.
            let begun = Instant::now();
            while port.raw().advised_room() > 16 {
                assert!(begun.elapsed() < system.soon(), "{}", port.raw().advised_room());
                for message in [0, 1] {
                    port.post(message).unwrap();
                    assert_eq!(hear(system, &heard, "a message is taken"), message);
                }
                let slept = now(system);
                eventually(system, "it sleeps for long", || {
                    port.raw().advised_room() <= 16
                        || now(system) - slept >= Duration::from_millis(20)
                });
                go_on.send(()).unwrap();
                settle(system, &port, 2);
            }
            let Some(kernel) = system.kernel() else { return };
            for least in [4, 16, 64, 1_000_000] {
                kernel.advance(Duration::from_secs(1));
                assert!(port.raw().advised_room() >= least, "{}", port.raw().advised_room());
            }
            drop(go_on);
        });
    }
}

/// Rule 6: the same if threads wait briefly from time to time, so that the watchdog changes
/// constantly.
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

/// Posts `messages` to a port with two seats. A thread takes several of them at time zero and
/// reaches only the first one. The others are taken from it while `act` runs.
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
        // The clock does not advance meanwhile.
        heard.recv_timeout(on.soon()).expect("the first has a share");
        act(port, kernel);
        gate.open();
    });
}

/// Rule 6: a running thread detects one that spins with messages that it has copied elsewhere,
/// although no seat is free. A single message is then enough, for as long as the thread spins.
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
            assert!(port.raw().advised_room() > 1_000_000, "{}", port.raw().advised_room());
            for (gate, messages) in gates.iter().zip([3, 1]) {
                (0..messages).for_each(|message| port.post(message).unwrap());
                let (say, port) = (say.clone(), &port);
                let spins = scope.spawn(move || {
                    let taken = port.wait(&mut Batch::new(), None).unwrap().count();
                    say.send(taken).unwrap();
                    gate.pass();
                });
                // The clock does not advance meanwhile.
                assert_eq!(heard.recv_timeout(on.soon()), Ok(messages));
                for milliseconds in [10, 1500] {
                    for message in 0..milliseconds {
                        kernel.advance(Duration::from_millis(1));
                        port.post(message).unwrap();
                        assert_eq!(take(port), Some(message));
                    }
                    assert_eq!(port.raw().advised_room(), 1, "it spins with {messages}");
                }
                gate.open();
                spins.join().unwrap();
            }
        });
    });
}

/// Rule 6: no thread is idle. One that comes to wait takes the packets that another one does not
/// reach, a good hundred microseconds after it first saw them.
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
                // All of them, in one wait or in two, since the first thread counts as working.
                assert_eq!([take(port), take(port), take(port)], [1, 2, 3].map(Some));
            },
        );
    });
}

/// Rule 37: if a thread's packets are already overdue when another one becomes the watchdog, that
/// one takes them immediately.
#[test]
fn what_is_overdue_when_a_thread_begins_to_watch_is_taken_at_once_sim() {
    testkit::run(System::simulated, |on| {
        // A second thread is present when the first one takes its share, so that the share is
        // timed.
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
