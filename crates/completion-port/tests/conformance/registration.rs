//! Rules 8 to 16: registering, enabling, disabling, removing, and what is refused.

use std::collections::HashSet;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, Changes, ErrorKind, Events, Interest, OneShot, Operation, Packet, Persistent, Port,
    Registration,
};
use testkit::{Socket, System, in_a_process_of_its_own, in_forked_child, on_every_system};

use super::delivery::{
    ONE_SHOT_LEVEL, PERSISTENT_LEVEL, POLLERR, POLLIN, READERS, TRIGGERS, Trigger, assert_quiet,
    await_facts, enable, leave_queued, notified, packet, port_on, ready, register, report,
};

/// The next packet, which must be the last one of a registration.
#[track_caller]
fn removed<K, M>(port: &Port<K, M>, on: &System) -> (completion_port::Id, K) {
    match packet(port, on) {
        Packet::Removed(id, key) => (id, key),
        _ => panic!("the packet of a removal was to come"),
    }
}

/// A number that is no longer open, and that no other test opens meanwhile.
fn closed_number() -> RawFd {
    static NEXT: AtomicI32 = AtomicI32::new(700);
    let event = System::native().event();
    // Far above the numbers in use, and another one each time.
    let least = NEXT.fetch_add(1, Relaxed);
    // SAFETY: fcntl(2) with F_DUPFD_CLOEXEC demands nothing of memory.
    let number = unsafe { libc::fcntl(event.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    assert!(number >= least, "{}", io::Error::last_os_error());
    // SAFETY: `from_raw_fd` demands an open descriptor that nobody else owns.
    // - fcntl(2) has just returned it.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    number
}

/// A descriptor by its number alone, which may be closed.
struct Number(RawFd);

impl AsFd for Number {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `borrow_raw` demands a number that is not -1, of a descriptor that stays open.
        // - not -1: it was a descriptor's once;
        // - it is *not* open: that is what is tested. The port takes the number and asks the kernel
        //   about it, which refuses; nothing is done with a descriptor of somebody else.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

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
        assert_eq!((error.operation(), key), (Operation::Register, "second"));
        // The first one is untouched: its key, its filter.
        assert_quiet(&port, system);
        theirs.write(b"x").unwrap();
        let held = ready(&port, system);
        assert_eq!((held.id(), *held.key(), held.events()), (id, "first", Events::IN));
        assert_quiet(&port, system);
        // Also while the key is out with a handler, and while it is parked.
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
        // It is good for what the refusal is mostly about.
        port.rearm(named(&port).unwrap(), Interest::OUT, OneShot::Level).unwrap();
        assert_eq!(report(&port, system), Events::OUT);
        let number = Number(closed_number());
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
            let number = event.as_raw_fd();
            drop(event);
            let latter = system.event();
            if latter.as_raw_fd() != number {
                // Another test was quicker.
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
        // Removed here it is free there, at once: before the packet of the removal is taken.
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
            let number = former.as_raw_fd();
            register(&port, &former, "former", Interest::IN, ONE_SHOT_LEVEL);
            drop(former);
            let latter = system.event();
            if latter.as_raw_fd() != number {
                // Another test was quicker.
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

    // ---- rule 12 -------------------------------------------------------------------------------

    /// Rule 12.
    fn enabling_again_overwrites_filter_and_trigger(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::HANGUP, trigger);
            theirs.write(b"x").unwrap();
            assert_quiet(&port, system);
            // Enabled all the time: filter and trigger are new, with no wait in between.
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
            // As it was.
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
        port.rearm(id, Interest::IN, OneShot::Level).unwrap();
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
        let error = port.rearm(id, Interest::OUT, OneShot::Level).unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::KeyHeld, Operation::Rearm));
        let error = port.rearm(id, Interest::OUT, Persistent::Level).unwrap_err();
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
        // The very same value goes in and out, with whatever the handler has done to it.
        for next in 2..=4 {
            port.rearm(id, Interest::IN | Interest::OUT, OneShot::Level).unwrap();
            let mut held = ready(&port, system);
            assert_eq!(held.id(), id);
            held.key_mut().push(next);
            held.rearm_as(Interest::NONE, OneShot::Edge).unwrap();
            assert_quiet(&port, system);
        }
        port.rearm(id, Interest::OUT, Persistent::Level).unwrap();
        assert_eq!(*notified(&port, system).key(), [1, 2, 3, 4]);
        port.remove(id).unwrap();
        assert_eq!(removed(&port, system), (id, vec![1, 2, 3, 4]));
        // Another key takes a removal first; not even its packet must be taken before.
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
                // It is armed all the same.
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
            // A report that was queued before it may come or not, but not after it.
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
        // A name whose removal is over, and one that this port has never given out.
        let former = register(&port, &sockets[0].0, "former", Interest::IN, ONE_SHOT_LEVEL);
        port.remove(former).unwrap();
        assert_eq!(removed(&port, system), (former, "former"));
        let strange = sockets
            .iter()
            .map(|(ours, _)| register(&other, ours, "strange", Interest::IN, ONE_SHOT_LEVEL))
            .last()
            .unwrap();
        for id in [former, strange] {
            for (error, operation) in [
                (port.remove(id), Operation::Remove),
                (port.disable(id), Operation::Disable),
                (port.rearm(id, Interest::IN, OneShot::Level), Operation::Rearm),
                (port.rearm(id, Interest::IN, Persistent::Edge), Operation::Rearm),
                (port.remove_and_wait(id, None).map(drop), Operation::Remove),
            ] {
                let error = error.unwrap_err();
                let what = (error.kind(), error.operation(), error.os_code());
                assert_eq!(what, (ErrorKind::NotRegistered, operation, None));
            }
        }
        assert_quiet(&port, system);
        // A new registration does not answer to the old name, though it has its place.
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
            port.rearm(id, Interest::IN, OneShot::Level),
            port.rearm(id, Interest::IN, Persistent::Level),
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

    // ---- rule 16 -------------------------------------------------------------------------------

    /// Rule 16.
    fn a_socket_may_be_of_any_kind_and_in_any_state(system: &System) {
        for trigger in TRIGGERS {
            let (tcp, peer) = system.tcp_pair();
            let (unix, _unix_peer) = system.unix_pair();
            let (datagrams, _datagrams_peer) = system.unix_datagram_pair();
            let (connected, _connected_peer) = system.udp_pair();
            let (reader, writer) = system.pipe();
            let half = system.tcp_pair();
            half.0.shutdown(Shutdown::Write).unwrap();
            let sockets = [
                tcp,
                unix,
                datagrams,
                connected,
                reader,
                writer,
                half.0,
                system.tcp_fresh(),
                system.unix_fresh(),
                system.udp_bound(),
                system.tcp_listener(1),
                system.unix_listener(1),
                system.tcp_connect_refused(),
                system.event(),
            ];
            let port = port_on(system);
            let mut ids = Vec::new();
            for socket in &sockets {
                ids.push(register(&port, socket, "socket", Interest::ALL, trigger));
            }
            assert_eq!(port.stats().registered, sockets.len());
            for id in &ids {
                port.disable(*id).unwrap();
            }
            assert_quiet(&port, system);
            // The connected one still works.
            enable(&port, ids[0], Interest::IN, ONE_SHOT_LEVEL);
            peer.write(b"x").unwrap();
            assert_eq!(report(&port, system), Events::IN);
            assert_quiet(&port, system);
        }
    }

    /// Rule 16.
    fn pipes_and_counters_are_welcome(system: &System) {
        let port = port_on(system);
        let (reader, writer) = system.pipe();
        let event = system.event();
        register(&port, &reader, "reader", Interest::IN, ONE_SHOT_LEVEL);
        register(&port, &writer, "writer", Interest::OUT, ONE_SHOT_LEVEL);
        register(&port, &event, "event", Interest::IN, ONE_SHOT_LEVEL);
        assert_eq!(*ready(&port, system).key(), "writer");
        assert_quiet(&port, system);
        writer.write(b"x").unwrap();
        let held = ready(&port, system);
        assert_eq!((*held.key(), held.events()), ("reader", Events::IN));
        event.signal(3).unwrap();
        let held = ready(&port, system);
        assert_eq!((*held.key(), held.events()), ("event", Events::IN));
        assert_quiet(&port, system);
    }

    /// Rule 16.
    fn a_key_may_own_its_descriptor(system: &System) {
        for pair in READERS {
            let port: Port<Socket, u32> = system.port(1);
            let (ours, theirs) = pair(system);
            let number = ours.as_raw_fd();
            let open = system.open_sockets();
            port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
            theirs.write(b"four").unwrap();
            let mut held = ready(&port, system);
            assert_eq!(held.key().as_raw_fd(), number);
            assert_eq!(held.key_mut().drain(), 4);
            held.rearm().unwrap();
            assert_quiet(&port, system);
            theirs.write(b"x").unwrap();
            drop(ready(&port, system));
            assert_eq!(system.open_sockets(), open - 1, "dropping the token closes it");
        }
    }

    /// Rule 16.
    fn what_cannot_be_watched_is_refused(system: &System) {
        let port = port_on(system);
        let file = system.regular_file();
        for trigger in [OneShot::Level, OneShot::Edge] {
            let new = Registration::new(&file, "file", Interest::IN, trigger);
            let (error, key) = port.register(new).unwrap_err().into_parts();
            assert_eq!((error.kind(), key), (ErrorKind::NotPollable, "file"));
            assert_eq!(error.os_code(), Some(libc::EPERM));
        }
        assert_eq!(port.stats().registered, 0);
        assert_quiet(&port, system);
    }

    /// Rule 16.
    fn a_closed_descriptor_is_refused(system: &System) {
        let port = port_on(system);
        let number = Number(closed_number());
        let new = Registration::new(&number, "closed", Interest::IN, OneShot::Level);
        let (error, key) = port.register(new).unwrap_err().into_parts();
        assert_eq!((error.kind(), key), (ErrorKind::BadDescriptor, "closed"));
        assert_eq!(error.os_code(), Some(libc::EBADF));
        assert_eq!(port.stats().registered, 0);
        assert_quiet(&port, system);
        // What is refused leaves the port as it was.
        let event = system.event();
        register(&port, &event, "event", Interest::IN, ONE_SHOT_LEVEL);
        event.signal(1).unwrap();
        assert_eq!(*ready(&port, system).key(), "event");
    }

    /// Rule 16.
    fn an_error_keeps_the_code_of_the_system_and_its_kind(system: &System) {
        let (port, other) = (port_on(system), port_on(system));
        let (file, number) = (system.regular_file(), Number(closed_number()));
        let event = system.event();
        register(&port, &event, "event", Interest::IN, ONE_SHOT_LEVEL);
        let refused = |port: &Port<_, _>, descriptor: BorrowedFd<'_>| -> io::Error {
            let new = Registration::new(&descriptor, "new", Interest::IN, OneShot::Level);
            port.register(new).unwrap_err().into()
        };
        for (descriptor, code) in [
            (file.as_fd(), libc::EPERM),
            (number.as_fd(), libc::EBADF),
            (event.as_fd(), libc::EEXIST),
        ] {
            let error = refused(&port, descriptor);
            assert_eq!(error.raw_os_error(), Some(code));
            assert_eq!(error.kind(), io::Error::from_raw_os_error(code).kind());
        }
        // Where the system has said nothing there is a kind, and the whole error within.
        let error = refused(&other, event.as_fd());
        assert_eq!((error.kind(), error.raw_os_error()), (io::ErrorKind::AlreadyExists, None));
        let within = error.get_ref().unwrap().downcast_ref::<completion_port::Error>().unwrap();
        assert!(within.is_on_another_port());
    }

    /// Rule 3.
    fn a_closed_port_gives_back_what_it_refuses(system: &System) {
        let port: Port<Arc<str>, u32> = system.port(1);
        let (ours, theirs) = system.tcp_pair();
        let (idle, _peer) = system.tcp_pair();
        let key: Arc<str> = "key".into();
        register(&port, &ours, key.clone(), Interest::IN, ONE_SHOT_LEVEL);
        let parked = register(&port, &idle, key.clone(), Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let held = ready(&port, system);
        port.close();
        assert_eq!(Arc::strong_count(&key), 3);
        let (again, _again_peer) = system.tcp_pair();
        let new = Registration::new(&again, key.clone(), Interest::IN, OneShot::Level);
        let (error, back) = port.register(new).unwrap_err().into_parts();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Closed, Operation::Register));
        assert_eq!(Arc::strong_count(&back), 4);
        drop(back);
        let (error, back) = held.rearm().unwrap_err().into_parts();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Closed, Operation::Rearm));
        assert_eq!(&*back, "key");
        let error = port.rearm(parked, Interest::IN, OneShot::Level).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!(port.post(7).unwrap_err().into_parts().1, 7);
        let mut batch = Batch::new();
        let error = port.wait(&mut batch, None).unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Closed, Operation::Wait));
        drop(port);
        drop(back);
        assert_eq!(Arc::strong_count(&key), 1, "no key was lost");
    }
}

