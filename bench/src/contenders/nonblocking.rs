//! Handling of a ready connection for readiness-based contenders.

use std::io::{self, ErrorKind, Read, Write};
use std::mem::swap;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

use crate::sink::{Service, Sink};
use crate::system::{self, IsSocket};
use crate::work::{Carry, process, process_datagram};

/// Connections that a listener accepts at most before others have their turns.
const MOST_ACCEPTED: usize = 64;

/// Datagrams that are read from a socket at most before others have their turns.
const MOST_DATAGRAMS: usize = 64;

/// The sockets of a contender, by the types it has for them. All of them are in non-blocking mode.
pub(crate) trait Family {
    type Stream: Read + Write + IsSocket;
    type Listener: IsSocket;
    type Datagrams: IsSocket;
    /// Where a datagram comes from.
    type Address;

    /// The next connection, in non-blocking mode.
    fn accept(listener: &Self::Listener) -> io::Result<Self::Stream>;

    fn receive(socket: &Self::Datagrams, buffer: &mut [u8]) -> io::Result<(usize, Self::Address)>;

    fn send(socket: &Self::Datagrams, bytes: &[u8], to: &Self::Address) -> io::Result<usize>;
}

/// The types of the standard library.
#[derive(Debug)]
pub(crate) enum Standard {}

impl Family for Standard {
    type Stream = TcpStream;
    type Listener = TcpListener;
    type Datagrams = UdpSocket;
    type Address = SocketAddr;

    /// With the mode set by the same call.
    fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
        system::accept(listener)
    }

    fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        socket.recv_from(buffer)
    }

    fn send(socket: &UdpSocket, bytes: &[u8], to: &SocketAddr) -> io::Result<usize> {
        socket.send_to(bytes, to)
    }
}

/// What a thread serves its sockets with.
pub(crate) struct Handler<F: Family = Standard> {
    service: Service,
    /// Allocated, so that a thread's stack stays small.
    buffer: Box<[u8]>,
    /// What a listener has accepted; the thread takes it over once the listener has been served.
    pub(super) accepted: Vec<F::Stream>,
}

impl<F: Family> Handler<F> {
    /// One that does this with connections.
    pub(crate) fn new(service: Service) -> Self {
        let buffer = vec![0; service.buffer()].into_boxed_slice();
        Handler { service, buffer, accepted: Vec::with_capacity(MOST_ACCEPTED) }
    }
}

/// A socket that a thread serves.
pub(crate) enum Peer<F: Family = Standard> {
    Connection(Connection<F::Stream>),
    Listener(F::Listener),
    Datagrams(F::Datagrams),
}

impl<F: Family> Peer<F> {
    /// A connection in non-blocking mode.
    pub(crate) fn of(stream: F::Stream) -> Self {
        Peer::Connection(Connection::of(stream))
    }

    /// Serves a connection ([`Connection::serve`]), answers datagrams, or accepts waiting
    /// connections into the handler's list. After an error the server cannot continue.
    pub(crate) fn serve(
        &mut self,
        handler: &mut Handler<F>,
        ends: bool,
    ) -> io::Result<Option<Next>> {
        match self {
            Peer::Connection(connection) => {
                Ok(connection.serve(handler.service, &mut handler.buffer, ends))
            }
            Peer::Listener(listener) => accept::<F>(listener, &mut handler.accepted).map(Some),
            Peer::Datagrams(socket) => answer::<F>(socket, &mut handler.buffer).map(Some),
        }
    }
}

/// A socket with its own read buffer instead of its thread's.
pub(crate) struct Owning {
    pub(crate) peer: Peer,
    buffer: Box<[u8]>,
}

impl Owning {
    pub(super) fn new(peer: Peer, service: Service) -> Self {
        Owning { peer, buffer: vec![0; service.buffer()].into_boxed_slice() }
    }

    /// [`Peer::serve`].
    pub(super) fn serve(&mut self, handler: &mut Handler, ends: bool) -> io::Result<Option<Next>> {
        swap(&mut handler.buffer, &mut self.buffer);
        let next = self.peer.serve(handler, ends);
        swap(&mut handler.buffer, &mut self.buffer);
        next
    }
}

