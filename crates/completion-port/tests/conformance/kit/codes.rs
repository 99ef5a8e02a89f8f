//! Codes of errors, by the names that they have on Unix.

#[cfg(unix)]
pub(crate) use libc::{ECONNRESET, EINVAL, EIO, ENOBUFS, ENOTSOCK};

#[cfg(windows)]
pub(crate) use windows::{ECONNRESET, EINVAL, EIO, ENOBUFS, ENOTSOCK};

#[cfg(windows)]
mod windows {
    pub(crate) const EINVAL: i32 = 10022;
    pub(crate) const EIO: i32 = 1117;
    pub(crate) const ENOTSOCK: i32 = 10038;
    pub(crate) const ECONNRESET: i32 = 10054;
    pub(crate) const ENOBUFS: i32 = 10055;
}
