//! Operations: their buffers, and the outcomes in their packets.

use std::mem::MaybeUninit;
use std::time::Duration;

use completion_port::{
    Batch, Buffer, Error, ErrorKind, Outcome, Packet, Port, Ready, SharedCompleted, SharedSource,
};
use testkit::{Socket, System};

use crate::kit::ledger::{Entry, Ledger};

pub(crate) const MILLISECOND: Duration = Duration::from_millis(1);

/// Longer than any test.
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A key of which packets bring clones.
pub(crate) type Shared = SharedSource<Socket>;

/// Creates a port with sockets as keys and numbers as messages.
pub(crate) fn sockets_on(on: &System) -> Port<Socket, u32> {
    on.port(1)
}

/// Creates a port with shared sockets as keys and numbers as messages.
pub(crate) fn shared_on(on: &System) -> Port<Shared, u32> {
    on.port(1)
}

/// Creates an empty buffer with a capacity of `bytes`.
pub(crate) fn room(bytes: usize) -> Vec<u8> {
    Vec::with_capacity(bytes)
}

/// Returns more bytes than the buffers of a connection hold.
pub(crate) fn much(on: &System) -> usize {
    if on.kernel().is_some() { 1_000_000 } else { 20_000_000 }
}

/// A buffer that a ledger counts.
#[derive(Debug)]
pub(crate) struct Noted {
    bytes: Vec<u8>,
    _entry: Entry,
}

impl Noted {
    pub(crate) fn new(bytes: Vec<u8>, ledger: &Ledger) -> Self {
        Self { bytes, _entry: ledger.entry() }
    }
}

// SAFETY: `Buffer` requires stable memory and truthful lengths.
// - the memory is the vector's, whose own implementation promises the same.
unsafe impl Buffer for Noted {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        self.bytes.filled(part);
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        // SAFETY: the caller must write only initialized bytes.
        // - the memory is the vector's, so the caller's promise to `room` holds for it.
        unsafe { self.bytes.room(part) };
    }

    unsafe fn set_filled(&mut self, len: usize) {
        // SAFETY: `set_filled` requires that the first `len` bytes are initialized.
        // - the memory is the vector's, so the caller's promise to `set_filled` holds for it.
        unsafe { self.bytes.set_filled(len) };
    }
}

/// Returns the packet of a wait, which must bring exactly one.
#[track_caller]
pub(crate) fn next<'p, K, M, B: Buffer>(
    port: &'p Port<K, M, B>,
    on: &System,
) -> Packet<'p, K, M, B> {
    let mut batch = Batch::new();
    let mut packets = port.wait(&mut batch, on.soon()).unwrap();
    let packet = packets.next().expect("no packet came");
    assert_eq!(packets.count(), 0, "more packets than one");
    packet
}

/// Returns the kind of a packet.
pub(crate) fn sort<K, M, B>(packet: &Packet<'_, K, M, B>) -> &'static str {
    match packet {
        Packet::Ready(_) => "ready",
        Packet::Notified(_) => "notified",
        Packet::Posted(_) => "posted",
        Packet::Removed(..) => "removed",
        Packet::Completed(..) => "done",
        Packet::SharedCompleted(_) => "finished",
        _ => "something else",
    }
}

/// Returns the packet of a wait, which must bring exactly one, of a token's operation.
#[track_caller]
pub(crate) fn done<'p, K, M, B: Buffer>(
    port: &'p Port<K, M, B>,
    on: &System,
) -> (Ready<'p, K, B>, Outcome<B>) {
    match next(port, on) {
        Packet::Completed(done) => {
            let (token, outcome) = done.into_parts();
            assert!(token.events().is_empty(), "{:?}", token.events());
            (token, outcome)
        }
        other => panic!("{}", sort(&other)),
    }
}

