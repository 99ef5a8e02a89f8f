//! A file server with sockets and files on one port. Reading data that isn't cached blocks no
//! thread.
//!
//! `cargo run --example file_server 127.0.0.1:7000 DIRECTORY`. SIGTERM or Ctrl-C ends it. A client
//! requests a file of that directory as in HTTP/1.0, `GET /name`, and gets one answer.
//!
//! Each client has one operation at a time: its request is received, then part after part of the
//! file is read and sent. So a client that does not read occupies the memory of one part, and has a
//! deadline.

#[path = "common/operations.rs"]
mod common;

use std::error::Error;
use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use common::{asked_to_end, stream_of};
use completion_port::{
    Batch, BorrowedSource, FileSource, Operation, Outcome, OwnedSource, Packet, Port, Result,
    SharedCompleted, SharedId, Source,
};

const ACCEPTS: usize = 16;
/// How much of a file is read and sent at a time.
const PART: usize = 64 * 1024;
/// The longest request.
const REQUEST: usize = 4 * 1024;
/// How long a client may take to send its request, and to receive a part.
const PATIENCE: Duration = Duration::from_secs(30);

/// Each packet brings a clone.
#[derive(Clone)]
enum Peer {
    Listener(Arc<TcpListener>),
    Client(Arc<Client>),
    /// The file that the client with this id has requested.
    File(FileSource<Arc<File>>, SharedId, Arc<Client>),
}

struct Client {
    stream: TcpStream,
    state: Mutex<State>,
}

/// The state of a client. Only one of its operations is in flight, so no thread waits for the lock.
#[derive(Default)]
struct State {
    request: Vec<u8>,
    /// The file, the offset of its next part, and its length.
    file: Option<(SharedId, u64, u64)>,
}

impl Client {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.as_source(),
            Self::Client(client) => client.stream.as_source(),
            Self::File(file, ..) => file.as_source(),
        }
    }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let end = asked_to_end()?;
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let directory = PathBuf::from(arguments.next().unwrap_or_else(|| ".".to_owned()));

    let port = Port::new()?;
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    let listener = port.associate_shared(Peer::Listener(Arc::new(listener)))?;
    for _ in 0..ACCEPTS {
        port.start(listener, Operation::accept())?;
    }
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| serve(&port, &directory));
        }
        let _ = end.recv();
        port.shutdown()
    })?;
    Ok(())
}

fn serve(port: &Port<Peer>, directory: &Path) {
    let mut batch = Batch::new();
    while let Ok(packets) = port.wait(&mut batch, None) {
        for packet in packets {
            // A removal returns a key, and dropping that closes it.
            if let Packet::SharedCompleted(finished) = packet {
                go_on(port, directory, finished);
            }
        }
    }
}

/// Continues after an operation.
fn go_on(port: &Port<Peer>, directory: &Path, finished: SharedCompleted<'_, Peer>) {
    let id = finished.id();
    match finished.into_parts() {
        (Peer::Listener(_), Outcome::Accepted(Ok((socket, _)))) => {
            let _ = port.start(id, Operation::accept());
            let _ = welcome(port, socket);
        }
        (Peer::Client(client), outcome) => {
            let goes_on = answer(port, directory, id, &client, outcome).unwrap_or(false);
            if !goes_on {
                end(port, id, &client);
            }
        }
        (Peer::File(_, asker, client), outcome) => {
            let is_sent = match outcome {
                Outcome::Read(Ok(count @ 1..), part) => {
                    if let Some((_, offset, _)) = &mut client.state().file {
                        *offset += count as u64;
                    }
                    send(port, asker, part).is_ok()
                }
                // The file has become shorter, or reading it failed.
                _ => false,
            };
            if !is_sent {
                end(port, asker, &client);
            }
        }
        _ => {}
    }
}

fn welcome(port: &Port<Peer>, socket: OwnedSource) -> Result<()> {
    let stream = stream_of(socket);
    let client = Client { stream, state: Mutex::default() };
    let id = port.associate_shared(Peer::Client(Arc::new(client)))?;
    receive(port, id)
}

fn receive(port: &Port<Peer>, client: SharedId) -> Result<()> {
    let room = Vec::with_capacity(REQUEST);
    port.start(client, Operation::recv(room).deadline(PATIENCE))?;
    Ok(())
}

fn send(port: &Port<Peer>, client: SharedId, bytes: Vec<u8>) -> Result<()> {
    port.start(client, Operation::send_all(bytes).deadline(PATIENCE))?;
    Ok(())
}

/// Continues after a client's request or answer. Returns false if there is nothing more to do for
/// it.
fn answer(
    port: &Port<Peer>,
    directory: &Path,
    id: SharedId,
    client: &Arc<Client>,
    outcome: Outcome,
) -> Result<bool> {
    let mut state = client.state();
    match outcome {
        Outcome::Received(Ok(1..), bytes) => {
            state.request.extend_from_slice(&bytes);
            if state.request.len() < REQUEST && !state.request.ends_with(b"\r\n\r\n") {
                return receive(port, id).map(|()| true);
            }
            let file = open(directory, &state.request);
            let header = match &file {
                Some((_, length)) => {
                    format!("HTTP/1.0 200 OK\r\nContent-Length: {length}\r\n\r\n")
                }
                None => "HTTP/1.0 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_owned(),
            };
            if let Some((file, length)) = file {
                let key = Peer::File(FileSource::new(Arc::new(file)), id, Arc::clone(client));
                let file = port.associate_shared(key)?;
                state.file = Some((file, 0, length));
            }
            send(port, id, header.into_bytes()).map(|()| true)
        }
        Outcome::Sent(Ok(_), mut buffer) => match state.file {
            Some((file, offset, end)) if offset < end => {
                // The next part reuses the buffer of the previous one.
                buffer.clear();
                buffer.reserve(PART);
                port.start(file, Operation::read_at(buffer, offset))?;
                Ok(true)
            }
            _ => Ok(false),
        },
        // The end of the stream, a reset, or a timeout.
        _ => Ok(false),
    }
}

/// Closes a client and its file once their operations in flight have ended.
fn end(port: &Port<Peer>, id: SharedId, client: &Client) {
    if let Some((file, ..)) = client.state().file.take() {
        let _ = port.remove(file.id());
    }
    let _ = port.remove(id.id());
}

/// Opens the requested file and returns it with its length. Rejects names in other directories.
fn open(directory: &Path, request: &[u8]) -> Option<(File, u64)> {
    let line = std::str::from_utf8(request).ok()?.lines().next()?;
    let name = line.strip_prefix("GET /")?.split(' ').next()?;
    if name.is_empty() || name == ".." || name.contains(['/', '\\', '\0']) {
        return None;
    }
    let file = File::open(directory.join(name)).ok()?;
    let metadata = file.metadata().ok()?;
    metadata.is_file().then_some((file, metadata.len()))
}
