//! Rules 8 to 11 and 15: what a registration is, and which descriptors it may have.

use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, Call, Changes, ErrorKind, Events, Interest, OneShot, Packet, Port, Registration,
};
use testkit::on_every_system;

use crate::kit::descriptors::closed;
use crate::kit::packets::{
    ONE_SHOT_LEVEL, PERSISTENT_LEVEL, TRIGGERS, Trigger, assert_quiet, enable, packet, port_on,
    ready, register, removed, report,
};

on_every_system! {
    // ---- rule 8 --------------------------------------------------------------------------------

    /// Rule 8.
    fn each_change_is_one_operation_on_one_registration(system: &System) {
        let port = port_on(system);
        let (first, one) = system.unix_pair();
        let (second, two) = system.unix_pair();
        let ids = [
            register(&port, &first, "first", Interest::IN, ONE_SHOT_LEVEL),
            register(&port, &second, "second", Interest::IN, ONE_SHOT_LEVEL),
        ];
        let (mut changes, mut none) = (Changes::new(), Batch::with_capacity(0));
        changes.disable(ids[0]);
        changes.enable(ids[1], Interest::IN, OneShot::Level);
        assert_eq!(changes.len(), 2);
        assert_eq!(port.process(&mut changes, &mut none, None).unwrap().count(), 0);
        assert_eq!(changes.results(), ids.map(Ok));
        one.write(b"x").unwrap();
        two.write(b"x").unwrap();
        assert_eq!(*ready(&port, system).key(), "second");
        assert_quiet(&port, system);
    }

    // ---- rule 9 --------------------------------------------------------------------------------

    /// Rule 9.
    fn every_trigger_reports_in_its_own_kind_of_packet(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN, trigger);
            assert_quiet(&port, system);
            theirs.write(b"x").unwrap();
            match (trigger, packet(&port, system)) {
                (Trigger::Once(_), Packet::Ready(held)) => {
                    assert_eq!((held.id(), *held.key(), held.events()), (id, "ours", Events::IN));
                    held.park().unwrap();
                }
                (Trigger::Always(_), Packet::Notified(it)) => {
                    assert_eq!((it.id(), *it.key(), it.events()), (id, "ours", Events::IN));
                    assert_eq!(it.into_key(), "ours");
                }
                (_, packet) => panic!("{packet:?}"),
            }
            ours.drain();
            assert_quiet(&port, system);
        }
    }

    /// Rule 9.
    fn a_registration_may_change_from_any_trigger_to_any_other(system: &System) {
        system.not_by_polls("edge trigger that reports undrained data only once");
        for former in TRIGGERS {
            for latter in TRIGGERS {
                let port = port_on(system);
                let (ours, theirs) = system.tcp_pair();
                let id = register(&port, &ours, "ours", Interest::IN, former);
                theirs.write(b"x").unwrap();
                assert_eq!(report(&port, system), Events::IN);
                ours.drain();
                enable(&port, id, Interest::IN, latter);
                assert_quiet(&port, system);
                theirs.write(b"x").unwrap();
                let is_ready = match packet(&port, system) {
                    Packet::Ready(held) => held.park().is_ok(),
                    _ => false,
                };
                assert_eq!(is_ready, matches!(latter, Trigger::Once(_)), "{former:?} {latter:?}");
                if latter == PERSISTENT_LEVEL {
                    assert_eq!(report(&port, system), Events::IN);
                } else {
                    assert_quiet(&port, system);
                }
            }
        }
    }

    // ---- rule 10 -------------------------------------------------------------------------------

    /// Rule 10.
    fn a_filter_of_nothing_reports_only_an_error(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            register(&port, &ours, "ours", Interest::NONE, trigger);
            assert_quiet(&port, system);
            theirs.write(b"x").unwrap();
            assert_quiet(&port, system);
            theirs.reset();
            assert_eq!(report(&port, system), Events::ERR, "{trigger:?}");
            assert_quiet(&port, system);
        }
    }

    /// Rule 10.
    fn a_removal_is_reported_whatever_was_asked_for(system: &System) {
        for trigger in TRIGGERS {
            for interest in [Interest::NONE, Interest::IN, Interest::HANGUP] {
                let port = port_on(system);
                let (ours, _theirs) = system.tcp_pair();
                let id = register(&port, &ours, "ours", interest, trigger);
                port.remove(id).unwrap();
                assert_eq!(removed(&port, system), (id, "ours"), "{trigger:?} {interest:?}");
                assert_quiet(&port, system);
            }
        }
    }

    // ---- rule 11 -------------------------------------------------------------------------------

    /// Rule 11.
    fn a_descriptor_is_registered_once_on_its_port(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "first", Interest::IN, ONE_SHOT_LEVEL);
        let again = Registration::new(&ours, "second", Interest::ALL, OneShot::Level);
        let refused = port.register(again).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyRegistered);
        assert!(!refused.error().is_on_another_port());
        let (error, key) = refused.into_parts();
        assert_eq!((error.call(), key), (Call::Register, "second"));
        // The first one is untouched: its key and its filter.
        assert_quiet(&port, system);
        theirs.write(b"x").unwrap();
        let held = ready(&port, system);
        assert_eq!((held.id(), *held.key(), held.events()), (id, "first", Events::IN));
        assert_quiet(&port, system);
        // The same while the key is out with a handler, and while it is parked.
        let again = Registration::new(&ours, "third", Interest::ALL, OneShot::Level);
        assert_eq!(port.register(again).unwrap_err().into_parts().1, "third");
        held.park().unwrap();
        let again = Registration::new(&ours, "fourth", Interest::ALL, OneShot::Level);
        assert_eq!(port.register(again).unwrap_err().kind(), ErrorKind::AlreadyRegistered);
        assert_eq!(port.stats().registered, 1);
    }

    /// Rule 11.
    fn a_refusal_names_the_registration_that_is_there(system: &System) {
        let (port, other) = (port_on(system), port_on(system));
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        let named = |port: &Port<_, _>| {
            let again = Registration::new(&ours, "again", Interest::ALL, OneShot::Level);
            let refused = port.register(again).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::AlreadyRegistered);
            refused.error().registration()
        };
        assert_eq!(named(&port), Some(id));
        assert_eq!(named(&other), None, "a name means nothing to another port");
        theirs.write(b"x").unwrap();
        let held = ready(&port, system);
        assert_eq!(named(&port), Some(id));
        held.park().unwrap();
        assert_eq!(named(&port), Some(id));
        // The id can be used for the usual next step after a refusal.
        port.enable(named(&port).unwrap(), Interest::OUT, OneShot::Level).unwrap();
        assert_eq!(report(&port, system), Events::OUT);
        let number = closed(system);
        let closed = Registration::new(&number, "closed", Interest::IN, OneShot::Level);
        assert_eq!(port.register(closed).unwrap_err().error().registration(), None);
    }

    /// Rule 11.
    fn a_socket_is_found_by_its_registration(system: &System) {
        let end = Instant::now() + system.soon();
        loop {
            assert!(Instant::now() < end, "the number did not come back");
            let (port, other) = (port_on(system), port_on(system));
            let event = system.event();
            assert_eq!(port.id_of(&event), None);
            let id = register(&port, &event, "event", Interest::IN, ONE_SHOT_LEVEL);
            assert_eq!(port.id_of(&event), Some(id));
            assert_eq!(other.id_of(&event), None);
            assert_eq!(port.id_of(&event.dup().unwrap()), None, "a duplicate is another one");
            event.signal(1).unwrap();
            let held = ready(&port, system);
            assert_eq!(port.id_of(&event), Some(id));
            held.park().unwrap();
            assert_eq!(port.id_of(&event), Some(id));
            port.remove(id).unwrap();
            assert_eq!(port.id_of(&event), None, "its last packet is on the way");
            let again = register(&port, &event, "again", Interest::NONE, ONE_SHOT_LEVEL);
            assert_eq!(port.id_of(&event), Some(again));
            let number = event.number();
            drop(event);
            let latter = system.event();
            if latter.number() != number {
                // Another test took the number first.
                continue;
            }
            assert_eq!(port.id_of(&latter), None, "the number names another object");
            break;
        }
    }

    /// Rule 11.
    fn a_descriptor_is_registered_on_one_port_of_the_process(system: &System) {
        let (port, other) = (port_on(system), port_on(system));
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        let elsewhere = Registration::new(&ours, "elsewhere", Interest::ALL, OneShot::Level);
        let refused = other.register(elsewhere).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyRegistered);
        assert!(refused.error().is_on_another_port());
        assert_eq!(refused.into_parts().1, "elsewhere");
        assert_eq!(other.stats().registered, 0);
        assert_quiet(&other, system);
        theirs.write(b"x").unwrap();
        assert_eq!(report(&port, system), Events::IN);
        assert_quiet(&other, system);
        // After its removal here, it can be registered there immediately, before the removal's
        // packet is taken.
        port.remove(id).unwrap();
        register(&other, &ours, "elsewhere", Interest::IN, ONE_SHOT_LEVEL);
        assert_eq!(report(&other, system), Events::IN);
        assert_eq!(removed(&port, system), (id, "ours"));
        assert_quiet(&port, system);
    }

    /// Rule 11.
    fn a_dropped_port_frees_its_descriptors(system: &System) {
        let (ours, theirs) = system.tcp_pair();
        let port = port_on(system);
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        drop(port);
        let other = port_on(system);
        register(&other, &ours, "elsewhere", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        assert_eq!(*ready(&other, system).key(), "elsewhere");
    }

    /// Rule 11.
    fn an_ended_registration_frees_its_descriptor(system: &System) {
        let (port, other) = (port_on(system), port_on(system));
        let (ours, theirs) = system.tcp_pair();
        theirs.write(b"x").unwrap();
        for round in 0..4 {
            let at = if round % 2 == 0 { &port } else { &other };
            register(at, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
            let held = ready(at, system);
            if round < 2 {
                assert_eq!(held.into_key(), "ours");
            } else {
                drop(held);
            }
            assert_eq!(at.stats().registered, 0);
        }
        assert_quiet(&port, system);
        assert_quiet(&other, system);
    }

    /// Rule 11.
    fn a_duplicate_is_another_descriptor(system: &System) {
        for same_port in [true, false] {
            let (port, other) = (port_on(system), port_on(system));
            let (ours, theirs) = system.tcp_pair();
            let again = ours.dup().unwrap();
            let second = if same_port { &port } else { &other };
            let first_id = register(&port, &ours, "first", Interest::IN, ONE_SHOT_LEVEL);
            let second_id = register(second, &again, "second", Interest::IN, ONE_SHOT_LEVEL);
            theirs.write(b"x").unwrap();
            let mut seen = vec![];
            for at in [&port, second] {
                let held = ready(at, system);
                seen.push((held.id(), *held.key(), held.events()));
                held.park().unwrap();
            }
            if same_port {
                seen.sort_unstable_by_key(|(_, name, _)| *name);
                assert_ne!(first_id, second_id);
            }
            let expected = [(first_id, "first", Events::IN), (second_id, "second", Events::IN)];
            assert_eq!(seen, expected);
            assert_quiet(&port, system);
            assert_quiet(&other, system);
        }
    }

    /// Rule 11.
    fn a_number_that_was_closed_and_given_out_again_is_free(system: &System) {
        let end = Instant::now() + system.soon();
        loop {
            assert!(Instant::now() < end, "the number did not come back");
            let (port, other) = (port_on(system), port_on(system));
            let former = system.event();
            let number = former.number();
            register(&port, &former, "former", Interest::IN, ONE_SHOT_LEVEL);
            drop(former);
            let latter = system.event();
            if latter.number() != number {
                // Another test took the number first.
                continue;
            }
            register(&other, &latter, "latter", Interest::IN, ONE_SHOT_LEVEL);
            latter.signal(1).unwrap();
            assert_eq!(*ready(&other, system).key(), "latter");
            assert_quiet(&port, system);
            assert_quiet(&other, system);
            break;
        }
    }

    /// Rule 11.
    fn of_two_ports_that_claim_a_descriptor_at_once_one_gets_it(system: &System) {
        let ports = [port_on(system), port_on(system)];
        let (ours, _theirs) = system.tcp_pair();
        let claim = |port: &Port<&'static str, u32>| {
            port.register(Registration::new(&ours, "ours", Interest::IN, OneShot::Level))
        };
        for _ in 0..300 {
            let outcomes: Vec<_> = thread::scope(|scope| {
                let threads: Vec<_> =
                    ports.iter().map(|port| scope.spawn(move || claim(port))).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let mut winners = 0;
            for (port, outcome) in ports.iter().zip(outcomes) {
                match outcome {
                    Ok(id) => {
                        winners += 1;
                        assert_eq!(port.remove_and_wait(id, Duration::ZERO).unwrap(), "ours");
                    }
                    Err(refused) => assert!(refused.error().is_on_another_port()),
                }
            }
            assert_eq!(winners, 1);
        }
    }

    // ---- rule 15 -------------------------------------------------------------------------------

    /// Rule 15.
    fn a_registration_that_no_change_names_stays_as_it_is(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let (other, _peer) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        let (mut changes, mut batch) = (Changes::new(), Batch::new());
        changes.register(Registration::new(&other, "other", Interest::IN, OneShot::Level));
        let packets = port.process(&mut changes, &mut batch, system.quiet()).unwrap();
        assert_eq!(packets.count(), 0);
        assert_eq!(changes.results().len(), 1);
        theirs.write(b"x").unwrap();
        let held = ready(&port, system);
        assert_eq!((held.id(), *held.key(), held.events()), (id, "ours", Events::IN));
        assert_quiet(&port, system);
    }
}
