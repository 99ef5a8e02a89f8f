//! Buffers of socket operations: many parts, and fewer bytes than room.

#![cfg(any(unix, windows))]

use std::sync::Arc;

use completion_port::{Batch, Buffer, Operation, Outcome, Packet, Port, Ready, Source, Span};
use testkit::{Stream, connected};

fn bytes(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

fn in_parts(bytes: &[u8], length: usize) -> Vec<Vec<u8>> {
    bytes.chunks(length).map(<[u8]>::to_vec).collect()
}

fn port<K: Source, B: Buffer>() -> Port<K, (), B> {
    Port::builder().buffers::<B>().build().unwrap()
}

/// Returns the next packet, which must be of an operation.
fn next<'p, K: Source, B: Buffer>(port: &'p Port<K, (), B>) -> (Ready<'p, K, B>, Outcome<B>) {
    match port.wait(&mut Batch::with_capacity(1), None).unwrap().next() {
        Some(Packet::Completed(done)) => done.into_parts(),
        _ => panic!("another packet, or none"),
    }
}

/// Sends all of a buffer that is larger than the socket's own, and receives it into other buffers.
fn pass<B: Buffer>(buffer: B, all: &[u8], mut room: impl FnMut() -> B) {
    let port = port::<Stream, B>();
    let (near, far) = connected();
    port.associate(near).unwrap().start(Operation::send_all(buffer)).unwrap();
    port.associate(far).unwrap().start(Operation::recv(room())).unwrap();
    let (mut has_sent, mut received) = (false, Vec::new());
    while !(has_sent && received.len() == all.len()) {
        match next(&port) {
            (token, Outcome::Sent(sent, buffer)) => {
                assert_eq!(sent.unwrap(), all.len());
                let mut parts = Vec::new();
                buffer.filled(&mut |part| parts.extend_from_slice(part));
                assert!(parts == all, "the buffer has changed");
                token.park().unwrap();
                has_sent = true;
            }
            (token, Outcome::Received(count, buffer)) => {
                let before = received.len();
                buffer.filled(&mut |part| received.extend_from_slice(part));
                assert_eq!(count.unwrap(), received.len() - before);
                assert!(received.len() <= all.len());
                token.start(Operation::recv(room())).unwrap();
            }
            _ => panic!("an operation that was not started"),
        }
    }
    assert!(received == all, "other bytes");
}

#[test]
fn a_stream_takes_more_parts_than_one_system_call_does() {
    // About twice as much as a socket buffers.
    let all = bytes(3000 * 150);
    pass(in_parts(&all, 150), &all, || (0..1500).map(|_| Vec::with_capacity(70)).collect());
    // This takes hundreds of calls, each with as many parts as the system allows.
    let all = bytes(30_000);
    pass(in_parts(&all, 1), &all, || vec![Vec::with_capacity(1000)]);
    pass(in_parts(&all, 1), &all, || (0..2000).map(|_| Vec::with_capacity(1)).collect());
}

#[test]
fn parts_may_be_of_several_kinds() {
    type Framed = (Option<Arc<[u8]>>, [Vec<u8>; 2]);
    let all = bytes(700_000);
    let framed: Framed =
        (Some(Arc::from(&all[..10])), [all[10..400_000].to_vec(), all[400_000..].to_vec()]);
    pass(framed, &all, || (None, [Vec::with_capacity(3), Vec::with_capacity(50_000)]));
}

#[test]
fn a_range_of_a_box_is_sent_and_filled() {
    let port = port::<Stream, Span>();
    let (near, far) = connected();
    port.associate(near).unwrap().send_all(Span::new(*b"head and tail", 5..8)).unwrap();
    let (_near, Outcome::Sent(sent, buffer)) = next(&port) else { panic!("another outcome") };
    assert_eq!((sent.unwrap(), &*buffer), (3, b"and".as_slice()));

    port.associate(far).unwrap().recv(Span::new(*b"0123456789", 2..9)).unwrap();
    let (_far, Outcome::Received(came, mut buffer)) = next(&port) else {
        panic!("another outcome")
    };
    buffer.set_range(2..2 + came.unwrap());
    assert_eq!(*buffer, *b"and");
    assert_eq!(*buffer.into_inner(), *b"01and56789");
}

#[cfg(feature = "bytes")]
#[test]
fn buffers_of_the_crate_bytes_are_sent_and_filled() {
    use bytes::BytesMut;

    let all = bytes(700_000);
    let mut pool = BytesMut::with_capacity(1 << 20);
    pass(BytesMut::from(all.as_slice()), &all, || {
        pool.reserve(4096);
        let mut rest = pool.split_off(4096);
        std::mem::swap(&mut rest, &mut pool);
        rest
    });
}

/// Only AF_UNIX datagrams are never lost.
#[cfg(target_os = "linux")]
#[test]
fn a_datagram_is_spread_over_its_parts_and_is_not_sent_in_pieces() {
    use std::os::unix::net::UnixDatagram;

    let port = port::<UnixDatagram, Vec<Vec<u8>>>();
    let (near, far) = UnixDatagram::pair().unwrap();
    let all = bytes(1000);
    port.associate(near).unwrap().start(Operation::send(in_parts(&all, 1))).unwrap();
    let (token, Outcome::Sent(sent, buffer)) = next(&port) else { panic!("another outcome") };
    assert_eq!((sent.unwrap(), buffer.len()), (1000, 1000));

    let room = vec![Vec::with_capacity(10), Vec::new(), Vec::with_capacity(2000)];
    port.associate(far).unwrap().start(Operation::recv(room)).unwrap();
    let (_far, Outcome::Received(came, buffer)) = next(&port) else { panic!("another outcome") };
    assert_eq!(came.unwrap(), 1000);
    assert_eq!(buffer.iter().map(Vec::len).collect::<Vec<_>>(), [10, 0, 990]);
    assert_eq!(buffer.concat(), all);

    token.start(Operation::send(in_parts(&bytes(1025), 1))).unwrap();
    let (_near, Outcome::Sent(sent, buffer)) = next(&port) else { panic!("another outcome") };
    assert!(sent.is_err());
    assert_eq!(buffer.len(), 1025);
}
