//! One edge-triggered `epoll` set for each thread.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::nonblocking::{Connection, buffer};
use super::threads::{self, Dealer, Take};
use super::{Contender, Server, version};

/// Events taken by a wait at most.
const EVENTS: usize = 64;

/// Everything, once and for all: no further call is made for the entry.
const ALL: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// The stream ends, or has failed.
const END: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

pub(crate) fn contender() -> Contender {
    Contender {
        name: "epoll_edge",
        about: "an edge-triggered epoll set per thread, connections dealt round robin",
        version: version::of_kernel,
        start,
    }
}

fn start(threads: usize) -> io::Result<Box<dyn Server>> {
    let mut sets = Vec::with_capacity(threads);
    for _ in 0..threads {
        let set = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        sets.push(Set(Arc::clone(&set)));
        threads::spawn("epoll_edge", move || serve(&set))?;
    }
    Ok(Box::new(Dealer::new(sets)))
}

struct Set(Arc<OwnedFd>);

impl Take for Set {
    fn take(&self, stream: TcpStream) -> io::Result<()> {
        let connection = Box::new(Connection::new(stream)?);
        let number = connection.as_fd().as_raw_fd();
        let pointer = Box::into_raw(connection);
        // SAFETY: the descriptor must stay open for as long as it is borrowed.
        // - open: until the call has looked it up nobody is told of the connection, and so nobody
        //   closes it; afterwards it is used no more.
        let socket = unsafe { BorrowedFd::borrow_raw(number) };
        epoll::add(&self.0, socket, EventData::new_ptr(pointer.cast()), ALL).map_err(|error| {
            // SAFETY: the pointer must come from a box that nobody else uses or will free.
            // - from a box: made so above;
            // - nobody else: the set has refused it, so that its thread is not told of it.
            drop(unsafe { Box::from_raw(pointer) });
            error.into()
        })
    }
}

fn serve(set: &OwnedFd) -> io::Result<()> {
    let mut buffer = buffer();
    let mut events = Vec::<Event>::with_capacity(EVENTS);
    loop {
        match epoll::wait(set, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let (flags, pointer) = (event.flags, event.data.ptr().cast::<Connection>());
            // SAFETY: the pointer must be valid, and the connection used by nobody else meanwhile.
            // - valid: `take` has given the set no other than those of boxes, and one is freed only
            //   below, together with its entry; a wait returns an entry once;
            // - nobody else: this is the only thread that waits for the set.
            let connection = unsafe { &mut *pointer };
            if connection.serve(&mut buffer, flags.intersects(END)).is_none() {
                // SAFETY: the pointer must come from a box that nobody else uses or will free.
                // - from a box: `take` has given the set no other;
                // - nobody else: closing the only descriptor of the socket takes the entry out of
                //   the set, so that this thread is not told of it again.
                drop(unsafe { Box::from_raw(pointer) });
            }
        }
    }
}
