//! Rule 29: removal, and `remove_and_wait`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, Changes, Error, ErrorKind, Events, Interest, OneShot, Packet, Persistent, Registration,
    sim,
};
use testkit::{System, on_every_system};

use crate::kit::ledger::{Entry, Ledger};
use crate::kit::packets::{
    assert_quiet, each_packet, kind, one_shot, queue, refused, refused_or_ok, repeated, the_one,
    the_removed, the_token,
};
use crate::kit::threads::{End, Gate, eventually, settle};

on_every_system! {
    /// Rule 29.
    fn removal_gives_the_key_back_with_the_last_packet(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let key = ledger.entry();
        let number = key.number;
        let id = port.register(one_shot(&ours, key)).unwrap();
        port.remove(id).unwrap();
        theirs.write(b"x").unwrap();
        let (removed, key) = the_removed(&port, system);
        assert_eq!((removed, key.number), (id, number));
        assert_eq!(ledger.alive(), 1);
        theirs.write(b"x").unwrap();
        assert_quiet(&port, system);
        assert_eq!(port.stats().packets.removed, 1);
        assert_eq!(port.stats().registered, 0);
        drop(key);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: the registration is enabled, disabled, a spent one-shot, or persistent.
    fn removal_works_in_every_state(system: &System) {
        system.not_by_polls("edge trigger that reports undrained data only once");
        let port = system.port::<&str, usize>(1);
        let sockets: Vec<_> = (0..6).map(|_| system.unix_pair()).collect();
        let register = |place: usize, key| port.register(one_shot(&sockets[place].0, key)).unwrap();
        let enabled = register(0, "enabled");
        let disabled = register(1, "disabled");
        port.disable(disabled).unwrap();
        sockets[1].1.write(b"x").unwrap();
        let nothing = Registration::new(&sockets[2].0, "nothing", Interest::NONE, OneShot::Level);
        let nothing = port.register(nothing).unwrap();
        let persistent = port.register(repeated(&sockets[3].0, "persistent")).unwrap();
        let edge =
            Registration::new(&sockets[4].0, "edge", Interest::ALL, Persistent::Edge);
        let edge = port.register(edge).unwrap();
        let Packet::Notified(notified) = the_one(&port, system) else { panic!() };
        assert_eq!((notified.id(), notified.events()), (edge, Events::OUT));
        let spent = register(5, "spent");
        sockets[5].1.write(b"x").unwrap();
        assert_eq!(the_token(&port, system).park().unwrap(), spent);

        let all = [enabled, disabled, nothing, persistent, edge, spent];
        for id in all {
            port.remove(id).unwrap();
        }
        let mut batch = Batch::new();
        let removed: Vec<_> = port
            .wait(&mut batch, system.soon())
            .unwrap()
            .map(|packet| match packet {
                Packet::Removed(id, key) => (id, key),
                other => panic!("{}", kind(&other)),
            })
            .collect();
        let keys = ["enabled", "disabled", "nothing", "persistent", "edge", "spent"];
        assert!(removed.into_iter().eq(all.into_iter().zip(keys)));
        for (_, theirs) in &sockets {
            theirs.write(b"x").unwrap();
        }
        assert_quiet(&port, system);
        assert_eq!(port.stats().registered, 0);
    }

    /// Rule 29: no packet of a registration comes after its removal, and a queued one becomes the
    /// removal.
    fn removal_of_a_queued_registration_replaces_its_packet(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let write = || assert_eq!(theirs.write(b"x").unwrap(), 1);
        let id = queue(&port, system, &ours, write, "key", "other");
        port.remove(id).unwrap();
        assert_eq!(the_removed(&port, system), (id, "key"));
        assert_quiet(&port, system);
    }

    /// Rule 29: this holds whatever several threads do with clones of the key meanwhile.
    fn removal_is_the_last_packet_of_a_persistent_key(system: &System) {
        system.several_threads_wait();
        let ledger = Ledger::default();
        let port = system.port::<Entry, ()>(4);
        let (ours, theirs) = system.unix_pair();
        let (reported, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let over = Gate::default();
        let gone = AtomicBool::new(false);
        let id = port.register(repeated(&ours, ledger.entry())).unwrap();
        thread::scope(|scope| {
            let _end = End::of(&port, [&over]);
            for _ in 0..4 {
                scope.spawn(|| {
                    each_packet(&port, Batch::with_capacity(2), |packet| {
                            match packet {
                                Packet::Notified(_) => {
                                    reported.fetch_add(1, SeqCst);
                                }
                                Packet::Removed(..) => gone.store(true, SeqCst),
                                other => panic!("{}", kind(&other)),
                            }
                    });
                });
            }
            // The byte is never read, so all threads get packet after packet.
            theirs.write(b"x").unwrap();
            eventually(system, "packets come", || reported.load(SeqCst) > 200);
            port.remove(id).unwrap();
            eventually(system, "the removal comes", || gone.load(SeqCst));
            settle(system, &port, 4);
            let before = reported.load(SeqCst);
            theirs.write(b"x").unwrap();
            settle(system, &port, 4);
            late.store(reported.load(SeqCst) - before, SeqCst);
        });
        assert_eq!(late.load(SeqCst), 0, "a packet came after the removal");
        assert_eq!(port.stats().packets.removed, 1);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: removing again while the packet is pending changes nothing, and enabling then
    /// fails.
    fn removing_twice_makes_one_packet(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, _theirs) = system.unix_pair();
        let id = port.register(one_shot(&ours, "key")).unwrap();
        port.remove(id).unwrap();
        port.remove(id).unwrap();
        assert_eq!(refused(port.enable(id, Interest::IN, OneShot::Level)), ErrorKind::Removing);
        assert_eq!(refused(port.disable(id)), ErrorKind::Removing);
        assert_eq!(refused(port.remove_and_wait(id, system.soon())), ErrorKind::Removing);
        port.remove(id).unwrap();
        assert_eq!(the_removed(&port, system), (id, "key"));
        assert_quiet(&port, system);
    }

    /// Rule 29: once the last packet has been taken, the registration does not exist.
    fn removing_what_has_ended_is_refused_and_makes_no_packet(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let id = port.register(one_shot(&ours, "key")).unwrap();
        port.remove(id).unwrap();
        the_removed(&port, system);
        let gone = ErrorKind::NotRegistered;
        for _ in 0..2 {
            assert_eq!(refused(port.remove(id)), gone);
            assert_eq!(refused(port.remove_and_wait(id, system.soon())), gone);
            assert_eq!(refused(port.disable(id)), gone);
            assert_eq!(refused(port.enable(id, Interest::IN, OneShot::Level)), gone);
            // The old id does not name the next registration either, which gets the same slot.
            let again = port.register(one_shot(&ours, "again")).unwrap();
            assert_ne!(again, id);
            assert_eq!(refused(port.remove(id)), gone);
            theirs.write(b"x").unwrap();
            let token = the_token(&port, system);
            assert_eq!((token.id(), *token.key()), (again, "again"));
            ours.drain();
            assert_eq!(token.into_key(), "again");
        }
        assert_quiet(&port, system);
    }

    /// Rule 29: the number may be registered again before the old key is returned.
    fn a_descriptor_may_be_registered_again_before_its_removal_was_taken(system: &System) {
        let (here, there) = (system.port::<&str, usize>(1), system.port::<&str, usize>(1));
        let (ours, theirs) = system.unix_pair();
        let first = here.register(one_shot(&ours, "first")).unwrap();
        here.remove(first).unwrap();
        let second = there.register(one_shot(&ours, "second")).unwrap();
        there.remove(second).unwrap();
        let third = here.register(one_shot(&ours, "third")).unwrap();
        assert_ne!(first, third);
        assert_eq!(the_removed(&here, system), (first, "first"));
        assert_eq!(the_removed(&there, system), (second, "second"));
        theirs.write(b"x").unwrap();
        let token = the_token(&here, system);
        assert_eq!((token.id(), *token.key()), (third, "third"));
        assert_quiet(&here, system);
        assert_quiet(&there, system);
        drop(token);
    }

    /// Rule 29: while the key is out, the removal takes effect when the key returns.
    fn removal_while_the_key_is_out_takes_effect_when_it_comes_back(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        for way in ["rearm", "rearm_as", "park", "process"] {
            let id = port.register(one_shot(&ours, way)).unwrap();
            theirs.write(b"x").unwrap();
            let token = the_token(&port, system);
            ours.drain();
            port.remove(id).unwrap();
            port.remove(id).unwrap();
            assert_quiet(&port, system);
            assert_eq!(*token.key(), way, "the handler still has it");
            match way {
                "rearm" => token.rearm().unwrap(),
                "rearm_as" => token.rearm_as(Interest::ALL, OneShot::Edge).unwrap(),
                "park" => assert_eq!(token.park().unwrap(), id),
                _ => {
                    let mut changes = Changes::new();
                    changes.rearm(token);
                    let mut none = Batch::with_capacity(0);
                    let packets = port.process(&mut changes, &mut none, Duration::ZERO).unwrap();
                    assert_eq!(packets.count(), 0);
                    assert_eq!(changes.results(), [Ok(id)]);
                }
            }
            assert_eq!(the_removed(&port, system), (id, way));
            assert_quiet(&port, system);
        }
    }

    /// Rule 29: if the key does not return, there is no packet.
    fn removal_of_a_key_that_the_handler_keeps_or_drops_makes_no_packet(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"x").unwrap();
        for keep in [false, true] {
            let id = port.register(one_shot(&ours, ledger.entry())).unwrap();
            let token = the_token(&port, system);
            port.remove(id).unwrap();
            if keep {
                let key = token.into_key();
                assert_eq!(ledger.alive(), 1);
                drop(key);
            } else {
                drop(token);
            }
            assert_eq!(ledger.alive(), 0);
            assert_quiet(&port, system);
            assert_eq!(refused(port.remove(id)), ErrorKind::NotRegistered);
        }
        assert_eq!(port.stats().registered, 0);
    }

    /// Rule 29: a token that is dropped or gives up its key ends the registration.
    fn a_token_that_is_not_armed_again_ends_the_registration(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"x").unwrap();
        let dropped = port.register(one_shot(&ours, ledger.entry())).unwrap();
        drop(the_token(&port, system));
        assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
        assert_eq!(refused(port.remove(dropped)), ErrorKind::NotRegistered);
        let kept = port.register(one_shot(&ours, ledger.entry())).unwrap();
        let key = the_token(&port, system).into_key();
        assert_eq!((ledger.alive(), port.stats().registered), (1, 0));
        assert_eq!(refused(port.remove(kept)), ErrorKind::NotRegistered);
        assert_quiet(&port, system);
        drop(key);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: in every state in which the port has the key, the call returns it and there is no
    /// packet.
    fn remove_and_wait_gives_the_key_back_at_once(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let collect = |id, number| {
            let key = port.remove_and_wait(id, None).unwrap();
            assert_eq!(key.number, number);
            drop(key);
            assert_eq!(refused(port.remove(id)), ErrorKind::NotRegistered);
            assert_quiet(&port, system);
            assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
        };
        let (ours, theirs) = system.unix_pair();
        let new = || {
            let key = ledger.entry();
            let number = key.number;
            (port.register(one_shot(&ours, key)).unwrap(), number)
        };

        // Armed.
        let (id, number) = new();
        collect(id, number);
        // Armed, with an edge that the kernel has not reported yet.
        let (id, number) = new();
        theirs.write(b"x").unwrap();
        collect(id, number);
        // Disabled.
        let (id, number) = new();
        port.disable(id).unwrap();
        collect(id, number);
        // Parked.
        let (id, number) = new();
        assert_eq!(the_token(&port, system).park().unwrap(), id);
        collect(id, number);
        // Armed again, and queued for a check.
        let (id, number) = new();
        the_token(&port, system).rearm().unwrap();
        assert_eq!(port.stats().queued, 1);
        collect(id, number);
        assert_eq!(port.stats().queued, 0);
        ours.drain();
        // Queued.
        let (key, other) = (ledger.entry(), ledger.entry());
        let number = key.number;
        let write = || assert_eq!(theirs.write(b"x").unwrap(), 1);
        let id = queue(&port, system, &ours, write, key, other);
        collect(id, number);
        assert_eq!(port.stats().queued, 0);
        // Persistent, and queued for a check by its last packet.
        let key = ledger.entry();
        let number = key.number;
        let id = port.register(repeated(&ours, key)).unwrap();
        drop(the_one(&port, system));
        collect(id, number);
    }

    /// Rule 29: a packet in the batch of a thread that has not reached it is not delivered.
    fn remove_and_wait_takes_the_key_out_of_a_batch_that_is_out(system: &System) {
        let port = system.port::<usize, usize>(1);
        let sockets: Vec<_> = (0..3).map(|_| system.unix_pair()).collect();
        let ids: Vec<_> = sockets
            .iter()
            .enumerate()
            .map(|(key, (ours, theirs))| {
                theirs.write(b"x").unwrap();
                port.register(one_shot(ours, key)).unwrap()
            })
            .collect();
        let mut batch = Batch::new();
        let mut packets = port.wait(&mut batch, system.soon()).unwrap();
        let Some(Packet::Ready(first)) = packets.next() else { panic!("no packet") };
        let other = (*first.key() + 1) % 3;
        let last = (other + 1) % 3;
        let (port, id, soon) = (&port, ids[last], system.soon());
        // Removed by another thread, while this one has a batch, and by this thread itself, which
        // first returns its batch.
        thread::scope(|scope| {
            let removed = scope.spawn(move || port.remove_and_wait(id, soon).unwrap());
            assert_eq!(removed.join().unwrap(), last);
        });
        assert_eq!(port.remove_and_wait(ids[other], soon).unwrap(), other);
        assert_eq!(packets.count(), 0);
        assert_eq!(port.stats().registered, 1);
        drop(first);
        assert_quiet(port, system);
    }

    /// Rule 29: it waits for a key that is out.
    fn remove_and_wait_waits_for_a_key_that_is_out(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"x").unwrap();
        for way in ["rearm", "park", "drop", "into_key"] {
            let id = port.register(one_shot(&ours, way)).unwrap();
            let token = the_token(&port, system);
            let port = &port;
            thread::scope(|scope| {
                let remover = scope.spawn(move || port.remove_and_wait(id, None));
                // It has begun once no other thread may change the registration.
                eventually(system, "the removal begins", || {
                    refused_or_ok(port.disable(id)) == Some(ErrorKind::Removing)
                });
                assert!(!remover.is_finished(), "it does not wait");
                let outcome = match way {
                    "rearm" => token.rearm().map_err(Error::from),
                    "park" => token.park().map(drop).map_err(Error::from),
                    "into_key" => {
                        assert_eq!(token.into_key(), way);
                        Ok(())
                    }
                    _ => {
                        drop(token);
                        Ok(())
                    }
                };
                outcome.unwrap();
                match remover.join().unwrap() {
                    Ok(key) => assert!(["rearm", "park"].contains(&way) && key == way),
                    Err(error) => {
                        assert!(["drop", "into_key"].contains(&way), "{error}");
                        assert_eq!(error.kind(), ErrorKind::NotRegistered);
                    }
                }
            });
            assert_quiet(port, system);
            assert_eq!(port.stats().registered, 0);
        }
    }

    /// Rule 29: after the timeout it is a removal like any other.
    fn remove_and_wait_whose_time_is_over_is_an_ordinary_removal(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"x").unwrap();
        let id = port.register(one_shot(&ours, "key")).unwrap();
        let token = the_token(&port, system);
        let begun = Instant::now();
        let now = || system.kernel().map_or_else(|| begun.elapsed(), sim::Kernel::now);
        let limit = Duration::from_millis(5);
        let since = now();
        assert_eq!(refused(port.remove_and_wait(id, limit)), ErrorKind::TimedOut);
        assert!(now() - since >= limit);
        assert_eq!(refused(port.remove_and_wait(id, Duration::ZERO)), ErrorKind::Removing);
        assert_quiet(&port, system);
        token.rearm().unwrap();
        assert_eq!(the_removed(&port, system), (id, "key"));
        assert_quiet(&port, system);
    }

    /// Rule 29: the remover's seat is free while it waits.
    fn remove_and_wait_frees_the_seat_of_its_thread(system: &System) {
        system.several_threads_wait();
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let id = port.register(one_shot(&ours, "key")).unwrap();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            let port = &port;
            theirs.write(b"x").unwrap();
            let mut batch = Batch::new();
            let packet = port.wait(&mut batch, None).unwrap().next();
            let Some(Packet::Ready(token)) = packet else { panic!("no packet") };
            // Another thread has the key, and returns it after it gets a message. For that it needs
            // this thread's seat.
            scope.spawn(move || {
                let mut batch = Batch::new();
                let packet = port.wait(&mut batch, None).unwrap().next();
                assert!(matches!(packet, Some(Packet::Posted(7))));
                token.rearm().unwrap();
            });
            settle(system, port, 1);
            assert_eq!(port.stats().running, 1);
            port.post(7).unwrap();
            assert_eq!(port.remove_and_wait(id, system.soon()).unwrap(), "key");
        });
    }
}

