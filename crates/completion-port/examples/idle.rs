//! Idle timeouts: the server writes `idle` to a client that sends nothing for a second, and closes
//! its connection.
//!
//! `cargo run --example idle 127.0.0.1:7003`. SIGTERM or Ctrl-C ends it.
//!
//! Each connection is armed with a deadline. If nothing has arrived by then, its handler runs
//! nevertheless, and has the connection as with any other packet. Most deadlines are moved long
//! before they pass. That costs one store and wakes no thread.

mod common;

use std::error::Error;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use common::{Found, accept, asked_to_end, listen, receive, send};
use completion_port::{
    Batch, BorrowedSource, Events, Interest, OneShot, Packet, Port, Ready, Registration, Source,
};

const IDLE: Duration = Duration::from_secs(1);

enum Peer {
    Listener(TcpListener),
    Client(Client),
}

struct Client {
    stream: TcpStream,
    unsent: Vec<u8>,
    /// When the client last sent something.
    heard: Instant,
}

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
    let port = Port::new()?;
    let listener = Peer::Listener(listen()?);
    port.register(Registration::owned(listener, Interest::IN, OneShot::Level))?;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| serve(&port));
        }
        let _ = end.recv();
        port.shutdown()
    })?;
    Ok(())
}

fn serve(port: &Port<Peer>) {
    let mut batch = Batch::new();
    while let Ok(packets) = port.wait(&mut batch, None) {
        for packet in packets {
            // A shutdown returns each key, and dropping it here closes its socket.
            let Packet::Ready(mut ready) = packet else { continue };
            // Data that arrived at the last moment counts.
            let is_idle = ready.events() == Events::TIMED_OUT;
            match ready.key_mut() {
                Peer::Listener(listener) => {
                    if let Some(stream) = accept(listener) {
                        welcome(port, stream);
                    }
                    let _ = ready.rearm();
                }
                Peer::Client(client) if is_idle => {
                    // As much as fits. Dropping the token then closes the connection.
                    let _ = send(&mut client.stream, &mut b"idle\n".to_vec());
                }
                Peer::Client(client) => {
                    if let Ok(interest) = client.echo() {
                        go_on(ready, interest);
                    }
                }
            }
        }
    }
}

fn welcome(port: &Port<Peer>, stream: TcpStream) {
    let client = Client { stream, unsent: Vec::new(), heard: Instant::now() };
    // Associate it without an interest: a registration that is enabled immediately would have no
    // deadline before its first packet.
    if let Ok(token) = port.associate(Peer::Client(client)) {
        go_on(token, Interest::IN);
    }
}

/// Arms the connection until the client has been idle for too long.
fn go_on(token: Ready<'_, Peer>, interest: Interest) {
    let Peer::Client(client) = token.key() else { return };
    let over = client.heard + IDLE;
    // Refused if the server is ending.
    let _ = token.rearm_as_until(interest, OneShot::Level, over);
}

impl Client {
    /// Sends back what the client sent. A client that does not read counts as idle too, since
    /// nothing is read from it meanwhile.
    fn echo(&mut self) -> io::Result<Interest> {
        send(&mut self.stream, &mut self.unsent)?;
        if self.unsent.is_empty() {
            self.heard = Instant::now();
            if receive(&mut self.stream, &mut self.unsent)? == Found::End {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            send(&mut self.stream, &mut self.unsent)?;
        }
        Ok(if self.unsent.is_empty() { Interest::IN } else { Interest::OUT })
    }
}
