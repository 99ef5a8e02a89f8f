//! Forwards datagrams by operations: from any number of clients to one server, and the server's
//! answers back.
//!
//! `cargo run --example udp_forwarder 127.0.0.1:7010 127.0.0.1:7011 30`. SIGTERM or Ctrl-C ends it.
//! Each client gets a socket that is connected to the server, so that an answer shows whom it is
//! for. The last argument is the time in seconds after which a silent client loses it. The default
//! is 30.
//!
//! A buffer goes from operation to operation. At the front it receives a client's datagram; the
//! client's own socket sends that; then the buffer receives at the front again. Another buffer of
//! each client goes the other way. So there are never more buffers than these. If they are all on
//! their way, datagrams wait in the kernel, which drops what it has no room for.

#[path = "common/end.rs"]
mod end;
#[path = "common/serve.rs"]
mod serve;

use std::collections::HashMap;
use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    BorrowedSource, ErrorKind, OpId, Operation, Outcome, Packet, Port, SharedCompleted, SharedId,
    Source, Started,
};

/// The number of datagrams that can be on their way to the server.
const RECEIVES: usize = 16;
/// No datagram of IPv4 or IPv6 is longer.
const LARGEST: usize = 65_535;
/// A client beyond these is ignored until another one has been silent for long enough.
const MOST_CLIENTS: usize = 1000;

/// Each packet brings a clone.
#[derive(Clone)]
enum Peer {
    Front(Arc<UdpSocket>),
    Client(Arc<Client>),
}

struct Client {
    address: SocketAddr,
    /// Connected to the server.
    socket: UdpSocket,
    name: OnceLock<SharedId>,
    /// When the last datagram went either way.
    last: Mutex<Instant>,
}

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Front(socket) => socket.as_source(),
            Self::Client(client) => client.socket.as_source(),
        }
    }
}

struct Forwarder {
    port: Port<Peer>,
    front: SharedId,
    server: SocketAddr,
    idle: Duration,
    clients: Mutex<HashMap<SocketAddr, Arc<Client>>>,
    /// The clients whose answers found no room at the front, by the operation that sends them.
    answers: Mutex<HashMap<OpId, Arc<Client>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn main() -> Result<(), Box<dyn Error>> {
    let end = end::asked_to_end()?;
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let server = arguments.next().ok_or("usage: udp_forwarder <listen> <server> [<seconds>]")?;
    let idle = Duration::from_secs(arguments.next().map_or(Ok(30), |seconds| seconds.parse())?);

    let socket = UdpSocket::bind(address)?;
    println!("listening on {}", socket.local_addr()?);
    let port = Port::new()?;
    let front = port.associate_shared(Peer::Front(Arc::new(socket)))?;
    let (clients, answers) = Default::default();
    let forwarder = Forwarder { port, front, server: server.parse()?, idle, clients, answers };
    for _ in 0..RECEIVES {
        forwarder.receive_at_front(Vec::with_capacity(LARGEST));
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| serve::serve(&forwarder.port, |packet| forwarder.handle(packet)));
        }
        let _ = end.recv();
        // Operations in flight are cancelled, and their packets return keys and buffers.
        forwarder.port.shutdown()
    })?;
    Ok(())
}

impl Forwarder {
    fn handle(&self, packet: Packet<'_, Peer, ()>) {
        // Any other packet is the removal of a silent client, whose key is dropped.
        let Packet::SharedCompleted(completed) = packet else { return };
        match completed.key().clone() {
            Peer::Front(_) => self.front_completed(completed),
            Peer::Client(client) => self.client_completed(&client, completed.into_parts().1),
        }
    }

    fn front_completed(&self, completed: SharedCompleted<'_, Peer>) {
        let operation = completed.operation();
        match completed.into_parts().1 {
            Outcome::ReceivedFrom(Ok((_, Some(address))), datagram) => {
                match address.as_ip().and_then(|address| self.client(address)) {
                    Some(client) => self.forward(&client, datagram),
                    None => self.receive_at_front(datagram),
                }
            }
            // The server ends.
            Outcome::ReceivedFrom(Err(error), _) if error.kind() == ErrorKind::Cancelled => {}
            Outcome::ReceivedFrom(_, buffer) => self.receive_at_front(buffer),
            Outcome::Sent(_, buffer) => {
                let client = lock(&self.answers).remove(&operation);
                if let Some(client) = client {
                    self.receive_at(&client, buffer);
                }
            }
            _ => {}
        }
    }