/// Returns the packet of a wait, which must bring exactly one, of a shared association's operation.
#[track_caller]
pub(crate) fn finished<'p, K, M, B: Buffer>(
    port: &'p Port<K, M, B>,
    on: &System,
) -> SharedCompleted<'p, K, B> {
    match next(port, on) {
        Packet::SharedCompleted(finished) => finished,
        other => panic!("{}", sort(&other)),
    }
}

/// Returns the outcome in the packet of a wait, which must bring exactly one, of an operation.
#[track_caller]
pub(crate) fn outcome<K, M, B: Buffer>(port: &Port<K, M, B>, on: &System) -> Outcome<B> {
    match next(port, on) {
        Packet::Completed(done) => done.into_parts().1,
        Packet::SharedCompleted(finished) => finished.into_parts().1,
        other => panic!("{}", sort(&other)),
    }
}

/// Returns the next packets from any number of waits, which must be exactly `count`.
#[track_caller]
pub(crate) fn all<'p, K, M, B: Buffer>(
    port: &'p Port<K, M, B>,
    on: &System,
    count: usize,
) -> Vec<Packet<'p, K, M, B>> {
    let mut batch = Batch::new();
    let mut packets = Vec::new();
    while packets.len() < count {
        let before = packets.len();
        packets.extend(port.wait(&mut batch, on.soon()).unwrap());
        assert!(packets.len() > before, "only {before} packets of {count} came");
    }
    let sorts: Vec<_> = packets.iter().map(sort).collect();
    assert_eq!(packets.len(), count, "{sorts:?}");
    packets
}

/// Checks that no packet comes.
#[track_caller]
pub(crate) fn silent<K, M, B: Buffer>(port: &Port<K, M, B>, on: &System) {
    let mut batch = Batch::new();
    let packets = port.wait(&mut batch, on.quiet()).unwrap();
    let sorts: Vec<_> = packets.map(|packet| sort(&packet)).collect();
    assert!(sorts.is_empty(), "nothing was to come, but {sorts:?} did");
}

/// Returns why an operation has failed.
#[track_caller]
pub(crate) fn why(error: Option<Error>) -> ErrorKind {
    error.expect("it has not failed").kind()
}

/// Returns the result and the buffer of a receive.
#[track_caller]
pub(crate) fn received<B>(outcome: Outcome<B>) -> (Result<usize, ErrorKind>, B) {
    match outcome {
        Outcome::Received(result, buffer) => (result.map_err(|error| error.kind()), buffer),
        _ => panic!("no receive"),
    }
}

/// Returns the bytes of a successful receive.
#[track_caller]
pub(crate) fn bytes(outcome: Outcome) -> Vec<u8> {
    let (result, buffer) = received(outcome);
    assert_eq!(result, Ok(buffer.len()));
    buffer
}

/// Returns the number of bytes sent.
#[track_caller]
pub(crate) fn sent<B>(outcome: &Outcome<B>) -> Result<usize, Error> {
    match outcome {
        Outcome::Sent(result, _) => *result,
        _ => panic!("no send"),
    }
}

/// Returns the accepted connection.
#[track_caller]
pub(crate) fn accepted<B>(outcome: Outcome<B>, on: &System) -> Result<Socket, ErrorKind> {
    match outcome {
        Outcome::Accepted(result) => {
            result.map(|(source, _)| on.adopt(source)).map_err(|error| error.kind())
        }
        _ => panic!("no accept"),
    }
}

/// Returns the result of a connect.
#[track_caller]
pub(crate) fn connected<B>(outcome: &Outcome<B>) -> Result<(), Error> {
    match outcome {
        Outcome::Connected(result) => *result,
        _ => panic!("no connect"),
    }
}

/// Checks that two sockets are connected to each other.
#[track_caller]
pub(crate) fn assert_connected(first: &Socket, second: &Socket, on: &System) {
    first.write(b"across").unwrap();
    assert_eq!(second.read_within(on.soon(), 6), b"across");
}
