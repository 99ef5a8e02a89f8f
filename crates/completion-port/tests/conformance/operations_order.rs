//! Rules 52 to 54: the order of operations, relative to each other, to readiness and to other
//! packets.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, BlockDetection, Interest, OneShot, OpId, Operation, Outcome, Packet, Persistent, Port,
    Registration, SharedId, Started,
};
use testkit::{Socket, System, on_every_system};

use crate::kit::operations::{
    Shared, accepted, all, assert_connected, bytes, done, finished, much, next, received, room,
    sent, shared_on, silent, sockets_on, sort,
};
use crate::kit::packets::{each_packet, notified};
use crate::kit::sockets::{POLLIN, STREAMS, await_facts, await_unread, fill};
use crate::kit::threads::{End, Gate, eventually, hear, settle, stays};

/// Starts a receive of each size.
fn start_receives(port: &Port<Shared, u32>, id: SharedId, sizes: &[usize]) -> Vec<OpId> {
    sizes.iter().map(|size| port.start(id, Operation::recv(room(*size))).unwrap()).collect()
}

/// Takes packets, and reads from `far`, until there are enough of both.
#[track_caller]
fn take_all(
    port: &Port<Shared, u32>,
    on: &System,
    far: &Socket,
    packets: usize,
    count: usize,
) -> (Vec<(OpId, Outcome)>, Vec<u8>) {
    let (mut taken, mut read) = (Vec::new(), Vec::new());
    let mut batch = Batch::new();
    let mut bytes = vec![0; 100_000];
    let begun = Instant::now();
    while taken.len() < packets || read.len() < count {
        assert!(begun.elapsed() < on.soon(), "{} packets, {} bytes", taken.len(), read.len());
        if let Ok(more) = far.read(&mut bytes) {
            read.extend_from_slice(&bytes[..more]);
        }
        for packet in port.wait(&mut batch, Duration::ZERO).unwrap() {
            match packet {
                Packet::SharedCompleted(finished) => {
                    taken.push((finished.operation(), finished.into_parts().1));
                }
                other => panic!("{}", sort(&other)),
            }
        }
    }
    (taken, read)
}

