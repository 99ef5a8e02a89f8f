//! Rule 12: `enable_also` requests one extra report, whatever state the registration is in.

use std::collections::VecDeque;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use completion_port::{
    Batch, Call, Changes, ErrorKind, Events, Interest, OneShot, Packet, Port, Registration,
};
use testkit::{Socket, System, on_every_system};

use crate::kit::packets::{
    ONE_SHOT_LEVEL, PERSISTENT_LEVEL, TRIGGERS, Trigger, assert_quiet, enable, leave_queued,
    packet, port_on, ready, register, removed, report,
};
use crate::kit::sockets::{POLLIN, await_facts, fill, make_room};

/// Takes packets until one reports room. Rearms one-shot registrations unchanged.
#[track_caller]
fn until_room<K, M>(port: &Port<K, M>, on: &System) {
    for _ in 0..4 {
        let events = match packet(port, on) {
            Packet::Ready(token) => {
                let events = token.events();
                token.rearm().unwrap();
                events
            }
            Packet::Notified(notified) => notified.events(),
            _ => panic!("a report of a socket was to come"),
        };
        if events.is_out() {
            return;
        }
    }
    panic!("room is not reported");
}

on_every_system! {
    /// Rule 12.
    fn what_is_asked_for_besides_is_reported_once_and_the_filter_stays(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN, trigger);
            for round in 0..3 {
                // Several requests before the packet count as one.
                port.enable_also(id, Interest::OUT).unwrap();
                port.enable_also(id, Interest::OUT).unwrap();
                until_room(&port, system);
                assert_quiet(&port, system);
                theirs.write(b"x").unwrap();
                match packet(&port, system) {
                    Packet::Ready(token) => {
                        assert_eq!(token.events(), Events::IN, "{trigger:?} {round}");
                        ours.drain();
                        token.rearm().unwrap();
                    }
                    Packet::Notified(notified) => {
                        assert_eq!(notified.events(), Events::IN, "{trigger:?} {round}");
                        ours.drain();
                    }
                    _ => panic!("a report of a socket was to come"),
                }
            }
        }
    }

    /// Rule 12.
    fn what_is_asked_for_and_does_not_hold_is_reported_when_it_does(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN, trigger);
            fill(&ours);
            port.enable_also(id, Interest::OUT).unwrap();
            assert_quiet(&port, system);
            make_room(&ours, &theirs, system);
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
        }
    }

    /// Rule 12.
    fn what_is_asked_for_while_the_key_is_out_is_reported_however_it_comes_back(system: &System) {
        for way in 0..5 {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
            theirs.write(b"x").unwrap();
            let mut token = ready(&port, system);
            ours.drain();
            port.enable_also(id, Interest::OUT).unwrap();
            assert_quiet(&port, system);
            // Disabling changes nothing while the key is out.
            port.disable(id).unwrap();
            match way {
                0 => token.rearm().unwrap(),
                1 => {
                    token.read_drained();
                    token.rearm().unwrap();
                }
                2 => token.rearm_as(Interest::HANGUP, OneShot::Edge).unwrap(),
                3 => assert_eq!(token.park().unwrap(), id),
                _ => {
                    fill(&ours);
                    token.write_full();
                    token.rearm().unwrap();
                    assert_quiet(&port, system);
                    make_room(&ours, &theirs, system);
                }
            }
            let token = ready(&port, system);
            assert_eq!((token.id(), token.events()), (id, Events::OUT), "way {way}");
            token.rearm_as(Interest::IN, OneShot::Level).unwrap();
            assert_quiet(&port, system);
            theirs.write(b"x").unwrap();
            assert_eq!(report(&port, system), Events::IN, "way {way}");
        }
    }

    /// Rule 12.
    fn what_was_asked_for_outlives_a_packet_that_does_not_report_it(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN, trigger);
            fill(&ours);
            port.enable_also(id, Interest::OUT).unwrap();
            theirs.write(b"x").unwrap();
            await_facts(&ours, system, POLLIN);
            match packet(&port, system) {
                Packet::Ready(token) => {
                    assert_eq!(token.events(), Events::IN);
                    ours.drain();
                    token.park().unwrap();
                }
                Packet::Notified(notified) => {
                    assert_eq!(notified.events(), Events::IN);
                    ours.drain();
                }
                _ => panic!("a report of a socket was to come"),
            }
            assert_quiet(&port, system);
            make_room(&ours, &theirs, system);
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
        }
    }

    /// Rule 12.
    fn what_is_asked_for_while_a_packet_is_queued_follows_at_once(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN, trigger);
            theirs.write(b"x").unwrap();
            leave_queued(&port, system, 1);
            port.enable_also(id, Interest::OUT).unwrap();
            until_room(&port, system);
        }
    }

    /// Rule 12.
    fn what_is_parked_or_disabled_is_enabled_for_what_is_asked_for(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN, trigger);
            port.disable(id).unwrap();
            theirs.write(b"x").unwrap();
            await_facts(&ours, system, POLLIN);
            // An empty request.
            port.enable_also(id, Interest::NONE).unwrap();
            assert_quiet(&port, system);
            port.enable_also(id, Interest::OUT).unwrap();
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            if let Trigger::Once(_) = trigger {
                // The registration is parked by now.
                port.enable_also(id, Interest::IN).unwrap();
                assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
                assert_quiet(&port, system);
            }
        }
    }

    /// Rule 12.
    fn what_was_asked_for_is_forgotten_by_disabling_and_by_nothing_else(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        fill(&ours);
        port.enable_also(id, Interest::OUT).unwrap();
        enable(&port, id, Interest::HANGUP, PERSISTENT_LEVEL);
        make_room(&ours, &theirs, system);
        assert_eq!(report(&port, system), Events::OUT);
        assert_quiet(&port, system);
        fill(&ours);
        port.enable_also(id, Interest::OUT).unwrap();
        port.disable(id).unwrap();
        enable(&port, id, Interest::HANGUP, PERSISTENT_LEVEL);
        make_room(&ours, &theirs, system);
        assert_quiet(&port, system);
    }

    /// Rule 12: the request also outlives a packet without a token.
    fn a_packet_without_a_token_leaves_what_it_does_not_report(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        let mut batch = Batch::new();
        let mut next = |time: Duration| {
            let packet = port.raw().wait_cloned(&mut batch, time).unwrap().next();
            packet.map(|packet| match packet {
                Packet::Notified(notified) => notified.events(),
                _ => panic!("a packet without a token was to come"),
            })
        };
        fill(&ours);
        theirs.write(b"x").unwrap();
        await_facts(&ours, system, POLLIN);
        port.enable_also(id, Interest::OUT).unwrap();
        assert_eq!(next(system.soon()), Some(Events::IN));
        assert_eq!(next(system.quiet()), None);
        make_room(&ours, &theirs, system);
        assert_eq!(next(system.soon()), Some(Events::OUT));
        assert_eq!(next(system.quiet()), None, "it is spent");
    }

    /// Rule 12.
    fn one_more_report_is_refused_of_what_has_ended(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        port.remove(id).unwrap();
        let error = port.enable_also(id, Interest::OUT).unwrap_err();
        assert_eq!((error.call(), error.kind()), (Call::Enable, ErrorKind::Removing));
        assert_eq!(removed(&port, system), (id, "ours"));
        let error = port.enable_also(id, Interest::OUT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotRegistered);

        // The key is out when its registration is removed.
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let token = ready(&port, system);
        port.enable_also(id, Interest::OUT).unwrap();
        port.remove(id).unwrap();
        let error = port.enable_also(id, Interest::OUT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Removing);
        token.rearm().unwrap();
        assert_eq!(removed(&port, system), (id, "ours"));

        let id = register(&port, &ours, "ours", Interest::HANGUP, ONE_SHOT_LEVEL);
        port.close();
        let error = port.enable_also(id, Interest::OUT).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed);
    }

    /// Rules 1 and 12.
    fn one_more_report_is_asked_for_by_a_change_too(system: &System) {
        let port = port_on(system);
        let (ours, _theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        let (mut changes, mut batch) = (Changes::new(), Batch::new());
        changes.enable_also(id, Interest::OUT);
        let mut packets = port.process(&mut changes, &mut batch, system.soon()).unwrap();
        let Some(Packet::Ready(token)) = packets.next() else { panic!("no packet") };
        assert_eq!((token.id(), token.events()), (id, Events::OUT));
        drop(packets);
        drop(token);
        changes.enable_also(id, Interest::OUT);
        assert_eq!(port.process(&mut changes, &mut batch, system.quiet()).unwrap().count(), 0);
        assert_eq!(changes.results()[0].unwrap_err().kind(), ErrorKind::NotRegistered);
    }

    /// Rule 12: a thread adds a message to a connection's queue and requests a report, at the
    /// moment when the connection's handler has found the queue empty and arms.
    fn what_is_queued_before_a_request_is_seen_by_the_next_handler(system: &System) {
        const MESSAGES: usize = 400;
        let port: Port<Socket, ()> = system.port(1);
        let (ours, theirs) = system.unix_pair();
        let id = port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
        let queue = Mutex::new(VecDeque::new());
        let (begins, ends) = (Barrier::new(2), Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                for message in 0..MESSAGES {
                    begins.wait();
                    for _ in 0..message * 50 % 997 {
                        std::hint::spin_loop();
                    }
                    queue.lock().unwrap().push_back(message);
                    port.enable_also(id, Interest::OUT).unwrap();
                    ends.wait();
                }
            });
            let mut expected = 0;
            for round in 0..MESSAGES {
                // The handler is busy and does not look at the queue again.
                theirs.write(b"x").unwrap();
                let mut token = ready(&port, system);
                begins.wait();
                while !token.events().is_in() {
                    expected += queue.lock().unwrap().drain(..).count();
                    token.rearm().unwrap();
                    token = ready(&port, system);
                }
                token.key_mut().drain();
                if round % 3 == 0 {
                    token.rearm().unwrap();
                } else if round % 3 == 1 {
                    token.rearm_as(Interest::IN, OneShot::Level).unwrap();
                } else {
                    token.park().unwrap();
                }
                ends.wait();
                while expected <= round {
                    let token = ready(&port, system);
                    assert!(token.events().is_out(), "{:?}", token.events());
                    expected += queue.lock().unwrap().drain(..).count();
                    token.rearm_as(Interest::IN, OneShot::Level).unwrap();
                }
            }
            assert_eq!(expected, MESSAGES);
        });
    }
}
