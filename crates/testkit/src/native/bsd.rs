//! macOS and the BSDs, by `rustix`. What they do not have skips the claim that asked for it.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd};
pub(crate) use std::os::fd::{BorrowedFd as Borrowed, OwnedFd as Owned};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd, ioctl_fionbio};
pub(crate) use rustix::net::SocketAddrAny as Address;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind,
    getsockname, listen, socket, socketpair, sockopt,
};

use crate::lacking;

/// What a connect says that goes on.
pub(crate) const IN_PROGRESS: &[i32] = &[Errno::INPROGRESS.raw_os_error()];

/// Whether this is not Windows, but Wine.
pub(crate) fn is_wine() -> bool {
    false
}

/// Whether the system has socket notifications.
pub(crate) fn has_notifications() -> bool {
    false
}

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

pub(crate) fn borrow(descriptor: &Owned) -> Borrowed<'_> {
    descriptor.as_fd()
}

pub(crate) fn number(descriptor: &Owned) -> i32 {
    descriptor.as_raw_fd()
}

pub(crate) fn address(address: &SocketAddr) -> Address {
    (*address).into()
}

pub(crate) fn internet_address(address: &Address) -> Option<SocketAddr> {
    SocketAddr::try_from(address.clone()).ok()
}

pub(crate) fn read(descriptor: &Owned, buf: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(descriptor, buf)?)
}

pub(crate) fn unread(descriptor: &Owned) -> io::Result<usize> {
    let unread = rustix::io::ioctl_fionread(descriptor)?;
    usize::try_from(unread).map_err(io::Error::other)
}

pub(crate) fn write(descriptor: &Owned, bytes: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::write(descriptor, bytes)?)
}

/// Waits until something can be read or accepted, or the time is over.
pub(crate) fn await_readable(descriptor: &Owned, limit: Duration) {
    let timeout = Timespec::try_from(limit).unwrap();
    let mut question = [PollFd::new(descriptor, PollFlags::IN)];
    while poll(&mut question, Some(&timeout)) == Err(Errno::INTR) {}
}

/// What poll(2) says.
pub(crate) fn polled(descriptor: &Owned) -> u32 {
    let mut question = [PollFd::new(descriptor, PollFlags::IN | PollFlags::OUT)];
    poll(&mut question, Some(&Timespec::default())).unwrap();
    u32::from(question[0].revents().bits().cast_unsigned())
}

pub(crate) fn recv_from(
    descriptor: &Owned,
    buf: &mut [u8],
) -> io::Result<(usize, Option<Address>)> {
    let (taken, _, from) = rustix::net::recvfrom(descriptor, buf, RecvFlags::empty())?;
    Ok((taken, from))
}

pub(crate) fn send_to(descriptor: &Owned, bytes: &[u8], to: &Address) -> io::Result<usize> {
    // A program of Rust ignores the signal.
    Ok(rustix::net::sendto(descriptor, bytes, SendFlags::empty(), to)?)
}

pub(crate) fn accept(descriptor: &Owned) -> io::Result<Owned> {
    Ok(own(rustix::net::accept(descriptor)?))
}

pub(crate) fn connect(descriptor: &Owned, to: &Address) -> io::Result<()> {
    Ok(rustix::net::connect(descriptor, to)?)
}

pub(crate) fn shutdown(descriptor: &Owned, how: Shutdown) -> io::Result<()> {
    let how = match how {
        Shutdown::Read => rustix::net::Shutdown::Read,
        Shutdown::Write => rustix::net::Shutdown::Write,
        Shutdown::Both => rustix::net::Shutdown::Both,
    };
    Ok(rustix::net::shutdown(descriptor, how)?)
}

/// From now on closing the last descriptor of a TCP connection resets it.
pub(crate) fn reset_on_close(descriptor: &Owned) {
    sockopt::set_socket_linger(descriptor, Some(Duration::ZERO)).unwrap();
}

pub(crate) fn take_error(descriptor: &Owned) -> io::Result<Option<io::Error>> {
    Ok(sockopt::socket_error(descriptor)?.err().map(io::Error::from))
}

pub(crate) fn own_address(descriptor: &Owned) -> Address {
    getsockname(descriptor).unwrap()
}

pub(crate) fn set_nonblocking(descriptor: &Owned, nonblocking: bool) -> io::Result<()> {
    Ok(ioctl_fionbio(descriptor, nonblocking)?)
}

pub(crate) fn set_nodelay(descriptor: &Owned) {
    sockopt::set_tcp_nodelay(descriptor, true).unwrap();
}

pub(crate) fn tcp_fresh() -> Owned {
    new(AddressFamily::INET, SocketType::STREAM)
}

pub(crate) fn tcp_listener(address: SocketAddrV4, backlog: usize) -> Owned {
    let socket = tcp_fresh();
    // As a rule no other address of the network is there.
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

pub(crate) fn regular_file() -> Owned {
    File::open(std::env::current_exe().unwrap()).unwrap().into()
}

/// Another descriptor of the same object.
pub(crate) fn dup(descriptor: &Owned) -> io::Result<Owned> {
    Ok(fcntl_dupfd_cloexec(descriptor, 0)?)
}
