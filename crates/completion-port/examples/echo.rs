//! An echo server with back-pressure: of a client that does not read, only so much is read.
//!
//! `cargo run --example echo 127.0.0.1:7000`, and SIGTERM or Ctrl-C to end it.

mod common;

use std::error::Error;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::thread;

use common::{Found, accept, asked_to_end, listen, receive, send};
use completion_port::{
    Batch, BorrowedSource, Interest, OneShot, Packet, Port, Registration, Source,
};

/// While so many bytes wait to be sent to a client, nothing more is read of it.
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
            // At the shutdown each key comes back, and is dropped here: that closes its socket.
            let Packet::Ready(mut ready) = packet else { continue };
            let next = match ready.key_mut() {
                Peer::Listener(listener) => {
                    if let Some(stream) = accept(listener) {
                        let client = Client { stream, unsent: Vec::new(), has_ended: false };
                        let client = Peer::Client(client);
                        // A client that is refused is closed.
                        drop(port.register(Registration::owned(
                            client,
                            Interest::IN,
                            OneShot::Level,
                        )));
                    }
                    Some(Interest::IN)
                }
                // An error concerns this client only.
                Peer::Client(client) => client.echo().ok().flatten(),
            };
            if let Some(interest) = next {
                let _ = ready.rearm_as(interest, OneShot::Level);
            }
        }
    }
}

impl Client {
    /// Sends back what comes. Returns what to wait for, or nothing if the connection is over.
    fn echo(&mut self) -> io::Result<Option<Interest>> {
        // Not without end, or a client that sends all the time would keep this thread.
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
