//! An echo server that uses operations: the port accepts, receives and sends, and a packet brings
//! each result.
//!
//! `cargo run --example echo_operations 127.0.0.1:7000 30`. SIGTERM or Ctrl-C ends it. The second
//! argument is the time in seconds that a client may take to send something, and to take an answer.
//! The default is 30.
//!
//! Each connection has one operation at a time: it receives, or sends back what it received. So a
//! client that does not read is not read from either. It has one buffer, which moves from operation
//! to operation.

#[path = "common/operations.rs"]
mod common;

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use common::{asked_to_end, stream_of};
use completion_port::{
    Batch, BorrowedSource, Operation, Outcome, OwnedSource, Packet, Port, Ready, Source,
};

/// The number of connections that can be accepted before a thread has handled the first of them.
const ACCEPTS: usize = 16;
const BUFFER: usize = 16 * 1024;
/// The time that all clients together have to read the last answers.
const GRACE: Duration = Duration::from_secs(2);

/// Each packet of the listener brings a clone.
#[derive(Clone)]
enum Peer {
    Listener(Arc<TcpListener>),
    Client(Arc<TcpStream>),
}

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.as_source(),
            Self::Client(stream) => stream.as_source(),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let end = asked_to_end()?;
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let idle = Duration::from_secs(arguments.next().map_or(Ok(30), |seconds| seconds.parse())?);

    let port = Port::new()?;
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    let listener = port.associate_shared(Peer::Listener(Arc::new(listener)))?;
    for _ in 0..ACCEPTS {
        port.start(listener, Operation::accept())?;
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| serve(&port, idle));
        }
        let _ = end.recv();
        // What was received is sent back, unless a client does not read. All other operations are
        // cancelled, and their packets return keys and buffers. Then the waits end.
        port.shutdown_gracefully(GRACE)
    })?;
    Ok(())
}

fn serve(port: &Port<Peer>, idle: Duration) {
    let mut batch = Batch::new();
    while let Ok(packets) = port.wait(&mut batch, None) {
        for packet in packets {
            match packet {
                Packet::SharedCompleted(accept) => {
                    let listener = accept.id();
                    // An accept fails if the server ends, or if the listener itself fails. The port
                    // does not report problems of one connection, or transient ones.
                    let (_, Outcome::Accepted(Ok((socket, _)))) = accept.into_parts() else {
                        continue;
                    };
                    // Replace the accept.
                    let _ = port.start(listener, Operation::accept());
                    // A refused client is closed.
                    let _ = welcome(port, socket, idle);
                }
                Packet::Completed(done) => {
                    let (token, outcome) = done.into_parts();
                    go_on(token, outcome, idle);
                }
                _ => {}
            }
        }
    }
}

fn welcome(port: &Port<Peer>, socket: OwnedSource, idle: Duration) -> Result<(), Box<dyn Error>> {
    let stream = stream_of(socket);
    // A short answer does not wait for the acknowledgement of the previous one.
    stream.set_nodelay(true)?;
    let token = port.associate(Peer::Client(Arc::new(stream)))?;
    token.start(Operation::recv(Vec::with_capacity(BUFFER)).deadline(idle))?;
    Ok(())
}

/// Starts the operation that follows a client's last one.
fn go_on(token: Ready<'_, Peer>, outcome: Outcome, idle: Duration) {
    let next = match outcome {
        Outcome::Received(Ok(1..), bytes) => Operation::send_all(bytes),
        Outcome::Sent(Ok(_), buffer) => Operation::recv(buffer),
        // The end of the stream, a reset, a timeout, or the end of the server: dropping the token
        // closes the connection.
        _ => return,
    };
    // Refused if the time of the server is over.
    let _ = token.start(next.deadline(idle));
}
