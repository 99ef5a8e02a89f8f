//! `mio`: one `Poll` for each thread.

use std::io::{self, ErrorKind};
use std::net::TcpStream;
use std::time::Duration;

use ::mio::{Events, Interest, Poll, Registry, Token, Waker};
use slab::Slab;

use super::edge::{Edge, Unfinished};
use super::nonblocking::{Connection, Handler, Next};
use super::threads::{self, Dealer, Inbox, Take};
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
    fn take(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        self.inbox.put(stream);
        self.waker.wake()
    }
}

type Connections = Slab<Edge<::mio::net::TcpStream>>;

fn serve(mut poll: Poll, inbox: &Inbox, service: Service) -> io::Result<()> {
    let mut connections = Connections::new();
    let mut handler = Handler::new(service);
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
            let next = edge.told(&mut handler, event.is_read_closed() || event.is_error());
            finish(number, next, &mut connections, &mut unfinished);
        }
        for _ in 0..before {
            let Some(number) = unfinished.pop_front() else { break };
            let next = connections[number].turn(&mut handler);
            finish(number, next, &mut connections, &mut unfinished);
        }
    }
}

/// Frees a connection that is over, and remembers one that has more to be read.
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
    for stream in inbox.take_all() {
        let mut stream = ::mio::net::TcpStream::from_std(stream);
        let entry = connections.vacant_entry();
        let token = Token(entry.key());
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        entry.insert(Edge::of(Connection::of(stream)));
    }
    Ok(())
}
