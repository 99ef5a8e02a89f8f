//! Rules 17 to 28: when a packet comes, what it reports, and when none comes.
//!
//! The helpers of this module serve its neighbours too.

use std::fmt::Debug;
use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, ErrorKind, Events, Id, Interest, Notified, OneShot, Packet, Persistent, Port, Ready,
    Registration,
};
use testkit::{Socket, System, on_every_system};

/// A trigger of either type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trigger {
    Once(OneShot),
    Always(Persistent),
}

pub(super) const ONE_SHOT_LEVEL: Trigger = Trigger::Once(OneShot::Level);
pub(super) const ONE_SHOT_EDGE: Trigger = Trigger::Once(OneShot::Edge);
pub(super) const PERSISTENT_LEVEL: Trigger = Trigger::Always(Persistent::Level);
pub(super) const PERSISTENT_EDGE: Trigger = Trigger::Always(Persistent::Edge);
pub(super) const TRIGGERS: [Trigger; 4] =
    [ONE_SHOT_LEVEL, ONE_SHOT_EDGE, PERSISTENT_LEVEL, PERSISTENT_EDGE];

pub(super) type Pair = fn(&System) -> (Socket, Socket);

/// Two connected sockets that carry streams.
pub(super) const STREAMS: [Pair; 2] = [System::tcp_pair, System::unix_pair];
/// Something to read from and its other end, of every kind.
pub(super) const READERS: [Pair; 5] = [
    System::tcp_pair,
    System::unix_pair,
    System::udp_pair,
    System::unix_datagram_pair,
    System::pipe,
];

/// A port for one thread, with names as keys and numbers as messages.
pub(super) fn port_on(on: &System) -> Port<&'static str, u32> {
    on.port(1)
}

/// Registers `socket`, which must succeed.
#[track_caller]
pub(super) fn register<K: Clone, M>(
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

/// Enables a registration whose key is with the port.
#[track_caller]
pub(super) fn enable<K: Clone, M>(port: &Port<K, M>, id: Id, interest: Interest, trigger: Trigger) {
    match trigger {
        Trigger::Once(trigger) => port.rearm(id, interest, trigger),
        Trigger::Always(trigger) => port.rearm(id, interest, trigger),
    }
    .unwrap();
}

/// The next packet, which must come soon.
#[track_caller]
pub(super) fn packet<'p, K, M>(port: &'p Port<K, M>, on: &System) -> Packet<'p, K, M> {
    let mut batch = Batch::new();
    let mut packets = port.wait(&mut batch, on.soon()).unwrap();
    packets.next().expect("a packet was to come")
}

/// The next packet, which must be that of a one-shot registration.
#[track_caller]
pub(super) fn ready<'p, K, M>(port: &'p Port<K, M>, on: &System) -> Ready<'p, K> {
    match packet(port, on) {
        Packet::Ready(ready) => ready,
        _ => panic!("a packet of a one-shot registration was to come"),
    }
}

/// The next packet, which must be that of a persistent registration.
#[track_caller]
pub(super) fn notified<K, M>(port: &Port<K, M>, on: &System) -> Notified<K> {
    match packet(port, on) {
        Packet::Notified(notified) => notified,
        _ => panic!("a packet of a persistent registration was to come"),
    }
}

/// What the next packet reports; a one-shot registration is left disabled.
#[track_caller]
pub(super) fn report<K, M>(port: &Port<K, M>, on: &System) -> Events {
    match packet(port, on) {
        Packet::Ready(ready) => {
            let events = ready.events();
            ready.park().unwrap();
            events
        }
        Packet::Notified(notified) => notified.events(),
        _ => panic!("a report of a socket was to come"),
    }
}

/// Nothing comes.
#[track_caller]
pub(super) fn assert_quiet<K: Debug, M: Debug>(port: &Port<K, M>, on: &System) {
    let mut batch = Batch::new();
    let mut packets = port.wait(&mut batch, on.quiet()).unwrap();
    if let Some(packet) = packets.next() {
        panic!("nothing was to come, but {packet:?} did");
    }
}

/// A wait finds packets and leaves them all in the queue, where there are `count` of them then.
#[track_caller]
pub(super) fn leave_queued<K, M>(port: &Port<K, M>, on: &System, count: usize) {
    let mut batch = Batch::new();
    drop(port.wait(&mut batch, on.soon()).unwrap());
    assert_eq!(port.stats().queued, count, "packets in the queue");
}

/// What poll(2) says of `socket` now.
pub(super) fn facts(socket: &Socket) -> u32 {
    if let Some(socket) = socket.as_simulated() {
        return socket.kernel().facts(socket).bits();
    }
    let events = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
    let mut question = libc::pollfd { fd: socket.as_raw_fd(), events, revents: 0 };
    // SAFETY: poll(2) reads and writes one question at the pointer.
    // - valid: `question` lives until the call returns.
    let done = unsafe { libc::poll(&raw mut question, 1, 0) };
    assert!(done >= 0, "{}", io::Error::last_os_error());
    u32::try_from(question.revents).unwrap()
}

pub(super) const POLLIN: u32 = 0x1;
pub(super) const POLLOUT: u32 = 0x4;
pub(super) const POLLERR: u32 = 0x8;
pub(super) const POLLHUP: u32 = 0x10;
pub(super) const POLLRDHUP: u32 = 0x2000;

/// Waits until all of `wanted` holds of `socket`: until what was sent has arrived.
#[track_caller]
pub(super) fn await_facts(socket: &Socket, on: &System, wanted: u32) {
    let end = Instant::now() + on.soon();
    while facts(socket) & wanted != wanted {
        assert!(Instant::now() < end, "{:#x} instead of {wanted:#x}", facts(socket));
        thread::yield_now();
    }
}

/// Waits until so many bytes can be read from `socket`.
#[track_caller]
fn await_unread(socket: &Socket, on: &System, wanted: usize) {
    let end = Instant::now() + on.soon();
    while socket.unread().unwrap() != wanted {
        assert!(Instant::now() < end, "{:?} instead of {wanted} bytes", socket.unread());
        thread::yield_now();
    }
}

/// Writes until nothing more goes in, also after the kernel has moved all that it can.
fn fill(socket: &Socket) {
    let end = Instant::now() + Duration::from_secs(10);
    let mut calm = 0;
    while calm < 100 {
        calm = if socket.fill() == 0 && facts(socket) & POLLOUT == 0 { calm + 1 } else { 0 };
        assert!(Instant::now() < end, "the buffers have no end");
        thread::yield_now();
    }
}

/// Closes the port when it is dropped, also by a panic, so that the threads that wait come back.
struct Closes<'p, K, M>(&'p Port<K, M>);

impl<K, M> Drop for Closes<'_, K, M> {
    fn drop(&mut self) {
        self.0.close();
    }
}

