//! Linux, by `rustix`.

use std::io;
use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
    socketpair,
};
use rustix::pipe::{PipeFlags, pipe_with};

use super::unix::{Address, Owned};

/// What every descriptor of the kit is.
const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// The result of poll(2).
pub(crate) fn polled(descriptor: &Owned) -> u32 {
    let mut question = [PollFd::new(descriptor, PollFlags::IN | PollFlags::OUT | PollFlags::RDHUP)];
    poll(&mut question, Some(&Timespec::default())).unwrap();
    question[0].revents().bits().into()
}

pub(crate) fn send_to(descriptor: &Owned, bytes: &[u8], to: &Address) -> io::Result<usize> {
    Ok(rustix::net::sendto(descriptor, bytes, SendFlags::NOSIGNAL, to)?)
}

pub(crate) fn accept(descriptor: &Owned) -> io::Result<Owned> {
    Ok(rustix::net::accept_with(descriptor, FLAGS)?)
}

pub(crate) fn set_nonblocking(descriptor: &Owned, nonblocking: bool) -> io::Result<()> {
    Ok(rustix::io::ioctl_fionbio(descriptor, nonblocking)?)
}

pub(crate) fn tcp_fresh() -> Owned {
    socket_with(AddressFamily::INET, SocketType::STREAM, FLAGS, None).unwrap()
}

pub(crate) fn tcp_listener(address: SocketAddrV4, backlog: usize) -> Owned {
    let socket = tcp_fresh();
    bind(&socket, &address).unwrap();
    listen(&socket, i32::try_from(backlog).unwrap()).unwrap();
    socket
}

pub(crate) fn udp_bound(address: SocketAddrV4) -> Owned {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, FLAGS, None).unwrap();
    bind(&socket, &address).unwrap();
    socket
}

pub(crate) fn unix_fresh() -> Owned {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None).unwrap()
}

pub(crate) fn unix_listener(backlog: usize) -> Owned {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let socket = unix_fresh();
    let number = LAST.fetch_add(1, SeqCst);
    let name = format!("completion-port.{}.{number}", std::process::id());
    bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    listen(&socket, i32::try_from(backlog).unwrap()).unwrap();
    socket
}

pub(crate) fn unix_pair() -> (Owned, Owned) {
    socketpair(AddressFamily::UNIX, SocketType::STREAM, FLAGS, None).unwrap()
}

pub(crate) fn unix_record_pair() -> (Owned, Owned) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None).unwrap()
}

pub(crate) fn unix_datagram_pair() -> (Owned, Owned) {
    socketpair(AddressFamily::UNIX, SocketType::DGRAM, FLAGS, None).unwrap()
}

pub(crate) fn pipe() -> (Owned, Owned) {
    pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap()
}

pub(crate) fn event() -> Owned {
    eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap()
}
