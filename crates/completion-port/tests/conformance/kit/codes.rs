//! Error codes, under their Unix names.

use testkit::System;

#[cfg(unix)]
pub(crate) use libc::{
    EALREADY, EBADF, ECONNREFUSED, ECONNRESET, EEXIST, EINTR, EINVAL, EIO, EISCONN, ENOBUFS,
    ENOMEM, ENOSPC, ENOTSOCK, EPERM,
};

#[cfg(windows)]
pub(crate) use windows::{
    EALREADY, EBADF, ECONNREFUSED, ECONNRESET, EEXIST, EINTR, EINVAL, EIO, EISCONN, ENOBUFS,
    ENOMEM, ENOSPC, ENOTSOCK, EPERM,
};

/// Returns the system's code for a descriptor that can't be watched.
pub(crate) fn not_pollable(on: &System) -> i32 {
    if cfg!(windows) && on.kernel().is_none() { ENOTSOCK } else { EPERM }
}

/// Returns the system's code for a number that names nothing. Winsock uses the same code for
/// something that is not a socket.
pub(crate) fn bad_descriptor(on: &System) -> i32 {
    if cfg!(windows) && on.kernel().is_none() { ENOTSOCK } else { EBADF }
}

/// Returns the system's code for a socket whose datagram reached no receiver.
pub(crate) fn unreachable(on: &System) -> i32 {
    if cfg!(windows) && on.kernel().is_none() { ECONNRESET } else { ECONNREFUSED }
}

/// Returns whether the code reports a send after the socket's own shutdown, or after the end of the
/// connection.
pub(crate) fn is_broken_pipe(code: Option<i32>) -> bool {
    #[cfg(unix)]
    let codes = [libc::EPIPE];
    #[cfg(windows)]
    let codes = windows::BROKEN_PIPE;
    code.is_some_and(|code| codes.contains(&code))
}

#[cfg(windows)]
mod windows {
    pub(crate) const EPERM: i32 = 5;
    pub(crate) const EBADF: i32 = 6;
    pub(crate) const ENOMEM: i32 = 8;
    pub(crate) const ENOSPC: i32 = 112;
    pub(crate) const EEXIST: i32 = 183;
    pub(crate) const EIO: i32 = 1117;
    pub(crate) const EINTR: i32 = 10004;
    pub(crate) const EINVAL: i32 = 10022;
    pub(crate) const EALREADY: i32 = 10037;
    pub(crate) const ENOTSOCK: i32 = 10038;
    pub(crate) const ECONNRESET: i32 = 10054;
    pub(crate) const ENOBUFS: i32 = 10055;
    pub(crate) const EISCONN: i32 = 10056;
    pub(crate) const ECONNREFUSED: i32 = 10061;
    /// A simulated socket's code, WSAECONNABORTED and WSAESHUTDOWN.
    pub(super) const BROKEN_PIPE: [i32; 3] = [109, 10053, 10058];
}
