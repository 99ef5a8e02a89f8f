//! Rule 16: what can be registered.

use std::io;
use std::net::Shutdown;
use std::time::Duration;

use completion_port::{
    Batch, BorrowedSource, Changes, ErrorKind, Events, Interest, OneShot, Port, Registration,
    Source,
};
use testkit::{Socket, System, on_every_system};

use crate::kit::codes::{EEXIST, ENOMEM, ENOSPC, bad_descriptor, not_pollable};
use crate::kit::descriptors::closed;
use crate::kit::packets::{
    ONE_SHOT_LEVEL, TRIGGERS, assert_quiet, enable, port_on, ready, register, report,
};
use crate::kit::sockets::READERS;

/// Returns a registration of a key that owns its descriptor.
fn owner(socket: Socket) -> Registration<'static, Socket> {
    Registration::owned(socket, Interest::IN, OneShot::Level)
}

/// Returns a counter on each of two systems, with the same number. The third value keeps the lower
/// numbers in use.
fn of_one_number(here: &System, there: &System) -> (Socket, Socket, Vec<Socket>) {
    let (mut first, mut second) = (here.event(), there.event());
    let mut below = Vec::new();
    while first.number() != second.number() {
        let (lower, on) = if first.number() < second.number() {
            (&mut first, here)
        } else {
            (&mut second, there)
        };
        below.push(std::mem::replace(lower, on.event()));
    }
    (first, second, below)
}

