//! The server by hand on raw epoll: each thread has its own set and its own listener
//! (`SO_REUSEPORT`), and shares nothing with the others.

use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use slab::Slab;

use super::by_hand::{Connection, Desk, Next};
use crate::contenders::nonblocking::{Standard, accept};
use crate::contenders::{Listening, Server, threads};
use crate::sink::Service;

/// Events taken by a wait at most.
const EVENTS: usize = 64;
/// The number of the listener; those of connections begin at 0.
const LISTENER: u64 = u64::MAX;

struct OnEpoll {
    threads: usize,
}

pub(super) fn start(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    match service {
        Service::Echo => Ok(Box::new(OnEpoll { threads })),
        Service::Sink(_) => Err(io::ErrorKind::Unsupported.into()),
    }
}

impl Server for OnEpoll {
    fn add(&self, _: TcpStream) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        (0..self.threads).try_for_each(|_| {
            let listener = at.listener()?;
            threads::spawn("epoll", move || serve(&listener))
        })
    }

    fn answer(&self, _: UdpSocket) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

fn serve(listener: &TcpListener) -> io::Result<()> {
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    epoll::add(&set, listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
    let mut connections = Slab::new();
    let (mut events, mut desk) = (Vec::<Event>::with_capacity(EVENTS), Desk::new());
    let mut accepted = Vec::new();
    loop {
        match epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        for event in events.drain(..) {
            let number = event.data.u64();
            if number == LISTENER {
                accept::<Standard>(listener, &mut accepted)?;
                for stream in accepted.drain(..) {
                    add(&set, &mut connections, stream)?;
                }
                continue;
            }
            let index = usize::try_from(number).map_err(io::Error::other)?;
            let (connection, waits_for) = &mut connections[index];
            match Connection::serve(connection, &mut desk) {
                Some(next) if next == *waits_for => {}
                Some(next) => {
                    *waits_for = next;
                    let flags = match next {
                        Next::Input => EventFlags::IN,
                        Next::Room => EventFlags::OUT,
                    };
                    epoll::modify(&set, &*connection, EventData::new_u64(number), flags)?;
                }
                // Closing the only descriptor of the socket removes it from the set. A wait returns
                // a socket once, so no other event of it is left.
                None => drop(connections.remove(index)),
            }
        }
    }
}

fn add(
    set: &OwnedFd,
    connections: &mut Slab<(Connection, Next)>,
    stream: TcpStream,
) -> io::Result<()> {
    let entry = connections.vacant_entry();
    let connection = Connection::of(stream);
    let number = EventData::new_u64(entry.key() as u64);
    epoll::add(set, &connection, number, EventFlags::IN)?;
    entry.insert((connection, Next::Input));
    Ok(())
}
