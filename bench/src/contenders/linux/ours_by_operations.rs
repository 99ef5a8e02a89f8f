//! The completion port with operations: a receive is in flight for each connection, and another
//! operation sends the received data back.

use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use completion_port::{Batch, Operation, Outcome, Packet, Port, Ready, Source, Started};
use rustix::io::{DupFlags, dup3, fcntl_getfd};
use rustix::net::sockopt::socket_cookie;
use rustix::net::{AddressFamily, SocketFlags, SocketType, getsockname, socket_with};

use super::Listening;
use super::{Contender, Server, threads, version};
use crate::names::{AT_ONCE, BY_PACKETS, CHECKED, PLACED, SHARED};
use crate::sink::Service;
use crate::work::{Carry, process, process_datagram};

/// Packets taken by a wait at most.
const BATCH: usize = 64;

/// Operations that a handler ends immediately before another connection has its turn.
const MOST_AT_ONCE: usize = 64;

/// Accepts in flight of a shared listener.
const ACCEPTS: usize = 16;

/// Operations that end immediately make no packet.
pub(crate) fn contender() -> Contender {
    Contender {
        name: AT_ONCE,
        about: "completion-port by operations: immediate results make no packet",
        version: || version::of_crate!("completion-port").to_owned(),
        start: |threads, service| start::<Peer>(threads, service, true, Placing::None),
    }
}

/// Each operation makes a packet.
pub(crate) fn by_packets() -> Contender {
    Contender {
        name: BY_PACKETS,
        about: "completion-port by operations, with a packet for each",
        start: |threads, service| start::<Peer>(threads, service, false, Placing::None),
        ..contender()
    }
}

/// Many accepts are in flight for a listener, which threads share.
pub(crate) fn by_shared_accepts() -> Contender {
    Contender {
        name: SHARED,
        about: "completion-port by operations, with 16 accepts in flight for a shared listener",
        start: |threads, service| start::<Arc<Peer>>(threads, service, true, Placing::None),
        ..contender()
    }
}

/// The same with the system calls that any implementation of `AcceptEx` on Linux adds to an accept.
pub(crate) fn by_placed_accepts() -> Contender {
    Contender {
        name: PLACED,
        about: "ours_by_shared_accepts, and each connection replaces a socket created for it",
        start: |threads, service| start::<Arc<Peer>>(threads, service, true, Placing::Placed),
        ..contender()
    }
}

/// The same, with the further calls that the C library makes for each connection: the local address for
/// `AcceptEx`, whether the replaced number is closed on exec, and which socket the number names.
pub(crate) fn by_checked_accepts() -> Contender {
    Contender {
        name: CHECKED,
        about: "ours_by_placed_accepts, with the further system calls of the C library",
        start: |threads, service| start::<Arc<Peer>>(threads, service, true, Placing::Checked),
        ..contender()
    }
}

/// What happens to an accepted connection.
#[derive(Clone, Copy, PartialEq)]
enum Placing {
    None,
    /// It takes the place of a socket that is made for it.
    Placed,
    /// The same, and the C library's questions are asked.
    Checked,
}

fn start<K: Key>(
    threads: usize,
    service: Service,
    at_once: bool,
    placing: Placing,
) -> io::Result<Box<dyn Server>> {
    let port = Arc::new(Port::builder().build()?);
    let server = ByOperations::<K> { port, service, at_once, placing };
    for _ in 0..threads {
        let server = ByOperations { port: Arc::clone(&server.port), ..server };
        threads::spawn("ours", move || server.serve())?;
    }
    Ok(Box::new(server))
}

struct ByOperations<K> {
    port: Arc<Port<K>>,
    service: Service,
    at_once: bool,
    placing: Placing,
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

/// How a server keeps its peers.
trait Key: Source + From<Peer> + Send + Sync + 'static {
    fn peer(&self) -> &Peer;

    /// The peer of a token, to be changed.
    fn peer_mut(&mut self) -> Option<&mut Peer>;

    /// Accepts what connects to this listener.
    fn listen(server: &ByOperations<Self>, listener: TcpListener) -> io::Result<()>;
}

impl Key for Peer {
    fn peer(&self) -> &Peer {
        self
    }

    fn peer_mut(&mut self) -> Option<&mut Peer> {
        Some(self)
    }

    /// One accept after the other.
    fn listen(server: &ByOperations<Self>, listener: TcpListener) -> io::Result<()> {
        server.begin(Peer::Listener(listener))
    }
}

impl Key for Arc<Peer> {
    fn peer(&self) -> &Peer {
        self
    }

    fn peer_mut(&mut self) -> Option<&mut Peer> {
        Arc::get_mut(self)
    }

