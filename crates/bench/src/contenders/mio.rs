//! `mio`: one `Poll` for each thread.

use std::io::{self, ErrorKind};
use std::net::TcpStream;

use ::mio::{Events, Interest, Poll, Registry, Token, Waker};
use slab::Slab;

use super::nonblocking::{Connection, buffer};
use super::threads::{self, Dealer, Inbox, Take};
use super::{Contender, Server, version};

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

fn start(threads: usize) -> io::Result<Box<dyn Server>> {
    let mut takers = Vec::with_capacity(threads);
    for _ in 0..threads {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WOKEN)?;
        let inbox = Inbox::default();
        takers.push(Wakeable { inbox: inbox.clone(), waker });
        threads::spawn("mio", move || serve(poll, &inbox))?;
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

type Connections = Slab<Connection<::mio::net::TcpStream>>;

fn serve(mut poll: Poll, inbox: &Inbox) -> io::Result<()> {
    let mut connections = Connections::new();
    let mut buffer = buffer();
    let mut events = Events::with_capacity(EVENTS);
    loop {
        match poll.poll(&mut events, None) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            if event.token() == WOKEN {
                take_over(inbox, poll.registry(), &mut connections)?;
                continue;
            }
            let Token(number) = event.token();
            let Some(connection) = connections.get_mut(number) else { continue };
            // mio's events are edges; those of Linux allow to stop at a short read.
            if connection.serve(&mut buffer, event.is_read_closed() || event.is_error()).is_none() {
                connections.remove(number); // closes the socket, which ends its registration
            }
        }
    }
}

fn take_over(inbox: &Inbox, registry: &Registry, connections: &mut Connections) -> io::Result<()> {
    for stream in inbox.take_all() {
        let mut stream = ::mio::net::TcpStream::from_std(stream);
        let entry = connections.vacant_entry();
        let token = Token(entry.key());
        registry.register(&mut stream, token, Interest::READABLE | Interest::WRITABLE)?;
        entry.insert(Connection::of(stream));
    }
    Ok(())
}
