//! The types that own and name a descriptor on this system.

#[cfg(unix)]
pub(crate) use std::os::fd::{OwnedFd, RawFd};
#[cfg(windows)]
pub(crate) use std::os::windows::io::OwnedSocket as OwnedFd;

/// A socket's number: the lower 32 bits of its handle, the only significant ones.
#[cfg(windows)]
pub(crate) type RawFd = i32;

/// Returns the number of `descriptor`.
#[cfg(unix)]
pub(crate) fn number_of(descriptor: &OwnedFd) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(descriptor)
}

/// Returns the number of `socket`.
///
/// A socket is a kernel handle, of which only the lower 32 bits are significant. A socket with more
/// bits would come from a provider that invents its own handles. For such a socket this returns -1,
/// which names no socket, so that registering it fails with a bad descriptor.
#[cfg(windows)]
pub(crate) fn number_of(socket: &impl std::os::windows::io::AsRawSocket) -> i32 {
    i32::try_from(socket.as_raw_socket()).unwrap_or(-1)
}
