//! A UDP socket that sends back what it receives.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use completion_port::{BorrowedSource, Source};

use crate::connection::{Next, Traffic};
use crate::retry::uninterrupted;

/// So many datagrams are served before the other registrations of the port have their turn.
const TURN: usize = 64;

/// How many datagrams came, and how many of them could not be sent back.
#[derive(Debug, Default)]
pub(crate) struct Datagram {
    pub(crate) received: AtomicU64,
    pub(crate) lost: AtomicU64,
}

/// The socket, and the one datagram that has not gone back yet.
#[derive(Debug)]
pub(crate) struct Datagrams {
    socket: UdpSocket,
    pending: Option<(Vec<u8>, SocketAddr)>,
}

impl Datagrams {
    pub(crate) fn new(socket: UdpSocket) -> Self {
        Self { socket, pending: None }
    }

    /// Serves what has come, up to a limit. `buffer` must have room for the largest datagram.
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
                // An interruption, or the news that some earlier datagram did not arrive.
                Err(_) => {}
            }
        }
        // The next datagram may be there: only a read that would block proves the contrary.
        Next::Read { drained: false }
    }

    /// False if the datagram must wait. One that the system will not send at all is lost, as
    /// datagrams may be.
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
