//! Rule 29: the port owns a key, and neither leaks it nor drops it twice, even if user code panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use completion_port::{
    Batch, Changes, ErrorKind, Events, Interest, OneShot, Packet, Persistent, Registration,
};
use testkit::{Socket, on_every_system};

use crate::kit::ledger::{Entry, Ledger, Owner};
use crate::kit::packets::{
    assert_quiet, given_back, kind, one_shot, refused, repeated, the_one, the_removed, the_token,
};
use crate::kit::sockets::assert_end_seen;
use crate::kit::threads::let_be_told;

on_every_system! {
    /// Rule 29: an owned socket is closed with its key, and not earlier.
    fn an_owned_socket_is_closed_with_its_key(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Owner, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let owner = Owner { socket: ours, _entry: ledger.entry() };
        let owned = Registration::owned(owner, Interest::IN, OneShot::Level);
        port.register(owned).unwrap();
        theirs.write(b"x").unwrap();
        let token = the_token(&port, system);
        assert_eq!(token.key().socket.drain(), 1);
        assert_eq!(system.open_sockets(), 2);
        drop(token);
        assert_eq!((system.open_sockets(), ledger.alive()), (1, 0));
        assert_end_seen(&theirs, system);
        assert_quiet(&port, system);
    }

    /// Rule 29: a one-shot packet moves the same key out, and its token moves it back.
    fn a_one_shot_key_is_moved_and_never_copied(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<(Entry, usize), usize>(1);
        let (ours, theirs) = system.unix_pair();
        let id = port.register(one_shot(&ours, (ledger.entry(), 0))).unwrap();
        for round in 0..5 {
            theirs.write(b"x").unwrap();
            let mut token = the_token(&port, system);
            ours.drain();
            assert_eq!((token.id(), token.key().0.number, token.key().1), (id, 0, round));
            token.key_mut().1 += 1;
            token.rearm().unwrap();
            assert_eq!(ledger.alive(), 1);
        }
        let key = port.remove_and_wait(id, system.soon()).unwrap();
        assert_eq!((key.0.number, key.1), (0, 5));
        assert_quiet(&port, system);
        drop(key);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: a persistent packet brings a clone, which belongs to the handler.
    fn a_persistent_key_is_cloned_for_each_packet(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let id = port.register(repeated(&ours, ledger.entry())).unwrap();
        theirs.write(b"x").unwrap();
        let mut kept = Vec::new();
        for count in 1..=3 {
            match the_one(&port, system) {
                Packet::Notified(notified) => kept.push(notified.into_key()),
                other => panic!("{}", kind(&other)),
            }
            assert_eq!(ledger.alive(), 1 + count);
        }
        ours.drain();
        let key = port.remove_and_wait(id, system.soon()).unwrap();
        assert_eq!(key.number, 0, "the key given at registration comes back");
        assert_quiet(&port, system);
        drop((kept, key));
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: every refusal returns the key and leaves nothing behind.
    fn a_refused_registration_gives_its_key_back(system: &System) {
        let ledger = Ledger::default();
        let (here, there) = (system.port::<Entry, usize>(1), system.port::<Entry, usize>(1));
        let (ours, _theirs) = system.unix_pair();
        let file = system.regular_file();
        let id = here.register(one_shot(&ours, ledger.entry())).unwrap();
        for (port, socket, reason) in [
            (&here, &ours, ErrorKind::AlreadyRegistered),
            (&there, &ours, ErrorKind::AlreadyRegistered),
            (&here, &file, ErrorKind::NotPollable),
        ] {
            let key = ledger.entry();
            let number = key.number;
            let (why, key) = given_back(port.register(one_shot(socket, key)));
            assert_eq!((why, key.number), (reason, number));
            assert_eq!(ledger.alive(), 2);
        }
        // The program ignores the error, which drops the key.
        drop(here.register(one_shot(&ours, ledger.entry())));
        assert_eq!(ledger.alive(), 1);
        // The same in a batch of changes.
        let mut changes = Changes::new();
        changes.register(one_shot(&ours, ledger.entry()));
        changes.register(one_shot(&file, ledger.entry()));
        let mut batch = Batch::new();
        assert_eq!(here.process(&mut changes, &mut batch, Duration::ZERO).unwrap().count(), 0);
        assert_eq!(ledger.alive(), 3);
        let first = changes.refused().next().unwrap();
        assert!(first.into_parts().1.is_some());
        assert_eq!(ledger.alive(), 1, "what is not taken out is dropped");
        // Changes that were never applied still have their keys.
        changes.register(one_shot(&ours, ledger.entry()));
        drop(changes);
        drop(one_shot(&ours, ledger.entry()));
        assert_eq!(one_shot(&ours, ledger.entry()).into_key().number, 9);
        assert_eq!((ledger.alive(), here.stats().registered), (1, 1));
        drop(here.remove_and_wait(id, system.soon()).unwrap());
        assert_eq!((ledger.alive(), here.stats().registered), (0, 0));
    }

    /// Rule 29: dropping the port drops each key once, whatever state it is in.
    fn a_port_drops_every_key_that_it_still_has(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, Entry>(1);
        let sockets: Vec<_> = (0..8).map(|_| system.unix_pair()).collect();
        let mut batch = Batch::with_capacity(1);
        let register =
            |place: usize| port.register(one_shot(&sockets[place].0, ledger.entry())).unwrap();
        let write = |place: usize| assert_eq!(sockets[place].1.write(b"x").unwrap(), 1);
        let _armed = register(0);
        port.disable(register(1)).unwrap();
        for place in [2, 3] {
            // Parked, and armed again with data left, so it must be checked.
            register(place);
            write(place);
            let packet = port.wait(&mut batch, system.soon()).unwrap().next();
            let Some(Packet::Ready(token)) = packet else { panic!("no packet") };
            let id = token.park().unwrap();
            if place == 3 {
                port.enable(id, Interest::IN, OneShot::Level).unwrap();
            }
        }
        // Persistent, with a packet out.
        port.register(repeated(&sockets[4].0, ledger.entry())).unwrap();
        // Removed with the packet not taken, messages, and queued packets.
        port.remove(register(5)).unwrap();
        port.post(ledger.entry()).unwrap();
        port.post(ledger.entry()).unwrap();
        register(6);
        register(7);
        (6..8).for_each(write);
        let_be_told(&port, system, 4);
        let taken = port.wait(&mut batch, system.soon()).unwrap().next();
        assert!(taken.is_some());
        assert!(port.stats().queued >= 3, "{port:?}");
        // One key or message was taken.
        assert_eq!(ledger.alive(), 10);
        drop(taken);
        assert_eq!(ledger.alive(), 9);
        // These are assigned to a thread that forgets them.
        std::mem::forget(port.wait(&mut Batch::with_capacity(2), Duration::ZERO).unwrap());
        drop(port);
        assert_eq!(ledger.alive(), 0);
        // The sockets can be registered again.
        let other = system.port::<Entry, Entry>(1);
        for (ours, _) in &sockets {
            other.register(one_shot(ours, ledger.entry())).unwrap();
        }
        drop(other);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: a forgotten token leaks its key, and affects nothing else.
    fn a_forgotten_token_leaks_its_key_and_nothing_more(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let (more, more_theirs) = system.unix_pair();
        let id = port.register(one_shot(&ours, ledger.entry())).unwrap();
        theirs.write(b"x").unwrap();
        std::mem::forget(the_token(&port, system));
        theirs.write(b"x").unwrap();
        assert_quiet(&port, system);
        assert_eq!(refused(port.enable(id, Interest::IN, OneShot::Level)), ErrorKind::KeyHeld);
        port.register(one_shot(&more, ledger.entry())).unwrap();
        more_theirs.write(b"x").unwrap();
        drop(the_token(&port, system));
        port.remove(id).unwrap();
        assert_quiet(&port, system);
        // The kernel no longer watches it, so it may be registered again.
        let other = system.port::<Entry, usize>(1);
        other.register(one_shot(&ours, ledger.entry())).unwrap();
        drop(the_token(&other, system));
        drop((port, other));
        assert_eq!(ledger.alive(), 1);
    }

    /// Rule 29: a forgotten iterator loses nothing: its packets come in the thread's next wait.
    fn a_forgotten_iterator_loses_nothing(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let sockets: Vec<_> = (0..5).map(|_| system.unix_pair()).collect();
        for (ours, theirs) in &sockets {
            port.register(one_shot(ours, ledger.entry())).unwrap();
            theirs.write(b"x").unwrap();
        }
        let_be_told(&port, system, 5);
        let mut batch = Batch::new();
        let mut packets = port.wait(&mut batch, system.soon()).unwrap();
        let first = packets.next();
        std::mem::forget(packets);
        let mut batch = Batch::new();
        let rest: Vec<_> = port.wait(&mut batch, system.soon()).unwrap().collect();
        assert_eq!(rest.len(), 4);
        assert_eq!(ledger.alive(), 5);
        drop((first, rest));
        assert_eq!(ledger.alive(), 0);
        assert_quiet(&port, system);
    }

    /// Rule 29: a panic in user code that the port calls does not harm the port. Here: cloning a
    /// key.
    fn a_panic_while_a_key_is_cloned_leaves_the_port_usable(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let id = port.register(repeated(&ours, ledger.entry())).unwrap();
        theirs.write(b"x").unwrap();
        for _ in 0..3 {
            ledger.panic_at_next_clone();
            let panicked = catch_unwind(AssertUnwindSafe(|| drop(the_one(&port, system))));
            assert!(panicked.is_err());
            assert_eq!(ledger.alive(), 1);
            // The condition still holds, and is still reported.
            assert!(matches!(the_one(&port, system), Packet::Notified(it) if it.id() == id));
        }
        ours.drain();
        assert_quiet(&port, system);
        port.remove(id).unwrap();
        drop(the_removed(&port, system));
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: an edge that a panic kept from being reported is reported later.
    fn a_panic_while_a_key_is_cloned_loses_no_edge(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let edge =
            Registration::new(&ours, ledger.entry(), Interest::IN, Persistent::Edge);
        let id = port.register(edge).unwrap();
        theirs.write(b"x").unwrap();
        ledger.panic_at_next_clone();
        let panicked = catch_unwind(AssertUnwindSafe(|| drop(the_one(&port, system))));
        assert!(panicked.is_err());
        match the_one(&port, system) {
            Packet::Notified(notified) => {
                assert_eq!((notified.id(), notified.events()), (id, Events::IN));
            }
            other => panic!("{}", kind(&other)),
        }
        ours.drain();
        assert_quiet(&port, system);
        drop(port);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: a panic in the drop of a key.
    fn a_panic_while_a_key_is_dropped_leaves_the_port_usable(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let sockets: Vec<_> = (0..3).map(|_| system.unix_pair()).collect();
        for (ours, theirs) in &sockets {
            port.register(one_shot(ours, ledger.entry())).unwrap();
            theirs.write(b"x").unwrap();
        }
        let_be_told(&port, system, 3);
        ledger.panic_at_next_drop();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut batch = Batch::new();
            port.wait(&mut batch, system.soon()).unwrap().for_each(drop);
        }));
        assert!(panicked.is_err());
        // The first one was dropped, and the others still exist.
        assert_eq!((ledger.alive(), port.stats().registered), (2, 2));
        let mut batch = Batch::new();
        assert_eq!(port.wait(&mut batch, system.soon()).unwrap().count(), 2);
        assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
        // Its socket can be registered again too.
        for (ours, _) in &sockets {
            port.register(one_shot(ours, ledger.entry())).unwrap();
        }
        let_be_told(&port, system, 3);
        assert_eq!(port.wait(&mut batch, system.soon()).unwrap().count(), 3);
        assert_quiet(&port, system);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: a panic in the drop of a message.
    fn a_panic_while_a_message_is_dropped_leaves_the_port_usable(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<(), Entry>(1);
        (0..3).for_each(|_| port.post(ledger.entry()).unwrap());
        ledger.panic_at_next_drop();
        let mut batch = Batch::new();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            port.wait(&mut batch, system.soon()).unwrap().for_each(drop);
        }));
        assert!(panicked.is_err());
        assert_eq!((ledger.alive(), port.stats().queued), (2, 2));
        port.post(ledger.entry()).unwrap();
        assert_eq!(port.wait(&mut batch, system.soon()).unwrap().count(), 3);
        assert_eq!(ledger.alive(), 0);
        assert_quiet(&port, system);
    }

    /// Rule 29: if it happens while the port itself is dropped, the panic continues, and nothing is
    /// leaked or dropped twice.
    fn a_panic_while_a_port_is_dropped_leaks_nothing(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, Entry>(1);
        let sockets: Vec<_> = (0..3).map(|_| system.unix_pair()).collect();
        for (ours, _) in &sockets {
            port.register(one_shot(ours, ledger.entry())).unwrap();
        }
        (0..3).for_each(|_| port.post(ledger.entry()).unwrap());
        ledger.panic_at_next_drop();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(port))).is_err());
        assert_eq!(ledger.alive(), 0, "keys or messages were leaked");
        let other = system.port::<Entry, Entry>(1);
        for (ours, _) in &sockets {
            other.register(one_shot(ours, ledger.entry())).unwrap();
        }
    }

    /// Rule 29: a key that now owns another descriptor is refused, and ends the registration.
    fn a_key_that_owns_another_descriptor_is_given_back(system: &System) {
        for park in [false, true] {
            let port = system.port::<Socket, usize>(1);
            let (ours, theirs) = system.unix_pair();
            let (other, _other_peer) = system.unix_pair();
            theirs.write(b"x").unwrap();
            port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
            let mut token = the_token(&port, system);
            let number = other.number();
            let ours = std::mem::replace(token.key_mut(), other);
            let (why, key) =
                if park { given_back(token.park()) } else { given_back(token.rearm()) };
            assert_eq!((why, key.number()), (ErrorKind::BadDescriptor, number));
            assert_eq!(port.stats().registered, 0);
            assert_quiet(&port, system);
            // Both may be registered, each separately.
            port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
            port.register(Registration::owned(key, Interest::IN, OneShot::Level)).unwrap();
        }
    }
}
