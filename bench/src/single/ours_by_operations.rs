//! The port with deadlines and with operations, which `ours` is without.

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use completion_port::{Batch, Interest, OneShot, Outcome, Packet, Port, Registration};

use super::Taker;
use super::ours::failed;
use super::pairs::{Driver, receive};
use crate::work::{BUFFER, MESSAGE};

/// A separate type of key: inlining for the key of `ours` must not depend on this code.
struct Connection(TcpStream);

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// One-shot level registrations, each armed until a deadline, which the next message moves.
struct Idle {
    port: Port<Connection>,
    batch: Batch,
}

/// A receive is in flight for each connection.
struct Receiving {
    port: Port<Connection>,
    batch: Batch,
}

/// When a connection would have been idle for too long.
const IDLE: Duration = Duration::from_secs(60);

pub(super) fn with_deadlines(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    let port = Port::new()?;
    for stream in receivers {
        let registration = Registration::owned(Connection(stream), Interest::IN, OneShot::Level);
        port.register(registration).map_err(failed)?;
    }
    Ok(Box::new(Idle { port, batch: Batch::new() }))
}

pub(super) fn by_operations(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    let port = Port::new()?;
    for stream in receivers {
        let token = port.associate(Connection(stream)).map_err(failed)?;
        token.recv(Vec::with_capacity(BUFFER)).map_err(failed)?;
    }
    Ok(Box::new(Receiving { port, batch: Batch::new() }))
}

impl Taker for Idle {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        let mut buffer = [0; BUFFER];
        driver.each(|| {
            let mut taken = 0;
            for packet in self.port.wait(&mut self.batch, None)? {
                let Packet::Ready(mut ready) = packet else { continue };
                taken += receive(&ready.key().0, &mut buffer)?;
                ready.read_drained();
                ready.rearm_until(IDLE).map_err(failed)?;
            }
            Ok(taken)
        })
    }
}

impl Taker for Receiving {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        driver.each(|| {
            let mut taken = 0;
            for packet in self.port.wait(&mut self.batch, None)? {
                let Packet::Completed(done) = packet else { continue };
                let (token, outcome) = done.into_parts();
                let Outcome::Received(received, buffer) = outcome else { continue };
                if received? != MESSAGE {
                    return Err(io::Error::other("another length was received than was sent"));
                }
                taken += 1;
                token.recv(buffer).map_err(failed)?;
            }
            Ok(taken)
        })
    }
}
