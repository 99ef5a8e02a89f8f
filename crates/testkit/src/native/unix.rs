//! What the kit does in the same way on each Unix, by `rustix`.

use std::fs::File;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
pub(crate) use std::os::fd::{BorrowedFd as Borrowed, OwnedFd as Owned};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
pub(crate) use rustix::net::SocketAddrAny as Address;
use rustix::net::{RecvFlags, getsockname, sockopt};

use completion_port::Readiness;

/// The error of a connect in progress.
pub(crate) const IN_PROGRESS: &[i32] = &[Errno::INPROGRESS.raw_os_error()];

/// Whether this is not Windows, but Wine.
pub(crate) fn is_wine() -> bool {
    false
}

/// By what ports learn that a socket is ready.
pub(crate) fn readiness() -> Readiness {
    Readiness::Automatic
}

/// Whether the ports of the tests use socket notifications.
pub(crate) fn uses_notifications() -> bool {
    false
}

/// The first port needs no preparation.
pub(crate) fn prepare() {}

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

/// Waits for data or a connection, or for the timeout.
pub(crate) fn await_readable(descriptor: &Owned, limit: Duration) {
    let timeout = Timespec::try_from(limit).unwrap();
    let mut question = [PollFd::new(descriptor, PollFlags::IN)];
    while poll(&mut question, Some(&timeout)) == Err(Errno::INTR) {}
}

pub(crate) fn recv_from(
    descriptor: &Owned,
    buf: &mut [u8],
) -> io::Result<(usize, Option<Address>)> {
    let (taken, _, from) = rustix::net::recvfrom(descriptor, buf, RecvFlags::empty())?;
    Ok((taken, from))
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

pub(crate) fn set_nodelay(descriptor: &Owned) {
    sockopt::set_tcp_nodelay(descriptor, true).unwrap();
}

pub(crate) fn regular_file() -> Owned {
    File::open(std::env::current_exe().unwrap()).unwrap().into()
}

/// Another descriptor of the same object.
pub(crate) fn dup(descriptor: &Owned) -> io::Result<Owned> {
    Ok(fcntl_dupfd_cloexec(descriptor, 0)?)
}
