//! Rules 55 to 58: receiving, sending, connecting and accepting, and their errors.

use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::io::Write as _;
use std::mem::MaybeUninit;
use std::net::Shutdown;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, FromRawFd as _, OwnedFd};
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use completion_port::SharedSource;
use completion_port::{
    Batch, Buffer, Call, ErrorKind, Interest, OneShot, Operation, Outcome, OwnedSource, Packet,
    Persistent, Port, SharedId, Source, Started,
};
use testkit::{SOON, Socket, System, in_a_process_of_its_own, on_every_system};

use crate::kit::codes::{
    EALREADY, ECONNREFUSED, ECONNRESET, EINVAL, EISCONN, ENOBUFS, ENOMEM, ENOTSOCK, is_broken_pipe,
    unreachable,
};
#[cfg(target_os = "linux")]
use crate::kit::descriptors::leave_no_descriptor;
use crate::kit::operations::{
    HOUR, MILLISECOND, Shared, accepted, all, assert_connected, bytes, connected, done, finished,
    much, next, outcome, received, room, sent, shared_on, silent, sockets_on, sort, why,
};
#[cfg(target_os = "linux")]
use crate::kit::signals::{catch_signals, interrupt};
use crate::kit::sockets::{
    POLLHUP, POLLIN, POLLOUT, STREAMS, await_end_behind, await_facts, await_unread, facts, fill,
};
use crate::kit::threads::now;

type Pair = fn(&System) -> (Socket, Socket);

const DATAGRAMS: [Pair; 2] = [System::udp_pair, System::unix_datagram_pair];

/// The program connects a stream itself, and then asks the port to connect it too.
#[cfg(target_os = "linux")]
fn a_connect_beside_one_of_the_program(on: &System) {
    let port = sockets_on(on);
    let other = on.tcp_listener(4);
    let (full, _client) = unanswering(on);
    let near = on.tcp_connect(&full);
    port.associate(near).unwrap().connect(other.address().for_port()).unwrap();
    let (_token, outcome) = done(&port, on);
    let error = connected(&outcome).unwrap_err();
    assert_eq!((error.call(), error.os_code()), (Call::Connect, Some(EALREADY)));
}

/// Rule 57: a stream that the program itself is connecting is not connected to another address.
#[cfg(target_os = "linux")]
#[test]
fn a_connect_beside_one_of_the_program_is_refused_epoll() {
    a_connect_beside_one_of_the_program(&System::native());
}

/// Rule 57: the same on a simulated kernel.
#[cfg(target_os = "linux")]
#[test]
fn a_connect_beside_one_of_the_program_is_refused_sim() {
    testkit::run(System::simulated, a_connect_beside_one_of_the_program);
}

/// Returns a listener that answers no connect because its queue is full, and the client that fills
/// it.
fn unanswering(on: &System) -> (Socket, Socket) {
    let listener = on.tcp_listener(0);
    let client = on.tcp_connect(&listener);
    (listener, client)
}

/// A key that the port creates from its own socket.
struct Made(OwnedSource);

impl Source for Made {
    fn as_source(&self) -> completion_port::BorrowedSource<'_> {
        self.0.as_source()
    }
}

/// A buffer in parts.
#[derive(Debug)]
struct Parts(Vec<Vec<u8>>);

// SAFETY: `Buffer` requires stable memory and truthful lengths.
// - the memory is that of the vectors, whose own implementation promises the same.
unsafe impl Buffer for Parts {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        self.0.iter().for_each(|each| each.filled(part));
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        // SAFETY: the caller must write only initialized bytes.
        // - the memory is the vectors', so the caller's promise to `room` holds for each.
        self.0.iter_mut().for_each(|each| unsafe { each.room(part) });
    }

    unsafe fn set_filled(&mut self, mut len: usize) {
        for each in &mut self.0 {
            let filled = len.min(each.capacity());
            // SAFETY: `set_filled` requires that the first bytes are initialized.
            // - the memory is that of all parts in order, and the caller says how many bytes of it
            //   are initialized.
            unsafe { each.set_filled(filled) };
            len -= filled;
        }
    }
}

/// Sends and receives buffers with parts of eight sizes, each filled with its size.
fn parts_are_passed<B: Buffer>(system: &System, make: impl Fn([u8; 8]) -> B) {
    let parts_of = |buffer: &B| {
        let mut parts = Vec::new();
        buffer.filled(&mut |part| {
            if !part.is_empty() {
                parts.push(part.to_vec());
            }
        });
        parts
    };
    for pair in STREAMS {
        let port: Port<Socket, u32, B> = system.port_with_buffers(1);
        let (near, far) = pair(system);
        let whole = make([3, 0, 1, 2, 9, 0, 7, 5]);
        port.associate(near).unwrap().send_all(whole).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(sent(&outcome), Ok(27));
        let wanted = [3_u8, 1, 2, 9, 7, 5].map(|size| vec![size; size.into()]);
        assert_eq!(parts_of(&outcome.into_buffer().unwrap()), wanted);
        assert_eq!(far.read_within(system.soon(), 27), wanted.concat());
        far.write(b"abcdefghijklmn").unwrap();
        await_unread(token.key(), system, 14);
        token.recv(make([3, 0, 1, 2, 4, 2, 0, 9])).unwrap();
        let (result, buffer) = received(done(&port, system).1);
        assert_eq!(result, Ok(14));
        let wanted = [&b"abc"[..], b"d", b"ef", b"ghij", b"kl", b"mn"];
        assert_eq!(parts_of(&buffer), wanted);
    }
}

