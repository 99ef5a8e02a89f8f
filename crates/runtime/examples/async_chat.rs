//! A chat: every line that a client sends goes to all others, with the sender's number.
//!
//! `cargo run -p completion-port-runtime --example async_chat 127.0.0.1:7000`, and then some
//! `nc 127.0.0.1 7000`. A client that reads too slowly is disconnected, so that it neither holds up
//! the others nor fills the memory.

use std::collections::{HashMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use completion_port_runtime::net::{TcpListener, TcpStream};
use completion_port_runtime::{signal, sleep, spawn};

/// How many lines may wait for one client.
const WAITING: usize = 64;

/// The longest line.
const LINE: usize = 16 * 1024;

/// The lines that wait for one client. Any channel for futures would do as well.
#[derive(Default)]
struct Queue(Mutex<QueueState>);

#[derive(Default)]
struct QueueState {
    lines: VecDeque<Arc<[u8]>>,
    is_closed: bool,
    waker: Option<Waker>,
}

impl Queue {
    fn change<T>(&self, act: impl FnOnce(&mut QueueState) -> T) -> T {
        let (result, waker) = {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (act(&mut state), state.waker.take())
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        result
    }

    /// Returns false if too many lines wait.
    fn push(&self, line: Arc<[u8]>) -> bool {
        self.change(|state| {
            let has_room = state.lines.len() < WAITING;
            if has_room {
                state.lines.push_back(line);
            }
            has_room
        })
    }

    fn close(&self) {
        self.change(|state| state.is_closed = true);
    }

    /// Returns the next line, or `None` after the last one.
    async fn next(&self) -> Option<Arc<[u8]>> {
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(line) = state.lines.pop_front() {
                return Poll::Ready(Some(line));
            }
            if state.is_closed {
                return Poll::Ready(None);
            }
            state.waker = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// The clients, by number. The lock of the standard library is fine: a task that waits for it holds
/// up no other.
#[derive(Default)]
struct Room(Mutex<HashMap<u64, Client>>);

struct Client {
    stream: Arc<TcpStream>,
    lines: Arc<Queue>,
}

impl Room {
    fn clients(&self) -> MutexGuard<'_, HashMap<u64, Client>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a line to all clients but one. A client that has too many to read is cut off.
    fn say(&self, from: u64, line: &[u8]) {
        let line: Arc<[u8]> = [format!("{from}: ").as_bytes(), line, b"\n"].concat().into();
        for (number, client) in &*self.clients() {
            if *number != from && !client.lines.push(Arc::clone(&line)) {
                // The task that reads from it finds the end, and removes the client.
                let _ = client.stream.shutdown(Shutdown::Both);
            }
        }
    }
}

/// Reads a client's lines until it leaves.
async fn listen(room: &Room, number: u64, stream: &TcpStream) -> io::Result<()> {
    let (mut buffer, mut unfinished) = (vec![0; LINE], Vec::new());
    loop {
        let read = stream.read(&mut buffer).await?;
        unfinished.extend_from_slice(&buffer[..read]);
        let mut begin = 0;
        while let Some(len) = unfinished[begin..].iter().position(|byte| *byte == b'\n') {
            room.say(number, &unfinished[begin..begin + len]);
            begin += len + 1;
        }
        unfinished.drain(..begin);
        if read == 0 || unfinished.len() > LINE {
            return Ok(());
        }
    }
}

/// Sends a client its lines, until it has left the room.
async fn tell(lines: Arc<Queue>, stream: Arc<TcpStream>) -> io::Result<()> {
    while let Some(line) = lines.next().await {
        stream.write_all(&line).await?;
    }
    Ok(())
}

/// Serves clients until the task is aborted.
pub(crate) async fn serve(listener: TcpListener) -> io::Result<()> {
    let room = Arc::new(Room::default());
    for number in 1.. {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Descriptors may be short for a while.
                sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        let stream = Arc::new(stream);
        let lines = Arc::<Queue>::default();
        let client = Client { stream: Arc::clone(&stream), lines: Arc::clone(&lines) };
        room.clients().insert(number, client);
        room.say(number, b"has come");
        drop(spawn(tell(Arc::clone(&lines), Arc::clone(&stream))));
        let room = Arc::clone(&room);
        drop(spawn(async move {
            // An error ends this client and no other.
            let _ = listen(&room, number, &stream).await;
            room.clients().remove(&number);
            lines.close();
            let _ = stream.shutdown(Shutdown::Both);
            room.say(number, b"has left");
        }));
    }
    Ok(())
}

#[completion_port_runtime::main]
#[allow(dead_code, reason = "the test calls `serve`")]
async fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let serving = spawn(serve(listener));
    signal::shutdown().await?;
    serving.abort();
    Ok(())
}
