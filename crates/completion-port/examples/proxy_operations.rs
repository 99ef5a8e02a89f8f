//! A proxy by operations that copies both ways at once.
//!
//! `cargo run --example proxy_operations 127.0.0.1:7001 127.0.0.1:7000`, and SIGTERM or Ctrl-C to end it.
//!
//! Both connections of a pair are shared associations, since each of them receives and sends at the same time. Each way
//! has one buffer, which goes to and fro: one connection fills it, the other one sends all of it, then the first
//! one fills it again. So neither way has a queue, a lock or a limit of its own, and the way whose reader is slow
//! stands still by itself.

#[path = "common/operations.rs"]
mod common;

use std::error::Error;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use common::{asked_to_end, stream_of};
use completion_port::{
    Batch, BorrowedSource, Operation, Outcome, OwnedSource, Packet, Port, Ready, Result, SharedId,
    Source,
};

const ACCEPTS: usize = 16;
const BUFFER: usize = 64 * 1024;
/// How long the server behind has to accept.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone)]
enum Peer {
    Listener(Arc<TcpListener>),
    /// The connection to the server behind is being made, for a client.
    Begun {
        client: Arc<TcpStream>,
        server: Arc<TcpStream>,
    },
    /// One of two connections.
    Side(Arc<Pair>, usize),
}

struct Pair {
    streams: [Arc<TcpStream>; 2],
    names: [OnceLock<SharedId>; 2],
    /// How many of the two ways have come to their end.
    ended: AtomicUsize,
}

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.as_source(),
            Self::Begun { server, .. } => server.as_source(),
            Self::Side(pair, number) => pair.streams[*number].as_source(),
        }
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let end = asked_to_end()?;
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let target = arguments.next().ok_or("usage: proxy_operations <listen> <connect>")?.parse()?;

    let port = Port::new()?;
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    let listener = port.associate_shared(Peer::Listener(Arc::new(listener)))?;
    for _ in 0..ACCEPTS {
        port.start(listener, Operation::accept())?;
    }
    thread::scope(|scope| {
        // No handler ever sleeps, so that there need not be more of them.
        for _ in 0..4 {
            scope.spawn(|| serve(&port, target));
        }
        let _ = end.recv();
        port.shutdown()
    })?;
    Ok(())
}

fn serve(port: &Port<Peer>, target: SocketAddr) {
    let mut batch = Batch::new();
    while let Ok(packets) = port.wait(&mut batch, None) {
        for packet in packets {
            match packet {
                Packet::SharedCompleted(finished) => {
                    let name = finished.id();
                    match finished.into_parts() {
                        (Peer::Listener(_), Outcome::Accepted(Ok((socket, _)))) => {
                            let _ = port.start(name, Operation::accept());
                            // If there is no descriptor left, say, the client is closed.
                            let _ = connect(port, stream(socket), target);
                        }
                        (Peer::Side(pair, number), outcome) => {
                            let went_on = pair.go_on(port, number, outcome);
                            if went_on.is_err() {
                                pair.end(port);
                            }
                        }
                        _ => {}
                    }
                }
                // The client is closed if there is no connection behind: its key is dropped with the token.
                Packet::Completed(done) => {
                    if let (token, Outcome::Connected(Ok(()))) = done.into_parts() {
                        join(port, token);
                    }
                }
                _ => {}
            }
        }
    }
}

fn stream(socket: OwnedSource) -> Arc<TcpStream> {
    let stream = stream_of(socket);
    // Short messages do not wait for the acknowledgement of those before. It is only slower without.
    let _ = stream.set_nodelay(true);
    Arc::new(stream)
}

/// Begins with the connection behind a client's.
fn connect(port: &Port<Peer>, client: Arc<TcpStream>, target: SocketAddr) -> Result<()> {
    let key = |socket| Peer::Begun { client, server: stream(socket) };
    port.connect(target, Some(PATIENCE.into()), key)?;
    Ok(())
}

/// Both connections are there: each is associated anew, so that it can receive and send at once.
fn join(port: &Port<Peer>, token: Ready<'_, Peer>) {
    let Peer::Begun { client, server } = token.into_key() else { return };
    let pair = Arc::new(Pair {
        streams: [client, server],
        names: [OnceLock::new(), OnceLock::new()],
        ended: AtomicUsize::new(0),
    });
    if pair.begin(port).is_err() {
        pair.end(port);
    }
}

impl Pair {
    fn begin(self: &Arc<Self>, port: &Port<Peer>) -> Result<()> {
        for (number, name) in self.names.iter().enumerate() {
            let _ = name.set(port.associate_shared(Peer::Side(Arc::clone(self), number))?);
        }
        (0..2).try_for_each(|number| self.receive(port, number, Vec::with_capacity(BUFFER)))
    }

    fn receive(&self, port: &Port<Peer>, number: usize, buffer: Vec<u8>) -> Result<()> {
        self.start(port, number, Operation::recv(buffer))
    }

    fn start(&self, port: &Port<Peer>, number: usize, operation: Operation) -> Result<()> {
        if let Some(name) = self.names[number].get() {
            port.start(*name, operation)?;
        }
        Ok(())
    }

    /// What follows an operation of side `number`. After an error the pair is to end: a reset of one side, or the end
    /// of both ways.
    fn go_on(&self, port: &Port<Peer>, number: usize, outcome: Outcome) -> Result<()> {
        let other = 1 - number;
        match outcome {
            Outcome::Received(Ok(0), _) => {
                // The other side hears of the end behind all that came before it.
                let _ = self.streams[other].shutdown(Shutdown::Write);
                if self.ended.fetch_add(1, Ordering::Relaxed) == 1 {
                    self.end(port);
                }
                Ok(())
            }
            Outcome::Received(Ok(_), bytes) => self.start(port, other, Operation::send_all(bytes)),
            // What was sent here has come from the other side.
            Outcome::Sent(Ok(_), buffer) => self.receive(port, other, buffer),
            outcome => outcome.error().map_or(Ok(()), Err),
        }
    }

    /// Ends both connections. What is in flight comes back cancelled, and the last packet of each has its key.
    fn end(&self, port: &Port<Peer>) {
        for name in self.names.iter().filter_map(OnceLock::get) {
            // Refused if it has ended already.
            let _ = port.remove(name.id());
        }
    }
}
