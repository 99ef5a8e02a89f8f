//! Rule 83: receiving and sending many datagrams.

use std::io;
use std::net::Shutdown;
#[cfg(target_os = "linux")]
use std::net::UdpSocket;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd as _;

use completion_port::{
    Address, Batch, Call, Datagrams, EitherBuffer, Error, ErrorKind, Interest, OneShot, Operation,
    Outcome, Packet, Port, sim,
};
#[cfg(target_os = "linux")]
use testkit::in_a_process_of_its_own;
use testkit::{Socket, System, on_every_system};

use crate::kit::codes::{ENOBUFS, ENOMEM, unreachable};
use crate::kit::operations::{HOUR, MILLISECOND, Shared, done, finished, next, silent};

type Pair = fn(&System) -> (Socket, Socket);

const DATAGRAMS: [Pair; 2] = [System::udp_pair, System::unix_datagram_pair];

fn port_on(on: &System) -> Port<Socket, u32, Datagrams> {
    on.port_with_buffers(1)
}

/// Returns the result of a receive or send of many, and the buffer.
#[track_caller]
fn many(outcome: Outcome<Datagrams>) -> (Result<usize, Error>, Datagrams) {
    match outcome {
        Outcome::ReceivedMany(result, datagrams) | Outcome::SentMany(result, datagrams) => {
            (result, datagrams)
        }
        other => panic!("{other:?}"),
    }
}

fn contents(datagrams: &Datagrams) -> Vec<&[u8]> {
    datagrams.iter().map(|datagram| datagram.bytes()).collect()
}

/// Returns datagrams for the peer of a connected socket.
#[track_caller]
fn batch(datagrams: &[&[u8]]) -> Datagrams {
    let mut batch = Datagrams::new(datagrams.len().max(1), 64);
    for datagram in datagrams {
        assert!(batch.push(datagram, None));
    }
    batch
}

/// Returns an address that belongs to another kernel.
fn elsewhere(on: &System) -> Address {
    if on.kernel().is_some() {
        std::net::SocketAddr::from(([127, 0, 0, 1], 9)).into()
    } else {
        sim::Kernel::new().udp_bound().unwrap().address().into()
    }
}

/// Receives in the way of programs that use readiness.
fn receive(socket: &Socket, datagrams: &mut Datagrams) -> io::Result<usize> {
    match socket.as_simulated() {
        Some(socket) => socket.recv_many(datagrams),
        None => datagrams.recv(&socket.descriptor()),
    }
}

/// Sends in the way of programs that use readiness.
fn send(socket: &Socket, datagrams: &mut Datagrams) -> io::Result<usize> {
    match socket.as_simulated() {
        Some(socket) => socket.send_many(datagrams),
        None => datagrams.send(&socket.descriptor()),
    }
}

/// Returns numbered datagrams, more than can be sent if nobody receives.
fn too_many() -> (Datagrams, usize) {
    let count = 2000;
    let mut datagrams = Datagrams::new(count, 1024);
    for number in 0..count {
        let mut bytes = [0; 1024];
        bytes[..8].copy_from_slice(&number.to_ne_bytes());
        assert!(datagrams.push(&bytes, None));
    }
    (datagrams, count)
}

/// Receives everything there is, and returns the numbers of the datagrams.
fn numbers(socket: &Socket) -> Vec<usize> {
    let mut datagrams = Datagrams::new(50, 1024);
    let mut numbers = Vec::new();
    while receive(socket, &mut datagrams).is_ok() {
        let number = |bytes: &[u8]| usize::from_ne_bytes(bytes[..8].try_into().unwrap());
        numbers.extend(datagrams.iter().map(|datagram| number(datagram.bytes())));
    }
    numbers
}

