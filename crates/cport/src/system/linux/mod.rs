//! Linux.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

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

/// What must be seen of a rule here, if it is not what the trial says. The trials have the words of Linux.
pub(crate) fn in_other_words(_rule: u8) -> Option<&'static str> {
    None
}

/// Whether a datagram socket hears that its peer cannot be reached.
pub(crate) fn tells_of_unreachable_peers() -> bool {
    true
}

/// What can be done about an address that another socket has.
pub(crate) const TAKEN: &str = "; `ss -lnptu` shows which program has it; port 0 takes a free one";
/// What can be done about an address that is none of this machine.
pub(crate) const NOT_HERE: &str = "; `ip address` shows which addresses this machine has";
/// What can be done about an address that is denied.
pub(crate) const DENIED: &str = "; ports below 1024 are root's, take a higher one";

/// Whether a name stands for no address: getaddrinfo(3) has codes of its own for that, which are none of the system's.
pub(crate) fn is_unknown_name(error: &io::Error) -> bool {
    error.raw_os_error().is_none()
}

/// A listener at the first of the addresses that can be had. One of IPv6 takes connections over IPv4 as well.
pub(crate) fn listener(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    TcpListener::bind(addresses)
}

/// The same for datagrams.
pub(crate) fn datagram_socket(addresses: &[SocketAddr]) -> io::Result<UdpSocket> {
    UdpSocket::bind(addresses)
}

/// Two streams that are connected with each other.
pub(crate) fn pair() -> io::Result<(Stream, Stream)> {
    Stream::pair()
}

/// How a server of this process is told to end, and to print numbers.
pub(crate) fn how_to_tell() -> String {
    format!("Ctrl-C ends it; `kill -USR1 {}` prints numbers", std::process::id())
}

/// Whether the process, or the system, has no descriptor left.
pub(crate) fn is_descriptor_limit(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Whether descriptors or memory are short.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    is_descriptor_limit(error)
        || matches!(Errno::from_io_error(error), Some(Errno::NOBUFS | Errno::NOMEM))
}

/// Whether a connect goes on by itself.
pub(crate) fn is_under_way(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::INPROGRESS)
}

/// How many descriptors the process may have; `None` if there is no limit.
pub(crate) fn descriptor_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Whether the terminal at standard output obeys escape sequences. All do here.
pub(crate) fn obeys_sequences() -> bool {
    true
}

/// Becomes another program. Returns only if it cannot.
pub(crate) fn run_instead(command: &mut Command) -> io::Error {
    command.exec()
}

/// How many bytes the system has of a connection: received and not read, or sent and not taken by the peer's system.
pub(crate) fn left_in_system(socket: impl AsFd) -> u64 {
    ioctl_fionread(&socket).unwrap_or(0) + untaken(socket.as_fd()).unwrap_or(0)
}

/// What the system has of a stream that the peer's has not acknowledged (`SIOCOUTQ` of tcp(7), which has the number
/// of `TIOCOUTQ`).
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

/// By what number the system knows a socket.
pub(crate) fn number(socket: &Stream) -> i64 {
    socket.as_raw_fd().into()
}