on_every_system! {
    /// Rule 16.
    fn a_socket_may_be_of_any_kind_and_in_any_state(system: &System) {
        for trigger in TRIGGERS {
            let (tcp, peer) = system.tcp_pair();
            let (unix, _unix_peer) = system.unix_pair();
            let (datagrams, _datagrams_peer) = system.unix_datagram_pair();
            let (connected, _connected_peer) = system.udp_pair();
            let (reader, writer) = system.pipe();
            let half = system.tcp_pair();
            half.0.shutdown(Shutdown::Write).unwrap();
            let sockets = [
                tcp,
                unix,
                datagrams,
                connected,
                reader,
                writer,
                half.0,
                system.tcp_fresh(),
                system.unix_fresh(),
                system.udp_bound(),
                system.tcp_listener(1),
                system.unix_listener(1),
                system.tcp_connect_refused(),
                system.event(),
            ];
            let port = port_on(system);
            let mut ids = Vec::new();
            for socket in &sockets {
                ids.push(register(&port, socket, "socket", Interest::ALL, trigger));
            }
            assert_eq!(port.stats().registered, sockets.len());
            for id in &ids {
                port.disable(*id).unwrap();
            }
            assert_quiet(&port, system);
            // The connected one still works.
            enable(&port, ids[0], Interest::IN, ONE_SHOT_LEVEL);
            peer.write(b"x").unwrap();
            assert_eq!(report(&port, system), Events::IN);
            assert_quiet(&port, system);
        }
    }

    /// Rule 16.
    fn pipes_and_counters_are_welcome(system: &System) {
        let port = port_on(system);
        let (reader, writer) = system.pipe();
        let event = system.event();
        register(&port, &reader, "reader", Interest::IN, ONE_SHOT_LEVEL);
        register(&port, &writer, "writer", Interest::OUT, ONE_SHOT_LEVEL);
        register(&port, &event, "event", Interest::IN, ONE_SHOT_LEVEL);
        assert_eq!(*ready(&port, system).key(), "writer");
        assert_quiet(&port, system);
        writer.write(b"x").unwrap();
        let held = ready(&port, system);
        assert_eq!((*held.key(), held.events()), ("reader", Events::IN));
        event.signal(3).unwrap();
        let held = ready(&port, system);
        assert_eq!((*held.key(), held.events()), ("event", Events::IN));
        assert_quiet(&port, system);
    }

    /// Rule 16.
    fn a_key_may_own_its_descriptor(system: &System) {
        for pair in READERS {
            let port: Port<Socket, u32> = system.port(1);
            let (ours, theirs) = pair(system);
            let number = ours.number();
            let open = system.open_sockets();
            port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
            theirs.write(b"four").unwrap();
            let mut held = ready(&port, system);
            assert_eq!(held.key().number(), number);
            assert_eq!(held.key_mut().drain(), 4);
            held.rearm().unwrap();
            assert_quiet(&port, system);
            theirs.write(b"x").unwrap();
            drop(ready(&port, system));
            assert_eq!(system.open_sockets(), open - 1, "dropping the token closes it");
        }
    }

    /// Rule 16.
    fn what_cannot_be_watched_is_refused(system: &System) {
        let port = port_on(system);
        let file = system.regular_file();
        for trigger in [OneShot::Level, OneShot::Edge] {
            let new = Registration::new(&file, "file", Interest::IN, trigger);
            let (error, key) = port.register(new).unwrap_err().into_parts();
            assert_eq!((error.kind(), key), (ErrorKind::NotPollable, "file"));
            assert_eq!(error.os_code(), Some(not_pollable(system)));
        }
        assert_eq!(port.stats().registered, 0);
        assert_quiet(&port, system);
    }

    /// Rule 16.
    fn a_closed_descriptor_is_refused(system: &System) {
        let port = port_on(system);
        let number = closed(system);
        let new = Registration::new(&number, "closed", Interest::IN, OneShot::Level);
        let (error, key) = port.register(new).unwrap_err().into_parts();
        assert_eq!((error.kind(), key), (ErrorKind::BadDescriptor, "closed"));
        assert_eq!(error.os_code(), Some(bad_descriptor(system)));
        assert_eq!(port.stats().registered, 0);
        assert_quiet(&port, system);
        // A refusal leaves the port unchanged.
        let event = system.event();
        register(&port, &event, "event", Interest::IN, ONE_SHOT_LEVEL);
        event.signal(1).unwrap();
        assert_eq!(*ready(&port, system).key(), "event");
    }

    /// Rules 16 and 29: it is refused even if its number is that of a registered descriptor.
    fn a_source_of_another_kernel_is_refused(system: &System) {
        for other in [System::native(), System::simulated()] {
            if other.kernel().is_none() && system.kernel().is_none() {
                continue;
            }
            let (ours, foreign, _below) = of_one_number(system, &other);
            let number = ours.number();
            let port = system.port::<Socket, ()>(1);
            ours.signal(1).unwrap();
            port.register(owner(ours)).unwrap();

            let (error, foreign) = port.register(owner(foreign)).unwrap_err().into_parts();
            assert_eq!((error.kind(), error.os_code()), (ErrorKind::WrongKernel, None));
            assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
            assert_eq!((port.id_of(&foreign), port.stats().registered), (None, 1));
            let mut changes = Changes::new();
            changes.register(owner(foreign));
            drop(port.process(&mut changes, &mut Batch::new(), Duration::ZERO).unwrap());
            let (error, foreign) = changes.refused().next().unwrap().into_parts();
            assert_eq!(error.kind(), ErrorKind::WrongKernel);
            let foreign = foreign.unwrap();

            // A key that now owns a descriptor of another kernel has lost its own.
            let mut held = ready(&port, system);
            let ours = std::mem::replace(held.key_mut(), foreign);
            let (error, foreign) = held.rearm().unwrap_err().into_parts();
            assert_eq!((error.kind(), foreign.number()), (ErrorKind::BadDescriptor, number));
            assert_eq!(port.stats().registered, 0);

            // Neither was affected: each can be registered on a port of its own kernel.
            port.register(owner(ours)).unwrap();
            other.port::<Socket, ()>(1).register(owner(foreign)).unwrap();
            port.close();
            let refused = port.register(owner(other.event())).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Closed);
        }
    }

    /// Rule 16.
    fn an_error_keeps_the_code_of_the_system_and_its_kind(system: &System) {
        let (port, other) = (port_on(system), port_on(system));
        let (file, number) = (system.regular_file(), closed(system));
        let event = system.event();
        register(&port, &event, "event", Interest::IN, ONE_SHOT_LEVEL);
        let refused = |port: &Port<_, _>, source: BorrowedSource<'_>| -> io::Error {
            let new = Registration::new(&source, "new", Interest::IN, OneShot::Level);
            port.register(new).unwrap_err().into()
        };
        for (source, code) in [
            (file.as_source(), not_pollable(system)),
            (number.as_source(), bad_descriptor(system)),
            (event.as_source(), EEXIST),
        ] {
            // Windows has no separate code for a descriptor that is already registered.
            if code == EEXIST && cfg!(windows) && system.kernel().is_none() {
                let new = Registration::new(&source, "new", Interest::IN, OneShot::Level);
                let refused = port.register(new).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::AlreadyRegistered);
                continue;
            }
            let error = refused(&port, source);
            assert_eq!(error.raw_os_error(), Some(code));
            assert_eq!(error.kind(), io::Error::from_raw_os_error(code).kind());
        }
        // Where the system reported no code, the `io::Error` has a kind, and contains the whole
        // error.
        let error = refused(&other, event.as_source());
        assert_eq!((error.kind(), error.raw_os_error()), (io::ErrorKind::AlreadyExists, None));
        let within = error.get_ref().unwrap().downcast_ref::<completion_port::Error>().unwrap();
        assert!(within.is_on_another_port());
    }
}

/// Rule 16: a real kernel can't run out of watches or memory without harming other processes.
#[test]
fn a_lack_of_watches_or_memory_is_told_and_may_pass_on_sim() {
    testkit::run(System::simulated, |system| {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        theirs.write(b"x").unwrap();
        for (kind, code) in [(ErrorKind::WatchLimit, ENOSPC), (ErrorKind::OutOfMemory, ENOMEM)] {
            system.kernel().unwrap().fail_next_attach(kind);
            let new = Registration::new(&ours, "ours", Interest::IN, OneShot::Level);
            let (error, key) = port.register(new).unwrap_err().into_parts();
            assert_eq!((error.kind(), error.os_code(), key), (kind, Some(code), "ours"));
            assert_eq!(port.stats().registered, 0);
            assert_quiet(&port, system);
        }
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        assert_eq!(report(&port, system), Events::IN);
    });
}
