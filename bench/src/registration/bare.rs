//! Nothing but the system calls.

use std::io;
use std::net::UdpSocket;

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

use super::{Taken, in_use, timed};

fn run(sockets: &[UdpSocket], flags: EventFlags) -> io::Result<Taken> {
    let before = in_use();
    let set = epoll::create(CreateFlags::CLOEXEC)?;
    let registration = timed(|| {
        for (number, socket) in sockets.iter().enumerate() {
            epoll::add(&set, socket, EventData::new_u64(number as u64), flags)?;
        }
        Ok(())
    })?;
    let bytes = in_use().saturating_sub(before);
    let removal = timed(|| {
        for socket in sockets {
            epoll::delete(&set, socket)?;
        }
        Ok(())
    })?;
    Ok(Taken { registration, removal, bytes })
}

pub(super) fn reading(sockets: &[UdpSocket]) -> io::Result<Taken> {
    run(sockets, EventFlags::IN | EventFlags::RDHUP | EventFlags::ET)
}

pub(super) fn everything(sockets: &[UdpSocket]) -> io::Result<Taken> {
    run(sockets, EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET)
}
