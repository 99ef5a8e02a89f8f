//! The completion port by operations: a receive is in flight for each connection, and what comes is sent back by
//! another operation.

use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use completion_port::{Batch, Operation, Outcome, Packet, Port, Ready, Started};

use super::listening::Listening;
use super::{Contender, Server, threads, version};
use crate::sink::Service;
use crate::work::{Carry, process, process_datagram};

/// Packets taken by a wait at most.
const BATCH: usize = 64;

/// Operations that a handler ends at once before another connection has its turn.
const MOST_AT_ONCE: usize = 64;

pub(super) const AT_ONCE: &str = "ours_by_operations";
pub(super) const BY_PACKETS: &str = "ours_by_packets";

/// Operations that can be done at once make no packet.
pub(crate) fn contender() -> Contender {
    Contender {
        name: AT_ONCE,
        about: "completion-port by operations: what can be done at once makes no packet",
        version: || version::of_crate!("completion-port").to_owned(),
        start: |threads, service| start(threads, service, true),
    }
}

/// Each operation makes a packet.
pub(crate) fn by_packets() -> Contender {
    Contender {
        name: BY_PACKETS,
        about: "completion-port by operations, with a packet for each",
        start: |threads, service| start(threads, service, false),
        ..contender()
    }
}

fn start(threads: usize, service: Service, at_once: bool) -> io::Result<Box<dyn Server>> {
    let port = Arc::new(Port::builder().build()?);
    let server = ByOperations { port, service, at_once };
    for _ in 0..threads {
        let server = server.clone();
        threads::spawn("ours", move || server.serve())?;
    }
    Ok(Box::new(server))
}

#[derive(Clone)]
struct ByOperations {
    port: Arc<Port<Peer>>,
    service: Service,
    at_once: bool,
}

enum Peer {
    Connection(TcpStream, Carry),
    Listener(TcpListener),
    Datagrams(UdpSocket),
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Connection(stream, _) => stream.as_fd(),
            Self::Listener(listener) => listener.as_fd(),
            Self::Datagrams(socket) => socket.as_fd(),
        }
    }
}

impl Server for ByOperations {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        self.begin(Peer::Connection(stream, Carry::default()))
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        self.begin(Peer::Listener(at.listener()?))
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        self.begin(Peer::Datagrams(socket))
    }

    fn wakes(&self) -> Option<u64> {
        Some(self.port.stats().wakes)
    }
}

impl ByOperations {
    fn buffer(&self) -> Vec<u8> {
        Vec::with_capacity(self.service.buffer())
    }

    fn begin(&self, peer: Peer) -> io::Result<()> {
        let token = self.port.associate(peer)?;
        let first = match token.key() {
            Peer::Connection(..) => Operation::recv(self.buffer()),
            Peer::Listener(_) => Operation::accept(),
            Peer::Datagrams(_) => Operation::recv_from(self.buffer()),
        };
        self.go_on(token, first)
    }

    fn serve(&self) -> io::Result<()> {
        let mut batch = Batch::with_capacity(BATCH);
        loop {
            for packet in self.port.wait(&mut batch, None)? {
                let Packet::Done(done) = packet else { continue };
                let (mut token, outcome) = done.into_parts();
                if let Some(next) = self.handle(&mut token, outcome)? {
                    self.go_on(token, next)?;
                }
            }
        }
    }

    /// Starts operations, one after the other, until one has to wait.
    fn go_on(&self, mut token: Ready<'_, Peer>, mut next: Operation) -> io::Result<()> {
        if self.at_once {
            for _ in 0..MOST_AT_ONCE {
                let Started::Finished((same, outcome)) = token.start_now(next)? else {
                    return Ok(());
                };
                token = same;
                match self.handle(&mut token, outcome)? {
                    Some(more) => next = more,
                    None => return Ok(()),
                }
            }
        }
        token.start(next)?;
        Ok(())
    }

    /// What follows an operation; `None`: the connection ends.
    fn handle(
        &self,
        token: &mut Ready<'_, Peer>,
        outcome: Outcome,
    ) -> io::Result<Option<Operation>> {
        Ok(match outcome {
            Outcome::Received(Ok(1..), buffer) => {
                let Peer::Connection(_, carry) = token.key_mut() else { return Ok(None) };
                match self.service {
                    Service::Echo => {
                        process(carry, &buffer);
                        Some(Operation::send_all(buffer))
                    }
                    Service::Sink(sink) => {
                        sink.handle(buffer.len());
                        Some(Operation::recv(buffer))
                    }
                }
            }
            Outcome::Sent(Ok(_), buffer) => match token.key() {
                Peer::Datagrams(_) => Some(Operation::recv_from(buffer)),
                _ => Some(Operation::recv(buffer)),
            },
            Outcome::ReceivedFrom(Ok((_, Some(from))), buffer) => {
                process_datagram(&buffer);
                Some(Operation::send_to(buffer, from))
            }
            Outcome::Accepted(accepted) => {
                if let Ok((socket, _)) = accepted {
                    let stream = TcpStream::from(OwnedFd::from(socket));
                    self.begin(Peer::Connection(stream, Carry::default()))?;
                }
                Some(Operation::accept())
            }
            // The end of the stream, or a client that has gone.
            _ => None,
        })
    }
}
