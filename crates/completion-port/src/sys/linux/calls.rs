//! System calls that Linux makes differently from the other Unix systems.

use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr;

use crate::sys::unix::address::RawAddress;
use crate::sys::unix::errors::repeat;
use crate::sys::unix::options::{Code, last_code, number, read_option};
use crate::types::source::Descriptor;

/// The flags of every socket made here.
const FLAGS: i32 = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// The sendmsg(2) flag that prevents the signal for a send to an ended stream.
pub(in crate::sys) const NO_SIGNAL: i32 = libc::MSG_NOSIGNAL;

/// Whether `AF_UNIX` sockets can have names without a file.
pub(in crate::sys) const HAS_ABSTRACT_NAMES: bool = true;

pub(in crate::sys) fn abstract_name(address: &SocketAddr) -> Option<&[u8]> {
    address.as_abstract_name()
}

pub(in crate::sys) fn of_abstract_name(name: &[u8]) -> Option<SocketAddr> {
    SocketAddr::from_abstract_name(name).ok()
}

/// Names the calling thread. The name has at most 15 bytes.
pub(in crate::sys) fn name_thread(name: &CStr) {
    // SAFETY: prctl(2) with PR_SET_NAME reads at most 16 bytes at the pointer, until one is zero.
    // - valid for reads: it is text that ends with a zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

fn owned(descriptor: Descriptor) -> Result<OwnedFd, Code> {
    if descriptor < 0 {
        return Err(last_code());
    }
    // SAFETY: `from_raw_fd` requires an open descriptor that nothing else owns.
    // - each caller passes a descriptor that socket(2) or accept4(2) has just returned.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Makes a non-blocking stream socket.
pub(in crate::sys) fn new_stream(family: i32) -> Result<OwnedFd, Code> {
    // SAFETY: socket(2) has no memory requirements.
    owned(unsafe { libc::socket(family, libc::SOCK_STREAM | FLAGS, 0) })
}

/// Accepts a connection from a listener's queue, non-blocking, and the address of its peer.
pub(in crate::sys) fn accept(
    descriptor: Descriptor,
    peer: &mut RawAddress,
) -> Result<OwnedFd, Code> {
    let (address, len): (_, *mut libc::socklen_t) = (peer.as_mut_ptr(), peer.len_mut());
    // SAFETY: accept4(2) reads a length at the second pointer, writes at most that many bytes at
    // the first, and writes the full length at the second.
    // - valid: both point into `peer`, which is borrowed mutably and whose length is that of its
    //   room.
    owned(unsafe { libc::accept4(descriptor, address, len, FLAGS) })
}

/// Whether connect(2) succeeds, for any address, on a stream whose earlier connect has completed.
pub(in crate::sys) const ADOPTS_CONNECTIONS: bool = true;

/// Undoes a connect(2) that has completed or is in progress.
///
/// The address and port given to bind(2) stay; a port that the kernel chose does not. Returns false
/// for protocols that cannot disconnect, such as `AF_VSOCK`.
pub(in crate::sys) fn disconnect(descriptor: Descriptor) -> bool {
    // The number of `AF_UNSPEC`.
    let unspecified = libc::sockaddr { sa_family: 0, sa_data: [0; 14] };
    const { assert!(libc::AF_UNSPEC == 0) };
    let len = libc::socklen_t::try_from(size_of_val(&unspecified)).unwrap_or(0);
    // SAFETY: connect(2) reads as many bytes at the pointer as its third argument says.
    // - valid for reads: `unspecified` lives until the call returns, and this is its length.
    let done = unsafe { libc::connect(descriptor, &raw const unspecified, len) };
    done == 0
}

/// What poll(2) reports for a socket without a peer whose reading half was shut. Reads do not
/// report it.
pub(in crate::sys) const READING_SHUT: i16 = libc::POLLRDHUP;

/// Returns whether an error of accept(2) concerns one connection, so the next one may succeed.
pub(in crate::sys) fn is_of_connection(code: Code) -> bool {
    // By the manual page `EOPNOTSUPP` is one of them, but Linux returns it for sockets that cannot
    // listen.
    matches!(
        code,
        libc::ECONNABORTED
            | libc::EHOSTDOWN
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::ENETUNREACH
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EPROTO
    )
}

/// Returns whether a socket is a TCP stream. Multipath TCP has its own number and does not count.
pub(in crate::sys) fn is_tcp(descriptor: Descriptor) -> bool {
    number(descriptor, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
}

/// Returns whether a receive with `MSG_TRUNC` returns the full length of a datagram.
///
/// recv(2) names more kinds, of which some ignore it.
pub(in crate::sys) fn is_udp(descriptor: Descriptor) -> bool {
    number(descriptor, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_UDP)
}

/// Returns whether a layer lies between a TCP stream and its reader, such as the kernel's TLS.
///
/// TLS keeps decrypted data, and it ends a read where the type of its records changes.
pub(in crate::sys) fn has_layer(descriptor: Descriptor) -> bool {
    let mut name = [0; 16];
    let len = read_option(descriptor, libc::IPPROTO_TCP, libc::TCP_ULP, &mut name);
    len.is_ok_and(|len| len > 0)
}

/// Writes the data of a file to the disk. Negative if that fails.
pub(in crate::sys) fn sync_data(descriptor: Descriptor) -> i32 {
    // SAFETY: fdatasync(2) has no memory requirements.
    unsafe { libc::fdatasync(descriptor) }
}

/// Writes the data and metadata of a file to the disk. Negative if that fails.
pub(in crate::sys) fn sync_all(descriptor: Descriptor) -> i32 {
    // SAFETY: fsync(2) has no memory requirements.
    unsafe { libc::fsync(descriptor) }
}

/// Appends parts to a file, wherever its end is then. Returns the number of bytes.
///
/// # Safety
///
/// There are `count` parts at the pointer, in the form that writev(2) requires, and their bytes may
/// be read during the call.
#[allow(
    clippy::cast_possible_truncation,
    reason = "a system call returns as much as a count of bytes may be"
)]
pub(in crate::sys) unsafe fn append(
    descriptor: Descriptor,
    parts: *const libc::iovec,
    count: i32,
) -> Result<usize, Code> {
    let count = usize::try_from(count).unwrap_or(0);
    // SAFETY: pwritev2(2) reads `count` elements at the pointer, and the bytes of each part. Its
    // position is one word followed by a zero on 64-bit systems.
    // - valid for reads: the caller guarantees it.
    repeat(|| unsafe {
        libc::syscall(
            libc::SYS_pwritev2,
            descriptor,
            parts,
            count,
            0_usize,
            0_usize,
            i64::from(libc::RWF_APPEND),
        ) as libc::ssize_t
    })
}
