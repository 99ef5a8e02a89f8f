//! Rules 23, 26 and 28: data to read, room to write, and fresh streams.

use std::io;

use completion_port::{Events, Interest};
use testkit::{System, on_every_system};

use crate::kit::packets::{
    ONE_SHOT_EDGE, ONE_SHOT_LEVEL, PERSISTENT_EDGE, PERSISTENT_LEVEL, TRIGGERS, assert_quiet,
    enable, port_on, ready, register, report, serve,
};
use crate::kit::sockets::{
    POLLHUP, POLLIN, POLLOUT, Pair, READERS, STREAMS, await_facts, facts, fill, make_room,
};

on_every_system! {
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

    /// Rule 23: on a real system, a client that exceeds the backlog may believe that it is
    /// connected. The listener gets the connection once the client sends.
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
                make_room(&ours, &theirs, system);
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
            // Registered after the connect.
            let client = system.tcp_connect(&listener);
            let port = port_on(system);
            register(&port, &client, "client", Interest::ALL, trigger);
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
            client.write(b"x").unwrap();
        }
    }

    /// Rule 23.
    fn only_what_is_asked_for_is_reported(system: &System) {
        system.not_by_polls("edge trigger that reports undrained data only once");
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
            // Not hung up and not readable, though it looked so before it was connected.
            enable(&port, id, Interest::IN | Interest::HANGUP, trigger);
            assert_quiet(&port, system);
            server.write(b"x").unwrap();
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
        }
    }

    /// Rule 26.
    fn after_a_refused_connect_a_stream_is_fresh_again_and_may_connect(system: &System) {
        system.not_by_notifications("sockets that may connect again after a refusal");
        system.not_on_windows("sockets that may connect again after a refusal");
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
            // The system reports once more that the last attempt failed.
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
        system.not_by_notifications("AF_UNIX clients whose connect has no event");
        system.not_by_kqueue("AF_UNIX clients whose connect has no event");
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
            // No other thread has taken any of it.
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 4);
            held.rearm().unwrap();
            assert_quiet(&port, system);
        }
    }
}
