//! Queries about a descriptor: the kind of socket, its addresses, and an identity that
//! distinguishes it from all others. They change nothing, except for `errno` on failure. Also
//! changes whether calls on it block.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use libc::{sockaddr, socklen_t};

use crate::errors::code;
use crate::linux::errno::keeping_errno;

/// The type of a socket.
pub(crate) fn kind(descriptor: c_int) -> Option<c_int> {
    option(descriptor, libc::SO_TYPE)
}

/// The protocol of a socket. Fails if it is not one.
pub(crate) fn protocol(descriptor: c_int) -> Result<c_int, u32> {
    option(descriptor, libc::SO_PROTOCOL).ok_or(code::WSAENOTSOCK)
}

/// The [identity] of a socket; `None` if it is not one.
pub(crate) fn identity_of_socket(descriptor: c_int) -> Option<u64> {
    option(descriptor, SO_COOKIE)
        .or_else(|| protocol(descriptor).ok().and_then(|_| file_number(descriptor)))
}

/// The same on all supported systems; older versions of the crate lack it.
const SO_COOKIE: c_int = 57;

/// Distinguishes a socket from all others that the process has or had, whatever its number. For
/// other descriptors, the number of the file; 0 if closed.
pub(crate) fn identity(descriptor: c_int) -> u64 {
    // Before Linux 4.12, and in emulators, sockets have no cookie. File numbers repeat after four
    // billion.
    keeping_errno(|| option(descriptor, SO_COOKIE).or_else(|| file_number(descriptor))).unwrap_or(0)
}

/// The number of a descriptor's file.
fn file_number(descriptor: c_int) -> Option<u64> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat(2) writes a `stat` at the pointer, or fails.
    // - valid for writes: it is a local of that type.
    let done = unsafe { libc::fstat(descriptor, stat.as_mut_ptr()) };
    // SAFETY: `assume_init` demands a value.
    // - a call that succeeds has written one.
    (done == 0).then(|| unsafe { stat.assume_init() }.st_ino)
}

/// An option of a socket that is a whole number; `None` if it is not a socket.
fn option<N: Whole>(descriptor: c_int, name: c_int) -> Option<N> {
    let mut value = N::default();
    let mut size = socklen_t::try_from(size_of_val(&value)).unwrap_or(0);
    // SAFETY: getsockopt(2) writes at most `size` bytes at the value's pointer, and reads and writes
    // the size at the other.
    // - valid: both are locals of the right type, `size` is that of the value, and any bytes are one.
    let done = unsafe {
        libc::getsockopt(descriptor, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut size)
    };
    (done == 0).then_some(value)
}

/// A number for which any bytes are valid.
trait Whole: Default {}
impl Whole for c_int {}
impl Whole for u64 {}

/// An address of a socket, by one of the two calls that return one.
fn address_of(
    descriptor: c_int,
    call: unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int,
) -> Option<libc::sockaddr_in6> {
    let mut address = libc::sockaddr_in6 {
        sin6_family: 0,
        sin6_port: 0,
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: [0; 16] },
        sin6_scope_id: 0,
    };
    let mut size = socklen_t::try_from(size_of_val(&address)).unwrap_or(0);
    // SAFETY: getsockname(2) and getpeername(2) write at most `size` bytes at the address's pointer, and
    // read and write the size at the other.
    // - valid: both are locals of the right type, and `size` is that of the address.
    let ask = || unsafe { call(descriptor, (&raw mut address).cast(), &raw mut size) };
    (keeping_errno(ask) == 0).then_some(address)
}

pub(crate) fn is_connected(descriptor: c_int) -> bool {
    address_of(descriptor, libc::getpeername).is_some()
}

/// Whether it has its own port, as it has once it was connected. The port has the same offset in addresses of either version.
pub(crate) fn is_bound(descriptor: c_int) -> bool {
    address_of(descriptor, libc::getsockname).is_some_and(|address| address.sin6_port != 0)
}

/// Whether it has neither its own port or name nor a peer, although its family has them.
pub(crate) fn is_unbound(descriptor: c_int) -> bool {
    let own = address_of(descriptor, libc::getsockname).filter(|own| {
        matches!(own.sin6_family.into(), libc::AF_INET | libc::AF_INET6 | libc::AF_UNIX)
    });
    // Unix sockets have a name instead of a port.
    own.is_some_and(|own| own.sin6_port == 0) && !is_connected(descriptor)
}

