//! macOS and the BSDs, by `rustix`. A claim that needs a missing feature is skipped.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{FdFlags, fcntl_setfd, ioctl_fionbio};
use rustix::net::{
    AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket,
    socketpair,
};

use super::unix::{Address, Owned};
use crate::lacking;

/// What every descriptor of the kit is: it does not wait, and is closed on exec.
fn own(descriptor: Owned) -> Owned {
    fcntl_setfd(&descriptor, FdFlags::CLOEXEC).unwrap();
    ioctl_fionbio(&descriptor, true).unwrap();
    descriptor
}

fn own_both((first, second): (Owned, Owned)) -> (Owned, Owned) {
    (own(first), own(second))
}

fn new(family: AddressFamily, kind: SocketType) -> Owned {
    own(socket(family, kind, None).unwrap())
}

/// The result of poll(2).
pub(crate) fn polled(descriptor: &Owned) -> u32 {
    let mut question = [PollFd::new(descriptor, PollFlags::IN | PollFlags::OUT)];
    poll(&mut question, Some(&Timespec::default())).unwrap();
    u32::from(question[0].revents().bits().cast_unsigned())
}

pub(crate) fn send_to(descriptor: &Owned, bytes: &[u8], to: &Address) -> io::Result<usize> {
    // A program of Rust ignores the signal.
    Ok(rustix::net::sendto(descriptor, bytes, SendFlags::empty(), to)?)
}

pub(crate) fn accept(descriptor: &Owned) -> io::Result<Owned> {
    Ok(own(rustix::net::accept(descriptor)?))
}

pub(crate) fn set_nonblocking(descriptor: &Owned, nonblocking: bool) -> io::Result<()> {
    Ok(ioctl_fionbio(descriptor, nonblocking)?)
}

pub(crate) fn tcp_fresh() -> Owned {
    new(AddressFamily::INET, SocketType::STREAM)
}

pub(crate) fn tcp_listener(address: SocketAddrV4, backlog: usize) -> Owned {
    let socket = tcp_fresh();
    // Usually no other address of the network is available.
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, address.port())).unwrap();
    listen(&socket, i32::try_from(backlog).unwrap()).unwrap();
    socket
}

pub(crate) fn udp_bound(address: SocketAddrV4) -> Owned {
    let socket = new(AddressFamily::INET, SocketType::DGRAM);
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, address.port())).unwrap();
    socket
}

pub(crate) fn unix_fresh() -> Owned {
    new(AddressFamily::UNIX, SocketType::STREAM)
}

/// The file stays until the system clears its directory for temporary files.
pub(crate) fn unix_listener(backlog: usize) -> Owned {
    static LAST: AtomicU32 = AtomicU32::new(0);
    let socket = unix_fresh();
    let number = LAST.fetch_add(1, SeqCst);
    let name = format!("/tmp/completion-port.{}.{number}", std::process::id());
    bind(&socket, &SocketAddrUnix::new(name).unwrap()).unwrap();
    listen(&socket, i32::try_from(backlog).unwrap()).unwrap();
    socket
}

pub(crate) fn unix_pair() -> (Owned, Owned) {
    own_both(
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).unwrap(),
    )
}

pub(crate) fn unix_datagram_pair() -> (Owned, Owned) {
    own_both(
        socketpair(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::empty(), None).unwrap(),
    )
}

pub(crate) fn pipe() -> (Owned, Owned) {
    own_both(rustix::pipe::pipe().unwrap())
}

pub(crate) fn event() -> Owned {
    lacking("event counters")
}