on_every_system! {
    /// Rule 55: it fills the buffer from the beginning up to its capacity, whatever was in it.
    fn a_receive_fills_its_buffer_from_the_beginning(system: &System) {
        for pair in STREAMS {
            let port = sockets_on(system);
            let (near, far) = pair(system);
            far.write(b"0123456789").unwrap();
            await_unread(&near, system, 10);
            let mut buffer = room(8);
            buffer.extend_from_slice(b"former");
            assert_eq!(buffer.capacity(), 8);
            port.associate(near).unwrap().recv(buffer).unwrap();
            let (token, outcome) = done(&port, system);
            let mut buffer = bytes(outcome);
            assert_eq!(buffer, b"01234567");
            buffer.truncate(3);
            token.recv(buffer).unwrap();
            assert_eq!(bytes(done(&port, system).1), b"89");
        }
    }

    /// Rule 55: one system call fills only the first parts. The remaining data goes to the next
    /// receive, or is reported.
    fn what_a_receive_into_many_parts_has_left_is_found(system: &System) {
        for pair in STREAMS {
            let port: Port<Socket, u32, Vec<Vec<u8>>> = system.port_with_buffers(1);
            let (near, far) = pair(system);
            let many = || (0..1500).map(|_| Vec::with_capacity(1)).collect::<Vec<_>>();
            let bytes: Vec<u8> = (0..=250).cycle().take(3000).collect();
            // All data arrives before the first receive, and nothing follows.
            far.write(&bytes).unwrap();
            await_unread(&near, system, 3000);
            let mut token = port.associate(near).unwrap();
            let mut came = Vec::new();
            for _ in 0..2 {
                token.recv(many()).unwrap();
                let (next, outcome) = done(&port, system);
                came.extend(received(outcome).1.concat());
                token = next;
            }
            token.rearm_as(Interest::IN, OneShot::Level).unwrap();
            let Packet::Ready(mut token) = next(&port, system) else { panic!("no report") };
            while came.len() < 3000 {
                token.recv(many()).unwrap();
                let (next, outcome) = done(&port, system);
                came.extend(received(outcome).1.concat());
                token = next;
            }
            assert_eq!(came, bytes);
        }
    }

    /// Rule 55: the data before the end comes first. Then each receive returns no bytes.
    fn the_end_of_a_stream_is_no_bytes(system: &System) {
        for pair in STREAMS {
            let port = sockets_on(system);
            let (near, far) = pair(system);
            let token = port.associate(near).unwrap();
            far.write(b"last").unwrap();
            drop(far);
            await_end_behind(4, token.key(), system);
            token.recv(room(8)).unwrap();
            let (mut token, outcome) = done(&port, system);
            assert_eq!(bytes(outcome), b"last");
            for _ in 0..2 {
                token.recv(b"emptied".to_vec()).unwrap();
                let (again, outcome) = done(&port, system);
                assert_eq!(received(outcome), (Ok(0), Vec::new()));
                token = again;
            }
        }
    }

    /// Rule 55: the end comes while a receive waits, or after data that filled no buffer.
    fn a_receive_that_waits_is_told_of_the_end(system: &System) {
        for pair in STREAMS {
            let port = sockets_on(system);
            let (near, far) = pair(system);
            port.associate(near).unwrap().recv(room(8)).unwrap();
            silent(&port, system);
            far.write(b"x").unwrap();
            let (token, outcome) = done(&port, system);
            assert_eq!(bytes(outcome), b"x");
            token.recv(room(8)).unwrap();
            silent(&port, system);
            far.shutdown(Shutdown::Write).unwrap();
            let (token, outcome) = done(&port, system);
            assert_eq!(received(outcome).0, Ok(0));
            // The other direction continues.
            token.send_all(b"answer".to_vec()).unwrap();
            assert_eq!(sent(&done(&port, system).1), Ok(6));
            assert_eq!(far.read_within(system.soon(), 6), b"answer");
        }
    }

    /// Rule 55: data and end arrive together, and each gets its own receive.
    fn data_is_received_before_the_end(system: &System) {
        for pair in STREAMS {
            let port = shared_on(system);
            let (near, far) = pair(system);
            let near = Shared::new(near);
            let id = port.associate_shared(near.clone()).unwrap();
            for _ in 0..4 {
                port.start(id, Operation::recv(room(3))).unwrap();
            }
            far.write(b"abcde").unwrap();
            far.shutdown(Shutdown::Write).unwrap();
            // A system that performs receives has already delivered the bytes.
            if !system.carries_operations() {
                await_end_behind(5, &near, system);
            }
            let results: Vec<_> = all(&port, system, 4)
                .into_iter()
                .map(|packet| match packet {
                    Packet::SharedCompleted(finished) => received(finished.into_parts().1).1,
                    _ => panic!("no operation"),
                })
                .collect();
            assert_eq!(results.concat(), b"abcde");
            assert_eq!((&results[2][..], &results[3][..]), (&b""[..], &b""[..]));
        }
    }

    /// Rule 55: servers use it to wait without a buffer.
    fn a_receive_without_room_waits_and_takes_nothing(system: &System) {
        for pair in STREAMS.into_iter().chain(DATAGRAMS) {
            let port = sockets_on(system);
            let (near, far) = pair(system);
            port.associate(near).unwrap().recv(Vec::new()).unwrap();
            silent(&port, system);
            far.write(b"there").unwrap();
            let (token, mut outcome) = done(&port, system);
            assert!(!outcome.is_end());
            assert_eq!(received(outcome), (Ok(0), Vec::new()));
            assert_eq!(token.key().unread().unwrap(), 5);
            token.recv(room(8)).unwrap();
            assert_eq!(bytes(done(&port, system).1), b"there");
        }
    }

    /// Rule 55: an end is told from a receive without room, and from bytes.
    fn an_end_is_what_brings_no_bytes_though_there_is_room(system: &System) {
        for pair in STREAMS {
            let port = sockets_on(system);
            let (near, far) = pair(system);
            far.write(b"last").unwrap();
            drop(far);
            let mut token = port.associate(near).unwrap();
            for (size, came, is_end) in [(0, 0, false), (8, 4, false), (0, 0, false), (8, 0, true)] {
                token.recv(room(size)).unwrap();
                let (again, mut outcome) = done(&port, system);
                assert_eq!((outcome.is_end(), came), (is_end, bytes(outcome).len()));
                token = again;
            }
            token.start(Operation::recv_from(room(8))).unwrap();
            let (token, mut outcome) = done(&port, system);
            assert!(outcome.is_end());
            token.send(b"x".to_vec()).unwrap();
            assert!(!done(&port, system).1.is_end());
        }
    }

    /// Rule 55: each receive gets one datagram.
    fn a_receive_brings_one_datagram(system: &System) {
        for pair in DATAGRAMS {
            let port = shared_on(system);
            let (near, far) = pair(system);
            let id = port.associate_shared(Shared::new(near)).unwrap();
            for _ in 0..4 {
                port.start(id, Operation::recv(room(64))).unwrap();
            }
            for datagram in [&b"first"[..], b"second", b"", b"last"] {
                far.write(datagram).unwrap();
            }
            let datagrams: Vec<_> = all(&port, system, 4)
                .into_iter()
                .map(|packet| match packet {
                    Packet::SharedCompleted(finished) => bytes(finished.into_parts().1),
                    _ => panic!("no operation"),
                })
                .collect();
            assert_eq!(datagrams, [&b"first"[..], b"second", b"", b"last"]);
        }
    }

    /// Rule 55: the rest is lost, the receive reports that, and the next datagram is whole.
    fn a_datagram_that_was_cut_is_told(system: &System) {
        for pair in DATAGRAMS {
            let port = sockets_on(system);
            let (near, far) = pair(system);
            port.associate(near).unwrap().recv(room(4)).unwrap();
            far.write(b"too long").unwrap();
            far.write(b"fits").unwrap();
            let (token, outcome) = done(&port, system);
            let error = outcome.error().unwrap();
            assert_eq!((error.kind(), error.call()), (ErrorKind::Truncated, Call::Receive));
            assert_eq!(error.transferred(), 4);
            assert_eq!(outcome.into_buffer().unwrap(), b"too ");
            token.recv_from(room(4)).unwrap();
            let (token, outcome) = done(&port, system);
            assert!(matches!(outcome, Outcome::ReceivedFrom(Ok((4, _)), ref it) if it == b"fits"));
            far.write(b"too long").unwrap();
            token.recv_from(room(4)).unwrap();
            let (_, outcome) = done(&port, system);
            assert_eq!(why(outcome.error()), ErrorKind::Truncated);
            assert_eq!(outcome.into_buffer().unwrap(), b"too ");
        }
    }

    /// Rule 55.
    fn a_datagram_comes_with_its_sender_and_goes_to_its_receiver(system: &System) {
        let port = sockets_on(system);
        let (near, far) = (system.udp_bound(), system.udp_bound());
        let (here, there) = (near.address().for_port(), far.address().for_port());
        port.associate(near).unwrap().recv_from(room(64)).unwrap();
        port.associate(far).unwrap().send_to(b"question".to_vec(), here.clone()).unwrap();
        let (mut server, mut client) = (None, None);
        for packet in all(&port, system, 2) {
            let Packet::Completed(done) = packet else { panic!("no operation") };
            match done.into_parts() {
                (token, Outcome::ReceivedFrom(Ok((8, from)), buffer)) => {
                    assert_eq!((from, &buffer[..]), (Some(there.clone()), &b"question"[..]));
                    server = Some(token);
                }
                (token, Outcome::Sent(Ok(8), _)) => client = Some(token),
                other => panic!("{:?}", other.1),
            }
        }
        // An empty datagram counts as one.
        server.unwrap().send_to(Vec::new(), there).unwrap();
        assert_eq!(sent(&done(&port, system).1), Ok(0));
        client.unwrap().recv_from(room(64)).unwrap();
        let (_, outcome) = done(&port, system);
        let Outcome::ReceivedFrom(Ok((0, from)), _) = outcome else { panic!("{outcome:?}") };
        // The sender's token was dropped by then, and its address is unchanged.
        assert_eq!(from, Some(here));
    }

    /// Rule 55: a send ends after a part, and a send of all only after the rest.
    fn a_send_ends_with_a_part_and_send_all_does_not(system: &System) {
        for pair in STREAMS {
            let much = much(system);
            let port = sockets_on(system);
            let (near, far) = pair(system);
            port.associate(near).unwrap().send(vec![b'a'; much]).unwrap();
            let (token, outcome) = done(&port, system);
            let part = sent(&outcome).unwrap();
            assert!(0 < part && part < much, "{part}");
            assert_eq!(outcome.into_buffer().unwrap().len(), much);
            let mut read = far.drain();
            token.send_all(vec![b'b'; much]).unwrap();
            let mut batch = Batch::new();
            let begun = Instant::now();
            let outcome = loop {
                read += far.drain();
                if let Some(packet) = port.wait(&mut batch, Duration::ZERO).unwrap().next() {
                    let Packet::Completed(done) = packet else { panic!("no operation") };
                    let (_token, outcome) = done.into_parts();
                    // Everything that was sent is in transit or has arrived.
                    while read < part + much {
                        read += far.drain();
                        assert!(begun.elapsed() < system.soon(), "{read}");
                    }
                    break outcome;
                }
                assert!(begun.elapsed() < system.soon(), "{read}");
            };
            assert_eq!(sent(&outcome), Ok(much));
            assert_eq!(read, part + much);
        }
    }

    /// Rule 55: a stream sends nothing, and the send ends immediately.
    fn a_send_of_nothing_is_done_at_once(system: &System) {
        for pair in STREAMS {
            let port = sockets_on(system);
            let (near, far) = pair(system);
            for operation in [Operation::send(Vec::new()), Operation::send_all(Vec::new())] {
                port.associate(near.dup().unwrap()).unwrap().start(operation).unwrap();
                assert_eq!(sent(&outcome(&port, system)), Ok(0));
            }
            assert_connected(&near, &far, system);
        }
    }

    /// Rule 55: one part after the other, skipping those without room. The buffers are lists,
    /// arrays and tuples of others, and one of the program's own.
    fn a_buffer_may_have_many_parts(system: &System) {
        let vectors = |sizes: [u8; 8]| sizes.map(|size| vec![size; size.into()]);
        parts_are_passed(system, |sizes| Parts(vectors(sizes).into()));
        parts_are_passed(system, |sizes| Vec::from(vectors(sizes)));
        parts_are_passed(system, vectors);
        parts_are_passed(system, |sizes| {
            let [a, b, c, d, e, f, g, h] = vectors(sizes);
            ((a, (b, c)), (Some([d, e]), (vec![f, g], (None::<Vec<u8>>, h))))
        });
    }

    /// Rule 56: the outcome has the code and the call, and the association continues.
    fn what_the_socket_does_not_allow_is_the_outcome(system: &System) {
        let port = sockets_on(system);
        let (reader, _writer) = system.pipe();
        port.associate(reader).unwrap().recv(room(4)).unwrap();
        let (token, outcome) = done(&port, system);
        let error = outcome.error().unwrap();
        assert_eq!((error.call(), error.os_code()), (Call::Receive, Some(ENOTSOCK)));
        assert_eq!((error.kind(), error.transferred()), (ErrorKind::Other, 0));
        token.send(b"x".to_vec()).unwrap();
        let (_token, outcome) = done(&port, system);
        let error = outcome.error().unwrap();
        assert_eq!((error.call(), error.os_code()), (Call::Send, Some(ENOTSOCK)));
        assert_eq!(outcome.into_buffer().unwrap(), b"x");
        let (near, far) = system.tcp_pair();
        port.associate(near).unwrap().accept().unwrap();
        let (token, outcome) = done(&port, system);
        let error = outcome.error().unwrap();
        assert_eq!((error.call(), error.os_code()), (Call::Accept, Some(EINVAL)));
        token.send(b"x".to_vec()).unwrap();
        assert_eq!(sent(&done(&port, system).1), Ok(1));
        assert_eq!(far.read_within(system.soon(), 1), b"x");
    }

    /// Rule 56.
    fn a_send_behind_ones_own_end_fails(system: &System) {
        for pair in STREAMS {
            let port = sockets_on(system);
            let (near, far) = pair(system);
            near.shutdown(Shutdown::Write).unwrap();
            port.associate(near).unwrap().send_all(b"x".to_vec()).unwrap();
            let (token, outcome) = done(&port, system);
            assert!(is_broken_pipe(outcome.error().unwrap().os_code()), "{outcome:?}");
            token.recv(room(4)).unwrap();
            far.write(b"y").unwrap();
            assert_eq!(bytes(done(&port, system).1), b"y");
        }
    }

    /// Rule 56: the operations of both directions fail.
    fn a_reset_ends_a_receive_and_a_send(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.tcp_pair();
        let near = Shared::new(near);
        let id = port.associate_shared(near.clone()).unwrap();
        fill(&near);
        let send = port.start(id, Operation::send_all(b"lost".to_vec())).unwrap();
        let receive = port.start(id, Operation::recv(room(4))).unwrap();
        silent(&port, system);
        far.reset();
        let mut codes = Vec::new();
        for packet in all(&port, system, 2) {
            let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
            let error = finished.error();
            let is_send = finished.operation() == send;
            assert!(is_send || finished.operation() == receive);
            codes.push((is_send, error.and_then(|error| error.os_code())));
        }
        codes.sort_unstable();
        assert!(!codes[0].0 && codes[1].0, "{codes:?}");
        // The system reports the code itself once. Any later operation finds an end or a broken
        // pipe.
        assert!(matches!(codes[0].1, None | Some(ECONNRESET)), "{codes:?}");
        assert!(codes[1].1 == Some(ECONNRESET) || is_broken_pipe(codes[1].1), "{codes:?}");
        assert!(codes.iter().any(|(_, code)| *code == Some(ECONNRESET)), "{codes:?}");
    }

    /// Rule 56: the outcome reports how much was sent before.
    fn a_reset_during_a_send_tells_how_much_was_sent(system: &System) {
        let much = much(system);
        let port = sockets_on(system);
        let (near, far) = system.tcp_pair();
        port.associate(near).unwrap().send_all(vec![b'a'; much]).unwrap();
        silent(&port, system);
        let mut read = vec![0; 100_000];
        assert!(far.read(&mut read).unwrap() > 0);
        silent(&port, system);
        far.reset();
        let (_, outcome) = done(&port, system);
        let error = outcome.error().unwrap();
        let code = error.os_code();
        assert!(code == Some(ECONNRESET) || is_broken_pipe(code), "{error:?}");
        assert!(error.transferred() > 0 && error.transferred() < much, "{error:?}");
        assert_eq!(outcome.into_buffer().unwrap().len(), much);
    }

    /// Rule 56: data that came before the peer's half-close is received, while sends continue.
    fn a_half_close_loses_nothing_that_is_in_flight(system: &System) {
        for pair in STREAMS {
            let port = shared_on(system);
            let (near, far) = pair(system);
            let id = port.associate_shared(Shared::new(near)).unwrap();
            let much = much(system);
            let full = port.start(id, Operation::send_all(vec![b'a'; much])).unwrap();
            port.start(id, Operation::recv(room(100))).unwrap();
            far.write(b"question").unwrap();
            far.shutdown(Shutdown::Write).unwrap();
            assert_eq!(bytes(finished(&port, system).into_parts().1), b"question");
            port.start(id, Operation::recv(room(100))).unwrap();
            assert_eq!(received(finished(&port, system).into_parts().1).0, Ok(0));
            silent(&port, system);
            let mut read = Vec::new();
            let begun = Instant::now();
            let mut batch = Batch::new();
            let mut is_sent = false;
            let mut part = vec![0; 100_000];
            while read.len() < much {
                assert!(begun.elapsed() < system.soon(), "{} of {much}", read.len());
                if let Ok(more) = far.read(&mut part) {
                    read.extend_from_slice(&part[..more]);
                }
                for packet in port.wait(&mut batch, Duration::ZERO).unwrap() {
                    let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
                    assert_eq!((finished.operation(), sent(&finished.into_parts().1)), (full, Ok(much)));
                    is_sent = true;
                }
            }
            if !is_sent {
                assert_eq!(finished(&port, system).operation(), full);
            }
        }
    }

    /// Rule 56: the peer's end persists, and does not make the port retry the send again and again.
    fn a_send_that_waits_behind_the_peers_end_does_not_spin(system: &System) {
        for trigger in [None, Some(Persistent::Level), Some(Persistent::Edge)] {
            for pair in STREAMS {
                let port = shared_on(system);
                let (near, far) = pair(system);
                let id = port.associate_shared(Shared::new(near)).unwrap();
                if let Some(trigger) = trigger {
                    port.enable(id.id(), Interest::HANGUP, trigger).unwrap();
                }
                let send = Operation::send_all(vec![b'a'; much(system)]);
                let send = port.start(id, send).unwrap();
                silent(&port, system);
                far.shutdown(Shutdown::Write).unwrap();
                silent(&port, system);
                let polls = port.stats().polls;
                silent(&port, system);
                assert!(port.stats().polls < polls + 20, "{trigger:?}: {port:#?}");
                assert!(port.cancel(send).unwrap());
                let mut packets = port.wait(&mut Batch::new(), system.soon()).unwrap().count();
                if trigger.is_some() && packets < 2 {
                    packets += port.wait(&mut Batch::new(), system.soon()).unwrap().count();
                }
                // The report that waited for the send now comes.
                assert_eq!(packets, 1 + usize::from(trigger.is_some()), "{trigger:?}");
            }
        }
    }

    /// Rule 56: an error without data is the outcome of the waiting receive.
    fn an_error_without_data_fails_the_receive_that_waits(system: &System) {
        system.not_on_wine("receive in flight that fails with a datagram socket's error");
        for shared in [false, true] {
            let (near, far) = system.udp_pair();
            let same = near.dup().unwrap();
            drop(far);
            let error = if shared {
                let port = shared_on(system);
                let id = port.associate_shared(Shared::new(near)).unwrap();
                port.start(id, Operation::recv(room(4))).unwrap();
                silent(&port, system);
                // No socket has this port number, and the reply reports that.
                same.write(b"x").unwrap();
                finished(&port, system).error()
            } else {
                let port = sockets_on(system);
                port.associate(near).unwrap().recv(room(4)).unwrap();
                silent(&port, system);
                same.write(b"x").unwrap();
                done(&port, system).1.error()
            };
            let error = error.unwrap();
            let expected = Some(unreachable(system));
            assert_eq!((error.call(), error.os_code()), (Call::Receive, expected));
        }
    }

    /// Rule 56: your own `shutdown` of the reading half ends receives of datagrams and accepts, as
    /// it ends blocking calls: those in flight and later ones. What arrived before is received
    /// first.
    fn the_own_shutdown_of_the_reading_half_ends_what_reads(system: &System) {
        system.not_on_windows("operations that a shutdown of their own socket ends");
        let receives: [fn(Vec<u8>) -> Operation; 2] = [Operation::recv, Operation::recv_from];
        for (pair, receive) in DATAGRAMS.into_iter().flat_map(|pair| receives.map(|it| (pair, it))) {
            for is_in_flight in [false, true] {
                let port = sockets_on(system);
                let (near, far) = pair(system);
                let same = near.dup().unwrap();
                let token = port.associate(near).unwrap();
                if is_in_flight {
                    token.start(receive(room(8))).unwrap();
                    silent(&port, system);
                    same.shutdown(Shutdown::Read).unwrap();
                } else {
                    far.write(b"first").unwrap();
                    await_unread(&same, system, 5);
                    same.shutdown(Shutdown::Read).unwrap();
                    token.start(receive(room(8))).unwrap();
                    let (back, outcome) = done(&port, system);
                    assert!(outcome.error().is_none());
                    assert_eq!(outcome.into_buffer().unwrap(), b"first");
                    let mut buffer = room(8);
                    buffer.extend_from_slice(b"former");
                    back.start(receive(buffer)).unwrap();
                }
                let (_token, outcome) = done(&port, system);
                assert!(outcome.error().is_none());
                assert_eq!(outcome.into_buffer().unwrap(), b"");
            }
        }
        for is_in_flight in [false, true] {
            let port = sockets_on(system);
            let listener = system.unix_listener(4);
            let same = listener.dup().unwrap();
            let token = port.associate(listener).unwrap();
            if is_in_flight {
                token.accept().unwrap();
                silent(&port, system);
                same.shutdown(Shutdown::Read).unwrap();
            } else {
                same.shutdown(Shutdown::Read).unwrap();
                token.accept().unwrap();
            }
            let (_token, outcome) = done(&port, system);
            let error = outcome.error().unwrap();
            assert_eq!(error.call(), Call::Accept);
            if cfg!(target_os = "linux") || system.kernel().is_some() {
                assert_eq!(error.os_code(), Some(EINVAL));
            }
        }
    }

    /// Rule 57: the connect succeeds, and the token continues with the connection.
    fn a_connect_is_done_by_its_packet(system: &System) {
        let port = sockets_on(system);
        let listener = system.tcp_listener(4);
        let address = listener.address().for_port();
        port.associate(system.tcp_fresh()).unwrap().connect(address).unwrap();
        let (token, outcome) = done(&port, system);
        connected(&outcome).unwrap();
        let server = listener.accept_within(system.soon());
        token.recv(room(8)).unwrap();
        silent(&port, system);
        server.write(b"hello").unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(bytes(outcome), b"hello");
        assert_connected(token.key(), &server, system);
    }

    /// Rule 57: the outcome has the system's code, and the socket may then be connected to another
    /// address.
    fn a_connect_that_is_refused_says_so(system: &System) {
        let port = sockets_on(system);
        let nowhere = system.unused_address().for_port();
        port.associate(system.tcp_fresh()).unwrap().connect(nowhere).unwrap();
        let (token, outcome) = done(&port, system);
        let error = connected(&outcome).unwrap_err();
        assert_eq!((error.call(), error.os_code()), (Call::Connect, Some(ECONNREFUSED)));
        let listener = system.tcp_listener(4);
        token.connect(listener.address().for_port()).unwrap();
        let (token, outcome) = done(&port, system);
        connected(&outcome).unwrap();
        let server = listener.accept_within(system.soon());
        assert_connected(token.key(), &server, system);
    }

    /// Rule 57: the refusal comes later: real systems repeat the request after a second.
    fn a_connect_that_is_refused_later_may_be_followed_by_another(system: &System) {
        let port = sockets_on(system);
        let (unanswering, _client) = unanswering(system);
        port.associate(system.tcp_fresh()).unwrap().connect(unanswering.address().for_port()).unwrap();
        silent(&port, system);
        drop(unanswering);
        let (token, outcome) = done(&port, system);
        let error = connected(&outcome).unwrap_err();
        assert_eq!((error.call(), error.os_code()), (Call::Connect, Some(ECONNREFUSED)));
        let listener = system.tcp_listener(4);
        token.connect(listener.address().for_port()).unwrap();
        let (token, outcome) = done(&port, system);
        connected(&outcome).unwrap();
        let server = listener.accept_within(system.soon());
        assert_connected(token.key(), &server, system);
    }

    /// Rule 57: a connect that nothing answers ends at its deadline.
    fn a_connect_ends_at_its_deadline(system: &System) {
        let port = sockets_on(system);
        let (listener, _client) = unanswering(system);
        let address = listener.address().for_port();
        let time = 20 * MILLISECOND;
        let begun = now(system);
        let connect = Operation::connect(address).deadline(time);
        port.associate(system.tcp_fresh()).unwrap().start(connect).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(connected(&outcome).unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(now(system) - begun >= time);
        drop(token);
    }

    /// Rule 57: a cancelled connect is abandoned, even if it is already connected. The next connect
    /// goes to its own address, or is refused where the system can't abandon one.
    fn a_connect_that_was_called_off_is_given_up(system: &System) {
        system.not_where_operations_are_carried_out("connects that the port gives up");
        for (has_connection, has_deadline) in [(false, false), (false, true), (true, false)] {
            let port = sockets_on(system);
            let (first, _client) = if has_connection {
                (system.tcp_listener(4), system.tcp_fresh())
            } else {
                unanswering(system)
            };
            let mut connect = Operation::connect(first.address().for_port());
            if has_deadline {
                connect = connect.deadline(20 * MILLISECOND);
            }
            let socket = system.tcp_fresh();
            let same = socket.dup().unwrap();
            let connect = port.associate(socket).unwrap().start(connect).unwrap();
            if has_connection {
                await_facts(&same, system, POLLOUT);
            }
            if !has_deadline {
                assert!(port.cancel(connect).unwrap());
            }
            let (token, outcome) = done(&port, system);
            let ended = if has_deadline { ErrorKind::TimedOut } else { ErrorKind::Cancelled };
            assert_eq!(connected(&outcome).unwrap_err().kind(), ended);
            let second = system.tcp_listener(4);
            let next = Operation::connect(second.address().for_port()).deadline(HOUR);
            token.start(next).unwrap();
            let (token, outcome) = done(&port, system);
            if !system.gives_up_connects() {
                let error = connected(&outcome).unwrap_err();
                assert_eq!((error.call(), error.os_code()), (Call::Connect, Some(EALREADY)));
                continue;
            }
            connected(&outcome).unwrap();
            assert_connected(token.key(), &second.accept_within(system.soon()), system);
            if has_connection {
                await_facts(&first.accept_within(system.soon()), system, POLLHUP);
            }
        }
    }

    /// Rule 57: the next connect begins before the packet of the first is taken.
    fn a_connect_behind_one_that_was_called_off_is_another_one(system: &System) {
        system.not_where_operations_are_carried_out("connects that the port gives up");
        for has_connection in [false, true] {
            let port = shared_on(system);
            let (first, _client) = if has_connection {
                (system.tcp_listener(4), system.tcp_fresh())
            } else {
                unanswering(system)
            };
            let second = system.tcp_listener(4);
            let socket = system.tcp_fresh();
            let same = socket.dup().unwrap();
            let id = port.associate_shared(Shared::new(socket)).unwrap();
            let start = |to: &Socket| {
                port.start(id, Operation::connect(to.address().for_port())).unwrap()
            };
            let called_off = start(&first);
            if has_connection {
                await_facts(&same, system, POLLOUT);
            }
            assert!(port.cancel(called_off).unwrap());
            let next = start(&second);
            let ended = all(&port, system, 2).into_iter().map(|packet| match packet {
                Packet::SharedCompleted(finished) => (finished.operation(), finished.error()),
                other => panic!("{}", sort(&other)),
            });
            for (operation, error) in ended {
                if operation == called_off {
                    assert_eq!(why(error), ErrorKind::Cancelled);
                } else {
                    assert_eq!(operation, next);
                    let refused = if system.gives_up_connects() { None } else { Some(EALREADY) };
                    assert_eq!(error.map(|error| error.os_code()), refused.map(Some));
                }
            }
            if system.gives_up_connects() {
                assert_connected(&same, &second.accept_within(system.soon()), system);
            }
        }
    }

    /// Rules 52 and 57: a connect waits only for its turn, and for no edge. It begins when the one
    /// before it is cancelled.
    fn a_connect_begins_when_it_is_its_turn(system: &System) {
        system.not_where_operations_are_carried_out("connects that the port gives up");
        for has_deadline in [false, true] {
            let port = shared_on(system);
            let (full, _client) = unanswering(system);
            let second = system.tcp_listener(4);
            let socket = system.tcp_fresh();
            let same = socket.dup().unwrap();
            let id = port.associate_shared(Shared::new(socket)).unwrap();
            let connect = |to: &Socket| Operation::connect(to.address().for_port());
            let time = if has_deadline { 20 * MILLISECOND } else { HOUR };
            let first = port.start(id, connect(&full).deadline(time)).unwrap();
            let next = port.start(id, connect(&second).deadline(HOUR)).unwrap();
            if !has_deadline {
                silent(&port, system);
                assert!(port.cancel(first).unwrap());
            }
            let ended = all(&port, system, 2).into_iter().map(|packet| match packet {
                Packet::SharedCompleted(finished) => (finished.operation(), finished.error()),
                other => panic!("{}", sort(&other)),
            });
            for (operation, error) in ended {
                if operation == first {
                    let ended =
                        if has_deadline { ErrorKind::TimedOut } else { ErrorKind::Cancelled };
                    assert_eq!(why(error), ended);
                } else {
                    assert_eq!(operation, next);
                    let refused = if system.gives_up_connects() { None } else { Some(EALREADY) };
                    assert_eq!(error.map(|error| error.os_code()), refused.map(Some));
                }
            }
            if system.gives_up_connects() {
                assert_connected(&same, &second.accept_within(system.soon()), system);
            }
        }
    }

    /// Rules 57, 62 and 63: whatever ends a connect in progress, the socket is not connected
    /// afterwards.
    fn a_connect_that_ends_with_its_port_is_given_up(system: &System) {
        system.not_where_operations_are_carried_out("connects that the port gives up");
        type End = fn(&Port<Shared, u32>, SharedId);
        let ends: [End; 4] = [
            |port, id| port.remove(id.id()).unwrap(),
            |port, _| port.shutdown().unwrap(),
            |port, _| port.close(),
            |_, _| {},
        ];
        for (way, end) in ends.into_iter().enumerate() {
            let port = shared_on(system);
            let listener = system.tcp_listener(4);
            let socket = system.tcp_fresh();
            let same = socket.dup().unwrap();
            let id = port.associate_shared(Shared::new(socket)).unwrap();
            port.start(id, Operation::connect(listener.address().for_port())).unwrap();
            await_facts(&same, system, POLLOUT);
            assert_eq!(facts(&same) & POLLHUP, 0);
            end(&port, id);
            if way < 3 {
                assert_eq!(why(finished(&port, system).error()), ErrorKind::Cancelled);
            }
            drop(port);
            if system.gives_up_connects() {
                await_facts(&same, system, POLLHUP);
            }
        }
    }

    /// Rule 57: a stream that the program itself has connected is not connected again.
    fn a_connect_of_a_connected_stream_is_refused(system: &System) {
        let port = sockets_on(system);
        let (first, second) = (system.tcp_listener(4), system.tcp_listener(4));
        let near = system.tcp_connect(&first);
        await_facts(&near, system, POLLOUT);
        port.associate(near).unwrap().connect(second.address().for_port()).unwrap();
        let (token, outcome) = done(&port, system);
        let error = connected(&outcome).unwrap_err();
        assert_eq!((error.call(), error.os_code()), (Call::Connect, Some(EISCONN)));
        assert_connected(token.key(), &first.accept_within(system.soon()), system);
    }

    /// Rule 57: the port creates the socket.
    fn a_port_makes_the_sockets_that_it_connects(system: &System) {
        let port = system.port::<Made, u32>(1);
        let listener = system.tcp_listener(4);
        let address = listener.address().for_port();
        let operation = port.connect(address.clone(), Some(HOUR.into()), Made).unwrap();
        let (token, outcome) = done(&port, system);
        connected(&outcome).unwrap();
        let server = listener.accept_within(system.soon());
        server.write(b"x").unwrap();
        token.recv(room(4)).unwrap();
        assert_eq!(bytes(done(&port, system).1), b"x");
        assert!(!port.cancel(operation).unwrap());
        let nowhere = system.unused_address().for_port();
        port.connect(nowhere, None, Made).unwrap();
        let code = connected(&outcome_of(&port, system)).unwrap_err().os_code();
        assert_eq!(code, Some(ECONNREFUSED));
        port.close();
        let refused = port.connect(address, None, |_| panic!("no socket is made")).unwrap_err();
        assert_eq!((refused.kind(), refused.call()), (ErrorKind::Closed, Call::Connect));
    }

    /// Rules 57 and 60: the port's own connect has a deadline. One that nothing answers ends at it,
    /// and one that succeeds before does not.
    fn a_connect_of_the_port_ends_at_its_deadline(system: &System) {
        let port = system.port::<Made, u32>(1);
        let (full, _client) = unanswering(system);
        let listener = system.tcp_listener(4);
        let time = 20 * MILLISECOND;
        // Simulated time passes when nothing else can happen.
        let enough = if system.kernel().is_some() { time } else { HOUR };
        port.connect(listener.address().for_port(), Some(enough.into()), Made).unwrap();
        let (token, outcome) = done(&port, system);
        connected(&outcome).unwrap();
        let server = listener.accept_within(system.soon());
        token.recv(room(4)).unwrap();
        let begun = now(system);
        let late = port.connect(full.address().for_port(), Some(time.into()), Made).unwrap();
        let (token, outcome) = done(&port, system);
        let error = connected(&outcome).unwrap_err();
        assert_eq!((error.kind(), error.call()), (ErrorKind::TimedOut, Call::Connect));
        let took = now(system) - begun;
        assert!(took >= time, "{took:?}");
        assert!(system.kernel().is_none() || took <= time + MILLISECOND, "{took:?}");
        assert!(!port.cancel(late).unwrap());
        // The key is returned, and dropping it closes its socket.
        drop(token.into_key());
        silent(&port, system);
        server.write(b"x").unwrap();
        assert_eq!(bytes(done(&port, system).1), b"x");
    }

    /// Rule 57: a connect or a send to an address of another kernel fails.
    fn an_address_of_another_kernel_is_refused(system: &System) {
        let other = if system.kernel().is_some() { System::native() } else { System::simulated() };
        let foreign = other.unused_address().for_port();
        let port = sockets_on(system);
        port.associate(system.tcp_fresh()).unwrap().connect(foreign.clone()).unwrap();
        let kind = connected(&outcome(&port, system)).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::WrongKernel);
        port.associate(system.udp_bound()).unwrap().send_to(b"x".to_vec(), foreign).unwrap();
        assert_eq!(sent(&outcome(&port, system)).unwrap_err().kind(), ErrorKind::WrongKernel);
    }

    /// Rule 58: each of sixteen accepts gets the next connection.
    fn accepts_get_the_connections_in_order(system: &System) {
        let port = shared_on(system);
        let listener = Shared::new(system.tcp_listener(32));
        let id = port.associate_shared(listener.clone()).unwrap();
        let accepts: Vec<_> =
            (0..16).map(|_| port.start(id, Operation::accept()).unwrap()).collect();
        silent(&port, system);
        let clients: Vec<_> = (0..16).map(|_| system.tcp_connect(&listener)).collect();
        let packets = all(&port, system, 16);
        for ((packet, accept), client) in packets.into_iter().zip(accepts).zip(clients) {
            let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
            assert_eq!(finished.operation(), accept);
            let server = accepted(finished.into_parts().1, system).unwrap();
            assert_connected(&client, &server, system);
        }
    }

    /// Rule 58: one edge may report many connections, and those that come before the accepts count.
    fn connections_that_wait_are_accepted_without_a_further_one(system: &System) {
        let port = shared_on(system);
        let listener = Shared::new(system.tcp_listener(32));
        let id = port.associate_shared(listener.clone()).unwrap();
        let clients: Vec<_> = (0..9).map(|_| system.tcp_connect(&listener)).collect();
        await_facts(&listener, system, POLLIN);
        for count in [2, 1, 3, 3] {
            for _ in 0..count {
                port.start(id, Operation::accept()).unwrap();
            }
            for packet in all(&port, system, count) {
                let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
                accepted(finished.into_parts().1, system).unwrap();
            }
        }
        let started = port.start_now(id, Operation::accept()).unwrap();
        assert!(matches!(started, Started::InFlight(_)), "all were accepted");
        drop(clients);
    }

    /// Rule 58: the outcome has the peer's address.
    fn an_accept_tells_its_peer(system: &System) {
        let port = sockets_on(system);
        let listener = system.tcp_listener(4);
        let client = system.tcp_connect(&listener);
        port.associate(listener).unwrap().accept().unwrap();
        let (_token, outcome) = done(&port, system);
        let Outcome::Accepted(Ok((source, peer))) = outcome else { panic!("{outcome:?}") };
        assert_eq!(peer, Some(client.address().for_port()));
        let server = system.adopt(source);
        // It is non-blocking.
        let error = server.read(&mut [0; 4]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        assert_connected(&client, &server, system);
    }
}

/// Returns the outcome of the next packet of a port that creates its own keys.
fn outcome_of(port: &Port<Made, u32>, on: &System) -> Outcome {
    outcome(port, on)
}

/// Rule 58: an accept without a free descriptor waits, is retried from time to time, and does not
/// spin.
#[test]
fn an_accept_waits_for_a_descriptor_sim() {
    let ways = [1, 5, 40].map(|times: u32| System::simulated_in_each_way().map(|way| (way, times)));
    for (system, times) in ways.into_iter().flatten() {
        let kernel = system.kernel().unwrap();
        {
            let port = sockets_on(&system);
            let listener = system.tcp_listener(4);
            let client = system.tcp_connect(&listener);
            (0..times).for_each(|_| kernel.fail_next_descriptor());
            let before = (kernel.calls(), kernel.now());
            port.associate(listener).unwrap().accept().unwrap();
            let (_token, outcome) = done(&port, &system);
            let server = accepted(outcome, &system).unwrap();
            assert_connected(&client, &server, &system);
            let (calls, time) = (kernel.calls() - before.0, kernel.now() - before.1);
            assert_eq!(calls.accept, u64::from(times) + 1);
            // Ten milliseconds each, except for attempts that an early edge has caused.
            assert!(
                time >= 10 * MILLISECOND * times.saturating_sub(2)
                    && time <= 12 * MILLISECOND * times,
                "{time:?}"
            );
            assert!(calls.total() < 10 * u64::from(times) + 20, "{calls:?}");
        }
        system.assert_nothing_left();
    }
}

/// Rule 58: while it waits for a descriptor, it can be cancelled and its deadline counts.
#[test]
fn an_accept_that_waits_for_a_descriptor_ends_as_others_do_sim() {
    for system in System::simulated_in_each_way() {
        let kernel = system.kernel().unwrap();
        {
            let port = sockets_on(&system);
            let listener = system.tcp_listener(4);
            let _client = system.tcp_connect(&listener);
            (0..100).for_each(|_| kernel.fail_next_descriptor());
            let begun = kernel.now();
            let accept = Operation::accept().deadline(35 * MILLISECOND);
            port.associate(listener).unwrap().start(accept).unwrap();
            let (token, outcome) = done(&port, &system);
            assert_eq!(accepted(outcome, &system).unwrap_err(), ErrorKind::TimedOut);
            let time = kernel.now() - begun;
            assert!(time >= 35 * MILLISECOND && time <= 36 * MILLISECOND, "{time:?}");
            let accept = token.accept().unwrap();
            silent(&port, &system);
            assert!(port.cancel(accept).unwrap());
            assert_eq!(
                accepted(done(&port, &system).1, &system).unwrap_err(),
                ErrorKind::Cancelled
            );
        }
        system.assert_nothing_left();
    }
}

/// Rule 58: after an accept was cancelled while it waited for a descriptor, the next one waits for
/// connections again.
#[test]
fn an_accept_behind_one_that_lacked_a_descriptor_waits_for_a_connection_sim() {
    for system in System::simulated_in_each_way() {
        let kernel = system.kernel().unwrap();
        {
            let port = sockets_on(&system);
            let listener = system.tcp_listener(4);
            let (key, _client) = (listener.dup().unwrap(), system.tcp_connect(&listener));
            (0..3).for_each(|_| kernel.fail_next_descriptor());
            let accept = port.associate(key).unwrap().accept().unwrap();
            assert!(port.cancel(accept).unwrap());
            let (token, outcome) = done(&port, &system);
            assert_eq!(accepted(outcome, &system).unwrap_err(), ErrorKind::Cancelled);
            // No other client is left in the queue.
            assert!((0..4).any(|_| listener.accept().is_ok()));
            token.accept().unwrap();
            silent(&port, &system);
            let client = system.tcp_connect(&listener);
            let server = accepted(done(&port, &system).1, &system).unwrap();
            assert_connected(&client, &server, &system);
        }
        system.assert_nothing_left();
    }
}

/// Rule 58: the deadline of another accept does not prevent the retry.
#[test]
fn an_accept_is_tried_again_beside_a_deadline_sim() {
    for system in System::simulated_in_each_way() {
        let kernel = system.kernel().unwrap();
        {
            let port = shared_on(&system);
            let listener = Shared::new(system.tcp_listener(4));
            let _client = system.tcp_connect(&listener);
            (0..3).for_each(|_| kernel.fail_next_descriptor());
            let id = port.associate_shared(listener).unwrap();
            let first = port.start(id, Operation::accept()).unwrap();
            port.start(id, Operation::accept().deadline(5 * MILLISECOND)).unwrap();
            assert_eq!(why(finished(&port, &system).error()), ErrorKind::TimedOut);
            let begun = kernel.now();
            let packet = finished(&port, &system);
            assert_eq!(packet.operation(), first);
            assert!(accepted(packet.into_parts().1, &system).is_ok());
            assert!(kernel.now() - begun <= 30 * MILLISECOND);
        }
        system.assert_nothing_left();
    }
}

/// Returns the processor time that all threads of this process have used.
#[cfg(target_os = "linux")]
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes a time at the pointer.
    // - valid for writes: `time` is a local.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    assert_eq!(done, 0);
    let (seconds, rest) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap(), rest.unwrap())
}

