//! Rules 33 to 35: posted messages.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::Duration;

use completion_port::{Batch, Call, ErrorKind, Interest, OneShot, Packet, Registration};
use testkit::on_every_system;

use crate::kit::ledger::Ledger;
use crate::kit::packets::kind;
use crate::kit::takers::{Takers, with_takers};
use crate::kit::threads::{End, Gate, eventually, hear, settle, stays, take};

on_every_system! {
    /// Rule 33: first in, first out, whatever the capacity of the batch.
    fn messages_are_taken_in_the_order_in_which_they_were_posted(system: &System) {
        for room in [1, 3, 64, 500] {
            let port = system.port::<(), usize>(1);
            (0..300).for_each(|message| port.post(message).unwrap());
            let mut batch = Batch::with_capacity(room);
            let mut taken = Vec::new();
            while taken.len() < 300 {
                let packets = port.wait(&mut batch, system.soon()).unwrap();
                let before = taken.len();
                taken.extend(packets.map(message));
                assert!((1..=room).contains(&(taken.len() - before)));
            }
            assert!(taken.iter().copied().eq(0..300), "{taken:?}");
            assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
            assert_eq!(port.stats().packets.posted, 300);
        }
    }

    /// Rule 33: messages and reports share one queue.
    fn messages_and_notifications_stand_in_one_queue(system: &System) {
        let port = system.port::<&str, &str>(1);
        let (ours, theirs) = system.unix_pair();
        let one_shot = Registration::new(&ours, "key", Interest::IN, OneShot::Level);
        let id = port.register(one_shot).unwrap();
        port.post("first").unwrap();
        // The call that removes a registration queues its last packet.
        port.remove(id).unwrap();
        port.post("last").unwrap();
        theirs.write(b"x").unwrap();
        let mut batch = Batch::new();
        let packets = port.wait(&mut batch, system.soon()).unwrap();
        let seen: Vec<_> = packets
            .map(|packet| match packet {
                Packet::Posted(message) => message,
                Packet::Removed(_, key) => key,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(seen, ["first", "key", "last"]);
        assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
    }

    /// Rule 33: any value may be a message. It is moved, not copied.
    fn a_message_is_moved_to_who_takes_it(system: &System) {
        let port = system.port::<(), Box<[String]>>(1);
        let message: Box<[String]> = Box::new(["one".to_owned(), "two".to_owned()]);
        let place = message.as_ptr();
        port.post(message).unwrap();
        let mut batch = Batch::new();
        match port.wait(&mut batch, system.soon()).unwrap().next() {
            Some(Packet::Posted(message)) => {
                assert_eq!(*message, ["one", "two"]);
                assert_eq!(message.as_ptr(), place);
            }
            other => panic!("{other:?}"),
        }
    }

    /// Rule 33: a post wakes one thread, the one that began to wait last, even if an older one is
    /// in the kernel's wait.
    fn a_post_wakes_the_newest_waiter_and_nobody_else(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(8);
        let takers = Takers::of(system, &port);
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            // The first of them is in the kernel's wait.
            takers.start(scope, 4, |_| {});
            for message in 0..20 {
                let before = port.stats();
                port.post(message).unwrap();
                // It waits again, and so is the newest again.
                assert_eq!(takers.hear("a message is taken"), (message, 3));
                settle(system, &port, 4);
                let after = port.stats();
                assert_eq!(after.wakes, before.wakes + 1, "more than one thread was woken");
                assert_eq!(after.spurious_wakes, 0);
                assert_eq!(after.polls, before.polls, "the kernel's wait was left");
            }
            assert!(takers.are_silent(), "a message was taken twice");
        });
    }

    /// Rule 33: if no other thread waits, it wakes the one in the kernel's wait.
    fn a_post_wakes_a_lone_waiter_out_of_the_kernels_wait(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let (ours, _theirs) = system.unix_pair();
        port.register(Registration::new(&ours, (), Interest::IN, OneShot::Level)).unwrap();
        let takers = Takers::of(system, &port);
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            takers.start(scope, 1, |_| {});
            for message in 0..20 {
                settle(system, &port, 1);
                port.post(message).unwrap();
                assert_eq!(takers.hear("the message is taken"), (message, 0));
            }
            assert!(takers.are_silent());
        });
    }

    /// Rule 33: if no thread waits, a post wakes none.
    fn a_post_to_a_port_on_which_nobody_waits_wakes_nobody(system: &System) {
        let port = system.port::<(), usize>(1);
        let before = port.stats();
        (0..10).for_each(|message| port.post(message).unwrap());
        let after = port.stats();
        assert_eq!((after.wakes, after.polls), (before.wakes, before.polls));
        assert_eq!(after.queued, 10);
        assert_eq!(port.wait(&mut Batch::new(), system.soon()).unwrap().count(), 10);
    }

    /// Rule 34.
    fn two_waiters_and_three_posts_go_together_as_on_the_reference(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(8);
        let gate = Gate::default();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            let waiter = |name: &'static str| {
                let (say, port, gate) = (say.clone(), &port, &gate);
                move || {
                    if let Some(message) = take(port) {
                        say.send((message, name)).unwrap();
                    }
                    gate.pass();
                }
            };
            scope.spawn(waiter("first"));
            settle(system, &port, 1);
            scope.spawn(waiter("last"));
            settle(system, &port, 2);
            for message in [3, 4, 5] {
                port.post(message).unwrap();
            }
            let mut taken = [(); 2].map(|()| hear(system, &heard, "a message is taken"));
            taken.sort_unstable();
            assert_eq!(taken, [(3, "last"), (4, "first")]);
            stays(system, 0, "the third message waits", || port.stats().queued == 1);
            scope.spawn(waiter("third"));
            assert_eq!(hear(system, &heard, "the third is taken"), (5, "third"));
        });
        assert_eq!(port.stats().queued, 0);
    }

    /// Rule 33: a message does not wait for a handler while another thread is idle and may run.
    fn a_long_handler_delays_no_post_while_another_thread_idles(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(2);
        let gate = Gate::default();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            for count in 1..=2 {
                let (say, port, gate) = (say.clone(), &port, &gate);
                scope.spawn(move || {
                    // A batch, of which the long handler has the first packet.
                    let mut batch = Batch::new();
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        for message in packets.map(message) {
                            say.send(message).unwrap();
                            if message == 0 {
                                gate.pass();
                            }
                        }
                    }
                });
                settle(system, port, count);
            }
            for message in 0..20 {
                port.post(message).unwrap();
                assert_eq!(hear(system, &heard, "the message is taken"), message);
            }
            assert!(port.stats().running >= 1);
            gate.open();
            settle(system, &port, 2);
            assert!(heard.try_recv().is_err());
        });
    }

    /// Rule 33: a long handler does not delay the rest of its batch.
    fn a_long_handler_delays_no_message_of_its_batch(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(2);
        let gate = Gate::default();
        let (say, heard) = mpsc::channel();
        (0..10).for_each(|message| port.post(message).unwrap());
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            for _ in 0..2 {
                let (say, port, gate) = (say.clone(), &port, &gate);
                scope.spawn(move || {
                    let mut batch = Batch::new();
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        for message in packets.map(message) {
                            say.send(message).unwrap();
                            if message == 0 {
                                gate.pass();
                            }
                        }
                    }
                });
            }
            let mut taken: Vec<_> =
                (0..10).map(|_| hear(system, &heard, "all are taken")).collect();
            taken.sort_unstable();
            assert!(taken.into_iter().eq(0..10));
            gate.open();
            settle(system, &port, 2);
            assert!(heard.try_recv().is_err());
        });
    }

    /// Rule 33: while every seat is taken, messages wait in order.
    fn with_every_seat_taken_messages_wait(system: &System) {
        system.several_threads_wait();
        let port = system.port_without_detection::<(), usize>(2);
        let gate = Gate::default();
        let takers = Takers::of(system, &port);
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            takers.start(scope, 3, |_| gate.pass());
            (0..6).for_each(|message| port.post(message).unwrap());
            let mut running = [(); 2].map(|()| takers.hear("two are taken").0);
            running.sort_unstable();
            assert_eq!(running, [0, 1]);
            stays(system, 1, "four wait", || port.stats().queued == 4);
            assert!(takers.are_silent());
            gate.open();
            let mut rest = [(); 4].map(|()| takers.hear("the rest is taken").0);
            rest.sort_unstable();
            assert_eq!(rest, [2, 3, 4, 5]);
            settle(system, &port, 3);
        });
    }

    /// Rule 33: a handler that posts gets the message itself if no other thread may run.
    fn a_handler_may_post(system: &System) {
        let port = system.port::<(), usize>(1);
        let mut batch = Batch::new();
        port.post(0).unwrap();
        let mut taken = Vec::new();
        while taken.len() < 1 + 2 + 4 + 8 {
            for packet in port.wait(&mut batch, system.soon()).unwrap() {
                let number = message(packet);
                taken.push(number);
                if number < 7 {
                    port.post(2 * number + 1).unwrap();
                    port.post(2 * number + 2).unwrap();
                }
            }
        }
        // Each level of the tree, in order.
        assert!(taken.into_iter().eq(0..15));
        assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
    }

    /// Rule 33: if another thread may run, it takes the message without waiting for the handler.
    fn what_a_handler_posts_is_taken_while_it_runs(system: &System) {
        with_takers(system, 2, |scope, port, takers, gate| {
            takers.start(scope, 2, |message| {
                if message == 0 {
                    port.post(1).unwrap();
                    gate.pass();
                }
            });
            port.post(0).unwrap();
            assert_eq!(takers.hear("the first is taken").0, 0);
            assert_eq!(takers.hear("the second is taken").0, 1);
            gate.open();
            settle(system, port, 2);
        });
    }

    /// Rule 33: with many posters, no message is lost or duplicated, and those of each poster come
    /// in order.
    fn the_messages_of_each_poster_come_in_its_order(system: &System) {
        const POSTERS: usize = 4;
        const EACH: usize = 2_000;
        system.several_threads_wait();
        let port = system.port::<(), (usize, usize)>(1);
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            for poster in 0..POSTERS {
                let port = &port;
                scope.spawn(move || {
                    for number in 0..EACH {
                        port.post((poster, number)).unwrap();
                    }
                });
            }
            let mut next = [0; POSTERS];
            let mut batch = Batch::new();
            for _ in 0..POSTERS * EACH {
                let packets = port.wait(&mut batch, None).unwrap();
                for (poster, number) in packets.map(message) {
                    assert_eq!(number, next[poster], "out of order");
                    next[poster] += 1;
                }
                if next == [EACH; POSTERS] {
                    break;
                }
            }
            assert_eq!(next, [EACH; POSTERS]);
            assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
        });
    }

    /// Rule 33: the same with many takers, who take each message once.
    fn with_many_posters_and_takers_each_message_is_taken_once(system: &System) {
        const POSTERS: usize = 4;
        const EACH: usize = 1_000;
        system.several_threads_wait();
        let port = system.port::<(), usize>(3);
        let taken = Mutex::new(vec![0; POSTERS * EACH]);
        let count = AtomicUsize::new(0);
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            for _ in 0..6 {
                scope.spawn(|| {
                    let mut batch = Batch::with_capacity(5);
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        for message in packets.map(message) {
                            taken.lock().unwrap()[message] += 1;
                            count.fetch_add(1, SeqCst);
                        }
                    }
                });
            }
            for poster in 0..POSTERS {
                let port = &port;
                scope.spawn(move || {
                    for number in 0..EACH {
                        port.post(poster * EACH + number).unwrap();
                    }
                });
            }
            eventually(system, "all are taken", || count.load(SeqCst) == POSTERS * EACH);
            settle(system, &port, 6);
        });
        assert!(taken.lock().unwrap().iter().all(|times| *times == 1));
        assert_eq!(port.stats().packets.posted, (POSTERS * EACH) as u64);
    }

    /// Rule 33: a closed port returns the message.
    fn a_closed_port_gives_the_message_back(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<(), _>(1);
        port.post(ledger.entry()).unwrap();
        port.close();
        let refused = port.post(ledger.entry()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Closed);
        assert_eq!(refused.error().call(), Call::Post);
        let (_, message) = refused.into_parts();
        assert_eq!(ledger.alive(), 2);
        drop(message);
        // The earlier message can still be taken.
        let mut batch = Batch::new();
        assert_eq!(port.wait(&mut batch, system.soon()).unwrap().count(), 1);
        assert_eq!(ledger.alive(), 0);
        assert_eq!(port.wait(&mut batch, system.soon()).unwrap_err().kind(), ErrorKind::Closed);
    }

    /// Rule 33: a port that is shutting down does too.
    fn a_port_that_shuts_down_gives_the_message_back(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<(), _>(1);
        port.post(ledger.entry()).unwrap();
        port.shutdown().unwrap();
        let refused = port.post(ledger.entry()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Closed);
        assert_eq!(ledger.alive(), 2);
        drop(refused);
        let mut batch = Batch::new();
        assert_eq!(port.wait(&mut batch, system.soon()).unwrap().count(), 1);
        assert_eq!(port.wait(&mut batch, system.soon()).unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 35: only memory limits the queue.
    fn posts_to_a_live_port_do_not_fail(system: &System) {
        const MANY: usize = 100_000;
        let port = system.port::<(), usize>(1);
        (0..MANY).for_each(|message| port.post(message).unwrap());
        assert_eq!(port.stats().queued, MANY);
        let mut batch = Batch::with_capacity(1000);
        let mut next = 0;
        while next < MANY {
            for packet in port.wait(&mut batch, system.soon()).unwrap() {
                assert_eq!(message(packet), next);
                next += 1;
            }
        }
        assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
    }

    /// Rule 35: a message that no thread took is dropped with the port, once.
    fn messages_that_nobody_took_are_dropped_with_the_port(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<(), _>(1);
        (0..100).for_each(|_| port.post(ledger.entry()).unwrap());
        let mut batch = Batch::with_capacity(10);
        // A few were taken, and a few assigned and returned to the queue.
        let mut packets = port.wait(&mut batch, system.soon()).unwrap();
        assert_eq!(packets.by_ref().take(3).count(), 3);
        drop(packets);
        assert_eq!((ledger.alive(), port.stats().queued), (97, 97));
        drop(port);
        assert_eq!(ledger.alive(), 0);
    }
}

#[track_caller]
fn message<K, M>(packet: Packet<'_, K, M>) -> M {
    match packet {
        Packet::Posted(message) => message,
        other => panic!("no message, but {}", kind(&other)),
    }
}
