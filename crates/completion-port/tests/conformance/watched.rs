//! Rule 23: an unrequested event wakes no thread.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, ErrorKind, Events, Interest, OneShot, Packet, Registration};
use testkit::{effort, on_every_system};

use crate::kit::packets::{
    ONE_SHOT_LEVEL, PERSISTENT_EDGE, TRIGGERS, enable, port_on, ready, register, report,
};
use crate::kit::sockets::{POLLIN, await_facts, fill, make_room};
use crate::kit::threads::{End, eventually, hear, settle};

/// The number of sends and receives that don't affect the port.
const ROUNDS: usize = 1000;

on_every_system! {
    /// Rule 23: room that a send uses up and gets back does not affect a registration for IN.
    fn a_datagram_socket_that_sends_wakes_no_thread_that_waits_for_data(system: &System) {
        for trigger in [ONE_SHOT_LEVEL, PERSISTENT_EDGE] {
            system.several_threads_wait();
            let port = port_on(system);
            let (ours, theirs) = system.udp_pair();
            register(&port, &ours, "ours", Interest::IN, trigger);
            let (say, heard) = std::sync::mpsc::channel();
            thread::scope(|scope| {
                let _end = End::of(&port, []);
                scope.spawn(|| {
                    let mut batch = Batch::new();
                    let packet = port.wait(&mut batch, None).unwrap().next();
                    say.send(packet.map(|packet| matches!(packet, Packet::Posted(_)))).unwrap();
                });
                settle(system, &port, 1);
                let before = port.stats();
                for _ in 0..ROUNDS {
                    ours.write(b"x").unwrap();
                    assert_eq!(theirs.read_within(system.soon(), 1), b"x");
                }
                let after = port.stats();
                assert_eq!((after.polls, after.empty_polls), (before.polls, before.empty_polls));
                theirs.write(b"x").unwrap();
                assert_eq!(hear(system, &heard, "data comes"), Some(false));
            });
        }
    }

    /// Rule 23: that a new connection is writable does not affect a registration for IN.
    fn an_accepted_socket_that_is_registered_for_in_wakes_no_thread(system: &System) {
        system.several_threads_wait();
        let port = system.port::<u32, ()>(1);
        let pairs: Vec<_> = (0..10).map(|_| system.tcp_pair()).collect();
        let (say, heard) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            scope.spawn(|| {
                let mut batch = Batch::new();
                let Some(Packet::Ready(token)) = port.wait(&mut batch, None).unwrap().next() else {
                    panic!("no message was posted");
                };
                say.send((*token.key(), token.events())).unwrap();
            });
            settle(system, &port, 1);
            let before = port.stats().polls;
            for (key, (ours, _)) in (0..).zip(&pairs) {
                port.register(Registration::new(ours, key, Interest::IN, OneShot::Level)).unwrap();
            }
            assert_eq!(port.stats().polls, before);
            pairs[7].1.write(b"x").unwrap();
            assert_eq!(hear(system, &heard, "data comes"), (7, Events::IN));
        });
    }

    /// Rules 12 and 23: a direction is requested later, by a token or by id. Its current and future
    /// conditions are reported.
    fn a_direction_that_is_asked_for_later_is_reported(system: &System) {
        for trigger in TRIGGERS {
            for (first, later) in [(Interest::IN, Interest::OUT), (Interest::NONE, Interest::ALL)] {
                let port = port_on(system);
                let (ours, _theirs) = system.tcp_pair();
                let id = register(&port, &ours, "ours", first, trigger);
                enable(&port, id, later, trigger);
                assert_eq!(report(&port, system), Events::OUT, "{trigger:?} {later:?}");
            }
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::OUT, trigger);
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            theirs.write(b"x").unwrap();
            await_facts(&ours, system, POLLIN);
            enable(&port, id, Interest::IN, trigger);
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
        }
    }

    /// Rules 12 and 23: the direction isn't ready yet when its handler requests it.
    fn a_token_asks_for_room_that_comes_later(system: &System) {
        for hinted in [false, true] {
            let port = system.port::<&str, ()>(1);
            let (ours, theirs) = system.tcp_pair();
            theirs.write(b"x").unwrap();
            port.register(Registration::new(&ours, "key", Interest::IN, OneShot::Level)).unwrap();
            let mut token = ready(&port, system);
            fill(&ours);
            if hinted {
                token.write_full();
            }
            token.rearm_as(Interest::OUT, OneShot::Level).unwrap();
            let nothing = port.wait(&mut Batch::new(), system.quiet()).unwrap().count();
            assert_eq!(nothing, 0, "it is full");
            make_room(&ours, &theirs, system);
            let token = ready(&port, system);
            assert_eq!(token.events(), Events::OUT);
        }
    }

    /// Rules 12 and 23: two threads each request one direction, one after the other, and both stay
    /// watched.
    fn directions_that_are_asked_for_one_after_the_other_add_up(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let trigger = PERSISTENT_EDGE;
        let id = register(&port, &ours, "ours", Interest::NONE, trigger);
        thread::scope(|scope| {
            scope.spawn(|| enable(&port, id, Interest::IN, trigger));
            scope.spawn(|| enable(&port, id, Interest::OUT, trigger));
        });
        enable(&port, id, Interest::IN | Interest::OUT, trigger);
        assert!(report(&port, system).is_out());
        theirs.write(b"x").unwrap();
        let (begun, mut batch, mut is_seen) = (Instant::now(), Batch::new(), false);
        while !is_seen {
            is_seen = port.wait(&mut batch, system.soon()).unwrap().any(|packet| {
                matches!(packet, Packet::Notified(notified) if notified.events().is_in())
            });
            // A system that reports later may report an earlier condition once more meanwhile.
            assert!(is_seen || !system.tells_at_once() && begun.elapsed() < system.soon());
        }
    }

    /// Rules 12 and 23: a thread requests a direction by id while the token returns.
    fn a_direction_is_asked_for_by_name_as_the_token_comes_back(system: &System) {
        // Within a hundred rounds the two meet at each place. A round takes a tenth of a second on
        // Windows.
        let rounds = if cfg!(windows) { 40 } else { 100 * effort() };
        for round in 0..rounds {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            theirs.write(b"x").unwrap();
            let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
            let token = ready(&port, system);
            ours.fill();
            let begins = Barrier::new(2);
            thread::scope(|scope| {
                scope.spawn(|| {
                    begins.wait();
                    while let Err(error) = port.enable(id, Interest::OUT, OneShot::Level) {
                        assert_eq!(error.kind(), ErrorKind::KeyHeld);
                    }
                });
                begins.wait();
                for _ in 0..round * 50 % 997 {
                    std::hint::spin_loop();
                }
                token.park().unwrap();
            });
            make_room(&ours, &theirs, system);
            assert_eq!(report(&port, system), Events::OUT, "round {round}");
        }
    }

    /// Rule 23: polls that return nothing are counted.
    fn a_poll_that_brings_nothing_is_counted(system: &System) {
        let port = port_on(system);
        let (ours, _theirs) = system.tcp_pair();
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        let before = port.stats();
        assert_eq!(port.wait(&mut Batch::new(), Duration::ZERO).unwrap().count(), 0);
        let after = port.stats();
        assert!(after.polls > before.polls);
        assert_eq!(after.empty_polls - before.empty_polls, after.polls - before.polls);
        eventually(system, "nothing else polls", || port.stats() == after);
    }
}
