//! One thread and one port: registers a socket, takes the next packet, and checks it.

use std::fmt::Debug;
use std::thread;
use std::time::Instant;

use completion_port::{
    Batch, Buffer, Error, ErrorKind, Events, Id, Interest, Notified, OneShot, Packet, Persistent,
    Port, Ready, Refused, Registration,
};
use testkit::{Socket, System};

use crate::kit::threads::let_be_told;

/// Passes each packet to `take`, using this batch, until the port is closed.
pub(crate) fn each_packet<'p, K, M, B: Buffer>(
    port: &'p Port<K, M, B>,
    mut batch: Batch,
    mut take: impl FnMut(Packet<'p, K, M, B>),
) {
    while let Ok(packets) = port.wait(&mut batch, None) {
        packets.for_each(&mut take);
    }
}

/// Returns the packet of a wait, which must bring exactly one.
#[track_caller]
pub(crate) fn the_one<'p, K, M>(port: &'p Port<K, M>, on: &System) -> Packet<'p, K, M> {
    let mut batch = Batch::new();
    let mut packets = port.wait(&mut batch, on.soon()).unwrap();
    let packet = packets.next().expect("no packet came");
    if let Some(more) = packets.next() {
        panic!("{} and then {}", kind(&packet), kind(&more));
    }
    packet
}

#[track_caller]
pub(crate) fn the_token<'p, K>(port: &'p Port<K, usize>, on: &System) -> Ready<'p, K> {
    match the_one(port, on) {
        Packet::Ready(token) => token,
        other => panic!("no one-shot packet, but {}", kind(&other)),
    }
}

#[track_caller]
pub(crate) fn the_removed<K>(port: &Port<K, usize>, on: &System) -> (Id, K) {
    match the_one(port, on) {
        Packet::Removed(id, key) => (id, key),
        other => panic!("no removal, but {}", kind(&other)),
    }
}

#[track_caller]
pub(crate) fn assert_closed<K, M>(port: &Port<K, M>, on: &System) {
    match port.wait(&mut Batch::new(), on.soon()).map(Iterator::count) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
        Ok(count) => panic!("{count} packets, and not closed"),
    }
}

#[track_caller]
pub(crate) fn refused<T>(outcome: Result<T, Error>) -> ErrorKind {
    outcome.map(drop).expect_err("it should be refused").kind()
}

/// Returns the reason of a refusal, and the returned key.
#[track_caller]
pub(crate) fn given_back<T, K>(outcome: Result<T, Refused<K>>) -> (ErrorKind, K) {
    let (error, key) = outcome.map(drop).expect_err("it should be refused").into_parts();
    (error.kind(), key)
}

pub(crate) fn one_shot<'s, K>(socket: &'s Socket, key: K) -> Registration<'s, K> {
    Registration::new(socket, key, Interest::IN, OneShot::Level)
}

pub(crate) fn repeated<'s, K: Clone>(socket: &'s Socket, key: K) -> Registration<'s, K> {
    Registration::new(socket, key, Interest::IN, Persistent::Level)
}

/// Registers `socket` and makes it ready, so that its packet is queued and not taken. First takes
/// the packet of another socket, with the key `other`.
#[track_caller]
pub(crate) fn queue<K>(
    port: &Port<K, usize>,
    on: &System,
    socket: &Socket,
    make_ready: impl FnOnce(),
    key: K,
    other: K,
) -> Id {
    let (first, first_peer) = on.unix_pair();
    let before = port.register(one_shot(&first, other)).unwrap();
    let id = port.register(one_shot(socket, key)).unwrap();
    first_peer.write(b"x").unwrap();
    let_be_told(port, on, 1);
    make_ready();
    let_be_told(port, on, 2);
    let mut batch = Batch::with_capacity(1);
    let packet = port.wait(&mut batch, on.soon()).unwrap().next();
    match packet {
        Some(Packet::Ready(token)) if token.id() == before => drop(token.into_key()),
        other => panic!("the first packet is wrong: {}", other.is_some()),
    }
    assert_eq!(port.stats().queued, 1);
    id
}

pub(crate) fn refused_or_ok(outcome: Result<(), Error>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

/// A trigger of either type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    Once(OneShot),
    Always(Persistent),
}

pub(crate) const ONE_SHOT_LEVEL: Trigger = Trigger::Once(OneShot::Level);

pub(crate) const ONE_SHOT_EDGE: Trigger = Trigger::Once(OneShot::Edge);

pub(crate) const PERSISTENT_LEVEL: Trigger = Trigger::Always(Persistent::Level);

pub(crate) const PERSISTENT_EDGE: Trigger = Trigger::Always(Persistent::Edge);

pub(crate) const TRIGGERS: [Trigger; 4] =
    [ONE_SHOT_LEVEL, ONE_SHOT_EDGE, PERSISTENT_LEVEL, PERSISTENT_EDGE];

/// Calls `act` with each trigger. On a real system each call has a separate thread, because
/// checking that nothing happens takes real time there.
pub(crate) fn for_each_trigger(on: &System, act: impl Fn(Trigger) + Sync) {
    if on.kernel().is_some() {
        return TRIGGERS.into_iter().for_each(act);
    }
    thread::scope(|scope| {
        for trigger in TRIGGERS {
            let act = &act;
            scope.spawn(move || act(trigger));
        }
    });
}

/// Creates a port for one thread, with names as keys and numbers as messages.
pub(crate) fn port_on(on: &System) -> Port<&'static str, u32> {
    on.port(1)
}

