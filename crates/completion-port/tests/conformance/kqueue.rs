//! How ports behave differently on a kqueue.

use std::sync::mpsc;
use std::thread;

use completion_port::{Batch, Events, Interest, Packet, Persistent, Registration};
use testkit::on_kqueue_systems;

use crate::kit::packets::{
    ONE_SHOT_LEVEL, TRIGGERS, assert_quiet, enable, port_on, register, report, the_one,
};
use crate::kit::sockets::fill;
use crate::kit::threads::{End, hear, settle};

on_kqueue_systems! {
    /// Rule 30: the kernel forgets a number when it is closed, whether or not there are duplicates.
    fn a_duplicate_of_a_closed_descriptor_is_not_watched(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.unix_pair();
            register(&port, &ours, "ours", Interest::IN, trigger);
            let duplicate = ours.dup().unwrap();
            drop(ours);
            theirs.write(b"x").unwrap();
            assert_quiet(&port, system);
            // Another registration of the same socket is independent of it.
            register(&port, &duplicate, "duplicate", Interest::IN, trigger);
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
        }
    }

    /// Rule 30: checking whether a number still names the registered descriptor makes no report.
    fn what_was_asked_about_is_not_reported_again(system: &System) {
        let port = system.port::<&str, ()>(1);
        let (ours, theirs) = system.unix_pair();
        let both = Interest::IN | Interest::OUT;
        port.register(Registration::new(&ours, "key", both, Persistent::Edge)).unwrap();
        for expected in [Events::OUT, Events::IN] {
            let Packet::Notified(notified) = the_one(&port, system) else { panic!("persistent") };
            assert!(notified.events().contains(expected));
            let refused = port.register(Registration::new(&ours, "key", both, Persistent::Edge));
            refused.unwrap_err();
            assert_quiet(&port, system);
            theirs.write(b"x").unwrap();
        }
    }

    /// Rule 26: the client of an AF_UNIX stream gets a report of its connect.
    fn a_unix_client_is_reported_when_it_has_connected(system: &System) {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let listener = system.unix_listener(4);
            let client = system.unix_fresh();
            let id = register(&port, &client, "client", Interest::ALL, trigger);
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

    /// Rule 23: data does not wake a registration for OUT, but an end does.
    fn data_wakes_no_thread_that_waits_for_room(system: &System) {
        system.several_threads_wait();
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        fill(&ours);
        register(&port, &ours, "ours", Interest::OUT, ONE_SHOT_LEVEL);
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            scope.spawn(|| {
                let mut batch = Batch::new();
                let Some(Packet::Ready(token)) = port.wait(&mut batch, None).unwrap().next() else {
                    panic!("no message was posted");
                };
                say.send(token.events()).unwrap();
            });
            settle(system, &port, 1);
            let before = port.stats().polls;
            theirs.write(b"x").unwrap();
            settle(system, &port, 1);
            assert_eq!(port.stats().polls, before);
            theirs.reset();
            assert!(hear(system, &heard, "the connection is reset").is_err());
        });
    }

    /// Rule 24: the report shows which end of a pipe has lost the other end.
    fn the_ends_of_a_pipe_are_told_apart(system: &System) {
        let port = port_on(system);
        let (reader, writer) = system.pipe();
        writer.write(b"x").unwrap();
        drop(writer);
        register(&port, &reader, "reader", Interest::ALL, ONE_SHOT_LEVEL);
        assert_eq!(report(&port, system), Events::IN | Events::OUT | Events::HANGUP);
        let (reader, writer) = system.pipe();
        drop(reader);
        let port = port_on(system);
        register(&port, &writer, "writer", Interest::ALL, ONE_SHOT_LEVEL);
        assert_eq!(report(&port, system), Events::OUT | Events::ERR);
    }
}
