//! `crossbeam-channel`, without a bound.

use std::io;
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, unbounded};

use super::{BATCH, Message, Queue, Take};

struct Channel {
    sender: Sender<Message>,
    receiver: Receiver<Message>,
}

pub(super) fn build() -> io::Result<Arc<dyn Queue>> {
    let (sender, receiver) = unbounded();
    Ok(Arc::new(Channel { sender, receiver }))
}

impl Queue for Channel {
    fn post(&self, message: Message) -> io::Result<()> {
        self.sender.send(message).map_err(io::Error::other)
    }

    fn taker(&self) -> io::Result<Box<dyn Take + '_>> {
        Ok(Box::new(&self.receiver))
    }
}

impl Take for &Receiver<Message> {
    fn take(&mut self, into: &mut Vec<Message>) -> io::Result<()> {
        into.push(self.recv().map_err(io::Error::other)?);
        into.extend(self.try_iter().take(BATCH - 1));
        Ok(())
    }
}
