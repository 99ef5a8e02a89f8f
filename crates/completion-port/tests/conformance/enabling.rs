//! Rules 12 to 14: enabling, disabling and removing a registration.

use std::collections::HashSet;
use std::net::Shutdown;

use completion_port::{
    Call, ErrorKind, Events, Interest, OneShot, Packet, Persistent, Port, Registration,
};
use testkit::on_every_system;

use crate::kit::packets::{
    ONE_SHOT_LEVEL, PERSISTENT_LEVEL, TRIGGERS, Trigger, assert_quiet, enable, leave_queued,
    notified, packet, port_on, ready, register, removed, report,
};
use crate::kit::sockets::{POLLERR, POLLIN, await_facts};

on_every_system! {
    /// Rule 12.
    fn a_key_stays_where_it_lies_until_its_registration_ends(system: &System) {
        let port = system.port::<[u64; 100], ()>(1);
        let (ours, theirs) = system.tcp_pair();
        let id = port
            .register(Registration::new(&ours, [0; 100], Interest::IN, OneShot::Level))
            .map_err(|refused| refused.error())
            .unwrap();
        theirs.write(b"unread").unwrap();
        let mut held = ready(&port, system);
        let place = std::ptr::from_ref(held.key());
        for round in 1..=3 {
            held.key_mut()[99] += round;
            // Moving the token doesn't move its key.
            let moved = Box::new(held);
            assert!(std::ptr::eq(moved.key(), place), "round {round}");
            moved.rearm().unwrap();
            held = ready(&port, system);
            assert!(std::ptr::eq(held.key(), place), "round {round}");
        }
        assert_eq!(held.key()[99], 6);
        assert_eq!(held.park().unwrap(), id);
        assert_eq!(port.remove_and_wait(id, None).unwrap()[99], 6);
    }

    // ---- rule 12 -------------------------------------------------------------------------------

    /// Rule 12.
    fn enabling_again_overwrites_filter_and_trigger(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::HANGUP, trigger);
            theirs.write(b"x").unwrap();
            assert_quiet(&port, system);
            // Enabled throughout: filter and trigger change without a wait in between.
            enable(&port, id, Interest::IN, PERSISTENT_LEVEL);
            assert_eq!(report(&port, system), Events::IN);
            assert_eq!(report(&port, system), Events::IN);
            enable(&port, id, Interest::OUT, ONE_SHOT_LEVEL);
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            assert_quiet(&port, system);
        }
    }

    /// Rule 12.
    fn a_spent_one_shot_is_armed_again_by_its_handler(system: &System) {
        for trigger in [OneShot::Level, OneShot::Edge] {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            register(&port, &ours, "ours", Interest::IN, Trigger::Once(trigger));
            theirs.write(b"x").unwrap();
            let held = ready(&port, system);
            ours.drain();
            // Unchanged.
            held.rearm().unwrap();
            assert_quiet(&port, system);
            theirs.write(b"x").unwrap();
            let held = ready(&port, system);
            assert_eq!(held.events(), Events::IN);
            ours.drain();
            // With another filter, and back.
            held.rearm_as(Interest::OUT, OneShot::Level).unwrap();
            let held = ready(&port, system);
            assert_eq!(held.events(), Events::OUT);
            held.rearm_as(Interest::IN, trigger).unwrap();
            assert_quiet(&port, system);
            theirs.write(b"x").unwrap();
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
        }
    }

    /// Rule 12.
    fn a_parked_one_shot_is_armed_again_by_its_name(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        assert_eq!(ready(&port, system).park().unwrap(), id);
        assert_quiet(&port, system);
        port.enable(id, Interest::IN, OneShot::Level).unwrap();
        let held = ready(&port, system);
        assert_eq!((held.id(), *held.key(), held.events()), (id, "ours", Events::IN));
    }

    /// Rule 12.
    fn a_held_registration_is_armed_by_its_handler_alone(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let held = ready(&port, system);
        let error = port.enable(id, Interest::OUT, OneShot::Level).unwrap_err();
        assert_eq!((error.kind(), error.call()), (ErrorKind::KeyHeld, Call::Enable));
        let error = port.enable(id, Interest::OUT, Persistent::Level).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::KeyHeld);
        assert_quiet(&port, system);
        held.rearm().unwrap();
        assert_eq!(report(&port, system), Events::IN);
    }

    /// Rule 12.
    fn the_key_stays_the_one_given_at_creation(system: &System) {
        let port: Port<Vec<u8>, u32> = system.port(1);
        let (ours, theirs) = system.tcp_pair();
        let key = vec![1];
        let id = port
            .register(Registration::new(&ours, key, Interest::IN, OneShot::Level))
            .unwrap();
        theirs.write(b"x").unwrap();
        // The same value goes in and out, with the handler's changes.
        for next in 2..=4 {
            port.enable(id, Interest::IN | Interest::OUT, OneShot::Level).unwrap();
            let mut held = ready(&port, system);
            assert_eq!(held.id(), id);
            held.key_mut().push(next);
            held.rearm_as(Interest::NONE, OneShot::Edge).unwrap();
            assert_quiet(&port, system);
        }
        port.enable(id, Interest::OUT, Persistent::Level).unwrap();
        assert_eq!(*notified(&port, system).key(), [1, 2, 3, 4]);
        port.remove(id).unwrap();
        assert_eq!(removed(&port, system), (id, vec![1, 2, 3, 4]));
        // A different key requires a removal first. The removal's packet need not have been taken.
        let another = Registration::new(&ours, vec![9], Interest::OUT, OneShot::Level);
        let another = port.register(another).unwrap();
        assert_ne!(another, id);
        assert_eq!(*ready(&port, system).key(), [9]);
    }

    /// Rule 12.
    fn enabling_cuts_a_queued_packet_to_the_new_filter(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            theirs.write(b"x").unwrap();
            let both = Interest::IN | Interest::OUT;
            let id = register(&port, &ours, "ours", both, trigger);
            leave_queued(&port, system, 1);
            enable(&port, id, Interest::OUT | Interest::HANGUP, ONE_SHOT_LEVEL);
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            assert_quiet(&port, system);
        }
    }

    /// Rule 12.
    fn enabling_takes_a_queued_packet_back_if_nothing_of_it_is_left(system: &System) {
        for trigger in TRIGGERS {
            for latter in TRIGGERS {
                let port = port_on(system);
                let (ours, theirs) = system.unix_pair();
                let id = register(&port, &ours, "ours", Interest::OUT, trigger);
                leave_queued(&port, system, 1);
                enable(&port, id, Interest::IN | Interest::HANGUP, latter);
                assert_quiet(&port, system);
                // It is armed nevertheless.
                theirs.write(b"x").unwrap();
                assert_eq!(report(&port, system), Events::IN, "{trigger:?} {latter:?}");
                ours.drain();
                assert_quiet(&port, system);
            }
        }
    }

    // ---- rule 13 -------------------------------------------------------------------------------

    /// Rule 13.
    fn a_disabled_registration_reports_nothing_until_it_is_enabled(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::ALL, trigger);
            assert_eq!(report(&port, system), Events::OUT);
            port.disable(id).unwrap();
            port.disable(id).unwrap();
            assert_quiet(&port, system);
            theirs.write(b"x").unwrap();
            assert_quiet(&port, system);
            theirs.shutdown(Shutdown::Write).unwrap();
            assert_quiet(&port, system);
            theirs.reset();
            await_facts(&ours, system, POLLERR);
            assert_quiet(&port, system);
            enable(&port, id, Interest::NONE, trigger);
            assert_eq!(report(&port, system), Events::ERR, "{trigger:?}");
        }
    }

    /// Rule 13.
    fn disabling_drops_a_packet_that_nobody_has_taken(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            theirs.write(b"x").unwrap();
            await_facts(&ours, system, POLLIN);
            let id = register(&port, &ours, "ours", Interest::IN, trigger);
            leave_queued(&port, system, 1);
            port.disable(id).unwrap();
            assert_quiet(&port, system);
            enable(&port, id, Interest::IN, ONE_SHOT_LEVEL);
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
        }
    }

    /// Rule 13.
    fn disabling_keeps_the_registration_and_its_key(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, _theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN, trigger);
            port.disable(id).unwrap();
            assert_eq!(port.stats().registered, 1);
            let again = Registration::new(&ours, "again", Interest::IN, OneShot::Level);
            assert_eq!(port.register(again).unwrap_err().kind(), ErrorKind::AlreadyRegistered);
            assert_quiet(&port, system);
            assert_eq!(port.remove_and_wait(id, None).unwrap(), "ours", "{trigger:?}");
        }
    }

    /// Rule 13.
    fn disabling_a_held_registration_changes_nothing(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let held = ready(&port, system);
        port.disable(id).unwrap();
        assert_quiet(&port, system);
        held.rearm().unwrap();
        assert_eq!(report(&port, system), Events::IN);
    }

    // ---- rule 14 -------------------------------------------------------------------------------

    /// Rule 14.
    fn removing_makes_one_packet_and_it_is_the_last(system: &System) {
        for trigger in TRIGGERS {
            for disabled in [false, true] {
                let port = port_on(system);
                let (ours, theirs) = system.tcp_pair();
                let id = register(&port, &ours, "ours", Interest::IN, trigger);
                if disabled {
                    port.disable(id).unwrap();
                }
                port.remove(id).unwrap();
                theirs.write(b"x").unwrap();
                assert_eq!(removed(&port, system), (id, "ours"), "{trigger:?} {disabled}");
                assert_quiet(&port, system);
                assert_eq!(port.stats().registered, 0);
            }
        }
    }

    /// Rule 14.
    fn nothing_comes_after_the_packet_of_a_removal(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            theirs.write(b"x").unwrap();
            await_facts(&ours, system, POLLIN);
            let id = register(&port, &ours, "ours", Interest::ALL, trigger);
            leave_queued(&port, system, 1);
            port.remove(id).unwrap();
            theirs.write(b"more").unwrap();
            // A report that was queued before may come first, but not after the removal.
            let mut last = packet(&port, system);
            if let Packet::Notified(_) | Packet::Ready(_) = last {
                last = packet(&port, system);
            }
            assert!(matches!(last, Packet::Removed(it, "ours") if it == id), "{trigger:?}");
            assert_quiet(&port, system);
        }
    }

    /// Rule 14.
    fn a_spent_one_shot_can_be_removed(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        ready(&port, system).park().unwrap();
        port.remove(id).unwrap();
        assert_eq!(removed(&port, system), (id, "ours"));
        assert_quiet(&port, system);
    }

    /// Rule 14.
    fn removing_twice_makes_one_packet(system: &System) {
        let port = port_on(system);
        let (ours, _theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, PERSISTENT_LEVEL);
        for _ in 0..3 {
            port.remove(id).unwrap();
        }
        assert_eq!(removed(&port, system), (id, "ours"));
        assert_quiet(&port, system);
    }

    /// Rule 14.
    fn what_is_not_registered_cannot_be_changed(system: &System) {
        let (port, other) = (port_on(system), port_on(system));
        let sockets: Vec<_> = (0..3).map(|_| system.tcp_pair()).collect();
        // The id of a removed registration, and one that this port never gave out.
        let former = register(&port, &sockets[0].0, "former", Interest::IN, ONE_SHOT_LEVEL);
        port.remove(former).unwrap();
        assert_eq!(removed(&port, system), (former, "former"));
        let strange = sockets
            .iter()
            .map(|(ours, _)| register(&other, ours, "strange", Interest::IN, ONE_SHOT_LEVEL))
            .last()
            .unwrap();
        for id in [former, strange] {
            for (error, call) in [
                (port.remove(id), Call::Remove),
                (port.disable(id), Call::Disable),
                (port.enable(id, Interest::IN, OneShot::Level), Call::Enable),
                (port.enable(id, Interest::IN, Persistent::Edge), Call::Enable),
                (port.remove_and_wait(id, None).map(drop), Call::Remove),
            ] {
                let error = error.unwrap_err();
                let what = (error.kind(), error.call(), error.os_code());
                assert_eq!(what, (ErrorKind::NotRegistered, call, None));
            }
        }
        assert_quiet(&port, system);
        // A new registration in the same slot does not answer to the old id.
        let (ours, theirs) = system.tcp_pair();
        register(&port, &ours, "latter", Interest::IN, ONE_SHOT_LEVEL);
        assert_eq!(port.remove(former).unwrap_err().kind(), ErrorKind::NotRegistered);
        theirs.write(b"x").unwrap();
        assert_eq!(report(&port, system), Events::IN);
    }

    /// Rule 14.
    fn a_name_is_never_given_out_twice(system: &System) {
        let port = port_on(system);
        let event = system.event();
        let mut names = HashSet::new();
        for _ in 0..1000 {
            let id = register(&port, &event, "event", Interest::IN, ONE_SHOT_LEVEL);
            assert!(names.insert(id), "{id:?} was another's");
            port.remove_and_wait(id, None).unwrap();
        }
        for id in names {
            assert_eq!(port.disable(id).unwrap_err().kind(), ErrorKind::NotRegistered);
        }
    }

    /// Rule 14.
    fn what_is_being_removed_cannot_be_enabled(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        port.remove(id).unwrap();
        for error in [
            port.enable(id, Interest::IN, OneShot::Level),
            port.enable(id, Interest::IN, Persistent::Level),
            port.disable(id),
        ] {
            assert_eq!(error.unwrap_err().kind(), ErrorKind::Removing);
        }
        assert_eq!(removed(&port, system), (id, "ours"));
        assert_quiet(&port, system);
    }

    /// Rule 14.
    fn removing_a_held_registration_waits_for_its_handler(system: &System) {
        for park in [false, true] {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
            theirs.write(b"x").unwrap();
            let held = ready(&port, system);
            port.remove(id).unwrap();
            port.remove(id).unwrap();
            assert_quiet(&port, system);
            if park {
                assert_eq!(held.park().unwrap(), id);
            } else {
                held.rearm().unwrap();
            }
            assert_eq!(removed(&port, system), (id, "ours"), "{park}");
            assert_quiet(&port, system);
            assert_eq!(port.remove(id).unwrap_err().kind(), ErrorKind::NotRegistered);
        }
    }

    /// Rule 14.
    fn a_removed_key_that_its_handler_keeps_makes_no_packet(system: &System) {
        for keep in [false, true] {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
            theirs.write(b"x").unwrap();
            let held = ready(&port, system);
            port.remove(id).unwrap();
            if keep {
                assert_eq!(held.into_key(), "ours");
            } else {
                drop(held);
            }
            assert_quiet(&port, system);
            assert_eq!(port.stats().registered, 0);
            assert_eq!(port.remove(id).unwrap_err().kind(), ErrorKind::NotRegistered);
        }
    }
}
