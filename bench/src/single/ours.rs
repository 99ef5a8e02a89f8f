//! The port, in the ways one can use it for this.

use std::io;
use std::net::TcpStream;

use completion_port::{Batch, Interest, OneShot, Packet, Persistent, Port, Refused, Registration};

use super::Taker;
use super::pairs::{Driver, receive};
use crate::work::BUFFER;

/// One-shot level registrations, each armed again right after its message was received. The keys
/// are the connections themselves.
struct Owned {
    port: Port<TcpStream>,
    batch: Batch,
    /// Whether it is said that nothing is left to read.
    hints: bool,
}

/// The same with numbers for keys.
struct Plain {
    port: Port<usize>,
    batch: Batch,
    streams: Vec<TcpStream>,
}

/// Persistent edge-triggered registrations: nothing is ever armed.
struct Edge {
    port: Port<usize>,
    batch: Batch,
    streams: Vec<TcpStream>,
}

pub(super) fn failed<K>(refused: Refused<K>) -> io::Error {
    refused.error().into()
}

fn build_owned(
    port: Port<TcpStream>,
    receivers: Vec<TcpStream>,
    hints: bool,
) -> io::Result<Box<dyn Taker>> {
    for stream in receivers {
        let registration = Registration::owned(stream, Interest::IN, OneShot::Level);
        port.register(registration).map_err(failed)?;
    }
    Ok(Box::new(Owned { port, batch: Batch::new(), hints }))
}

pub(super) fn owned(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    build_owned(Port::new()?, receivers, true)
}

/// The same as [`owned`], on a port that measures how long its packets are queued.
pub(super) fn measured(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    build_owned(Port::builder().queue_delays(true).build()?, receivers, true)
}

pub(super) fn without_hint(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    build_owned(Port::new()?, receivers, false)
}

pub(super) fn plain(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    let port = Port::new()?;
    for (number, stream) in receivers.iter().enumerate() {
        let registration = Registration::new(stream, number, Interest::IN, OneShot::Level);
        port.register(registration).map_err(failed)?;
    }
    Ok(Box::new(Plain { port, batch: Batch::new(), streams: receivers }))
}

pub(super) fn persistent(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    let port = Port::new()?;
    for (number, stream) in receivers.iter().enumerate() {
        let registration = Registration::new(stream, number, Interest::IN, Persistent::Edge);
        port.register(registration).map_err(failed)?;
    }
    Ok(Box::new(Edge { port, batch: Batch::new(), streams: receivers }))
}

impl Taker for Owned {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        let mut buffer = [0; BUFFER];
        driver.each(|| {
            let mut taken = 0;
            for packet in self.port.wait(&mut self.batch, None)? {
                let Packet::Ready(mut ready) = packet else { continue };
                taken += receive(ready.key(), &mut buffer)?;
                if self.hints {
                    ready.read_drained();
                }
                ready.rearm().map_err(failed)?;
            }
            Ok(taken)
        })
    }
}

impl Taker for Plain {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        let mut buffer = [0; BUFFER];
        driver.each(|| {
            let mut taken = 0;
            for packet in self.port.wait(&mut self.batch, None)? {
                let Packet::Ready(mut ready) = packet else { continue };
                taken += receive(&self.streams[*ready.key()], &mut buffer)?;
                ready.read_drained();
                ready.rearm().map_err(failed)?;
            }
            Ok(taken)
        })
    }
}

impl Taker for Edge {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        let mut buffer = [0; BUFFER];
        driver.each(|| {
            let mut taken = 0;
            for packet in self.port.wait(&mut self.batch, None)? {
                let Packet::Notified(notified) = packet else { continue };
                taken += receive(&self.streams[*notified.key()], &mut buffer)?;
            }
            Ok(taken)
        })
    }
}