on_every_system! {
    /// Rule 83: a receive takes what has arrived, in order. The next one waits for more.
    fn a_receive_of_many_takes_what_has_arrived(system: &System) {
        for pair in DATAGRAMS {
            let port = port_on(system);
            let (near, far) = pair(system);
            for datagram in [&b"first"[..], b"second", b"", b"last"] {
                far.write(datagram).unwrap();
            }
            port.associate(near).unwrap().recv_many(batch(&[&b"former"[..]; 8])).unwrap();
            let (token, outcome) = done(&port, system);
            let (result, datagrams) = many(outcome);
            assert_eq!(result, Ok(4));
            assert_eq!(contents(&datagrams), [&b"first"[..], b"second", b"", b"last"]);
            assert!(datagrams.is_drained());
            token.recv_many(datagrams).unwrap();
            silent(&port, system);
            far.write(b"one").unwrap();
            let (_token, outcome) = done(&port, system);
            let (result, datagrams) = many(outcome);
            assert_eq!((result, contents(&datagrams)), (Ok(1), vec![&b"one"[..]]));
        }
    }

    /// Rule 83: what finds no slot stays, and no further edge is needed to receive it.
    fn a_receive_of_many_leaves_what_finds_no_slot(system: &System) {
        for pair in DATAGRAMS {
            let port = port_on(system);
            let (near, far) = pair(system);
            for datagram in [b"1", b"2", b"3", b"4", b"5"] {
                far.write(datagram).unwrap();
            }
            let mut token = port.associate(near).unwrap();
            for expected in [&[b"1", b"2"][..], &[b"3", b"4"], &[b"5"]] {
                token.recv_many(Datagrams::new(2, 8)).unwrap();
                let (back, outcome) = done(&port, system);
                let (result, datagrams) = many(outcome);
                assert_eq!(result, Ok(expected.len()));
                assert_eq!(contents(&datagrams), expected);
                assert_eq!(datagrams.is_drained(), expected.len() < 2);
                token = back;
            }
            // The rest after a full receive raises readiness.
            far.write(b"6").unwrap();
            far.write(b"7").unwrap();
            token.recv_many(Datagrams::new(1, 8)).unwrap();
            let (token, outcome) = done(&port, system);
            assert_eq!(many(outcome).0, Ok(1));
            token.rearm_as(Interest::IN, OneShot::Level).unwrap();
            let Packet::Ready(token) = next(&port, system) else { panic!("no report") };
            let mut datagrams = Datagrams::new(4, 8);
            assert_eq!(receive(token.key(), &mut datagrams).unwrap(), 1);
            assert_eq!(contents(&datagrams), [b"7"]);
        }
    }

    /// Rule 83: more than one system call receives.
    fn a_receive_of_many_takes_more_than_one_call_does(system: &System) {
        let port = port_on(system);
        let (near, far) = system.udp_pair();
        for number in 0..80_u8 {
            far.write(&[number]).unwrap();
        }
        port.associate(near).unwrap().recv_many(Datagrams::new(128, 8)).unwrap();
        let (_token, outcome) = done(&port, system);
        let (result, datagrams) = many(outcome);
        assert_eq!(result, Ok(80));
        let numbers: Vec<u8> = datagrams.iter().map(|datagram| datagram.bytes()[0]).collect();
        assert!(numbers.into_iter().eq(0..80));
    }

    /// Rule 83: each datagram reports whether it was cut. That is no failure.
    fn each_of_many_datagrams_tells_whether_it_was_cut(system: &System) {
        for pair in DATAGRAMS {
            let port = port_on(system);
            let (near, far) = pair(system);
            for datagram in [&b"fits"[..], b"too long", b"ok"] {
                far.write(datagram).unwrap();
            }
            port.associate(near).unwrap().recv_many(Datagrams::new(4, 4)).unwrap();
            let (_token, outcome) = done(&port, system);
            assert_eq!(outcome.error(), None);
            let (result, datagrams) = many(outcome);
            assert_eq!(result, Ok(3));
            assert_eq!(contents(&datagrams), [&b"fits"[..], b"too ", b"ok"]);
            let cut: Vec<_> = datagrams.iter().map(|datagram| datagram.is_truncated()).collect();
            assert_eq!(cut, [false, true, false]);
        }
    }

    /// Rule 83: they come with their senders and go to their receivers. A received batch is sent
    /// back as it is.
    fn many_datagrams_come_with_senders_and_go_to_receivers(system: &System) {
        let port = port_on(system);
        let server = system.udp_bound();
        let here = server.address().for_port();
        let clients = [system.udp_bound(), system.udp_bound()];
        for (client, text) in clients.iter().zip([b"from A", b"from B"]) {
            let mut question = Datagrams::new(1, 8);
            assert!(question.push(text, Some(here.clone())));
            assert_eq!(send(client, &mut question).unwrap(), 1);
        }
        port.associate(server).unwrap().recv_many(Datagrams::new(8, 16)).unwrap();
        let (token, outcome) = done(&port, system);
        let (result, mut datagrams) = many(outcome);
        assert_eq!(result, Ok(2));
        let senders: Vec<_> = datagrams.iter().map(|it| it.address().cloned()).collect();
        let expected = clients.each_ref().map(|client| Some(client.address().for_port()));
        assert_eq!(senders, expected);
        datagrams.get_mut(1).unwrap().bytes_mut()[..4].copy_from_slice(b"back");
        token.send_many(datagrams).unwrap();
        let (_token, outcome) = done(&port, system);
        let (result, datagrams) = many(outcome);
        assert_eq!((result, datagrams.len()), (Ok(2), 0));
        for (client, text) in clients.iter().zip([b"from A", b"back B"]) {
            let mut answer = Datagrams::new(4, 16);
            assert_eq!(receive(client, &mut answer).unwrap(), 1);
            assert_eq!(contents(&answer), [text]);
            assert_eq!(answer.get(0).unwrap().address(), Some(&here));
        }
    }

    /// Rule 83: segments arrive as datagrams, whether or not the system sends them together.
    fn segments_arrive_as_datagrams(system: &System) {
        for pair in DATAGRAMS {
            let port = port_on(system);
            let (near, far) = pair(system);
            let bytes: Vec<u8> = (0..=249).collect();
            let mut datagrams = Datagrams::new(3, 1000);
            assert!(datagrams.push_segments(&bytes, 100, None));
            assert!(datagrams.push(b"whole", None));
            // More segments than a system sends together.
            assert!(datagrams.push_segments(&[7; 70], 1, None));
            port.associate(near).unwrap().send_many(datagrams).unwrap();
            let (_token, outcome) = done(&port, system);
            assert_eq!(many(outcome).0, Ok(3));
            let mut received = Datagrams::new(100, 200);
            assert_eq!(receive(&far, &mut received).unwrap(), 74);
            let mut expected = vec![&bytes[..100], &bytes[100..200], &bytes[200..], b"whole"];
            expected.extend([&b"\x07"[..]; 70]);
            assert_eq!(contents(&received), expected);
        }
    }

    /// Rule 83: a send waits for room, and continues in order. If it is cancelled, what was sent has
    /// left the batch, and sending the rest repeats nothing.
    fn a_send_of_many_that_is_cancelled_loses_and_repeats_nothing(system: &System) {
        let port = port_on(system);
        let (near, far) = system.unix_datagram_pair();
        let (datagrams, count) = too_many();
        let id = port.associate(near).unwrap().send_many(datagrams).unwrap();
        silent(&port, system);
        assert!(port.cancel(id).unwrap());
        let (token, outcome) = done(&port, system);
        let (result, rest) = many(outcome);
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.call()), (ErrorKind::Cancelled, Call::Send));
        let sent = error.transferred();
        assert!(sent > 0 && sent < count, "{sent}");
        assert_eq!(rest.len(), count - sent);
        let mut came = numbers(&far);
        assert_eq!(came.len(), sent);
        token.send_many(rest).unwrap();
        let mut batch = Batch::new();
        let mut outcomes = Vec::new();
        while outcomes.is_empty() {
            for packet in port.wait(&mut batch, system.quiet()).unwrap() {
                let Packet::Completed(done) = packet else { panic!("no operation") };
                outcomes.push(many(done.into_parts().1));
            }
            came.extend(numbers(&far));
        }
        let (result, datagrams) = outcomes.pop().unwrap();
        assert_eq!((result, datagrams.len()), (Ok(count - sent), 0));
        assert!(came.into_iter().eq(0..count));
    }

    /// Rule 83: at its deadline a receive has taken nothing, and a send reports what it has sent.
    fn many_datagrams_until_a_deadline(system: &System) {
        let port = port_on(system);
        let (near, far) = system.unix_datagram_pair();
        let receive_many = Operation::recv_many(batch(&[b"former"])).deadline(MILLISECOND);
        port.associate(near).unwrap().start(receive_many).unwrap();
        let (token, outcome) = done(&port, system);
        let (result, datagrams) = many(outcome);
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.transferred()), (ErrorKind::TimedOut, 0));
        far.write(b"later").unwrap();
        token.recv_many(datagrams).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(contents(&many(outcome).1), [b"later"]);
        let (datagrams, count) = too_many();
        token.start(Operation::send_many(datagrams).deadline(20 * MILLISECOND)).unwrap();
        let (_token, outcome) = done(&port, system);
        let (result, rest) = many(outcome);
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(rest.len(), count - error.transferred());
        assert!(numbers(&far).into_iter().eq(0..error.transferred()));
    }

    /// Rule 83: a receive that ends before it was tried has none either.
    fn a_receive_of_many_that_is_cancelled_untried_has_no_datagrams(system: &System) {
        let port = port_on(system);
        let (near, far) = system.udp_pair();
        far.write(b"x").unwrap();
        port.associate(near).unwrap().recv_many(Datagrams::new(8, 8)).unwrap();
        let (token, outcome) = done(&port, system);
        let (result, datagrams) = many(outcome);
        assert_eq!((result, datagrams.is_drained()), (Ok(1), true));
        // The socket is known to be empty.
        let id = token.recv_many(datagrams).unwrap();
        assert!(port.cancel(id).unwrap());
        let (_token, outcome) = done(&port, system);
        let (result, datagrams) = many(outcome);
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.transferred()), (ErrorKind::Cancelled, 0));
        assert!(datagrams.is_empty() && !datagrams.is_drained());
    }

    /// Rule 83: the datagram that cannot be sent is the first one left. Those before it are sent,
    /// and those after it are not.
    fn a_send_of_many_that_fails_keeps_what_it_has_not_sent(system: &System) {
        let port = port_on(system);
        let (near, far) = (system.udp_bound(), system.udp_bound());
        let there = far.address().for_port();
        let mut datagrams = Datagrams::new(4, 8);
        let receivers = [there.clone(), there.clone(), elsewhere(system), there];
        for (number, to) in receivers.into_iter().enumerate() {
            assert!(datagrams.push(&[u8::try_from(number).unwrap()], Some(to)));
        }
        port.associate(near).unwrap().send_many(datagrams).unwrap();
        let (token, outcome) = done(&port, system);
        let (result, mut rest) = many(outcome);
        let error = result.unwrap_err();
        assert_eq!((error.kind(), error.transferred()), (ErrorKind::WrongKernel, 2));
        assert_eq!(contents(&rest), [[2], [3]]);
        token.send_many(rest).unwrap();
        let (token, outcome) = done(&port, system);
        let (result, same) = many(outcome);
        assert_eq!(result.unwrap_err().transferred(), 0);
        rest = same;
        rest.retain(|datagram| datagram.bytes() != [2]);
        token.send_many(rest).unwrap();
        assert_eq!(many(done(&port, system).1).0, Ok(1));
        let mut received = Datagrams::new(8, 8);
        assert_eq!(receive(&far, &mut received).unwrap(), 3);
        assert_eq!(contents(&received), [[0], [1], [3]]);
    }

    /// Rule 83: an empty batch is sent immediately.
    fn a_send_of_no_datagrams_is_done(system: &System) {
        let port = port_on(system);
        let (near, _far) = system.udp_pair();
        port.associate(near).unwrap().send_many(Datagrams::new(4, 8)).unwrap();
        assert_eq!(many(done(&port, system).1).0, Ok(0));
    }

    /// Rule 83: a stream, and a buffer without datagrams, are failures.
    fn what_carries_no_datagrams_is_refused(system: &System) {
        type Either = EitherBuffer<Datagrams, Vec<u8>>;
        let port: Port<Socket, u32, Either> = system.port_with_buffers(1);
        let (near, far) = system.tcp_pair();
        far.write(b"bytes").unwrap();
        let token = port.associate(near).unwrap();
        token.send_many(EitherBuffer::Left(batch(&[b"x"]))).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(outcome.error().unwrap().call(), Call::Send);
        assert_eq!(outcome.into_buffer().unwrap().left().unwrap().len(), 1);
        token.recv_many(EitherBuffer::Left(batch(&[b"x"]))).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(outcome.error().unwrap().call(), Call::Receive);
        // Nothing was taken from the stream.
        token.recv(EitherBuffer::Right(Vec::with_capacity(8))).unwrap();
        let (_token, outcome) = done(&port, system);
        assert!(matches!(outcome, Outcome::Received(Ok(5), _)));
        let (near, far) = system.udp_pair();
        far.write(b"x").unwrap();
        let token = port.associate(near).unwrap();
        token.recv_many(EitherBuffer::Right(Vec::with_capacity(8))).unwrap();
        let (token, outcome) = done(&port, system);
        assert!(outcome.error().is_some());
        token.send_many(EitherBuffer::Right(b"x".to_vec())).unwrap();
        let (token, outcome) = done(&port, system);
        assert!(outcome.error().is_some());
        // As an ordinary buffer, it gets one datagram.
        token.recv(EitherBuffer::Left(Datagrams::new(4, 8))).unwrap();
        let (_token, outcome) = done(&port, system);
        assert!(matches!(&outcome, Outcome::Received(Ok(1), _)));
        let datagrams = outcome.into_buffer().unwrap().left().unwrap();
        assert_eq!(contents(&datagrams), [b"x"]);
    }

    /// Rule 83: operations of a shared association are done in order, each with the next datagrams.
    fn receives_of_many_share_what_arrives(system: &System) {
        let port: Port<Shared, u32, Datagrams> = system.port_with_buffers(1);
        let (near, far) = system.udp_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let names = [3, 3, 3].map(|slots| {
            port.start(id, Operation::recv_many(Datagrams::new(slots, 8))).unwrap()
        });
        silent(&port, system);
        for number in 0..7_u8 {
            far.write(&[number]).unwrap();
        }
        let mut came = Vec::new();
        let mut order = Vec::new();
        let mut batch = Batch::new();
        while came.len() < 7 {
            let packets = port.wait(&mut batch, system.soon()).unwrap();
            let before = order.len();
            for packet in packets {
                let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
                order.push(finished.operation());
                let (_, datagrams) = many(finished.into_parts().1);
                came.extend(datagrams.iter().map(|datagram| datagram.bytes()[0]));
                // Each may have found only one datagram.
                port.start(id, Operation::recv_many(datagrams)).unwrap();
            }
            assert!(order.len() > before, "no packet came");
        }
        assert!(came.into_iter().eq(0..7));
        let names = &names[..order.len().min(3)];
        assert_eq!(&order[..names.len()], names);
    }

    /// Rule 83: your own `shutdown` of the reading half ends a receive of many, with none.
    fn the_own_shutdown_ends_a_receive_of_many(system: &System) {
        system.not_on_windows("operations that the own shutdown ends");
        for pair in DATAGRAMS {
            let port = port_on(system);
            let (near, _far) = pair(system);
            let same = near.dup().unwrap();
            port.associate(near).unwrap().recv_many(batch(&[b"former"])).unwrap();
            silent(&port, system);
            same.shutdown(Shutdown::Read).unwrap();
            let (_token, outcome) = done(&port, system);
            let (result, datagrams) = many(outcome);
            assert_eq!((result, datagrams.len()), (Ok(0), 0));
        }
    }

    /// Rule 83: an error of the socket is the outcome of the receive that waits.
    fn an_error_fails_the_receive_of_many(system: &System) {
        system.not_on_wine("receive in flight that fails with a datagram socket's error");
        let port = port_on(system);
        let (near, far) = system.udp_pair();
        let same = near.dup().unwrap();
        drop(far);
        port.associate(near).unwrap().recv_many(Datagrams::new(4, 8)).unwrap();
        silent(&port, system);
        same.write(b"x").unwrap();
        let error = many(done(&port, system).1).0.unwrap_err();
        assert_eq!(error.os_code(), Some(unreachable(system)));
        assert_eq!((error.call(), error.transferred()), (Call::Receive, 0));
    }

    /// Rule 83: programs that use readiness receive and send without an operation, and get
    /// `WouldBlock` instead of waiting.
    fn many_datagrams_by_readiness(system: &System) {
        let (near, far) = system.unix_datagram_pair();
        let mut datagrams = Datagrams::new(8, 64);
        let blocked = receive(&far, &mut datagrams).unwrap_err();
        assert_eq!(blocked.kind(), io::ErrorKind::WouldBlock);
        assert!(datagrams.is_empty());
        let (mut all, count) = too_many();
        let mut came = Vec::new();
        let mut rounds = 0;
        while !all.is_empty() {
            let sent = send(&near, &mut all).unwrap();
            assert!(sent > 0);
            assert_eq!(all.len(), count - came.len() - sent);
            if !all.is_empty() {
                let blocked = send(&near, &mut all).unwrap_err();
                assert_eq!(blocked.kind(), io::ErrorKind::WouldBlock);
            }
            came.extend(numbers(&far));
            rounds += 1;
        }
        assert!(rounds > 1);
        assert!(came.into_iter().eq(0..count));
        if system.kernel().is_none() {
            let other = sim::Kernel::new().udp_bound().unwrap();
            let refused = datagrams.recv(&other).unwrap_err();
            let error = refused.get_ref().and_then(|error| error.downcast_ref::<Error>());
            assert_eq!(error.map(Error::kind), Some(ErrorKind::WrongKernel));
        }
    }
}

