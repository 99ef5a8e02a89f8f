//! What the contenders that are told of readiness do with a connection that is ready.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

use crate::sink::{Service, Sink};
use crate::work::{Carry, process};

/// What a thread serves its connections with.
#[derive(Debug)]
pub(super) struct Handler {
    service: Service,
    /// Allocated, so that a thread's stack stays small.
    buffer: Box<[u8]>,
}

impl Handler {
    /// One that does this with connections.
    pub(super) fn new(service: Service) -> Self {
        Handler { service, buffer: vec![0; service.buffer()].into_boxed_slice() }
    }
}

/// A stream in non-blocking mode, and what is known of it between two events.
#[derive(Debug)]
pub(super) struct Connection<S = TcpStream> {
    stream: S,
    carry: Carry,
    /// What was read and answered, but found no room in the socket.
    unsent: Vec<u8>,
}

/// What a connection waits for once it has been served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// For input: all there was has been read.
    Input,
    /// For its next turn: the handler has stopped before the end of what there is.
    Turn,
    /// For room to write to: the last write would have blocked.
    Room,
}

impl Connection<TcpStream> {
    /// Puts `stream` into non-blocking mode.
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self::of(stream))
    }
}

impl<S> Connection<S> {
    /// A stream that is in non-blocking mode.
    pub(super) fn of(stream: S) -> Self {
        Connection { stream, carry: Carry::default(), unsent: Vec::new() }
    }

    /// The stream itself.
    pub(super) fn stream(&self) -> &S {
        &self.stream
    }
}

impl<S: Read + Write> Connection<S> {
    /// Does with the connection what is this handler's service. `None` when the stream has ended or
    /// failed.
    ///
    /// A short read says that nothing is left. With an edge-triggered set this does not hold for
    /// the end of the stream, if it `ends` by the same edge that brought the data.
    pub(super) fn serve(&mut self, handler: &mut Handler, ends: bool) -> Option<Next> {
        match handler.service {
            Service::Echo => self.echo(&mut handler.buffer, ends),
            Service::Sink(sink) => self.drain(sink, &mut handler.buffer, ends),
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

    /// Sends what is left of an answer, then reads and answers until nothing is left to read or the
    /// socket is full.
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
fn send(stream: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
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

impl<S: AsFd> AsFd for Connection<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}
