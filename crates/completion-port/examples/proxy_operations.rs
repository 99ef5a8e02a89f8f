//! A proxy that uses operations to copy both ways at the same time.
//!
//! `cargo run --example proxy_operations 127.0.0.1:7001 127.0.0.1:7000`. SIGTERM or Ctrl-C ends it.
//!
//! Both connections of a pair are shared associations, since each receives and sends at the same
//! time. Each way has one buffer, which goes back and forth: one connection fills it, the other one
//! sends all of it, and then the first one fills it again. So neither way needs a queue, a lock or
//! a limit, and a slow reader stops only its own way.

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
/// How long the target server may take to accept.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone)]
enum Peer {
    Listener(Arc<TcpListener>),
    /// A connection to the target server that is in progress, for a client.
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
    /// The number of ways that have ended.
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
        // Handlers never sleep, so more threads are not needed.
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
                            // If there is no descriptor left, for instance, the client is closed.
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
                // Without a connection to the target server, dropping the token drops its key and
                // so closes the client.
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
    // Short messages should not wait for earlier acknowledgements. Without this they are only
    // slower.
    let _ = stream.set_nodelay(true);
    Arc::new(stream)
}

/// Begins to connect to the target server for a client.
fn connect(port: &Port<Peer>, client: Arc<TcpStream>, target: SocketAddr) -> Result<()> {
    let key = |socket| Peer::Begun { client, server: stream(socket) };
    port.connect(target, Some(PATIENCE.into()), key)?;
    Ok(())
}

/// Both connections exist. Associates each again as shared, so that it can receive and send at the
/// same time.
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

    /// Starts the operation that follows one of side `number`. Returns an error if the pair must
    /// end: after a reset of one side, or the end of both ways.
    fn go_on(&self, port: &Port<Peer>, number: usize, outcome: Outcome) -> Result<()> {
        let other = 1 - number;
        match outcome {
            Outcome::Received(Ok(0), _) => {
                // The other side sees the end after all data before it.
                let _ = self.streams[other].shutdown(Shutdown::Write);
                if self.ended.fetch_add(1, Ordering::Relaxed) == 1 {
                    self.end(port);
                }
                Ok(())
            }
            Outcome::Received(Ok(_), bytes) => self.start(port, other, Operation::send_all(bytes)),
            // The data sent here came from the other side.
            Outcome::Sent(Ok(_), buffer) => self.receive(port, other, buffer),
            outcome => outcome.error().map_or(Ok(()), Err),
        }
    }

    /// Ends both connections. Their operations in flight are cancelled, and the last packet of each
    /// returns its key.
    fn end(&self, port: &Port<Peer>) {
        for name in self.names.iter().filter_map(OnceLock::get) {
            // Refused if it has already ended.
            let _ = port.remove(name.id());
        }
    }
}