    fn client_completed(&self, client: &Arc<Client>, outcome: Outcome) {
        match outcome {
            Outcome::Received(Ok(_), datagram) => {
                client.touch();
                self.answer(client, datagram);
            }
            Outcome::Received(Err(error), buffer) => match error.kind() {
                ErrorKind::TimedOut if client.silence() >= self.idle => self.forget(client),
                ErrorKind::Cancelled => {}
                // The client has sent meanwhile, or the server is not there for now.
                _ => self.receive_at(client, buffer),
            },
            // Datagrams may be lost, so it is all the same whether this one was sent.
            Outcome::Sent(_, buffer) => self.receive_at_front(buffer),
            _ => {}
        }
    }

    /// Sends a client's datagram to the server.
    fn forward(&self, client: &Client, datagram: Vec<u8>) {
        client.touch();
        let Some(name) = client.name.get() else { return self.receive_at_front(datagram) };
        if let Err(refused) = self.port.start(*name, Operation::send(datagram)) {
            // The client was just forgotten, and this datagram is lost.
            if let Some(buffer) = refused.into_parts().1.into_buffer() {
                self.receive_at_front(buffer);
            }
        }
    }

    /// Sends a datagram of the server to a client.
    fn answer(&self, client: &Arc<Client>, datagram: Vec<u8>) {
        // Locked over the start, because another thread may get its packet before this one returns.
        let mut answers = lock(&self.answers);
        let send = Operation::send_to(datagram, client.address);
        match self.port.start_now(self.front, send) {
            Ok(Started::InFlight(operation)) => {
                answers.insert(operation, Arc::clone(client));
            }
            Ok(Started::Completed(outcome)) => {
                drop(answers);
                if let Some(buffer) = outcome.into_buffer() {
                    self.receive_at(client, buffer);
                }
            }
            // The server ends.
            Err(_) => {}
        }
    }

    /// Lends a buffer to the front, for the datagram of any client.
    fn receive_at_front(&self, buffer: Vec<u8>) {
        // Refused if the server ends.
        let _ = self.port.start(self.front, Operation::recv_from(buffer));
    }

    /// Lends a buffer to a client's socket, for a datagram of the server.
    fn receive_at(&self, client: &Client, buffer: Vec<u8>) {
        let deadline = *lock(&client.last) + self.idle;
        if let Some(name) = client.name.get() {
            // Refused if the server ends.
            let _ = self.port.start(*name, Operation::recv(buffer).deadline(deadline));
        }
    }

    /// Returns the client with this address, which may be new. `None` if there is no room for it.
    fn client(&self, address: SocketAddr) -> Option<Arc<Client>> {
        let mut clients = lock(&self.clients);
        if let Some(client) = clients.get(&address) {
            return Some(Arc::clone(client));
        }
        if clients.len() >= MOST_CLIENTS {
            return None;
        }
        let any = match self.server {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        // No descriptor may be left. The client is as if it had lost its datagram.
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect(self.server).ok()?;
        let (name, last) = (OnceLock::new(), Mutex::new(Instant::now()));
        let client = Arc::new(Client { address, socket, name, last });
        // Nothing is reported of it before it has an operation.
        let name = self.port.associate_shared(Peer::Client(Arc::clone(&client))).ok()?;
        let _ = client.name.set(name);
        clients.insert(address, Arc::clone(&client));
        drop(clients);
        self.receive_at(&client, Vec::with_capacity(LARGEST));
        Some(client)
    }

    /// Ends a client's association, whose key is dropped with its last packet.
    fn forget(&self, client: &Client) {
        lock(&self.clients).remove(&client.address);
        if let Some(name) = client.name.get() {
            // What the client sends just now may be cancelled. Its packet returns the buffer.
            let _ = self.port.remove(name.id());
        }
    }
}

impl Client {
    fn touch(&self) {
        *lock(&self.last) = Instant::now();
    }

    fn silence(&self) -> Duration {
        lock(&self.last).elapsed()
    }
}
