//! What owns a descriptor on this system, and what names one.

#[cfg(unix)]
pub(crate) use std::os::fd::{OwnedFd, RawFd};
#[cfg(windows)]
pub(crate) use std::os::windows::io::OwnedSocket as OwnedFd;

/// The number of a socket. It has the 32 bits of a handle that count.
#[cfg(windows)]
pub(crate) type RawFd = i32;

/// The number of what the system calls `descriptor`.
#[cfg(unix)]
pub(crate) fn number_of(descriptor: &OwnedFd) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(descriptor)
}

/// The number of what the system calls `socket`. A socket is a handle of the kernel, and of a handle the lower 32 bits
/// count. One that has more would be of a provider that makes up its own: -1 names no socket, so that it is refused when it
/// is registered, as a bad descriptor.
#[cfg(windows)]
pub(crate) fn number_of(socket: &impl std::os::windows::io::AsRawSocket) -> i32 {
    i32::try_from(socket.as_raw_socket()).unwrap_or(-1)
}