/// Rule 83: lack of memory is no failure, and takes nothing. An error between datagrams comes with
/// those before it.
#[test]
fn a_receive_of_many_that_meets_an_error_loses_nothing_sim() {
    for system in System::simulated_in_each_way() {
        let kernel = system.kernel().unwrap();
        {
            let port: Port<Shared, u32, Datagrams> = system.port_with_buffers(1);
            let (near, far) = system.udp_pair();
            let id = port.associate_shared(Shared::new(near)).unwrap();
            for (code, kind) in [(ENOBUFS, Some(ErrorKind::Other)), (ENOMEM, None)] {
                for datagram in [b"1", b"2", b"3"] {
                    far.write(datagram).unwrap();
                }
                kernel.fail_next_receive(code);
                port.start(id, Operation::recv_many(Datagrams::new(8, 8))).unwrap();
                let (result, mut datagrams) = many(finished(&port, &system).into_parts().1);
                assert_eq!(result.err().map(|error| error.kind()), kind);
                if kind.is_some() {
                    assert!(datagrams.is_empty());
                    port.start(id, Operation::recv_many(datagrams).deadline(HOUR)).unwrap();
                    datagrams = many(finished(&port, &system).into_parts().1).1;
                }
                assert_eq!(contents(&datagrams), [b"1", b"2", b"3"]);
            }
        }
        system.assert_nothing_left();
    }
}

