//! The completion port through the C library, as a server in C is written: the key is a pointer to the
//! connection, which is armed by its descriptor right after each handler.

use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use super::nonblocking::{Connection, Handler, Next};
use super::{Contender, Server, threads};
use crate::c_library::{IN, OUT, Packet, Port, Socket};
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

struct OursInC(Arc<Port>);

impl Server for OursInC {
    fn add(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let connection = Box::new(Connection::of(Socket::of(stream)));
        arm(&self.0, Box::into_raw(connection), IN)
    }
}

/// Hands a connection over to the port.
fn arm(port: &Port, connection: *mut Connection<Socket>, filter: u16) -> io::Result<()> {
    // SAFETY: making a reference from a raw pointer demands that it is valid and that nobody writes.
    // - the caller has the connection, until it is armed: the change is made before.
    let change = unsafe { &*connection }.stream().enable(connection.expose_provenance(), filter);
    port.apply(&mut [change])
}

fn serve(port: &Port, service: Service) -> io::Result<()> {
    let mut packets = [Packet::NONE; BATCH];
    let mut handler = Handler::new(service);
    loop {
        let count = port.process(&mut [], &mut packets)?;
        for packet in &packets[..count] {
            let connection: *mut Connection<Socket> =
                std::ptr::with_exposed_provenance_mut(packet.key);
            // SAFETY: making a reference from a raw pointer demands that it is valid and that nobody
            // else uses the place.
            // - valid: it is dropped below only, and no packet of it follows then;
            // - nobody else: its registration is one-shot, and this is its packet.
            let served = unsafe { &mut *connection }.serve(&mut handler, false);
            match served {
                // What the reads have shown the library has seen itself.
                Some(Next::Input | Next::Turn) => arm(port, connection, IN)?,
                Some(Next::Room) => arm(port, connection, OUT)?,
                // SAFETY: `from_raw` demands what `into_raw` gave, once.
                // - closing the socket ends its registration, so that nobody else gets it.
                None => drop(unsafe { Box::from_raw(connection) }),
            }
        }
    }
}
