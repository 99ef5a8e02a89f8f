//! What Linux does in its own way of what each Unix does.

use std::ffi::CStr;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::SocketAddr;

use crate::sys::unix::address::RawAddress;
use crate::sys::unix::errors::repeat;
use crate::sys::unix::options::{Code, last_code, number, read_option};
use crate::types::source::Descriptor;

/// What every socket is that is made here.
const FLAGS: i32 = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// The flag of sendmsg(2) by which a send to a stream that has ended raises no signal.
pub(in crate::sys) const NO_SIGNAL: i32 = libc::MSG_NOSIGNAL;

/// Whether sockets of `AF_UNIX` may have names without a file.
pub(in crate::sys) const HAS_ABSTRACT_NAMES: bool = true;

pub(in crate::sys) fn abstract_name(address: &SocketAddr) -> Option<&[u8]> {
    address.as_abstract_name()
}

pub(in crate::sys) fn of_abstract_name(name: &[u8]) -> Option<SocketAddr> {
    SocketAddr::from_abstract_name(name).ok()
}

/// Gives the calling thread a name, of at most 15 bytes.
pub(in crate::sys) fn name_thread(name: &CStr) {
    // SAFETY: prctl(2) with PR_SET_NAME reads at most 16 bytes at the pointer, until one is zero.
    // - valid for reads: it is text that ends with a zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

fn owned(descriptor: Descriptor) -> Result<OwnedFd, Code> {
    if descriptor < 0 {
        return Err(last_code());
    }
    // SAFETY: `from_raw_fd` demands an open descriptor that nothing else owns.
    // - each caller passes what socket(2) or accept4(2) returned it just now.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// A new stream socket that does not wait.
pub(in crate::sys) fn new_stream(family: i32) -> Result<OwnedFd, Code> {
    // SAFETY: socket(2) demands nothing of memory.
    owned(unsafe { libc::socket(family, libc::SOCK_STREAM | FLAGS, 0) })
}

/// A connection from a listener's queue, which does not wait, and the address of its peer.
pub(in crate::sys) fn accept(
    descriptor: Descriptor,
    peer: &mut RawAddress,
) -> Result<OwnedFd, Code> {
    let (address, len): (_, *mut libc::socklen_t) = (peer.as_mut_ptr(), peer.len_mut());
    // SAFETY: accept4(2) reads a length at the second pointer, writes at most so many bytes at the
    // first and the full length at the second.
    // - valid: both point into `peer`, which is borrowed mutably, and whose length is that of its room.
    owned(unsafe { libc::accept4(descriptor, address, len, FLAGS) })
}

/// Whether connect(2) succeeds on a stream whose earlier connect has got its connection since, whatever the address.
pub(in crate::sys) const ADOPTS_CONNECTIONS: bool = true;

/// Breaks off what connect(2) has done to a stream, or is doing. The address and the port given to bind(2) stay; a port
/// that the kernel has chosen does not. False of protocols that cannot do so, such as `AF_VSOCK`.
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

/// What poll(2) says of a socket without a peer whose reading half was shut, where attempts to read say nothing of it.
pub(in crate::sys) const READING_SHUT: i16 = libc::POLLRDHUP;

/// Whether an error of accept(2) is of one connection, and another one may stand behind it.
pub(in crate::sys) fn is_of_connection(code: Code) -> bool {
    // `EOPNOTSUPP` is among them by the manual page, but Linux says that of a socket that cannot listen.
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

/// Whether a socket is a stream of TCP. Multipath TCP has a number of its own: its bytes come by several ways.
pub(in crate::sys) fn is_tcp(descriptor: Descriptor) -> bool {
    number(descriptor, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Ok(libc::IPPROTO_TCP)
}

/// Whether something lies between a TCP stream and its reader, such as the kernel's TLS, which keeps what it has decrypted
/// and stops a read where the sort of its records changes.
pub(in crate::sys) fn has_layer(descriptor: Descriptor) -> bool {
    let mut name = [0; 16];
    let len = read_option(descriptor, libc::IPPROTO_TCP, libc::TCP_ULP, &mut name);
    len.is_ok_and(|len| len > 0)
}

/// Has the bytes of a file put on the disk. Negative if that fails.
pub(in crate::sys) fn sync_data(descriptor: Descriptor) -> i32 {
    // SAFETY: fdatasync(2) demands nothing of memory.
    unsafe { libc::fdatasync(descriptor) }
}

/// Has the bytes of a file and all that is known of it put on the disk. Negative if that fails.
pub(in crate::sys) fn sync_all(descriptor: Descriptor) -> i32 {
    // SAFETY: fsync(2) demands nothing of memory.
    unsafe { libc::fsync(descriptor) }
}

/// Writes parts behind the last byte of a file, wherever that is then. Returns how many bytes.
///
/// # Safety
///
/// There are `count` parts at the pointer, as writev(2) wants them, and their bytes may be read over the call.
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
    // SAFETY: pwritev2(2) reads `count` elements at the pointer, and the bytes of each part. Its position is one word
    // and a zero on 64-bit systems.
    // - valid for reads: the caller says so.
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