/// Rule 16: the simulated sockets cannot block.
#[test]
fn a_blocking_socket_is_welcome_on_epoll() {
    testkit::run(System::native, |system| {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            ours.set_nonblocking(false).unwrap();
            register(&port, &ours, "ours", Interest::IN, trigger);
            assert_quiet(&port, system);
            theirs.write(b"four").unwrap();
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 4);
            assert_quiet(&port, system);
        }
    });
}

/// Rule 16: there are no timers and processes in the simulated kernel.
#[test]
fn a_timerfd_is_welcome_on_epoll() {
    let system = System::native();
    for trigger in TRIGGERS {
        // SAFETY: timerfd_create(2) demands nothing of memory.
        let timer = owned(unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK)
        });
        let port = port_on(&system);
        let registration = Registration::new(&timer, "timer", Interest::IN, OneShot::Level);
        let id = port.register(registration).unwrap();
        enable(&port, id, Interest::ALL, trigger);
        assert_quiet(&port, &system);
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let soon = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let time = libc::itimerspec { it_interval: never, it_value: soon };
        // SAFETY: timerfd_settime(2) reads a time at the first pointer.
        // - valid for reads: `time` is a local; the null pointer stands for no answer.
        let set = unsafe {
            libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const time, std::ptr::null_mut())
        };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
        assert_eq!(report(&port, &system), Events::IN, "{trigger:?}");
    }
}

