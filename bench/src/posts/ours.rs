//! The port.

use std::io;
use std::sync::Arc;

use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};

use super::{BATCH, Message, Queue, Take};
use crate::system::{self, Paired};

struct Ours {
    port: Port<Paired, Message>,
    /// The other end of the socket that is registered.
    _peer: Option<Paired>,
}

struct Taker<'p> {
    port: &'p Port<Paired, Message>,
    batch: Batch,
}

/// A port with nothing but messages.
pub(super) fn alone() -> io::Result<Arc<dyn Queue>> {
    Ok(Arc::new(Ours { port: Port::builder().build()?, _peer: None }))
}

/// A port with a socket, of which nothing is ever to be reported: waits also ask the kernel.
pub(super) fn with_socket() -> io::Result<Arc<dyn Queue>> {
    let port = Port::builder().build()?;
    let (near, far) = system::pair()?;
    let registration = Registration::owned(near, Interest::IN, OneShot::Level);
    port.register(registration).map_err(|refused| io::Error::from(refused.error()))?;
    Ok(Arc::new(Ours { port, _peer: Some(far) }))
}

impl Queue for Ours {
    fn post(&self, message: Message) -> io::Result<()> {
        self.port.post(message).map_err(|refused| refused.error().into())
    }

    fn taker(&self) -> io::Result<Box<dyn Take + '_>> {
        Ok(Box::new(Taker { port: &self.port, batch: Batch::with_capacity(BATCH) }))
    }

    fn follow(&self, messages: usize) -> io::Result<()> {
        let mut batch = Batch::with_capacity(BATCH);
        let mut left = messages;
        self.post(0)?;
        while left > 0 {
            for packet in self.port.wait(&mut batch, None)? {
                let Packet::Posted(message) = packet else { continue };
                left -= 1;
                if left > 0 {
                    let next = self.port.post_after(message + 1);
                    next.map_err(|refused| refused.error())?;
                }
            }
        }
        Ok(())
    }

    fn wakes(&self) -> Option<u64> {
        Some(self.port.stats().wakes)
    }
}

impl Take for Taker<'_> {
    fn take(&mut self, into: &mut Vec<Message>) -> io::Result<()> {
        for packet in self.port.wait(&mut self.batch, None)? {
            if let Packet::Posted(message) = packet {
                into.push(message);
            }
        }
        Ok(())
    }
}
