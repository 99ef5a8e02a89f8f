//! Rule 12: `again` returns the key for one more packet, whatever the kernel reports.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, ErrorKind, Events, Interest, OneShot, Packet, Port, Registration};
use testkit::on_every_system;

use crate::kit::packets::{
    ONE_SHOT_EDGE, ONE_SHOT_LEVEL, PERSISTENT_EDGE, PERSISTENT_LEVEL, assert_closed, assert_quiet,
    enable, given_back, one_shot, packet, port_on, ready, register, removed, report,
};
use crate::kit::sockets::{POLLIN, await_facts, fill};

on_every_system! {
    /// Rule 12.
    fn a_packet_follows_although_nothing_is_left_to_read(system: &System) {
        for trigger in [OneShot::Level, OneShot::Edge] {
            for hints in [false, true] {
                let port = port_on(system);
                let (ours, theirs) = system.tcp_pair();
                let id = port.register(Registration::new(&ours, "ours", Interest::IN, trigger)).unwrap();
                theirs.write(b"x").unwrap();
                let mut token = ready(&port, system);
                ours.drain();
                for _ in 0..3 {
                    if hints {
                        token.read_drained();
                    }
                    token.again().unwrap();
                    token = ready(&port, system);
                    assert_eq!((token.id(), token.events()), (id, Events::IN), "{trigger:?}");
                }
                // Then it is a registration like any other.
                token.rearm().unwrap();
                assert_quiet(&port, system);
                theirs.write(b"x").unwrap();
                assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
            }
        }
    }

    /// Rule 12.
    fn it_reports_the_directions_of_the_filter_or_in(system: &System) {
        let both = Interest::IN | Interest::OUT;
        for (interest, events) in [
            (Interest::OUT, Events::OUT),
            (both, Events::IN | Events::OUT),
            (both | Interest::HANGUP, Events::IN | Events::OUT),
            (Interest::HANGUP, Events::IN),
            (Interest::NONE, Events::IN),
        ] {
            let port = port_on(system);
            let (ours, _theirs) = system.tcp_pair();
            register(&port, &ours, "ours", Interest::OUT, ONE_SHOT_LEVEL);
            let token = ready(&port, system);
            // The deadline brings the token although nothing can be read or written.
            fill(&ours);
            token.rearm_as_until(interest, OneShot::Level, Duration::ZERO).unwrap();
            let token = ready(&port, system);
            assert_eq!(token.events(), Events::TIMED_OUT, "{interest:?}");
            token.again().unwrap();
            let token = ready(&port, system);
            assert_eq!(token.events(), events, "{interest:?}");
        }
    }

    /// Rule 12.
    fn a_new_association_gets_its_first_packet(system: &System) {
        let port = system.port::<_, ()>(1);
        let (ours, theirs) = system.tcp_pair();
        let token = port.associate(ours).unwrap();
        let id = token.id();
        token.again().unwrap();
        let token = ready(&port, system);
        assert_eq!((token.id(), token.events()), (id, Events::IN));
        token.rearm_as(Interest::IN, OneShot::Level).unwrap();
        theirs.write(b"x").unwrap();
        assert_eq!(ready(&port, system).events(), Events::IN);
    }

    /// Rule 12: everything that was queued before is taken first.
    fn all_others_have_their_turn_first(system: &System) {
        let port = port_on(system);
        let (first, first_peer) = system.tcp_pair();
        let (second, second_peer) = system.tcp_pair();
        register(&port, &first, "first", Interest::IN, ONE_SHOT_LEVEL);
        first_peer.write(b"x").unwrap();
        let token = ready(&port, system);
        first.drain();
        port.post(1).unwrap();
        token.again().unwrap();
        port.post(2).unwrap();
        assert!(matches!(packet(&port, system), Packet::Posted(1)));
        let first_token = ready(&port, system);
        assert_eq!(*first_token.key(), "first");
        assert!(matches!(packet(&port, system), Packet::Posted(2)));
        // Two handlers that never stop take turns.
        register(&port, &second, "second", Interest::IN, ONE_SHOT_EDGE);
        second_peer.write(b"x").unwrap();
        let token = ready(&port, system);
        first_token.again().unwrap();
        token.again().unwrap();
        for round in 0..10 {
            for expected in ["first", "second"] {
                let token = ready(&port, system);
                assert_eq!(*token.key(), expected, "{round}");
                token.again().unwrap();
            }
        }
    }

    /// Rule 12.
    fn it_reaches_a_thread_that_waits(system: &System) {
        for is_owned in [false, true] {
            let port: Arc<Port<&str>> = Arc::new(system.port(2));
            let (ours, theirs) = system.tcp_pair();
            port.register(one_shot(&ours, "ours")).unwrap();
            theirs.write(b"x").unwrap();
            let token = ready(&port, system);
            ours.drain();
            thread::scope(|scope| {
                let other = scope.spawn(|| {
                    let mut batch = Batch::new();
                    let packet = port.wait(&mut batch, None).unwrap().next();
                    let Some(Packet::Ready(token)) = packet else { panic!("it was to report") };
                    token.events()
                });
                if is_owned {
                    let token = token.with_port(&port).map_err(drop).unwrap();
                    // A thread that is not at the port.
                    thread::spawn(move || token.again().unwrap()).join().unwrap();
                    assert_eq!(other.join().unwrap(), Events::IN);
                } else {
                    // This thread would take it itself, but blocks.
                    token.again().unwrap();
                    let events = port.blocking(|| other.join());
                    assert_eq!(events.unwrap(), Events::IN);
                }
            });
        }
    }

    /// Rule 12.
    fn enabling_changes_the_filter_of_the_packet_and_keeps_it(system: &System) {
        for trigger in [ONE_SHOT_LEVEL, ONE_SHOT_EDGE, PERSISTENT_LEVEL, PERSISTENT_EDGE] {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
            theirs.write(b"x").unwrap();
            let token = ready(&port, system);
            ours.drain();
            fill(&ours);
            token.again().unwrap();
            enable(&port, id, Interest::OUT, trigger);
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            // It comes once, whatever the trigger.
            assert_quiet(&port, system);
        }
    }

    /// Rule 12: `enable_also` meets a handler that asks for one packet after another.
    fn an_additional_request_comes_with_it(system: &System) {
        for is_first in [false, true] {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
            theirs.write(b"x").unwrap();
            let token = ready(&port, system);
            ours.drain();
            if is_first {
                port.enable_also(id, Interest::OUT).unwrap();
                token.again().unwrap();
            } else {
                token.again().unwrap();
                port.enable_also(id, Interest::OUT).unwrap();
            }
            let token = ready(&port, system);
            assert_eq!(token.events(), Events::IN | Events::OUT);
            token.again().unwrap();
            let token = ready(&port, system);
            assert_eq!(token.events(), Events::IN, "the request is reported once");
            token.rearm().unwrap();
            assert_quiet(&port, system);
        }
    }

    /// Rule 12: it hides neither an end nor an error.
    fn what_it_does_not_report_is_reported_at_the_next_arming(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let interest = Interest::IN | Interest::HANGUP;
        register(&port, &ours, "ours", interest, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let token = ready(&port, system);
        ours.drain();
        theirs.shutdown(std::net::Shutdown::Write).unwrap();
        await_facts(&ours, system, POLLIN);
        token.again().unwrap();
        let token = ready(&port, system);
        assert!(token.events().is_in() || token.events().is_hangup());
        token.rearm().unwrap();
        assert_eq!(report(&port, system), Events::HANGUP);
    }

    /// Rule 13.
    fn disabling_drops_it_for_good(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let token = ready(&port, system);
        ours.drain();
        token.again().unwrap();
        port.disable(id).unwrap();
        enable(&port, id, Interest::IN, ONE_SHOT_LEVEL);
        assert_quiet(&port, system);
        theirs.write(b"x").unwrap();
        assert_eq!(report(&port, system), Events::IN);
    }

    /// Rule 14: the removal's packet takes its place.
    fn a_removal_takes_its_place(system: &System) {
        for is_first in [false, true] {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
            theirs.write(b"x").unwrap();
            let token = ready(&port, system);
            if is_first {
                port.remove(id).unwrap();
                token.again().unwrap();
            } else {
                token.again().unwrap();
                port.remove(id).unwrap();
            }
            port.post(7).unwrap();
            assert_eq!(removed(&port, system), (id, "ours"));
            assert!(matches!(packet(&port, system), Packet::Posted(7)));
            assert_quiet(&port, system);
        }
        // And a thread that waits for the key gets it.
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        ready(&port, system).again().unwrap();
        assert_eq!(port.remove_and_wait(id, None).unwrap(), "ours");
        assert_quiet(&port, system);
    }

    /// Rule 31.
    fn a_port_that_ends_gives_the_key_back(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let token = ready(&port, system);
        port.shutdown().unwrap();
        token.again().unwrap();
        assert_eq!(removed(&port, system), (id, "ours"));
        assert_closed(&port, system);

        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let (others, theirs_too) = system.tcp_pair();
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let queued = ready(&port, system);
        register(&port, &others, "others", Interest::IN, ONE_SHOT_LEVEL);
        theirs_too.write(b"x").unwrap();
        let refused = ready(&port, system);
        queued.again().unwrap();
        port.close();
        // What was queued is handed out. What comes later is refused.
        assert_eq!(given_back(refused.again()), (ErrorKind::Closed, "others"));
        let token = ready(&port, system);
        assert_eq!(token.events(), Events::IN);
        assert_eq!(given_back(token.again()), (ErrorKind::Closed, "ours"));
        assert_closed(&port, system);
    }

    /// Rule 61.
    fn the_deadline_of_the_arming_before_ends(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let token = ready(&port, system);
        token.rearm_until(Duration::from_millis(1)).unwrap();
        let token = ready(&port, system);
        ours.drain();
        token.again().unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2) {
            thread::yield_now();
        }
        let token = ready(&port, system);
        assert_eq!(token.events(), Events::IN);
        token.rearm().unwrap();
        assert_quiet(&port, system);
    }

    /// Rule 61: neither one hides the other.
    fn a_deadline_after_it_is_told(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        theirs.write(b"x").unwrap();
        let token = ready(&port, system);
        ours.drain();
        token.again().unwrap();
        let token = ready(&port, system);
        token.rearm_until(Duration::from_millis(1)).unwrap();
        let token = ready(&port, system);
        assert_eq!(token.events(), Events::TIMED_OUT);
        token.again().unwrap();
        assert_eq!(report(&port, system), Events::IN);
    }

    /// Rule 50: a key that owns another descriptor by now is refused.
    fn another_descriptor_is_refused(system: &System) {
        let port = system.port::<_, ()>(1);
        let (ours, theirs) = system.tcp_pair();
        let (others, _theirs_too) = system.tcp_pair();
        port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
        theirs.write(b"x").unwrap();
        let mut token = ready(&port, system);
        let before = std::mem::replace(token.key_mut(), others);
        let (why, key) = given_back(token.again());
        assert_eq!(why, ErrorKind::BadDescriptor);
        drop((before, key));
        assert_eq!(port.stats().registered, 0);
    }
}
