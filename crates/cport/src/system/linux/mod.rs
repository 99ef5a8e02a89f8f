//! Linux.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, ioctl_fionread};
use rustix::process::{Resource, getrlimit};

mod facts;
pub(crate) mod forks;
mod others;
mod signals;

pub(crate) use facts::{facts, kernel, waits};
pub(crate) use others::register_others;
pub(crate) use signals::{Signals, Waker};

/// A stream to another socket of this machine.
pub(crate) type Stream = std::os::unix::net::UnixStream;

/// The expectation of a rule on this system, if it differs from the trial's. The trials have those
/// of Linux.
pub(crate) fn in_other_words(_rule: u8) -> Option<&'static str> {
    None
}

/// Whether a datagram socket reports an unreachable peer.
pub(crate) fn tells_of_unreachable_peers() -> bool {
    true
}

/// Advice if another socket has the address.
pub(crate) const TAKEN: &str = "; `ss -lnptu` shows which program has it; port 0 takes a free one";
/// Advice if the address is not one of this machine.
pub(crate) const NOT_HERE: &str = "; `ip address` shows which addresses this machine has";
/// Advice if the address is denied.
pub(crate) const DENIED: &str = "; ports below 1024 are root's, take a higher one";

/// Whether a name has no address: getaddrinfo(3) has its own codes for that.
pub(crate) fn is_unknown_name(error: &io::Error) -> bool {
    error.raw_os_error().is_none()
}

/// A listener on the first address that can be bound. An IPv6 listener also accepts IPv4.
pub(crate) fn listener(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    TcpListener::bind(addresses)
}

/// The same for datagrams.
pub(crate) fn datagram_socket(addresses: &[SocketAddr]) -> io::Result<UdpSocket> {
    UdpSocket::bind(addresses)
}

/// Two streams connected to each other.
pub(crate) fn pair() -> io::Result<(Stream, Stream)> {
    Stream::pair()
}

/// How to end a server of this process, and make it print numbers.
pub(crate) fn how_to_tell() -> String {
    format!("Ctrl-C ends it; `kill -USR1 {}` prints numbers", std::process::id())
}

/// Whether the process or the system has run out of descriptors.
pub(crate) fn is_descriptor_limit(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether descriptors or memory are short.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    is_descriptor_limit(error)
        || matches!(Errno::from_io_error(error), Some(Errno::NOBUFS | Errno::NOMEM))
}

/// Whether a connection waits to be accepted.
pub(crate) fn has_waiting(listener: &TcpListener) -> bool {
    let mut asked = [PollFd::new(listener, PollFlags::IN)];
    poll(&mut asked, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

/// Whether a connect is in progress.
pub(crate) fn is_under_way(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::INPROGRESS)
}

/// The process's limit on descriptors; `None` if there is none.
pub(crate) fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Whether the terminal at standard output supports escape sequences. All do here.
pub(crate) fn obeys_sequences() -> bool {
    true
}

/// Becomes another program. Returns only if it cannot.
pub(crate) fn run_instead(command: &mut Command) -> io::Error {
    command.exec()
}

/// Number of bytes of a connection in the system: received but not read, or sent but not
/// acknowledged by the peer.
pub(crate) fn left_in_system(socket: impl AsFd) -> u64 {
    ioctl_fionread(&socket).unwrap_or(0) + untaken(socket.as_fd()).unwrap_or(0)
}

/// Number of bytes of a stream that the peer has not acknowledged (`SIOCOUTQ` of tcp(7), which has
/// the number of `TIOCOUTQ`).
fn untaken(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: this request of ioctl(2) writes one `int` through its argument.
    // - valid for writes: `bytes` is an `int` of this function;
    // - not shared: nothing else refers to it during the call.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if outcome < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(u64::try_from(bytes).unwrap_or(0))
    }
}

/// The system's number of a socket.
pub(crate) fn number(socket: &Stream) -> i64 {
    socket.as_raw_fd().into()
}
