//! Rule 31: `close`, `shutdown`, and dropping a port.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

use completion_port::{Batch, Changes, Error, ErrorKind, Interest, OneShot, Packet, Registration};
use testkit::{
    Socket, System, in_a_process_of_its_own, on_edge_triggered_systems, on_every_system,
};

use crate::kit::ledger::{Entry, Ledger};
use crate::kit::packets::{
    assert_closed, assert_quiet, given_back, kind, one_shot, refused, repeated, the_one,
    the_removed, the_token,
};
use crate::kit::threads::{End, Gate, eventually, settle};

on_every_system! {
    /// Rule 31: a closed port queues no new conditions, or it might never end.
    fn a_closed_port_finds_nothing_new(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let (later, later_peer) = system.unix_pair();
        port.register(one_shot(&ours, "before")).unwrap();
        port.register(one_shot(&later, "after")).unwrap();
        theirs.write(b"x").unwrap();
        drop(port.wait(&mut Batch::new(), system.soon()).unwrap());
        assert_eq!(port.stats().queued, 1);
        port.close();
        later_peer.write(b"x").unwrap();
        assert_eq!(the_token(&port, system).into_key(), "before");
        assert_closed(&port, system);
    }

    /// Rule 31: a closed port accepts nothing new, delivers its queue, and then reports that it is
    /// closed.
    fn a_closed_port_drains_its_queue_and_then_says_so(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let (more, more_theirs) = system.unix_pair();
        let id = port.register(one_shot(&ours, ledger.entry())).unwrap();
        theirs.write(b"x").unwrap();
        let token = the_token(&port, system);
        let other = port.register(one_shot(&more, ledger.entry())).unwrap();
        (0..3).for_each(|message| port.post(message).unwrap());
        port.close();
        port.close();
        assert_eq!(refused(port.post(3).map_err(Error::from)), ErrorKind::Closed);
        let (third, _third_theirs) = system.unix_pair();
        let (why, key) = given_back(port.register(one_shot(&third, ledger.entry())));
        assert_eq!(why, ErrorKind::Closed);
        drop(key);
        assert_eq!(refused(port.enable(other, Interest::IN, OneShot::Level)), ErrorKind::Closed);
        let (why, key) = given_back(token.rearm());
        assert_eq!((why, ledger.alive()), (ErrorKind::Closed, 2));
        drop(key);
        let _ = id;
        let mut batch = Batch::with_capacity(2);
        let mut next = 0;
        while next < 3 {
            for packet in port.wait(&mut batch, None).unwrap() {
                assert!(matches!(packet, Packet::Posted(message) if message == next));
                next += 1;
            }
        }
        // No further report and no removal.
        more_theirs.write(b"x").unwrap();
        assert_closed(&port, system);
        assert_closed(&port, system);
        let mut changes = Changes::new();
        changes.disable(other);
        assert_eq!(refused(port.process(&mut changes, &mut batch, None)), ErrorKind::Closed);
        assert_eq!(changes.len(), 1);
        assert_eq!(ledger.alive(), 1);
        drop(port);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 31: all waiting threads get the error.
    fn every_thread_that_waits_is_told_that_the_port_is_closed(system: &System) {
        system.several_threads_wait();
        for limit in [1, 4] {
            let port = system.port::<(), usize>(limit);
            thread::scope(|scope| {
                let waiters: Vec<_> = (1..=4)
                    .map(|count| {
                        let port = &port;
                        let waiter = scope.spawn(move || {
                            port.wait(&mut Batch::new(), None).map(Iterator::count)
                        });
                        settle(system, port, count);
                        waiter
                    })
                    .collect();
                port.close();
                for waiter in waiters {
                    assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
                }
            });
            assert_closed(&port, system);
        }
    }

    /// Rule 31: threads that wait while every seat is taken get the error too.
    fn those_who_wait_for_a_seat_are_told_that_the_port_is_closed(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let gate = Gate::default();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            scope.spawn(|| {
                let mut batch = Batch::new();
                assert_eq!(port.wait(&mut batch, None).unwrap().count(), 1);
                gate.pass();
            });
            settle(system, &port, 1);
            port.post(1).unwrap();
            eventually(system, "it runs", || port.stats().packets.posted == 1);
            let waiter = scope.spawn(|| port.wait(&mut Batch::new(), None).map(Iterator::count));
            settle(system, &port, 1);
            port.close();
            assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        });
    }

    /// Rule 31: a shutdown returns every key, whatever its state, and then waits report that the
    /// port is closed.
    fn a_shutdown_brings_every_key_back(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<(Entry, usize), usize>(1);
        let sockets: Vec<_> = (0..8).map(|_| system.unix_pair()).collect();
        let register = |place: usize| {
            port.register(one_shot(&sockets[place].0, (ledger.entry(), place))).unwrap()
        };
        let held = |place: usize| {
            register(place);
            sockets[place].1.write(b"x").unwrap();
            the_token(&port, system)
        };
        let (armed_later, dropped_later, parked_later) = (held(0), held(1), held(2));
        register(3);
        port.disable(register(4)).unwrap();
        held(5).park().unwrap();
        let persistent = repeated(&sockets[6].0, (ledger.entry(), 6));
        port.register(persistent).unwrap();
        port.remove(register(7)).unwrap();
        port.post(1).unwrap();
        port.shutdown().unwrap();
        port.shutdown().unwrap();

        assert_eq!(refused(port.post(2).map_err(Error::from)), ErrorKind::Closed);
        let (new, _new_theirs) = system.unix_pair();
        let (why, key) = given_back(port.register(one_shot(&new, (ledger.entry(), 9))));
        assert_eq!((why, key.1), (ErrorKind::Closed, 9));
        drop(key);
        for (_, theirs) in &sockets {
            theirs.write(b"x").unwrap();
        }
        let mut batch = Batch::with_capacity(2);
        let (mut back, mut posted) = (Vec::new(), 0);
        loop {
            let packets = port.wait(&mut batch, system.quiet()).unwrap();
            let before = back.len() + posted;
            for packet in packets {
                match packet {
                    Packet::Removed(_, (_, place)) => back.push(place),
                    Packet::Posted(1) => posted += 1,
                    other => panic!("{}", kind(&other)),
                }
            }
            if back.len() + posted == before {
                break;
            }
        }
        back.sort_unstable();
        assert_eq!((back, posted), (vec![3, 4, 5, 6, 7], 1));
        // The shutdown continues as long as handlers hold keys.
        assert_quiet(&port, system);
        assert_eq!(ledger.alive(), 3);
        armed_later.rearm().unwrap();
        assert_eq!(the_removed(&port, system).1.1, 0);
        drop(dropped_later);
        assert_quiet(&port, system);
        parked_later.park().unwrap();
        assert_eq!(the_removed(&port, system).1.1, 2);
        assert_closed(&port, system);
        assert_closed(&port, system);
        assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
    }

    /// Rule 31: the last returned key ends the shutdown for all waiting threads.
    fn every_thread_that_waits_is_told_that_the_port_has_shut_down(system: &System) {
        system.several_threads_wait();
        let port = system.port::<Socket, ()>(2);
        let (mut peers, keys) = (Vec::new(), AtomicUsize::new(0));
        for _ in 0..20 {
            let (ours, theirs) = system.unix_pair();
            port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
            peers.push(theirs);
        }
        thread::scope(|scope| {
            for count in 1..=4 {
                scope.spawn(|| {
                    let mut batch = Batch::with_capacity(3);
                    loop {
                        match port.wait(&mut batch, None) {
                            Ok(packets) => {
                                for packet in packets {
                                    let Packet::Removed(..) = packet else {
                                        panic!("{}", kind(&packet))
                                    };
                                    keys.fetch_add(1, SeqCst);
                                }
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Closed);
                                break;
                            }
                        }
                    }
                });
                settle(system, &port, count);
            }
            port.shutdown().unwrap();
        });
        assert_eq!(keys.load(SeqCst), 20);
        assert_eq!(system.open_sockets(), 20);
    }

    /// Rule 31: a port may be dropped whatever its threads did before.
    fn a_port_may_be_dropped_before_its_threads_end(system: &System) {
        let ledger = Ledger::default();
        let port = Arc::new(system.port::<(), Entry>(1));
        (0..4).for_each(|_| port.post(ledger.entry()).unwrap());
        let (dropped, over) = mpsc::channel::<()>();
        let worker = thread::spawn({
            let port = Arc::clone(&port);
            move || {
                let mut batch = Batch::new();
                // Two packets were assigned and are left in a forgotten iterator.
                let mut packets = port.wait(&mut batch, None).unwrap();
                drop(packets.next());
                std::mem::forget(packets);
                drop(port);
                let _ = over.recv();
            }
        });
        eventually(system, "the worker has what it wants", || {
            ledger.alive() == 3 && Arc::strong_count(&port) == 1
        });
        drop(Arc::into_inner(port).unwrap());
        assert_eq!(ledger.alive(), 0);
        drop(dropped);
        worker.join().unwrap();
    }
}

