//! What these systems do in their own way of what each Unix does.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::SocketAddr;

use crate::sys::unix::address::RawAddress;
use crate::sys::unix::options::{Code, last_code, option};
use crate::types::source::Descriptor;

/// The flag of sendmsg(2) by which a send to a stream that has ended raises no signal. macOS has none: there the reactor
/// sets the socket's option `SO_NOSIGPIPE` when it attaches the socket.
#[cfg(not(target_os = "macos"))]
pub(in crate::sys) const NO_SIGNAL: i32 = libc::MSG_NOSIGNAL;
#[cfg(target_os = "macos")]
pub(in crate::sys) const NO_SIGNAL: i32 = 0;

/// Whether sockets of `AF_UNIX` may have names without a file.
pub(in crate::sys) const HAS_ABSTRACT_NAMES: bool = false;

pub(in crate::sys) fn abstract_name(_address: &SocketAddr) -> Option<&[u8]> {
    None
}

pub(in crate::sys) fn of_abstract_name(_name: &[u8]) -> Option<SocketAddr> {
    None
}

/// Gives the calling thread a name.
pub(in crate::sys) fn name_thread(name: &CStr) {
    let name = name.as_ptr();
    // SAFETY: each call reads text at the pointer that ends with a zero, and demands a thread that has not ended.
    // - the text is such; the thread is this one.
    #[cfg(target_os = "macos")]
    unsafe {
        libc::pthread_setname_np(name)
    };
    // SAFETY: as above.
    #[cfg(any(target_os = "freebsd", target_os = "openbsd"))]
    unsafe {
        libc::pthread_set_name_np(libc::pthread_self(), name);
    }
    // SAFETY: as above; the text is the format, which names no argument.
    #[cfg(target_os = "netbsd")]
    unsafe {
        libc::pthread_setname_np(libc::pthread_self(), name, std::ptr::null_mut())
    };
}

/// A descriptor that was just made.
pub(super) fn owned(descriptor: Descriptor) -> Result<OwnedFd, Code> {
    if descriptor < 0 {
        return Err(last_code());
    }
    // SAFETY: `from_raw_fd` demands an open descriptor that nothing else owns.
    // - each caller passes what a system call returned it just now.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// From now on the descriptor is not inherited by other programs, and does not wait.
pub(super) fn make_own(descriptor: &OwnedFd) -> Result<(), Code> {
    let number = descriptor.as_raw_fd();
    // SAFETY: fcntl(2) with F_SETFD demands nothing of memory.
    let closes = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    let mut on: libc::c_int = 1;
    // SAFETY: ioctl(2) with FIONBIO reads one int at the pointer.
    // - valid for reads: `on` lives until the call returns.
    let waits_not = unsafe { libc::ioctl(number, libc::FIONBIO, &raw mut on) };
    if closes < 0 || waits_not < 0 { Err(last_code()) } else { Ok(()) }
}

/// A new stream socket that does not wait.
pub(in crate::sys) fn new_stream(family: i32) -> Result<OwnedFd, Code> {
    // SAFETY: socket(2) demands nothing of memory.
    let made = owned(unsafe { libc::socket(family, libc::SOCK_STREAM, 0) })?;
    make_own(&made)?;
    Ok(made)
}

/// connect(2) refuses a stream that is connected already, however it has come to be so.
pub(in crate::sys) const ADOPTS_CONNECTIONS: bool = false;

/// There is no call that breaks a connect of a stream off and leaves the socket as it was before.
pub(in crate::sys) fn disconnect(_descriptor: Descriptor) -> bool {
    false
}

/// A connection from a listener's queue, which does not wait, and the address of its peer.
pub(in crate::sys) fn accept(
    descriptor: Descriptor,
    peer: &mut RawAddress,
) -> Result<OwnedFd, Code> {
    let (address, len): (_, *mut libc::socklen_t) = (peer.as_mut_ptr(), peer.len_mut());
    // SAFETY: accept(2) and accept4(2) read a length at the second pointer, write at most so many bytes at the first
    // and the full length at the second.
    // - valid: both point into `peer`, which is borrowed mutably, and whose length is that of its room.
    #[cfg(not(target_os = "macos"))]
    return owned(unsafe {
        libc::accept4(descriptor, address, len, libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC)
    });
    // SAFETY: as above.
    #[cfg(target_os = "macos")]
    {
        let accepted = owned(unsafe { libc::accept(descriptor, address, len) })?;
        make_own(&accepted)?;
        Ok(accepted)
    }
}

/// Whether an error of accept(2) is of one connection, and another one may stand behind it.
pub(in crate::sys) fn is_of_connection(code: Code) -> bool {
    matches!(code, libc::ECONNABORTED | libc::ECONNRESET | libc::EPROTO)
}

/// Whether a socket is a stream of TCP.
pub(in crate::sys) fn is_tcp(descriptor: Descriptor) -> bool {
    // No other protocol has the option.
    option(descriptor, libc::IPPROTO_TCP, libc::TCP_NODELAY).is_ok()
}

/// An attempt to read tells whether the reading half was shut.
pub(in crate::sys) const READING_SHUT: i16 = 0;

/// No layer lies between a TCP stream and its reader, as far as the manual pages say.
pub(in crate::sys) fn has_layer(_descriptor: Descriptor) -> bool {
    false
}

/// Has the bytes of a file put on the disk. Negative if that fails.
#[cfg(not(target_os = "macos"))]
pub(in crate::sys) fn sync_data(descriptor: Descriptor) -> i32 {
    // SAFETY: fdatasync(2) demands nothing of memory.
    unsafe { libc::fdatasync(descriptor) }
}

/// Has the bytes of a file and all that is known of it put on the disk. Negative if that fails.
#[cfg(not(target_os = "macos"))]
pub(in crate::sys) fn sync_all(descriptor: Descriptor) -> i32 {
    // SAFETY: fsync(2) demands nothing of memory.
    unsafe { libc::fsync(descriptor) }
}

/// Has the bytes of a file put on the disk. Negative if that fails.
#[cfg(target_os = "macos")]
pub(in crate::sys) fn sync_data(descriptor: Descriptor) -> i32 {
    sync_all(descriptor)
}

/// Has the bytes of a file and all that is known of it put on the disk. Negative if that fails.
#[cfg(target_os = "macos")]
pub(in crate::sys) fn sync_all(descriptor: Descriptor) -> i32 {
    // fsync(2) leaves them in the disk's own memory.
    // SAFETY: fcntl(2) with F_FULLFSYNC demands nothing of memory.
    let done = unsafe { libc::fcntl(descriptor, libc::F_FULLFSYNC) };
    if done >= 0 || last_code() == libc::EINTR {
        return done;
    }
    // A file system that has no such thing.
    // SAFETY: fsync(2) demands nothing of memory.
    unsafe { libc::fsync(descriptor) }
}

/// Writes parts behind the last byte of a file: no call does that of a file that was not opened for it.
///
/// # Safety
///
/// None is needed here; other systems read the parts.
pub(in crate::sys) unsafe fn append(
    _descriptor: Descriptor,
    _parts: *const libc::iovec,
    _count: i32,
) -> Result<usize, Code> {
    Err(libc::EOPNOTSUPP)
}