/// Registers `socket`, which must succeed.
#[track_caller]
pub(crate) fn register<K: Clone, M>(
    port: &Port<K, M>,
    socket: &Socket,
    key: K,
    interest: Interest,
    trigger: Trigger,
) -> Id {
    port.register(match trigger {
        Trigger::Once(trigger) => Registration::new(socket, key, interest, trigger),
        Trigger::Always(trigger) => Registration::new(socket, key, interest, trigger),
    })
    .unwrap()
}

/// Enables a registration whose key the port has.
#[track_caller]
pub(crate) fn enable<K: Clone, M>(port: &Port<K, M>, id: Id, interest: Interest, trigger: Trigger) {
    match trigger {
        Trigger::Once(trigger) => port.enable(id, interest, trigger),
        Trigger::Always(trigger) => port.enable(id, interest, trigger),
    }
    .unwrap();
}

/// Returns the next packet, which must come soon.
#[track_caller]
pub(crate) fn packet<'p, K, M>(port: &'p Port<K, M>, on: &System) -> Packet<'p, K, M> {
    let mut batch = Batch::new();
    let mut packets = port.wait(&mut batch, on.soon()).unwrap();
    packets.next().expect("a packet was to come")
}

/// Returns the next packet, which must be a one-shot registration's.
#[track_caller]
pub(crate) fn ready<'p, K, M>(port: &'p Port<K, M>, on: &System) -> Ready<'p, K> {
    match packet(port, on) {
        Packet::Ready(ready) => ready,
        _ => panic!("a packet of a one-shot registration was to come"),
    }
}

/// Returns the next packet, which must be a persistent registration's.
#[track_caller]
pub(crate) fn notified<K, M>(port: &Port<K, M>, on: &System) -> Notified<K> {
    match packet(port, on) {
        Packet::Notified(notified) => notified,
        _ => panic!("a packet of a persistent registration was to come"),
    }
}

/// Returns the events of the next packet without [`Events::WRITE_CLOSED`]. Leaves a one-shot
/// registration disabled.
#[track_caller]
pub(crate) fn report<K, M>(port: &Port<K, M>, on: &System) -> Events {
    whole_report(port, on) - Events::WRITE_CLOSED
}

/// Returns all events of the next packet. Leaves a one-shot registration disabled.
#[track_caller]
pub(crate) fn whole_report<K, M>(port: &Port<K, M>, on: &System) -> Events {
    let events = match packet(port, on) {
        Packet::Ready(ready) => {
            let events = ready.events();
            ready.park().unwrap();
            events
        }
        Packet::Notified(notified) => notified.events(),
        _ => panic!("a report of a socket was to come"),
    };
    assert!(events.is_hangup() || !events.is_write_closed(), "{events:?}");
    events
}

/// Checks that no packet comes.
#[track_caller]
pub(crate) fn assert_quiet<K: Debug, M: Debug>(port: &Port<K, M>, on: &System) {
    let mut batch = Batch::new();
    let mut packets = port.wait(&mut batch, on.quiet()).unwrap();
    if let Some(packet) = packets.next() {
        panic!("nothing was to come, but {packet:?} did");
    }
}

/// Waits for packets and drops them unread, after which `count` of them must be queued.
#[track_caller]
pub(crate) fn leave_queued<K, M>(port: &Port<K, M>, on: &System, count: usize) {
    let mut batch = Batch::new();
    drop(port.wait(&mut batch, on.soon()).unwrap());
    assert_eq!(port.stats().queued, count, "packets in the queue");
}

/// Takes the reports of `socket`, whatever its trigger, and calls `handle` for each until that
/// returns true.
pub(crate) fn serve<K: Clone>(
    port: &Port<K, u32>,
    on: &System,
    mut handle: impl FnMut(&K) -> bool,
) {
    let begun = Instant::now();
    let mut batch = Batch::new();
    loop {
        for packet in port.wait(&mut batch, on.soon()).unwrap() {
            let over = match packet {
                Packet::Ready(ready) => {
                    let over = handle(ready.key());
                    ready.rearm().map_err(|refused| refused.kind()).unwrap();
                    over
                }
                Packet::Notified(notified) => handle(notified.key()),
                _ => panic!("something else than a report"),
            };
            if over {
                return;
            }
        }
        assert!(begun.elapsed() < 2 * on.soon(), "something was not reported");
    }
}

/// Returns the next packet, which must be a removal.
#[track_caller]
pub(crate) fn removed<K, M>(port: &Port<K, M>, on: &System) -> (completion_port::Id, K) {
    match packet(port, on) {
        Packet::Removed(id, key) => (id, key),
        _ => panic!("the packet of a removal was to come"),
    }
}

/// Returns the messages of a batch, which must have nothing else.
#[track_caller]
pub(crate) fn messages<'p, K: 'p>(packets: impl Iterator<Item = Packet<'p, K, u32>>) -> Vec<u32> {
    packets
        .map(|packet| match packet {
            Packet::Posted(message) => message,
            _ => panic!("something else than a message"),
        })
        .collect()
}

/// Returns the kind of a packet, for keys and messages that can't be printed.
pub(crate) fn kind<K, M>(packet: &Packet<'_, K, M>) -> &'static str {
    match packet {
        Packet::Ready(_) => "a one-shot packet",
        Packet::Notified(_) => "a persistent packet",
        Packet::Posted(_) => "a message",
        Packet::Removed(..) => "a removal",
        _ => "something else",
    }
}
