//! The classic design for threads that share their connections: one `epoll` set, one-shot, each
//! connection armed again by `EPOLL_CTL_MOD`.

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use super::Listening;
use super::nonblocking::{Handler, Next, Peer};
use super::{Contender, Server, threads};
use crate::sink::Service;

/// Events taken by a wait at most.
const EVENTS: usize = 64;

pub(crate) fn contender() -> Contender {
    Contender {
        name: "epoll_one_shot",
        about: "one epoll set for all threads, EPOLLONESHOT, armed after each handler",
        version: super::of_kernel,
        start: |threads, service| start(threads, service, Arming::AfterEachHandler),
    }
}

/// The same, but a connection stays unarmed until the whole batch has been handled.
pub(crate) fn late_contender() -> Contender {
    Contender {
        name: "epoll_one_shot_late",
        about: "one epoll set for all threads, EPOLLONESHOT, armed after the batch",
        version: super::of_kernel,
        start: |threads, service| start(threads, service, Arming::AfterTheBatch),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Arming {
    AfterEachHandler,
    AfterTheBatch,
}

fn start(threads: usize, service: Service, arming: Arming) -> io::Result<Box<dyn Server>> {
    let set = Arc::new(epoll::create(CreateFlags::CLOEXEC)?);
    for _ in 0..threads {
        let set = Arc::clone(&set);
        threads::spawn("epoll_one_shot", move || serve(&set, service, arming))?;
    }
    Ok(Box::new(OneShot(set)))
}

struct OneShot(Arc<OwnedFd>);

impl Server for OneShot {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        add_stream(&self.0, stream)
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        add(&self.0, Peer::Listener(at.listener()?))
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        add(&self.0, Peer::Datagrams(socket))
    }
}

const INPUT: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);
const ROOM: EventFlags = EventFlags::OUT.union(EventFlags::ONESHOT);

fn serve(set: &OwnedFd, service: Service, arming: Arming) -> io::Result<()> {
    let mut turns = Turns::new(service, arming);
    loop {
        turns.take(set, None)?;
    }
}

/// The data of an entry without a peer: something else that a server watches.
pub(super) const NO_PEER: EventData = EventData::new_u64(0);

/// What a thread serves its peers with.
pub(super) struct Turns {
    handler: Handler,
    events: Vec<Event>,
    arming: Arming,
    late: Vec<(Box<Peer>, Next)>,
}

impl Turns {
    pub(super) fn new(service: Service, arming: Arming) -> Turns {
        let (handler, events) = (Handler::new(service), Vec::with_capacity(EVENTS));
        Turns { handler, events, arming, late: Vec::with_capacity(EVENTS) }
    }

    /// Polls the set once, with this timeout, and serves ready sockets. Returns whether [`NO_PEER`]
    /// was reported.
    pub(super) fn take(&mut self, set: &OwnedFd, at_most: Option<&Timespec>) -> io::Result<bool> {
        let Turns { handler, events, arming, late } = self;
        match epoll::wait(set, rustix::buffer::spare_capacity(events), at_most) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut besides = false;
        for event in events.drain(..) {
            let peer: *mut Peer = event.data.ptr().cast();
            if peer.is_null() {
                besides = true;
                continue;
            }
            // SAFETY: the pointer must come from a box that nobody else uses or will free.
            // - from a box: besides `NO_PEER`, which is null, the set has what `arm` has given it;
            // - nobody else: the set reports a one-shot entry to one thread, and to no other until
            //   that thread arms it.
            let mut peer = unsafe { Box::from_raw(peer) };
            match peer.serve(handler, false)? {
                None => drop(peer), // closes the socket, which takes it out of the set
                Some(next) if *arming == Arming::AfterEachHandler => modify(set, peer, next)?,
                Some(next) => late.push((peer, next)),
            }
            for stream in handler.accepted.drain(..) {
                add(set, Peer::of(stream))?;
            }
        }
        for (peer, next) in late.drain(..) {
            modify(set, peer, next)?;
        }
        Ok(besides)
    }
}

/// Adds a connection to the set.
pub(super) fn add_stream(set: &OwnedFd, stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    add(set, Peer::of(stream))
}

fn add(set: &OwnedFd, peer: Peer) -> io::Result<()> {
    arm(Box::new(peer), |socket, data| epoll::add(set, socket, data, INPUT))
}

fn modify(set: &OwnedFd, peer: Box<Peer>, next: Next) -> io::Result<()> {
    let flags = match next {
        Next::Input | Next::Turn => INPUT,
        Next::Room => ROOM,
    };
    arm(peer, |socket, data| epoll::modify(set, socket, data, flags))
}

/// Arms a socket by a call for its entry. From then on it belongs to the thread that gets its
/// event.
fn arm(
    peer: Box<Peer>,
    control: impl FnOnce(BorrowedFd<'_>, EventData) -> rustix::io::Result<()>,
) -> io::Result<()> {
    let number = peer.as_fd().as_raw_fd();
    let pointer = Box::into_raw(peer);
    // SAFETY: the descriptor must stay open for as long as it is borrowed.
    // - open: until the call has looked it up, no thread gets an event of the socket, so none
    //   closes it; afterwards it is no longer used.
    let socket = unsafe { BorrowedFd::borrow_raw(number) };
    control(socket, EventData::new_ptr(pointer.cast())).map_err(|error| {
        // SAFETY: the pointer must come from a box that nobody else uses or will free.
        // - from a box: created above;
        // - nobody else: the set has refused it, so no thread gets its events.
        drop(unsafe { Box::from_raw(pointer) });
        error.into()
    })
}
