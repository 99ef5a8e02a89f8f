//! How connections are dealt to threads that do not share them.

use std::io::{self, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use super::nonblocking::Peer;
use super::threads::spawn;
use super::{Listening, Server};

/// What a thread is given to serve.
#[derive(Debug)]
pub(super) enum Given {
    /// A connection, in blocking mode.
    Stream(TcpStream),
    /// Its own non-blocking listener.
    Listener(TcpListener),
    /// A socket for datagrams, in non-blocking mode.
    Datagrams(UdpSocket),
}

impl Given {
    /// The socket, in non-blocking mode.
    pub(super) fn peer(self) -> io::Result<Peer> {
        match self {
            Given::Stream(stream) => {
                stream.set_nonblocking(true)?;
                Ok(Peer::of(stream))
            }
            Given::Listener(listener) => Ok(Peer::Listener(listener)),
            Given::Datagrams(socket) => Ok(Peer::Datagrams(socket)),
        }
    }
}

/// A thread that takes over sockets.
pub(super) trait Take: Send + Sync {
    /// Takes one over; called by any thread.
    fn take(&self, given: Given) -> io::Result<()>;
}

/// A server whose threads each have their own sockets, dealt round robin, or their own listener.
pub(super) struct Dealer<T> {
    takers: Vec<T>,
    next: AtomicUsize,
}

impl<T> Dealer<T> {
    /// Deals to these.
    pub(super) fn new(takers: Vec<T>) -> Self {
        Dealer { takers, next: AtomicUsize::new(0) }
    }
}

impl<T: Take> Dealer<T> {
    fn deal(&self, given: Given) -> io::Result<()> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed);
        self.takers[turn % self.takers.len()].take(given)
    }
}

impl<T: Take> Server for Dealer<T> {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        self.deal(Given::Stream(stream))
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        self.deal(Given::Datagrams(socket))
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        self.takers.iter().try_for_each(|taker| taker.take(Given::Listener(at.listener()?)))
    }
}

/// The sockets on their way to a thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Inbox(Arc<Mutex<Vec<Given>>>);

impl Inbox {
    /// Puts one in.
    pub(super) fn put(&self, given: Given) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(given);
    }

    /// Takes all that are available.
    pub(super) fn take_all(&self) -> Vec<Given> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An inbox with a bell, which wakes the thread that waits for bytes at the other end of `bell`.
struct Bell {
    inbox: Inbox,
    bell: UnixStream,
}

impl Take for Bell {
    fn take(&self, given: Given) -> io::Result<()> {
        self.inbox.put(given);
        (&self.bell).write_all(&[0])
    }
}

/// Starts a server of threads that each `build` an engine, which stays on its thread, and `serve`
/// with it the sockets that come into an inbox. A byte arrives on the stream after each.
///
/// Returns when all engines are built, or with the first error of those that are not.
pub(super) fn deal<E: 'static>(
    name: &'static str,
    threads: usize,
    build: impl Fn() -> io::Result<E> + Copy + Send + 'static,
    serve: impl Fn(E, Inbox, UnixStream) -> io::Result<()> + Copy + Send + 'static,
) -> io::Result<Box<dyn Server>> {
    let (built, results) = mpsc::channel();
    let mut takers = Vec::with_capacity(threads);
    for _ in 0..threads {
        let (bell, rung) = UnixStream::pair()?;
        let inbox = Inbox::default();
        takers.push(Bell { inbox: inbox.clone(), bell });
        let built = built.clone();
        spawn(name, move || {
            let (engine, result) = match build() {
                Ok(engine) => (Some(engine), Ok(())),
                Err(error) => (None, Err(error)),
            };
            // Nobody listens if another thread has failed already.
            let _ = built.send(result);
            drop(built);
            engine.map_or(Ok(()), |engine| serve(engine, inbox, rung))
        })?;
    }
    drop(built);
    results.iter().collect::<io::Result<()>>()?;
    Ok(Box::new(Dealer::new(takers)))
}