/// Rule 31: a dropped port leaves no descriptor open, even if its threads live on and were checked
/// for sleep. Ports on a simulated kernel have no descriptors. Runs in a child process in which no
/// other test opens descriptors.
#[cfg(target_os = "linux")]
#[test]
fn a_dropped_port_leaves_no_descriptor_with_its_threads_epoll() {
    if !in_a_process_of_its_own(
        "closing::a_dropped_port_leaves_no_descriptor_with_its_threads_epoll",
    ) {
        return;
    }
    testkit::run(System::native, |on| {
        let before = testkit::descriptors::open();
        let port = Arc::new(on.port::<(), usize>(1));
        let (say, heard) = mpsc::channel();
        // Each thread takes a message and sleeps unannounced, which the next one must detect.
        let workers: Vec<_> = (0..3)
            .map(|message| {
                port.post(message).unwrap();
                let (port, say) = (Arc::clone(&port), say.clone());
                let (go_on, over) = mpsc::channel::<()>();
                let worker = thread::spawn(move || {
                    let packets = port.wait(&mut Batch::new(), None).map(Iterator::count);
                    drop(port);
                    say.send(packets.unwrap()).unwrap();
                    let _ = over.recv();
                });
                assert_eq!(heard.recv_timeout(on.soon()).expect("it is not noticed"), 1);
                (go_on, worker)
            })
            .collect();
        eventually(on, "they let go of it", || Arc::strong_count(&port) == 1);
        drop(Arc::into_inner(port).unwrap());
        testkit::descriptors::assert_same(&before, &testkit::descriptors::open());
        for (go_on, worker) in workers {
            drop(go_on);
            worker.join().unwrap();
        }
    });
}

on_edge_triggered_systems! {
    /// Rule 31: a slot that was armed and not yet checked counts as queued.
    fn a_closed_port_drains_what_is_to_be_checked_too(system: &System) {
        for remove in [false, true] {
            let port = system.port::<&str, usize>(1);
            let (ours, theirs) = system.unix_pair();
            theirs.write(b"x").unwrap();
            let id = port.register(one_shot(&ours, "key")).unwrap();
            the_token(&port, system).rearm().unwrap();
            if remove {
                port.remove(id).unwrap();
            }
            port.close();
            if remove {
                assert_eq!(the_removed(&port, system), (id, "key"));
            } else {
                assert_eq!(the_token(&port, system).into_key(), "key");
            }
            assert_closed(&port, system);
        }
    }

    /// Rule 31: a condition that keeps holding doesn't keep a closed port open.
    fn a_closed_port_ends_although_a_persistent_condition_holds(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"x").unwrap();
        port.register(repeated(&ours, "key")).unwrap();
        assert!(matches!(the_one(&port, system), Packet::Notified(_)));
        port.close();
        // This packet was due when the port was closed.
        assert!(matches!(the_one(&port, system), Packet::Notified(_)));
        assert_closed(&port, system);
    }
}