/// Rule 29: a timeout in virtual time passes when the virtual clock says so, however long that
/// takes.
#[test]
fn remove_and_wait_waits_by_the_clock_of_its_kernel_sim() {
    const HOUR: Duration = Duration::from_secs(3600);
    testkit::run(System::simulated, |on| {
        let kernel = on.kernel().unwrap();
        let port = on.port::<&str, usize>(1);
        let (ours, theirs) = on.unix_pair();
        let held = || {
            theirs.write(b"x").unwrap();
            let id = port.register(one_shot(&ours, "key")).unwrap();
            (id, the_token(&port, on))
        };
        // The automatic clock: an hour passes immediately.
        let (id, token) = held();
        assert_eq!(refused(port.remove_and_wait(id, HOUR)), ErrorKind::TimedOut);
        assert_eq!(kernel.now(), HOUR);
        drop(token);

        kernel.manual_clock();
        for returns in [false, true] {
            let (id, token) = held();
            let begun = kernel.now();
            thread::scope(|scope| {
                let remover = scope.spawn(|| (port.remove_and_wait(id, HOUR), kernel.now()));
                assert!(kernel.wait_for_sleepers(1, on.soon()));
                kernel.advance(HOUR - Duration::from_nanos(1));
                if returns {
                    token.rearm().unwrap();
                    assert_eq!(remover.join().unwrap().0, Ok("key"));
                } else {
                    assert!(kernel.wait_for_sleepers(1, on.soon()));
                    kernel.advance(Duration::from_nanos(1));
                    let (outcome, ended) = remover.join().unwrap();
                    assert_eq!((refused(outcome), ended - begun), (ErrorKind::TimedOut, HOUR));
                    drop(token);
                }
            });
        }
    });
}