on_every_system! {
    // ---- rule 17 -------------------------------------------------------------------------------

    /// Rule 17.
    fn at_most_one_packet_of_a_registration_is_queued(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            register(&port, &ours, "ours", Interest::IN, trigger);
            for _ in 0..4 {
                theirs.write(b"more").unwrap();
                leave_queued(&port, system, 1);
            }
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
            assert_eq!(ours.drain(), 16);
            assert_quiet(&port, system);
        }
    }

    /// Rule 17.
    fn the_queue_is_bounded_by_the_number_of_registrations(system: &System) {
        let port = port_on(system);
        let pairs: Vec<_> = (0..100).map(|_| system.unix_pair()).collect();
        for (ours, _) in &pairs {
            register(&port, ours, "ours", Interest::IN | Interest::OUT, PERSISTENT_LEVEL);
        }
        let mut batch = Batch::new();
        for _ in 0..5 {
            for (_, theirs) in &pairs {
                theirs.write(b"x").unwrap();
            }
            let packets = port.wait(&mut batch, system.soon()).unwrap();
            assert!(packets.count() > 0);
            assert!(port.stats().queued <= pairs.len(), "{:?}", port.stats());
        }
    }

    /// Rule 17.
    fn what_becomes_true_while_a_packet_is_queued_is_in_it(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            register(&port, &ours, "ours", Interest::ALL, trigger);
            leave_queued(&port, system, 1);
            theirs.write(b"x").unwrap();
            assert_eq!(report(&port, system), Events::IN | Events::OUT, "{trigger:?}");
        }
    }

    /// Rule 17: the kernel is asked between the two conditions, since another socket is armed.
    fn a_condition_that_is_found_while_a_packet_is_queued_is_merged(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            let (other, _peer) = system.unix_pair();
            register(&port, &other, "other", Interest::OUT, ONE_SHOT_LEVEL);
            let held = ready(&port, system);
            register(&port, &ours, "ours", Interest::IN | Interest::OUT, trigger);
            leave_queued(&port, system, 1);
            theirs.write(b"x").unwrap();
            held.rearm().unwrap();
            assert_eq!(report(&port, system), Events::IN | Events::OUT, "{trigger:?}");
            ours.drain();
        }
    }

    // ---- rule 18 -------------------------------------------------------------------------------

    /// Rule 18.
    fn a_persistent_level_registration_repeats_as_long_as_the_condition_holds(system: &System) {
        for pair in READERS {
            let port = port_on(system);
            let (ours, theirs) = pair(system);
            register(&port, &ours, "ours", Interest::IN, PERSISTENT_LEVEL);
            assert_quiet(&port, system);
            theirs.write(b"four").unwrap();
            for _ in 0..5 {
                let packet = notified(&port, system);
                assert_eq!((packet.events(), *packet.key()), (Events::IN, "ours"));
            }
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 4);
            assert_quiet(&port, system);
            theirs.write(b"x").unwrap();
            assert_eq!(report(&port, system), Events::IN);
        }
    }

    /// Rule 18.
    fn several_threads_hold_packets_of_one_persistent_level_registration(system: &System) {
        system.several_threads_wait();
        let port: Port<&str, u32> = system.port(2);
        let (ours, theirs) = system.unix_pair();
        register(&port, &ours, "ours", Interest::IN, PERSISTENT_LEVEL);
        theirs.write(b"x").unwrap();
        let (has, holds) = mpsc::channel();
        let (done, ends) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let port = &port;
            scope.spawn(move || {
                let held = notified(port, system);
                has.send(held.events()).unwrap();
                let _ = ends.recv();
                assert_eq!(*held.key(), "ours");
            });
            assert_eq!(holds.recv_timeout(system.soon()).unwrap(), Events::IN);
            let second = notified(port, system);
            assert_eq!((second.events(), *second.key()), (Events::IN, "ours"));
            drop(done);
        });
    }

    // ---- rule 19 -------------------------------------------------------------------------------

    /// Rule 19.
    fn one_shot_level_reports_once_until_enabled_again(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"one").unwrap();
        let held = ready(&port, system);
        assert_eq!((held.events(), *held.key()), (Events::IN, "ours"));
        assert_quiet(&port, system);
        theirs.write(b"two").unwrap();
        assert_quiet(&port, system);
        held.rearm().unwrap();
        assert_eq!(report(&port, system), Events::IN);
        assert_quiet(&port, system);
    }

    /// Rule 12.
    fn a_key_stays_where_it_lies_until_its_registration_ends(system: &System) {
        let port = system.port::<[u64; 100], ()>(1);
        let (ours, theirs) = system.tcp_pair();
        let id = port
            .register(Registration::new(&ours, [0; 100], Interest::IN, OneShot::Level))
            .map_err(|refused| refused.error())
            .unwrap();
        theirs.write(b"unread").unwrap();
        let mut held = ready(&port, system);
        let place = std::ptr::from_ref(held.key());
        for round in 1..=3 {
            held.key_mut()[99] += round;
            // The token moves, its key does not.
            let moved = Box::new(held);
            assert!(std::ptr::eq(moved.key(), place), "round {round}");
            moved.rearm().unwrap();
            held = ready(&port, system);
            assert!(std::ptr::eq(held.key(), place), "round {round}");
        }
        assert_eq!(held.key()[99], 6);
        assert_eq!(held.park().unwrap(), id);
        assert_eq!(port.remove_and_wait(id, None).unwrap()[99], 6);
    }

    /// Rule 19.
    fn a_one_shot_packet_disables_the_registration_wholly(system: &System) {
        for trigger in [ONE_SHOT_LEVEL, ONE_SHOT_EDGE] {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            register(&port, &ours, "ours", Interest::ALL, trigger);
            let held = ready(&port, system);
            assert_eq!(held.events(), Events::OUT, "{trigger:?}");
            theirs.write(b"x").unwrap();
            assert_quiet(&port, system);
            let id = held.park().unwrap();
            theirs.shutdown(Shutdown::Write).unwrap();
            assert_quiet(&port, system);
            await_facts(&ours, system, POLLIN | POLLRDHUP);
            enable(&port, id, Interest::ALL, ONE_SHOT_LEVEL);
            assert_eq!(report(&port, system), Events::IN | Events::OUT | Events::HANGUP);
            assert_quiet(&port, system);
        }
    }

    /// Rule 19.
    fn a_spent_one_shot_is_still_registered(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let held = ready(&port, system);
        assert_eq!(held.id(), id);
        let again = Registration::new(&ours, "again", Interest::IN, OneShot::Level);
        let refused = port.register(again).unwrap_err();
        assert_eq!((refused.kind(), *refused.value()), (ErrorKind::AlreadyRegistered, "again"));
        assert_eq!(port.stats().registered, 1);
        assert_eq!(held.park().unwrap(), id);
        port.remove(id).unwrap();
        assert!(matches!(packet(&port, system), Packet::Removed(it, "ours") if it == id));
        assert_quiet(&port, system);
    }

    // ---- rule 20 -------------------------------------------------------------------------------

    /// Rule 20.
    fn a_level_registration_reports_at_once_what_holds_already(system: &System) {
        for trigger in [ONE_SHOT_LEVEL, PERSISTENT_LEVEL] {
            for pair in READERS {
                let port = port_on(system);
                let (ours, theirs) = pair(system);
                theirs.write(b"four").unwrap();
                await_facts(&ours, system, POLLIN);
                let id = register(&port, &ours, "ours", Interest::IN, trigger);
                assert_eq!(report(&port, system), Events::IN, "{trigger:?} {ours:?}");
                port.disable(id).unwrap();
                assert_quiet(&port, system);
                enable(&port, id, Interest::IN, trigger);
                assert_eq!(report(&port, system), Events::IN, "{trigger:?} {ours:?}");
            }
        }
    }

    /// Rule 20.
    fn a_level_registration_armed_with_data_left_reports_at_once(system: &System) {
        for pair in STREAMS {
            let port = port_on(system);
            let (ours, theirs) = pair(system);
            register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
            theirs.write(b"0123456789").unwrap();
            await_facts(&ours, system, POLLIN);
            for _ in 0..5 {
                let held = ready(&port, system);
                assert_eq!(held.events(), Events::IN);
                assert_eq!(ours.read(&mut [0; 2]).unwrap(), 2);
                held.rearm().unwrap();
            }
            assert_quiet(&port, system);
        }
    }

    /// Rule 20.
    fn a_level_packet_is_never_delivered_for_data_that_was_read(system: &System) {
        for pair in READERS {
            for hint in [false, true] {
                let port = port_on(system);
                let (ours, theirs) = pair(system);
                let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
                // Armed again after the data was read.
                theirs.write(b"x").unwrap();
                let mut held = ready(&port, system);
                ours.drain();
                if hint {
                    held.read_drained();
                }
                held.rearm().unwrap();
                assert_quiet(&port, system);
                // More comes while the key is out, the kernel tells of it, and it is read too.
                theirs.write(b"x").unwrap();
                let mut held = ready(&port, system);
                theirs.write(b"y").unwrap();
                assert_quiet(&port, system);
                ours.drain();
                if hint {
                    held.read_drained();
                }
                held.rearm_as(Interest::IN | Interest::HANGUP, OneShot::Level).unwrap();
                assert_quiet(&port, system);
                // It comes and goes while the registration is disabled.
                port.disable(id).unwrap();
                theirs.write(b"x").unwrap();
                assert_quiet(&port, system);
                ours.drain();
                enable(&port, id, Interest::IN, ONE_SHOT_LEVEL);
                assert_quiet(&port, system);
                // And it is all still alive.
                theirs.write(b"x").unwrap();
                assert_eq!(report(&port, system), Events::IN, "{ours:?}");
            }
        }
    }

    /// Rule 20.
    fn a_level_packet_that_became_untrue_before_it_is_armed_is_not_delivered(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, PERSISTENT_LEVEL);
        theirs.write(b"x").unwrap();
        assert_eq!(report(&port, system), Events::IN);
        // The next packet of it is on its way, to be delivered only if it is still true.
        ours.drain();
        enable(&port, id, Interest::IN, ONE_SHOT_LEVEL);
        assert_quiet(&port, system);
        theirs.write(b"x").unwrap();
        assert_eq!(report(&port, system), Events::IN);
    }

    /// Rule 20.
    fn room_that_was_filled_again_is_not_reported(system: &System) {
        for hint in [false, true] {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            register(&port, &ours, "ours", Interest::OUT, ONE_SHOT_LEVEL);
            let mut held = ready(&port, system);
            assert_eq!(held.events(), Events::OUT);
            fill(&ours);
            if hint {
                held.write_full();
            }
            held.rearm().unwrap();
            assert_quiet(&port, system);
            theirs.drain();
            assert_eq!(report(&port, system), Events::OUT);
            assert_quiet(&port, system);
        }
    }

    /// Rule 20.
    fn a_drained_hint_is_ignored_if_more_came_since_the_packet(system: &System) {
        for pair in READERS {
            for found in [false, true] {
                let port = port_on(system);
                let (ours, theirs) = pair(system);
                register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
                theirs.write(b"x").unwrap();
                let mut held = ready(&port, system);
                ours.drain();
                theirs.write(b"y").unwrap();
                await_facts(&ours, system, POLLIN);
                if found {
                    assert_quiet(&port, system);
                }
                held.read_drained();
                held.rearm().unwrap();
                assert_eq!(report(&port, system), Events::IN, "{found} {ours:?}");
                ours.drain();
                assert_quiet(&port, system);
            }
        }
    }

    /// Rule 20.
    fn a_full_hint_is_ignored_if_there_was_room_since_the_packet(system: &System) {
        for found in [false, true] {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            register(&port, &ours, "ours", Interest::OUT, ONE_SHOT_LEVEL);
            let mut held = ready(&port, system);
            fill(&ours);
            if found {
                assert_quiet(&port, system);
            }
            theirs.drain();
            await_facts(&ours, system, POLLOUT);
            if found {
                assert_quiet(&port, system);
            }
            held.write_full();
            held.rearm().unwrap();
            assert_eq!(report(&port, system), Events::OUT, "{found}");
        }
    }

    /// Rule 20.
    fn a_drained_hint_does_not_hide_the_end_of_a_stream(system: &System) {
        for (interest, end) in [
            (Interest::IN, Events::IN),
            (Interest::HANGUP, Events::HANGUP),
            (Interest::IN | Interest::HANGUP, Events::HANGUP),
        ] {
            for trigger in [OneShot::Level, OneShot::Edge] {
                for pair in STREAMS {
                    let port = port_on(system);
                    let (ours, theirs) = pair(system);
                    theirs.write(b"last").unwrap();
                    theirs.shutdown(Shutdown::Write).unwrap();
                    await_facts(&ours, system, POLLIN | POLLRDHUP);
                    register(&port, &ours, "ours", interest, Trigger::Once(trigger));
                    let mut held = ready(&port, system);
                    // A short read: of what there was nothing is left, but for the end.
                    assert_eq!(ours.read(&mut [0; 8]).unwrap(), 4);
                    held.read_drained();
                    held.rearm().unwrap();
                    assert_eq!(report(&port, system), end, "{interest:?} {trigger:?} {ours:?}");
                }
            }
        }
    }

    /// Rule 20.
    fn a_wrong_hint_costs_no_more_than_a_delay_until_more_arrives(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"some").unwrap();
        let mut held = ready(&port, system);
        held.read_drained();
        held.rearm().unwrap();
        assert_quiet(&port, system);
        theirs.write(b"more").unwrap();
        assert_eq!(report(&port, system), Events::IN);
        assert_eq!(ours.read_within(system.soon(), 8), b"somemore");
    }

    /// Rule 20.
    fn several_threads_never_get_a_level_packet_with_nothing_to_read(system: &System) {
        system.several_threads_wait();
        let pairs = [system.tcp_pair(), system.unix_pair(), system.unix_pair()];
        let port: Port<&Socket, u32> = system.port(2);
        for (ours, _) in &pairs {
            port.register(Registration::new(ours, ours, Interest::IN, OneShot::Level)).unwrap();
        }
        let read = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut batch = Batch::with_capacity(2);
                    let mut buffer = [0; 8];
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        for packet in packets {
                            let Packet::Ready(mut held) = packet else { panic!("{packet:?}") };
                            let more = held.key().read(&mut buffer).unwrap();
                            if more < buffer.len() {
                                held.read_drained();
                            }
                            read.fetch_add(more, SeqCst);
                            // Refused once the port is closed.
                            let _ = held.rearm();
                        }
                    }
                });
            }
            let _closes = Closes(&port);
            let mut written = 0;
            for round in 0..3000 {
                let bytes = &b"0123456789"[..1 + round % 10];
                written += pairs[round % 3].1.write(bytes).unwrap();
                // Now and then the readers catch up, and rest.
                let end = Instant::now() + system.soon();
                while read.load(SeqCst) + round % 50 < written {
                    if let Some(kernel) = system.kernel() {
                        kernel.advance(Duration::from_millis(1));
                    }
                    assert!(Instant::now() < end, "{port:?}");
                    thread::yield_now();
                }
            }
        });
    }

    // ---- rule 21 -------------------------------------------------------------------------------

    /// Rule 21.
    fn an_edge_registration_reports_each_arrival_after_draining(system: &System) {
        for trigger in [ONE_SHOT_EDGE, PERSISTENT_EDGE] {
            for pair in READERS {
                let port = port_on(system);
                let (ours, theirs) = pair(system);
                let id = register(&port, &ours, "ours", Interest::IN, trigger);
                assert_quiet(&port, system);
                for _ in 0..3 {
                    theirs.write(b"four").unwrap();
                    assert_eq!(report(&port, system), Events::IN, "{trigger:?} {ours:?}");
                    assert_eq!(ours.drain(), 4);
                    if trigger == ONE_SHOT_EDGE {
                        enable(&port, id, Interest::IN, trigger);
                    }
                    assert_quiet(&port, system);
                }
            }
        }
    }

    /// Rule 21.
    fn an_edge_registration_does_not_repeat_what_still_holds(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        register(&port, &ours, "ours", Interest::IN, PERSISTENT_EDGE);
        theirs.write(b"four").unwrap();
        assert_eq!(report(&port, system), Events::IN);
        assert_quiet(&port, system);
        assert_eq!(ours.read(&mut [0; 2]).unwrap(), 2);
        assert_quiet(&port, system);
    }

    /// Rule 21.
    fn a_rise_while_the_edge_packet_is_held_is_reported_when_it_is_armed(system: &System) {
        for pair in READERS {
            for found in [false, true] {
                for hint in [false, true] {
                    let port = port_on(system);
                    let (ours, theirs) = pair(system);
                    register(&port, &ours, "ours", Interest::IN, ONE_SHOT_EDGE);
                    theirs.write(b"one").unwrap();
                    let mut held = ready(&port, system);
                    assert_eq!(ours.drain(), 3);
                    theirs.write(b"two").unwrap();
                    await_facts(&ours, system, POLLIN);
                    if found {
                        assert_quiet(&port, system);
                    }
                    if hint {
                        held.read_drained();
                    }
                    held.rearm().unwrap();
                    assert_eq!(report(&port, system), Events::IN, "{found} {hint} {ours:?}");
                    assert_eq!(ours.drain(), 3);
                    assert_quiet(&port, system);
                }
            }
        }
    }

    /// Rule 21.
    fn a_rise_while_the_edge_packet_is_queued_is_reported(system: &System) {
        for trigger in [ONE_SHOT_EDGE, PERSISTENT_EDGE] {
            for pair in READERS {
                let port = port_on(system);
                let (ours, theirs) = pair(system);
                register(&port, &ours, "ours", Interest::IN, trigger);
                theirs.write(b"one").unwrap();
                leave_queued(&port, system, 1);
                assert_eq!(ours.drain(), 3);
                theirs.write(b"two").unwrap();
                await_facts(&ours, system, POLLIN);
                assert_eq!(report(&port, system), Events::IN, "{trigger:?} {ours:?}");
                assert_eq!(ours.drain(), 3);
            }
        }
    }

    /// Rule 21.
    fn a_rise_while_a_persistent_edge_packet_is_handled_makes_another(system: &System) {
        for pair in READERS {
            let port = port_on(system);
            let (ours, theirs) = pair(system);
            register(&port, &ours, "ours", Interest::IN, PERSISTENT_EDGE);
            theirs.write(b"one").unwrap();
            let held = notified(&port, system);
            assert_eq!(ours.drain(), 3);
            theirs.write(b"two").unwrap();
            let second = notified(&port, system);
            assert_eq!((second.id(), second.events()), (held.id(), Events::IN), "{ours:?}");
            assert_eq!(ours.drain(), 3);
            assert_quiet(&port, system);
        }
    }

    /// Rule 21.
    fn an_edge_of_room_is_reported_after_the_buffer_was_full(system: &System) {
        for trigger in [ONE_SHOT_EDGE, PERSISTENT_EDGE] {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            let id = register(&port, &ours, "ours", Interest::OUT, trigger);
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            fill(&ours);
            if trigger == ONE_SHOT_EDGE {
                enable(&port, id, Interest::OUT, trigger);
            }
            assert_quiet(&port, system);
            theirs.drain();
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
        }
    }

    /// Rule 21.
    fn a_rise_that_was_found_and_not_taken_is_reported_when_it_is_enabled_again(system: &System) {
        for pair in READERS {
            for disable in [false, true] {
                let port = port_on(system);
                let (ours, theirs) = pair(system);
                register(&port, &ours, "ours", Interest::IN, ONE_SHOT_EDGE);
                theirs.write(b"one").unwrap();
                let held = ready(&port, system);
                assert_eq!(ours.drain(), 3);
                theirs.write(b"two").unwrap();
                await_facts(&ours, system, POLLIN);
                assert_quiet(&port, system);
                let id = held.id();
                held.rearm().unwrap();
                // The kernel is asked, and the packet left in the queue.
                leave_queued(&port, system, 1);
                if disable {
                    port.disable(id).unwrap();
                }
                enable(&port, id, Interest::IN, ONE_SHOT_EDGE);
                assert_eq!(report(&port, system), Events::IN, "{disable} {ours:?}");
            }
        }
    }

    /// Rule 21.
    fn an_edge_that_a_packet_did_not_report_is_left_for_the_next_filter(system: &System) {
        for pair in STREAMS {
            let port = port_on(system);
            let (ours, theirs) = pair(system);
            register(&port, &ours, "ours", Interest::IN, ONE_SHOT_EDGE);
            theirs.write(b"question").unwrap();
            let held = ready(&port, system);
            assert_eq!(held.events(), Events::IN);
            assert_eq!(ours.drain(), 8);
            held.rearm_as(Interest::OUT, OneShot::Edge).unwrap();
            assert_eq!(report(&port, system), Events::OUT, "{ours:?}");
        }
    }

    /// Rule 21: a handler that has read the question now asks for room to answer, which there was
    /// all the time: whatever was known of it before, and however often the kernel was asked about
    /// the rest.
    fn an_edge_that_nobody_asked_about_is_reported_to_who_asks_later(system: &System) {
        for trigger in TRIGGERS {
            for pair in STREAMS {
                for checks in [0, 1, 2] {
                    let port = port_on(system);
                    let (ours, theirs) = pair(system);
                    let id = register(&port, &ours, "ours", Interest::IN, trigger);
                    for _ in 0..=checks {
                        theirs.write(b"question").unwrap();
                        if checks == 2 {
                            // Ends and errors are looked at before they are reported.
                            let _ = theirs.shutdown(Shutdown::Write);
                            await_facts(&ours, system, POLLRDHUP);
                        }
                        await_facts(&ours, system, POLLIN);
                        enable(&port, id, Interest::IN, trigger);
                        assert_eq!(report(&port, system), Events::IN);
                        ours.drain();
                        if checks == 2 {
                            break;
                        }
                    }
                    let edge = match trigger {
                        Trigger::Once(_) => ONE_SHOT_EDGE,
                        Trigger::Always(_) => PERSISTENT_EDGE,
                    };
                    enable(&port, id, Interest::OUT, edge);
                    let what = format!("{trigger:?} {checks} {ours:?}");
                    let mut batch = Batch::new();
                    let mut packets = port.wait(&mut batch, system.quiet()).unwrap();
                    let events = packets.next().map(|packet| match packet {
                        Packet::Ready(ready) => ready.events(),
                        Packet::Notified(notified) => notified.events(),
                        other => panic!("{other:?}"),
                    });
                    assert_eq!(events, Some(Events::OUT), "{what}");
                }
            }
        }
    }

    /// Rule 21: drained to `WouldBlock` after every packet, nothing is ever left lying.
    fn no_rising_edge_is_lost_between_a_writer_and_a_reader(system: &System) {
        const COUNT: usize = 3000;
        for trigger in [ONE_SHOT_EDGE, PERSISTENT_EDGE, ONE_SHOT_LEVEL, PERSISTENT_LEVEL] {
            system.several_threads_wait();
            let port: Port<&str, u32> = system.port(2);
            let (ours, theirs) = system.unix_pair();
            register(&port, &ours, "ours", Interest::IN, trigger);
            thread::scope(|scope| {
                scope.spawn(|| {
                    for _ in 0..COUNT {
                        while theirs.write(b"x").is_err() {
                            thread::yield_now();
                        }
                    }
                });
                let mut sum = 0;
                let mut buffer = [0; 16];
                while sum < COUNT {
                    let packet = packet(&port, system);
                    while let Ok(more) = ours.read(&mut buffer) {
                        sum += more;
                    }
                    if let Packet::Ready(mut ready) = packet {
                        ready.read_drained();
                        ready.rearm().unwrap();
                    }
                }
                assert_eq!(sum, COUNT);
            });
        }
    }

    /// Rule 21.
    fn enabling_says_what_holds_whatever_the_trigger(system: &System) {
        let both = Interest::IN | Interest::OUT;
        for before in TRIGGERS {
            for trigger in TRIGGERS {
                let what = format!("{before:?}, then {trigger:?}");
                let port = port_on(system);
                let (ours, theirs) = system.tcp_pair();
                let id = register(&port, &ours, "ours", Interest::IN, before);
                theirs.write(b"ab").unwrap();
                assert_eq!(report(&port, system), Events::IN, "{what}");
                port.disable(id).unwrap();
                for _ in 0..3 {
                    assert_quiet(&port, system);
                    enable(&port, id, Interest::IN, trigger);
                    assert_eq!(report(&port, system), Events::IN, "{what}");
                    port.disable(id).unwrap();
                }
                // Not all of it is read, and room is asked about too.
                assert_eq!(ours.read(&mut [0]).unwrap(), 1);
                enable(&port, id, both, trigger);
                assert_eq!(report(&port, system), Events::IN | Events::OUT, "{what}");
                // Nothing is left.
                assert_eq!(ours.read(&mut [0]).unwrap(), 1);
                port.disable(id).unwrap();
                enable(&port, id, Interest::IN, trigger);
                assert_quiet(&port, system);
            }
        }
    }

    /// Rule 21.
    fn a_token_armed_without_a_hint_is_told_what_holds_whatever_the_trigger(system: &System) {
        for trigger in [OneShot::Level, OneShot::Edge] {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            register(&port, &ours, "ours", Interest::IN, Trigger::Once(trigger));
            theirs.write(b"abc").unwrap();
            await_unread(&ours, system, 3);
            for anew in [false, true] {
                let token = ready(&port, system);
                assert_eq!(ours.read(&mut [0]).unwrap(), 1);
                match anew {
                    false => token.rearm().unwrap(),
                    true => token.rearm_as(Interest::IN, trigger).unwrap(),
                }
            }
            // With a hint the kernel is not asked: what is left comes with what arrives next.
            let mut token = ready(&port, system);
            token.read_drained();
            token.rearm().unwrap();
            assert_quiet(&port, system);
            theirs.write(b"d").unwrap();
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
        }
    }

    /// Rule 21.
    fn room_is_told_of_at_each_arming_unless_a_hint_denies_it(system: &System) {
        for trigger in [OneShot::Level, OneShot::Edge] {
            let port = port_on(system);
            let (ours, _theirs) = system.tcp_pair();
            let both = Interest::IN | Interest::OUT;
            register(&port, &ours, "ours", both, Trigger::Once(trigger));
            for _ in 0..3 {
                let mut token = ready(&port, system);
                assert_eq!(token.events(), Events::OUT, "{trigger:?}");
                token.read_drained();
                token.rearm().unwrap();
            }
            let mut token = ready(&port, system);
            token.read_drained();
            token.write_full();
            token.rearm().unwrap();
            assert_quiet(&port, system);
        }
    }

    // ---- rule 22 -------------------------------------------------------------------------------

    /// Rule 22.
    fn edge_one_shot_reports_once_until_enabled_again(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_EDGE);
        theirs.write(b"one").unwrap();
        let held = ready(&port, system);
        assert_eq!(held.events(), Events::IN);
        for _ in 0..3 {
            theirs.write(b"more").unwrap();
            assert_quiet(&port, system);
        }
        ours.drain();
        held.rearm().unwrap();
        // An arrival from before may be told of now. It is no loss if there is nothing to read.
        let mut batch = Batch::new();
        let surplus = port.wait(&mut batch, system.quiet()).unwrap().next();
        if let Some(Packet::Ready(held)) = surplus {
            held.rearm().unwrap();
        }
        assert_quiet(&port, system);
        theirs.write(b"two").unwrap();
        assert_eq!(report(&port, system), Events::IN);
        assert_quiet(&port, system);
    }

    // ---- rule 23 -------------------------------------------------------------------------------

    /// Rule 23.
    fn in_means_that_there_is_something_to_read(system: &System) {
        for trigger in TRIGGERS {
            for pair in READERS {
                let port = port_on(system);
                let (ours, theirs) = pair(system);
                register(&port, &ours, "ours", Interest::IN, trigger);
                assert_quiet(&port, system);
                theirs.write(b"x").unwrap();
                assert_eq!(report(&port, system), Events::IN, "{trigger:?} {ours:?}");
                assert_eq!(ours.drain(), 1);
                assert_quiet(&port, system);
            }
            let port = port_on(system);
            let event = system.event();
            register(&port, &event, "event", Interest::IN, trigger);
            assert_quiet(&port, system);
            event.signal(1).unwrap();
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
            event.drain();
            assert_quiet(&port, system);
        }
    }

    /// Rule 20: counters of a port and of its threads begin shortly before they wrap: what is
    /// reported before, at and after that is no other.
    fn what_is_reported_does_not_depend_on_how_much_was_before(system: &System) {
        const ROUNDS: usize = 700;
        let (ours, theirs) = system.unix_pair();
        let mut batch = Batch::new();
        for trigger in [OneShot::Level, OneShot::Edge] {
            for hint in [true, false] {
                let port = port_on(system);
                port.register(Registration::new(&ours, "ours", Interest::IN, trigger)).unwrap();
                for round in 0..ROUNDS {
                    theirs.write(b"x").unwrap();
                    let mut packets = port.wait(&mut batch, system.soon()).unwrap();
                    let Some(Packet::Ready(mut ready)) = packets.next() else {
                        panic!("nothing was reported in round {round}");
                    };
                    assert!(packets.next().is_none());
                    drop(packets);
                    assert_eq!(ours.drain(), 1);
                    if hint {
                        ready.read_drained();
                    }
                    ready.rearm().unwrap();
                    let none = port.wait(&mut batch, Duration::ZERO).unwrap().count();
                    assert_eq!(none, 0, "reported again in round {round}");
                }
                assert_eq!(port.stats().packets.ready, ROUNDS as u64);
                assert!(port.stats().harvests >= ROUNDS as u64);
            }
        }
    }

    /// Rule 23: on the real system a client for whom there is no room may take itself for
    /// connected; the listener hears of it once the client sends.
    fn every_connection_is_reported_though_the_backlog_overflows(system: &System) {
        const CLIENTS: usize = 4;
        let port = system.port::<usize, u32>(1);
        let listeners = TRIGGERS.map(|_| system.tcp_listener(1));
        for (number, (listener, trigger)) in listeners.iter().zip(TRIGGERS).enumerate() {
            register(&port, listener, number, Interest::IN, trigger);
        }
        let clients: Vec<_> = (0..CLIENTS)
            .flat_map(|_| listeners.each_ref().map(|listener| system.tcp_connect(listener)))
            .collect();
        for (number, client) in clients.iter().enumerate() {
            register(&port, client, TRIGGERS.len() + number, Interest::OUT, ONE_SHOT_EDGE);
        }
        let mut accepted = Vec::new();
        serve(&port, system, |number| {
            let Some(listener) = listeners.get(*number) else {
                clients[*number - TRIGGERS.len()].write(b"x").unwrap();
                return false;
            };
            let drains = matches!(TRIGGERS[*number], ONE_SHOT_EDGE | PERSISTENT_EDGE);
            while let Ok(socket) = listener.accept() {
                accepted.push(socket);
                if !drains {
                    break;
                }
            }
            accepted.len() == clients.len()
        });
    }

    /// Rule 23.
    fn in_of_a_listener_means_that_there_is_a_connection_to_accept(system: &System) {
        let kinds: [Pair; 2] = [
            |system| (system.tcp_listener(8), system.tcp_fresh()),
            |system| (system.unix_listener(8), system.unix_fresh()),
        ];
        for trigger in TRIGGERS {
            for kind in kinds {
                let port = port_on(system);
                let (listener, first) = kind(system);
                let id = register(&port, &listener, "listener", Interest::ALL, trigger);
                assert_quiet(&port, system);
                let (_, second) = kind(system);
                for client in [&first, &second] {
                    client.connect(&listener.address()).unwrap();
                }
                await_facts(&listener, system, POLLIN);
                assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
                let _first = listener.accept_within(system.soon());
                if trigger == ONE_SHOT_LEVEL {
                    enable(&port, id, Interest::ALL, trigger);
                }
                if matches!(trigger, ONE_SHOT_LEVEL | PERSISTENT_LEVEL) {
                    assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
                }
                let _second = listener.accept_within(system.soon());
                assert_quiet(&port, system);
            }
        }
    }

    /// Rule 23.
    fn out_means_that_there_is_room_to_write(system: &System) {
        let writers: [Pair; 3] = [
            System::tcp_pair,
            System::unix_pair,
            |system| {
                let (reader, writer) = system.pipe();
                (writer, reader)
            },
        ];
        for trigger in TRIGGERS {
            for pair in writers {
                let port = port_on(system);
                let (ours, theirs) = pair(system);
                let id = register(&port, &ours, "ours", Interest::OUT, trigger);
                assert_eq!(report(&port, system), Events::OUT, "{trigger:?} {ours:?}");
                port.disable(id).unwrap();
                fill(&ours);
                enable(&port, id, Interest::OUT, trigger);
                if matches!(trigger, ONE_SHOT_LEVEL | PERSISTENT_LEVEL) {
                    assert_quiet(&port, system);
                }
                // Over TCP there is more under way than fits in at the other end.
                let end = Instant::now() + system.soon();
                while facts(&ours) & POLLOUT == 0 {
                    theirs.drain();
                    assert!(Instant::now() < end, "there is no room although all was read");
                    thread::yield_now();
                }
                assert_eq!(report(&port, system), Events::OUT, "{trigger:?} {ours:?}");
            }
        }
    }

    /// Rule 23.
    fn out_means_that_a_connect_is_done(system: &System) {
        for trigger in TRIGGERS {
            // Registered before the connect.
            let port = port_on(system);
            let listener = system.tcp_listener(4);
            let client = system.tcp_fresh();
            register(&port, &client, "client", Interest::ALL, trigger);
            assert_quiet(&port, system);
            client.connect(&listener.address()).unwrap();
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            assert!(client.take_error().unwrap().is_none());
            // Registered after it.
            let client = system.tcp_connect(&listener);
            let port = port_on(system);
            register(&port, &client, "client", Interest::ALL, trigger);
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            client.write(b"x").unwrap();
        }
    }

    /// Rule 23.
    fn only_what_is_asked_for_is_reported(system: &System) {
        for trigger in TRIGGERS {
            for pair in STREAMS {
                for (interest, expected) in [
                    (Interest::NONE, Events::NONE),
                    (Interest::IN, Events::IN),
                    (Interest::OUT, Events::OUT),
                    (Interest::HANGUP, Events::NONE),
                    (Interest::IN | Interest::OUT, Events::IN | Events::OUT),
                    (Interest::IN | Interest::HANGUP, Events::IN),
                    (Interest::OUT | Interest::HANGUP, Events::OUT),
                    (Interest::ALL, Events::IN | Events::OUT),
                ] {
                    let port = port_on(system);
                    let (ours, theirs) = pair(system);
                    theirs.write(b"x").unwrap();
                    await_facts(&ours, system, POLLIN | POLLOUT);
                    register(&port, &ours, "ours", interest, trigger);
                    if expected.is_empty() {
                        assert_quiet(&port, system);
                    } else {
                        assert_eq!(report(&port, system), expected, "{trigger:?} {interest:?}");
                    }
                    if trigger != PERSISTENT_LEVEL {
                        assert_quiet(&port, system);
                    }
                }
            }
        }
    }

    // ---- rule 24 -------------------------------------------------------------------------------

    /// Rule 24.
    fn the_end_of_a_stream_with_nothing_left_to_read_is_hangup_alone(system: &System) {
        for trigger in TRIGGERS {
            for pair in [System::tcp_pair as Pair, System::unix_pair, System::pipe] {
                for interest in [Interest::HANGUP, Interest::IN | Interest::HANGUP] {
                    let port = port_on(system);
                    let (ours, theirs) = pair(system);
                    register(&port, &ours, "ours", interest, trigger);
                    assert_quiet(&port, system);
                    drop(theirs);
                    let what = format!("{trigger:?} {interest:?} {ours:?}");
                    assert_eq!(report(&port, system), Events::HANGUP, "{what}");
                    assert_eq!(ours.read(&mut [0]).unwrap(), 0);
                }
            }
        }
    }

    /// Rule 24.
    fn a_half_closed_stream_is_hung_up_and_can_be_written_to(system: &System) {
        for trigger in TRIGGERS {
            for pair in STREAMS {
                let port = port_on(system);
                let (ours, theirs) = pair(system);
                let interest = Interest::IN | Interest::HANGUP;
                register(&port, &ours, "ours", interest, trigger);
                theirs.shutdown(Shutdown::Write).unwrap();
                assert_eq!(report(&port, system), Events::HANGUP, "{trigger:?} {ours:?}");
                ours.write(b"still").unwrap();
                assert_eq!(theirs.read_within(system.soon(), 5), b"still");
            }
        }
    }

    /// Rule 24.
    fn the_end_of_a_stream_with_data_left_is_in_and_hangup_in_one_packet(system: &System) {
        for trigger in TRIGGERS {
            for pair in STREAMS {
                for closed in [false, true] {
                    let port = port_on(system);
                    let (ours, theirs) = pair(system);
                    let interest = Interest::IN | Interest::HANGUP;
                    let id = register(&port, &ours, "ours", interest, trigger);
                    theirs.write(b"data").unwrap();
                    theirs.shutdown(Shutdown::Write).unwrap();
                    await_facts(&ours, system, POLLIN | POLLRDHUP);
                    let _open = (!closed).then_some(theirs);
                    let both = Events::IN | Events::HANGUP;
                    assert_eq!(report(&port, system), both, "{trigger:?} {ours:?}");
                    // Some is read, and it is still both; all is read, and HANGUP is left.
                    assert_eq!(ours.read(&mut [0; 2]).unwrap(), 2);
                    enable(&port, id, interest, ONE_SHOT_LEVEL);
                    assert_eq!(report(&port, system), both, "{trigger:?} {ours:?}");
                    assert_eq!(ours.read(&mut [0; 2]).unwrap(), 2);
                    enable(&port, id, interest, ONE_SHOT_LEVEL);
                    assert_eq!(report(&port, system), Events::HANGUP, "{trigger:?} {ours:?}");
                    assert_quiet(&port, system);
                }
            }
        }
    }

    /// Rule 24.
    fn a_pipe_whose_writer_is_gone_hangs_up_and_keeps_its_data(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (reader, writer) = system.pipe();
            let interest = Interest::IN | Interest::HANGUP;
            let id = register(&port, &reader, "reader", interest, trigger);
            writer.write(b"data").unwrap();
            drop(writer);
            assert_eq!(report(&port, system), Events::IN | Events::HANGUP, "{trigger:?}");
            assert_eq!(reader.drain(), 4);
            enable(&port, id, interest, ONE_SHOT_LEVEL);
            assert_eq!(report(&port, system), Events::HANGUP, "{trigger:?}");
            enable(&port, id, Interest::IN, ONE_SHOT_LEVEL);
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
            assert_quiet(&port, system);
        }
    }

    /// Rule 24.
    fn a_pipe_whose_reader_is_gone_is_out_and_err(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (reader, writer) = system.pipe();
            let id = register(&port, &writer, "writer", Interest::OUT, trigger);
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            drop(reader);
            enable(&port, id, Interest::OUT, ONE_SHOT_LEVEL);
            assert_eq!(report(&port, system), Events::OUT | Events::ERR, "{trigger:?}");
            assert_eq!(writer.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
            assert_quiet(&port, system);
        }
    }

    /// Rule 24.
    fn who_asked_only_for_in_is_told_in_at_the_end(system: &System) {
        for trigger in TRIGGERS {
            for closed in [false, true] {
                for pair in STREAMS {
                    let port = port_on(system);
                    let (ours, theirs) = pair(system);
                    register(&port, &ours, "ours", Interest::IN, trigger);
                    theirs.shutdown(Shutdown::Write).unwrap();
                    let _open = (!closed).then_some(theirs);
                    let what = format!("{trigger:?} {closed} {ours:?}");
                    assert_eq!(report(&port, system), Events::IN, "{what}");
                    assert_eq!(ours.read(&mut [0]).unwrap(), 0);
                }
            }
        }
    }

    /// Rule 24.
    fn hangup_is_reported_only_if_it_was_requested(system: &System) {
        for trigger in TRIGGERS {
            for pair in STREAMS {
                for interest in [Interest::IN, Interest::OUT, Interest::IN | Interest::OUT] {
                    let port = port_on(system);
                    let (ours, theirs) = pair(system);
                    theirs.shutdown(Shutdown::Write).unwrap();
                    await_facts(&ours, system, POLLRDHUP);
                    register(&port, &ours, "ours", interest, trigger);
                    let events = report(&port, system);
                    assert!(!events.is_hangup(), "{trigger:?} {interest:?} {events:?}");
                    assert_eq!(events.is_in(), interest.contains(Interest::IN), "{interest:?}");
                    assert_eq!(events.is_out(), interest.contains(Interest::OUT), "{interest:?}");
                }
                // Half-closed, and nothing was asked for: not a word.
                let port = port_on(system);
                let (ours, theirs) = pair(system);
                register(&port, &ours, "ours", Interest::NONE, trigger);
                theirs.shutdown(Shutdown::Write).unwrap();
                await_facts(&ours, system, POLLRDHUP);
                assert_quiet(&port, system);
            }
        }
    }

    /// Rule 24.
    fn a_reset_connection_is_hung_up_with_an_error(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            register(&port, &ours, "ours", Interest::HANGUP, trigger);
            assert_quiet(&port, system);
            theirs.reset();
            assert_eq!(report(&port, system), Events::HANGUP | Events::ERR, "{trigger:?}");
        }
    }

    /// Rule 24.
    fn a_datagram_socket_is_never_hung_up(system: &System) {
        for trigger in TRIGGERS {
            for pair in [System::udp_pair as Pair, System::unix_datagram_pair] {
                for interest in [
                    Interest::NONE,
                    Interest::HANGUP,
                    Interest::IN | Interest::HANGUP,
                    Interest::OUT | Interest::HANGUP,
                    Interest::ALL,
                ] {
                    for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
                        let port = port_on(system);
                        let (ours, _theirs) = pair(system);
                        register(&port, &ours, "ours", interest, trigger);
                        ours.shutdown(how).unwrap();
                        let mut batch = Batch::new();
                        for _ in 0..3 {
                            let packets = port.wait(&mut batch, Duration::ZERO).unwrap();
                            for packet in packets {
                                let events = match &packet {
                                    Packet::Ready(ready) => ready.events(),
                                    Packet::Notified(notified) => notified.events(),
                                    _ => panic!("{packet:?}"),
                                };
                                let what = format!("{trigger:?} {interest:?} {how:?} {ours:?}");
                                assert!(!events.is_hangup(), "{events:?} {what}");
                                let asked = interest.contains(Interest::IN) && events.is_in()
                                    || interest.contains(Interest::OUT) && events.is_out();
                                assert!(asked, "{events:?} {what}");
                            }
                        }
                    }
                }
            }
        }
    }

    /// Rule 24.
    fn the_own_shutdown_of_the_reading_half_is_not_the_end_of_the_peer(system: &System) {
        let readers = Interest::IN | Interest::HANGUP;
        for trigger in TRIGGERS {
            for interest in [Interest::NONE, Interest::IN, Interest::HANGUP, readers] {
                for before in [false, true] {
                    let what = format!("{trigger:?} {interest:?} {before}");
                    let port = port_on(system);
                    let (ours, theirs) = system.tcp_pair();
                    if before {
                        ours.shutdown(Shutdown::Read).unwrap();
                    }
                    let id = register(&port, &ours, "ours", interest, trigger);
                    assert_quiet(&port, system);
                    ours.shutdown(Shutdown::Read).unwrap();
                    for _ in 0..2 {
                        assert_quiet(&port, system);
                        enable(&port, id, interest, trigger);
                    }
                    // The connection goes on, and so do its reports, to its real end.
                    theirs.write(b"data").unwrap();
                    await_unread(&ours, system, 4);
                    if interest.contains(Interest::IN) {
                        assert_eq!(report(&port, system), Events::IN, "{what}");
                        port.disable(id).unwrap();
                    }
                    assert_quiet(&port, system);
                    assert_eq!(ours.read(&mut [0; 8]).unwrap(), 4);
                    enable(&port, id, interest, trigger);
                    assert_quiet(&port, system);
                    theirs.shutdown(Shutdown::Write).unwrap();
                    if interest != Interest::NONE {
                        let is_told = interest.contains(Interest::HANGUP);
                        let expected = if is_told { Events::HANGUP } else { Events::IN };
                        assert_eq!(report(&port, system), expected, "{what}");
                        port.disable(id).unwrap();
                    }
                    assert_quiet(&port, system);
                }
            }
        }
    }

    /// Rule 24.
    fn a_stream_whose_own_halves_are_both_shut_is_out_alone(system: &System) {
        for trigger in TRIGGERS {
            for interest in [Interest::NONE, Interest::IN | Interest::HANGUP, Interest::ALL] {
                let what = format!("{trigger:?} {interest:?}");
                let port = port_on(system);
                let (ours, theirs) = system.tcp_pair();
                let id = register(&port, &ours, "ours", interest, trigger);
                ours.shutdown(Shutdown::Both).unwrap();
                await_facts(&ours, system, POLLHUP);
                if interest.contains(Interest::OUT) {
                    assert_eq!(report(&port, system), Events::OUT, "{what}");
                    enable(&port, id, interest, trigger);
                    assert_eq!(report(&port, system), Events::OUT, "{what}");
                    enable(&port, id, Interest::IN | Interest::HANGUP, trigger);
                }
                assert_quiet(&port, system);
                theirs.shutdown(Shutdown::Write).unwrap();
                assert_eq!(report(&port, system), Events::HANGUP, "{what}");
            }
        }
    }

    /// Rule 24.
    fn the_end_of_the_peer_is_remembered_whatever_is_shut_after_it(system: &System) {
        for trigger in TRIGGERS {
            for how in [Shutdown::Read, Shutdown::Write, Shutdown::Both] {
                let interest = Interest::IN | Interest::HANGUP;
                let port = port_on(system);
                let (ours, theirs) = system.tcp_pair();
                let id = register(&port, &ours, "ours", interest, trigger);
                theirs.shutdown(Shutdown::Write).unwrap();
                assert_eq!(report(&port, system), Events::HANGUP, "{trigger:?} {how:?}");
                ours.shutdown(how).unwrap();
                enable(&port, id, interest, trigger);
                assert_eq!(report(&port, system), Events::HANGUP, "{trigger:?} {how:?}");
            }
        }
    }

    /// Rule 24.
    fn a_unix_stream_does_not_tell_whose_end_it_is(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, _theirs) = system.unix_pair();
            register(&port, &ours, "ours", Interest::IN | Interest::HANGUP, trigger);
            ours.shutdown(Shutdown::Read).unwrap();
            assert_eq!(report(&port, system), Events::HANGUP, "{trigger:?}");
        }
    }

    /// Rule 24.
    fn a_listener_that_is_shut_is_hung_up(system: &System) {
        let both = Interest::IN | Interest::HANGUP;
        for trigger in TRIGGERS {
            for (interest, expected) in [
                (Interest::NONE, Events::HANGUP),
                (Interest::IN, Events::IN),
                (Interest::HANGUP, Events::HANGUP),
                (both, Events::HANGUP),
            ] {
                let what = format!("{trigger:?} {interest:?}");
                let port = port_on(system);
                let listener = system.tcp_listener(4);
                let id = register(&port, &listener, "listener", interest, trigger);
                let client = system.tcp_connect(&listener);
                if interest.contains(Interest::IN) {
                    assert_eq!(report(&port, system), Events::IN, "{what}");
                } else {
                    await_facts(&listener, system, POLLIN);
                    assert_quiet(&port, system);
                }
                drop(listener.accept_within(system.soon()));
                enable(&port, id, interest, trigger);
                assert_quiet(&port, system);
                listener.shutdown(Shutdown::Both).unwrap();
                // Found and not taken, then enabled for something else: it is not lost.
                leave_queued(&port, system, 1);
                enable(&port, id, Interest::NONE, trigger);
                leave_queued(&port, system, 1);
                enable(&port, id, interest, trigger);
                assert_eq!(report(&port, system), expected, "{what}");
                // It is as good as new then.
                enable(&port, id, interest, trigger);
                assert_quiet(&port, system);
                enable(&port, id, Interest::ALL, trigger);
                listener.connect(&system.unused_address()).unwrap();
                let events = report(&port, system);
                assert!(events.is_err() && !events.is_out(), "{events:?} {what}");
                drop(client);
            }
        }
    }

    /// Rule 24.
    fn a_listener_of_a_unix_socket_that_is_shut_is_hung_up(system: &System) {
        for trigger in TRIGGERS {
            for (interest, expected) in [
                (Interest::IN, Events::IN),
                (Interest::HANGUP, Events::HANGUP),
                (Interest::IN | Interest::HANGUP, Events::HANGUP),
            ] {
                let port = port_on(system);
                let listener = system.unix_listener(4);
                register(&port, &listener, "listener", interest, trigger);
                assert_quiet(&port, system);
                listener.shutdown(Shutdown::Both).unwrap();
                let events = match report(&port, system) {
                    // FIONREAD says nothing of a listener, so a read might find something.
                    events if interest.contains(Interest::HANGUP) => events - Events::IN,
                    events => events,
                };
                assert_eq!(events, expected, "{trigger:?} {interest:?}");
            }
        }
    }

    /// Rule 24.
    fn a_listener_that_was_never_ready_is_shut_in_silence(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let listener = system.tcp_listener(4);
            let interest = Interest::IN | Interest::HANGUP;
            let id = register(&port, &listener, "listener", interest, trigger);
            listener.shutdown(Shutdown::Both).unwrap();
            assert_quiet(&port, system);
            enable(&port, id, interest, trigger);
            assert_quiet(&port, system);
        }
    }

    // ---- rule 25 -------------------------------------------------------------------------------

    /// Rule 25.
    fn a_refused_connect_is_an_error_and_not_out(system: &System) {
        for trigger in TRIGGERS {
            for interest in [
                Interest::NONE,
                Interest::IN,
                Interest::OUT,
                Interest::HANGUP,
                Interest::IN | Interest::OUT,
                Interest::ALL,
            ] {
                for before in [false, true] {
                    let port = port_on(system);
                    let client = system.tcp_fresh();
                    if before {
                        register(&port, &client, "client", interest, trigger);
                        assert_quiet(&port, system);
                    }
                    client.connect(&system.unused_address()).unwrap();
                    if !before {
                        await_facts(&client, system, POLLERR);
                        register(&port, &client, "client", interest, trigger);
                    }
                    let events = report(&port, system);
                    let what = format!("{events:?} {trigger:?} {interest:?} {before}");
                    assert!(events.is_err() && !events.is_out(), "{what}");
                    let error = client.take_error().unwrap().expect("an error is pending");
                    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
                }
            }
        }
    }

    /// Rule 27.
    fn a_reset_connection_is_out_and_err_until_its_error_is_fetched(system: &System) {
        let both = Interest::IN | Interest::OUT;
        for trigger in TRIGGERS {
            for (interest, before) in [
                (Interest::OUT, Events::OUT),
                (both, Events::OUT | Events::IN),
                (Interest::ALL, Events::OUT | Events::HANGUP),
            ] {
                let what = format!("{trigger:?} {interest:?}");
                let port = port_on(system);
                let (ours, theirs) = system.tcp_pair();
                let id = register(&port, &ours, "ours", interest, trigger);
                assert_eq!(report(&port, system), Events::OUT, "{what}");
                theirs.reset();
                await_facts(&ours, system, POLLERR);
                for _ in 0..2 {
                    enable(&port, id, interest, trigger);
                    assert_eq!(report(&port, system), before | Events::ERR, "{what}");
                }
                assert!(ours.take_error().unwrap().is_some());
                enable(&port, id, interest, trigger);
                assert_eq!(report(&port, system), before, "{what}");
            }
        }
    }

    /// Rule 25.
    fn a_reset_of_a_connection_that_was_never_seen_alive_is_err_alone(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            theirs.reset();
            await_facts(&ours, system, POLLERR);
            let id = register(&port, &ours, "ours", Interest::OUT, trigger);
            assert_eq!(report(&port, system), Events::ERR, "{trigger:?}");
            assert_quiet(&port, system);
            assert!(ours.take_error().unwrap().is_some());
            enable(&port, id, Interest::OUT, trigger);
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
        }
    }

    /// Rule 25.
    fn errors_are_reported_whatever_was_asked_for(system: &System) {
        for trigger in TRIGGERS {
            for interest in [
                Interest::NONE,
                Interest::IN,
                Interest::OUT,
                Interest::HANGUP,
                Interest::IN | Interest::OUT,
                Interest::ALL,
            ] {
                let port = port_on(system);
                let (ours, theirs) = system.tcp_pair();
                theirs.reset();
                await_facts(&ours, system, POLLERR);
                register(&port, &ours, "ours", interest, trigger);
                let events = report(&port, system);
                assert!(events.is_err(), "{events:?} {trigger:?} {interest:?}");
                let error = ours.read(&mut [0]).unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
            }
        }
    }

    /// Rule 25.
    fn the_error_of_a_datagram_socket_is_fetched_by_a_read_and_then_over(system: &System) {
        for trigger in [ONE_SHOT_LEVEL, PERSISTENT_LEVEL] {
            let port = port_on(system);
            let socket = system.udp_bound();
            socket.connect(&system.unused_address()).unwrap();
            let id = register(&port, &socket, "socket", Interest::NONE, trigger);
            assert_quiet(&port, system);
            socket.write(b"to nobody").unwrap();
            assert_eq!(report(&port, system), Events::ERR, "{trigger:?}");
            let error = socket.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            enable(&port, id, Interest::NONE, trigger);
            assert_quiet(&port, system);
            socket.write(b"again").unwrap();
            assert_eq!(report(&port, system), Events::ERR, "{trigger:?}");
        }
    }

    // ---- rule 26 -------------------------------------------------------------------------------

    /// Rule 26.
    fn a_fresh_stream_is_silent(system: &System) {
        for trigger in TRIGGERS {
            for fresh in [System::tcp_fresh, System::unix_fresh] {
                for interest in [Interest::NONE, Interest::IN, Interest::OUT, Interest::ALL] {
                    let port = port_on(system);
                    let socket = fresh(system);
                    let id = register(&port, &socket, "socket", interest, trigger);
                    assert_quiet(&port, system);
                    enable(&port, id, interest, trigger);
                    assert_quiet(&port, system);
                }
            }
        }
    }

    /// Rule 26.
    fn a_fresh_stream_leaves_nothing_sticky(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let listener = system.tcp_listener(4);
            let client = system.tcp_fresh();
            let id = register(&port, &client, "client", Interest::ALL, trigger);
            assert_quiet(&port, system);
            client.connect(&listener.address()).unwrap();
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            let server = listener.accept_within(system.soon());
            // Neither hung up nor readable, though it looked so before it was connected.
            enable(&port, id, Interest::IN | Interest::HANGUP, trigger);
            assert_quiet(&port, system);
            server.write(b"x").unwrap();
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
        }
    }

    /// Rule 26.
    fn after_a_refused_connect_a_stream_is_fresh_again_and_may_connect(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let client = system.tcp_fresh();
            let id = register(&port, &client, "client", Interest::ALL, trigger);
            client.connect(&system.unused_address()).unwrap();
            let events = report(&port, system);
            assert!(events.is_err() && !events.is_out(), "{events:?}");
            port.disable(id).unwrap();
            let error = client.take_error().unwrap().expect("an error is pending");
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
            // The system tells once more that the last attempt failed.
            let listener = system.tcp_listener(4);
            let told = client.connect(&listener.address()).unwrap_err();
            assert_eq!(told.kind(), io::ErrorKind::ConnectionAborted);
            assert_eq!(facts(&client), POLLOUT | POLLHUP);
            enable(&port, id, Interest::ALL, trigger);
            assert_quiet(&port, system);
            client.connect(&listener.address()).unwrap();
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            let server = listener.accept_within(system.soon());
            enable(&port, id, Interest::IN | Interest::HANGUP, ONE_SHOT_LEVEL);
            assert_quiet(&port, system);
            server.write(b"x").unwrap();
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
        }
    }

    /// Rule 26.
    fn a_udp_socket_is_out_at_once(system: &System) {
        for trigger in TRIGGERS {
            for interest in [Interest::OUT, Interest::IN | Interest::OUT, Interest::ALL] {
                let port = port_on(system);
                let socket = system.udp_bound();
                register(&port, &socket, "socket", interest, trigger);
                assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            }
            let port = port_on(system);
            let socket = system.udp_bound();
            register(&port, &socket, "socket", Interest::IN, trigger);
            assert_quiet(&port, system);
        }
    }

    /// Rule 26.
    fn a_unix_client_is_reported_when_it_is_enabled_after_its_connect(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let listener = system.unix_listener(4);
            let client = system.unix_fresh();
            let id = register(&port, &client, "client", Interest::ALL, trigger);
            assert_quiet(&port, system);
            client.connect(&listener.address()).unwrap();
            assert_quiet(&port, system);
            enable(&port, id, Interest::ALL, trigger);
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            let server = listener.accept_within(system.soon());
            enable(&port, id, Interest::IN | Interest::HANGUP, ONE_SHOT_LEVEL);
            assert_quiet(&port, system);
            server.write(b"x").unwrap();
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
        }
    }

    // ---- rule 27 -------------------------------------------------------------------------------

    /// Rule 27.
    fn an_error_that_nobody_asked_about_is_told_once_at_each_enabling(system: &System) {
        for trigger in TRIGGERS {
            for before in [false, true] {
                let port = port_on(system);
                let (ours, theirs) = system.tcp_pair();
                let early = before.then(|| {
                    let id = register(&port, &ours, "ours", Interest::NONE, trigger);
                    assert_quiet(&port, system);
                    id
                });
                theirs.reset();
                await_facts(&ours, system, POLLERR);
                let id = early
                    .unwrap_or_else(|| register(&port, &ours, "ours", Interest::NONE, trigger));
                assert_eq!(report(&port, system), Events::ERR, "{trigger:?}");
                assert_quiet(&port, system);
                enable(&port, id, Interest::NONE, trigger);
                assert_eq!(report(&port, system), Events::ERR, "{trigger:?}");
                assert_quiet(&port, system);
            }
        }
    }

    /// Rule 27.
    fn a_hangup_that_nobody_asked_about_is_told_once_at_each_enabling(system: &System) {
        for trigger in TRIGGERS {
            for pair in [System::unix_pair as Pair, System::pipe] {
                let port = port_on(system);
                let (ours, theirs) = pair(system);
                let id = register(&port, &ours, "ours", Interest::NONE, trigger);
                assert_quiet(&port, system);
                drop(theirs);
                await_facts(&ours, system, POLLHUP);
                assert_eq!(report(&port, system), Events::HANGUP, "{trigger:?} {ours:?}");
                assert_quiet(&port, system);
                enable(&port, id, Interest::NONE, trigger);
                assert_eq!(report(&port, system), Events::HANGUP, "{trigger:?} {ours:?}");
                assert_quiet(&port, system);
            }
        }
    }

    /// Rule 27.
    fn an_error_that_stays_does_not_repeat_for_who_asked_for_something_else(system: &System) {
        // A pipe without a reader, to somebody who waits for data.
        let port = port_on(system);
        let (reader, writer) = system.pipe();
        let id = register(&port, &writer, "writer", Interest::IN, PERSISTENT_LEVEL);
        assert_quiet(&port, system);
        drop(reader);
        assert_eq!(report(&port, system), Events::ERR);
        assert_quiet(&port, system);
        enable(&port, id, Interest::IN, PERSISTENT_LEVEL);
        assert_eq!(report(&port, system), Events::ERR);
        assert_quiet(&port, system);
        // A datagram socket whose peer does not exist, likewise; and data is reported all the same.
        let port = port_on(system);
        let socket = system.udp_bound();
        socket.connect(&system.unused_address()).unwrap();
        register(&port, &socket, "socket", Interest::IN, PERSISTENT_LEVEL);
        socket.write(b"to nobody").unwrap();
        await_facts(&socket, system, POLLERR);
        assert_eq!(report(&port, system), Events::ERR);
        assert_quiet(&port, system);
        assert!(socket.take_error().unwrap().is_some());
        assert_quiet(&port, system);
    }

    /// Rule 27: to a registration that is not enabled in between: each error that comes after the
    /// last was fetched.
    fn a_later_error_is_told_again_to_who_asked_for_something_else(system: &System) {
        for trigger in [PERSISTENT_LEVEL, PERSISTENT_EDGE] {
            let port = port_on(system);
            let socket = system.udp_bound();
            socket.connect(&system.unused_address()).unwrap();
            register(&port, &socket, "socket", Interest::IN, trigger);
            for _ in 0..3 {
                socket.write(b"to nobody").unwrap();
                await_facts(&socket, system, POLLERR);
                assert_eq!(report(&port, system), Events::ERR, "{trigger:?}");
                assert_quiet(&port, system);
                assert!(socket.take_error().unwrap().is_some());
            }
        }
    }

    /// Rule 27.
    fn a_hangup_counts_as_in_and_out_as_far_as_they_were_requested(system: &System) {
        for (interest, expected) in [
            (Interest::IN, Events::IN),
            (Interest::OUT, Events::OUT),
            (Interest::IN | Interest::OUT, Events::IN | Events::OUT),
            (Interest::HANGUP, Events::HANGUP),
            (Interest::OUT | Interest::HANGUP, Events::OUT | Events::HANGUP),
        ] {
            for trigger in TRIGGERS {
                for pair in [System::unix_pair as Pair, System::pipe] {
                    let port = port_on(system);
                    let (ours, theirs) = pair(system);
                    drop(theirs);
                    await_facts(&ours, system, POLLHUP);
                    let id = register(&port, &ours, "ours", interest, trigger);
                    let what = format!("{interest:?} {trigger:?} {ours:?}");
                    assert_eq!(report(&port, system), expected, "{what}");
                    if trigger == PERSISTENT_LEVEL {
                        assert_eq!(report(&port, system), expected, "{what}");
                        port.disable(id).unwrap();
                    }
                    assert_quiet(&port, system);
                }
            }
        }
    }

    // ---- rule 28 -------------------------------------------------------------------------------

    /// Rule 28.
    fn readiness_is_raised_for_what_no_operation_took(system: &System) {
        for pair in READERS {
            let port = port_on(system);
            let (ours, theirs) = pair(system);
            register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
            theirs.write(b"four").unwrap();
            let held = ready(&port, system);
            assert_eq!(held.events(), Events::IN, "{ours:?}");
            // Nobody else has taken anything of it.
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 4);
            held.rearm().unwrap();
            assert_quiet(&port, system);
        }
    }
}

