//! Rules 1 to 7: one call that applies changes and takes packets, and how it ends.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, Changes, ErrorKind, Events, Interest, OneShot, Operation, Packet, Persistent, Port,
    Registration,
};
use testkit::{Socket, System, exit, fork, in_a_process_of_its_own, on_every_system};

use super::delivery::{
    ONE_SHOT_LEVEL, PERSISTENT_LEVEL, assert_quiet, leave_queued, notified, packet, port_on, ready,
    register, report,
};
use super::threads::{End, Gate, hear, settle};

/// The messages of a batch that must have nothing else in it.
#[track_caller]
fn messages<'p, K: 'p>(packets: impl Iterator<Item = Packet<'p, K, u32>>) -> Vec<u32> {
    packets
        .map(|packet| match packet {
            Packet::Posted(message) => message,
            _ => panic!("something else than a message"),
        })
        .collect()
}

/// The time that a wait is measured by.
fn now(on: &System, start: Instant) -> Duration {
    on.kernel().map_or_else(|| start.elapsed(), completion_port::sim::Kernel::now)
}

on_every_system! {
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
        // Armed with nothing there any more: the same call waits in vain.
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
        // The last one counts.
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
        // A descriptor is taken by the first of two, and free again after it was removed.
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
            port.rearm(*id, Interest::OUT, OneShot::Level).unwrap();
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
            packets = port.wait(&mut batch, system.quiet()).unwrap();
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
        // Without a limit of time, and yet it returns.
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
            assert_eq!((error.kind(), error.operation()), (ErrorKind::Closed, Operation::Wait));
            assert_eq!(changes.len(), count);
            assert!(changes.results().is_empty());
            assert_eq!(changes.refused().count(), 0);
        }
        assert_eq!(closed.stats().registered, 1);
        // They can still be applied elsewhere.
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
        // The call succeeds, though the time is over and nothing came.
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
        // The next call has results of its own.
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
        // A token knows its port, whichever port the changes are handed to.
        let (mut changes, mut batch) = (Changes::new(), Batch::new());
        changes.rearm(held);
        assert_eq!(other.process(&mut changes, &mut batch, Duration::ZERO).unwrap().count(), 0);
        assert_eq!(changes.results()[0].unwrap_err().kind(), ErrorKind::Closed);
        let (error, key) = changes.refused().next().unwrap().into_parts();
        assert_eq!((error.operation(), key), (Operation::Rearm, Some("ours")));
        // Its registration has ended: the descriptor is free.
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
        // For ever, if it slept: the test would be ended by its time.
        for _ in 0..3 {
            changes.remove(ended);
            changes.enable(id, Interest::IN, OneShot::Level);
            let packets = port.process(&mut changes, &mut batch, None).unwrap();
            assert_eq!(packets.count(), 0, "nothing is there");
            assert!(changes.results()[0].is_err() && changes.results()[1].is_ok());
        }
        // What is there it takes.
        theirs.write(b"x").unwrap();
        port.post(7).unwrap();
        changes.remove(ended);
        let mut packets = port.process(&mut changes, &mut batch, None).unwrap();
        let (first, second) = (packets.next(), packets.next());
        assert!(matches!(first, Some(Packet::Posted(7))), "{first:?}");
        let Some(Packet::Ready(second)) = second else { panic!("{second:?}") };
        second.park().unwrap();
        drop(packets);
        // Each refusal is news again behind a packet, a wait, or a change that was not refused.
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
        let start = Instant::now();
        let mut calls = 0;
        while now(system, start) < ROUNDS * system.quiet() {
            calls += 1;
            changes.remove(ended);
            changes.enable(ended, Interest::IN, OneShot::Level);
            let packets = port.process(&mut changes, &mut batch, system.quiet()).unwrap();
            assert_eq!(packets.count(), 0);
            assert!(changes.results().iter().all(Result::is_err));
        }
        assert!(calls <= 1 + ROUNDS, "{calls} calls in the time of {ROUNDS}");
        // It sleeps, and is woken as any other.
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
        let (second, _two) = system.unix_pair_beside(&first);
        let (third, _three) = system.unix_pair();
        register(&port, &first, "first", Interest::OUT, ONE_SHOT_LEVEL);
        register(&port, &second, "second", Interest::OUT, PERSISTENT_LEVEL);
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
                await_parked(&port, system, 1);
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
            await_parked(&port, system, 1);
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
            await_parked(&port, system, 1);
            port.rearm(id, Interest::IN, OneShot::Level).unwrap();
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

    // ---- rule 7 --------------------------------------------------------------------------------

    /// Rule 7.
    fn a_wait_never_ends_early(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.unix_pair();
        register(&port, &ours, "ours", Interest::HANGUP, PERSISTENT_LEVEL);
        let start = Instant::now();
        let mut batch = Batch::new();
        for microseconds in [1, 300, 999, 1000, 1001, 1500, 10_000, 30_300] {
            let timeout = Duration::from_micros(microseconds);
            // Something that nobody asked for is found on the way.
            theirs.write(b"x").unwrap();
            let before = now(system, start);
            assert_eq!(port.wait(&mut batch, timeout).unwrap().count(), 0);
            let took = now(system, start) - before;
            assert!(took >= timeout, "{took:?} instead of {timeout:?}");
            assert!(took < timeout + system.soon(), "{took:?} instead of {timeout:?}");
        }
    }

    /// Rule 7.
    fn a_wait_that_finds_what_nobody_asked_for_goes_on(system: &System) {
        system.several_threads_wait();
        let port = port_on(system);
        let (ours, theirs) = system.unix_pair();
        register(&port, &ours, "ours", Interest::HANGUP, PERSISTENT_LEVEL);
        let mut timeout = Duration::from_millis(60);
        // The thread that writes may be late on a machine that is busy: once more then, with more time.
        while !a_wait_goes_on(&port, system, &theirs, timeout) {
            timeout *= 2;
            assert!(timeout < system.soon(), "the time is over before anything is found");
        }
    }

    /// Rule 7.
    fn a_wait_longer_than_the_clock_can_show_has_no_limit(system: &System) {
        system.several_threads_wait();
        let port = port_on(system);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let mut batch = Batch::new();
                messages(port.wait(&mut batch, Duration::MAX).unwrap())
            });
            await_parked(&port, system, 1);
            port.post(7).unwrap();
            assert_eq!(waiter.join().unwrap(), [7]);
        });
    }
}