/// Rule 83: a send that lacks memory is tried again, and repeats nothing.
#[test]
fn a_send_of_many_that_lacks_memory_repeats_nothing_sim() {
    for system in System::simulated_in_each_way() {
        let kernel = system.kernel().unwrap();
        {
            let port = port_on(&system);
            let (near, far) = system.udp_pair();
            kernel.fail_next_send(ENOBUFS);
            port.associate(near).unwrap().send_many(batch(&[b"1", b"2", b"3"])).unwrap();
            assert_eq!(many(done(&port, &system).1).0, Ok(3));
            let mut received = Datagrams::new(8, 8);
            assert_eq!(receive(&far, &mut received).unwrap(), 3);
            assert_eq!(contents(&received), [b"1", b"2", b"3"]);
        }
        system.assert_nothing_left();
    }
}

/// Rule 83: after a receive that has emptied the socket, the next one makes no system call.
#[test]
fn a_receive_of_many_that_found_the_end_is_not_repeated_sim() {
    let system = System::simulated();
    {
        let kernel = system.kernel().unwrap();
        let port = port_on(&system);
        let (near, far) = system.udp_pair();
        far.write(b"1").unwrap();
        port.associate(near).unwrap().recv_many(Datagrams::new(8, 8)).unwrap();
        let (token, outcome) = done(&port, &system);
        let before = kernel.calls().receive;
        token.recv_many(many(outcome).1).unwrap();
        silent(&port, &system);
        assert_eq!(kernel.calls().receive, before);
        far.write(b"2").unwrap();
        assert_eq!(many(done(&port, &system).1).0, Ok(1));
    }
    system.assert_nothing_left();
}

