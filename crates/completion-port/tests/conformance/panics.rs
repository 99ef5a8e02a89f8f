//! Rules 29 and 38: what a panic in a handler leaves behind.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use completion_port::{
    Batch, Buffer, Interest, OneShot, Operation, Packet, Persistent, Port, Registration,
};
use testkit::{Socket, System, on_every_system};

use crate::kit::ledger::{Ledger, Owner};
use crate::kit::operations::{Noted, Shared, all, finished, next, sort};
use crate::kit::packets::{notified, repeated};
use crate::kit::threads::{eventually, let_be_told};

/// Owns its packet when it panics.
fn handler_that_panics<T>(_packet: T) {
    resume_unwind(Box::new("on purpose"));
}

/// Handles the packets of one wait as a thread does that contains panics. The handler panics with
/// the first packet.
#[track_caller]
fn panic_once<K, M, B: Buffer>(port: &Port<K, M, B>, on: &System) {
    let mut batch = Batch::new();
    let round = || port.wait(&mut batch, on.soon()).unwrap().for_each(handler_that_panics);
    assert!(catch_unwind(AssertUnwindSafe(round)).is_err(), "no packet came");
}

/// Checks that the other end of a connection is closed. TCP takes what is written until it has
/// been told so.
#[track_caller]
fn assert_closed(peer: &Socket, on: &System) {
    eventually(on, "the other end is closed", || peer.write(b"x").is_err());
}

on_every_system! {
    /// Rule 29: the registration of the handler's token ends, and its key is dropped.
    fn a_panic_ends_the_registration_of_its_token_and_no_other(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Owner, u32>(1);
        let register = || {
            let (ours, theirs) = system.unix_pair();
            let key = Owner { socket: ours, _entry: ledger.entry() };
            let registration = Registration::owned(key, Interest::IN, OneShot::Level);
            (port.register(registration).unwrap(), theirs)
        };
        let ((_, first), (second_id, second)) = (register(), register());
        first.write(b"x").unwrap();
        let_be_told(&port, system, 1);
        second.write(b"y").unwrap();
        let_be_told(&port, system, 2);
        panic_once(&port, system);
        assert_eq!((ledger.alive(), port.stats().registered), (1, 1));
        assert_closed(&first, system);
        let Packet::Ready(token) = next(&port, system) else { panic!("no report") };
        assert_eq!((token.id(), token.key().socket.drain()), (second_id, 1));
        token.rearm().unwrap();
        second.write(b"z").unwrap();
        assert_eq!(sort(&next(&port, system)), "ready");
    }

    /// Rule 29: the handler had a clone of the key.
    fn a_panic_leaves_a_persistent_registration_enabled(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<_, u32>(1);
        let (ours, theirs) = system.unix_pair();
        let id = port.register(repeated(&ours, ledger.entry())).unwrap();
        theirs.write(b"x").unwrap();
        panic_once(&port, system);
        assert_eq!(ledger.alive(), 1);
        assert_eq!(notified(&port, system).id(), id);
        assert_eq!(ours.drain(), 1);
        port.enable(id, Interest::IN, Persistent::Edge).unwrap();
        theirs.write(b"x").unwrap();
        assert_eq!(notified(&port, system).id(), id);
    }

    /// Rule 29: a completed operation's token and buffer are the handler's.
    fn a_panic_drops_the_token_and_the_buffer_of_a_completed_operation(system: &System) {
        let ledger = Ledger::default();
        let port = system.port_with_buffers::<Owner, u32, Noted>(1);
        let (ours, theirs) = system.unix_pair();
        let key = Owner { socket: ours, _entry: ledger.entry() };
        let buffer = Noted::new(Vec::with_capacity(4), &ledger);
        port.associate(key).unwrap().recv(buffer).unwrap();
        theirs.write(b"x").unwrap();
        panic_once(&port, system);
        assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
        assert_closed(&theirs, system);
    }

    /// Rule 29: a shared association and its other operations are nobody's to drop.
    fn a_panic_ends_no_shared_association(system: &System) {
        let ledger = Ledger::default();
        let port = system.port_with_buffers::<Shared, u32, Noted>(1);
        let (ours, theirs) = system.unix_pair();
        let id = port.associate_shared(Shared::new(ours)).unwrap();
        let receive = || {
            let buffer = Noted::new(Vec::with_capacity(1), &ledger);
            port.start(id, Operation::recv(buffer)).unwrap()
        };
        let (_, second) = (receive(), receive());
        theirs.write(b"x").unwrap();
        panic_once(&port, system);
        assert_eq!((ledger.alive(), port.stats().registered), (1, 1));
        theirs.write(b"y").unwrap();
        assert_eq!(finished(&port, system).operation(), second);
        let third = receive();
        theirs.write(b"z").unwrap();
        assert_eq!(finished(&port, system).operation(), third);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: the rest of the batch is queued again, in order.
    fn a_panic_costs_no_other_packet_of_the_batch(system: &System) {
        let port = system.port::<(), u32>(1);
        (0..10).for_each(|message| port.post(message).unwrap());
        for left in (0..10).rev() {
            panic_once(&port, system);
            assert_eq!(port.stats().queued, left);
        }
        (0..10).for_each(|message| port.post(message).unwrap());
        panic_once(&port, system);
        let rest = all(&port, system, 9).into_iter().map(|packet| match packet {
            Packet::Posted(message) => message,
            other => panic!("{}", sort(&other)),
        });
        assert!(rest.eq(1..10));
    }

    /// Rule 38: a thread that catches its panic keeps its seat until it waits again.
    fn a_thread_that_contains_its_panic_has_one_seat(system: &System) {
        let port = system.port::<(), u32>(1);
        for message in 0..3 {
            port.post(message).unwrap();
            panic_once(&port, system);
            let stats = port.stats();
            assert_eq!((stats.running, stats.blocked, stats.queued), (1, 0, 0));
        }
        port.post(3).unwrap();
        let blocks = || {
            let handler = |packet| port.blocking(|| handler_that_panics(packet));
            port.wait(&mut Batch::new(), system.soon()).unwrap().for_each(handler);
        };
        assert!(catch_unwind(AssertUnwindSafe(blocks)).is_err());
        assert_eq!((port.stats().running, port.stats().blocked), (1, 0));
        let mut batch = Batch::new();
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
    }
}