/// Whether a socket listens; `None` if it is not a socket.
pub(crate) fn listens(descriptor: c_int) -> Option<bool> {
    option::<c_int>(descriptor, libc::SO_ACCEPTCONN).map(|listens| listens != 0)
}

/// How a socket lingers on close, and the result of the system call.
pub(crate) fn lingers(descriptor: c_int) -> (c_int, libc::linger) {
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut size = socklen_t::try_from(size_of_val(&linger)).unwrap_or(8);
    let (level, name, place) = (libc::SOL_SOCKET, libc::SO_LINGER, (&raw mut linger).cast());
    // SAFETY: getsockopt(2) writes at most `size` bytes at `linger`.
    // - valid: both are locals of the right type.
    let done = unsafe { libc::getsockopt(descriptor, level, name, place, &raw mut size) };
    (done, linger)
}

/// From here on it does not linger on close.
pub(crate) fn stop_lingering(descriptor: c_int) {
    let linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let size = socklen_t::try_from(size_of_val(&linger)).unwrap_or(8);
    let (level, name, place) = (libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast());
    // SAFETY: setsockopt(2) reads `size` bytes at the pointer.
    // - valid: `linger` is a local of that size.
    unsafe { libc::setsockopt(descriptor, level, name, place, size) };
}

/// The number of bytes that a stream has sent or queued, and that its peer has not acknowledged.
pub(crate) fn unconfirmed(descriptor: c_int) -> c_int {
    let mut bytes: c_int = 0;
    // SAFETY: ioctl(2) with this request writes an int at the pointer.
    // - valid: it is a local of that type.
    unsafe { libc::ioctl(descriptor, libc::TIOCOUTQ, &raw mut bytes) };
    bytes
}

/// Whether a socket is a stream without a connection, and is not connecting.
pub(crate) fn has_no_peer(descriptor: c_int) -> bool {
    !is_connected(descriptor)
        && kind(descriptor) == Some(libc::SOCK_STREAM)
        && listens(descriptor) == Some(false)
        && (is_local(descriptor) || tcp_state(descriptor) == Some(TCP_CLOSE))
}

/// The state of a TCP stream without a connection.
const TCP_CLOSE: u8 = 7;

/// The state of a TCP stream, in the system's numbers.
fn tcp_state(descriptor: c_int) -> Option<u8> {
    let (mut state, mut size): (u8, socklen_t) = (0, 1);
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: getsockopt(2) writes at most `size` bytes at the first pointer, and the size at the other.
    // - valid: both are locals, and the state is the first byte of the system's struct.
    let done = unsafe {
        libc::getsockopt(descriptor, level, name, (&raw mut state).cast(), &raw mut size)
    };
    (done == 0).then_some(state)
}

/// Whether no more data will arrive, according to poll(2).
pub(crate) fn is_ended(descriptor: c_int) -> bool {
    let mut asked = libc::pollfd { fd: descriptor, events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: poll(2) reads and writes that many entries.
    // - valid: there is one.
    unsafe { libc::poll(&raw mut asked, 1, 0) > 0 && asked.revents & libc::POLLRDHUP != 0 }
}

/// Whether urgent data of the peer is waiting.
pub(crate) fn has_urgent(descriptor: c_int) -> bool {
    let mut asked = libc::pollfd { fd: descriptor, events: libc::POLLPRI, revents: 0 };
    // SAFETY: poll(2) reads and writes that many entries.
    // - valid: there is one.
    unsafe { libc::poll(&raw mut asked, 1, 0) > 0 && asked.revents & libc::POLLPRI != 0 }
}

/// Whether the peer's urgent data is received in line with the rest.
pub(crate) fn has_urgent_inline(descriptor: c_int) -> bool {
    option::<c_int>(descriptor, libc::SO_OOBINLINE).is_some_and(|is_inline| is_inline != 0)
}

/// Whether a TCP stream has had a peer since its last connect, that is, one that has acknowledged or sent something. The
/// system also knows this for a stream that has ended.
pub(crate) fn was_connected(descriptor: c_int) -> bool {
    // The beginning of the system's struct. Its last two numbers here are `tcpi_bytes_acked` and `tcpi_bytes_received`.
    let mut words = [0_u64; 17];
    let mut size = socklen_t::try_from(size_of_val(&words)).unwrap_or(0);
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_INFO);
    // SAFETY: getsockopt(2) writes at most `size` bytes at the first pointer, and the size at the other.
    // - valid: both are locals, `size` is that of the first, and any bytes are such numbers.
    unsafe {
        libc::getsockopt(descriptor, level, name, words.as_mut_ptr().cast(), &raw mut size);
    }
    words[15] != 0 || words[16] != 0
}