/// Checks that nothing comes for half a second, in which this process only retries the operation
/// every 10 ms. A busy machine delays retries, so one of several waits must contain enough of them.
/// A spin takes most of a processor; fifty retries take a tenth of it even under a sanitizer.
#[cfg(target_os = "linux")]
#[track_caller]
fn waits_without_a_spin(port: &Port<Shared, u32>) {
    let begun = Instant::now();
    loop {
        let before = (port.stats().polls, processor_time());
        let mut batch = Batch::new();
        assert_eq!(port.wait(&mut batch, Duration::from_millis(500)).unwrap().count(), 0);
        let polls = port.stats().polls - before.0;
        let time = processor_time() - before.1;
        assert!(polls < 200, "{polls} polls within 500 ms");
        assert!(time < 100 * MILLISECOND, "{time:?} of the processor within 500 ms");
        if polls >= 10 {
            return;
        }
        assert!(
            begun.elapsed() < SOON,
            "the operation is hardly ever retried: {polls} polls within 500 ms"
        );
    }
}

#[cfg(target_os = "linux")]
fn accept_as_there_are_descriptors(name: &str, system: System) {
    const ACCEPTS: usize = 8;
    if !in_a_process_of_its_own(name) {
        return;
    }
    let port = shared_on(&system);
    let listener = Shared::new(system.tcp_listener(16));
    let clients: Vec<_> = (0..ACCEPTS).map(|_| system.tcp_connect(&listener)).collect();
    assert_eq!(port.wait(&mut Batch::new(), Duration::ZERO).unwrap().count(), 0);
    let mut spare: Vec<_> = (0..=ACCEPTS).map(|_| File::open("/dev/null").unwrap()).collect();
    leave_no_descriptor();
    let id = port.associate_shared(listener).unwrap();
    // The last one finds no connection.
    let accepts = [(); ACCEPTS + 1].map(|()| port.start(id, Operation::accept()).unwrap());
    waits_without_a_spin(&port);
    let mut servers = Vec::new();
    for part in [1, 3, 4] {
        spare.truncate(spare.len() - part);
        for packet in all(&port, &system, part) {
            let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
            assert_eq!(finished.operation(), accepts[servers.len()]);
            let server = accepted(finished.into_parts().1, &system).unwrap();
            assert_connected(&clients[servers.len()], &server, &system);
            servers.push(server);
        }
        silent(&port, &system);
    }
    assert_eq!(servers.len(), ACCEPTS);
    // Even with a descriptor free for it, an accept that waits for a connection is not retried
    // again and again.
    drop(spare);
    silent(&port, &system);
    let before = port.stats().polls;
    assert_eq!(port.wait(&mut Batch::new(), Duration::from_millis(50)).unwrap().count(), 0);
    assert!(port.stats().polls - before < 5, "{} polls", port.stats().polls - before);
    assert!(port.cancel(accepts[ACCEPTS]).unwrap());
    assert_eq!(why(finished(&port, &system).error()), ErrorKind::Cancelled);
}

