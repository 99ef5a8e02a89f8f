//! A UDP socket that echoes what it receives.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use completion_port::{BorrowedSource, Source};

use crate::connection::{Next, Traffic};
use crate::retry::uninterrupted;

/// This many datagrams are served before the port's other registrations have their turn.
const TURN: usize = 64;

/// Number of datagrams received, and of those that could not be sent back.
#[derive(Debug, Default)]
pub(crate) struct Datagram {
    pub(crate) received: AtomicU64,
    pub(crate) lost: AtomicU64,
}

/// The socket, and the datagram that has not been sent back yet.
#[derive(Debug)]
pub(crate) struct Datagrams {
    socket: UdpSocket,
    pending: Option<(Vec<u8>, SocketAddr)>,
}

impl Datagrams {
    pub(crate) fn new(socket: UdpSocket) -> Self {
        Self { socket, pending: None }
    }

    /// Serves available datagrams, up to a limit. `buffer` must have room for the largest one.
    pub(crate) fn turn(&mut self, buffer: &mut [u8], traffic: &Traffic, count: &Datagram) -> Next {
        if let Some((datagram, sender)) = self.pending.take()
            && !self.send(&datagram, sender, traffic, count)
        {
            self.pending = Some((datagram, sender));
            return Next::Write;
        }
        for _ in 0..TURN {
            match self.socket.recv_from(buffer) {
                Ok((length, sender)) => {
                    count.received.fetch_add(1, Relaxed);
                    traffic.add_received(length);
                    if !self.send(&buffer[..length], sender, traffic, count) {
                        self.pending = Some((buffer[..length].to_vec(), sender));
                        return Next::Write;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Next::Read { drained: true };
                }
                // An interruption, or the report that an earlier datagram did not arrive.
                Err(_) => {}
            }
        }
        // The next datagram may be available: only a read that would block disproves it.
        Next::Read { drained: false }
    }

    /// Returns false if the datagram must wait. One that the system refuses is lost, as datagrams
    /// may be.
    fn send(&self, datagram: &[u8], to: SocketAddr, traffic: &Traffic, count: &Datagram) -> bool {
        match uninterrupted(|| self.socket.send_to(datagram, to)) {
            Ok(length) => traffic.add_sent(length),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            Err(_) => {
                count.lost.fetch_add(1, Relaxed);
            }
        }
        true
    }
}

impl Source for Datagrams {
    fn as_source(&self) -> BorrowedSource<'_> {
        self.socket.as_source()
    }
}
