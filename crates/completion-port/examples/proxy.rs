//! A proxy that copies both ways between two connections, whose handlers may run on two threads.
//!
//! `cargo run --example proxy 127.0.0.1:7001 127.0.0.1:7000`. SIGTERM or Ctrl-C ends it.
//!
//! Each way is a pipe in memory that one connection fills and the other one empties. `enable_also`
//! makes the other connection's handler run, whatever state that connection is in.

mod common;

use std::error::Error;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use common::{Found, accept, asked_to_end, listen, lock, receive, send};
use completion_port::{
    Batch, BorrowedSource, Id, Interest, OneShot, Packet, Port, Registration, Source,
};

/// The capacity of a pipe.
const HIGH_WATER: usize = 64 * 1024;
/// How long the target server may take to accept.
const PATIENCE: Duration = Duration::from_secs(2);

enum Peer {
    Listener(TcpListener),
    Side(Side),
}

/// One of two connections.
struct Side {
    stream: TcpStream,
    /// Its number within the pair.
    number: usize,
    pair: Arc<Pair>,
    has_shut: bool,
}

#[derive(Default)]
struct Pair {
    names: [OnceLock<Id>; 2],
    /// The bytes that each side has received for the other one.
    received: [Mutex<Pipe>; 2],
}

#[derive(Default)]
struct Pipe {
    bytes: Vec<u8>,
    has_ended: bool,
}

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.as_source(),
            Self::Side(side) => side.stream.as_source(),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let end = asked_to_end()?;
    let target = std::env::args().nth(2).ok_or("usage: proxy <listen> <connect>")?.parse()?;
    let port = Port::new()?;
    let listener = Peer::Listener(listen()?);
    port.register(Registration::owned(listener, Interest::IN, OneShot::Level))?;
    thread::scope(|scope| {
        // More than may run at the same time, because some sleep while they connect.
        for _ in 0..16 {
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
            let Packet::Ready(mut ready) = packet else { continue };
            match ready.key_mut() {
                Peer::Listener(listener) => {
                    let accepted = accept(listener);
                    // Another thread may accept the next client while this one connects.
                    let _ = ready.rearm();
                    if let Some(client) = accepted {
                        connect(port, client, target);
                    }
                }
                Peer::Side(side) => match side.copy(port) {
                    Ok(Some(interest)) => drop(ready.rearm_as(interest, OneShot::Level)),
                    Ok(None) => drop(ready),
                    Err(_) => {
                        side.end_the_other(port);
                        drop(ready);
                    }
                },
            }
        }
    }
}

/// Connects to the target server for a client.
fn connect(port: &Port<Peer>, client: TcpStream, target: SocketAddr) {
    // This sleeps, so announce it: another thread takes this one's place.
    let connected = port.blocking(|| TcpStream::connect_timeout(&target, PATIENCE));
    let Ok(server) = connected else { return };
    if server.set_nonblocking(true).and_then(|()| server.set_nodelay(true)).is_err() {
        return;
    }
    let pair = Arc::<Pair>::default();
    for (number, stream) in [client, server].into_iter().enumerate() {
        let side = Side { stream, number, pair: Arc::clone(&pair), has_shut: false };
        // Request nothing before each side knows the other one's id.
        match port.register(Registration::owned(Peer::Side(side), Interest::NONE, OneShot::Level)) {
            Ok(id) => drop(pair.names[number].set(id)),
            Err(_) => break,
        }
    }
    let begins = |name: &OnceLock<Id>| {
        name.get().is_some_and(|id| port.enable_also(*id, Interest::IN).is_ok())
    };
    // A side may already have ended with a reset.
    if !pair.names.iter().all(begins) {
        for id in pair.names.iter().filter_map(OnceLock::get) {
            let _ = port.remove(*id);
        }
    }
}

impl Side {
    fn other(&self) -> usize {
        1 - self.number
    }

    /// Makes the other side's handler run as soon as `interest` holds for its connection.
    fn wake_the_other(&self, port: &Port<Peer>, interest: Interest) {
        if let Some(id) = self.pair.names[self.other()].get() {
            // Refused if that side has ended, and then there is no handler to wake.
            let _ = port.enable_also(*id, interest);
        }
    }

    fn end_the_other(&self, port: &Port<Peer>) {
        if let Some(id) = self.pair.names[self.other()].get() {
            let _ = port.remove(*id);
        }
    }

    /// Moves bytes between the connection and both pipes. Returns the interest to rearm with, or
    /// `None` if both ways have ended.
    fn copy(&mut self, port: &Port<Peer>) -> io::Result<Option<Interest>> {
        let mut next = Interest::NONE;

        let mut outgoing = lock(&self.pair.received[self.other()]);
        let was_full = outgoing.bytes.len() >= HIGH_WATER;
        send(&mut self.stream, &mut outgoing.bytes)?;
        if !outgoing.bytes.is_empty() {
            next |= Interest::OUT;
        } else if outgoing.has_ended && !self.has_shut {
            self.stream.shutdown(Shutdown::Write)?;
            self.has_shut = true;
        }
        let has_room = was_full && outgoing.bytes.len() < HIGH_WATER;
        drop(outgoing);
        if has_room {
            self.wake_the_other(port, Interest::IN);
        }

        let mut incoming = lock(&self.pair.received[self.number]);
        let mut has_more = false;
        while !incoming.has_ended && incoming.bytes.len() < HIGH_WATER {
            match receive(&mut self.stream, &mut incoming.bytes)? {
                Found::Bytes => {}
                Found::Nothing => {
                    next |= Interest::IN;
                    break;
                }
                Found::End => incoming.has_ended = true,
            }
            has_more = true;
        }
        let is_over = incoming.has_ended && self.has_shut;
        drop(incoming);
        if has_more {
            self.wake_the_other(port, Interest::OUT);
        }
        Ok((!is_over).then_some(next))
    }
}