/// Rule 58: with no descriptor left in the process, accepts wait and use almost no processor time.
/// They continue as descriptors become available.
#[cfg(target_os = "linux")]
#[test]
fn accepts_wait_for_descriptors_epoll() {
    let name = "operations_sockets::accepts_wait_for_descriptors_epoll";
    accept_as_there_are_descriptors(name, System::native());
}

/// Rule 58: the same with a one-shot reactor.
#[cfg(target_os = "linux")]
#[test]
fn accepts_wait_for_descriptors_once() {
    let name = "operations_sockets::accepts_wait_for_descriptors_once";
    accept_as_there_are_descriptors(name, System::native().one_shot());
}

#[cfg(target_os = "linux")]
fn wait_for_descriptors_of_the_system(name: &str, system: System) {
    if !testkit::sandbox::is_inside() {
        if let Err(error) = testkit::sandbox::run(name, &[libc::SYS_accept4], libc::ENFILE) {
            println!("SKIPPED {name}: this system has no sandboxes: {error}");
        }
        return;
    }
    let port = shared_on(&system);
    let listener = Shared::new(system.tcp_listener(4));
    let client = system.tcp_connect(&listener);
    let id = port.associate_shared(listener).unwrap();
    let accepts = [(); 2].map(|()| port.start(id, Operation::accept()).unwrap());
    waits_without_a_spin(&port);
    for accept in accepts {
        assert!(port.cancel(accept).unwrap());
        let finished = finished(&port, &system);
        assert_eq!(accepted(finished.into_parts().1, &system).unwrap_err(), ErrorKind::Cancelled);
    }
    drop(client);
}

