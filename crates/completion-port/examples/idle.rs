//! Idle time-outs: the server writes `idle` to a client that sends nothing for a second, and ends its connection.
//!
//! `cargo run --example idle 127.0.0.1:7003`, and SIGTERM or Ctrl-C to end it.
//!
//! Each connection is armed until its deadline. If nothing has come by then, its handler is called all the same, and has
//! the connection as with any other packet. Most deadlines are moved long before they are reached: that costs a
//! store, and no thread is woken by it.

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
    /// When something was last heard from it.
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
            // At the shutdown each key comes back, and is dropped here: that closes its socket.
            let Packet::Ready(mut ready) = packet else { continue };
            // What came at the last moment counts.
            let is_idle = ready.events() == Events::TIMED_OUT;
            match ready.key_mut() {
                Peer::Listener(listener) => {
                    if let Some(stream) = accept(listener) {
                        welcome(port, stream);
                    }
                    let _ = ready.rearm();
                }
                Peer::Client(client) if is_idle => {
                    // As far as there is room for it. Then the token is dropped, which closes the connection.
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
    // Nothing is asked for yet: a registration that is asked at once would have no deadline before its first packet.
    if let Ok(token) = port.associate(Peer::Client(client)) {
        go_on(token, Interest::IN);
    }
}

/// The client has its time from when it was last heard.
fn go_on(token: Ready<'_, Peer>, interest: Interest) {
    let Peer::Client(client) = token.key() else { return };
    let over = client.heard + IDLE;
    // Refused if the server ends.
    let _ = token.rearm_as_until(interest, OneShot::Level, over);
}

impl Client {
    /// Sends back what comes. A client that does not read is idle, too: nothing is read of it meanwhile.
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
