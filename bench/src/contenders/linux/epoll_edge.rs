//! One edge-triggered `epoll` set for each thread.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::dealer::{Dealer, Given, Take};
use super::edge::{Edge, Unfinished};
use super::nonblocking::{Handler, Next, Peer};
use super::threads;
use super::{Contender, Server};
use crate::sink::Service;

/// Events taken by a wait at most.
const EVENTS: usize = 64;

/// Everything, once and for all: no further call is made for the entry.
const ALL: EventFlags =
    EventFlags::IN.union(EventFlags::OUT).union(EventFlags::RDHUP).union(EventFlags::ET);

/// For a listener, and for a socket for datagrams, which would otherwise report writability after
/// each one.
const INPUT: EventFlags = EventFlags::IN.union(EventFlags::ET);

/// The stream ends, or has failed.
const END: EventFlags = EventFlags::RDHUP.union(EventFlags::HUP).union(EventFlags::ERR);

pub(crate) fn contender() -> Contender {
    Contender {
        name: "epoll_edge",
        about: "an edge-triggered epoll set per thread, connections dealt round robin",
        version: super::of_kernel,
        start,
    }
}

fn start(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    let mut sets = Vec::with_capacity(threads);
    for _ in 0..threads {
        let set = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
        sets.push(Set(Arc::clone(&set)));
        threads::spawn("epoll_edge", move || serve(&set, service))?;
    }
    Ok(Box::new(Dealer::new(sets)))
}

struct Set(Arc<OwnedFd>);

impl Take for Set {
    fn take(&self, given: Given) -> io::Result<()> {
        add(&self.0, given.peer()?)
    }
}

/// Puts a socket into a set.
fn add(set: &OwnedFd, peer: Peer) -> io::Result<()> {
    let wanted = if matches!(peer, Peer::Connection(_)) { ALL } else { INPUT };
    let edge = Box::new(Edge::of(peer));
    let number = edge.peer().as_fd().as_raw_fd();
    let pointer = Box::into_raw(edge);
    // SAFETY: the descriptor must stay open for as long as it is borrowed.
    // - open: until the call has looked it up, no thread gets an event of the socket, so none
    //   closes it; afterwards it is no longer used.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    epoll::add(set, socket, EventData::new_ptr(pointer.cast()), wanted).map_err(|error| {
        // SAFETY: the pointer must come from a box that nobody else uses or will free.
        // - from a box: created above;
        // - nobody else: the set has refused it, so its thread gets no event of it.
        drop(unsafe { Box::from_raw(pointer) });
        error.into()
    })
}

fn serve(set: &OwnedFd, service: Service) -> io::Result<()> {
    const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut handler: Handler = Handler::new(service);
    let mut events = Vec::<Event>::with_capacity(EVENTS);
    let mut unfinished = Unfinished::<*mut Edge>::new();
    loop {
        let before = unfinished.len();
        let timeout = (before > 0).then_some(&AT_ONCE);
        match epoll::wait(set, rustix::buffer::spare_capacity(&mut events), timeout) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let (flags, pointer) = (event.flags, event.data.ptr().cast::<Edge>());
            // SAFETY: the pointer must be valid, and the socket used by nobody else meanwhile.
            // - valid: `add` has given the set no other than those of boxes, and one is freed by
            //   `finish` only, together with its entry; a wait returns an entry once;
            // - nobody else: this is the only thread that waits for the set.
            let edge = unsafe { &mut *pointer };
            let next = edge.told(&mut handler, flags.intersects(END))?;
            finish(pointer, next, &mut unfinished);
            for stream in handler.accepted.drain(..) {
                add(set, Peer::of(stream))?;
            }
        }
        for _ in 0..before {
            let Some(pointer) = unfinished.pop_front() else { break };
            // SAFETY: the pointer must be valid, and the socket used by nobody else meanwhile.
            // - valid: `finish` has put it here instead of freeing it, and is called for it again
            //   only below: an edge that comes meanwhile does not have it served;
            // - nobody else: this is the only thread that has the list and waits for the set.
            let edge = unsafe { &mut *pointer };
            let next = edge.turn(&mut handler)?;
            finish(pointer, next, &mut unfinished);
            for stream in handler.accepted.drain(..) {
                add(set, Peer::of(stream))?;
            }
        }
    }
}

/// Frees a finished socket, and remembers one with more data.
fn finish(pointer: *mut Edge, next: Option<Next>, unfinished: &mut Unfinished<*mut Edge>) {
    match next {
        Some(Next::Input | Next::Room) => {}
        Some(Next::Turn) => unfinished.push_back(pointer),
        // SAFETY: the pointer must come from a box that nobody else uses or will free.
        // - from a box: `add` has given the set no other;
        // - nobody else: it was just served, so it is not in the list; closing the only descriptor
        //   of the socket removes the entry from the set, so this thread gets no event of it again.
        None => drop(unsafe { Box::from_raw(pointer) }),
    }
}
