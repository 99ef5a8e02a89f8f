//! Graceful shutdown: on SIGTERM the server accepts no new connections, answers what it has
//! received, says good-bye, and ends after two seconds at the latest.
//!
//! `cargo run --example graceful 127.0.0.1:7004`. SIGTERM or Ctrl-C ends it. It answers each line
//! with the line in capitals.

mod common;

use std::error::Error;
use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use common::{Found, accept, asked_to_end, listen, receive, send};
use completion_port::{
    Batch, BorrowedSource, Interest, OneShot, Packet, Port, Registration, Source,
};

/// The time that all clients together have to read the last answers.
const GRACE: Duration = Duration::from_secs(2);
const HIGH_WATER: usize = 64 * 1024;

enum Peer {
    Listener(TcpListener),
    Client(Client),
}

struct Client {
    stream: TcpStream,
    unsent: Vec<u8>,
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
    let (port, deadline) = (Port::new()?, OnceLock::new());
    let listener = Peer::Listener(listen()?);
    port.register(Registration::owned(listener, Interest::IN, OneShot::Level))?;
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| serve(&port, &deadline));
        }
        let _ = end.recv();
        let _ = deadline.set(Instant::now() + GRACE);
        // Each key is returned in a last packet, immediately or when its handler rearms it. Then
        // the waits end.
        port.shutdown()
    })?;
    println!("ended");
    Ok(())
}

fn serve(port: &Port<Peer>, deadline: &OnceLock<Instant>) {
    let mut batch = Batch::new();
    while let Ok(packets) = port.wait(&mut batch, None) {
        for packet in packets {
            match packet {
                Packet::Ready(mut ready) => {
                    let next = match ready.key_mut() {
                        Peer::Listener(listener) => {
                            if let Some(stream) = accept(listener) {
                                let (unsent, has_ended) = (Vec::new(), false);
                                let client = Peer::Client(Client { stream, unsent, has_ended });
                                let client =
                                    Registration::owned(client, Interest::IN, OneShot::Level);
                                let _ = port.register(client);
                            }
                            Some(Interest::IN)
                        }
                        Peer::Client(client) => client.answer().ok().flatten(),
                    };
                    if let Some(interest) = next {
                        let _ = ready.rearm_as(interest, OneShot::Level);
                    }
                }
                Packet::Removed(_, Peer::Client(client)) => {
                    let deadline = deadline.get().copied().unwrap_or_else(Instant::now);
                    // This may sleep, but the other clients need not wait for it.
                    let _ = port.blocking(|| client.finish(deadline));
                }
                // The listener. Dropping it closes it.
                _ => {}
            }
        }
    }
}

impl Client {
    /// Returns the interest to rearm with, or `None` if the connection has ended.
    fn answer(&mut self) -> io::Result<Option<Interest>> {
        if self.unsent.len() < HIGH_WATER && !self.has_ended {
            self.read()?;
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

    /// Reads the available data and prepares the answer. Returns true if there may be more.
    fn read(&mut self) -> io::Result<bool> {
        let before = self.unsent.len();
        let found = receive(&mut self.stream, &mut self.unsent)?;
        self.unsent[before..].make_ascii_uppercase();
        self.has_ended |= found == Found::End;
        Ok(found == Found::Bytes)
    }

    /// Answers the received data and says good-bye.
    fn finish(mut self, deadline: Instant) -> io::Result<()> {
        while self.unsent.len() < HIGH_WATER && self.read()? {}
        self.unsent.extend_from_slice(b"bye\n");
        // Send as much as fits now, even if the time is up because other clients did not read.
        send(&mut self.stream, &mut self.unsent)?;
        self.stream.set_nonblocking(false)?;
        let mut unsent = self.unsent.as_slice();
        while !unsent.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.set_write_timeout(Some(left))?;
            let sent = self.stream.write(unsent)?;
            unsent = &unsent[sent..];
        }
        self.stream.shutdown(Shutdown::Write)
    }
}