/// Rule 58: the same if the whole system has no descriptor left. No test may use up the system's,
/// so the call is refused in a child process. A simulated kernel reports both alike.
#[cfg(target_os = "linux")]
#[test]
fn accepts_wait_for_descriptors_of_the_system_epoll() {
    let name = "operations_sockets::accepts_wait_for_descriptors_of_the_system_epoll";
    wait_for_descriptors_of_the_system(name, System::native());
}

/// Rule 58: the same with a one-shot reactor.
#[cfg(target_os = "linux")]
#[test]
fn accepts_wait_for_descriptors_of_the_system_once() {
    let name = "operations_sockets::accepts_wait_for_descriptors_of_the_system_once";
    wait_for_descriptors_of_the_system(name, System::native().one_shot());
}

/// Rule 58: a connection that was aborted in the queue is skipped.
#[test]
fn a_connection_that_was_given_up_is_passed_over_sim() {
    let system = System::simulated();
    let kernel = system.kernel().unwrap();
    {
        let port = sockets_on(&system);
        let listener = system.tcp_listener(4);
        port.associate(listener.dup().unwrap()).unwrap().accept().unwrap();
        silent(&port, &system);
        kernel.abort_next_accept();
        let clients = [system.tcp_connect(&listener), system.tcp_connect(&listener)];
        let (_token, outcome) = done(&port, &system);
        assert!(accepted(outcome, &system).is_ok());
        drop(clients);
    }
    system.assert_nothing_left();
}

