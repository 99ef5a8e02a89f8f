//! Rule 39: the idle thread that watches a port whose other threads stay away.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::kit::packets::each_packet;
use completion_port::{Batch, BlockDetection, Interest, OneShot, Packet, Port, Registration};
#[cfg(target_os = "linux")]
use testkit::scheduler::ThreadNumber;
use testkit::{System, in_a_process_of_its_own, on_every_system};

#[cfg(target_os = "linux")]
use crate::kit::descriptors::leave_no_descriptor;
#[cfg(target_os = "linux")]
use crate::kit::signals::{catch_signals, interrupt_sleep};
use crate::kit::takers::Sockets;
use crate::kit::threads::{
    End, eventually, eventually_without_time, hear, make_packets_long, script, settle, stays, take,
};

on_every_system! {
    /// Rule 39: while a long packet is handled, the kernel itself releases a thread for the next
    /// one, up to the limit.
    fn sockets_with_long_handlers_are_taken_without_anybody_being_woken_by_the_port(system: &System) {
        system.several_threads_wait();
        let port = system.port::<usize, ()>(2);
        make_packets_long(system, &port);
        let sockets = Sockets::of(system, &port, 3);
        thread::scope(|scope| {
            let _end = sockets.end();
            sockets.start(scope, 3);
            let before = port.stats().wakes;
            for socket in 0..2 {
                sockets.write(socket);
                assert_eq!(sockets.hear("a socket is taken").0, socket);
                if socket == 0 {
                    assert_eq!(port.stats().wakes, before);
                }
            }
            sockets.write(2);
            stays(system, 1, "two run", || sockets.are_silent());
            sockets.open_all();
            assert_eq!(sockets.hear("the third is taken").0, 2);
        });
    }

    /// Rule 39: while handlers run and no thread is in the kernel's wait, a watchdog polls.
    fn a_port_whose_handlers_do_not_come_back_is_not_deaf(system: &System) {
        an_unattended_port_is_looked_at(system, || {});
    }

    /// Rule 39: while every seat is taken, packets are found but not delivered.
    fn with_every_seat_taken_packets_are_found_and_kept(system: &System) {
        system.several_threads_wait();
        let port = system.port::<usize, ()>(1);
        let sockets = Sockets::of(system, &port, 2);
        thread::scope(|scope| {
            let _end = sockets.end();
            sockets.start(scope, 2);
            sockets.write(0);
            assert_eq!(sockets.hear("the first is taken").0, 0);
            sockets.write(1);
            eventually(system, "the second is found", || port.stats().queued == 1);
            stays(system, 1, "it is not handed out", || port.stats().queued == 1);
            assert!(sockets.are_silent());
            sockets.open_all();
            assert_eq!(sockets.hear("the second is taken").0, 1);
            settle(system, &port, 2);
        });
    }
}

/// Rule 39: a wake that the kernel gives to another thread than the future watchdog is not lost.
#[cfg(target_os = "linux")]
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
                            // Sleeps unannounced.
                            drop(gate.wait_while(open.lock().unwrap(), |open| !*open));
                        }
                    }
                });
                settle(on, port, name + 1);
            }
            // The two that arrived first are in the kernel's wait, and the others are parked.
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

/// Rule 39: exact to the millisecond. Only a simulated kernel has a clock that stands still until
/// it is advanced.
#[test]
fn a_thread_that_waits_looks_within_a_millisecond_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for limit in [1, 3] {
            let port = on.port::<usize, ()>(limit);
            let sockets = Sockets::of(on, &port, 2);
            thread::scope(|scope| {
                let _end = sockets.end();
                sockets.start(scope, 2);
                sockets.write(0);
                assert_eq!(sockets.at_once().0, 0);
                settle(on, &port, 1);
                sockets.write(1);
                kernel.advance(Duration::from_millis(1));
                if limit == 1 {
                    let found = || port.stats().queued == 1;
                    eventually_without_time(on, "it is found within a millisecond", found);
                } else {
                    assert_eq!(sockets.at_once().0, 1, "within a millisecond");
                }
            });
        }
    });
}

