//! The completion port through the C library, as a server in C is written: the key is a pointer to the
//! socket, which is armed by its descriptor right after each handler.

use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use super::Listening;
use super::nonblocking::{Family, Handler, Next};
use super::{Contender, Server, nonblocking, threads};
use crate::c_library::{Address, IN, OUT, Packet, Port, Socket, enable};
use crate::sink::Service;

/// Packets taken by a wait at most.
const BATCH: usize = 64;

pub(crate) fn contender() -> Contender {
    Contender {
        name: "ours_in_c",
        about: "libcompletion_port, used as ours is",
        version: || format!("completion-port-capi {}", env!("CARGO_PKG_VERSION")),
        start,
    }
}

fn start(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    let port = Arc::new(Port::new()?);
    for _ in 0..threads {
        let port = Arc::clone(&port);
        threads::spawn("ours_in_c", move || serve(&port, service))?;
    }
    Ok(Box::new(OursInC(port)))
}

/// All sockets are those of the library.
enum Library {}

impl Family for Library {
    type Stream = Socket;
    type Listener = Socket;
    type Datagrams = Socket;
    type Address = Address;

    fn accept(listener: &Socket) -> io::Result<Socket> {
        listener.accept()
    }

    fn receive(socket: &Socket, buffer: &mut [u8]) -> io::Result<(usize, Address)> {
        socket.receive_from(buffer)
    }

    fn send(socket: &Socket, bytes: &[u8], to: &Address) -> io::Result<usize> {
        socket.send_to(bytes, to)
    }
}

type Peer = nonblocking::Peer<Library>;

struct OursInC(Arc<Port>);

impl Server for OursInC {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        add(&self.0, Peer::of(Socket::of(stream)))
    }

    fn listen(&self, at: &Listening) -> io::Result<()> {
        add(&self.0, Peer::Listener(Socket::of(at.listener()?)))
    }

    fn answer(&self, socket: UdpSocket) -> io::Result<()> {
        add(&self.0, Peer::Datagrams(Socket::of(socket)))
    }
}

fn add(port: &Port, peer: Peer) -> io::Result<()> {
    arm(port, Box::into_raw(Box::new(peer)), IN)
}

/// Hands a socket over to the port.
fn arm(port: &Port, peer: *mut Peer, filter: u16) -> io::Result<()> {
    // SAFETY: making a reference from a raw pointer demands that it is valid and that nobody writes.
    // - the caller has the socket, until it is armed: the number is read before.
    let number = unsafe { &*peer }.as_fd().as_raw_fd();
    port.apply(&mut [enable(number, peer.expose_provenance(), filter)])
}

fn serve(port: &Port, service: Service) -> io::Result<()> {
    let mut packets = [Packet::NONE; BATCH];
    let mut handler = Handler::<Library>::new(service);
    loop {
        let count = port.process(&mut [], &mut packets)?;
        for packet in &packets[..count] {
            let peer: *mut Peer = std::ptr::with_exposed_provenance_mut(packet.key);
            // SAFETY: making a reference from a raw pointer demands that it is valid and that nobody
            // else uses the place.
            // - valid: it is dropped below only, and no packet of it follows then;
            // - nobody else: its registration is one-shot, and this is its packet.
            let served = unsafe { &mut *peer }.serve(&mut handler, false);
            match served? {
                // What the reads have shown the library has seen itself.
                Some(Next::Input | Next::Turn) => arm(port, peer, IN)?,
                Some(Next::Room) => arm(port, peer, OUT)?,
                // SAFETY: `from_raw` demands what `into_raw` gave, once.
                // - closing the socket ends its registration, so that nobody else gets it.
                None => drop(unsafe { Box::from_raw(peer) }),
            }
            for stream in handler.accepted.drain(..) {
                add(port, Peer::of(stream))?;
            }
        }
    }
}
