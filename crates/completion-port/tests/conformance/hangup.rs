//! Rule 24: the peer has ended the stream.

use std::io;
use std::net::Shutdown;
#[cfg(target_os = "linux")]
use std::thread;
use std::time::Duration;
#[cfg(target_os = "linux")]
use std::time::Instant;

use completion_port::{Batch, Events, Interest, Packet};
#[cfg(target_os = "linux")]
use testkit::Socket;
use testkit::{System, on_every_system};

use crate::kit::packets::{
    ONE_SHOT_LEVEL, TRIGGERS, assert_quiet, enable, for_each_trigger, leave_queued, port_on,
    register, report, whole_report,
};
use crate::kit::sockets::{POLLHUP, POLLIN, POLLRDHUP, Pair, STREAMS, await_facts, await_unread};

on_every_system! {
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

    /// Rule 24: first the reading half ends, then the writing half.
    fn the_two_halves_of_a_stream_are_told_apart(system: &System) {
        system.not_by_notifications("event for a stream that is shut in both directions");
        system.not_on_windows("event for a stream that is shut in both directions");
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            let id = register(&port, &ours, "ours", Interest::HANGUP, trigger);
            theirs.shutdown(Shutdown::Write).unwrap();
            let events = whole_report(&port, system);
            assert_eq!(events, Events::HANGUP, "{trigger:?}");
            assert!(events.is_read_closed() && !events.is_write_closed());
            ours.shutdown(Shutdown::Write).unwrap();
            await_facts(&ours, system, POLLHUP);
            enable(&port, id, Interest::HANGUP, trigger);
            let events = whole_report(&port, system);
            assert_eq!(events, Events::HANGUP | Events::WRITE_CLOSED, "{trigger:?}");
            assert!(ours.write(b"x").is_err());
        }
    }

    /// Rule 24: both directions end at the same time.
    fn a_stream_that_is_gone_is_write_closed(system: &System) {
        system.not_by_notifications("event for a stream that is shut in both directions");
        system.not_on_windows("event for a stream that is shut in both directions");
        let gone = Events::HANGUP | Events::WRITE_CLOSED;
        for trigger in TRIGGERS {
            for interest in [Interest::HANGUP, Interest::NONE, Interest::ALL] {
                let port = port_on(system);
                let (ours, theirs) = system.unix_pair();
                drop(theirs);
                await_facts(&ours, system, POLLHUP);
                register(&port, &ours, "ours", interest, trigger);
                let events = whole_report(&port, system);
                assert!(events.contains(gone), "{events:?} {trigger:?} {interest:?}");
                assert!(ours.write(b"x").is_err());
            }
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            register(&port, &ours, "ours", Interest::HANGUP, trigger);
            theirs.reset();
            assert_eq!(whole_report(&port, system), gone | Events::ERR, "{trigger:?}");
        }
    }

    /// Rule 24.
    fn the_end_of_a_stream_with_data_left_is_in_and_hangup_in_one_packet(system: &System) {
        system.not_on_wine("event for an end of stream behind unread data");
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
                    // After a partial read it is still both. When all data was read, HANGUP
                    // remains.
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
                // Half-closed, with an empty filter: no report.
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
        system.not_on_windows("reads after the program shut down the reading half");
        let readers = Interest::IN | Interest::HANGUP;
        for_each_trigger(system, |trigger| {
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
                    // The connection and its reports continue until it really ends.
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
        });
    }

    /// Rule 24.
    fn a_stream_whose_own_halves_are_both_shut_is_out_alone(system: &System) {
        system.not_by_notifications("event for a stream that is shut in both directions");
        system.not_on_windows("event for a stream that is shut in both directions");
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
        system.not_on_windows("AF_UNIX socket pairs");
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
        system.not_by_notifications("event for a listener that no longer listens");
        system.not_by_kqueue("event for a listener that no longer listens");
        system.not_on_windows("listeners that can be shut down without being closed");
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
                let id = register(&port, &listener, "listener", Interest::IN, trigger);
                let client = system.tcp_connect(&listener);
                assert_eq!(report(&port, system), Events::IN, "{what}");
                drop(listener.accept_within(system.soon()));
                enable(&port, id, interest, trigger);
                assert_quiet(&port, system);
                listener.shutdown(Shutdown::Both).unwrap();
                // If it was found and not taken, and then enabled for something else, it is not
                // lost.
                leave_queued(&port, system, 1);
                enable(&port, id, Interest::NONE, trigger);
                leave_queued(&port, system, 1);
                enable(&port, id, interest, trigger);
                assert_eq!(report(&port, system), expected, "{what}");
                // Then it is as good as new.
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
                    // FIONREAD fails for a listener, so IN is reported in case a read finds
                    // something.
                    events if interest.contains(Interest::HANGUP) => events - Events::IN,
                    events => events,
                };
                assert_eq!(events, expected, "{trigger:?} {interest:?}");
            }
        }
    }

    /// Rule 24.
    fn a_listener_that_was_never_ready_is_shut_in_silence(system: &System) {
        system.not_on_windows("listeners that can be shut down without being closed");
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
}

