//! Idle time-outs: a client that sends nothing for a second is told so, and its connection ends.
//!
//! `cargo run --example idle 127.0.0.1:7003`, and SIGTERM or Ctrl-C to end it.
//!
//! A handler only notes when it heard from its client. One more thread looks at the notes, and removes what
//! has been idle: the last packet brings the key, whatever thread takes it.

mod common;

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use common::{Found, accept, listen, receive, send};
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
}

/// When something was last heard from each client.
type Heard = Mutex<HashMap<Id, Instant>>;

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
    let (port, heard) = (Port::new()?, Heard::default());
    let listener = Peer::Listener(listen()?);
    port.register(Registration::owned(listener, Interest::IN, OneShot::Level))?;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| serve(&port, &heard));
        }
        // The other end hangs up when this block is left, which ends the thread.
        let (_end, ends) = mpsc::channel();
        scope.spawn(|| sweep(&port, &heard, ends));
        signals.forever().next();
        port.shutdown()
    })?;
    Ok(())
}

fn sweep(port: &Port<Peer>, heard: &Heard, ends: Receiver<()>) {
    while ends.recv_timeout(IDLE / 4) == Err(RecvTimeoutError::Timeout) {
        let now = Instant::now();
        lock(heard).retain(|id, last| {
            let is_idle = now.duration_since(*last) > IDLE;
            // Refused if the connection has just ended by itself.
            is_idle.then(|| port.remove(*id));
            !is_idle
        });
    }
}

fn serve(port: &Port<Peer>, heard: &Heard) {
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
                            Ok(Interest::IN)
                        }
                        Peer::Client(client) => client.echo(id, heard),
                    };
                    match next {
                        Ok(interest) => drop(ready.rearm_as(interest, OneShot::Level)),
                        Err(_) => drop(lock(heard).remove(&id)),
                    }
                }
                Packet::Removed(id, Peer::Client(mut client)) => {
                    lock(heard).remove(&id);
                    // As far as there is room for it.
                    let _ = send(&mut client.stream, &mut b"idle\n".to_vec());
                }
                _ => {}
            }
        }
    }
}

/// A new connection has room, so its handler is called at once, and notes that.
fn welcome(port: &Port<Peer>, stream: TcpStream) {
    let client = Peer::Client(Client { stream, unsent: Vec::new() });
    let _ = port.register(Registration::owned(client, Interest::OUT, OneShot::Level));
}

impl Client {
    /// Sends back what comes. A client that does not read is idle, too: nothing is read of it meanwhile.
    fn echo(&mut self, id: Id, heard: &Heard) -> io::Result<Interest> {
        send(&mut self.stream, &mut self.unsent)?;
        if self.unsent.is_empty() {
            lock(heard).insert(id, Instant::now());
            if receive(&mut self.stream, &mut self.unsent)? == Found::End {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            send(&mut self.stream, &mut self.unsent)?;
        }
        Ok(if self.unsent.is_empty() { Interest::IN } else { Interest::OUT })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