/// Sets an option of a socket to 1.
#[cfg(target_os = "linux")]
fn set(socket: &UdpSocket, level: i32, name: i32) {
    set_to(socket, level, name, 1);
}

#[cfg(target_os = "linux")]
fn set_to(socket: &UdpSocket, level: i32, name: i32, value: i32) {
    // SAFETY: setsockopt(2) reads as many bytes at the pointer as its last argument says.
    // - valid for reads: `value` is a local of four bytes.
    let done =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), 4) };
    assert_eq!(done, 0);
}

/// Receives a datagram, and returns the class of service with which it came: all eight bits.
#[cfg(target_os = "linux")]
fn class_of_next(socket: &UdpSocket) -> i32 {
    #[repr(align(8))]
    struct Control([u8; 64]);
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let (mut bytes, mut control) = ([0_u8; 8], Control([0; 64]));
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: `assume_init` requires that the bytes are a value of the type.
    // - it has only numbers and pointers, for which zeros are values.
    let mut header: libc::msghdr = unsafe { std::mem::MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = (&raw mut control).cast();
    header.msg_controllen = 64;
    // SAFETY: recvmsg(2) reads and writes the message at the pointer, and no more than that says.
    // - valid: it is a local, and its pointers are to locals of these lengths.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    assert_eq!(len, 1);
    // The only control message: its length, two numbers, and the class, of one byte with IPv4.
    let len = usize::from_ne_bytes(control.0[..8].try_into().unwrap());
    match &control.0[HEADER..len] {
        [class] => i32::from(*class),
        class => i32::from_ne_bytes(class.try_into().unwrap()),
    }
}

/// Rule 83: segments that were sent together arrive together on a socket that has asked for it, and
/// are sent back together.
#[cfg(target_os = "linux")]
#[test]
fn segments_arrive_together_epoll() {
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    if let Err(refused) = Datagrams::enable_gro(&far) {
        return testkit::skipped(format!("UDP_GRO is refused: {refused}"));
    }
    let there = far.local_addr().unwrap();
    let bytes: Vec<u8> = (0..=255).cycle().take(45_000).collect();
    let mut datagrams = Datagrams::new(4, 65_535);
    assert!(datagrams.push_segments(&bytes, 1000, Some(there.into())));
    assert!(datagrams.push(b"alone", Some(there.into())));
    assert_eq!(datagrams.send(&near).unwrap(), 2);
    let mut received = Datagrams::new(64, 65_535);
    far.set_read_timeout(Some(testkit::SOON)).unwrap();
    while received.recv(&far).is_err() {}
    let all: Vec<&[u8]> = received.iter().flat_map(|datagram| datagram.segments()).collect();
    let expected: Vec<&[u8]> = bytes.chunks(1000).chain([&b"alone"[..]]).collect();
    assert_eq!(all, expected);
    // Together: the kernel has passed them on as one message.
    assert_eq!(received.get(0).unwrap().segment_size(), Some(1000));
    let count = received.len();
    assert_eq!(received.send(&far).unwrap(), count);
    let mut back = Datagrams::new(64, 2000);
    assert_eq!(back.recv(&near).unwrap(), 46);
    assert_eq!(contents(&back), expected);
}

/// Rule 83: a socket that cannot send segments together sends them one by one.
#[cfg(target_os = "linux")]
#[test]
fn segments_that_are_refused_together_are_sent_alone_epoll() {
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    near.connect(far.local_addr().unwrap()).unwrap();
    // Without checksums the kernel refuses to send segments.
    set(&near, libc::SOL_SOCKET, libc::SO_NO_CHECK);
    let mut datagrams = Datagrams::new(4, 1000);
    assert!(datagrams.push(b"first", None));
    assert!(datagrams.push_segments(b"aabbc", 2, None));
    assert!(datagrams.push(b"last", None));
    assert_eq!(datagrams.send(&near).unwrap(), 3);
    let mut received = Datagrams::new(8, 100);
    assert_eq!(received.recv(&far).unwrap(), 5);
    assert_eq!(contents(&received), [&b"first"[..], b"aa", b"bb", b"c", b"last"]);
}

/// Rule 83: congestion marks are sent and received, with IPv4 and IPv6.
#[cfg(target_os = "linux")]
#[test]
fn congestion_marks_are_sent_and_received_epoll() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (Ok(near), Ok(far)) = (UdpSocket::bind(address), UdpSocket::bind(address)) else {
            println!("SKIPPED congestion marks: no socket has the address {address}");
            continue;
        };
        if far.local_addr().unwrap().is_ipv4() {
            set(&far, libc::IPPROTO_IP, libc::IP_RECVTOS);
        } else {
            set(&far, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS);
        }
        // Other messages of the kernel come before them.
        set(&far, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
        set(&far, libc::SOL_SOCKET, libc::SO_RXQ_OVFL);
        if far.local_addr().unwrap().is_ipv4() {
            set(&far, libc::IPPROTO_IP, libc::IP_PKTINFO);
            set(&far, libc::IPPROTO_IP, libc::IP_RECVTTL);
        } else {
            set(&far, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO);
            set(&far, libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT);
        }
        let there = far.local_addr().unwrap();
        let mut datagrams = Datagrams::new(4, 8);
        for mark in 0..4 {
            assert!(datagrams.push(&[mark], Some(there.into())));
            datagrams.get_mut(usize::from(mark)).unwrap().set_ecn(mark);
        }
        assert_eq!(datagrams.send(&near).unwrap(), 4);
        assert_eq!(datagrams.recv(&far).unwrap(), 4);
        let marks: Vec<u8> = datagrams.iter().map(|datagram| datagram.ecn()).collect();
        assert_eq!(marks, [0, 1, 2, 3]);
        // An answer in the same memory has the marks of the socket.
        let here = near.local_addr().unwrap();
        for index in 0..4 {
            datagrams.get_mut(index).unwrap().set_address(Some(here.into()));
        }
        if here.is_ipv4() {
            set(&near, libc::IPPROTO_IP, libc::IP_RECVTOS);
        } else {
            set(&near, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS);
        }
        assert_eq!(datagrams.send(&far).unwrap(), 4);
        assert_eq!(datagrams.recv(&near).unwrap(), 4);
        assert!(datagrams.iter().all(|datagram| datagram.ecn() == 0));
    }
}

