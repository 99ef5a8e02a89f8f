//! An echo server with back-pressure: it reads only a limited amount from a client that does not
//! read.
//!
//! `cargo run --example echo 127.0.0.1:7000`. SIGTERM or Ctrl-C ends it.

mod common;

use std::error::Error;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::thread;

use common::{Found, accept, asked_to_end, listen, receive, send};
use completion_port::{
    Batch, BorrowedSource, Interest, OneShot, Packet, Port, Registration, Source,
};

/// Nothing more is read from a client with this many unsent bytes.
const HIGH_WATER: usize = 64 * 1024;

enum Peer {
    Listener(TcpListener),
    Client(Client),
}

struct Client {
    stream: TcpStream,
    unsent: Vec<u8>,
    /// The client sends nothing more. It may still read.
    has_ended: bool,
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
            let next = match ready.key_mut() {
                Peer::Listener(listener) => {
                    if let Some(stream) = accept(listener) {
                        let client = Client { stream, unsent: Vec::new(), has_ended: false };
                        let client = Peer::Client(client);
                        // A refused client is closed.
                        drop(port.register(Registration::owned(
                            client,
                            Interest::IN,
                            OneShot::Level,
                        )));
                    }
                    Some(Interest::IN)
                }
                // An error affects only this client.
                Peer::Client(client) => client.echo().ok().flatten(),
            };
            if let Some(interest) = next {
                let _ = ready.rearm_as(interest, OneShot::Level);
            }
        }
    }
}

impl Client {
    /// Sends back what the client sent. Returns the interest to rearm with, or `None` if the
    /// connection has ended.
    fn echo(&mut self) -> io::Result<Option<Interest>> {
        // Bounded, so that a client that sends constantly does not occupy this thread.
        for _ in 0..16 {
            if self.has_ended || self.unsent.len() >= HIGH_WATER {
                break;
            }
            match receive(&mut self.stream, &mut self.unsent)? {
                Found::Bytes => {}
                Found::Nothing => break,
                Found::End => self.has_ended = true,
            }
        }
        send(&mut self.stream, &mut self.unsent)?;

        let mut next = Interest::NONE;
        if !self.has_ended && self.unsent.len() < HIGH_WATER {
            next |= Interest::IN;
        }
        if !self.unsent.is_empty() {
            next |= Interest::OUT;
        }
        Ok((next != Interest::NONE).then_some(next))
    }
}