/// Rule 20: the simulated sockets cannot block.
#[test]
fn a_level_packet_is_true_enough_for_a_blocking_read_on_epoll() {
    testkit::run(System::native, |system| {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        ours.set_nonblocking(false).unwrap();
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        for _ in 0..3 {
            theirs.write(b"four").unwrap();
            for _ in 0..2 {
                let held = ready(&port, system);
                assert_eq!(ours.read(&mut [0; 2]).unwrap(), 2);
                held.rearm().unwrap();
            }
            // Drained without having met `WouldBlock`: a packet now would make the reader hang.
            assert_quiet(&port, system);
        }
    });
}

/// Takes what is reported of `socket`, by whatever trigger it was registered with, and calls `handle` each
/// time, until that says that it has everything.
fn serve<K: Clone>(port: &Port<K, u32>, on: &System, mut handle: impl FnMut(&K) -> bool) {
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

/// Sends a byte as urgent data.
fn send_urgent(socket: &Socket) {
    // SAFETY: send(2) reads so many bytes at the pointer.
    // - valid: it is a constant of that length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1, "{}", io::Error::last_os_error());
}

/// Rule 20: there is no urgent data in the simulated kernel.
#[test]
fn urgent_data_alone_is_no_condition_epoll() {
    testkit::run(System::native, |system| {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN | Interest::HANGUP, trigger);
            send_urgent(&theirs);
            assert_quiet(&port, system);
            enable(&port, id, Interest::IN | Interest::HANGUP, trigger);
            assert_quiet(&port, system);
            let mut byte = 0_u8;
            // SAFETY: recv(2) writes at most one byte at the pointer.
            // - valid for writes: `byte` is a local.
            let read =
                unsafe { libc::recv(ours.as_raw_fd(), (&raw mut byte).cast(), 1, libc::MSG_OOB) };
            assert_eq!((read, byte), (1, b'!'));
            enable(&port, id, Interest::IN | Interest::HANGUP, trigger);
            assert_quiet(&port, system);
            theirs.write(b"more").unwrap();
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
            assert_eq!(ours.drain(), 4);
            assert_quiet(&port, system);
        }
    });
}

