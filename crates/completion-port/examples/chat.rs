//! A chat server: every client gets the lines that the others send. A client that reads too slowly
//! is disconnected.
//!
//! `cargo run --example chat 127.0.0.1:7002`, then a few `nc 127.0.0.1 7002`. SIGTERM or Ctrl-C
//! ends it.
//!
//! A handler writes only to its own connection. For the others it appends the line to their
//! outboxes and calls `enable_also`, so that their handlers run when there is room.

mod common;

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use common::{Found, accept, asked_to_end, listen, lock, receive, send};
use completion_port::{
    Batch, BorrowedSource, Id, Interest, OneShot, Packet, Port, Registration, Source,
};

/// A client with more unsent bytes than this is disconnected.
const HIGH_WATER: usize = 256 * 1024;
/// So is a client that sends a longer line.
const LONGEST_LINE: usize = 4096;

enum Peer {
    Listener(TcpListener),
    Client(Client),
}

struct Client {
    stream: TcpStream,
    /// The beginning of a line.
    line: Vec<u8>,
    outbox: Outbox,
    has_joined: bool,
    /// The client sends nothing more, and leaves when its outbox is empty.
    has_ended: bool,
}

type Outbox = Arc<Mutex<Vec<u8>>>;

/// The outboxes of all clients that have joined.
type Room = Mutex<HashMap<Id, Outbox>>;

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.as_source(),
            Self::Client(client) => client.stream.as_source(),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let end = asked_to_end()?;
    let (port, room) = (Port::new()?, Room::default());
    let listener = Peer::Listener(listen()?);
    port.register(Registration::owned(listener, Interest::IN, OneShot::Level))?;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| serve(&port, &room));
        }
        let _ = end.recv();
        port.shutdown()
    })?;
    Ok(())
}

fn serve(port: &Port<Peer>, room: &Room) {
    let mut batch = Batch::new();
    while let Ok(packets) = port.wait(&mut batch, None) {
        for packet in packets {
            match packet {
                Packet::Ready(mut ready) => {
                    let id = ready.id();
                    let next = match ready.key_mut() {
                        Peer::Listener(listener) => {
                            if let Some(stream) = accept(listener) {
                                welcome(port, stream);
                            }
                            Some(Interest::IN)
                        }
                        Peer::Client(client) => client.talk(id, port, room).ok().flatten(),
                    };
                    if let Some(interest) = next {
                        let _ = ready.rearm_as(interest, OneShot::Level);
                    } else {
                        lock(room).remove(&id);
                    }
                }
                // A client that was disconnected, or the end of the server. Dropping the key closes
                // the connection.
                Packet::Removed(id, _) => drop(lock(room).remove(&id)),
                _ => {}
            }
        }
    }
}

/// A new connection has room, so its handler runs immediately. That is where the client learns its
/// id and joins.
fn welcome(port: &Port<Peer>, stream: TcpStream) {
    let outbox = Outbox::new(Mutex::new(b"welcome\n".to_vec()));
    let (line, has_joined, has_ended) = (Vec::new(), false, false);
    let client = Peer::Client(Client { stream, line, outbox, has_joined, has_ended });
    let _ = port.register(Registration::owned(client, Interest::OUT, OneShot::Level));
}

impl Client {
    /// Reads lines, and writes the lines that others have put into the outbox. Returns the interest
    /// to rearm with, or `None` if the connection has ended.
    fn talk(&mut self, id: Id, port: &Port<Peer>, room: &Room) -> io::Result<Option<Interest>> {
        if !self.has_joined {
            lock(room).insert(id, Arc::clone(&self.outbox));
            self.has_joined = true;
        }
        if !self.has_ended {
            self.has_ended = receive(&mut self.stream, &mut self.line)? == Found::End;
            let ends = self.line.iter().rposition(|byte| *byte == b'\n');
            let rest = self.line.split_off(ends.map_or(0, |end| end + 1));
            let lines = std::mem::replace(&mut self.line, rest);
            if self.line.len() > LONGEST_LINE {
                return Ok(None);
            }
            broadcast(&lines, id, port, room);
        }
        if self.has_ended {
            lock(room).remove(&id);
        }

        let mut outbox = lock(&self.outbox);
        send(&mut self.stream, &mut outbox)?;
        let mut next = Interest::NONE;
        if !self.has_ended {
            next |= Interest::IN;
        }
        // If a line is added after this check, its `enable_also` adds OUT to the interest that this
        // handler rearms with.
        if !outbox.is_empty() {
            next |= Interest::OUT;
        }
        Ok((next != Interest::NONE).then_some(next))
    }
}

fn broadcast(lines: &[u8], from: Id, port: &Port<Peer>, room: &Room) {
    if lines.is_empty() {
        return;
    }
    for (id, outbox) in lock(room).iter().filter(|(id, _)| **id != from) {
        let mut outbox = lock(outbox);
        if outbox.len() > HIGH_WATER {
            let _ = port.remove(*id);
        } else {
            outbox.extend_from_slice(lines);
            // Refused if the client is just leaving.
            let _ = port.enable_also(*id, Interest::OUT);
        }
    }
}