    /// Many accepts in flight.
    fn listen(server: &ByOperations<Self>, listener: TcpListener) -> io::Result<()> {
        let key = Arc::new(Peer::Listener(listener));
        let id = server.port.associate_shared(key).map_err(|refused| refused.error())?;
        for _ in 0..ACCEPTS {
            let started = server.port.start(id, Operation::accept());
            started.map_err(|refused| refused.error())?;
        }
        Ok(())
    }
}

impl<K: Key> Server for ByOperations<K> {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        self.begin(Peer::Connection(stream, Carry::default()))
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        K::listen(self, at.listener()?)
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        self.begin(Peer::Datagrams(socket))
    }

    fn wakes(&self) -> Option<u64> {
        Some(self.port.stats().wakes)
    }
}

impl<K: Key> ByOperations<K> {
    fn buffer(&self) -> Vec<u8> {
        Vec::with_capacity(self.service.buffer())
    }

    fn begin(&self, peer: Peer) -> io::Result<()> {
        let token = self.port.associate(peer.into()).map_err(|refused| refused.error())?;
        let first = match token.key().peer() {
            Peer::Connection(..) => Operation::recv(self.buffer()),
            Peer::Listener(_) => Operation::accept(),
            Peer::Datagrams(_) => Operation::recv_from(self.buffer()),
        };
        token.start(first).map_err(|refused| refused.error())?;
        Ok(())
    }

    fn serve(&self) -> io::Result<()> {
        let mut batch = Batch::with_capacity(BATCH);
        loop {
            for packet in self.port.wait(&mut batch, None)? {
                match packet {
                    Packet::Completed(done) => {
                        let (token, outcome) = done.into_parts();
                        self.go_on(token, outcome)?;
                    }
                    Packet::SharedCompleted(finished) => {
                        let id = finished.id();
                        let (_, outcome) = finished.into_parts();
                        // Another one is in flight before the connection is served.
                        let started = self.port.start(id, Operation::accept());
                        started.map_err(|refused| refused.error())?;
                        self.accepted(outcome)?;
                    }
                    _ => {}
                }
            }
        }
    }

    /// Starts operations, one after the other, until one has to wait.
    fn go_on(&self, mut token: Ready<'_, K>, mut outcome: Outcome) -> io::Result<()> {
        let mut left = if self.at_once { MOST_AT_ONCE } else { 0 };
        while let Some(next) = self.handle(&mut token, outcome)? {
            if left == 0 {
                token.start(next).map_err(|refused| refused.error())?;
                break;
            }
            left -= 1;
            match token.start_now(next).map_err(|refused| refused.error())? {
                Started::Completed(ended) => (token, outcome) = ended,
                Started::InFlight(_) => break,
            }
        }
        Ok(())
    }

    fn accepted(&self, outcome: Outcome) -> io::Result<()> {
        let Outcome::Accepted(Ok((socket, _))) = outcome else { return Ok(()) };
        let mut socket = OwnedFd::from(socket);
        if self.placing != Placing::None {
            let is_checked = self.placing == Placing::Checked;
            let mut made =
                socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
            if is_checked {
                getsockname(&socket)?;
                fcntl_getfd(&made)?;
            }
            dup3(&socket, &mut made, DupFlags::CLOEXEC)?;
            if is_checked {
                // Once after the replacement, once when it is associated. `closesocket` asks as
                // Rust does when it associates.
                for _ in 0..2 {
                    socket_cookie(&made)?;
                }
            }
            socket = made;
        }
        let stream = TcpStream::from(socket);
        self.begin(Peer::Connection(stream, Carry::default()))
    }

    /// What follows an operation; `None`: the connection ends.
    fn handle(&self, token: &mut Ready<'_, K>, outcome: Outcome) -> io::Result<Option<Operation>> {
        Ok(match outcome {
            Outcome::Received(Ok(1..), buffer) => {
                let Some(Peer::Connection(_, carry)) = token.key_mut().peer_mut() else {
                    return Ok(None);
                };
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
            Outcome::Sent(Ok(_), buffer) => match token.key().peer() {
                Peer::Datagrams(_) => Some(Operation::recv_from(buffer)),
                _ => Some(Operation::recv(buffer)),
            },
            Outcome::ReceivedFrom(Ok((_, Some(from))), buffer) => {
                process_datagram(&buffer);
                Some(Operation::send_to(buffer, from))
            }
            Outcome::Accepted(_) => {
                self.accepted(outcome)?;
                Some(Operation::accept())
            }
            // The end of the stream, or a client that has gone.
            _ => None,
        })
    }
}