/// Whether a stream has none of these: its own port, a peer, a queue of connections.
pub(crate) fn is_unused(descriptor: c_int) -> bool {
    match address_of(descriptor, libc::getsockname) {
        // A connected or listening socket has a port: the system chooses one if the program does
        // not.
        Some(own) if matches!(own.sin6_family.into(), libc::AF_INET | libc::AF_INET6) => {
            own.sin6_port == 0
        }
        _ => {
            !is_connected(descriptor) && !is_bound(descriptor) && listens(descriptor) != Some(true)
        }
    }
}

/// Whether a socket is connected to itself. This happens when it connects to a local port at which nothing listens, and which
/// is the socket's own.
pub(crate) fn is_own_peer(descriptor: c_int) -> bool {
    let end = |call| {
        let address = address_of(descriptor, call)?;
        let place = match c_int::from(address.sin6_family) {
            // The address is where the other version has an unrelated member.
            libc::AF_INET => (address.sin6_flowinfo, [0; 16]),
            libc::AF_INET6 => (0, address.sin6_addr.s6_addr),
            _ => return None,
        };
        Some((place, address.sin6_port))
    };
    let peer = end(libc::getpeername);
    peer.is_some() && peer == end(libc::getsockname)
}

/// Whether calls on it block; `None` if it is closed.
pub(crate) fn blocks(descriptor: c_int) -> Option<bool> {
    // SAFETY: fcntl(2) with F_GETFL demands nothing of memory.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    (flags >= 0).then_some(flags & libc::O_NONBLOCK == 0)
}

/// Sets whether calls on it block.
pub(crate) fn set_blocking(descriptor: c_int, blocks: bool) {
    // SAFETY: fcntl(2) with F_GETFL demands nothing of memory.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    if flags >= 0 {
        let wanted = if blocks { flags & !libc::O_NONBLOCK } else { flags | libc::O_NONBLOCK };
        // SAFETY: fcntl(2) with F_SETFL demands nothing of memory.
        unsafe { libc::fcntl(descriptor, libc::F_SETFL, wanted) };
    }
}

/// A new socket for IPv6 carries no IPv4. Sockets without that option are left as they are.
pub(crate) fn separate_from_ipv4(descriptor: c_int) {
    let on: c_int = 1;
    let (level, name, place) = (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, (&raw const on).cast());
    // SAFETY: setsockopt(2) reads four bytes at the pointer.
    // - valid for reads: it is a local.
    unsafe { libc::setsockopt(descriptor, level, name, place, 4) };
}

/// The minimum size of an address of the socket's family.
pub(crate) fn size_of_address(descriptor: c_int) -> socklen_t {
    let size = match option::<c_int>(descriptor, libc::SO_DOMAIN) {
        Some(libc::AF_INET) => size_of::<libc::sockaddr_in>(),
        Some(libc::AF_INET6) => size_of::<libc::sockaddr_in6>(),
        // Names in the file system may be short. If it is not a socket, the call that gets the
        // address fails.
        _ => size_of::<libc::sa_family_t>(),
    };
    socklen_t::try_from(size).unwrap_or(0)
}

/// An option that no system has.
const NO_OPTION: c_int = -1;

/// Returns the system's name of an option. On the reference, `IPV6_PKTINFO` and `IPV6_HOPLIMIT` with the size of a flag
/// request control data. The system has other names for that. Winsock has no low watermarks.
pub(crate) fn name_of_option(level: c_int, name: c_int, size: usize) -> c_int {
    match (level, name) {
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if size <= size_of::<c_int>() => {
            libc::IPV6_RECVPKTINFO
        }
        (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) if size <= size_of::<c_int>() => {
            libc::IPV6_RECVHOPLIMIT
        }
        (libc::SOL_SOCKET, libc::SO_RCVLOWAT | libc::SO_SNDLOWAT) => NO_OPTION,
        (_, name) => name,
    }
}

pub(crate) fn is_local(descriptor: c_int) -> bool {
    option(descriptor, libc::SO_DOMAIN) == Some(libc::AF_UNIX)
}
