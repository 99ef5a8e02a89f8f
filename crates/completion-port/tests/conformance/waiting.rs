//! Rule 40: the packets of a wait, and those left in its iterator.

use std::collections::HashSet;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, Events, Interest, OneShot, Packet, Port, Registration};
use testkit::{System, on_every_system};

use crate::kit::descriptors::with_many_descriptors;
use crate::kit::threads::{End, Gate, hear, let_be_told, settle, take};

on_every_system! {
    /// Rule 40: an idle thread is released for them.
    fn what_is_left_in_an_iterator_reaches_a_thread_that_waits(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(2);
        let (say, heard) = mpsc::channel();
        let gate = Gate::default();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            let (port, gate) = (&port, &gate);
            scope.spawn(move || {
                while let Some(message) = take(port) {
                    let _ = say.send(message);
                }
            });
            settle(system, port, 1);
            // The newest thread gets the message, drops it unread, and does something else.
            scope.spawn(move || {
                drop(port.wait(&mut Batch::new(), None));
                gate.pass();
            });
            settle(system, port, 2);
            port.post(7).unwrap();
            assert_eq!(hear(system, &heard, "somebody takes it"), 7);
        });
    }

    /// Rule 40: the packets that a thread does not take are the next ones for any thread.
    fn what_is_left_in_an_iterator_goes_back_to_the_front(system: &System) {
        let port = system.port::<(), usize>(1);
        let mut batch = Batch::new();
        (0..5).for_each(|message| port.post(message).unwrap());
        let mut packets = port.wait(&mut batch, system.soon()).unwrap();
        assert!(matches!(packets.next(), Some(Packet::Posted(0))));
        port.post(5).unwrap();
        drop(packets);
        assert_eq!(port.stats().queued, 5);
        assert_eq!(messages(&port, system), [1, 2, 3, 4, 5]);
        assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
    }

    /// Rule 40: the same if the thread leaves without having dropped its iterator.
    fn what_a_thread_leaves_behind_goes_back_to_the_front(system: &System) {
        let port = system.port::<(), usize>(1);
        (0..4).for_each(|message| port.post(message).unwrap());
        thread::scope(|scope| {
            let leaves = scope.spawn(|| {
                let mut batch = Batch::with_capacity(3);
                let mut packets = port.wait(&mut batch, system.soon()).unwrap();
                assert!(matches!(packets.next(), Some(Packet::Posted(0))));
                std::mem::forget(packets);
            });
            // The end of the scope does not wait until the thread has given up its seat.
            leaves.join().unwrap();
        });
        // Messages 1 and 2 were assigned to it, and 3 was not.
        assert_eq!(messages(&port, system), [1, 2, 3]);
        assert_eq!(port.wait(&mut Batch::new(), system.quiet()).unwrap().count(), 0);
    }

    /// Rule 40: two iterators of one thread share its assigned packets.
    fn two_iterators_of_one_thread_lose_nothing(system: &System) {
        let port = system.port::<(), usize>(1);
        (0..9).for_each(|message| port.post(message).unwrap());
        let (mut first, mut second) = (Batch::with_capacity(3), Batch::with_capacity(4));
        let mut taken = Vec::new();
        let mut take = |packet| match packet {
            Some(Packet::Posted(message)) => taken.push(message),
            None => {}
            other => panic!("{other:?}"),
        };
        let mut early = port.wait(&mut first, system.soon()).unwrap();
        take(early.next());
        let mut late = port.wait(&mut second, system.soon()).unwrap();
        take(late.next());
        take(early.next());
        take(late.next());
        drop(early);
        take(late.next());
        drop(late);
        taken.extend(messages(&port, system));
        taken.sort_unstable();
        assert!(taken.iter().copied().eq(0..9), "{taken:?}");
        assert_eq!(port.wait(&mut first, system.quiet()).unwrap().count(), 0);
    }

    /// Rule 40: an iterator whose thread has since waited on another port has lost its seat, and
    /// takes one again if it has to wait.
    fn an_iterator_may_be_used_after_a_wait_on_another_port(system: &System) {
        let (here, there) = (system.port::<(), usize>(1), system.port::<(), usize>(1));
        let (ours, theirs) = system.unix_pair();
        let one_shot = Registration::new(&ours, (), Interest::IN, OneShot::Level);
        let id = here.register(one_shot).unwrap();
        theirs.write(b"x").unwrap();
        let (mut batch, mut other) = (Batch::new(), Batch::new());
        let mut packets = here.wait(&mut batch, system.soon()).unwrap();
        // The assigned packet is gone.
        here.remove_and_wait(id, system.soon()).unwrap();
        assert_eq!(there.wait(&mut other, Duration::ZERO).unwrap().count(), 0);
        assert_eq!((here.stats().running, there.stats().running), (0, 1));
        here.post(1).unwrap();
        assert!(matches!(packets.next(), Some(Packet::Posted(1))));
        assert_eq!((here.stats().running, there.stats().running), (1, 0));
        drop(packets);
        assert_eq!(there.wait(&mut other, Duration::ZERO).unwrap().count(), 0);
        assert_eq!((here.stats().running, there.stats().running), (0, 1));
        // The seat is free for another thread.
        thread::scope(|scope| {
            here.post(2).unwrap();
            scope.spawn(|| assert_eq!(messages(&here, system), [2]));
        });
        assert_eq!(here.wait(&mut batch, system.quiet()).unwrap().count(), 0);
    }

    /// Rule 40: a wait returns a packet, or nothing after its timeout, and never earlier.
    fn a_wait_ends_with_a_packet_or_with_its_time(system: &System) {
        let port = system.port::<(), usize>(1);
        let mut batch = Batch::new();
        let time = system.quiet();
        let (begun, begun_virtually) = (Instant::now(), system.kernel().map(|it| it.now()));
        assert_eq!(port.wait(&mut batch, time).unwrap().count(), 0);
        match system.kernel() {
            Some(kernel) => assert_eq!(Some(kernel.now()), begun_virtually.map(|it| it + time)),
            None => assert!(begun.elapsed() >= time),
        }
        port.post(1).unwrap();
        assert_eq!(messages(&port, system), [1]);
        // With a timeout of zero it polls, and takes the available packets.
        let (ours, theirs) = system.unix_pair();
        port.register(Registration::new(&ours, (), Interest::IN, OneShot::Level)).unwrap();
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
        theirs.write(b"x").unwrap();
        let_be_told(&port, system, 1);
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 1);
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
    }

    /// Rule 40: without room it takes nothing and does not wait.
    fn a_wait_without_room_returns_at_once_and_takes_nothing(system: &System) {
        let port = system.port::<(), usize>(1);
        port.post(1).unwrap();
        let mut none = Batch::with_capacity(0);
        assert_eq!(port.wait(&mut none, None).unwrap().count(), 0);
        assert_eq!(port.stats().queued, 1);
        assert_eq!(messages(&port, system), [1]);
        assert_eq!(port.wait(&mut none, None).unwrap().count(), 0);
    }

    /// Rule 40: the only thread leaves nothing to others.
    fn a_thread_that_is_alone_takes_all_that_is_ready_and_fits(system: &System) {
        system.not_by_the_dll("look that finds all that has come");
        let port = system.port::<usize, ()>(0);
        // A thread that waited here and has exited takes no share.
        thread::scope(|scope| {
            let waits = || drop(port.wait(&mut Batch::new(), Duration::ZERO).unwrap());
            // Joined, because a thread gives up its seat at its very end.
            scope.spawn(waits).join().unwrap();
        });
        let _alone = with_many_descriptors();
        let events: Vec<_> = (0..200).map(|_| system.event()).collect();
        let register = |(key, event)| {
            port.register(Registration::new(event, key, Interest::IN, OneShot::Level)).unwrap()
        };
        let ids: Vec<_> = events.iter().enumerate().map(register).collect();
        let signal = || events.iter().for_each(|event| event.signal(1).unwrap());
        signal();
        let_be_told(&port, system, events.len());
        let mut batch = Batch::new();
        let mut seen = HashSet::new();
        for (room, expected) in [(100, 100), (10, 10), (256, 90)] {
            batch.set_capacity(room);
            let packets: Vec<_> = port.wait(&mut batch, system.soon()).unwrap().collect();
            assert_eq!(packets.len(), expected, "with room for {room}");
            for packet in packets {
                let Packet::Ready(ready) = packet else { panic!("{packet:?}") };
                assert!(seen.insert(*ready.key()));
                ready.park().unwrap();
            }
        }
        // Whatever their number. The batch keeps its grown size, so one poll is enough.
        batch.set_capacity(usize::MAX);
        let mut polls = Vec::new();
        for _ in 0..4 {
            for (id, event) in ids.iter().zip(&events) {
                event.read(&mut [0; 8]).unwrap();
                port.enable(*id, Interest::IN, OneShot::Level).unwrap();
            }
            assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
            signal();
            let_be_told(&port, system, events.len());
            let before = port.stats().polls;
            let packets: Vec<_> = port.wait(&mut batch, system.soon()).unwrap().collect();
            polls.push(port.stats().polls - before);
            assert_eq!(packets.len(), events.len());
            for packet in packets {
                let Packet::Ready(ready) = packet else { panic!("{packet:?}") };
                ready.park().unwrap();
            }
        }
        if system.tells_at_once() {
            assert_eq!(polls.last(), Some(&1), "{polls:?}");
        }
    }

    /// Rule 40: unrequested events that the kernel reports first hide nothing.
    fn a_wait_without_time_finds_what_stands_behind_what_nobody_asked_for(system: &System) {
        let _alone = with_many_descriptors();
        for room in [1, 64] {
            let port = system.port::<usize, ()>(1);
            // Each of them is writable, which is an edge to the kernel.
            let pairs: Vec<_> = (0..100).map(|_| system.unix_pair()).collect();
            for (key, (ours, _)) in pairs.iter().enumerate() {
                let once = Registration::new(ours, key, Interest::IN, OneShot::Level);
                port.register(once).unwrap();
            }
            pairs[99].1.write(b"x").unwrap();
            let_be_told(&port, system, 1);
            let mut batch = Batch::with_capacity(room);
            let packet = port.wait(&mut batch, Duration::ZERO).unwrap().next();
            let Some(Packet::Ready(ready)) = packet else { panic!("{packet:?}") };
            assert_eq!((*ready.key(), ready.events()), (99, Events::IN));
        }
    }

    /// Rule 40: a wait takes at most as many packets as fit, and leaves the rest to the next wait.
    fn a_wait_takes_no_more_than_there_is_room_for(system: &System) {
        let port = system.port::<(), usize>(1);
        (0..5).for_each(|message| port.post(message).unwrap());
        let mut batch = Batch::with_capacity(2);
        for left in [3, 1, 0] {
            let count = port.wait(&mut batch, system.soon()).unwrap().count();
            assert!(count == 2 || left == 0 && count == 1);
            assert_eq!(port.stats().queued, left);
        }
        assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
    }
}

/// Returns the messages of one wait.
fn messages(port: &Port<(), usize>, on: &System) -> Vec<usize> {
    let mut batch = Batch::new();
    let packets = port.wait(&mut batch, on.soon()).unwrap();
    packets
        .map(|packet| match packet {
            Packet::Posted(message) => message,
            other => panic!("no message, but {other:?}"),
        })
        .collect()
}
