//! Rules 25 and 27: errors, and unrequested hang-ups.

use std::io;

use completion_port::{Events, Interest};
#[cfg(target_os = "linux")]
use completion_port::{OneShot, Registration};
use testkit::{System, on_edge_triggered_systems, on_every_system};

use crate::kit::codes::unreachable;
use crate::kit::packets::{
    ONE_SHOT_LEVEL, PERSISTENT_EDGE, PERSISTENT_LEVEL, TRIGGERS, assert_quiet, enable, port_on,
    register, report,
};
use crate::kit::sockets::{POLLERR, POLLHUP, Pair, STREAMS, await_facts};

on_every_system! {
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
        system.not_on_windows("way to get a reset's error except by a read");
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
    fn a_reset_of_a_connection_that_was_never_seen_alive_is_no_refused_connect(system: &System) {
        system.not_on_windows("way to get a reset's error except by a read");
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            theirs.reset();
            await_facts(&ours, system, POLLERR);
            let id = register(&port, &ours, "ours", Interest::OUT, trigger);
            assert_eq!(report(&port, system), Events::OUT | Events::ERR, "{trigger:?}");
            assert!(ours.take_error().unwrap().is_some());
            enable(&port, id, Interest::OUT, trigger);
            assert_eq!(report(&port, system), Events::OUT, "{trigger:?}");
        }
    }

    /// Rule 25: the connection was idle, and its registration had not requested OUT.
    fn a_reset_of_an_idle_connection_is_out_for_one_that_asks_then(system: &System) {
        for trigger in TRIGGERS {
            for pair in STREAMS {
                let port = port_on(system);
                let (ours, theirs) = pair(system);
                let id = register(&port, &ours, "ours", Interest::NONE, trigger);
                assert_quiet(&port, system);
                // Data that was sent and not read turns the close of an AF_UNIX socket into a
                // reset.
                ours.write(b"unread").unwrap();
                theirs.reset();
                await_facts(&ours, system, POLLERR);
                assert_eq!(report(&port, system), Events::ERR, "{trigger:?} {ours:?}");
                enable(&port, id, Interest::OUT, trigger);
                let events = report(&port, system);
                assert_eq!(events, Events::OUT | Events::ERR, "{trigger:?} {ours:?}");
            }
        }
    }

    /// Rule 25.
    fn errors_are_reported_whatever_was_asked_for(system: &System) {
        system.not_on_wine("socket error left after its driver has read it");
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

    /// Rule 25. Windows reports it as something to receive.
    fn the_error_of_a_datagram_socket_is_fetched_by_a_read_and_then_over(system: &System) {
        system.not_on_wine("event for an error of a datagram socket");
        let (interest, told) = if cfg!(windows) && system.kernel().is_none() {
            (Interest::IN, Events::IN)
        } else {
            (Interest::NONE, Events::ERR)
        };
        let expected = io::Error::from_raw_os_error(unreachable(system)).kind();
        for trigger in [ONE_SHOT_LEVEL, PERSISTENT_LEVEL] {
            let port = port_on(system);
            let socket = system.udp_bound();
            socket.connect(&system.unused_address()).unwrap();
            let id = register(&port, &socket, "socket", interest, trigger);
            assert_quiet(&port, system);
            socket.write(b"to nobody").unwrap();
            assert_eq!(report(&port, system), told, "{trigger:?}");
            assert_eq!(socket.read(&mut [0]).unwrap_err().kind(), expected);
            enable(&port, id, interest, trigger);
            assert_quiet(&port, system);
            socket.write(b"again").unwrap();
            assert_eq!(report(&port, system), told, "{trigger:?}");
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
        system.not_by_notifications("event for a stream that is shut in both directions");
        system.not_on_windows("event for a stream that is shut in both directions");
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
        // A pipe without a reader, whose registration waits for data.
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
        // A datagram socket whose peer does not exist. Data is still reported.
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

    /// Rule 27.
    fn a_hangup_counts_as_in_and_out_as_far_as_they_were_requested(system: &System) {
        system.not_by_notifications("event for a stream that is shut in both directions");
        system.not_on_windows("event for a stream that is shut in both directions");
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
}

on_edge_triggered_systems! {
    /// Rules 25 and 27: without being enabled in between, a registration reports each error that
    /// comes after the last one was fetched, whatever it requested, even nothing.
    fn a_later_error_is_told_again_to_who_asked_for_something_else(system: &System) {
        for trigger in [PERSISTENT_LEVEL, PERSISTENT_EDGE] {
            for interest in [Interest::IN, Interest::HANGUP, Interest::NONE] {
                let port = port_on(system);
                let socket = system.udp_bound();
                socket.connect(&system.unused_address()).unwrap();
                register(&port, &socket, "socket", interest, trigger);
                for _ in 0..3 {
                    socket.write(b"to nobody").unwrap();
                    await_facts(&socket, system, POLLERR);
                    assert_eq!(report(&port, system), Events::ERR, "{trigger:?} {interest:?}");
                    assert_quiet(&port, system);
                    assert!(socket.take_error().unwrap().is_some());
                    assert_quiet(&port, system);
                }
            }
        }
    }
}

/// Takes an entry from a socket's error queue. Returns false if there is none.
#[cfg(target_os = "linux")]
fn read_error_queue(socket: &std::net::UdpSocket) -> bool {
    use std::os::fd::AsRawFd;
    let mut room = [0_u64; 64];
    // SAFETY: `assume_init` requires a valid value.
    // - a `msghdr` has only integers and pointers, for which all zero bits are valid.
    let mut message: libc::msghdr = unsafe { std::mem::MaybeUninit::zeroed().assume_init() };
    message.msg_control = room.as_mut_ptr().cast();
    #[allow(clippy::useless_conversion, reason = "it has another type in another C library")]
    {
        message.msg_controllen = size_of_val(&room).try_into().unwrap();
    }
    // SAFETY: recvmsg(2) writes to the message, and up to the given lengths at its pointers.
    // - valid for writes: both are locals, and the length is that of `room`.
    let came = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE) };
    came >= 0
}

/// Rules 25 and 27.
#[cfg(target_os = "linux")]
#[test]
fn an_error_queue_is_an_error_until_it_is_read_on_epoll() {
    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;
    for make in [System::native, || System::native().one_shot()] {
        testkit::run(make, |system| {
            for trigger in TRIGGERS {
                let port = port_on(system);
                let unused = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.set_nonblocking(true).unwrap();
                socket.connect(unused).unwrap();
                let on: libc::c_int = 1;
                // SAFETY: setsockopt(2) reads the number of bytes in its last argument at the
                // pointer.
                // - valid for reads: it points to a local of that size.
                let is_set = unsafe {
                    let place = (&raw const on).cast();
                    let len = libc::socklen_t::try_from(size_of_val(&on)).unwrap();
                    libc::setsockopt(
                        socket.as_raw_fd(),
                        libc::IPPROTO_IP,
                        libc::IP_RECVERR,
                        place,
                        len,
                    )
                };
                assert_eq!(is_set, 0);
                let registration =
                    Registration::new(&socket, "socket", Interest::IN, OneShot::Level);
                let id = port.register(registration).unwrap();
                enable(&port, id, Interest::IN, trigger);
                assert_quiet(&port, system);
                socket.send(b"to nobody").unwrap();
                assert_eq!(report(&port, system), Events::ERR, "{trigger:?}");
                assert_quiet(&port, system);
                // Neither of these calls affects the queue.
                assert!(socket.take_error().unwrap().is_some());
                assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
                for _ in 0..2 {
                    assert_quiet(&port, system);
                    enable(&port, id, Interest::IN, trigger);
                    assert_eq!(report(&port, system), Events::ERR, "{trigger:?}");
                }
                assert!(read_error_queue(&socket) && !read_error_queue(&socket));
                enable(&port, id, Interest::IN, trigger);
                assert_quiet(&port, system);
            }
        });
    }
}
