//! Rule 81: removal without a packet.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use completion_port::{
    Batch, ErrorKind, Events, Interest, OneShot, Operation, Packet, Persistent, Port, Registration,
    Removal,
};
use testkit::on_every_system;

use crate::kit::ledger::{Entry, Ledger};
use crate::kit::operations::{Shared, all, finished, next, room, shared_on, silent, sort, why};
use crate::kit::packets::{
    assert_closed, assert_quiet, one_shot, queue, refused, repeated, the_removed, the_token,
};

/// A key whose next clone removes its registration.
struct Removing {
    entry: Entry,
    remove: Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>,
}

impl Clone for Removing {
    fn clone(&self) -> Self {
        if let Some(remove) = self.remove.get() {
            remove();
        }
        Self { entry: self.entry.clone(), remove: Arc::clone(&self.remove) }
    }
}

on_every_system! {
    /// Rule 81: the registration is enabled, disabled, a spent one-shot, or an association.
    fn a_key_that_nothing_uses_is_returned(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let state = |number| {
            let id = match number {
                0 => port.register(repeated(&ours, ledger.entry())).unwrap(),
                1 => port.register(Registration::new(
                    &ours, ledger.entry(), Interest::NONE, Persistent::Edge,
                )).unwrap(),
                _ => port.register(one_shot(&ours, ledger.entry())).unwrap(),
            };
            match number {
                3 => port.disable(id).unwrap(),
                4 => {
                    theirs.write(b"x").unwrap();
                    assert_eq!(the_token(&port, system).park().unwrap(), id);
                    assert_eq!(ours.read(&mut [0; 4]).unwrap(), 1);
                }
                _ => {}
            }
            id
        };
        for number in 0..5 {
            let id = state(number);
            // A one-shot reactor is asked by the next wait, and the registration is queued so far.
            assert_quiet(&port, system);
            let key = port.remove_now(id).unwrap().into_key().expect("nothing uses it");
            assert_eq!((port.stats().registered, ledger.alive()), (0, 1));
            drop(key);
            assert_eq!(refused(port.remove_now(id)), ErrorKind::NotRegistered);
            theirs.write(b"x").unwrap();
            assert_quiet(&port, system);
            assert_eq!(ours.read(&mut [0; 4]).unwrap(), 1);
        }
        assert_eq!((ledger.alive(), port.stats().packets.removed), (0, 0));
    }

    /// Rule 81: a queued packet becomes the last one. A second removal is refused, of either kind
    /// that returns the key.
    fn a_key_with_a_queued_packet_comes_with_it(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let write = || assert_eq!(theirs.write(b"x").unwrap(), 1);
        let id = queue(&port, system, &ours, write, "key", "other");
        assert_eq!(port.remove_now(id).unwrap(), Removal::PacketFollows);
        assert_eq!(refused(port.remove_now(id)), ErrorKind::Removing);
        assert_eq!(refused(port.remove_and_wait(id, None)), ErrorKind::Removing);
        port.remove(id).unwrap();
        // The number is free, although the packet was not taken.
        let again = port.register(Registration::new(&ours, "again", Interest::NONE, OneShot::Level));
        let again = again.unwrap();
        assert_eq!(the_removed(&port, system), (id, "key"));
        assert_quiet(&port, system);
        assert_eq!(port.remove_now(again).unwrap(), Removal::Key("again"));
        assert_eq!(ours.read(&mut [0; 4]).unwrap(), 1);
        // The packet of another kind of removal comes as well.
        let id = queue(&port, system, &ours, write, "key", "other");
        port.remove(id).unwrap();
        assert_eq!(refused(port.remove_now(id)), ErrorKind::Removing);
        assert_eq!(the_removed(&port, system), (id, "key"));
    }

    /// Rule 81: the packet is made when the handler arms or parks its token. If it keeps the key or
    /// drops it, there is none.
    fn a_key_that_is_out_comes_when_it_is_back(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        for way in 0..4 {
            let id = port.register(one_shot(&ours, "key")).unwrap();
            theirs.write(b"x").unwrap();
            let token = the_token(&port, system);
            assert_eq!(ours.read(&mut [0; 4]).unwrap(), 1);
            assert_eq!(port.remove_now(id).unwrap(), Removal::PacketFollows);
            assert_quiet(&port, system);
            match way {
                0 => token.rearm().unwrap(),
                1 => assert_eq!(token.park().unwrap(), id),
                2 => assert_eq!(token.into_key(), "key"),
                _ => drop(token),
            }
            if way < 2 {
                assert_eq!(the_removed(&port, system), (id, "key"));
            }
            assert_quiet(&port, system);
            assert_eq!(port.stats().registered, 0);
        }
    }

    /// Rule 81: it is in use while a thread clones it, and that thread's packet is not lost.
    fn a_key_that_is_being_cloned_comes_with_the_last_packet(system: &System) {
        let (ours, theirs) = system.unix_pair();
        let ledger = Ledger::default();
        let port: Arc<Port<Removing, u32>> = Arc::new(system.port(1));
        let key = Removing { entry: ledger.entry(), remove: Arc::default() };
        let (number, remove) = (key.entry.number, Arc::clone(&key.remove));
        let id = port.register(repeated(&ours, key)).unwrap();
        let (removals, weak) = (Arc::new(Mutex::new(Vec::new())), Weak::clone(&Arc::downgrade(&port)));
        let seen = Arc::clone(&removals);
        let removes = move || {
            let removal = weak.upgrade().unwrap().remove_now(id);
            seen.lock().unwrap().push(removal.map(|removal| removal.into_key().is_some()));
        };
        assert!(remove.set(Box::new(removes)).is_ok());
        theirs.write(b"x").unwrap();
        let Packet::Notified(notified) = next(&port, system) else { panic!("no clone") };
        assert_eq!((notified.id(), notified.events()), (id, Events::IN));
        assert_eq!(*removals.lock().unwrap(), [Ok(false)]);
        let Packet::Removed(removed, key) = next(&port, system) else { panic!("no removal") };
        assert_eq!((removed, key.entry.number), (id, number));
        silent(&port, system);
        drop((notified, key));
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 81: operations in flight are cancelled, and their packets come first.
    fn a_key_that_operations_have_comes_behind_them(system: &System) {
        let port = shared_on(system);
        let (near, _far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        for _ in 0..2 {
            port.start(id, Operation::recv(room(4))).unwrap();
        }
        assert!(port.remove_now(id.id()).unwrap().into_key().is_none());
        for packet in all(&port, system, 2) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            assert_eq!(why(finished.error()), ErrorKind::Cancelled);
        }
        assert!(matches!(next(&port, system), Packet::Removed(..)));
        silent(&port, system);
        // With all packets taken, nothing uses the key.
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        port.start(id, Operation::recv(room(4))).unwrap();
        far.write(b"x").unwrap();
        let clone = finished(&port, system).into_parts().0;
        let key = port.remove_now(id.id()).unwrap().into_key().expect("nothing uses it");
        drop(clone);
        assert!(Shared::into_inner(key).is_some());
    }

    /// Rule 81: a closed port still returns the keys that it has. A port that shuts down is
    /// returning them all by packets.
    fn keys_are_returned_by_ports_that_end(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, _theirs) = system.unix_pair();
        let id = port.register(one_shot(&ours, "key")).unwrap();
        port.close();
        assert_eq!(port.remove_now(id).unwrap(), Removal::Key("key"));
        assert_closed(&port, system);

        let port = system.port::<&str, usize>(1);
        let id = port.register(one_shot(&ours, "key")).unwrap();
        port.shutdown().unwrap();
        assert_eq!(refused(port.remove_now(id)), ErrorKind::Removing);
        assert_eq!(the_removed(&port, system), (id, "key"));
        assert_closed(&port, system);
    }

    /// Rule 81: each key is returned once, by the call or by a packet, whatever other threads do
    /// with its registration meanwhile.
    fn a_key_is_returned_once_whatever_happens_meanwhile(system: &System) {
        const ROUNDS: usize = 200;
        system.several_threads_wait();
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(2);
        let (ours, theirs) = system.unix_pair();
        let (by_call, by_packet) = (AtomicUsize::new(0), AtomicUsize::new(0));
        theirs.write(b"x").unwrap();
        for round in 0..ROUNDS {
            // The number is free once the key was returned by a call, or is about to be.
            let id = port.register(repeated(&ours, ledger.entry())).unwrap();
            let over = AtomicUsize::new(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut batch = Batch::with_capacity(2);
                    while over.load(SeqCst) < 2 {
                        for packet in port.wait(&mut batch, Duration::ZERO).unwrap() {
                            if let Packet::Removed(..) = packet {
                                by_packet.fetch_add(1, SeqCst);
                            }
                        }
                    }
                });
                for other in [false, true] {
                    let (port, by_call, over) = (&port, &by_call, &over);
                    scope.spawn(move || {
                        match (other, round % 3) {
                            (false, _) => {
                                if let Ok(Removal::Key(_)) = port.remove_now(id) {
                                    by_call.fetch_add(1, SeqCst);
                                }
                            }
                            (true, 0) => {
                                let _ = port.remove(id);
                            }
                            (true, 1) => {
                                let _ = port.disable(id);
                                let _ = port.enable(id, Interest::IN, Persistent::Level);
                            }
                            (true, _) => drop(port.remove_now(id).map(|removal| {
                                let came = removal.into_key().is_some();
                                by_call.fetch_add(usize::from(came), SeqCst);
                            })),
                        }
                        over.fetch_add(1, SeqCst);
                    });
                }
            });
            let mut batch = Batch::new();
            let returned = || by_call.load(SeqCst) + by_packet.load(SeqCst);
            while returned() <= round {
                let packets = port.wait(&mut batch, system.soon()).unwrap();
                let removed = packets.filter(|packet| matches!(packet, Packet::Removed(..)));
                assert_eq!(by_packet.fetch_add(removed.count(), SeqCst) + 1, by_packet.load(SeqCst));
            }
            assert_eq!(returned(), round + 1);
            assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
        }
    }
}
