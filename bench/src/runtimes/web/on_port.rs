//! The server by hand on the bare port: one port and one listener for all threads.

use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use completion_port::{Batch, Interest, OneShot, Packet, Port, Ready, Registration};

use super::by_hand::{Connection, Desk, Next};
use crate::contenders::nonblocking::{Standard, accept};
use crate::contenders::{Listening, Server, threads};
use crate::sink::Service;

enum Peer {
    Listener(TcpListener),
    Connection(Connection),
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Peer::Listener(listener) => listener.as_fd(),
            Peer::Connection(connection) => connection.as_fd(),
        }
    }
}

struct OnPort(Arc<Port<Peer>>);

/// With that many threads, and the port's usual settings.
pub(super) fn start(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    if service != Service::Echo {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let port = Arc::new(Port::new()?);
    for _ in 0..threads {
        let port = Arc::clone(&port);
        threads::spawn("port", move || serve(&port))?;
    }
    Ok(Box::new(OnPort(port)))
}

impl Server for OnPort {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        register(&self.0, Peer::Connection(Connection::of(stream)))
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        register(&self.0, Peer::Listener(at.listener()?))
    }

    fn answer(&self, _: UdpSocket) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn wakes(&self) -> Option<u64> {
        Some(self.0.stats().wakes)
    }
}

fn register(port: &Port<Peer>, peer: Peer) -> io::Result<()> {
    port.register(Registration::owned(peer, Interest::IN, OneShot::Level))?;
    Ok(())
}

fn serve(port: &Port<Peer>) -> io::Result<()> {
    let (mut batch, mut desk, mut accepted) = (Batch::new(), Desk::new(), Vec::new());
    loop {
        for packet in port.wait(&mut batch, None)? {
            let Packet::Ready(mut ready) = packet else { continue };
            match ready.key_mut() {
                Peer::Listener(listener) => {
                    accept::<Standard>(listener, &mut accepted)?;
                    ready.rearm()?;
                }
                Peer::Connection(connection) => {
                    let next = connection.serve(&mut desk);
                    arm(ready, next)?;
                }
            }
            for stream in accepted.drain(..) {
                register(port, Peer::Connection(Connection::of(stream)))?;
            }
        }
    }
}

fn arm(mut ready: Ready<'_, Peer>, next: Option<Next>) -> io::Result<()> {
    match next {
        Some(Next::Input) => {
            ready.read_drained();
            ready.rearm_as(Interest::IN, OneShot::Level)?;
        }
        Some(Next::Room) => {
            ready.write_full();
            ready.rearm_as(Interest::OUT, OneShot::Level)?;
        }
        None => drop(ready), // deregisters the socket and closes it
    }
    Ok(())
}