/// Rule 57: no edge reports a connect that has not begun. So a connect begins when it is the first
/// of its direction, however the operations before it ended, and whatever the port knows of the
/// socket.
#[test]
fn a_connect_is_begun_behind_one_that_left_without_an_attempt_sim() {
    for system in System::simulated_in_each_way() {
        begin_behind_one_that_left(&system);
        system.assert_nothing_left();
    }
}

/// Rule 57: the same on a real kernel.
#[cfg(target_os = "linux")]
#[test]
fn a_connect_is_begun_behind_one_that_left_without_an_attempt_epoll() {
    begin_behind_one_that_left(&System::native());
}

/// Rule 57: the same with a one-shot reactor.
#[cfg(target_os = "linux")]
#[test]
fn a_connect_is_begun_behind_one_that_left_without_an_attempt_once() {
    begin_behind_one_that_left(&System::native().one_shot());
}

fn begin_behind_one_that_left(on: &System) {
    let port = shared_on(on);
    let listener = on.tcp_listener(4);
    let nowhere = on.unused_address();
    let id = port.associate_shared(Shared::new(on.tcp_fresh())).unwrap();
    let connect = |address: &testkit::Address| {
        port.start(id, Operation::connect(address.for_port())).unwrap()
    };
    let [first, _second, third] = [(); 3].map(|()| connect(&nowhere));
    let last = connect(&listener.address());
    // The kernel has refused the first connect, and nothing has read that error yet. The port
    // abandons it before the second one begins.
    port.cancel(first).unwrap();
    let mut batch = Batch::with_capacity(1);
    let mut ended = Vec::new();
    let mut take_one = |batch: &mut Batch| {
        let packet = port.wait(batch, on.soon()).unwrap().next().expect("a connect has ended");
        match packet {
            Packet::SharedCompleted(finished) => {
                ended.push((finished.operation(), finished.error().map(|error| error.os_code())));
            }
            // The report requested below, which also comes when an abandoned connect has left the
            // socket unchanged.
            Packet::Notified(_) => {}
            other => panic!("{}", sort(&other)),
        }
        ended.len()
    };
    take_one(&mut batch);
    take_one(&mut batch);
    // The port takes the pending edges, and then a check finds that the socket is not connected.
    port.raw().has_packets(&mut batch).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| port.enable_also(id.id(), Interest::OUT).unwrap());
    });
    port.cancel(third).unwrap();
    while take_one(&mut batch) < 4 {}
    // Where a connect can't be abandoned, no other one begins.
    let is_refused = ended.last() == Some(&(last, Some(Some(EALREADY))));
    assert!(is_refused || ended.last() == Some(&(last, None)), "{ended:?}");
    if !is_refused {
        drop(listener.accept_within(on.soon()));
    }
}