/// Rule 16: there are no timers and processes in the simulated kernel.
#[test]
fn a_pidfd_is_welcome_on_epoll() {
    let system = System::native();
    for trigger in TRIGGERS {
        let mut child = testkit::spawn(Command::new("cat").stdin(Stdio::piped())).unwrap();
        // SAFETY: pidfd_open(2) demands nothing of memory.
        let number = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
        if number < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
            child.wait().unwrap();
            println!("a_pidfd_is_welcome_on_epoll: SKIPPED: the kernel has no pidfd_open");
            return;
        }
        let process = owned(i32::try_from(number).unwrap());
        let port = port_on(&system);
        let registration = Registration::new(&process, "process", Interest::IN, OneShot::Level);
        let id = port.register(registration).unwrap();
        enable(&port, id, Interest::IN, trigger);
        assert_quiet(&port, &system);
        // Without input it ends.
        drop(child.stdin.take());
        assert_eq!(report(&port, &system), Events::IN, "{trigger:?}");
        assert!(child.wait().unwrap().success());
    }
}

#[track_caller]
fn owned(number: RawFd) -> OwnedFd {
    assert!(number >= 0, "{}", io::Error::last_os_error());
    // SAFETY: `from_raw_fd` demands an open descriptor that nobody else owns.
    // - the system call that the caller has made returned it just now.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Rule 16: a directory and a device without a way to be watched; the simulated kernel has a file
/// only.
#[test]
fn directories_and_devices_are_refused_on_epoll() {
    let port = port_on(&System::native());
    for path in ["/", "/dev/null"] {
        let file = std::fs::File::open(path).unwrap();
        let new = Registration::new(&file, path, Interest::IN, OneShot::Level);
        let (error, key) = port.register(new).unwrap_err().into_parts();
        assert_eq!((error.kind(), key), (ErrorKind::NotPollable, path));
    }
}

/// Rule 16: a real kernel cannot be made to run out of watches or memory without harm to others.
#[test]
fn a_lack_of_watches_or_memory_is_told_and_may_pass_on_sim() {
    testkit::run(System::simulated, |system| {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        theirs.write(b"x").unwrap();
        for (kind, code) in
            [(ErrorKind::WatchLimit, libc::ENOSPC), (ErrorKind::OutOfMemory, libc::ENOMEM)]
        {
            system.kernel().unwrap().fail_next_attach(kind);
            let new = Registration::new(&ours, "ours", Interest::IN, OneShot::Level);
            let (error, key) = port.register(new).unwrap_err().into_parts();
            assert_eq!((error.kind(), error.os_code(), key), (kind, Some(code), "ours"));
            assert_eq!(port.stats().registered, 0);
            assert_quiet(&port, system);
        }
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        assert_eq!(report(&port, system), Events::IN);
    });
}

/// What a forked child found wrong, as its exit status; 0: nothing.
type Findings = u8;

/// Numbers the checks of a child, since it has no other way to tell which of them failed.
struct Checks(Findings, Findings);

impl Checks {
    fn new() -> Self {
        Self(0, 0)
    }

    fn check(&mut self, holds: bool) {
        self.0 += 1;
        if !holds && self.1 == 0 {
            self.1 = self.0;
        }
    }
}

/// Rules 3 and 32: the simulated kernel lives in the memory of one process.
#[test]
fn a_forked_child_is_refused_and_its_parent_goes_on_on_epoll() {
    if !in_a_process_of_its_own(
        "registration::a_forked_child_is_refused_and_its_parent_goes_on_on_epoll",
    ) {
        return;
    }
    testkit::run(System::native, |system| {
        let port: Port<&str, u32> = system.port(1);
        let (ours, theirs) = system.tcp_pair();
        let (other, other_peer) = system.tcp_pair();
        let id = register(&port, &other, "other", Interest::IN, ONE_SHOT_LEVEL);
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let mut held = Some(ready(&port, system));
        port.post(7).unwrap();
        let mut batch = Batch::new();
        let (fresh, _fresh_peer) = system.tcp_pair();
        let mut changes = Changes::new();
        changes.remove(id);
        let findings = in_forked_child(|| {
            let mut checks = Checks::new();
            let forked = ErrorKind::Forked;
            let new = Registration::new(&fresh, "fresh", Interest::IN, OneShot::Level);
            let refused = port.register(new).unwrap_err().into_parts();
            checks.check((refused.0.kind(), refused.1) == (forked, "fresh"));
            let kind = |done: completion_port::Result<()>| done.err().map(|error| error.kind());
            checks.check(kind(port.rearm(id, Interest::IN, OneShot::Level)) == Some(forked));
            checks.check(kind(port.disable(id)) == Some(forked));
            checks.check(kind(port.remove(id)) == Some(forked));
            checks.check(kind(port.remove_and_wait(id, None).map(drop)) == Some(forked));
            checks.check(port.post(8).is_err_and(|it| it.kind() == forked && *it.value() == 8));
            checks.check(kind(port.wait(&mut batch, None).map(drop)) == Some(forked));
            checks.check(
                kind(port.process(&mut changes, &mut batch, None).map(drop)) == Some(forked),
            );
            checks.check(changes.len() == 1);
            checks.check(kind(port.shutdown()) == Some(forked));
            port.close();
            checks.check(port.blocking(|| 5) == 5);
            let (error, key) = held.take().unwrap().rearm().unwrap_err().into_parts();
            checks.check((error.kind(), key) == (forked, "ours"));
            checks.1
        });
        assert_eq!(findings, 0, "the check of this number failed in the child");
        // The parent's port is as it was.
        held.take().unwrap().rearm().unwrap();
        assert!(matches!(packet(&port, system), Packet::Posted(7)));
        assert_eq!(report(&port, system), Events::IN);
        assert_quiet(&port, system);
        other_peer.write(b"x").unwrap();
        let other = ready(&port, system);
        assert_eq!((other.id(), *other.key()), (id, "other"));
        drop(changes);
    });
}

/// Rules 3 and 32: the simulated kernel lives in the memory of one process.
#[test]
fn a_port_that_a_forked_child_drops_goes_on_in_its_parent_on_epoll() {
    if !in_a_process_of_its_own(
        "registration::a_port_that_a_forked_child_drops_goes_on_in_its_parent_on_epoll",
    ) {
        return;
    }
    testkit::run(System::native, |system| {
        let port: Port<Socket, u32> = system.port(1);
        let (ours, theirs) = system.tcp_pair();
        let number = ours.as_raw_fd();
        port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
        theirs.write(b"x").unwrap();
        leave_queued(&port, system, 1);
        let mut port = Some(port);
        let findings = in_forked_child(|| {
            drop(port.take());
            0
        });
        assert_eq!(findings, 0);
        let port = port.unwrap();
        let held = ready(&port, system);
        assert_eq!((held.key().as_raw_fd(), held.events()), (number, Events::IN));
        held.key().drain();
        held.rearm().unwrap();
        theirs.write(b"x").unwrap();
        assert_eq!(report(&port, system), Events::IN);
    });
}

/// Rules 3 and 32: the simulated kernel lives in the memory of one process.
#[test]
fn a_forked_child_may_make_a_port_of_its_own_on_epoll() {
    if !in_a_process_of_its_own("registration::a_forked_child_may_make_a_port_of_its_own_on_epoll")
    {
        return;
    }
    testkit::run(System::native, |system| {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        register(&port, &ours, "parent", Interest::IN, ONE_SHOT_LEVEL);
        let findings = in_forked_child(|| {
            let mut checks = Checks::new();
            let own = port_on(system);
            // The parent's registration of this number is no concern of the child's.
            let new = Registration::new(&ours, "child", Interest::OUT, OneShot::Level);
            checks.check(own.register(new).is_ok());
            checks.check(matches!(ready(&own, system), held if *held.key() == "child"));
            checks.check(port.post(7).is_err_and(|it| it.kind() == ErrorKind::Forked));
            checks.1
        });
        assert_eq!(findings, 0, "the check of this number failed in the child");
        assert_quiet(&port, system);
        theirs.write(b"x").unwrap();
        assert_eq!(*ready(&port, system).key(), "parent");
    });
}

/// Rule 3: only the real system has a limit of descriptors; the child has it to itself.
#[test]
fn a_port_that_finds_no_descriptor_left_is_refused_on_epoll() {
    if !in_a_process_of_its_own(
        "registration::a_port_that_finds_no_descriptor_left_is_refused_on_epoll",
    ) {
        return;
    }
    let parent = port_on(&System::native());
    let findings = in_forked_child(|| {
        let mut checks = Checks::new();
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: setrlimit(2) reads a limit at the pointer.
        // - valid for reads: `none` is a local.
        let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) };
        checks.check(set == 0);
        let error = Port::<u32>::new().unwrap_err();
        checks.check(error.kind() == ErrorKind::DescriptorLimit);
        checks.check(error.operation() == Operation::Create);
        checks.check(error.os_code() == Some(libc::EMFILE));
        checks.1
    });
    assert_eq!(findings, 0, "the check of this number failed in the child");
    drop(parent);
}