/// Sends a byte as urgent data.
#[cfg(target_os = "linux")]
fn send_urgent(socket: &Socket) {
    // SAFETY: send(2) reads the given number of bytes at the pointer.
    // - valid: it points to a constant of that length.
    let sent = unsafe { libc::send(socket.number(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1, "{}", io::Error::last_os_error());
}

/// Receives a byte that was sent as urgent data.
#[cfg(target_os = "linux")]
fn receive_urgent(socket: &Socket) {
    let mut byte = 0_u8;
    // SAFETY: recv(2) writes at most one byte at the pointer.
    // - valid for writes: `byte` is a local.
    let read = unsafe { libc::recv(socket.number(), (&raw mut byte).cast(), 1, libc::MSG_OOB) };
    assert_eq!((read, byte), (1, b'!'));
}

/// Calls `claim` on the system's back end with each of its kinds of reactor.
#[cfg(target_os = "linux")]
fn on_epoll(claim: fn(&System)) {
    testkit::run(System::native, claim);
    testkit::run(|| System::native().one_shot(), claim);
}

/// The bytes before an urgent byte, whether that was read, and the bytes after it.
#[cfg(target_os = "linux")]
const AROUND: [(&[u8], bool, &[u8]); 5] = [
    (b"", false, b"cde"),
    (b"", true, b"cde"),
    (b"ab", false, b"cde"),
    (b"ab", true, b"cde"),
    (b"ab", false, b""),
];

/// Rule 24: data after an urgent mark is unread data, although the system does not count it. The
/// simulated kernel has no urgent data.
#[cfg(target_os = "linux")]
#[test]
fn what_is_behind_an_urgent_mark_is_told_with_the_end_epoll() {
    on_epoll(|system| {
        let both = Interest::IN | Interest::HANGUP;
        for trigger in TRIGGERS {
            for (before, is_read, behind) in AROUND {
                let port = port_on(system);
                let (ours, theirs) = system.tcp_pair();
                for bytes in [before, behind] {
                    if !bytes.is_empty() {
                        assert_eq!(theirs.write(bytes).unwrap(), bytes.len());
                    }
                    if bytes == before {
                        send_urgent(&theirs);
                    }
                }
                theirs.shutdown(Shutdown::Write).unwrap();
                await_facts(&ours, system, POLLRDHUP);
                if is_read {
                    receive_urgent(&ours);
                }
                let what = format!("{trigger:?} {before:?} {is_read} {behind:?}");
                let mut seen = Vec::new();
                let id = register(&port, &ours, "ours", both, trigger);
                while seen.len() < before.len() + behind.len() {
                    assert_eq!(
                        report(&port, system),
                        Events::IN | Events::HANGUP,
                        "{what} {seen:?}"
                    );
                    let mut room = [0; 16];
                    let len = ours.read(&mut room).unwrap();
                    seen.extend_from_slice(&room[..len]);
                    enable(&port, id, both, trigger);
                }
                assert_eq!(seen, [before, behind].concat(), "{what}");
                assert_eq!(report(&port, system), Events::HANGUP, "{what}");
            }
        }
    });
}

/// Rule 24: it is unread data after your own shutdown too.
#[cfg(target_os = "linux")]
#[test]
fn what_is_behind_an_urgent_mark_is_told_behind_the_own_end_epoll() {
    on_epoll(|system| {
        for trigger in TRIGGERS {
            for interest in [Interest::IN, Interest::IN | Interest::HANGUP] {
                for (before, is_read, behind) in AROUND {
                    let port = port_on(system);
                    let (ours, theirs) = system.tcp_pair();
                    theirs.write(before).unwrap();
                    send_urgent(&theirs);
                    theirs.write(behind).unwrap();
                    await_behind(&ours, system, before.len() + behind.len());
                    ours.shutdown(Shutdown::Read).unwrap();
                    if is_read {
                        receive_urgent(&ours);
                    }
                    let what = format!("{trigger:?} {interest:?} {before:?} {is_read} {behind:?}");
                    let mut seen = Vec::new();
                    let id = register(&port, &ours, "ours", interest, trigger);
                    while seen.len() < before.len() + behind.len() {
                        assert_eq!(report(&port, system), Events::IN, "{what} {seen:?}");
                        let mut room = [0; 16];
                        let len = ours.read(&mut room).unwrap();
                        seen.extend_from_slice(&room[..len]);
                        enable(&port, id, interest, trigger);
                    }
                    assert_eq!(seen, [before, behind].concat(), "{what}");
                    assert_quiet(&port, system);
                }
            }
        }
    });
}

/// Waits until `count` bytes have arrived besides an urgent one. The system's own count of unread
/// bytes leaves them out.
#[cfg(target_os = "linux")]
fn await_behind(socket: &Socket, on: &System, count: usize) {
    let end = Instant::now() + on.soon();
    let mut info = [0_u8; 136];
    loop {
        let mut size = libc::socklen_t::try_from(info.len()).unwrap();
        // SAFETY: getsockopt(2) writes at most `size` bytes at the first pointer, and the size at
        // the second.
        // - valid: both are locals, and the first has that many bytes.
        let done = unsafe {
            libc::getsockopt(
                socket.number(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                info.as_mut_ptr().cast(),
                &raw mut size,
            )
        };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
        // `tcpi_bytes_received`.
        let received = u64::from_ne_bytes(info[128..136].try_into().unwrap());
        if received == count as u64 + 1 {
            return;
        }
        assert!(Instant::now() < end, "{received} bytes instead of {count} and one");
        thread::yield_now();
    }
}

/// Rule 24: an empty record has no bytes, and can't be distinguished from the end before it is
/// read, so IN comes with HANGUP. The simulated kernel has no sockets with records.
#[cfg(target_os = "linux")]
#[test]
fn an_empty_record_before_the_end_is_told_with_it_epoll() {
    on_epoll(|system| {
        let both = Interest::IN | Interest::HANGUP;
        for trigger in TRIGGERS {
            for records in [&[&b""[..]][..], &[b"", b"x"], &[b"x", b""], &[]] {
                let port = port_on(system);
                let (ours, theirs) = system.unix_record_pair();
                for record in records {
                    assert_eq!(theirs.write(record).unwrap(), record.len());
                }
                drop(theirs);
                let id = register(&port, &ours, "ours", both, trigger);
                // One more than the records: the end.
                for record in records.iter().copied().chain([&b""[..]]) {
                    let what = format!("{trigger:?} {records:?} {record:?}");
                    assert_eq!(report(&port, system), Events::IN | Events::HANGUP, "{what}");
                    let mut room = [0; 16];
                    let len = ours.read(&mut room).unwrap();
                    assert_eq!(&room[..len], record, "{what}");
                    enable(&port, id, both, trigger);
                }
            }
        }
    });
}