/// Rule 20: a read stops at the mark; what is behind it is reported.
#[test]
fn what_is_around_an_urgent_mark_is_reported_epoll() {
    testkit::run(System::native, |system| {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            register(&port, &ours, "ours", Interest::IN, trigger);
            theirs.write(b"before").unwrap();
            send_urgent(&theirs);
            theirs.write(b"behind").unwrap();
            let drains = matches!(trigger, ONE_SHOT_EDGE | PERSISTENT_EDGE);
            let mut read = 0;
            serve(&port, system, |_| {
                // Short, though there is more.
                while let Ok(more) = ours.read(&mut [0; 64]) {
                    read += more;
                    if !drains {
                        break;
                    }
                }
                read == 12
            });
            assert_quiet(&port, system);
        }
    });
}

/// Rule 20: descriptors cannot be sent over simulated sockets.
#[test]
fn what_is_left_behind_a_sent_descriptor_is_reported_epoll() {
    testkit::run(System::native, |system| {
        for trigger in [ONE_SHOT_LEVEL, PERSISTENT_LEVEL] {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            register(&port, &ours, "ours", Interest::IN, trigger);
            for _ in 0..3 {
                theirs.write(b"before").unwrap();
                testkit::rights::send(&theirs, &ours);
                theirs.write(b"behind").unwrap();
            }
            let mut read = 0;
            serve(&port, system, |_| {
                // Stops before and behind each descriptor, which is thrown away.
                read += ours.read(&mut [0; 64]).unwrap();
                read >= 39
            });
            assert_quiet(&port, system);
        }
    });
}