/// A thread waits for `timeout`, in which `peer` is written to three times, and nobody asked about
/// that. False if the time was over before it was.
fn a_wait_goes_on(port: &Port<&str, u32>, on: &System, peer: &Socket, timeout: Duration) -> bool {
    let start = Instant::now();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let before = now(on, start);
            let mut batch = Batch::new();
            assert_eq!(port.wait(&mut batch, timeout).unwrap().count(), 0);
            now(on, start) - before
        });
        let is_parked = || {
            let end = Instant::now() + on.soon();
            while port.stats().parked != 1 && !waiter.is_finished() {
                assert!(Instant::now() < end, "{port:?}");
                thread::yield_now();
            }
            !waiter.is_finished()
        };
        let mut found = 0;
        while found < 3 && is_parked() {
            peer.write(b"x").unwrap();
            found += usize::from(is_parked());
            if let Some(kernel) = on.kernel() {
                assert!(kernel.wait_for_sleepers(1, on.soon()));
                kernel.advance(Duration::from_millis(19));
            }
        }
        if let Some(kernel) = on.kernel() {
            assert!(kernel.wait_for_sleepers(1, on.soon()), "57 ms are not 60");
            assert!(!waiter.is_finished());
            kernel.advance(Duration::from_millis(3));
        }
        let took = waiter.join().unwrap();
        assert!(took >= timeout, "{took:?}");
        found == 3
    })
}

/// Waits until `count` threads wait on the port, asleep.
#[track_caller]
fn await_parked<K, M>(port: &Port<K, M>, on: &System, count: usize) {
    let end = Instant::now() + on.soon();
    while port.stats().parked != count {
        assert!(Instant::now() < end, "{port:?}");
        thread::yield_now();
    }
}

extern "C" fn ignore(_signal: libc::c_int) {}

