//! `polling`.

use std::io;
use std::net::UdpSocket;

use ::polling::{Event, Poller};

use super::{Taken, in_use, timed};

pub(super) fn run(sockets: &[UdpSocket]) -> io::Result<Taken> {
    let before = in_use();
    let poller = Poller::new()?;
    let registration = timed(|| {
        for (number, socket) in sockets.iter().enumerate() {
            // SAFETY: the source must be taken out of the poller before it is closed.
            // - it is, below; should that fail, the poller is dropped before the sockets are.
            unsafe { poller.add(socket, Event::readable(number)) }?;
        }
        Ok(())
    })?;
    let bytes = in_use().saturating_sub(before);
    let removal = timed(|| {
        for socket in sockets {
            poller.delete(socket)?;
        }
        Ok(())
    })?;
    Ok(Taken { registration, removal, bytes })
}
