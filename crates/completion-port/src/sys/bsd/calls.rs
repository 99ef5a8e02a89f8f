//! System calls that macOS and the BSDs make differently from other Unix systems.

use std::ffi::CStr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::SocketAddr;

use crate::sys::unix::address::RawAddress;
use crate::sys::unix::options::{Code, last_code, option};
use crate::types::source::Descriptor;

/// The sendmsg(2) flag that prevents the signal for a send to an ended stream. macOS has none: the
/// reactor sets the option `SO_NOSIGPIPE` when it attaches a socket.
#[cfg(not(target_os = "macos"))]
pub(in crate::sys) const NO_SIGNAL: i32 = libc::MSG_NOSIGNAL;
#[cfg(target_os = "macos")]
pub(in crate::sys) const NO_SIGNAL: i32 = 0;

/// Whether `AF_UNIX` sockets can have names without a file.
pub(in crate::sys) const HAS_ABSTRACT_NAMES: bool = false;

pub(in crate::sys) fn abstract_name(_address: &SocketAddr) -> Option<&[u8]> {
    None
}

pub(in crate::sys) fn of_abstract_name(_name: &[u8]) -> Option<SocketAddr> {
    None
}

/// Names the calling thread.
pub(in crate::sys) fn name_thread(name: &CStr) {
    let name = name.as_ptr();
    // SAFETY: each call reads text at the pointer up to a zero, and requires a thread that has not
    // ended.
    // - the text ends with a zero; the thread is this one.
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

/// Takes ownership of a descriptor that was just made.
pub(super) fn owned(descriptor: Descriptor) -> Result<OwnedFd, Code> {
    if descriptor < 0 {
        return Err(last_code());
    }
    // SAFETY: `from_raw_fd` requires an open descriptor that nothing else owns.
    // - each caller passes a descriptor that a system call has just returned.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Makes a descriptor close-on-exec and non-blocking.
pub(super) fn make_own(descriptor: &OwnedFd) -> Result<(), Code> {
    let number = descriptor.as_raw_fd();
    // SAFETY: fcntl(2) with F_SETFD has no memory requirements.
    let closes = unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    let mut on: libc::c_int = 1;
    // SAFETY: ioctl(2) with FIONBIO reads one int at the pointer.
    // - valid for reads: `on` lives until the call returns.
    let waits_not = unsafe { libc::ioctl(number, libc::FIONBIO, &raw mut on) };
    if closes < 0 || waits_not < 0 { Err(last_code()) } else { Ok(()) }
}

/// Makes a non-blocking stream socket.
pub(in crate::sys) fn new_stream(family: i32) -> Result<OwnedFd, Code> {
    // SAFETY: socket(2) has no memory requirements.
    let made = owned(unsafe { libc::socket(family, libc::SOCK_STREAM, 0) })?;
    make_own(&made)?;
    Ok(made)
}

/// connect(2) fails on a stream that is already connected, however it was connected.
pub(in crate::sys) const ADOPTS_CONNECTIONS: bool = false;

/// No call cancels the connect of a stream and returns the socket to its former state.
pub(in crate::sys) fn disconnect(_descriptor: Descriptor) -> bool {
    false
}

/// Accepts a connection from a listener's queue, non-blocking, and the address of its peer.
pub(in crate::sys) fn accept(
    descriptor: Descriptor,
    peer: &mut RawAddress,
) -> Result<OwnedFd, Code> {
    let (address, len): (_, *mut libc::socklen_t) = (peer.as_mut_ptr(), peer.len_mut());
    // SAFETY: accept(2) and accept4(2) read a length at the second pointer, write at most that many
    // bytes at the first, and write the full length at the second.
    // - valid: both point into `peer`, which is borrowed mutably and whose length is that of its
    //   room.
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

/// Returns whether an error of accept(2) concerns one connection, so the next one may succeed.
pub(in crate::sys) fn is_of_connection(code: Code) -> bool {
    matches!(code, libc::ECONNABORTED | libc::ECONNRESET | libc::EPROTO)
}

/// Returns whether a socket is a TCP stream.
pub(in crate::sys) fn is_tcp(descriptor: Descriptor) -> bool {
    // No other protocol has this option.
    option(descriptor, libc::IPPROTO_TCP, libc::TCP_NODELAY).is_ok()
}

/// `MSG_TRUNC` is only a result here.
pub(in crate::sys) fn is_udp(_descriptor: Descriptor) -> bool {
    false
}

/// Reads report that the reading half was shut, so poll(2) is not needed for it.
pub(in crate::sys) const READING_SHUT: i16 = 0;

/// By the manual pages, no layer lies between a TCP stream and its reader.
pub(in crate::sys) fn has_layer(_descriptor: Descriptor) -> bool {
    false
}

/// Writes the data of a file to the disk. Negative if that fails.
#[cfg(not(target_os = "macos"))]
pub(in crate::sys) fn sync_data(descriptor: Descriptor) -> i32 {
    // SAFETY: fdatasync(2) has no memory requirements.
    unsafe { libc::fdatasync(descriptor) }
}

/// Writes the data and metadata of a file to the disk. Negative if that fails.
#[cfg(not(target_os = "macos"))]
pub(in crate::sys) fn sync_all(descriptor: Descriptor) -> i32 {
    // SAFETY: fsync(2) has no memory requirements.
    unsafe { libc::fsync(descriptor) }
}

/// Writes the data of a file to the disk. Negative if that fails.
#[cfg(target_os = "macos")]
pub(in crate::sys) fn sync_data(descriptor: Descriptor) -> i32 {
    sync_all(descriptor)
}

/// Writes the data and metadata of a file to the disk. Negative if that fails.
#[cfg(target_os = "macos")]
pub(in crate::sys) fn sync_all(descriptor: Descriptor) -> i32 {
    // fsync(2) leaves the data in the disk's own cache.
    // SAFETY: fcntl(2) with F_FULLFSYNC has no memory requirements.
    let done = unsafe { libc::fcntl(descriptor, libc::F_FULLFSYNC) };
    if done >= 0 || last_code() == libc::EINTR {
        return done;
    }
    // The file system does not support it.
    // SAFETY: fsync(2) has no memory requirements.
    unsafe { libc::fsync(descriptor) }
}

/// Appends parts to a file. Fails: these systems append only to files that were opened for it.
///
/// # Safety
///
/// No requirements here; other systems read the parts.
pub(in crate::sys) unsafe fn append(
    _descriptor: Descriptor,
    _parts: *const libc::iovec,
    _count: i32,
) -> Result<usize, Code> {
    Err(libc::EOPNOTSUPP)
}