on_every_system! {
    /// Rule 52: each receive gets the bytes that follow those of the one before.
    fn receives_are_filled_in_the_order_of_their_starts(system: &System) {
        for pair in STREAMS {
            let port = shared_on(system);
            let (near, far) = pair(system);
            let id = port.associate_shared(Shared::new(near)).unwrap();
            let operations = start_receives(&port, id, &[2, 1, 3, 1, 5]);
            silent(&port, system);
            far.write(b"abcde").unwrap();
            far.write(b"fghijkl").unwrap();
            let mut wanted = b"abcdefghijkl".as_slice();
            for (packet, operation) in all(&port, system, 5).into_iter().zip(operations) {
                let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
                assert_eq!(finished.operation(), operation);
                let bytes = bytes(finished.into_parts().1);
                assert!(!bytes.is_empty() && wanted.starts_with(&bytes), "{bytes:?}");
                wanted = &wanted[bytes.len()..];
            }
        }
    }

    /// Rule 52: an operation after another one is not tried at its start, even if it could
    /// complete.
    fn a_receive_does_not_overtake_one_that_waits(system: &System) {
        for pair in STREAMS {
            let port = shared_on(system);
            let (near, far) = pair(system);
            let near = Shared::new(near);
            let id = port.associate_shared(near.clone()).unwrap();
            let first = start_receives(&port, id, &[1])[0];
            far.write(b"ab").unwrap();
            // No thread has waited, so the first one still waits, or the system has completed it.
            await_unread(&near, system, if system.carries_operations() { 1 } else { 2 });
            let started = port.start_now(id, Operation::recv(room(1))).unwrap();
            let Started::InFlight(second) = started else { panic!("it has overtaken the first") };
            let taken: Vec<_> = all(&port, system, 2)
                .into_iter()
                .map(|packet| match packet {
                    Packet::SharedCompleted(finished) => {
                        (finished.operation(), bytes(finished.into_parts().1))
                    }
                    other => panic!("{}", sort(&other)),
                })
                .collect();
            assert_eq!(taken, [(first, b"a".to_vec()), (second, b"b".to_vec())]);
        }
    }

    /// Rule 52: the sends follow each other, each as a whole, however little room there is.
    fn sends_do_not_interleave(system: &System) {
        for pair in STREAMS {
            let port = shared_on(system);
            let (near, far) = pair(system);
            let id = port.associate_shared(Shared::new(near)).unwrap();
            // Together they exceed the room, so that some stop halfway.
            let size = much(system) / 3;
            let mut operations = Vec::new();
            for letter in b'a'..b'e' {
                let all = Operation::send_all(vec![letter; size]);
                operations.push(port.start(id, all).unwrap());
            }
            let (taken, read) = take_all(&port, system, &far, 4, 4 * size);
            let names: Vec<_> = taken.iter().map(|(name, _)| *name).collect();
            assert_eq!(names, operations);
            for (_, outcome) in &taken {
                assert_eq!(sent(outcome), Ok(size));
            }
            for (letter, part) in (b'a'..b'e').zip(read.chunks(size)) {
                assert!(part.iter().all(|byte| *byte == letter), "the bytes are not in order");
            }
            assert_eq!(read.len(), 4 * size);
        }
    }

    /// Rule 52: a send after a partial one waits, even if there is room again.
    fn a_send_does_not_overtake_one_that_waits(system: &System) {
        for pair in STREAMS {
            let port = shared_on(system);
            let (near, far) = pair(system);
            let near = Shared::new(near);
            let id = port.associate_shared(near.clone()).unwrap();
            fill(&near);
            let first = port.start(id, Operation::send_all(b"first".to_vec())).unwrap();
            silent(&port, system);
            let before = far.drain();
            let started = port.start_now(id, Operation::send(b"second".to_vec())).unwrap();
            let Started::InFlight(second) = started else { panic!("it has overtaken the first") };
            assert!(before > 0);
            let mut order = Vec::new();
            // Sends that the system performs continued as soon as there was room.
            let is_carried = system.carries_operations();
            let (taken, mut read) =
                take_all(&port, system, &far, 2, if is_carried { 6 } else { 11 });
            order.extend(taken.iter().map(|(name, _)| *name));
            assert_eq!(order, [first, second]);
            let mut bytes = [0; 4096];
            eventually(system, "all has come", || {
                let more = far.read(&mut bytes).unwrap_or(0);
                read.extend_from_slice(&bytes[..more]);
                read.ends_with(b"second")
            });
            let is_behind = read.ends_with(b"firstsecond");
            assert!(is_behind || is_carried, "{}", read.escape_ascii());
        }
    }

    /// Rule 52: a waiting receive delays no send, and the other way round.
    fn directions_do_not_wait_for_each_other(system: &System) {
        for pair in STREAMS {
            let port = shared_on(system);
            let (near, far) = pair(system);
            let near = Shared::new(near);
            let id = port.associate_shared(near.clone()).unwrap();
            let receive = start_receives(&port, id, &[4])[0];
            let send = port.start(id, Operation::send_all(b"out".to_vec())).unwrap();
            let packet = finished(&port, system);
            assert_eq!((packet.operation(), sent(&packet.into_parts().1)), (send, Ok(3)));
            assert_eq!(far.read_within(system.soon(), 3), b"out");
            far.write(b"in").unwrap();
            let packet = finished(&port, system);
            assert_eq!(packet.operation(), receive);
            assert_eq!(bytes(packet.into_parts().1), b"in");
            fill(&near);
            let send = port.start(id, Operation::send_all(b"out".to_vec())).unwrap();
            start_receives(&port, id, &[4]);
            far.write(b"in").unwrap();
            assert_eq!(bytes(finished(&port, system).into_parts().1), b"in");
            let (taken, _) = take_all(&port, system, &far, 1, 3);
            assert_eq!(taken[0].0, send);
        }
    }

    /// Rule 52: this holds even if several threads take the packets and try due operations.
    fn with_many_takers_every_receive_has_its_place(system: &System) {
        const MANY: usize = 400;
        system.several_threads_wait();
        let port: Port<Shared, u32> = system.port(3);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            for _ in 0..3 {
                let (port, say) = (&port, say.clone());
                scope.spawn(move || {
                    each_packet(port, Batch::with_capacity(2), |packet| {
                            let Packet::SharedCompleted(finished) = packet else { panic!() };
                            let name = finished.operation();
                            say.send((name, received(finished.into_parts().1).1)).unwrap();
                    });
                });
            }
            let mut operations = Vec::new();
            for number in 0..MANY {
                operations.push(port.start(id, Operation::recv(room(2))).unwrap());
                if number % 3 == 2 {
                    far.write(&[1, 2, 3, 4, 5, 6]).unwrap();
                }
            }
            far.write(&[1, 2]).unwrap();
            let mut found: Vec<_> = (0..MANY)
                .map(|_| {
                    let (name, bytes) = hear(system, &heard, "each receive is done");
                    (operations.iter().position(|other| *other == name).unwrap(), bytes)
                })
                .collect();
            found.sort();
            for (number, (place, bytes)) in found.iter().enumerate() {
                let first = u8::try_from(number % 3).unwrap() * 2 + 1;
                assert_eq!((*place, &bytes[..]), (number, &[first, first + 1][..]));
            }
        });
    }

    /// Rules 28 and 53: data that a receive takes is not reported.
    fn a_receive_is_served_before_readiness_is_reported(system: &System) {
        for trigger in [Persistent::Level, Persistent::Edge] {
            let port = shared_on(system);
            let (near, far) = system.unix_pair();
            let id = port.associate_shared(Shared::new(near)).unwrap();
            port.enable(id.id(), Interest::IN, trigger).unwrap();
            start_receives(&port, id, &[8]);
            silent(&port, system);
            far.write(b"taken").unwrap();
            assert_eq!(bytes(finished(&port, system).into_parts().1), b"taken");
            silent(&port, system);
            far.write(b"reported").unwrap();
            assert!(notified(&port, system).events().is_in());
        }
    }

    /// Rules 28 and 53: data that remains after the operations is reported.
    fn what_no_receive_has_taken_is_reported(system: &System) {
        for pair in STREAMS {
            let port = shared_on(system);
            let (near, far) = pair(system);
            let near = Shared::new(near);
            let id = port.associate_shared(near.clone()).unwrap();
            port.enable(id.id(), Interest::IN, Persistent::Edge).unwrap();
            start_receives(&port, id, &[2, 1]);
            far.write(b"abcd").unwrap();
            await_unread(&near, system, if system.carries_operations() { 2 } else { 4 });
            let sorts: Vec<_> = all(&port, system, 3).iter().map(sort).collect();
            assert_eq!(sorts, ["finished", "finished", "notified"]);
            assert_eq!(near.unread().unwrap(), 1);
        }
    }

    /// Rule 53: the data arrived before the registration was enabled, and a receive waits.
    fn enabling_reports_nothing_that_an_operation_waits_for(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let near = Shared::new(near);
        let id = port.associate_shared(near.clone()).unwrap();
        start_receives(&port, id, &[8]);
        far.write(b"x").unwrap();
        await_unread(&near, system, usize::from(!system.carries_operations()));
        port.enable(id.id(), Interest::IN, Persistent::Level).unwrap();
        assert_eq!(bytes(finished(&port, system).into_parts().1), b"x");
        silent(&port, system);
    }

    /// Rule 53: readiness of the other direction is reported.
    fn readiness_of_the_other_direction_is_reported(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let near = Shared::new(near);
        let id = port.associate_shared(near.clone()).unwrap();
        start_receives(&port, id, &[8]);
        port.enable(id.id(), Interest::IN | Interest::OUT, Persistent::Edge).unwrap();
        let report = notified(&port, system).events();
        assert!(report.is_out() && !report.is_in(), "{report:?}");
        far.write(b"x").unwrap();
        let mut finished = 0;
        eventually(system, "the receive is done", || {
            for packet in port.wait(&mut Batch::new(), Duration::ZERO).unwrap() {
                match packet {
                    Packet::SharedCompleted(_) => finished += 1,
                    // Room that becomes available again is an edge too.
                    Packet::Notified(report) => assert!(!report.events().is_in()),
                    other => panic!("{}", sort(&other)),
                }
            }
            finished == 1
        });
    }

    /// Rule 53: the receives get a hang-up first.
    fn an_end_is_received_before_it_is_reported(system: &System) {
        for pair in STREAMS {
            let port = shared_on(system);
            let (near, far) = pair(system);
            let id = port.associate_shared(Shared::new(near)).unwrap();
            port.enable(id.id(), Interest::HANGUP, Persistent::Edge).unwrap();
            start_receives(&port, id, &[8]);
            silent(&port, system);
            drop(far);
            let packets = all(&port, system, 2);
            let sorts: Vec<_> = packets.iter().map(sort).collect();
            assert_eq!(sorts, ["finished", "notified"]);
            for packet in packets {
                match packet {
                    Packet::SharedCompleted(finished) => {
                        assert_eq!(received(finished.into_parts().1).0, Ok(0));
                    }
                    Packet::Notified(report) => assert!(report.events().is_hangup()),
                    _ => {}
                }
            }
        }
    }

    /// Rule 58: the system skips it, or the connection is accepted as it is.
    fn a_connection_that_was_reset_in_the_queue_fails_no_accept(system: &System) {
        let port = shared_on(system);
        let listener = Shared::new(system.tcp_listener(4));
        let id = port.associate_shared(listener.clone()).unwrap();
        let rude = system.tcp_connect(&listener);
        await_facts(&listener, system, POLLIN);
        rude.reset();
        port.start(id, Operation::accept()).unwrap();
        let _client = system.tcp_connect(&listener);
        accepted(finished(&port, system).into_parts().1, system).unwrap();
    }

    /// Rules 28 and 53: accepts get the first connections.
    fn an_accept_is_served_before_readiness_is_reported(system: &System) {
        let port = shared_on(system);
        let listener = Shared::new(system.tcp_listener(4));
        let id = port.associate_shared(listener.clone()).unwrap();
        port.enable(id.id(), Interest::IN, Persistent::Edge).unwrap();
        port.start(id, Operation::accept()).unwrap();
        silent(&port, system);
        let client = system.tcp_connect(&listener);
        let server = accepted(finished(&port, system).into_parts().1, system).unwrap();
        assert_connected(&client, &server, system);
        silent(&port, system);
        let _second = system.tcp_connect(&listener);
        assert!(notified(&port, system).events().is_in());
    }

    /// Rules 30 and 53: when the kernel's set is replaced, the new one also watches for what
    /// operations wait for.
    fn operations_go_on_when_the_kernels_set_is_replaced(system: &System) {
        system.not_on_windows("registrations that outlive their descriptor");
        system.not_by_notifications("registrations that outlive their descriptor");
        system.not_by_kqueue("registrations that outlive their descriptor");
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let (other, other_far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let send = port.start(id, Operation::send_all(vec![b'a'; much(system)])).unwrap();
        let receive = port.start(id, Operation::recv(room(4))).unwrap();
        port.associate(Shared::new(other)).unwrap().recv(room(4)).unwrap();
        silent(&port, system);
        let mut batch = Batch::new();
        let mut times = 0;
        while port.stats().rebuilds == 0 {
            times += 1;
            assert!(times < 5_000, "the kernel's set is never replaced");
            // The kernel keeps reporting an entry that a duplicate keeps alive.
            let closed = system.event();
            let lives_on = closed.dup().unwrap();
            let key = Shared::new(system.event());
            let stale = Registration::new(&closed, key, Interest::IN, OneShot::Level);
            let stale = port.register(stale).unwrap();
            drop(port.wait(&mut batch, Duration::ZERO).unwrap());
            drop(closed);
            // The port may already have found this out, or another test may have the number by now.
            if port.remove(stale).is_ok() {
                assert!(matches!(next(&port, system), Packet::Removed(..)));
            }
            lives_on.signal(1).unwrap();
            drop(port.wait(&mut batch, Duration::ZERO).unwrap());
        }
        other_far.write(b"other").unwrap();
        assert_eq!(bytes(done(&port, system).1), b"othe");
        far.write(b"x").unwrap();
        let packet = finished(&port, system);
        assert_eq!(packet.operation(), receive);
        let (taken, _) = take_all(&port, system, &far, 1, much(system));
        assert_eq!(taken[0].0, send);
    }

    /// Rule 54: operations are queued in order with all other packets.
    fn operations_stand_in_the_queue_with_everything_else(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let (other, _other_far) = system.unix_pair();
        let (near, other) = (port.associate(near).unwrap(), port.associate(other).unwrap());
        port.post(1).unwrap();
        near.send(b"x".to_vec()).unwrap();
        port.post(2).unwrap();
        other.send(b"y".to_vec()).unwrap();
        port.post(3).unwrap();
        assert_eq!(port.stats().queued, 5);
        let sorts: Vec<_> = all(&port, system, 5).iter().map(sort).collect();
        assert_eq!(sorts, ["posted", "done", "posted", "done", "posted"]);
        let packets = port.stats().packets;
        assert_eq!((packets.completed, packets.posted, packets.total()), (2, 3, 5));
        assert_eq!(port.thread_stats()[0].packets.completed, 2);
        await_unread(&far, system, 1);
    }

    /// Rule 54: a batch holds at most as many as fit.
    fn a_batch_has_no_more_operations_than_room(system: &System) {
        let port = shared_on(system);
        let (near, _far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let sends: Vec<_> =
            (0..5).map(|_| port.start(id, Operation::send(b"x".to_vec())).unwrap()).collect();
        let mut batch = Batch::with_capacity(2);
        let mut taken = Vec::new();
        for wanted in [2, 2, 1] {
            let before = taken.len();
            for packet in port.wait(&mut batch, system.soon()).unwrap() {
                let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
                taken.push(finished.operation());
            }
            assert_eq!(taken.len() - before, wanted);
        }
        assert_eq!(taken, sends);
    }

    /// Rule 54: the unread packets of a dropped batch return to the front of the queue, in order.
    fn operations_that_were_not_looked_at_come_again(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let near = Shared::new(near);
        let id = port.associate_shared(near.clone()).unwrap();
        let operations = start_receives(&port, id, &[1, 1, 1]);
        far.write(b"abc").unwrap();
        let send = port.start(id, Operation::send(b"x".to_vec())).unwrap();
        let look_at_nothing = || {
            drop(port.wait(&mut Batch::new(), system.soon()).unwrap());
            port.stats().queued >= 2
        };
        // The sends' packets are queued immediately, and the receives as soon as the system has
        // reported the data.
        eventually(system, "both directions are queued", look_at_nothing);
        for _ in 0..2 {
            assert!(look_at_nothing(), "{port:#?}");
        }
        // A thread that takes no packet receives no data, except what the system had begun.
        assert_eq!(near.unread().unwrap(), if system.carries_operations() { 2 } else { 3 });
        let mut receives = Vec::new();
        let mut sends = 0;
        for packet in all(&port, system, 4) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            if finished.operation() == send {
                sends += 1;
            } else {
                receives.push((finished.operation(), bytes(finished.into_parts().1)));
            }
        }
        assert_eq!(sends, 1);
        let wanted: Vec<_> = operations.into_iter().zip([b"a", b"b", b"c"].map(Vec::from)).collect();
        assert_eq!(receives, wanted);
        silent(&port, system);
    }

    /// Rule 54: while every seat is taken, no other thread gets or tries an operation, even one
    /// that is due.
    fn operations_count_for_the_concurrency_value(system: &System) {
        system.several_threads_wait();
        for limit in [1, 2] {
            let threads = limit + 2;
            // With other methods, a handler that waits at a gate may be found asleep.
            let port: Port<Shared, u32> =
                system.port_that(limit, BlockDetection::Announced).unwrap();
            let (near, far): (Vec<_>, Vec<_>) = (0..=limit).map(|_| system.unix_pair()).unzip();
            let near: Vec<_> = near.into_iter().map(Shared::new).collect();
            let gates: Vec<_> = near.iter().map(|_| Gate::default()).collect();
            let inside = AtomicUsize::new(0);
            let (say, heard) = mpsc::channel();
            thread::scope(|scope| {
                let _end = End::of(&port, &gates);
                for started in 1..=threads {
                    let (port, say, gates, inside) = (&port, say.clone(), &gates, &inside);
                    scope.spawn(move || {
                        each_packet(port, Batch::with_capacity(1), |packet| {
                            let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
                            assert!(inside.fetch_add(1, SeqCst) < limit, "more than {limit} run");
                            let which = usize::from(bytes(finished.into_parts().1)[0]);
                            say.send(which).unwrap();
                            gates[which].pass();
                            inside.fetch_sub(1, SeqCst);
                        });
                    });
                    settle(system, port, started);
                }
                for key in &near {
                    let id = port.associate_shared(key.clone()).unwrap();
                    port.start(id, Operation::recv(room(1))).unwrap();
                }
                for (which, far) in far.iter().enumerate().take(limit) {
                    far.write(&[u8::try_from(which).unwrap()]).unwrap();
                    assert_eq!(hear(system, &heard, "it is taken"), which);
                }
                far[limit].write(&[u8::try_from(limit).unwrap()]).unwrap();
                eventually(system, "it is found", || port.stats().queued == 1);
                assert_eq!(port.stats().running, limit);
                stays(system, 2, "no seat is free", || heard.try_recv().is_err());
                let unread = usize::from(!system.carries_operations());
                assert_eq!((near[limit].unread().unwrap(), port.stats().queued), (unread, 1));
                gates[0].open();
                assert_eq!(hear(system, &heard, "a seat is free"), limit);
            });
        }
    }

    /// Rule 54: the thread that began to wait last gets it.
    fn the_newest_waiter_gets_an_operation(system: &System) {
        system.several_threads_wait();
        let port: Port<Shared, u32> = system.port(2);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            let mut threads = Vec::new();
            for started in 1..=3 {
                let (port, say) = (&port, say.clone());
                let waiter = scope.spawn(move || {
                    each_packet(port, Batch::with_capacity(1), |packet| {
                            assert_eq!(sort(&packet), "finished");
                            say.send(thread::current().id()).unwrap();
                    });
                });
                threads.push(waiter.thread().id());
                settle(system, port, started);
            }
            let _ = far;
            for _ in 0..3 {
                port.start(id, Operation::send(b"x".to_vec())).unwrap();
                let by = hear(system, &heard, "it is taken");
                assert_eq!(by, threads[2]);
                settle(system, &port, 3);
            }
        });
    }

    /// Rule 54: an attempt that finds nothing makes no packet and is not counted in the statistics.
    fn an_attempt_in_vain_is_no_packet(system: &System) {
        system.not_where_operations_are_carried_out("attempt in vain at what waits");
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let same = near.dup().unwrap();
        port.associate(near).unwrap().recv(room(4)).unwrap();
        far.write(b"x").unwrap();
        // A thread has found data and has not processed the operation.
        drop(port.wait(&mut Batch::new(), system.soon()).unwrap());
        assert_eq!(same.read(&mut [0; 4]).unwrap(), 1);
        silent(&port, system);
        let stats = port.stats();
        assert_eq!((stats.packets.total(), stats.queued), (0, 0));
        far.write(b"y").unwrap();
        assert_eq!(bytes(done(&port, system).1), b"y");
    }

    /// Rule 54: a waiting operation is in no queue.
    fn an_operation_that_waits_is_not_queued(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let operation = port.associate(near).unwrap().recv(room(4)).unwrap();
        silent(&port, system);
        assert_eq!(port.stats().queued, 0);
        assert!(!port.raw().has_packets(&mut Batch::new()).unwrap());
        far.write(b"x").unwrap();
        eventually(system, "it is due", || port.raw().has_packets(&mut Batch::new()).unwrap());
        assert_eq!(received(done(&port, system).1).0, Ok(1));
        assert!(!port.cancel(operation).unwrap());
    }
}
