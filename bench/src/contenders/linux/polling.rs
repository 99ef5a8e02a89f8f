//! `polling`: one `Poller` for all threads, one-shot, as documented.
//!
//! Only one thread can wait at a time; a second call of `Poller::wait` returns immediately with
//! nothing. So the threads take turns with a lock, which is released before the events are handled.

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::num::NonZero;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use ::polling::{Event, Events, Poller};

use super::Listening;
use super::nonblocking::{Handler, Next, Peer};
use super::{Contender, Server, threads, version};
use crate::sink::Service;

/// Events taken by a wait at most.
const EVENTS: NonZero<usize> = NonZero::new(64).expect("more than none");

pub(crate) fn contender() -> Contender {
    Contender {
        name: "polling",
        about: "polling: one Poller for all threads, which take turns to wait; one-shot",
        version: || version::of_crate!("polling").to_owned(),
        start,
    }
}

fn start(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    let shared = Arc::new(Shared { poller: Poller::new()?, turn: Mutex::new(()) });
    for _ in 0..threads {
        let shared = Arc::clone(&shared);
        threads::spawn("polling", move || serve(&shared, service))?;
    }
    Ok(Box::new(Polling(shared)))
}

struct Shared {
    poller: Poller,
    /// Held by the thread that waits.
    turn: Mutex<()>,
}

struct Polling(Arc<Shared>);

impl Server for Polling {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        add(&self.0.poller, Peer::of(stream))
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        add(&self.0.poller, Peer::Listener(at.listener()?))
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        add(&self.0.poller, Peer::Datagrams(socket))
    }
}

fn add(poller: &Poller, peer: Peer) -> io::Result<()> {
    let peer = Box::new(peer);
    let number = peer.as_fd().as_raw_fd();
    let pointer = Box::into_raw(peer);
    let event = Event::readable(pointer.expose_provenance());
    // SAFETY: the source must be deleted before it is dropped.
    // - deleted: `serve` does so before it frees the box.
    let added = unsafe { poller.add(number, event) };
    added.inspect_err(|_| {
        // SAFETY: the pointer must come from a box that nobody else uses or will free.
        // - from a box: created above;
        // - nobody else: the poller has refused it, so no thread gets its events.
        drop(unsafe { Box::from_raw(pointer) });
    })
}

fn serve(shared: &Shared, service: Service) -> io::Result<()> {
    let mut handler: Handler = Handler::new(service);
    let mut events = Events::with_capacity(EVENTS);
    loop {
        events.clear();
        {
            let _turn = shared.turn.lock().unwrap_or_else(PoisonError::into_inner);
            shared.poller.wait(&mut events, None)?;
        }
        for event in events.iter() {
            let pointer = std::ptr::with_exposed_provenance_mut::<Peer>(event.key);
            // SAFETY: the pointer must come from a box that nobody else uses or will free.
            // - from a box: the poller was given no other keys, and their pointers were exposed;
            // - nobody else: the poller reports a one-shot source to one thread, and to no other
            //   until that thread arms it.
            let mut peer = unsafe { Box::from_raw(pointer) };
            match peer.serve(&mut handler, false)? {
                None => shared.poller.delete(peer.as_fd())?,
                Some(next) => arm(&shared.poller, peer, next)?,
            }
            for stream in handler.accepted.drain(..) {
                add(&shared.poller, Peer::of(stream))?;
            }
        }
    }
}

/// Arms a socket. From then on it belongs to the thread that gets its event.
fn arm(poller: &Poller, peer: Box<Peer>, next: Next) -> io::Result<()> {
    let number = peer.as_fd().as_raw_fd();
    let key = Box::into_raw(peer).expose_provenance();
    let event = match next {
        Next::Input | Next::Turn => Event::readable(key),
        Next::Room => Event::writable(key),
    };
    // SAFETY: the descriptor must stay open for as long as it is borrowed.
    // - open: until the call has looked it up, no thread gets an event of the socket, so none
    //   closes it; afterwards it is no longer used.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    poller.modify(socket, event)
}
