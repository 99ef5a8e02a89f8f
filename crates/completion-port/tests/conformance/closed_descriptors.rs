//! Rule 30: descriptors that are closed while they are registered, and numbers that are reused.

use std::fmt::Debug;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, ErrorKind, Events, Interest, OneShot, Operation, Packet, Port, Ready, Registration,
};
use testkit::{
    Socket, System, in_a_process_of_its_own, on_edge_triggered_systems, on_every_system,
};

use crate::kit::descriptors::{Numbered, numbered, pair_out_of_the_way, reopen, until_undisturbed};
use crate::kit::ledger::{Entry, Ledger};
use crate::kit::operations::{Shared, all, outcome, room};
use crate::kit::packets::{
    PERSISTENT_LEVEL, TRIGGERS, Trigger, assert_quiet, each_packet, given_back, kind, one_shot,
    queue, refused, repeated, the_one, the_removed, the_token,
};
use crate::kit::sockets::{await_unread, fill};
use crate::kit::threads::{End, Gate, hear, make_packets_long, settle, take};

on_every_system! {
    /// Rule 30: closing a descriptor doesn't remove its registration.
    fn closing_a_borrowed_socket_makes_no_packet(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        for persistent in [false, true] {
            let (ours, theirs, _alone) = pair_out_of_the_way(system);
            let key = ledger.entry();
            let registration = if persistent { repeated(&ours, key) } else { one_shot(&ours, key) };
            port.register(registration).unwrap();
            drop(ours);
            assert_quiet(&port, system);
            // Windows uses TCP instead of pairs. There the first writes reveal that the peer is
            // gone.
            let is_kept = (0..3).all(|_| {
                let written = theirs.write(b"x");
                assert_quiet(&port, system);
                written.is_ok()
            });
            assert!(!is_kept, "the port keeps it open");
        }
        assert_eq!(port.stats().packets.total(), 0);
        drop(port);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 30: a registration ends when its socket is found closed, and its key is dropped.
    fn arming_a_socket_that_was_closed_ends_its_registration(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        for way in ["token", "name", "persistent"] {
            let (ours, theirs, _alone) = pair_out_of_the_way(system);
            let key = ledger.entry();
            let registration =
                if way == "persistent" { repeated(&ours, key) } else { one_shot(&ours, key) };
            let id = port.register(registration).unwrap();
            theirs.write(b"x").unwrap();
            match the_one(&port, system) {
                Packet::Ready(token) if way == "token" => {
                    drop(ours);
                    token.rearm().unwrap();
                }
                Packet::Ready(token) => {
                    token.park().unwrap();
                    drop(ours);
                    port.enable(id, Interest::IN, OneShot::Level).unwrap();
                }
                Packet::Notified(_) => drop(ours),
                other => panic!("{}", kind(&other)),
            }
            assert_quiet(&port, system);
            assert_eq!((ledger.alive(), port.stats().registered), (0, 0), "{way}");
            assert_eq!(refused(port.remove(id)), ErrorKind::NotRegistered);
        }
    }

    /// Rule 30: its operations end too, each with a packet. The port finds the close when the
    /// number is registered again.
    fn operations_of_a_socket_that_was_closed_end_when_that_is_found(system: &System) {
        system.not_where_operations_are_carried_out("sockets that are closed under an operation");
        for shares in [false, true] {
            until_undisturbed(|| {
                let port = system.port::<Numbered, usize>(1);
                let (old, _far) = system.unix_pair();
                let key = numbered(system, &old);
                let kept = |capacity| Operation::recv(Vec::with_capacity(capacity));
                let count = if shares {
                    let id = port.associate_shared(key).unwrap();
                    port.start(id, kept(3)).unwrap();
                    port.start(id, kept(3)).unwrap();
                    2
                } else {
                    port.associate(key).unwrap().start(kept(3)).unwrap();
                    1
                };
                let new = reopen(system, old)?;
                let owned = |key| Registration::owned(key, Interest::IN, OneShot::Level);
                let id = port.register(owned(numbered(system, &new))).unwrap();
                for packet in all(&port, system, count) {
                    let outcome = match packet {
                        Packet::Completed(done) => done.into_parts().1,
                        Packet::SharedCompleted(finished) => finished.into_parts().1,
                        other => panic!("{}", kind(&other)),
                    };
                    let error = outcome.error().unwrap();
                    assert_eq!((error.kind(), error.os_code()), (ErrorKind::BadDescriptor, None));
                    assert_eq!(outcome.into_buffer().unwrap().capacity(), 3);
                }
                assert_quiet(&port, system);
                assert_eq!(port.stats().registered, 1);
                // The number belongs to its new owner.
                new.signal(1).unwrap();
                assert_eq!(the_token(&port, system).id(), id);
                Some(())
            });
        }
    }

    /// Rule 30: the same happens if the program reports the close, wherever the operations are
    /// performed.
    fn operations_of_what_is_forgotten_end(system: &System) {
        for shares in [false, true] {
            let port = system.port::<Shared, usize>(1);
            let (near, far) = system.unix_pair();
            let near = Shared::new(near);
            let id = if shares {
                let id = port.associate_shared(near.clone()).unwrap();
                port.start(id, Operation::recv(room(3))).unwrap();
                id.id()
            } else {
                let token = port.associate(near.clone()).unwrap();
                let id = token.id();
                token.start(Operation::recv(room(3))).unwrap();
                id
            };
            port.raw().forget(id).unwrap();
            let outcome = outcome(&port, system);
            let error = outcome.error().unwrap();
            assert_eq!((error.kind(), error.transferred()), (ErrorKind::BadDescriptor, 0));
            assert_eq!(outcome.into_buffer().unwrap().capacity(), 3);
            assert_quiet(&port, system);
            assert_eq!(port.stats().registered, 0);
            // The socket is not closed, and no data was taken.
            far.write(b"x").unwrap();
            await_unread(&near, system, 1);
        }
    }

    /// Rule 30: the number was closed and reused, and is not registered.
    fn a_reused_number_gets_no_packet_of_the_former_registration(system: &System) {
        until_undisturbed(|| {
            let ledger = Ledger::default();
            let port = system.port::<Entry, usize>(1);
            let old = system.event();
            let id = port.register(one_shot(&old, ledger.entry())).unwrap();
            let new = reopen(system, old)?;
            new.signal(1).unwrap();
            assert_quiet(&port, system);
            // Enabling the old registration brings none either.
            port.enable(id, Interest::IN, OneShot::Level).unwrap();
            assert_quiet(&port, system);
            // The old key is returned without affecting the new counter.
            if !system.is_one_shot() {
                port.remove(id).unwrap();
                assert_eq!(the_removed(&port, system).0, id);
            }
            port.register(one_shot(&new, ledger.entry())).unwrap();
            assert!(the_token(&port, system).events().is_in());
            assert_quiet(&port, system);
            Some(())
        });
    }

    /// Rule 30: a request that widens the kernel's watch finds that the number names another
    /// socket.
    fn a_reused_number_is_found_out_when_more_is_asked_for(system: &System) {
        until_undisturbed(|| {
            let ledger = Ledger::default();
            let port = system.port::<Entry, usize>(1);
            let old = system.event();
            let id = port.register(one_shot(&old, ledger.entry())).unwrap();
            let new = reopen(system, old)?;
            let asked = port.enable(id, Interest::OUT, OneShot::Level);
            if !system.is_one_shot() {
                assert_eq!(refused(asked), ErrorKind::NotRegistered);
            }
            assert_quiet(&port, system);
            assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
            // So does a token, which returns its key.
            let old = new;
            old.signal(1).unwrap();
            port.register(one_shot(&old, ledger.entry())).unwrap();
            let token = the_token(&port, system);
            let new = reopen(system, old)?;
            let armed = token.rearm_as(Interest::OUT, OneShot::Level);
            if !system.is_one_shot() {
                assert_eq!(given_back(armed).0, ErrorKind::NotRegistered);
            }
            assert_quiet(&port, system);
            assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
            drop(new);
            Some(())
        });
    }

    /// Rule 30: the token of the closed descriptor is armed again.
    fn a_stale_token_armed_again_gets_nothing_of_the_reused_number(system: &System) {
        until_undisturbed(|| {
            let ledger = Ledger::default();
            let port = system.port::<Entry, usize>(1);
            let old = system.event();
            old.signal(1).unwrap();
            port.register(one_shot(&old, ledger.entry())).unwrap();
            let token = the_token(&port, system);
            let new = reopen(system, old)?;
            new.signal(1).unwrap();
            token.rearm().unwrap();
            assert_quiet(&port, system);
            assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
            // The new owner can register the number.
            port.register(one_shot(&new, ledger.entry())).unwrap();
            assert!(the_token(&port, system).events().is_in());
            Some(())
        });
    }

    /// Rule 30: the closed descriptor had a persistent registration.
    fn a_stale_persistent_registration_gets_nothing_of_the_reused_number(system: &System) {
        until_undisturbed(|| {
            let ledger = Ledger::default();
            let port = system.port::<Entry, usize>(1);
            let old = system.event();
            old.signal(1).unwrap();
            port.register(repeated(&old, ledger.entry())).unwrap();
            assert!(matches!(the_one(&port, system), Packet::Notified(_)));
            let new = reopen(system, old)?;
            new.signal(1).unwrap();
            assert_quiet(&port, system);
            assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
            Some(())
        });
    }

    /// Rule 30: the number is registered again on the same port, with the old key in any state.
    fn a_reused_number_registered_on_the_same_port_gets_its_own_packets(system: &System) {
        for state in ["armed", "disabled", "parked", "held", "queued"] {
            until_undisturbed(|| {
                let ledger = Ledger::default();
                let port = system.port::<(Entry, &str), usize>(1);
                let old = system.event();
                let old_key = (ledger.entry(), "old");
                let mut held = None;
                let id = if state == "queued" {
                    let (signal, other) = (|| old.signal(1).unwrap(), (ledger.entry(), ""));
                    queue(&port, system, &old, signal, old_key, other)
                } else {
                    port.register(one_shot(&old, old_key)).unwrap()
                };
                match state {
                    "disabled" => port.disable(id).unwrap(),
                    "parked" | "held" => {
                        old.signal(1).unwrap();
                        let token = the_token(&port, system);
                        if state == "parked" {
                            token.park().unwrap();
                        } else {
                            held = Some(token);
                        }
                    }
                    _ => {}
                }
                let new = reopen(system, old)?;
                let again = port.register(one_shot(&new, (ledger.entry(), "new"))).unwrap();
                assert_ne!(id, again);
                new.signal(1).unwrap();
                // A packet that was already queued may come. After that, nothing of the old
                // registration does.
                let token = the_token(&port, system);
                assert_eq!((token.id(), token.key().1), (again, "new"));
                assert_eq!(new.drain(), 8);
                token.rearm().unwrap();
                assert_quiet(&port, system);
                assert_eq!(refused(port.remove(id)), ErrorKind::NotRegistered);
                let armed = port.enable(id, Interest::IN, OneShot::Level);
                assert_eq!(refused(armed), ErrorKind::NotRegistered);
                if let Some(token) = held {
                    assert_eq!(token.key().1, "old");
                    let (why, key) = given_back(token.rearm());
                    assert_eq!((why, key.1), (ErrorKind::NotRegistered, "old"));
                }
                assert_eq!((ledger.alive(), port.stats().registered), (1, 1), "{state}");
                // The end of the old registration did not affect the new one.
                new.signal(1).unwrap();
                assert_eq!(the_token(&port, system).id(), again);
                assert_quiet(&port, system);
                Some(())
            });
        }
    }

    /// Rule 30: the number is registered again on another port.
    fn a_reused_number_registered_on_another_port_gets_its_own_packets(system: &System) {
        for state in ["armed", "held", "parked"] {
            until_undisturbed(|| {
                let ledger = Ledger::default();
                let port = || system.port::<Entry, usize>(1);
                let (here, there) = (port(), port());
                let old = system.event();
                old.signal(1).unwrap();
                let id = here.register(one_shot(&old, ledger.entry())).unwrap();
                let token = (state != "armed").then(|| the_token(&here, system));
                let parked = state == "parked";
                let token = token.and_then(|token| {
                    if parked { token.park().map(|_| None).unwrap() } else { Some(token) }
                });
                let new = reopen(system, old)?;
                let again = there.register(one_shot(&new, ledger.entry())).unwrap();
                new.signal(1).unwrap();
                assert_quiet(&here, system);
                // Whatever happens to the old registration, the new one is unaffected.
                match token {
                    Some(token) => drop(token),
                    None => assert_eq!(refused(here.remove(id)), ErrorKind::NotRegistered),
                }
                assert_quiet(&here, system);
                assert_eq!((ledger.alive(), here.stats().registered), (1, 0), "{state}");
                for _ in 0..2 {
                    let token = the_token(&there, system);
                    assert_eq!(token.id(), again);
                    token.rearm().unwrap();
                }
                assert_eq!(new.drain(), 8);
                assert_quiet(&there, system);
                new.signal(1).unwrap();
                assert_eq!(the_token(&there, system).id(), again);
                Some(())
            });
        }
    }

    /// Rule 30: the end of a port doesn't affect a number that now belongs to another port.
    fn dropping_a_port_does_not_touch_a_reused_number(system: &System) {
        until_undisturbed(|| {
            let (here, there) = (system.port::<&str, usize>(1), system.port::<&str, usize>(1));
            let old = system.event();
            here.register(one_shot(&old, "old")).unwrap();
            let new = reopen(system, old)?;
            let id = there.register(one_shot(&new, "new")).unwrap();
            drop(here);
            new.signal(1).unwrap();
            assert_eq!(the_token(&there, system).id(), id);
            assert_quiet(&there, system);
            Some(())
        });
    }

    /// Rule 30: an entry that a duplicate keeps alive costs at most a few polls and never spins.
    fn a_duplicate_of_a_closed_descriptor_does_not_spin(system: &System) {
        let port = system.port::<&str, usize>(1);
        let lives_on = leave_stale_entry(&port, system, "stale");
        let mut batch = Batch::new();
        // A level-triggered entry would be reported again and again.
        lives_on.signal(1).unwrap();
        let before = port.stats().polls;
        assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
        let looks = port.stats().polls - before;
        assert!(looks <= 3, "{looks} looks at the kernel for one stale edge");
        let before = port.stats().polls;
        for _ in 0..10 {
            assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
        }
        let looks = port.stats().polls - before;
        assert!(looks <= 20, "{looks} looks at the kernel for nothing");
        assert_eq!(port.stats().rebuilds, 0);
    }
}

/// Creates a stale kernel entry with a duplicate, as a fork does. Registers a counter, takes its
/// packet, closes it, and drops the token too late to detach it. The returned duplicate keeps the
/// counter alive.
fn leave_stale_entry<K>(port: &Port<K, usize>, on: &System, key: K) -> Socket {
    let closed = on.event();
    let lives_on = closed.dup().unwrap();
    lives_on.signal(1).unwrap();
    port.register(one_shot(&closed, key)).unwrap();
    let token = the_token(port, on);
    drop(closed);
    drop(token);
    lives_on
}

/// Waits, while nothing else is queued, until the kernel's set has been replaced.
fn have_the_set_rebuilt(port: &Port<&str, usize>, on: &System) {
    have_the_set_rebuilt_by(port, &leave_stale_entry(port, on, "stale"));
}

/// As `have_the_set_rebuilt`, by signalling `lives_on`.
fn have_the_set_rebuilt_by<K>(port: &Port<K, usize>, lives_on: &Socket) {
    for signals in 0.. {
        if port.stats().rebuilds > 0 {
            break;
        }
        assert!(signals < 5_000, "the kernel's set is never rebuilt");
        lives_on.signal(1).unwrap();
        assert_eq!(port.wait(&mut Batch::new(), Duration::ZERO).unwrap().count(), 0);
    }
}

/// Checks that `stirs` does not wake a waiting thread. On a busy machine a wait may end before the
/// thread sleeps, and it has then polled once more, so several attempts are allowed.
fn assert_sleeps_on<K: Debug>(on: &System, port: &Port<K, usize>, stirs: impl Fn()) {
    let sleeps_on = (0..20).any(|_| {
        stirs();
        let before = port.stats().polls;
        assert_quiet(port, on);
        // The sleep itself counts as a poll.
        port.stats().polls - before == 1
    });
    assert!(sleeps_on);
}

/// While a thread waits, checks that room on `ours` doesn't wake it and that data does.
fn assert_hears_of_data_alone(
    on: &System,
    port: &Port<&str, usize>,
    ours: &Socket,
    theirs: &Socket,
) {
    let (say, heard) = mpsc::channel();
    thread::scope(|scope| {
        let _end = End::of(port, []);
        scope.spawn(|| {
            let mut batch = Batch::new();
            let packet = port.wait(&mut batch, None).unwrap().next();
            let Some(Packet::Ready(token)) = packet else { panic!("no message was posted") };
            say.send(token.events()).unwrap();
        });
        settle(on, port, 1);
        let before = port.stats().polls;
        for _ in 0..1000 {
            ours.write(b"x").unwrap();
            assert_eq!(theirs.read_within(on.soon(), 1), b"x");
        }
        assert_eq!(port.stats().polls, before);
        theirs.write(b"x").unwrap();
        assert_eq!(hear(on, &heard, "data comes"), Events::IN);
    });
}

/// Rule 30: a descriptor that was sent over a socket and closed lives on while it is in transit,
/// and so does its kernel entry. Received again under its old number, it is still registered, or
/// free if the registration has ended. Descriptors can't be sent over simulated sockets. Runs in a
/// child process in which no other test takes the number.
#[cfg(target_os = "linux")]
#[test]
fn a_descriptor_that_was_sent_away_may_come_back_epoll() {
    if !in_a_process_of_its_own(
        "closed_descriptors::a_descriptor_that_was_sent_away_may_come_back_epoll",
    ) {
        return;
    }
    testkit::run(System::native, |on| {
        for was in ["armed", "held", "removed"] {
            let port = on.port::<&str, usize>(1);
            assert_quiet(&port, on);
            let (here, there) = on.unix_pair();
            let event = on.event();
            let number = event.number();
            let keeps_it = event.dup().unwrap();
            let id = port.register(one_shot(&event, "sent")).unwrap();
            let token = (was == "held").then(|| {
                keeps_it.signal(1).unwrap();
                the_token(&port, on)
            });
            testkit::rights::send(here.descriptor(), event.descriptor());
            drop(event);
            if was == "removed" {
                // Too late to detach it: the kernel no longer has this number.
                port.remove(id).unwrap();
                assert_eq!(the_removed(&port, on), (id, "sent"));
            }
            if was != "armed" {
                // Nothing is reported of a descriptor in transit.
                keeps_it.signal(1).unwrap();
                assert_quiet(&port, on);
            }
            let back = testkit::rights::receive(there.descriptor());
            assert_eq!(back.as_raw_fd(), number);
            let new = Registration::new(&back, "back", Interest::IN, OneShot::Level);
            let current = match port.register(new) {
                Ok(new) => {
                    assert_eq!(was, "removed");
                    assert_eq!(*the_token(&port, on).key(), "back");
                    new
                }
                Err(refused) => {
                    assert_ne!(was, "removed");
                    assert_eq!(refused.kind(), ErrorKind::AlreadyRegistered);
                    token.map_or(Ok(()), Ready::rearm).unwrap();
                    keeps_it.signal(1).unwrap();
                    let token = the_token(&port, on);
                    assert_eq!((token.id(), *token.key()), (id, "sent"));
                    assert!(keeps_it.drain() > 0);
                    token.rearm().unwrap();
                    assert_quiet(&port, on);
                    id
                }
            };
            keeps_it.signal(1).unwrap();
            let live = was != "removed";
            assert_eq!(port.raw().is_current(current), live);
            assert_eq!(port.stats().registered, usize::from(live));
        }
    });
}

on_edge_triggered_systems! {
    /// Rule 30: the kernel keeps reporting a duplicate under the registration of the closed
    /// descriptor, until the port checks.
    fn a_duplicate_keeps_a_registration_going_until_the_port_looks(system: &System) {
        system.not_by_kqueue("registrations that outlive their descriptor");
        const WRITES: usize = 200;
        for trigger in TRIGGERS {
            let port = system.port::<Entry, usize>(1);
            let ledger = Ledger::default();
            let (ours, theirs, _alone) = pair_out_of_the_way(system);
            let key = ledger.entry();
            let id = match trigger {
                Trigger::Once(trigger) => {
                    port.register(Registration::new(&ours, key, Interest::IN, trigger))
                }
                Trigger::Always(trigger) => {
                    port.register(Registration::new(&ours, key, Interest::IN, trigger))
                }
            }
            .unwrap();
            assert_quiet(&port, system);
            let lives_on = ours.dup().unwrap();
            drop(ours);
            let mut packets = 0;
            let mut batch = Batch::new();
            for _ in 0..WRITES {
                theirs.write(b"x").unwrap();
                for packet in port.wait(&mut batch, Duration::ZERO).unwrap() {
                    packets += 1;
                    lives_on.drain();
                    match packet {
                        Packet::Ready(mut ready) => {
                            assert_eq!((ready.id(), ready.events()), (id, Events::IN));
                            ready.read_drained();
                            ready.rearm().unwrap();
                        }
                        Packet::Notified(notified) => {
                            assert_eq!((notified.id(), notified.events()), (id, Events::IN));
                        }
                        other => panic!("{}", kind(&other)),
                    }
                }
            }
            // A level packet is checked before it is repeated, so the port has checked.
            let looked = trigger == PERSISTENT_LEVEL;
            assert_eq!(packets, if looked { 1 } else { WRITES }, "{trigger:?}");
            if !looked {
                // Enabling also checks, if something is known to hold and no hint denies it.
                port.disable(id).unwrap();
                theirs.write(b"x").unwrap();
                assert_quiet(&port, system);
                assert_eq!(port.stats().registered, 1);
                port.enable(id, Interest::IN, OneShot::Level).unwrap();
            }
            assert_quiet(&port, system);
            assert_eq!(port.stats().registered, 0, "{trigger:?}");
            assert_eq!(ledger.alive(), 0, "the key is dropped");
        }
    }

    /// Rule 30: the number names the same socket again, whose kernel entry still exists.
    fn a_number_that_names_the_same_socket_again_may_be_registered(system: &System) {
        system.not_by_kqueue("registrations that outlive their descriptor");
        for was in ["dropped", "removed", "armed"] {
            until_undisturbed(|| {
                let port = system.port::<&str, usize>(1);
                // A thread's first wait opens a descriptor.
                assert_eq!(port.wait(&mut Batch::new(), Duration::ZERO).unwrap().count(), 0);
                let old = system.event();
                let keeps_it = old.dup().unwrap();
                let number = old.number();
                keeps_it.signal(1).unwrap();
                let id = port.register(one_shot(&old, "old")).unwrap();
                let token = (was != "armed").then(|| the_token(&port, system));
                drop(old);
                match token {
                    // Too late to detach it: the kernel no longer has this number.
                    Some(token) if was == "dropped" => drop(token),
                    Some(token) => {
                        port.remove(id).unwrap();
                        token.rearm().unwrap();
                        the_removed(&port, system);
                    }
                    None => drop(the_token(&port, system)),
                }
                let again = keeps_it.dup().unwrap();
                if again.number() != number {
                    return None;
                }
                let id = port.register(one_shot(&again, "again")).expect(was);
                let token = the_token(&port, system);
                assert_eq!((token.id(), *token.key()), (id, "again"));
                assert_eq!(again.drain(), 8);
                token.rearm().unwrap();
                assert_quiet(&port, system);
                keeps_it.signal(1).unwrap();
                assert_eq!(the_token(&port, system).id(), id);
                Some(())
            });
        }
    }

    /// Rule 30: the new set doesn't confuse a reused number with its former object.
    fn a_rebuilt_set_leaves_a_reused_number_alone(system: &System) {
        system.not_by_kqueue("registrations that outlive their descriptor");
        until_undisturbed(|| {
            let port = system.port::<&str, usize>(1);
            let lives_on = leave_stale_entry(&port, system, "stale");
            let old = system.event();
            port.register(one_shot(&old, "old")).unwrap();
            let new = reopen(system, old)?;
            have_the_set_rebuilt_by(&port, &lives_on);
            new.signal(1).unwrap();
            assert_quiet(&port, system);
            Some(())
        });
    }

    /// Rules 23 and 30: the new set watches for the same conditions as the old one, and no others.
    fn a_rebuilt_set_watches_for_what_was_asked_for(system: &System) {
        system.not_by_kqueue("registrations that outlive their descriptor");
        system.several_threads_wait();
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.udp_pair();
        port.register(one_shot(&ours, "ours")).unwrap();
        // On a thread that has exited afterwards, so that it isn't counted.
        thread::scope(|scope| scope.spawn(|| have_the_set_rebuilt(&port, system)).join().unwrap());
        assert_hears_of_data_alone(system, &port, &ours, &theirs);
    }

    /// Rules 12, 23 and 30: the same for a condition requested earlier and requested again.
    fn a_rebuilt_set_watches_for_what_was_asked_for_before(system: &System) {
        system.not_by_kqueue("registrations that outlive their descriptor");
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.tcp_pair();
        fill(&ours);
        let both = Interest::IN | Interest::OUT;
        let id = port.register(Registration::new(&ours, "ours", both, OneShot::Level)).unwrap();
        port.enable(id, Interest::IN, OneShot::Level).unwrap();
        have_the_set_rebuilt(&port, system);
        port.enable(id, Interest::OUT, OneShot::Level).unwrap();
        assert_quiet(&port, system);
        theirs.drain();
        assert_eq!(the_token(&port, system).events(), Events::OUT);
    }

    /// Rule 30: the new set doesn't watch a registration that is being removed and ends afterwards.
    fn a_rebuilt_set_does_not_watch_what_is_being_removed(system: &System) {
        system.not_by_kqueue("registrations that outlive their descriptor");
        let port = system.port::<Socket, usize>(1);
        let lives_on = leave_stale_entry(&port, system, system.event());
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"x").unwrap();
        let owned = Registration::owned(ours, Interest::IN, OneShot::Level);
        let id = port.register(owned).unwrap();
        let token = the_token(&port, system);
        port.remove(id).unwrap();
        have_the_set_rebuilt_by(&port, &lives_on);
        token.rearm().unwrap();
        let (removed, _ours) = the_removed(&port, system);
        assert_eq!(removed, id);
        assert_sleeps_on(system, &port, || assert_eq!(theirs.write(b"x").unwrap(), 1));
    }

    /// Rule 30: a post wakes a thread that sleeps in the new set.
    fn a_post_wakes_a_thread_that_sleeps_in_a_rebuilt_set(system: &System) {
        system.not_by_kqueue("registrations that outlive their descriptor");
        system.several_threads_wait();
        let port = system.port::<&str, usize>(1);
        // On a thread that has exited afterwards, so that it isn't counted.
        thread::scope(|scope| scope.spawn(|| have_the_set_rebuilt(&port, system)).join().unwrap());
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            scope.spawn(|| say.send(take(&port)).unwrap());
            settle(system, &port, 1);
            port.post(7).unwrap();
            assert_eq!(hear(system, &heard, "the message is taken"), Some(7));
        });
    }

    /// Rule 30: wakes are not stale edges, so they cause no replacement.
    fn no_set_is_rebuilt_for_wakes(system: &System) {
        system.several_threads_wait();
        let port = system.port::<&str, usize>(1);
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            scope.spawn(|| {
                while let Some(message) = take(&port) {
                    say.send(message).unwrap();
                }
            });
            for message in 0..1_200 {
                settle(system, &port, 1);
                port.post(message).unwrap();
                assert_eq!(hear(system, &heard, "the message is taken"), message);
            }
        });
        assert_eq!(port.stats().rebuilds, 0);
    }

    /// Rule 30: checking what a number names doesn't affect that object.
    fn a_reused_number_that_was_asked_about_is_not_watched(system: &System) {
        until_undisturbed(|| {
            let port = system.port::<&str, usize>(1);
            // A thread's first wait opens a descriptor.
            assert_quiet(&port, system);
            let (ours, theirs) = system.unix_pair();
            let old = system.event();
            let number = old.number();
            let id = port.register(one_shot(&old, "old")).unwrap();
            drop(old);
            let new = ours.dup().unwrap();
            if new.number() != number {
                return None;
            }
            assert!(!port.raw().is_current(id));
            drop(theirs);
            let before = port.stats().polls;
            assert_quiet(&port, system);
            let looks = port.stats().polls - before;
            assert!(looks <= 3, "{looks} looks at the kernel for another's hang-up");
            Some(())
        });
    }

    /// Rule 30: a registration that has ended doesn't block its number, even before a thread has
    /// processed the end.
    fn a_registration_that_has_ended_does_not_hold_its_number_up(system: &System) {
        until_undisturbed(|| {
            let port = system.port::<&str, usize>(1);
            // A thread's first wait opens a descriptor.
            assert_quiet(&port, system);
            let old = system.event();
            let keeps_it = old.dup().unwrap();
            let number = old.number();
            let id = port.register(one_shot(&old, "old")).unwrap();
            drop(old);
            let widened = port.enable(id, Interest::OUT, OneShot::Level);
            let again = keeps_it.dup().unwrap();
            if again.number() != number {
                return None;
            }
            assert_eq!(refused(widened), ErrorKind::NotRegistered);
            let id = port.register(one_shot(&again, "again")).unwrap();
            again.signal(1).unwrap();
            assert_eq!(the_token(&port, system).id(), id);
            Some(())
        });
    }

    /// Rules 23 and 30: an adopted kernel entry, of a registration that requested more, watches
    /// only for the current interest.
    fn an_entry_that_is_taken_over_watches_for_what_is_asked_for(system: &System) {
        system.several_threads_wait();
        until_undisturbed(|| {
            let port = system.port::<&str, usize>(1);
            let (old, theirs) = system.udp_pair();
            let keeps_it = old.dup().unwrap();
            let number = old.number();
            let take_and_close = || {
                let both = Interest::IN | Interest::OUT;
                port.register(Registration::new(&old, "old", both, OneShot::Level)).unwrap();
                let token = the_token(&port, system);
                drop(old);
                // Too late to detach it: the kernel no longer has this number.
                drop(token);
            };
            // On a thread that has exited afterwards, so that it isn't counted.
            thread::scope(|scope| scope.spawn(take_and_close).join().unwrap());
            let ours = keeps_it.dup().unwrap();
            if ours.number() != number {
                return None;
            }
            port.register(one_shot(&ours, "ours")).unwrap();
            assert_hears_of_data_alone(system, &port, &ours, &theirs);
            Some(())
        });
    }

    /// Rule 30: no thread continues to sleep in a replaced set, where nothing would wake it.
    fn a_set_is_not_replaced_while_another_thread_sleeps_in_it(system: &System) {
        system.not_by_kqueue("registrations that outlive their descriptor");
        system.several_threads_wait();
        let port = system.port::<&str, usize>(2);
        make_packets_long(system, &port);
        // On a thread that has exited afterwards, so that it isn't counted.
        let lives_on = thread::scope(|scope| {
            scope.spawn(|| leave_stale_entry(&port, system, "stale")).join().unwrap()
        });
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..2).map(|_| system.unix_pair()).unzip();
        let (gate, (say, heard)) = (Gate::default(), mpsc::channel());
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            for count in 1..=2 {
                let (say, port, gate) = (say.clone(), &port, &gate);
                scope.spawn(move || {
                    each_packet(port, Batch::with_capacity(1), |packet| {
                            let Packet::Ready(ready) = packet else { panic!("{}", kind(&packet)) };
                            say.send(*ready.key()).unwrap();
                            gate.pass();
                    });
                });
                settle(system, port, count);
            }
            let rebuilt = || port.stats().rebuilds > 0;
            for signals in 0.. {
                assert!(signals < 5_000, "the kernel's set is never rebuilt");
                let before = port.stats().polls;
                lives_on.signal(1).unwrap();
                // The kernel may merge two signals into one edge, and the other thread may receive
                // it before the newest one waits again. That thread may then stay out of the
                // kernel's wait.
                let begun = Instant::now();
                while port.stats().polls == before && begun.elapsed() < system.quiet() {
                    thread::yield_now();
                }
                settle(system, &port, 2);
                if rebuilt() {
                    break;
                }
            }
            // These were not in the former set.
            for (socket, key) in ours.iter().zip(["first", "second"]) {
                port.register(one_shot(socket, key)).unwrap();
            }
            // The thread that takes the first packet stays in its handler.
            for (socket, key) in theirs.iter().zip(["first", "second"]) {
                socket.write(b"x").unwrap();
                assert_eq!(hear(system, &heard, "a socket is taken"), key);
            }
        });
    }

    /// Rule 30: after too many stale reports the kernel's set is replaced, and nothing else is
    /// lost.
    fn past_a_limit_the_kernels_set_is_rebuilt_and_nothing_is_lost(system: &System) {
        system.not_by_kqueue("registrations that outlive their descriptor");
        let port = system.port::<&str, usize>(1);
        let lives_on = leave_stale_entry(&port, system, "stale");
        let sockets: Vec<_> = (0..6).map(|_| system.unix_pair()).collect();
        let key = ["armed", "parked", "persistent", "disabled", "edge", "held"];
        let register =
            |place: usize| port.register(one_shot(&sockets[place].0, key[place])).unwrap();
        let write = |place: usize| assert_eq!(sockets[place].1.write(b"x").unwrap(), 1);
        let armed = register(0);
        let parked = register(1);
        write(1);
        the_token(&port, system).park().unwrap();
        let persistent = port.register(repeated(&sockets[2].0, key[2])).unwrap();
        let disabled = register(3);
        port.disable(disabled).unwrap();
        let edge = Registration::new(&sockets[4].0, key[4], Interest::IN, OneShot::Edge);
        let edge = port.register(edge).unwrap();
        register(5);
        write(5);
        let held = the_token(&port, system);
        assert_quiet(&port, system);

        let mut batch = Batch::new();
        let mut signals = 0;
        while port.stats().rebuilds == 0 {
            lives_on.signal(1).unwrap();
            signals += 1;
            assert!(signals < 5_000, "the kernel's set is never rebuilt");
            if signals == 1024 {
                // Their edges are pending when it happens.
                write(3);
                write(4);
            }
            for packet in port.wait(&mut batch, Duration::ZERO).unwrap() {
                match packet {
                    Packet::Ready(token) if token.id() == edge => {
                        sockets[4].0.drain();
                        token.rearm().unwrap();
                    }
                    other => panic!("{}", kind(&other)),
                }
            }
        }
        assert!(signals > 1024, "{signals} stale edges are no reason");
        // The stale entry is gone for good.
        assert_sleeps_on(system, &port, || lives_on.signal(1).unwrap());

        // Everything else is unchanged.
        write(0);
        assert_eq!(the_token(&port, system).id(), armed);
        port.enable(parked, Interest::IN, OneShot::Level).unwrap();
        assert_eq!(the_token(&port, system).id(), parked);
        write(2);
        match the_one(&port, system) {
            Packet::Notified(notified) => assert_eq!(notified.id(), persistent),
            other => panic!("{}", kind(&other)),
        }
        port.remove(persistent).unwrap();
        assert_eq!(the_removed(&port, system), (persistent, key[2]));
        port.enable(disabled, Interest::IN, OneShot::Level).unwrap();
        assert_eq!(the_token(&port, system).id(), disabled);
        write(4);
        assert_eq!(the_token(&port, system).id(), edge);
        held.rearm().unwrap();
        let held = the_token(&port, system);
        assert_eq!(*held.key(), "held");
        sockets[5].0.drain();
        held.rearm().unwrap();
        assert_quiet(&port, system);
        write(5);
        assert_eq!(*the_token(&port, system).key(), "held");
        assert_quiet(&port, system);
        assert_eq!(port.stats().rebuilds, 1);
    }
}
