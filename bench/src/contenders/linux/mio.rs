//! `mio`: one `Poll` for each thread.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use ::mio::event::Source;
use ::mio::{Events, Interest, Poll, Registry, Token, Waker};
use slab::Slab;

use super::dealer::{Dealer, Given, Inbox, Take};
use super::edge::{Edge, Unfinished};
use super::nonblocking::{Family, Handler, Next, Peer};
use super::threads;
use super::{Contender, Server, version};
use crate::sink::Service;

/// Events taken by a wait at most.
const EVENTS: usize = 64;

/// What the waker is known by; the numbers of connections begin with zero.
const WOKEN: Token = Token(usize::MAX);

pub(crate) fn contender() -> Contender {
    Contender {
        name: "mio",
        about: "mio: a Poll per thread, connections dealt round robin",
        version: || version::of_crate!("mio").to_owned(),
        start,
    }
}

fn start(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    let mut takers = Vec::with_capacity(threads);
    for _ in 0..threads {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WOKEN)?;
        let inbox = Inbox::default();
        takers.push(Wakeable { inbox: inbox.clone(), waker });
        threads::spawn("mio", move || serve(poll, &inbox, service))?;
    }
    Ok(Box::new(Dealer::new(takers)))
}

struct Wakeable {
    inbox: Inbox,
    waker: Waker,
}

impl Take for Wakeable {
    fn take(&self, given: Given) -> io::Result<()> {
        self.inbox.put(given);
        self.waker.wake()
    }
}

/// All sockets are those of the crate.
enum Crate {}

impl Family for Crate {
    type Stream = ::mio::net::TcpStream;
    type Listener = ::mio::net::TcpListener;
    type Datagrams = ::mio::net::UdpSocket;
    type Address = SocketAddr;

    fn accept(listener: &Self::Listener) -> io::Result<Self::Stream> {
        listener.accept().map(|(stream, _)| stream)
    }

    fn receive(socket: &Self::Datagrams, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        socket.recv_from(buffer)
    }

    fn send(socket: &Self::Datagrams, bytes: &[u8], to: &SocketAddr) -> io::Result<usize> {
        socket.send_to(bytes, *to)
    }
}

type Connections = Slab<Edge<Crate>>;

fn serve(mut poll: Poll, inbox: &Inbox, service: Service) -> io::Result<()> {
    let mut connections = Connections::new();
    let mut handler = Handler::<Crate>::new(service);
    let mut events = Events::with_capacity(EVENTS);
    let mut unfinished = Unfinished::<usize>::new();
    loop {
        let before = unfinished.len();
        match poll.poll(&mut events, (before > 0).then_some(Duration::ZERO)) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            if event.token() == WOKEN {
                take_over(inbox, poll.registry(), &mut connections)?;
                continue;
            }
            let Token(number) = event.token();
            let Some(edge) = connections.get_mut(number) else { continue };
            // mio's events are edges; those of Linux allow to stop at a short read.
            let next = edge.told(&mut handler, event.is_read_closed() || event.is_error())?;
            finish(number, next, &mut connections, &mut unfinished);
            add_accepted(&mut handler, poll.registry(), &mut connections)?;
        }
        for _ in 0..before {
            let Some(number) = unfinished.pop_front() else { break };
            let next = connections[number].turn(&mut handler)?;
            finish(number, next, &mut connections, &mut unfinished);
            add_accepted(&mut handler, poll.registry(), &mut connections)?;
        }
    }
}

/// Frees a finished connection, and remembers one with more data.
fn finish(
    number: usize,
    next: Option<Next>,
    connections: &mut Connections,
    unfinished: &mut Unfinished<usize>,
) {
    match next {
        Some(Next::Input | Next::Room) => {}
        Some(Next::Turn) => unfinished.push_back(number),
        None => drop(connections.remove(number)), // closes the socket, which ends its registration
    }
}

fn take_over(inbox: &Inbox, registry: &Registry, connections: &mut Connections) -> io::Result<()> {
    const INPUT: Interest = Interest::READABLE;
    for given in inbox.take_all() {
        match given {
            Given::Stream(stream) => {
                stream.set_nonblocking(true)?;
                add_stream(::mio::net::TcpStream::from_std(stream), registry, connections)?;
            }
            Given::Listener(listener) => {
                let listener = ::mio::net::TcpListener::from_std(listener);
                add(listener, INPUT, Peer::Listener, registry, connections)?;
            }
            Given::Datagrams(socket) => {
                let socket = ::mio::net::UdpSocket::from_std(socket);
                add(socket, INPUT, Peer::Datagrams, registry, connections)?;
            }
        }
    }
    Ok(())
}

fn add_accepted(
    handler: &mut Handler<Crate>,
    registry: &Registry,
    connections: &mut Connections,
) -> io::Result<()> {
    handler.accepted.drain(..).try_for_each(|stream| add_stream(stream, registry, connections))
}

fn add_stream(
    stream: ::mio::net::TcpStream,
    registry: &Registry,
    connections: &mut Connections,
) -> io::Result<()> {
    let both = Interest::READABLE | Interest::WRITABLE;
    add(stream, both, Peer::of, registry, connections)
}

fn add<S: Source>(
    mut socket: S,
    wanted: Interest,
    peer: fn(S) -> Peer<Crate>,
    registry: &Registry,
    connections: &mut Connections,
) -> io::Result<()> {
    let entry = connections.vacant_entry();
    registry.register(&mut socket, Token(entry.key()), wanted)?;
    entry.insert(Edge::of(peer(socket)));
    Ok(())
}
