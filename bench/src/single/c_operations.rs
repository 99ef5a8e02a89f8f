//! The port through the C library, with a receive in flight for each connection.

use std::io;
use std::net::TcpStream;
use std::ptr::with_exposed_provenance_mut;

use super::Taker;
use super::pairs::Driver;
use crate::c_library::{Overlapped, Packet, Port, Socket, Started};
use crate::work::{BUFFER, MESSAGE};

/// What belongs to a receive.
#[repr(C)]
struct Peer {
    /// The first field: its address is the peer's.
    overlapped: Overlapped,
    socket: Socket,
    buffer: [u8; BUFFER],
}

/// Peers are the library's while a receive is in flight, which is always but in `run`. They are never freed: the library
/// may have them until the port is closed, which is when the process ends.
struct Receiving {
    port: Port,
    packets: Vec<Packet>,
}

pub(super) fn build(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    let port = Port::new()?;
    for stream in receivers {
        let socket = Socket::of(stream);
        port.associate(&socket, true)?;
        let peer = Peer { overlapped: Overlapped::default(), socket, buffer: [0; BUFFER] };
        start(Box::into_raw(Box::new(peer)))?;
    }
    Ok(Box::new(Receiving { port, packets: vec![Packet::NONE; 64] }))
}

fn start(peer: *mut Peer) -> io::Result<()> {
    peer.expose_provenance();
    // SAFETY: a reference to a field demands that nothing else uses it meanwhile.
    // - no receive of this peer is in flight.
    let number = unsafe { &(*peer).socket }.number();
    // SAFETY: the address of a field demands that the pointer is to an object.
    // - it is that of a box which was given up.
    let place = unsafe { (&raw mut (*peer).buffer).cast() };
    // SAFETY: `start_receive` demands memory of that length and an OVERLAPPED, which nothing else uses until the packet.
    // - they are the peer's, which is used again when that was taken.
    match unsafe { Socket::start_receive(number, place, BUFFER, None, peer.cast()) } {
        Started::Failed => Err(io::Error::other("a receive was not started")),
        Started::Done(_) | Started::GoesOn => Ok(()),
    }
}

impl Taker for Receiving {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        driver.each(|| {
            let count = self.port.dequeue(&mut self.packets)?;
            for packet in &self.packets[..count] {
                if packet.transferred().map(|bytes| bytes as usize) != Some(MESSAGE) {
                    return Err(io::Error::other("another length was received than was sent"));
                }
                start(with_exposed_provenance_mut(packet.operation()))?;
            }
            Ok(count)
        })
    }
}