/// Rule 39: a thread that returns for the next packet is left alone, whether the packet is still
/// with the kernel or already queued. Each return starts a new millisecond, after which another
/// thread polls.
#[test]
fn who_comes_back_by_himself_is_left_to_do_so_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for queued in [false, true] {
            let port = on.port::<usize, ()>(2);
            let sockets = Sockets::of(on, &port, 3);
            thread::scope(|scope| {
                let _end = sockets.end();
                sockets.start(scope, 2);
                sockets.write(0);
                let (_, first) = sockets.at_once();
                settle(on, &port, 1);
                kernel.advance(Duration::from_micros(600));
                if queued {
                    // The thread finds both when it returns, and leaves one of them in the queue.
                    sockets.write(1);
                    sockets.write(2);
                    sockets.gates[0].open();
                } else {
                    sockets.gates[0].open();
                    settle(on, &port, 2);
                    sockets.write(1);
                }
                assert_eq!(sockets.at_once(), (1, first), "he has come back for it");
                settle(on, &port, 1);
                if !queued {
                    sockets.write(2);
                }
                // The other thread's first millisecond has passed, but not the one since the first
                // thread returned.
                kernel.advance(Duration::from_micros(400));
                assert!(sockets.stay_silent(Duration::from_millis(50)), "too soon");
                kernel.advance(Duration::from_micros(600));
                let (socket, second) = sockets.at_once();
                assert_eq!(socket, 2);
                assert_ne!(second, first);
            });
        }
    });
}

/// Two threads wait. The one that takes the first socket does not return, and the other one must
/// find the second, whatever happened before.
fn an_unattended_port_is_looked_at(on: &System, before: impl FnOnce()) {
    on.several_threads_wait();
    let port = on.port::<usize, ()>(3);
    let sockets = Sockets::of(on, &port, 2);
    thread::scope(|scope| {
        let _end = sockets.end();
        sockets.start(scope, 2);
        before();
        // The thread in the kernel's wait leaves with the first packet, and the other one replaces
        // it there.
        for socket in 0..2 {
            sockets.write(socket);
            assert_eq!(sockets.hear("somebody takes it").0, socket);
        }
        assert_eq!(port.stats().running, 2);
    });
}

/// Rule 39: the same with no descriptor left.
#[cfg(target_os = "linux")]
#[test]
fn a_port_is_looked_at_with_no_descriptor_left_epoll() {
    if !in_a_process_of_its_own("watchdog::a_port_is_looked_at_with_no_descriptor_left_epoll") {
        return;
    }
    an_unattended_port_is_looked_at(&System::native(), leave_no_descriptor);
}

/// Rule 39 (see also 6): a thread that has had its packets for some microseconds keeps them and its
/// seat, however long ago the last scan was.
#[test]
fn who_has_just_come_is_neither_robbed_nor_replaced_long_after_the_last_look_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for limit in 1..=2 {
            kernel.advance(Duration::from_millis(2));
            let port = on.port::<usize, ()>(limit);
            let sockets = Sockets::of(on, &port, 4);
            thread::scope(|scope| {
                let _end = sockets.end();
                let port = &port;
                sockets.start_with_room(scope, 2, 4);
                sockets.write(0);
                let (_, first) = sockets.at_once();
                settle(on, port, 1);
                kernel.advance(Duration::from_micros(600));
                (1..4).for_each(|socket| sockets.write(socket));
                sockets.gates[0].open();
                assert_eq!(sockets.at_once(), (1, first));
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

/// Rule 39: the port is left to a thread that has recently returned. If that sleeps, it is found as
/// soon as the millisecond has passed in which it should have returned again. The same holds for
/// one that takes none of its packets.
#[test]
fn who_stays_away_after_the_port_was_left_to_it_is_found_a_millisecond_later_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for sleeps in [true, false] {
            kernel.advance(Duration::from_millis(2));
            let port = on.port_that::<usize, ()>(1, BlockDetection::Tick).unwrap();
            let sockets = Sockets::of(on, &port, 3);
            thread::scope(|scope| {
                let _end = sockets.end();
                let (port, gates, said) = (&port, &sockets.gates, sockets.say.clone());
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
                sockets.start(scope, 1);
                sockets.write(0);
                let (_, first) = sockets.at_once();
                settle(on, port, 1);
                kernel.advance(Duration::from_micros(600));
                (1..3).for_each(|socket| sockets.write(socket));
                gates[0].open();
                assert_eq!(sockets.at_once(), (1, first));
                settle(on, port, 1);
                script(on, first, true);
                // The other thread polls, and sees that this one had returned.
                kernel.advance(Duration::from_micros(400));
                settle(on, port, 1);
                kernel.advance(Duration::from_micros(599));
                settle(on, port, 1);
                assert!(sockets.are_silent(), "too soon");
                kernel.advance(Duration::from_micros(1));
                let (_, second) = sockets.at_once();
                assert_ne!(second, first);
                assert_eq!(port.stats().blocks_found, 1);
                script(on, first, false);
            });
        }
    });
}