/// Installs a handler that does nothing, and does not have interrupted calls restarted.
pub(crate) fn catch_signals() {
    let mut mask = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) writes a set at the pointer.
    // - valid for writes: `mask` is a local.
    let done = unsafe { libc::sigemptyset(mask.as_mut_ptr()) };
    assert_eq!(done, 0);
    // SAFETY: `assume_init` demands a value.
    // - sigemptyset(3) has succeeded, and so has written it.
    let sa_mask = unsafe { mask.assume_init() };
    let handler: extern "C" fn(libc::c_int) = ignore;
    let action = libc::sigaction {
        sa_sigaction: handler as libc::sighandler_t,
        sa_mask,
        sa_flags: 0,
        sa_restorer: None,
    };
    // SAFETY: sigaction(2) reads an action at the first pointer, whose handler must be sound to run
    // at any moment.
    // - valid for reads: `action` is a local; the null pointer stands for no answer;
    // - sound: the handler does nothing.
    let done = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(done, 0);
}

/// Sends a thread of this process a signal.
pub(crate) fn interrupt(thread: libc::pid_t) {
    // SAFETY: tgkill(2) demands nothing of memory; a thread that is gone is refused.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, libc::SIGUSR1) };
}

/// Two threads wait on `port`, one in the kernel's wait and one parked, and both get signals all
/// the time, until one of the waits has ended. One without a limit of time would not: there is a
/// message for each after some hundreds of signals. Returns what each has taken, and how long that
/// took.
fn wait_under_fire(port: &Port<&str, u32>, timeout: Option<Duration>) -> Vec<(Vec<u32>, Duration)> {
    const ROUNDS: u32 = 300;
    const SOON: Duration = Duration::from_secs(10);
    catch_signals();
    thread::scope(|scope| {
        let (done, taken) = mpsc::channel();
        let (started, threads) = mpsc::channel();
        for _ in 0..2 {
            let (done, started) = (done.clone(), started.clone());
            scope.spawn(move || {
                // SAFETY: gettid(2) demands nothing.
                started.send(unsafe { libc::gettid() }).unwrap();
                let start = Instant::now();
                let mut batch = Batch::with_capacity(1);
                let seen = messages(port.wait(&mut batch, timeout).unwrap());
                done.send((seen, start.elapsed())).unwrap();
            });
        }
        let threads = [threads.recv().unwrap(), threads.recv().unwrap()];
        let mut results = Vec::new();
        let (begun, mut rounds) = (Instant::now(), 0);
        while results.is_empty() && (timeout.is_some() || rounds < ROUNDS) {
            threads.into_iter().for_each(interrupt);
            rounds += 1;
            results.extend(taken.recv_timeout(Duration::from_micros(200)));
            assert!(begun.elapsed() < SOON, "the wait does not end");
        }
        if timeout.is_none() {
            for message in [1, 2] {
                port.post(message).unwrap();
            }
        }
        while results.len() < 2 {
            results.push(taken.recv_timeout(SOON).unwrap());
        }
        results
    })
}

/// Rule 7: the simulated kernel has no signals.
#[test]
fn signals_do_not_end_a_wait_without_a_limit_on_epoll() {
    let port: Port<&str, u32> = System::native().port(2);
    let mut seen: Vec<_> =
        wait_under_fire(&port, None).into_iter().flat_map(|(seen, _)| seen).collect();
    seen.sort_unstable();
    assert_eq!(seen, [1, 2]);
}

/// Rule 7: the simulated kernel has no signals.
#[test]
fn signals_do_not_end_a_wait_before_its_time_on_epoll() {
    let port: Port<&str, u32> = System::native().port(2);
    let timeout = Duration::from_millis(50);
    for (seen, took) in wait_under_fire(&port, Some(timeout)) {
        assert_eq!(seen, []);
        assert!(took >= timeout, "{took:?}");
    }
}

