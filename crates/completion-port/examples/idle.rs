//! Idle time-outs: the server writes `idle` to a client that sends nothing for a second, and ends its connection.
//!
//! `cargo run --example idle 127.0.0.1:7003`, and SIGTERM or Ctrl-C to end it.
//!
//! A handler only notes when it heard from its client. For each client a message comes when its time may be over:
//! the handler of that looks at the note, and removes the connection or posts the message for later. The last
//! packet brings the key, whatever thread takes it.

mod common;

use std::error::Error;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{Found, accept, listen, lock, receive, send};
use completion_port::{Batch, Id, Interest, OneShot, Packet, Port, Registration};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

const IDLE: Duration = Duration::from_secs(1);

enum Peer {
    Listener(TcpListener),
    Client(Client),
}

struct Client {
    stream: TcpStream,
    unsent: Vec<u8>,
    heard: Arc<Heard>,
}

/// When something was last heard from a client.
struct Heard(Mutex<Instant>);

/// The message that looks after a client.
struct Watch {
    id: Id,
    heard: Arc<Heard>,
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Listener(listener) => listener.as_fd(),
            Self::Client(client) => client.stream.as_fd(),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let port = Port::builder().build()?;
    let listener = Peer::Listener(listen()?);
    port.register(Registration::owned(listener, Interest::IN, OneShot::Level))?;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| serve(&port));
        }
        signals.forever().next();
        port.shutdown()
    })?;
    Ok(())
}

fn serve(port: &Port<Peer, Watch>) {
    let mut batch = Batch::new();
    while let Ok(packets) = port.wait(&mut batch, None) {
        for packet in packets {
            match packet {
                Packet::Ready(mut ready) => {
                    let next = match ready.key_mut() {
                        Peer::Listener(listener) => {
                            if let Some(stream) = accept(listener) {
                                welcome(port, stream);
                            }
                            Ok(Interest::IN)
                        }
                        Peer::Client(client) => client.echo(),
                    };
                    // After an error the token is dropped, which closes the connection.
                    if let Ok(interest) = next {
                        drop(ready.rearm_as(interest, OneShot::Level));
                    }
                }
                Packet::Posted(watch) => look(port, watch),
                // At the shutdown those come as well that are not idle: they are closed without a word.
                Packet::Removed(_, Peer::Client(mut client)) if client.heard.is_long_ago() => {
                    // As far as there is room for it.
                    let _ = send(&mut client.stream, &mut b"idle\n".to_vec());
                }
                _ => {}
            }
        }
    }
}

fn welcome(port: &Port<Peer, Watch>, stream: TcpStream) {
    let heard = Arc::new(Heard::now());
    let client = Peer::Client(Client { stream, unsent: Vec::new(), heard: Arc::clone(&heard) });
    if let Ok(id) = port.register(Registration::owned(client, Interest::IN, OneShot::Level)) {
        // Refused if the server is ending.
        let _ = port.post_at(IDLE, Watch { id, heard });
    }
}

/// The time of a client may be over.
fn look(port: &Port<Peer, Watch>, watch: Watch) {
    if Arc::strong_count(&watch.heard) == 1 {
        // The connection has ended by itself.
        return;
    }
    if watch.heard.is_long_ago() {
        // Refused if it ends just now.
        let _ = port.remove(watch.id);
    } else {
        let _ = port.post_at(watch.heard.last() + IDLE, watch);
    }
}

impl Heard {
    fn now() -> Self {
        Self(Mutex::new(Instant::now()))
    }

    fn note(&self) {
        *lock(&self.0) = Instant::now();
    }

    fn last(&self) -> Instant {
        *lock(&self.0)
    }

    fn is_long_ago(&self) -> bool {
        self.last() + IDLE <= Instant::now()
    }
}

impl Client {
    /// Sends back what comes. A client that does not read is idle, too: nothing is read of it meanwhile.
    fn echo(&mut self) -> io::Result<Interest> {
        send(&mut self.stream, &mut self.unsent)?;
        if self.unsent.is_empty() {
            self.heard.note();
            if receive(&mut self.stream, &mut self.unsent)? == Found::End {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            send(&mut self.stream, &mut self.unsent)?;
        }
        Ok(if self.unsent.is_empty() { Interest::IN } else { Interest::OUT })
    }
}
