//! Rule 20: a level packet is true.

use std::net::Shutdown;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, Events, Interest, OneShot, Packet, Port, Registration};
use testkit::{Socket, System, on_edge_triggered_systems, on_every_system};

use crate::kit::packets::{
    ONE_SHOT_EDGE, ONE_SHOT_LEVEL, PERSISTENT_EDGE, PERSISTENT_LEVEL, TRIGGERS, Trigger,
    assert_quiet, each_packet, enable, port_on, ready, register, report, serve,
};
#[cfg(target_os = "linux")]
use crate::kit::sockets::send_urgent;
use crate::kit::sockets::{POLLIN, POLLRDHUP, READERS, STREAMS, await_facts, fill, make_room};
use crate::kit::threads::End;

on_every_system! {
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
                // More data arrives while the key is out, the kernel reports it, and it is read
                // too.
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
                // Data arrives and is read while the registration is disabled.
                port.disable(id).unwrap();
                theirs.write(b"x").unwrap();
                assert_quiet(&port, system);
                ours.drain();
                enable(&port, id, Interest::IN, ONE_SHOT_LEVEL);
                assert_quiet(&port, system);
                // Everything still works.
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
        // The next packet is pending, and is delivered only if it is still true.
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
            make_room(&ours, &theirs, system);
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
            make_room(&ours, &theirs, system);
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
        system.not_on_wine("event for an end of stream behind unread data");
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
                    // A short read: only the end remains.
                    assert_eq!(ours.read(&mut [0; 8]).unwrap(), 4);
                    held.read_drained();
                    held.rearm().unwrap();
                    assert_eq!(report(&port, system), end, "{interest:?} {trigger:?} {ours:?}");
                }
            }
        }
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
                    let mut buffer = [0; 8];
                    each_packet(&port, Batch::with_capacity(2), |packet| {
                            let Packet::Ready(mut held) = packet else { panic!("{packet:?}") };
                            let more = held.key().read(&mut buffer).unwrap();
                            if more < buffer.len() {
                                held.read_drained();
                            }
                            read.fetch_add(more, SeqCst);
                            // Refused once the port is closed.
                            let _ = held.rearm();
                    });
                });
            }
            let _closes = End::of(&port, []);
            let mut written = 0;
            for round in 0..3000 {
                let bytes = &b"0123456789"[..1 + round % 10];
                written += pairs[round % 3].1.write(bytes).unwrap();
                // From time to time the readers catch up and rest.
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

    /// Rule 20: the counters of a port and its threads begin shortly before they wrap. Reports are
    /// the same before, during and after the wrap.
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
                assert!(port.stats().polls >= ROUNDS as u64);
            }
        }
    }
}

/// Rule 20: simulated sockets can't block.
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
            // The data was drained without reaching `WouldBlock`. A packet now would make the
            // reader hang.
            assert_quiet(&port, system);
        }
    });
}

/// Rule 20: the simulated kernel has no urgent data.
#[cfg(target_os = "linux")]
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
                unsafe { libc::recv(ours.number(), (&raw mut byte).cast(), 1, libc::MSG_OOB) };
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

/// Rule 20: a read stops at the mark, and the data after it is reported.
#[cfg(target_os = "linux")]
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
                // The reads are short although there is more.
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

/// Rule 20: descriptors can't be sent over simulated sockets.
#[cfg(target_os = "linux")]
#[test]
fn what_is_left_behind_a_sent_descriptor_is_reported_epoll() {
    testkit::run(System::native, |system| {
        for trigger in [ONE_SHOT_LEVEL, PERSISTENT_LEVEL] {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            register(&port, &ours, "ours", Interest::IN, trigger);
            for _ in 0..3 {
                theirs.write(b"before").unwrap();
                testkit::rights::send(theirs.descriptor(), ours.descriptor());
                theirs.write(b"behind").unwrap();
            }
            let mut read = 0;
            serve(&port, system, |_| {
                // The read stops before and after each descriptor, which is discarded.
                read += ours.read(&mut [0; 64]).unwrap();
                read >= 39
            });
            assert_quiet(&port, system);
        }
    });
}

on_edge_triggered_systems! {
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
}
