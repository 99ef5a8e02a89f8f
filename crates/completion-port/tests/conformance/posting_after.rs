//! Rule 48: messages that a handler posts to its own thread.

use std::sync::Arc;
use std::thread;

use completion_port::{Batch, ErrorKind, Packet, Port};
use testkit::on_every_system;

use crate::kit::takers::{Takers, with_takers};
use crate::kit::threads::{End, settle, stays, take};

on_every_system! {
    /// Rule 48: it comes before the thread's unread packets, the last one first, even after a full
    /// batch.
    fn a_message_posted_after_comes_next(system: &System) {
        for room in [1, 2, 64] {
            let port = system.port::<(), usize>(1);
            (0..4).for_each(|message| port.post(message).unwrap());
            let mut batch = Batch::with_capacity(room);
            let mut taken = Vec::new();
            while taken.len() < 4 + 4 + 2 {
                for packet in port.wait(&mut batch, system.soon()).unwrap() {
                    let message = message(packet);
                    taken.push(message);
                    match message {
                        0 | 2 => (1..3).for_each(|of| port.post_after(10 * (message + 1) + of).unwrap()),
                        12 => (3..5).for_each(|of| port.post_after(10 * of).unwrap()),
                        _ => {}
                    }
                }
            }
            assert_eq!(taken, [0, 12, 40, 30, 11, 1, 2, 32, 31, 3], "room {room}");
            assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
            assert_eq!(port.stats().packets.posted, 10);
        }
    }

    /// Rule 48: one that displaces the message in front moves that to the end of the queue, and
    /// nothing else.
    fn a_message_posted_next_displaces_the_one_before_it(system: &System) {
        for room in [1, 2, 64] {
            let port = system.port::<(), usize>(1);
            (0..3).for_each(|message| port.post(message).unwrap());
            let mut batch = Batch::with_capacity(room);
            let mut taken = Vec::new();
            while taken.len() < 3 + 6 {
                for packet in port.wait(&mut batch, system.soon()).unwrap() {
                    let message = message(packet);
                    taken.push(message);
                    match message {
                        // 10 and 11 are displaced.
                        0 => (10..13).for_each(|message| port.post_next(message).unwrap()),
                        // There is nothing to displace: what remains in the batch stays.
                        1 => port.post_next(20).unwrap(),
                        // The message of another call is displaced as well.
                        2 => {
                            port.post_after(30).unwrap();
                            port.post_next(31).unwrap();
                        }
                        _ => {}
                    }
                }
            }
            assert_eq!(taken, [0, 12, 1, 20, 2, 31, 10, 11, 30], "room {room}");
            assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
        }
    }

    /// Rule 48: what is displaced wakes an idle thread, as a post does, and what is in front stays.
    fn a_displaced_message_goes_to_an_idle_thread(system: &System) {
        with_takers(system, 2, |scope, port, takers, gate| {
            takers.start(scope, 2, move |message| {
                if message == 0 {
                    port.post_next(1).unwrap();
                    port.post_next(2).unwrap();
                    gate.pass();
                }
            });
            port.post(0).unwrap();
            let (_, first) = takers.at_once("the first is taken");
            let (message, other) = takers.at_once("the other thread is woken");
            assert_eq!(message, 1);
            assert_ne!(first, other);
            gate.open();
            assert_eq!(takers.hear("the last is taken").0, 2);
            settle(system, port, 2);
        });
    }

    /// Rule 48: from a thread that does not run here, or after 64 in a row, it is an ordinary
    /// message, and displaces nothing.
    fn a_message_posted_next_counts_like_one_posted_after(system: &System) {
        let port = system.port::<(), usize>(1);
        let mut batch = Batch::new();
        port.post_next(0).unwrap();
        port.post_next(1).unwrap();
        let mut taken = Vec::new();
        while taken.len() < 2 + 70 {
            for packet in port.wait(&mut batch, system.soon()).unwrap() {
                let message = message(packet);
                taken.push(message);
                if message == 0 || (100..169).contains(&message) {
                    port.post_next(if message == 0 { 100 } else { message + 1 }).unwrap();
                }
            }
        }
        let own = (100..164).chain([1]).chain(164..170);
        assert!(taken.iter().copied().eq([0].into_iter().chain(own)), "{taken:?}");
    }

    /// Rule 48: one posted behind comes when its thread waits, at the end of the queue, and in the
    /// order of the posts.
    fn a_message_posted_behind_comes_at_the_next_wait(system: &System) {
        for room in [1, 2, 64] {
            let port = system.port::<(), usize>(1);
            (0..2).for_each(|message| port.post(message).unwrap());
            let mut batch = Batch::with_capacity(room);
            let mut taken = Vec::new();
            while taken.len() < 2 + 7 {
                let before = taken.len();
                for packet in port.wait(&mut batch, system.soon()).unwrap() {
                    let message = message(packet);
                    taken.push(message);
                    match message {
                        0 => {
                            (10..13).for_each(|message| port.post_behind(message).unwrap());
                            port.post(20).unwrap();
                        }
                        1 => (30..32).for_each(|message| port.post_behind(message).unwrap()),
                        30 => port.post_behind(40).unwrap(),
                        _ => {}
                    }
                }
                assert!(taken.len() > before, "a message was lost: {taken:?}");
            }
            // 20 was queued before the thread waited.
            assert_eq!(taken, [0, 1, 20, 10, 11, 12, 30, 31, 40], "room {room}");
            assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
            assert_eq!(port.stats().packets.posted, 9);
        }
    }

    /// Rule 48: a thread that blocks, announced or not, loses the messages that it has posted
    /// behind to one that may run, after its packets.
    fn a_message_posted_behind_does_not_wait_for_a_handler_that_is_stuck(system: &System) {
        for announces in [true, false] {
            with_takers(system, 2, |scope, port, takers, gate| {
                takers.start(scope, 2, move |message| {
                    if message == 0 {
                        (2..5).for_each(|message| port.post_behind(message).unwrap());
                        port.post_after(1).unwrap();
                        if announces {
                            port.blocking(|| gate.pass());
                        } else {
                            gate.pass();
                        }
                    }
                });
                port.post(0).unwrap();
                for message in 0..5 {
                    assert_eq!(takers.hear("they come in their order").0, message);
                }
                gate.open();
                settle(system, port, 2);
            });
        }
    }

    /// Rule 48: what a thread has posted behind is not lost when it leaves the port, or the port is
    /// closed.
    fn messages_posted_behind_survive_their_thread_and_the_close(system: &System) {
        for end in ["none", "close", "shutdown"] {
            let port = system.port::<(), usize>(1);
            let posts = &port;
            thread::scope(|scope| {
                scope.spawn(move || {
                    posts.post(0).unwrap();
                    let mut batch = Batch::with_capacity(8);
                    for packet in posts.wait(&mut batch, system.soon()).unwrap() {
                        assert_eq!(message(packet), 0);
                        (1..4).for_each(|message| posts.post_behind(message).unwrap());
                        match end {
                            "close" => posts.close(),
                            "shutdown" => posts.shutdown().unwrap(),
                            _ => {}
                        }
                        if end != "none" {
                            let refused = posts.post_behind(4).unwrap_err();
                            assert_eq!(refused.kind(), ErrorKind::Closed);
                        }
                    }
                });
            });
            let mut batch = Batch::with_capacity(8);
            let packets = port.wait(&mut batch, system.soon()).unwrap();
            assert!(packets.map(message).eq(1..4), "{end}");
        }
    }

    /// Rule 48: what a thread has posted behind is dropped once, with the port.
    fn messages_posted_behind_are_dropped_with_the_port(system: &System) {
        let message = Arc::new(());
        let port = system.port::<(), Arc<()>>(1);
        port.post(Arc::clone(&message)).unwrap();
        for packet in port.wait(&mut Batch::new(), system.soon()).unwrap() {
            drop(packet);
            (0..3).for_each(|_| port.post_behind(Arc::clone(&message)).unwrap());
        }
        assert_eq!(Arc::strong_count(&message), 4);
        drop(port);
        assert_eq!(Arc::strong_count(&message), 1);
    }

    /// Rules 40 and 48: a thread that asks whether packets are queued finds what it has posted
    /// behind.
    fn a_message_posted_behind_is_seen_by_its_thread(system: &System) {
        let port = system.port::<(), usize>(1);
        port.post(0).unwrap();
        let mut batch = Batch::new();
        for packet in port.wait(&mut batch, system.soon()).unwrap() {
            assert_eq!(message(packet), 0);
            port.post_behind(1).unwrap();
        }
        assert!(port.raw().has_packets(&mut batch).unwrap());
        assert!(port.wait(&mut batch, system.soon()).unwrap().map(message).eq([1]));
        assert!(!port.raw().has_packets(&mut batch).unwrap());
    }

    /// Rule 48: from a thread that does not run here, it is an ordinary message.
    fn a_message_posted_behind_by_any_other_thread_is_an_ordinary_one(system: &System) {
        let port = system.port::<(), usize>(1);
        port.post_behind(1).unwrap();
        port.post(2).unwrap();
        let mut batch = Batch::new();
        assert!(port.wait(&mut batch, system.soon()).unwrap().map(message).eq(1..3));
    }

    /// Rule 48: it stays with its thread while that makes progress, however many others wait.
    fn a_message_posted_after_stays_with_its_thread(system: &System) {
        const ROUNDS: usize = 20;
        system.several_threads_wait();
        let port = system.port::<(), usize>(4);
        let takers = Takers::of(system, &port);
        let after = &port;
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            takers.start(scope, 3, |message| {
                if message < 9 {
                    after.post_after(message + 1).unwrap();
                }
            });
            // A thread that the system does not run for a millisecond loses its messages to others.
            let stays = (0..ROUNDS).any(|_| {
                let before = port.stats().wakes;
                port.post(0).unwrap();
                let taken = [(); 10].map(|()| takers.at_once("the next message is taken"));
                assert!(taken.iter().map(|(message, _)| *message).eq(0..10), "{taken:?}");
                settle(system, &port, 3);
                // One for the first message, and one for the watchdog.
                let wakes = port.stats().wakes - before;
                let by = taken.map(|(_, number)| number);
                by.iter().all(|number| *number == by[0]) && wakes <= 2
            });
            assert!(stays, "in no round");
        });
    }

    /// Rule 48: a thread that blocks, announced or not, loses it to one that may run.
    fn a_message_posted_after_does_not_wait_for_a_handler_that_is_stuck(system: &System) {
        for announces in [true, false] {
            with_takers(system, 2, |scope, port, takers, gate| {
                takers.start(scope, 2, move |message| {
                    if message == 0 {
                        port.post_after(1).unwrap();
                        port.post_after(2).unwrap();
                        if announces {
                            port.blocking(|| gate.pass());
                        } else {
                            gate.pass();
                        }
                    }
                });
                port.post(0).unwrap();
                assert_eq!(takers.hear("the first is taken").0, 0);
                assert_eq!(takers.hear("the last goes first").0, 2);
                assert_eq!(takers.hear("the other follows").0, 1);
                gate.open();
                settle(system, port, 2);
            });
        }
    }

    /// Rule 48: a handler that always posts again lets other packets have their turn, whatever the
    /// capacity of its batch.
    fn others_have_their_turn_beside_a_handler_that_goes_on(system: &System) {
        for room in [1, 64] {
            let port = system.port::<(), usize>(1);
            let mut batch = Batch::with_capacity(room);
            port.post(0).unwrap();
            let (mut taken, mut others) = (0, 0);
            let mut gap = 0;
            while others < 10 {
                for packet in port.wait(&mut batch, system.soon()).unwrap() {
                    if message(packet) == 0 {
                        taken += 1;
                        gap += 1;
                        port.post_after(0).unwrap();
                        if gap == 10 {
                            port.post(1).unwrap();
                        }
                        assert!(gap < 200, "the other message waits for ever");
                    } else {
                        others += 1;
                        gap = 0;
                    }
                    if others == 10 {
                        break;
                    }
                }
            }
            assert!(taken >= 100, "it went on meanwhile");
        }
    }

    /// Rule 48: the same if the handler takes one packet of each batch, and posts before or after
    /// its end.
    fn others_have_their_turn_beside_a_handler_that_waits_for_each_packet(system: &System) {
        for behind in [false, true] {
            let port = system.port::<(), usize>(1);
            (0..2).for_each(|message| port.post(message).unwrap());
            let mut batch = Batch::with_capacity(1);
            let has_its_turn = (0..200).any(|_| {
                let mut packets = port.wait(&mut batch, system.soon()).unwrap();
                let taken = packets.next().map(message);
                if behind {
                    drop(packets);
                    port.post_after(0).unwrap();
                } else {
                    port.post_after(0).unwrap();
                    drop(packets);
                }
                taken == Some(1)
            });
            assert!(has_its_turn, "the other message waits for ever: {behind}");
        }
    }

    /// Rule 48: the same if the thread loses its own messages because it blocks, or if it posts two
    /// and takes one, so that one of an earlier wait remains.
    fn others_have_their_turn_beside_a_handler_whose_messages_wait_in_the_queue(system: &System) {
        for blocks in [false, true] {
            let port = system.port::<(), usize>(1);
            (0..2).for_each(|message| port.post(message).unwrap());
            let mut batch = Batch::with_capacity(1);
            let has_its_turn = (0..400).any(|round| {
                let mut packets = port.wait(&mut batch, system.soon()).unwrap();
                let taken = packets.next().map(message);
                if blocks {
                    port.post_after(0).unwrap();
                    port.blocking(|| {});
                } else if round % 2 == 0 {
                    (0..2).for_each(|_| port.post_after(0).unwrap());
                }
                taken == Some(1)
            });
            assert!(has_its_turn, "the other message waits for ever: {blocks}");
        }
    }

    /// Rule 48: the count of messages in a row restarts whenever the thread has no packet left.
    fn a_thread_that_had_nothing_left_posts_as_many_again(system: &System) {
        let port = system.port::<(), usize>(1);
        let mut batch = Batch::new();
        for round in 0..4 {
            (0..2).for_each(|message| port.post(100 * message).unwrap());
            let mut taken = Vec::new();
            while taken.len() < 42 {
                for packet in port.wait(&mut batch, system.soon()).unwrap() {
                    let message = message(packet);
                    taken.push(message);
                    if message < 40 {
                        port.post_after(message + 1).unwrap();
                    }
                }
            }
            assert!(taken.iter().copied().eq((0..=40).chain([100])), "round {round}: {taken:?}");
        }
    }

    /// Rules 39 and 48: when all are handled, no watchdog remains.
    fn nothing_is_watched_when_what_was_posted_after_is_done(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let takers = Takers::of(system, &port);
        let after = &port;
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            takers.start(scope, 1, |message| {
                // Two in one handler, so that the second is posted before the first is taken.
                if message == 0 {
                    (1..3).for_each(|message| after.post_after(message).unwrap());
                }
            });
            port.post(0).unwrap();
            let taken = [(); 3].map(|()| takers.at_once("the next message is taken").0);
            assert_eq!(taken, [0, 2, 1]);
            // The watchdog stops when nothing has happened for a while.
            let rests = (0..20).any(|_| {
                settle(system, &port, 1);
                let before = port.stats().polls;
                stays(system, 1, "it waits", || true);
                port.stats().polls == before
            });
            assert!(rests, "the thread looks after the port for ever");
        });
    }

    /// Rule 48: packets that others posted, and that a handler returns with its batch, don't count.
    fn a_handler_with_others_before_it_goes_on_with_its_own(system: &System) {
        let port = system.port::<(), usize>(1);
        (0..200).for_each(|message| port.post(message).unwrap());
        let mut batch = Batch::new();
        let mut next = || {
            let first = port.wait(&mut batch, system.soon()).unwrap().next();
            first.map(message)
        };
        for number in 0..200 {
            assert_eq!(next(), Some(number));
            port.post_after(1000 + number).unwrap();
            assert_eq!(next(), Some(1000 + number), "it comes next");
        }
    }

    /// Rule 48: a thread without packets of this port posts as usual.
    fn a_thread_that_does_not_run_here_posts_as_usual(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let other = system.port::<(), usize>(1);
        other.post(0).unwrap();
        assert_eq!(take(&other), Some(0));
        (1..4).for_each(|message| port.post_after(message).unwrap());
        assert_eq!(port.stats().queued, 3);
        assert_eq!([(); 3].map(|()| take(&port)), [1, 2, 3].map(Some));
        // A thread that announces a block isn't running.
        port.post(4).unwrap();
        port.blocking(|| port.post_after(5).unwrap());
        assert_eq!([(); 2].map(|()| take(&port)), [4, 5].map(Some));
        // From a thread that has never waited.
        port.post(6).unwrap();
        thread::scope(|scope| scope.spawn(|| port.post_after(7).unwrap()).join().unwrap());
        assert_eq!([(); 2].map(|()| take(&port)), [6, 7].map(Some));
    }

    /// Rule 48: the thread's next wait returns the messages it has not reached, and nothing else
    /// takes them.
    fn what_was_posted_after_a_batch_is_found_by_the_next_wait(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(2);
        let mut batch = Batch::new();
        port.post(0).unwrap();
        port.post(1).unwrap();
        let mut packets = port.wait(&mut batch, system.soon()).unwrap();
        assert_eq!(packets.next().map(message), Some(0));
        port.post_after(2).unwrap();
        drop(packets);
        let mut packets = port.wait(&mut batch, system.soon()).unwrap();
        assert_eq!([(); 2].map(|()| packets.next().map(message)), [2, 1].map(Some));
        assert!(packets.next().is_none());
        // An iterator that has ended stays so.
        port.post_after(3).unwrap();
        assert!(packets.next().is_none());
        drop(packets);
        assert!(port.raw().has_packets(&mut Batch::new()).unwrap());
        assert_eq!(take(&port), Some(3));
        // The thread exits and leaves one message behind.
        thread::scope(|scope| {
            let leaves = scope.spawn(|| {
                port.post(4).unwrap();
                assert_eq!(take(&port), Some(4));
                port.post_after(5).unwrap();
            });
            leaves.join().unwrap();
        });
        assert_eq!(take(&port), Some(5));
    }

    /// Rule 48: a closed port returns the message.
    fn a_closed_port_returns_what_is_posted_after(system: &System) {
        let port: Port<(), usize> = system.port(1);
        port.post(0).unwrap();
        assert_eq!(take(&port), Some(0));
        port.post_after(1).unwrap();
        port.close();
        let refused = port.post_after(2).unwrap_err();
        assert_eq!((refused.kind(), refused.into_parts().1), (ErrorKind::Closed, 2));
        assert_eq!(take(&port), Some(1));
        assert_eq!(take(&port), None);
    }
}

fn message(packet: Packet<'_, (), usize>) -> usize {
    match packet {
        Packet::Posted(message) => message,
        other => panic!("{other:?}"),
    }
}