/// Accepts until no connection waits, or until other sockets should have their turns.
pub(crate) fn accept<F: Family>(
    listener: &F::Listener,
    accepted: &mut Vec<F::Stream>,
) -> io::Result<Next> {
    for _ in 0..MOST_ACCEPTED {
        match F::accept(listener) {
            Ok(stream) => accepted.push(stream),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Ok(Next::Input),
                // The client has gone while its connection waited.
                ErrorKind::Interrupted | ErrorKind::ConnectionAborted => {}
                _ => return Err(error),
            },
        }
    }
    Ok(Next::Turn)
}

/// Answers datagrams until none is left, or until other sockets should have their turns. An answer that finds no
/// room is lost, as a datagram may be.
fn answer<F: Family>(socket: &F::Datagrams, buffer: &mut [u8]) -> io::Result<Next> {
    for _ in 0..MOST_DATAGRAMS {
        let (length, from) = match F::receive(socket, buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(Next::Input),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        process_datagram(&buffer[..length]);
        match F::send(socket, &buffer[..length], &from) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
    Ok(Next::Turn)
}

/// A non-blocking stream, and its state between two events.
#[derive(Debug)]
pub(crate) struct Connection<S = TcpStream> {
    stream: S,
    carry: Carry,
    /// Data that was read and answered, but found no room in the socket.
    unsent: Vec<u8>,
}

/// What a connection waits for once it has been served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// For input: all there was has been read.
    Input,
    /// For its next turn: the handler has stopped before the end of what there is.
    Turn,
    /// For room to write to: the last write would have blocked.
    Room,
}

impl<S> Connection<S> {
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// A stream that is in non-blocking mode.
    fn of(stream: S) -> Self {
        Connection { stream, carry: Carry::default(), unsent: Vec::new() }
    }
}

impl<S: Read + Write> Connection<S> {
    /// Provides the service to the connection. `None` when the stream has ended or failed.
    ///
    /// A short read means that no data remains. With an edge-triggered set this does not hold for
    /// the end of the stream, if it `ends` by the same edge that brought the data.
    fn serve(&mut self, service: Service, buffer: &mut [u8], ends: bool) -> Option<Next> {
        match service {
            Service::Echo => self.echo(buffer, ends),
            Service::Sink(sink) => self.drain(sink, buffer, ends),
        }
    }

    /// Reads as often as a sink does, and computes after each read.
    fn drain(&mut self, sink: Sink, buffer: &mut [u8], ends: bool) -> Option<Next> {
        for _ in 0..sink.reads {
            match self.stream.read(buffer) {
                Ok(0) => return None,
                Ok(read) => {
                    sink.handle(read);
                    if read < buffer.len() && !ends {
                        return Some(Next::Input);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(Next::Input),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
        Some(Next::Turn)
    }

    /// Sends the rest of an answer, then reads and answers until no data remains or the socket is
    /// full.
    fn echo(&mut self, buffer: &mut [u8], ends: bool) -> Option<Next> {
        if !self.unsent.is_empty() {
            let sent = send(&mut self.stream, &self.unsent).ok()?;
            self.unsent.drain(..sent);
            if !self.unsent.is_empty() {
                return Some(Next::Room);
            }
        }
        loop {
            let read = match self.stream.read(buffer) {
                Ok(0) => return None,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(Next::Input),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return None,
            };
            process(&mut self.carry, &buffer[..read]);
            let sent = send(&mut self.stream, &buffer[..read]).ok()?;
            if sent < read {
                self.unsent.extend_from_slice(&buffer[sent..read]);
                return Some(Next::Room);
            }
            if read < buffer.len() && !ends {
                return Some(Next::Input);
            }
        }
    }
}

/// Writes as much as there is room for; returns how much that was.
pub(crate) fn send(stream: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match stream.write(&bytes[sent..]) {
            Ok(written) => sent += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}
