//! `mio`.

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use ::mio::unix::SourceFd;
use ::mio::{Interest, Poll, Token};

use super::{Taken, in_use, timed};

pub(super) fn run(sockets: &[UdpSocket]) -> io::Result<Taken> {
    let before = in_use();
    let poll = Poll::new()?;
    let registration = timed(|| {
        for (number, socket) in sockets.iter().enumerate() {
            let mut source = SourceFd(&socket.as_raw_fd());
            poll.registry().register(&mut source, Token(number), Interest::READABLE)?;
        }
        Ok(())
    })?;
    let bytes = in_use().saturating_sub(before);
    let removal = timed(|| {
        for socket in sockets {
            poll.registry().deregister(&mut SourceFd(&socket.as_raw_fd()))?;
        }
        Ok(())
    })?;
    Ok(Taken { registration, removal, bytes })
}