/// Rule 83: a mark replaces the socket's class of service for its datagram, which is then zero. No
/// mark leaves it. Of a mark only the lowest two bits count.
#[cfg(target_os = "linux")]
#[test]
fn a_congestion_mark_replaces_the_class_of_service_epoll() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (Ok(near), Ok(far)) = (UdpSocket::bind(address), UdpSocket::bind(address)) else {
            println!("SKIPPED class of service: no socket has the address {address}");
            continue;
        };
        let there = far.local_addr().unwrap();
        let class = 0x28;
        if there.is_ipv4() {
            set_to(&near, libc::IPPROTO_IP, libc::IP_TOS, class);
            set(&far, libc::IPPROTO_IP, libc::IP_RECVTOS);
        } else {
            set_to(&near, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, class);
            set(&far, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS);
        }
        let mut datagrams = Datagrams::new(5, 8);
        for mark in [0, 2, 0, 0xfd, 0xfc] {
            assert!(datagrams.push(&[mark], Some(there.into())));
            datagrams.get_mut(datagrams.len() - 1).unwrap().set_ecn(mark);
        }
        assert_eq!(datagrams.send(&near).unwrap(), 5);
        let classes = [(); 5].map(|()| class_of_next(&far));
        assert_eq!(classes, [class, 2, class, 1, class], "{address}");
    }
}