/// Rule 57: it also begins after a token's connect has timed out.
#[test]
fn a_connect_is_begun_behind_one_that_timed_out_sim() {
    for system in System::simulated_in_each_way() {
        let kernel = system.kernel().unwrap();
        {
            let port = sockets_on(&system);
            let (unanswering, _client) = unanswering(&system);
            let address = unanswering.address();
            let connect = Operation::connect(address.for_port()).deadline(20 * MILLISECOND);
            port.associate(system.tcp_fresh()).unwrap().start(connect).unwrap();
            let (token, outcome) = done(&port, &system);
            assert_eq!(connected(&outcome).unwrap_err().kind(), ErrorKind::TimedOut);
            let before = kernel.calls().connect;
            let started = token.start_now(Operation::connect(address.for_port())).unwrap();
            let is_begun = kernel.calls().connect > before;
            assert!(is_begun || matches!(started, Started::Completed(_)), "it waits for an edge");
        }
        system.assert_nothing_left();
    }
}

/// Rule 57: so does one that is then started through the name of the association.
#[test]
fn a_connect_by_name_is_begun_behind_one_that_timed_out_sim() {
    for system in System::simulated_in_each_way() {
        let kernel = system.kernel().unwrap();
        {
            let port = shared_on(&system);
            let (unanswering, _client) = unanswering(&system);
            let address = unanswering.address();
            let connect = Operation::connect(address.for_port()).deadline(20 * MILLISECOND);
            port.associate(Shared::new(system.tcp_fresh())).unwrap().start(connect).unwrap();
            let (token, outcome) = done(&port, &system);
            assert_eq!(connected(&outcome).unwrap_err().kind(), ErrorKind::TimedOut);
            let id = token.share().unwrap();
            let before = kernel.calls().connect;
            let started = port.start_now(id, Operation::connect(address.for_port())).unwrap();
            let is_begun = kernel.calls().connect > before;
            assert!(is_begun || matches!(started, Started::Completed(_)), "it waits for an edge");
        }
        system.assert_nothing_left();
    }
}

/// Rules 56 and 57: if the second connect lacks memory, it is retried, although the socket is not
/// known to be ready.
#[test]
fn a_connect_that_lacks_memory_is_tried_again_behind_one_that_timed_out_sim() {
    for system in System::simulated_in_each_way() {
        let kernel = system.kernel().unwrap();
        {
            let port = sockets_on(&system);
            let (unanswering, _client) = unanswering(&system);
            let address = unanswering.address();
            let connect = Operation::connect(address.for_port()).deadline(20 * MILLISECOND);
            port.associate(system.tcp_fresh()).unwrap().start(connect).unwrap();
            let (token, outcome) = done(&port, &system);
            assert_eq!(connected(&outcome).unwrap_err().kind(), ErrorKind::TimedOut);
            kernel.fail_next_connect(ENOBUFS);
            let before = kernel.calls().connect;
            token.connect(address.for_port()).unwrap();
            let mut batch = Batch::new();
            let ended = port.wait(&mut batch, 50 * MILLISECOND).unwrap().next();
            let tried = kernel.calls().connect - before;
            let is_refused = ended.is_some_and(|it| matches!(it, Packet::Completed(done) if done.error().unwrap().os_code() == Some(EALREADY)));
            // Where a connect can't be abandoned, no other one begins.
            assert!(tried >= 2 || is_refused, "it was tried {tried} times");
        }
        system.assert_nothing_left();
    }
}

/// Rule 56: a lack of memory is no failure: the operation is retried.
#[test]
fn an_operation_that_lacks_memory_is_tried_again_sim() {
    for system in System::simulated_in_each_way() {
        let kernel = system.kernel().unwrap();
        {
            let port = shared_on(&system);
            let (near, far) = system.unix_pair();
            let id = port.associate_shared(Shared::new(near)).unwrap();
            kernel.fail_next_receive(ENOMEM);
            kernel.fail_next_receive(ENOMEM);
            kernel.fail_next_send(ENOBUFS);
            far.write(b"in").unwrap();
            let receive = port.start(id, Operation::recv(room(4))).unwrap();
            let send = port.start(id, Operation::send_all(b"out".to_vec())).unwrap();
            // The operations after them wait too, and end in order.
            let second = port.start(id, Operation::send_all(b"second".to_vec())).unwrap();
            let begun = kernel.now();
            let packets = all(&port, &system, 3);
            let mut order = Vec::new();
            for packet in packets {
                let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
                assert!(finished.error().is_none());
                order.push(finished.operation());
            }
            // An early edge may cause an attempt of the receive as well.
            let place = order.iter().position(|name| *name == receive).unwrap();
            order.remove(place);
            assert_eq!(order, [send, second]);
            let time = kernel.now() - begun;
            assert!(time >= 10 * MILLISECOND && time <= 25 * MILLISECOND, "{time:?}");
            assert_eq!(far.read_within(system.soon(), 9), b"outsecond");
            kernel.fail_next_receive(ECONNRESET);
            far.write(b"x").unwrap();
            port.start(id, Operation::recv(room(4))).unwrap();
            let error = finished(&port, &system).error().unwrap();
            assert_eq!(error.os_code(), Some(ECONNRESET));
        }
        system.assert_nothing_left();
    }
}

/// Rule 56: `ENOBUFS` of a receive reports that the kernel has dropped messages. Those that it has
/// kept follow.
#[test]
fn a_receive_reports_lost_messages_sim() {
    for system in System::simulated_in_each_way() {
        let kernel = system.kernel().unwrap();
        {
            let port = shared_on(&system);
            let (near, far) = system.udp_pair();
            let id = port.associate_shared(Shared::new(near)).unwrap();
            for receive in [Operation::recv, Operation::recv_from] {
                far.write(b"kept").unwrap();
                kernel.fail_next_receive(ENOBUFS);
                port.start(id, receive(room(4))).unwrap();
                let lost = finished(&port, &system).error().unwrap();
                assert_eq!((lost.kind(), lost.os_code()), (ErrorKind::Other, Some(ENOBUFS)));
                port.start(id, receive(room(4))).unwrap();
                assert_eq!(finished(&port, &system).error(), None);
            }
        }
        system.assert_nothing_left();
    }
}

/// Rule 56: a netlink socket whose buffer has overflowed.
#[cfg(target_os = "linux")]
#[test]
fn a_receive_reports_an_overrun_of_netlink_epoll() {
    for system in [System::native(), System::native().one_shot()] {
        let Some((near, mut far)) = netlink_pair() else {
            return testkit::skipped("this process may not join a netlink group");
        };
        let port: Port<SharedSource<OwnedFd>, u32> = system.port(1);
        let id = port.associate_shared(SharedSource::new(near)).unwrap();
        port.start(id, Operation::recv(room(16))).unwrap();
        silent(&port, &system);
        // More than there is room for. The messages also go to the kernel, which refuses them.
        for _ in 0..100 {
            assert_eq!(far.write(&[7; 16]).unwrap_err().raw_os_error(), Some(ECONNREFUSED));
        }
        let mut seen = Vec::new();
        while !seen.contains(&Some(libc::ENOBUFS)) {
            seen.push(finished(&port, &system).error().and_then(|error| error.os_code()));
            port.start(id, Operation::recv(room(16))).unwrap();
        }
        // One of those that fit.
        assert_eq!(finished(&port, &system).error(), None);
    }
}