/// Rule 7: a process that is stopped and continued, again and again, by its child. The simulated kernel has no
/// processes.
#[test]
fn a_process_that_is_stopped_goes_on_with_its_waits_epoll() {
    if !in_a_process_of_its_own("call::a_process_that_is_stopped_goes_on_with_its_waits_epoll") {
        return;
    }
    const LIMIT: Duration = Duration::from_millis(300);
    const STOPS: u32 = 60;
    let on = System::native();
    let port: Port<&str, u32> = on.port(3);
    let (ours, theirs) = on.unix_pair();
    register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
    let runs = Gate::default();
    let wait = |timeout: Option<Duration>| {
        let start = Instant::now();
        let mut batch = Batch::with_capacity(1);
        let packet = port.wait(&mut batch, timeout).unwrap().next();
        (packet.map(|packet| matches!(packet, Packet::Ready(_))), start.elapsed())
    };
    thread::scope(|scope| {
        let (say, heard) = mpsc::channel();
        let (runs, wait, port, on) = (&runs, &wait, &port, &on);
        let _end = End::of(port, [runs]);
        // One runs, so that an idle one has to look after the port.
        let (begin, begun) = mpsc::channel();
        scope.spawn(move || {
            port.post(1).unwrap();
            assert_eq!(wait(None).0, Some(false));
            begin.send(()).unwrap();
            runs.pass();
        });
        begun.recv().unwrap();
        for timeout in [None, Some(LIMIT), Some(LIMIT), Some(LIMIT)] {
            let say = say.clone();
            scope.spawn(move || say.send((timeout, wait(timeout))).unwrap());
        }
        await_parked(port, on, 4);
        let Some(child) = fork() else {
            // SAFETY: getppid(2) demands nothing.
            let parent = unsafe { libc::getppid() };
            for stop in 1..=STOPS {
                for signal in [libc::SIGSTOP, libc::SIGCONT] {
                    // SAFETY: kill(2) demands nothing of memory.
                    unsafe { libc::kill(parent, signal) };
                    if stop == STOPS && signal == libc::SIGSTOP {
                        theirs.write(b"x").unwrap();
                    }
                    // SAFETY: poll(2) reads nothing through a null pointer if there are no questions.
                    unsafe { libc::poll(std::ptr::null_mut(), 0, 2) };
                }
            }
            exit(0);
        };
        assert_eq!(child.status(), 0);
        let (mut ready, mut ended) = (0, 0);
        while ended < 4 {
            match heard.recv_timeout(2 * LIMIT) {
                Ok((_, (Some(is_ready), _))) => ready += u32::from(is_ready),
                Ok((timeout, (None, took))) => {
                    assert_eq!(timeout, Some(LIMIT));
                    assert!(took >= LIMIT, "{took:?}");
                }
                // Only the one that has no limit is left.
                Err(_) => {
                    port.post(2).unwrap();
                    continue;
                }
            }
            ended += 1;
        }
        assert_eq!(ready, 1);
    });
}

/// Rule 7 (see also 4 and 39): whatever the clock shows next. The clock of the real system is not set by anybody.
#[test]
fn a_clock_that_jumps_loses_nothing_sim() {
    const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        let port = on.port::<usize, u32>(2);
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..8).map(|_| on.unix_pair()).unzip();
        for (number, socket) in ours.iter().enumerate() {
            register(&port, socket, number, Interest::IN, ONE_SHOT_LEVEL);
        }
        let gates = [(); 8].map(|()| Gate::default());
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, &gates);
            let (port, gates) = (&port, &gates);
            for count in 1..=3 {
                let say = say.clone();
                scope.spawn(move || {
                    let mut batch = Batch::with_capacity(2);
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        for packet in packets {
                            let Packet::Ready(ready) = packet else { panic!("{packet:?}") };
                            say.send(*ready.key()).unwrap();
                            gates[*ready.key()].pass();
                        }
                    }
                });
                settle(on, port, count);
            }
            let limited = scope.spawn(|| {
                let mut batch = Batch::new();
                let count = port.wait(&mut batch, Duration::from_secs(3600)).unwrap().count();
                (count, kernel.now())
            });
            settle(on, port, 4);
            kernel.advance(CENTURY);
            assert_eq!(limited.join().unwrap(), (0, CENTURY));
            // Two run, each with a second packet that it has not come to, and the clock jumps at each step.
            let mut seen = BTreeSet::new();
            for (number, theirs) in theirs.iter().enumerate() {
                theirs.write(b"x").unwrap();
                kernel.advance(CENTURY / 8);
                if number >= 4 {
                    gates[number - 4].open();
                    kernel.advance(CENTURY / 8);
                }
                while let Ok(number) = heard.try_recv() {
                    assert!(seen.insert(number));
                }
            }
            gates.iter().for_each(Gate::open);
            while seen.len() < 8 {
                assert!(seen.insert(hear(on, &heard, "each is taken")));
            }
            settle(on, port, 3);
        });
    });
}