/// Rule 83: the end of a connection that carries records comes as empty datagrams, in all slots that
/// are left. A receive that waits for it is done, and none waits afterwards.
#[cfg(target_os = "linux")]
#[test]
fn the_end_of_records_fills_the_slots_epoll() {
    let system = System::native();
    for records in [&[&b"one"[..], b"", b"two"][..], &[]] {
        let port = port_on(&system);
        let (near, far) = system.unix_record_pair();
        let token = port.associate(near).unwrap();
        // More slots than one call fills.
        let datagrams = Datagrams::new(40, 8);
        if records.is_empty() {
            token.recv_many(datagrams).unwrap();
            silent(&port, &system);
            drop(far);
        } else {
            for record in records {
                assert_eq!(far.write(record).unwrap(), record.len());
            }
            drop(far);
            token.recv_many(datagrams).unwrap();
        }
        let mut expected = records.to_vec();
        for _ in 0..2 {
            let (token, outcome) = done(&port, &system);
            let (result, datagrams) = many(outcome);
            expected.resize(40, &b""[..]);
            assert_eq!((result, contents(&datagrams)), (Ok(40), expected));
            assert!(!datagrams.iter().any(|datagram| datagram.is_truncated()));
            token.recv_many(datagrams).unwrap();
            expected = Vec::new();
        }
    }
}

/// Rule 83: descriptors that come with datagrams are closed.
#[cfg(target_os = "linux")]
#[test]
fn descriptors_that_come_with_many_datagrams_are_closed_epoll() {
    let name = "operations_datagrams::descriptors_that_come_with_many_datagrams_are_closed_epoll";
    if !in_a_process_of_its_own(name) {
        return;
    }
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let system = System::native();
    let (near, far) = system.unix_datagram_pair();
    let port = port_on(&system);
    port.associate(near).unwrap().recv_many(Datagrams::new(8, 8)).unwrap();
    silent(&port, &system);
    let before = open();
    for _ in 0..4 {
        testkit::rights::send(far.descriptor(), far.descriptor());
    }
    let (token, outcome) = done(&port, &system);
    let (result, mut datagrams) = many(outcome);
    let mut received = result.unwrap();
    while received < 4 {
        received += datagrams.recv(&token.key().descriptor()).unwrap();
    }
    assert_eq!(open(), before);
}
