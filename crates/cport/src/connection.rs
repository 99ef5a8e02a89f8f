//! A TCP connection that echoes what it receives.
//!
//! A registration has only one packet out at a time, so the connection needs no lock: the thread
//! with the packet has `&mut Connection`.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use completion_port::{BorrowedSource, Interest, OneShot, OwnedSource, Ready, Refused, Source};

use crate::retry::uninterrupted;

/// Traffic of all connections of a server.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
    /// Reads that returned data.
    requests: AtomicU64,
}

impl Traffic {
    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Relaxed);
        self.requests.fetch_add(1, Relaxed);
    }

    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Relaxed);
    }

    pub(crate) fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    /// Reads that returned data: the number of requests, if each is shorter than a buffer.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }
}

/// The event that a socket waits for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// More to read. `drained` if a read is known to block now.
    Read {
        /// Whether no data remains.
        drained: bool,
    },
    /// A write would block. Until it can continue, nothing is read.
    Write,
    /// The peer has ended its stream and received all of it back.
    End,
}

impl Next {
    /// Arms `ready` for the next event, with the hint that saves a system call if possible. Drops a
    /// finished connection, which closes it.
    pub(crate) fn arm<K>(self, mut ready: Ready<'_, K>) -> Result<(), Refused<K>> {
        match self {
            Self::Read { drained } => {
                if drained {
                    ready.read_drained();
                }
                ready.rearm_as(Interest::IN, OneShot::Level)
            }
            Self::Write => {
                ready.write_full();
                ready.rearm_as(Interest::OUT, OneShot::Level)
            }
            Self::End => {
                drop(ready);
                Ok(())
            }
        }
    }
}

/// Maximum number of reads in a turn, so that a busy connection does not starve the others. Reading
/// again immediately is cheaper than arming, which costs a query to the kernel and a packet.
const READS: usize = 16;

/// A connection, and the data that was read but not yet sent back.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// At most one full buffer, since nothing is read until it is empty. This is the backpressure:
    /// a peer that does not read its echo cannot continue sending.
    pending: Vec<u8>,
    received: u64,
}

impl Connection {
    /// Takes over a stream.
    pub(crate) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // Sends each echo immediately, even if the last segment has not been acknowledged yet.
        stream.set_nodelay(true)?;
        Ok(Self { stream, pending: Vec::new(), received: 0 })
    }

    /// The stream itself.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Number of bytes read.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Number of bytes read and not yet sent back.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Does all possible work without blocking, up to [`READS`] reads, so that the connections take
    /// turns.
    pub(crate) fn turn(&mut self, buffer: &mut [u8], traffic: &Traffic) -> io::Result<Next> {
        if !self.pending.is_empty() {
            let sent = write_some(&mut self.stream, &self.pending)?;
            traffic.add_sent(sent);
            self.pending.drain(..sent);
            if !self.pending.is_empty() {
                return Ok(Next::Write);
            }
            // Most connections never need it again.
            self.pending = Vec::new();
        }
        for _ in 0..READS {
            let read = match uninterrupted(|| self.stream.read(buffer)) {
                Ok(0) => return Ok(Next::End),
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(Next::Read { drained: true });
                }
                Err(error) => return Err(error),
            };
            traffic.add_received(read);
            self.received += read as u64;
            let sent = write_some(&mut self.stream, &buffer[..read])?;
            traffic.add_sent(sent);
            if sent < read {
                self.pending.extend_from_slice(&buffer[sent..read]);
                return Ok(Next::Write);
            }
            // On TCP, a short read has taken all available data. The exception is an urgent mark,
            // which ends a read early; a peer that sends one may wait for its echo before it sends
            // more.
            if read < buffer.len() {
                return Ok(Next::Read { drained: true });
            }
        }
        Ok(Next::Read { drained: false })
    }
}

impl Source for Connection {
    fn as_source(&self) -> BorrowedSource<'_> {
        self.stream.as_source()
    }
}

/// The typed socket for one created by a port.
pub(crate) fn stream_of(socket: OwnedSource) -> TcpStream {
    match socket.into_descriptor() {
        Ok(socket) => TcpStream::from(socket),
        Err(socket) => unreachable!("a port of the system has made {socket:?}"),
    }
}

/// Writes until everything is written or a write would block; returns the number of bytes written.
fn write_some(stream: &mut impl Write, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while sent < bytes.len() {
        match uninterrupted(|| stream.write(&bytes[sent..])) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => sent += written,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    Ok(sent)
}
