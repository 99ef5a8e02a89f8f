//! Rules 17 to 19 and 22: how many packets a registration makes, and when it makes none.

use std::net::Shutdown;
use std::sync::mpsc;
use std::thread;

use completion_port::{Batch, ErrorKind, Events, Interest, OneShot, Packet, Port, Registration};
use testkit::on_edge_triggered_systems;
use testkit::on_every_system;

use crate::kit::packets::{
    ONE_SHOT_EDGE, ONE_SHOT_LEVEL, PERSISTENT_LEVEL, TRIGGERS, assert_quiet, enable, leave_queued,
    notified, packet, port_on, ready, register, report,
};
use crate::kit::sockets::{POLLIN, POLLRDHUP, READERS, await_facts};

on_every_system! {
    // ---- rule 17 -------------------------------------------------------------------------------

    /// Rule 17.
    fn at_most_one_packet_of_a_registration_is_queued(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            register(&port, &ours, "ours", Interest::IN, trigger);
            for _ in 0..4 {
                theirs.write(b"more").unwrap();
                leave_queued(&port, system, 1);
            }
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
            assert_eq!(ours.drain(), 16);
            assert_quiet(&port, system);
        }
    }

    /// Rule 17.
    fn the_queue_is_bounded_by_the_number_of_registrations(system: &System) {
        let port = port_on(system);
        let pairs: Vec<_> = (0..20).map(|_| system.unix_pair()).collect();
        for (ours, _) in &pairs {
            register(&port, ours, "ours", Interest::IN | Interest::OUT, PERSISTENT_LEVEL);
        }
        // Most of them remain in the queue.
        let mut batch = Batch::with_capacity(6);
        for _ in 0..5 {
            for (_, theirs) in &pairs {
                theirs.write(b"x").unwrap();
            }
            let packets = port.wait(&mut batch, system.soon()).unwrap();
            assert!(packets.count() > 0);
            assert!(port.stats().queued <= pairs.len(), "{:?}", port.stats());
        }
    }

    // ---- rule 18 -------------------------------------------------------------------------------

    /// Rule 18.
    fn a_persistent_level_registration_repeats_as_long_as_the_condition_holds(system: &System) {
        for pair in READERS {
            let port = port_on(system);
            let (ours, theirs) = pair(system);
            register(&port, &ours, "ours", Interest::IN, PERSISTENT_LEVEL);
            assert_quiet(&port, system);
            theirs.write(b"four").unwrap();
            for _ in 0..5 {
                let packet = notified(&port, system);
                assert_eq!((packet.events(), *packet.key()), (Events::IN, "ours"));
            }
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 4);
            assert_quiet(&port, system);
            theirs.write(b"x").unwrap();
            assert_eq!(report(&port, system), Events::IN);
        }
    }

    /// Rule 18.
    fn several_threads_hold_packets_of_one_persistent_level_registration(system: &System) {
        system.several_threads_wait();
        let port: Port<&str, u32> = system.port(2);
        let (ours, theirs) = system.unix_pair();
        register(&port, &ours, "ours", Interest::IN, PERSISTENT_LEVEL);
        theirs.write(b"x").unwrap();
        let (has, holds) = mpsc::channel();
        let (done, ends) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let port = &port;
            scope.spawn(move || {
                let held = notified(port, system);
                has.send(held.events()).unwrap();
                let _ = ends.recv();
                assert_eq!(*held.key(), "ours");
            });
            assert_eq!(holds.recv_timeout(system.soon()).unwrap(), Events::IN);
            let second = notified(port, system);
            assert_eq!((second.events(), *second.key()), (Events::IN, "ours"));
            drop(done);
        });
    }

    // ---- rule 19 -------------------------------------------------------------------------------

    /// Rule 19.
    fn one_shot_level_reports_once_until_enabled_again(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"one").unwrap();
        let held = ready(&port, system);
        assert_eq!((held.events(), *held.key()), (Events::IN, "ours"));
        assert_quiet(&port, system);
        theirs.write(b"two").unwrap();
        assert_quiet(&port, system);
        held.rearm().unwrap();
        assert_eq!(report(&port, system), Events::IN);
        assert_quiet(&port, system);
    }

    /// Rule 19.
    fn a_one_shot_packet_disables_the_registration_wholly(system: &System) {
        system.not_on_wine("event for an end of stream behind unread data");
        for trigger in [ONE_SHOT_LEVEL, ONE_SHOT_EDGE] {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            register(&port, &ours, "ours", Interest::ALL, trigger);
            let held = ready(&port, system);
            assert_eq!(held.events(), Events::OUT, "{trigger:?}");
            theirs.write(b"x").unwrap();
            assert_quiet(&port, system);
            let id = held.park().unwrap();
            theirs.shutdown(Shutdown::Write).unwrap();
            assert_quiet(&port, system);
            await_facts(&ours, system, POLLIN | POLLRDHUP);
            enable(&port, id, Interest::ALL, ONE_SHOT_LEVEL);
            assert_eq!(report(&port, system), Events::IN | Events::OUT | Events::HANGUP);
            assert_quiet(&port, system);
        }
    }

    /// Rule 19.
    fn a_spent_one_shot_is_still_registered(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let held = ready(&port, system);
        assert_eq!(held.id(), id);
        let again = Registration::new(&ours, "again", Interest::IN, OneShot::Level);
        let refused = port.register(again).unwrap_err();
        assert_eq!((refused.kind(), *refused.value()), (ErrorKind::AlreadyRegistered, "again"));
        assert_eq!(port.stats().registered, 1);
        assert_eq!(held.park().unwrap(), id);
        port.remove(id).unwrap();
        assert!(matches!(packet(&port, system), Packet::Removed(it, "ours") if it == id));
        assert_quiet(&port, system);
    }

    // ---- rule 22 -------------------------------------------------------------------------------

    /// Rule 22.
    fn edge_one_shot_reports_once_until_enabled_again(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_EDGE);
        theirs.write(b"one").unwrap();
        let held = ready(&port, system);
        assert_eq!(held.events(), Events::IN);
        for _ in 0..3 {
            theirs.write(b"more").unwrap();
            assert_quiet(&port, system);
        }
        ours.drain();
        held.rearm().unwrap();
        // An earlier arrival may be reported now. That is fine even if there is nothing to read.
        let mut batch = Batch::new();
        let surplus = port.wait(&mut batch, system.quiet()).unwrap().next();
        if let Some(Packet::Ready(held)) = surplus {
            held.rearm().unwrap();
        }
        assert_quiet(&port, system);
        theirs.write(b"two").unwrap();
        assert_eq!(report(&port, system), Events::IN);
        assert_quiet(&port, system);
    }
}

on_edge_triggered_systems! {
    /// Rule 17: the kernel is polled between the two conditions, because another socket is armed.
    fn a_condition_that_is_found_while_a_packet_is_queued_is_merged(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            let (other, _peer) = system.unix_pair();
            register(&port, &other, "other", Interest::OUT, ONE_SHOT_LEVEL);
            let held = ready(&port, system);
            register(&port, &ours, "ours", Interest::IN | Interest::OUT, trigger);
            leave_queued(&port, system, 1);
            theirs.write(b"x").unwrap();
            held.rearm().unwrap();
            assert_eq!(report(&port, system), Events::IN | Events::OUT, "{trigger:?}");
            ours.drain();
        }
    }

    /// Rule 17.
    fn what_becomes_true_while_a_packet_is_queued_is_in_it(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            register(&port, &ours, "ours", Interest::ALL, trigger);
            leave_queued(&port, system, 1);
            theirs.write(b"x").unwrap();
            assert_eq!(report(&port, system), Events::IN | Events::OUT, "{trigger:?}");
        }
    }
}