/// Returns a netlink socket with a small buffer that is in a group, and one that sends to the
/// group. `None` if the process lacks the privilege to join a group.
#[cfg(target_os = "linux")]
fn netlink_pair() -> Option<(OwnedFd, File)> {
    let socket = || {
        let sort = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: socket(2) accesses no memory.
        let number = unsafe { libc::socket(libc::AF_NETLINK, sort, libc::NETLINK_USERSOCK) };
        assert!(number >= 0, "{}", io::Error::last_os_error());
        // SAFETY: `from_raw_fd` requires an open descriptor without another owner.
        // - socket(2) has just returned it.
        unsafe { OwnedFd::from_raw_fd(number) }
    };
    let (near, far) = (socket(), socket());
    let small: libc::c_int = 1;
    // SAFETY: setsockopt(2) reads the number of bytes in its last argument at the pointer.
    // - valid for reads: `small` is a local of that size.
    let done = unsafe {
        let value = (&raw const small).cast();
        libc::setsockopt(near.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, value, 4)
    };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
    // A family, padding, a port and groups. No two sockets of the process are in the same group at
    // the same time.
    static GROUPS: AtomicU32 = AtomicU32::new(0);
    let group = 1_u32 << (GROUPS.fetch_add(1, SeqCst) % 32);
    let mut address = [0_u8; 12];
    address[..2]
        .copy_from_slice(&libc::sa_family_t::try_from(libc::AF_NETLINK).unwrap().to_ne_bytes());
    address[8..].copy_from_slice(&group.to_ne_bytes());
    // SAFETY: bind(2) reads the number of bytes in its last argument at the pointer.
    // - valid for reads: `address` is a local of that size. A system call requires no alignment.
    let done = unsafe { libc::bind(near.as_raw_fd(), address.as_ptr().cast(), 12) };
    if done != 0 {
        let error = io::Error::last_os_error();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
        return None;
    }
    // SAFETY: as for bind(2).
    let done = unsafe { libc::connect(far.as_raw_fd(), address.as_ptr().cast(), 12) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
    Some((near, File::from(far)))
}

/// Returns whether a socket is non-blocking.
#[cfg(target_os = "linux")]
fn is_nonblocking(socket: &Socket) -> bool {
    // SAFETY: fcntl(2) with F_GETFL accesses no memory.
    let flags = unsafe { libc::fcntl(socket.descriptor().as_raw_fd(), libc::F_GETFL) };
    assert!(flags >= 0);
    flags & libc::O_NONBLOCK != 0
}

/// Rules 57 and 58: the first accept or connect makes a socket non-blocking, and nothing else does.
#[cfg(target_os = "linux")]
#[test]
fn the_first_accept_or_connect_makes_a_socket_nonblocking_epoll() {
    let system = System::native();
    let port = sockets_on(&system);
    let listener = system.tcp_listener(4);
    listener.set_nonblocking(false).unwrap();
    let token = port.associate(listener).unwrap();
    assert!(!is_nonblocking(token.key()));
    token.accept().unwrap();
    silent(&port, &system);
    let (near, far) = system.tcp_pair();
    near.set_nonblocking(false).unwrap();
    let same = near.dup().unwrap();
    port.associate(near).unwrap().recv(room(4)).unwrap();
    silent(&port, &system);
    far.write(b"x").unwrap();
    let (token, outcome) = done(&port, &system);
    assert_eq!(bytes(outcome), b"x");
    token.send_all(b"y".to_vec()).unwrap();
    assert_eq!(sent(&done(&port, &system).1), Ok(1));
    assert!(!is_nonblocking(&same));
    let (listener, _client) = unanswering(&system);
    let fresh = system.tcp_fresh();
    fresh.set_nonblocking(false).unwrap();
    let same = fresh.dup().unwrap();
    let connect = Operation::connect(listener.address().for_port()).deadline(MILLISECOND);
    port.associate(fresh).unwrap().start(connect).unwrap();
    assert!(is_nonblocking(&same));
    assert_eq!(why(done(&port, &system).1.error()), ErrorKind::TimedOut);
}

/// Rule 57: a socket that ends up connected to itself counts as refused.
#[cfg(target_os = "linux")]
#[test]
fn a_connect_of_a_socket_to_itself_is_refused_epoll() {
    let system = System::native();
    let port = sockets_on(&system);
    let fresh = system.tcp_fresh();
    // Bound to a number that the system chooses.
    let name = libc::sockaddr_in {
        sin_family: libc::sa_family_t::try_from(libc::AF_INET).unwrap(),
        sin_port: 0,
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
        sin_zero: [0; 8],
    };
    let size = libc::socklen_t::try_from(size_of_val(&name)).unwrap();
    // SAFETY: bind(2) reads an address of this size at the pointer.
    // - valid for reads: `name` is a local.
    let bound = unsafe { libc::bind(fresh.number(), (&raw const name).cast(), size) };
    assert_eq!(bound, 0, "{}", io::Error::last_os_error());
    let own = fresh.address().for_port();
    port.associate(fresh).unwrap().connect(own).unwrap();
    let error = connected(&outcome(&port, &system)).unwrap_err();
    assert_eq!(error.os_code(), Some(ECONNREFUSED), "{error:?}");
}

/// Rule 56: a receive does not read the error queue, so the error persists. The simulated kernel
/// has no such queue.
#[cfg(target_os = "linux")]
#[test]
fn a_receive_beside_a_queue_of_errors_does_not_spin_epoll() {
    receive_beside_a_queue_of_errors(&System::native());
}

/// Rule 56: the same with a one-shot reactor, which would report the error at each arming.
#[cfg(target_os = "linux")]
#[test]
fn a_receive_beside_a_queue_of_errors_does_not_spin_once() {
    receive_beside_a_queue_of_errors(&System::native().one_shot());
}

#[cfg(target_os = "linux")]
fn receive_beside_a_queue_of_errors(on: &System) {
    for shared in [false, true] {
        let (near, far) = on.udp_pair();
        let (same, yes) = (near.dup().unwrap(), 1_i32);
        let port = shared_on(on);
        let tokens = sockets_on(on);
        // SAFETY: setsockopt(2) reads an integer at the pointer.
        // - valid for reads: `yes` is a local of the given size.
        let set = unsafe {
            let (level, name) = (libc::IPPROTO_IP, libc::IP_RECVERR);
            libc::setsockopt(same.number(), level, name, (&raw const yes).cast(), 4)
        };
        assert_eq!(set, 0);
        drop(far);
        same.write(b"x").unwrap();
        await_facts(&same, on, libc::POLLERR.cast_unsigned().into());
        // This fetches the socket's error, and the queue stays.
        let _ = same.take_error();
        let polls = |id| {
            silent(&port, on);
            silent(&tokens, on);
            let polls = port.stats().polls + tokens.stats().polls;
            silent(&port, on);
            silent(&tokens, on);
            assert!(port.stats().polls + tokens.stats().polls < polls + 20, "{id}: {port:#?}");
        };
        if shared {
            let id = port.associate_shared(Shared::new(near)).unwrap();
            port.start(id, Operation::recv(room(4))).unwrap();
            polls("shared");
        } else {
            tokens.associate(near).unwrap().recv(room(4)).unwrap();
            polls("token");
        }
    }
}

/// Rule 55: a receive stops at the urgent mark. The data after the mark has already arrived, and no
/// further edge reports it. The simulated kernel has no urgent data.
#[cfg(target_os = "linux")]
#[test]
fn what_is_around_an_urgent_mark_is_received_epoll() {
    receive_around_an_urgent_mark(&System::native());
}

/// Rule 55: the same with a one-shot reactor.
#[cfg(target_os = "linux")]
#[test]
fn what_is_around_an_urgent_mark_is_received_once() {
    receive_around_an_urgent_mark(&System::native().one_shot());
}

#[cfg(target_os = "linux")]
fn receive_around_an_urgent_mark(on: &System) {
    for waits in [false, true] {
        let (near, far) = on.tcp_pair();
        let (other, other_far) = on.tcp_pair();
        let port = sockets_on(on);
        let shared = shared_on(on);
        let id = shared.associate_shared(Shared::new(other)).unwrap();
        let mut token = Some(port.associate(near).unwrap());
        let send = |far: &Socket| {
            far.write(b"ab").unwrap();
            // SAFETY: send(2) reads the given number of bytes at the pointer.
            // - valid for reads: it points to a constant of that length.
            let sent = unsafe { libc::send(far.number(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
            assert_eq!(sent, 1);
            far.write(b"cd").unwrap();
        };
        if waits {
            token.take().unwrap().recv(room(8)).unwrap();
            shared.start(id, Operation::recv(room(8))).unwrap();
            silent(&port, on);
            silent(&shared, on);
        }
        send(&far);
        send(&other_far);
        let mut came = [Vec::new(), Vec::new()];
        while came[0].len() < 4 {
            if let Some(token) = token.take() {
                token.recv(room(8)).unwrap();
            }
            let (next, outcome) = done(&port, on);
            came[0].extend(bytes(outcome));
            token = Some(next);
        }
        let mut is_started = waits;
        while came[1].len() < 4 {
            if !is_started {
                shared.start(id, Operation::recv(room(8))).unwrap();
            }
            is_started = false;
            came[1].extend(bytes(finished(&shared, on).into_parts().1));
        }
        assert_eq!(came, [b"abcd", b"abcd"].map(|all| all.to_vec()));
    }
}

/// Rules 7 and 56: signals end no operation, neither while a thread waits nor while it tries one.
/// The simulated kernel has no signals.
#[cfg(target_os = "linux")]
#[test]
fn signals_end_no_operation_epoll() {
    end_no_operation_by_signals(&System::native());
}

/// Rules 7 and 56: the same with a one-shot reactor.
#[cfg(target_os = "linux")]
#[test]
fn signals_end_no_operation_once() {
    end_no_operation_by_signals(&System::native().one_shot());
}

#[cfg(target_os = "linux")]
fn end_no_operation_by_signals(on: &System) {
    const ROUNDS: usize = 100;
    catch_signals();
    let port = shared_on(on);
    let listener = Shared::new(on.tcp_listener(4));
    let (near, far) = on.unix_pair();
    let (idle, _idle_far) = on.unix_pair();
    let [accepting, id, idle] = [listener.clone(), Shared::new(near), Shared::new(idle)]
        .map(|key| port.associate_shared(key).unwrap());
    let (say, heard) = mpsc::channel();
    thread::scope(|scope| {
        // Dropping this ends the thread below, even if the test fails.
        let heard = heard;
        // SAFETY: gettid(2) has no requirements.
        let waiter = unsafe { libc::gettid() };
        scope.spawn(move || {
            while say.send(()).is_ok() {
                interrupt(waiter);
                thread::park_timeout(Duration::from_micros(50));
            }
        });
        heard.recv().unwrap();
        let begun = Instant::now();
        let time = 20 * MILLISECOND;
        let last = port.start(idle, Operation::recv(room(4)).deadline(time)).unwrap();
        // On a busy machine, the thread that sends signals may seldom run.
        let (mut rounds, mut signals) = (0, 0);
        while rounds < ROUNDS || signals < ROUNDS {
            let round = Instant::now();
            let accept = port.start(accepting, Operation::accept()).unwrap();
            let receive = port.start(id, Operation::recv(room(4))).unwrap();
            let send = port.start(id, Operation::send_all(vec![b'a'; 500_000])).unwrap();
            let client = on.tcp_connect(&listener);
            far.write(b"four").unwrap();
            let mut left = vec![accept, receive, send];
            let mut taken = 0;
            while !left.is_empty() {
                taken += far.drain();
                let mut batch = Batch::new();
                for packet in port.wait(&mut batch, MILLISECOND).unwrap() {
                    let Packet::SharedCompleted(finished) = packet else {
                        panic!("{}", sort(&packet))
                    };
                    let operation = finished.operation();
                    if operation == last {
                        assert_eq!(why(finished.error()), ErrorKind::TimedOut);
                        assert!(begun.elapsed() >= time, "{:?}", begun.elapsed());
                        continue;
                    }
                    assert!(finished.error().is_none(), "{:?}", finished.error());
                    left.retain(|left| *left != operation);
                    if let Outcome::Accepted(Ok((source, _))) = finished.into_parts().1 {
                        assert_connected(&client, &on.adopt(source), on);
                    }
                }
                assert!(round.elapsed() < on.soon(), "{left:?} do not end");
            }
            assert_eq!(taken + far.drain(), 500_000);
            rounds += 1;
            signals += heard.try_iter().count();
        }
    });
}
