//! Rules 1 to 6 and 45: one call applies changes and takes packets, and how it ends.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, Call, Changes, ErrorKind, Events, Interest, OneShot, Packet, Persistent, Port,
    Registration,
};
use testkit::on_every_system;

use crate::kit::packets::{
    ONE_SHOT_LEVEL, PERSISTENT_LEVEL, assert_quiet, leave_queued, messages, notified, packet,
    port_on, ready, register, report,
};
use crate::kit::threads::{let_be_told, now, settle};

on_every_system! {
    /// Rule 3.
    fn a_closed_port_returns_what_it_refuses(system: &System) {
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
        assert_eq!((error.kind(), error.call()), (ErrorKind::Closed, Call::Register));
        assert_eq!(Arc::strong_count(&back), 4);
        drop(back);
        let (error, back) = held.rearm().unwrap_err().into_parts();
        assert_eq!((error.kind(), error.call()), (ErrorKind::Closed, Call::Rearm));
        assert_eq!(&*back, "key");
        let error = port.enable(parked, Interest::IN, OneShot::Level).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert_eq!(port.post(7).unwrap_err().into_parts().1, 7);
        let mut batch = Batch::new();
        let error = port.wait(&mut batch, None).unwrap_err();
        assert_eq!((error.kind(), error.call()), (ErrorKind::Closed, Call::Wait));
        drop(port);
        drop(back);
        assert_eq!(Arc::strong_count(&key), 1, "no key was lost");
    }

    // ---- rule 1 --------------------------------------------------------------------------------

    /// Rule 1.
    fn a_change_is_in_force_for_the_wait_of_the_same_call(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        theirs.write(b"x").unwrap();
        let (mut changes, mut batch) = (Changes::new(), Batch::new());
        changes.register(Registration::new(&ours, "ours", Interest::IN, OneShot::Level));
        let mut packets = port.process(&mut changes, &mut batch, system.soon()).unwrap();
        let Some(Packet::Ready(held)) = packets.next() else { panic!("ready at once") };
        assert_eq!((held.events(), *held.key()), (Events::IN, "ours"));
        assert!(packets.next().is_none());
        drop(packets);
        assert_eq!(changes.results(), [Ok(held.id())]);
        // Armed by the next call, with the data still there.
        changes.rearm(held);
        let mut packets = port.process(&mut changes, &mut batch, system.soon()).unwrap();
        let Some(Packet::Ready(held)) = packets.next() else { panic!("ready at once") };
        assert_eq!(held.events(), Events::IN);
        drop(packets);
        ours.drain();
        // Armed with no data left: the same call waits and finds nothing.
        changes.rearm_as(held, Interest::IN | Interest::HANGUP, OneShot::Level);
        let packets = port.process(&mut changes, &mut batch, system.quiet()).unwrap();
        assert_eq!(packets.count(), 0);
        theirs.write(b"x").unwrap();
        assert_eq!(report(&port, system), Events::IN);
    }

    /// Rule 1.
    fn changes_are_applied_in_the_order_they_were_added(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let (other, _peer) = system.tcp_pair();
        theirs.write(b"x").unwrap();
        let id = register(&port, &ours, "ours", Interest::NONE, ONE_SHOT_LEVEL);
        let (mut changes, mut batch) = (Changes::new(), Batch::new());
        // The last change counts.
        changes.enable(id, Interest::IN, OneShot::Level);
        changes.disable(id);
        let packets = port.process(&mut changes, &mut batch, system.quiet()).unwrap();
        assert_eq!(packets.count(), 0);
        changes.disable(id);
        changes.enable(id, Interest::OUT, OneShot::Level);
        changes.enable(id, Interest::IN, OneShot::Level);
        let packet = port.process(&mut changes, &mut batch, system.soon()).unwrap().next();
        assert!(matches!(&packet, Some(Packet::Ready(held)) if held.events() == Events::IN));
        assert_eq!(changes.results(), [Ok(id); 3]);
        let Some(Packet::Ready(held)) = packet else { unreachable!() };
        held.park().unwrap();
        // The first of two registrations gets the descriptor. It is free again after the removal.
        changes.register(Registration::new(&other, "first", Interest::IN, OneShot::Level));
        changes.register(Registration::new(&other, "second", Interest::IN, OneShot::Level));
        changes.remove(id);
        changes.enable(id, Interest::IN, OneShot::Level);
        changes.register(Registration::new(&ours, "again", Interest::NONE, OneShot::Level));
        let packets = port.process(&mut changes, &mut batch, system.soon()).unwrap();
        let last: Vec<_> = packets.collect();
        assert!(matches!(&last[..], [Packet::Removed(it, "ours")] if *it == id), "{last:?}");
        let results = changes.results();
        assert!(results[0].is_ok() && results[2] == Ok(id) && results[4].is_ok(), "{results:?}");
        assert_eq!(results[1].unwrap_err().kind(), ErrorKind::AlreadyRegistered);
        assert_eq!(results[3].unwrap_err().kind(), ErrorKind::Removing);
        assert_quiet(&port, system);
    }

    /// Rule 1.
    fn every_kind_of_change_fits_into_one_call(system: &System) {
        let port = port_on(system);
        let pairs: Vec<_> = (0..7).map(|_| system.unix_pair()).collect();
        let mut ids = Vec::new();
        for (name, (ours, _)) in ["0", "1", "2", "3", "4", "5"].into_iter().zip(&pairs) {
            ids.push(register(&port, ours, name, Interest::NONE, ONE_SHOT_LEVEL));
        }
        for id in &ids[..2] {
            port.enable(*id, Interest::OUT, OneShot::Level).unwrap();
        }
        let mut batch = Batch::new();
        let mut held = Vec::new();
        while held.len() < 2 {
            for packet in port.wait(&mut batch, system.soon()).unwrap() {
                let Packet::Ready(ready) = packet else { panic!("{packet:?}") };
                held.push(ready);
            }
        }
        held.sort_by_key(|ready| *ready.key());
        let mut changes = Changes::new();
        changes.rearm_as(held.pop().unwrap(), Interest::NONE, OneShot::Edge);
        changes.rearm(held.pop().unwrap());
        changes.enable(ids[2], Interest::OUT, OneShot::Level);
        changes.enable(ids[3], Interest::IN, Persistent::Edge);
        changes.disable(ids[4]);
        changes.remove(ids[5]);
        let fresh = Registration::new(&pairs[6].0, "6", Interest::OUT, OneShot::Level);
        changes.register(fresh);
        assert_eq!(changes.len(), 7);
        let mut seen = Vec::new();
        let mut packets = port.process(&mut changes, &mut batch, system.soon()).unwrap();
        loop {
            let before = seen.len();
            for packet in packets {
                seen.push(match packet {
                    Packet::Ready(ready) => {
                        assert_eq!(ready.events(), Events::OUT);
                        let name = *ready.key();
                        ready.park().unwrap();
                        name
                    }
                    Packet::Removed(id, name) => {
                        assert_eq!(id, ids[5]);
                        name
                    }
                    other => panic!("{other:?}"),
                });
            }
            if seen.len() == before {
                break;
            }
            let time = if seen.len() < 4 { system.soon() } else { system.quiet() };
            packets = port.wait(&mut batch, time).unwrap();
        }
        seen.sort_unstable();
        assert_eq!(seen, ["0", "2", "5", "6"]);
        pairs[3].1.write(b"x").unwrap();
        let notified = notified(&port, system);
        assert_eq!((notified.id(), notified.events()), (ids[3], Events::IN));
        let results = changes.results();
        assert_eq!(results[..6], [ids[1], ids[0], ids[2], ids[3], ids[4], ids[5]].map(Ok));
        assert!(results[6].is_ok());
        assert!(changes.is_empty());
        assert_eq!(changes.refused().count(), 0);
    }

    /// Rule 1.
    fn at_most_as_many_packets_are_taken_as_there_is_room_for(system: &System) {
        let port = port_on(system);
        for message in 0..10 {
            port.post(message).unwrap();
        }
        let mut batch = Batch::with_capacity(4);
        let taken = |batch: &mut Batch| messages(port.wait(batch, system.quiet()).unwrap());
        assert_eq!(taken(&mut batch), [0, 1, 2, 3]);
        assert_eq!(taken(&mut batch), [4, 5, 6, 7]);
        assert_eq!(taken(&mut batch), [8, 9]);
        assert_eq!(taken(&mut batch), []);
    }

    /// Rule 1.
    fn a_batch_may_have_room_for_any_number(system: &System) {
        let port = port_on(system);
        let mut grown = Batch::new();
        grown.set_capacity(usize::MAX);
        for mut batch in [Batch::with_capacity(usize::MAX), grown] {
            assert_eq!(batch.capacity(), usize::MAX);
            (0..100).for_each(|message| port.post(message).unwrap());
            let mut taken = Vec::new();
            while taken.len() < 100 {
                taken.extend(messages(port.wait(&mut batch, system.quiet()).unwrap()));
            }
            assert_eq!(taken, (0..100).collect::<Vec<_>>());
        }
    }

    // ---- rule 2 --------------------------------------------------------------------------------

    /// Rule 2.
    fn a_batch_without_room_applies_the_changes_and_takes_nothing(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        theirs.write(b"x").unwrap();
        port.post(7).unwrap();
        let (mut changes, mut none) = (Changes::new(), Batch::with_capacity(0));
        changes.register(Registration::new(&ours, "ours", Interest::IN, OneShot::Level));
        // Without a timeout, it returns nevertheless.
        assert_eq!(port.process(&mut changes, &mut none, None).unwrap().count(), 0);
        assert_eq!(changes.results().len(), 1);
        assert!(changes.results()[0].is_ok());
        assert_eq!(port.wait(&mut none, None).unwrap().count(), 0);
        assert!(matches!(packet(&port, system), Packet::Posted(7)));
        assert_eq!(report(&port, system), Events::IN);
    }

    /// Rule 2.
    fn a_call_with_neither_changes_nor_room_does_nothing(system: &System) {
        let port = port_on(system);
        port.post(7).unwrap();
        let (mut changes, mut none) = (Changes::new(), Batch::with_capacity(0));
        assert_eq!(port.process(&mut changes, &mut none, None).unwrap().count(), 0);
        assert!(changes.results().is_empty());
        assert_eq!(port.stats().packets.total(), 0);
        let mut batch = Batch::new();
        let packets = port.process(&mut changes, &mut batch, Duration::ZERO).unwrap();
        assert_eq!(messages(packets), [7]);
        assert_quiet(&port, system);
    }

    // ---- rule 3 --------------------------------------------------------------------------------

    /// Rule 3.
    fn a_failed_call_changes_nothing_and_keeps_every_change(system: &System) {
        let closed = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let (other, _peer) = system.tcp_pair();
        let id = register(&closed, &other, "other", Interest::NONE, ONE_SHOT_LEVEL);
        closed.close();
        let (mut changes, mut removal, mut batch) = (Changes::new(), Changes::new(), Batch::new());
        removal.remove(id);
        changes.register(Registration::new(&ours, "ours", Interest::IN, OneShot::Level));
        changes.register(Registration::new(&ours, "twice", Interest::IN, OneShot::Level));
        for (changes, count) in [(&mut changes, 2), (&mut removal, 1)] {
            let error = closed.process(changes, &mut batch, Duration::ZERO).unwrap_err();
            assert_eq!((error.kind(), error.call()), (ErrorKind::Closed, Call::Wait));
            assert_eq!(changes.len(), count);
            assert!(changes.results().is_empty());
            assert_eq!(changes.refused().count(), 0);
        }
        assert_eq!(closed.stats().registered, 1);
        // The changes can still be applied elsewhere.
        let port = port_on(system);
        theirs.write(b"x").unwrap();
        let mut packets = port.process(&mut changes, &mut batch, system.soon()).unwrap();
        assert!(matches!(packets.next(), Some(Packet::Ready(held)) if *held.key() == "ours"));
        assert!(changes.is_empty());
        assert_eq!(changes.results().len(), 2);
        assert_eq!(changes.refused().next().unwrap().into_parts().1, Some("twice"));
    }

    /// Rule 3.
    fn each_change_has_a_result_of_its_own_and_what_is_refused_comes_back(system: &System) {
        let port = port_on(system);
        let elsewhere = port_on(system);
        let (ours, _theirs) = system.tcp_pair();
        let (taken, _peer) = system.tcp_pair();
        let file = system.regular_file();
        register(&elsewhere, &taken, "elsewhere", Interest::IN, ONE_SHOT_LEVEL);
        let (mut changes, mut batch) = (Changes::new(), Batch::new());
        let gone = {
            let id = register(&port, &ours, "former", Interest::IN, ONE_SHOT_LEVEL);
            assert_eq!(port.remove_and_wait(id, None).unwrap(), "former");
            id
        };
        changes.register(Registration::new(&file, "file", Interest::IN, OneShot::Level));
        changes.register(Registration::new(&ours, "ours", Interest::IN, OneShot::Level));
        changes.register(Registration::new(&taken, "taken", Interest::IN, OneShot::Level));
        changes.disable(gone);
        // The call succeeds although the time has passed and nothing came.
        assert_eq!(port.process(&mut changes, &mut batch, system.quiet()).unwrap().count(), 0);
        let results = changes.results().iter();
        let kinds: Vec<_> = results.map(|it| it.err().map(|error| error.kind())).collect();
        assert_eq!(
            kinds,
            [
                Some(ErrorKind::NotPollable),
                None,
                Some(ErrorKind::AlreadyRegistered),
                Some(ErrorKind::NotRegistered),
            ]
        );
        let refused: Vec<_> = changes
            .refused()
            .map(|refused| {
                let (index, (error, key)) = (refused.index(), refused.into_parts());
                (index, error.kind(), key)
            })
            .collect();
        assert_eq!(
            refused,
            [
                (0, ErrorKind::NotPollable, Some("file")),
                (2, ErrorKind::AlreadyRegistered, Some("taken")),
                (3, ErrorKind::NotRegistered, None),
            ]
        );
        assert_eq!(changes.refused().count(), 0);
        assert_eq!(port.stats().registered, 1);
        // The next call has its own results.
        assert_eq!(port.process(&mut changes, &mut batch, Duration::ZERO).unwrap().count(), 0);
        assert!(changes.results().is_empty());
    }

    /// Rule 3.
    fn a_token_that_is_refused_in_a_batch_gives_its_key_back(system: &System) {
        let port = port_on(system);
        let other = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let held = ready(&port, system);
        port.close();
        // A token knows its port, whichever port applies the changes.
        let (mut changes, mut batch) = (Changes::new(), Batch::new());
        changes.rearm(held);
        assert_eq!(other.process(&mut changes, &mut batch, Duration::ZERO).unwrap().count(), 0);
        assert_eq!(changes.results()[0].unwrap_err().kind(), ErrorKind::Closed);
        let (error, key) = changes.refused().next().unwrap().into_parts();
        assert_eq!((error.call(), key), (Call::Rearm, Some("ours")));
        // Its registration has ended, so the descriptor is free.
        register(&other, &ours, "again", Interest::IN, ONE_SHOT_LEVEL);
        assert_eq!(report(&other, system), Events::IN);
    }

    // ---- rule 4 --------------------------------------------------------------------------------

    /// Rule 4.
    fn a_timeout_is_an_empty_batch_and_the_changes_were_applied(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        for timeout in [Duration::ZERO, system.quiet()] {
            let (mut changes, mut batch) = (Changes::new(), Batch::new());
            changes.register(Registration::new(&ours, "ours", Interest::IN, OneShot::Level));
            let packets = port.process(&mut changes, &mut batch, timeout).unwrap();
            assert_eq!(packets.count(), 0);
            let id = changes.results()[0].unwrap();
            assert!(changes.is_empty());
            theirs.write(b"x").unwrap();
            let held = ready(&port, system);
            assert_eq!((held.id(), held.events()), (id, Events::IN));
            ours.drain();
            assert_eq!(held.into_key(), "ours");
        }
        assert_quiet(&port, system);
    }

    /// Rule 4.
    fn a_wait_without_time_takes_what_is_there(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.unix_pair();
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        let mut batch = Batch::new();
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
        theirs.write(b"x").unwrap();
        let_be_told(&port, system, 1);
        let packet = port.wait(&mut batch, Duration::ZERO).unwrap().next();
        assert!(matches!(packet, Some(Packet::Ready(held)) if held.events() == Events::IN));
    }

    // ---- rule 45 -------------------------------------------------------------------------------

    /// Rule 45.
    fn a_call_in_which_a_change_was_refused_does_not_sleep(system: &System) {
        system.several_threads_wait();
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        let ended = {
            let (other, _peer) = system.tcp_pair();
            let ended = register(&port, &other, "other", Interest::IN, ONE_SHOT_LEVEL);
            port.remove_and_wait(ended, None).unwrap();
            ended
        };
        let (mut changes, mut batch) = (Changes::new(), Batch::new());
        // If it slept, it would do so forever, and the test would hang.
        for _ in 0..3 {
            changes.remove(ended);
            changes.enable(id, Interest::IN, OneShot::Level);
            let packets = port.process(&mut changes, &mut batch, None).unwrap();
            assert_eq!(packets.count(), 0, "nothing is there");
            assert!(changes.results()[0].is_err() && changes.results()[1].is_ok());
        }
        // It takes the available packets.
        theirs.write(b"x").unwrap();
        port.post(7).unwrap();
        let_be_told(&port, system, 2);
        changes.remove(ended);
        let mut packets = port.process(&mut changes, &mut batch, None).unwrap();
        let (first, second) = (packets.next(), packets.next());
        assert!(matches!(first, Some(Packet::Posted(7))), "{first:?}");
        let Some(Packet::Ready(second)) = second else { panic!("{second:?}") };
        second.park().unwrap();
        drop(packets);
        // After a packet, a wait, or a change that succeeded, each refusal counts as the first
        // again.
        changes.remove(ended);
        assert_eq!(port.process(&mut changes, &mut batch, None).unwrap().count(), 0);
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
        changes.remove(ended);
        assert_eq!(port.process(&mut changes, &mut batch, None).unwrap().count(), 0);
        changes.remove(ended);
        changes.disable(id);
        assert_eq!(port.process(&mut changes, &mut batch, None).unwrap().count(), 0);
        changes.remove(ended);
        assert_eq!(port.process(&mut changes, &mut batch, None).unwrap().count(), 0);
    }

    /// Rule 45.
    fn changes_that_are_refused_again_and_again_do_not_spin(system: &System) {
        const ROUNDS: u32 = 5;
        let port = port_on(system);
        let (ours, _theirs) = system.tcp_pair();
        let ended = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        port.remove_and_wait(ended, None).unwrap();
        let (mut changes, mut batch) = (Changes::new(), Batch::new());
        let start = now(system);
        let mut calls = 0;
        while now(system) - start < ROUNDS * system.quiet() {
            calls += 1;
            changes.remove(ended);
            changes.enable(ended, Interest::IN, OneShot::Level);
            let packets = port.process(&mut changes, &mut batch, system.quiet()).unwrap();
            assert_eq!(packets.count(), 0);
            assert!(changes.results().iter().all(Result::is_err));
        }
        assert!(calls <= 1 + ROUNDS, "{calls} calls in the time of {ROUNDS}");
        // It sleeps, and is woken like any other call.
        port.post(7).unwrap();
        changes.remove(ended);
        let packets = port.process(&mut changes, &mut batch, None).unwrap();
        assert_eq!(messages(packets), [7]);
    }

    /// Rule 45.
    fn refusals_of_one_thread_or_port_do_not_make_another_call_sleep(system: &System) {
        let (port, other) = (port_on(system), port_on(system));
        let (ours, _theirs) = system.tcp_pair();
        let ended = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        port.remove_and_wait(ended, None).unwrap();
        let refused = |port: &Port<&'static str, u32>| {
            let (mut changes, mut batch) = (Changes::new(), Batch::new());
            changes.remove(ended);
            assert_eq!(port.process(&mut changes, &mut batch, None).unwrap().count(), 0);
        };
        refused(&port);
        thread::scope(|scope| scope.spawn(|| refused(&port)).join().unwrap());
        refused(&other);
        refused(&port);
    }

    // ---- rule 5 --------------------------------------------------------------------------------

    /// Rule 5.
    fn one_wait_takes_packets_of_every_kind_in_the_order_they_were_queued(system: &System) {
        let port = port_on(system);
        let (first, _one) = system.unix_pair();
        let (second, _two) = system.unix_pair();
        let (third, _three) = system.unix_pair();
        register(&port, &first, "first", Interest::OUT, ONE_SHOT_LEVEL);
        let_be_told(&port, system, 1);
        register(&port, &second, "second", Interest::OUT, PERSISTENT_LEVEL);
        let_be_told(&port, system, 2);
        let last = register(&port, &third, "third", Interest::NONE, ONE_SHOT_LEVEL);
        leave_queued(&port, system, 2);
        port.post(7).unwrap();
        port.remove(last).unwrap();
        port.post(8).unwrap();
        let mut batch = Batch::new();
        let packets = port.wait(&mut batch, system.soon()).unwrap();
        let words = packets.map(|packet| match packet {
            Packet::Ready(held) => format!("{} {:?}", held.key(), held.events()),
            Packet::Notified(notified) => format!("{} {:?}", notified.key(), notified.events()),
            Packet::Posted(message) => format!("{message}"),
            Packet::Removed(id, key) => format!("{key} {}", id == last),
            _ => panic!("another kind of packet"),
        });
        let seen: Vec<_> = words.collect();
        assert_eq!(seen, ["first OUT", "second OUT", "7", "third true", "8"]);
        let counts = port.stats().packets;
        assert_eq!((counts.ready, counts.notified, counts.posted, counts.removed), (1, 1, 2, 1));
    }

    // ---- rule 6 --------------------------------------------------------------------------------

    /// Rule 6.
    fn a_thread_registers_while_another_waits(system: &System) {
        system.several_threads_wait();
        for through_process in [false, true] {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let mut batch = Batch::new();
                    let packet = port.wait(&mut batch, None).unwrap().next();
                    let Some(Packet::Ready(held)) = packet else { panic!("a packet was to come") };
                    (held.events(), held.into_key())
                });
                settle(system, &port, 1);
                let new = Registration::new(&ours, "ours", Interest::IN, OneShot::Level);
                if through_process {
                    let (mut changes, mut none) = (Changes::new(), Batch::with_capacity(0));
                    changes.register(new);
                    assert_eq!(port.process(&mut changes, &mut none, None).unwrap().count(), 0);
                    assert!(changes.results()[0].is_ok());
                } else {
                    port.register(new).unwrap();
                }
                theirs.write(b"x").unwrap();
                assert_eq!(waiter.join().unwrap(), (Events::IN, "ours"));
            });
            assert_eq!(port.stats().packets.total(), 1);
        }
    }

    /// Rule 6.
    fn what_is_ready_when_it_is_registered_reaches_a_thread_that_waits(system: &System) {
        system.several_threads_wait();
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        theirs.write(b"x").unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut batch = Batch::new();
                let packet = port.wait(&mut batch, None).unwrap().next();
                matches!(packet, Some(Packet::Ready(held)) if held.events() == Events::IN)
            });
            settle(system, &port, 1);
            register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
            assert!(waiter.join().unwrap());
        });
    }

    /// Rule 6.
    fn changes_of_one_thread_reach_the_wait_of_another(system: &System) {
        system.several_threads_wait();
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::NONE, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut batch = Batch::new();
                let first = match port.wait(&mut batch, None).unwrap().next() {
                    Some(Packet::Ready(held)) => {
                        let events = held.events();
                        held.park().unwrap();
                        events
                    }
                    _ => panic!("a packet was to come"),
                };
                let last = port.wait(&mut batch, None).unwrap().next();
                (first, matches!(last, Some(Packet::Removed(it, "ours")) if it == id))
            });
            settle(system, &port, 1);
            port.enable(id, Interest::IN, OneShot::Level).unwrap();
            let parked = || port.stats().packets.ready == 1 && port.stats().parked == 1;
            let end = Instant::now() + system.soon();
            while !parked() {
                assert!(Instant::now() < end, "{port:?}");
                thread::yield_now();
            }
            port.remove(id).unwrap();
            assert_eq!(waiter.join().unwrap(), (Events::IN, true));
        });
    }

    /// Rule 6.
    fn a_batch_goes_to_one_thread_whole(system: &System) {
        system.several_threads_wait();
        let port: Port<&str, u32> = system.port(2);
        for message in 0..8 {
            port.post(message).unwrap();
        }
        let mut batch = Batch::new();
        let mut packets = port.wait(&mut batch, None).unwrap();
        assert!(matches!(packets.next(), Some(Packet::Posted(0))));
        thread::scope(|scope| {
            let other = scope.spawn(|| {
                let mut batch = Batch::new();
                port.wait(&mut batch, Duration::ZERO).unwrap().count()
            });
            assert_eq!(other.join().unwrap(), 0);
        });
        assert_eq!(messages(packets), [1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
    }

    /// Rule 6.
    fn packets_that_a_stuck_thread_has_not_come_to_are_taken_by_another(system: &System) {
        system.several_threads_wait();
        let port: Port<&str, u32> = system.port(2);
        for message in 0..4 {
            port.post(message).unwrap();
        }
        let (has, holds) = mpsc::channel();
        let (done, ends) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let port = &port;
            let stuck = scope.spawn(move || {
                let mut batch = Batch::new();
                let mut packets = port.wait(&mut batch, None).unwrap();
                assert!(matches!(packets.next(), Some(Packet::Posted(0))));
                has.send(()).unwrap();
                let _ = ends.recv();
                packets.count()
            });
            holds.recv_timeout(system.soon()).unwrap();
            let (took, taken) = mpsc::channel();
            scope.spawn(move || {
                let mut batch = Batch::new();
                let mut seen = Vec::new();
                while seen.len() < 3 {
                    seen.extend(messages(port.wait(&mut batch, None).unwrap()));
                }
                took.send(seen).unwrap();
            });
            let end = Instant::now() + system.soon();
            let seen = loop {
                if let Some(kernel) = system.kernel() {
                    kernel.advance(Duration::from_millis(1));
                }
                match taken.recv_timeout(Duration::from_millis(1)) {
                    Ok(seen) => break seen,
                    Err(_) => assert!(Instant::now() < end, "{port:?}"),
                }
            };
            assert_eq!(seen, [1, 2, 3]);
            drop(done);
            assert_eq!(stuck.join().unwrap(), 0);
        });
    }

    /// Rule 6.
    fn what_a_batch_has_left_when_it_is_dropped_is_still_first_in_the_queue(system: &System) {
        let port = port_on(system);
        for message in 0..5 {
            port.post(message).unwrap();
        }
        let mut batch = Batch::new();
        let mut packets = port.wait(&mut batch, None).unwrap();
        assert!(matches!(packets.next(), Some(Packet::Posted(0))));
        assert!(matches!(packets.next(), Some(Packet::Posted(1))));
        drop(packets);
        port.post(5).unwrap();
        assert_eq!(messages(port.wait(&mut batch, None).unwrap()), [2, 3, 4, 5]);
        assert_quiet(&port, system);
    }
}
