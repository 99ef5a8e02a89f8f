//! `tokio`: an `AsyncFd` for each socket.

use std::io;
use std::net::UdpSocket;

use ::tokio::io::Interest;
use ::tokio::io::unix::AsyncFd;
use ::tokio::runtime::Builder;

use super::{Taken, in_use, timed};

pub(super) fn run(sockets: &mut Vec<UdpSocket>) -> io::Result<Taken> {
    let count = sockets.len();
    let mut registered = Vec::with_capacity(count);
    let before = in_use();
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let _within = runtime.enter();
    let registration = timed(|| {
        for socket in sockets.drain(..) {
            // SAFETY: the descriptor must stay open, and the object's own, until the `AsyncFd` ends.
            // - a `UdpSocket` owns its descriptor, and is neither changed nor taken out before.
            let socket = unsafe { AsyncFd::register_with_interest(socket, Interest::READABLE) };
            registered.push(socket?);
        }
        Ok(())
    })?;
    let bytes = in_use().saturating_sub(before);
    let removal = timed(|| {
        sockets.extend(registered.drain(..).map(AsyncFd::into_inner));
        Ok(())
    })?;
    Ok(Taken { registration, removal, bytes })
}