/// Rule 39: if a thread returns in time but has left a packet in the queue twice, another thread
/// takes that packet.
#[test]
fn who_comes_back_in_time_but_never_to_the_end_is_helped_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        let port = on.port::<usize, ()>(2);
        let sockets = Sockets::of(on, &port, 16);
        thread::scope(|scope| {
            let _end = sockets.end();
            sockets.start(scope, 2);
            sockets.write(0);
            let (mut socket, first) = sockets.at_once();
            settle(on, &port, 1);
            (1..16).for_each(|socket| sockets.write(socket));
            for rounds in 0.. {
                kernel.advance(Duration::from_micros(600));
                // The watchdog has polled if it was due: it sleeps again, or has a packet.
                let mut taken = None;
                eventually_without_time(on, "the thread that watches has looked", || {
                    taken = sockets.heard_already();
                    taken.is_some() || kernel.sleeping() == 1
                });
                sockets.gates[socket].open();
                let (another, who) = taken.unwrap_or_else(|| sockets.at_once());
                if who != first {
                    break;
                }
                // Until every thread either runs or is parked.
                while port.stats().running + port.stats().parked < 2 {
                    thread::yield_now();
                }
                assert!(rounds < 5, "one thread is left alone with the queue");
                socket = another;
            }
        });
    });
}

/// Rule 39: a thread whose wait times out takes what is queued, or polls the kernel, even if it has
/// left both to others so far.
#[test]
fn who_leaves_a_packet_to_others_takes_it_when_his_time_is_over_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        for queued in [false, true] {
            // So that the first scan is due a whole millisecond after the beginning.
            kernel.advance(Duration::from_millis(2));
            let port = on.port::<usize, ()>(2);
            let sockets = Sockets::of(on, &port, 3);
            thread::scope(|scope| {
                let _end = sockets.end();
                let port = &port;
                sockets.start(scope, 1);
                let other = scope.spawn(move || {
                    let mut batch = Batch::with_capacity(1);
                    let packets = port.wait(&mut batch, Duration::from_micros(700)).unwrap();
                    packets.map(|packet| matches!(packet, Packet::Ready(_))).collect::<Vec<_>>()
                });
                settle(on, port, 2);
                sockets.write(0);
                assert_eq!(sockets.at_once().0, 0);
                settle(on, port, 1);
                kernel.advance(Duration::from_micros(300));
                sockets.write(1);
                if queued {
                    sockets.write(2);
                }
                sockets.gates[0].open();
                assert_eq!(sockets.at_once().0, 1);
                settle(on, port, 1);
                if !queued {
                    sockets.write(2);
                }
                kernel.advance(Duration::from_micros(400));
                assert_eq!(other.join().unwrap(), [true], "it is there, and nobody else takes it");
            });
        }
    });
}

/// Rule 39: while no thread runs, none polls. `tests/syscalls.rs` counts the calls on the real
/// system. Only a simulated kernel counts them without affecting the threads.
#[test]
fn a_port_on_which_nothing_happens_makes_no_call_sim() {
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        let port = on.port::<usize, usize>(2);
        let (ours, theirs) = on.unix_pair();
        port.register(Registration::new(&ours, 0, Interest::IN, OneShot::Level)).unwrap();
        let taken = AtomicUsize::new(0);
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            for count in 1..=4 {
                scope.spawn(|| {
                    each_packet(&port, Batch::new(), |packet| {
                        if let Packet::Ready(ready) = packet {
                            ours.drain();
                            let _ = ready.rearm();
                        }
                        taken.fetch_add(1, SeqCst);
                    });
                });
                settle(on, &port, count);
            }
            for round in 1..=3 {
                port.post(round).unwrap();
                theirs.write(b"x").unwrap();
                eventually(on, "both are taken", || taken.load(SeqCst) == 2 * round);
                // The watchdog stops once it has seen that nothing happens.
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
                assert_eq!(port.stats().spurious_wakes, 0);
            }
        });
    });
}
