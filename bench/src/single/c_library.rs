//! The port through the C library: one-shot level registrations, armed again by the call that waits.

use std::io;
use std::net::TcpStream;

use super::Taker;
use super::pairs::{Driver, receive};
use crate::c_library::{Change, IN, Packet, Port, Socket};
use crate::work::BUFFER;

struct Library {
    port: Port,
    sockets: Vec<Socket>,
    /// What the next call enables.
    changes: Vec<Change>,
    packets: Vec<Packet>,
}

pub(super) fn build(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    let sockets: Vec<_> = receivers.into_iter().map(Socket::of).collect();
    let changes =
        sockets.iter().enumerate().map(|(number, socket)| socket.enable(number, IN)).collect();
    Ok(Box::new(Library { port: Port::new()?, sockets, changes, packets: vec![Packet::NONE; 64] }))
}

impl Taker for Library {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        let mut buffer = [0; BUFFER];
        driver.each(|| {
            let count = self.port.process(&mut self.changes, &mut self.packets)?;
            self.changes.clear();
            let mut taken = 0;
            for packet in &self.packets[..count] {
                let socket = &self.sockets[packet.key];
                taken += receive(socket, &mut buffer)?;
                self.changes.push(socket.enable(packet.key, IN));
            }
            Ok(taken)
        })
    }
}
