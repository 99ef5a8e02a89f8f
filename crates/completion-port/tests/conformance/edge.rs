//! Rule 21: no rising edge is lost.

use std::net::Shutdown;
use std::thread;

use completion_port::{Batch, Events, Interest, OneShot, Packet, Port};
use testkit::{Socket, System, on_edge_triggered_systems, on_every_system};

use crate::kit::packets::{
    ONE_SHOT_EDGE, ONE_SHOT_LEVEL, PERSISTENT_EDGE, PERSISTENT_LEVEL, TRIGGERS, Trigger,
    assert_quiet, enable, leave_queued, notified, packet, port_on, ready, register, report,
};
#[cfg(target_os = "linux")]
use crate::kit::sockets::send_urgent;
use crate::kit::sockets::{
    POLLIN, POLLRDHUP, READERS, STREAMS, await_facts, await_unread, fill, make_room,
};

/// Rule 21: the simulated kernel has no urgent data.
#[cfg(target_os = "linux")]
#[test]
fn a_short_read_at_an_urgent_mark_drains_nothing_epoll() {
    testkit::run(System::native, |system| {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN | Interest::HANGUP, PERSISTENT_EDGE);
        theirs.write(b"before").unwrap();
        send_urgent(&theirs);
        theirs.write(b"behind").unwrap();
        while !report(&port, system).is_in() {}
        // The system counts up to the mark.
        await_unread(&ours, system, 6);
        read_shortly(&ours, b"before");
        assert!(!port.is_drained_by_short_read(id));
        let mut behind = 0;
        while behind < 6 {
            behind += ours.read(&mut [0; 64]).unwrap_or(0);
        }
    });
}

on_every_system! {
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
        system.not_by_polls("edge trigger that reports undrained data only once");
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
            make_room(&ours, &theirs, system);
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
                // This polls the kernel and leaves the packet in the queue.
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

    /// Rule 21: a handler that has read the request now asks for room to answer. There was room all
    /// the time, whatever was known of it before, and however often the kernel was asked about the
    /// rest.
    fn an_edge_that_nobody_asked_about_is_reported_to_who_asks_later(system: &System) {
        system.not_on_wine("event for an end of stream behind unread data");
        for trigger in TRIGGERS {
            for pair in STREAMS {
                for checks in [0, 1, 2] {
                    let port = port_on(system);
                    let (ours, theirs) = pair(system);
                    let id = register(&port, &ours, "ours", Interest::IN, trigger);
                    for _ in 0..=checks {
                        theirs.write(b"question").unwrap();
                        if checks == 2 {
                            // Ends and errors are checked before they are reported.
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

    /// Rule 21: a reader that drains to `WouldBlock` after every packet leaves nothing unread.
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
                // Some data remains unread, and room is requested too.
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
}

/// Reads with more room than there are bytes.
fn read_shortly(ours: &Socket, expected: &[u8]) {
    let mut buffer = [0; 64];
    let read = ours.read(&mut buffer).unwrap();
    assert_eq!(&buffer[..read], expected);
}

on_edge_triggered_systems! {
    /// Rule 21.
    fn a_short_read_drains_a_stream_until_its_end_is_reported(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let filter = Interest::IN | Interest::HANGUP;
        let id = register(&port, &ours, "ours", filter, PERSISTENT_EDGE);
        for _ in 0..3 {
            theirs.write(b"four").unwrap();
            assert_eq!(report(&port, system), Events::IN);
            read_shortly(&ours, b"four");
            assert!(port.is_drained_by_short_read(id));
            assert_quiet(&port, system);
        }
        assert!(!port_on(system).is_drained_by_short_read(id), "the other port has no such name");
        theirs.write(b"last").unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        await_facts(&ours, system, POLLRDHUP);
        let mut events = Events::NONE;
        while !events.is_hangup() {
            events |= report(&port, system);
        }
        read_shortly(&ours, b"last");
        assert!(!port.is_drained_by_short_read(id));
        read_shortly(&ours, b"");
        let _ = port.remove_now(id).unwrap();
        assert!(!port.is_drained_by_short_read(id));
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
            // With a hint, the kernel isn't asked: the remaining data is reported when more
            // arrives.
            let mut token = ready(&port, system);
            token.read_drained();
            token.rearm().unwrap();
            assert_quiet(&port, system);
            theirs.write(b"d").unwrap();
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
        }
    }
}
