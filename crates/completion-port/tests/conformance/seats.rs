//! Rule 38: which threads count as running, and what frees a seat.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use completion_port::{Batch, Packet, Port};
use testkit::{System, on_every_system};

use crate::kit::takers::{Takers, with_takers};
use crate::kit::threads::{
    End, Gate, a_seat_is_freed_by, eventually_without_time, hear, settle, stays, take,
};

on_every_system! {
    /// Rule 38: a wait that times out leaves its thread running.
    fn a_thread_whose_time_is_over_counts_as_running(system: &System) {
        system.several_threads_wait();
        let port = system.port_without_detection::<(), usize>(1);
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

    /// Rule 38: while every seat is taken, nothing is delivered, however the other threads ask.
    fn with_every_seat_taken_nobody_gets_a_packet(system: &System) {
        with_takers(system, 1, |scope, port, takers, gate| {
            takers.start(scope, 1, |_| gate.pass());
            (0..3).for_each(|message| port.post(message).unwrap());
            assert_eq!(takers.hear("the first is taken"), (0, 0));
            let mut batch = Batch::new();
            for _ in 0..20 {
                assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
            }
            assert_eq!(port.stats().queued, 2);
            gate.open();
            // This thread also runs now, because its wait timed out, until it waits again. Then it
            // takes what the other one leaves.
            let mut seen = vec![0];
            while seen.len() < 3 {
                let packets = port.wait(&mut batch, Duration::ZERO).unwrap();
                seen.extend(packets.filter_map(|packet| match packet {
                    Packet::Posted(message) => Some(message),
                    _ => None,
                }));
                seen.extend(takers.heard_already().map(|(message, _)| message));
            }
            seen.sort_unstable();
            assert_eq!(seen, [0, 1, 2]);
        });
    }

    /// Rule 38: a spinning thread counts as running, for however long.
    fn a_thread_that_spins_keeps_its_seat(system: &System) {
        with_takers(system, 1, |scope, port, takers, gate| {
            takers.start(scope, 2, |message| {
                if message == 0 {
                    gate.pass();
                }
            });
            port.post(0).unwrap();
            port.post(1).unwrap();
            assert_eq!(takers.hear("the first is taken"), (0, 1));
            stays(system, 1, "the other waits", || {
                let stats = port.stats();
                stats.queued == 1 && stats.running == 1 && stats.blocked == 0
            });
            gate.open();
            assert_eq!(takers.hear("the second is taken"), (1, 1));
            settle(system, port, 2);
        });
    }

    /// Rule 38.
    fn a_thread_that_exits_frees_its_seat(system: &System) {
        a_seat_is_freed_by(system, two_ports(system), |_| {});
    }

    /// Rule 38.
    fn a_thread_that_panics_frees_its_seat(system: &System) {
        // Without the message that a panic prints.
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
        let port = system.port_without_detection::<(), usize>(1);
        let takers = Takers::of(system, &port);
        let (go_on, blocked) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            let port = &port;
            takers.start(scope, 2, |_| {});
            scope.spawn(move || {
                assert_eq!(take(port), Some(0));
                // Ends when the test gives up, too.
                let _ = port.blocking(|| blocked.recv());
                assert!(port.stats().running >= 1, "it runs again");
            });
            settle(system, port, 3);
            port.post(0).unwrap();
            eventually_without_time(system, "it blocks", || port.stats().blocked == 1);
            port.post(1).unwrap();
            // No tick is needed: the clock of a simulated kernel stands still.
            assert_eq!(takers.at_once("the seat is given away"), (1, 1));
            drop(go_on);
        });
    }

    /// Rule 38: the end of an inner block does not end the outer one.
    fn blocking_within_blocking_ends_with_the_outer_one(system: &System) {
        system.several_threads_wait();
        let port = system.port_without_detection::<(), usize>(1);
        let takers = Takers::of(system, &port);
        let gate = Gate::default();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            let (port, gate) = (&port, &gate);
            takers.start(scope, 1, |_| {});
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
            assert_eq!(takers.hear("the other one takes over"), (1, 0));
        });
    }

    /// Rule 38: a panic ends a block as a return does.
    fn a_panic_while_blocking_ends_the_block(system: &System) {
        let port = system.port_without_detection::<(), usize>(1);
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

    /// Rule 38: a thread without packets of the port may also announce a block, which changes
    /// nothing.
    fn blocking_without_a_seat_changes_nothing(system: &System) {
        let port = system.port_without_detection::<(), usize>(1);
        let before = port.stats();
        assert_eq!(port.blocking(|| port.stats()), before);
        assert_eq!(port.stats(), before);
    }

    /// Rule 38: when a thread announces a block, the other packets of its batch go to other
    /// threads.
    fn what_a_blocking_thread_has_not_looked_at_goes_to_others(system: &System) {
        system.several_threads_wait();
        let port = system.port_without_detection::<(), usize>(1);
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
}

fn two_ports(on: &System) -> [Port<(), usize>; 2] {
    [on.port(1), on.port(1)]
}
