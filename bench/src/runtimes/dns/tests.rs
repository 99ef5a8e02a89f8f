//! Each contender of R9 with a client that checks every byte of its answers.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, UdpSocket};

use super::servers::ADDRESS;
use super::*;

const A: u16 = 1;
const AAAA: u16 = 28;

/// A message with this number, these flags and these numbers of questions and answers.
fn message(number: u8, flags: [u8; 2], [questions, answers]: [u8; 2], rest: &[u8]) -> Vec<u8> {
    let header = [0, number, flags[0], flags[1], 0, questions, 0, answers, 0, 0, 0, 0];
    [&header[..], rest].concat()
}

/// A question about `a.example`.
fn question(kind: u16) -> Vec<u8> {
    [&b"\x01a\x07example\0"[..], &kind.to_be_bytes(), &[0, 1]].concat()
}

/// A query that wants recursion.
fn query(number: u8, kind: u16) -> Vec<u8> {
    message(number, [1, 0], [1, 0], &question(kind))
}

/// The answer to a query of the type A.
fn answer(number: u8) -> Vec<u8> {
    let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4];
    let rest = [&question(A)[..], &record, &ADDRESS.octets()].concat();
    message(number, [0x85, 0], [1, 1], &rest)
}

fn check(name: &str, client: &UdpSocket) {
    let send = |message: &[u8]| {
        client.send(message).unwrap();
    };
    let expect = |expected: &[u8]| {
        let mut buffer = [0; 2048];
        let length = loop {
            match client.recv(&mut buffer) {
                // With a time limit, the system does not repeat an interrupted call (signal(7)).
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                received => break received.unwrap(),
            }
        };
        assert_eq!(&buffer[..length], expected, "{name}");
    };
    for round in 0..10 {
        for number in 0..20 {
            send(&query(round * 20 + number, A));
        }
        for number in 0..20 {
            expect(&answer(round * 20 + number));
        }
    }
    send(&query(1, AAAA));
    expect(&message(1, [0x85, 0], [1, 0], &question(AAAA)));
    // A question that is not complete, and a query of another kind.
    send(&message(2, [1, 0], [1, 0], &question(A)[..5]));
    expect(&message(2, [0x85, 1], [0, 0], &[]));
    send(&message(3, [0x10, 0], [1, 0], &question(A)));
    expect(&message(3, [0x94, 4], [0, 0], &[]));
    // Answers, and messages that are too short or too long, are not answered; others between them are.
    let too_long = [&query(4, A)[..], &[0; 1300]].concat();
    for silent in [&answer(4)[..], &query(4, A)[..11], &too_long, &[]] {
        send(silent);
        send(&query(5, A));
        send(silent);
        send(&query(6, A));
        expect(&answer(5));
        expect(&answer(6));
    }
}

#[test]
fn all_give_the_same_answers() {
    for name in ALL {
        let server = (server(name).unwrap().start)(2, Service::Echo).unwrap();
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        server.answer(socket).unwrap();
        let client = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        client.connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        check(name, &client);
    }
}
