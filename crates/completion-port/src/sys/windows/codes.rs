//! The error codes, under the names that the simulated kernel uses, with the values that
//! [`std::io::Error`] knows on this system.

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_ALREADY_EXISTS, ERROR_BROKEN_PIPE, ERROR_CALL_NOT_IMPLEMENTED,
    ERROR_DEV_NOT_EXIST, ERROR_DISK_FULL, ERROR_FILE_NOT_FOUND, ERROR_FILE_TOO_LARGE,
    ERROR_INVALID_HANDLE, ERROR_IO_DEVICE, ERROR_NOT_ENOUGH_MEMORY, ERROR_SEEK_ON_DEVICE,
    ERROR_TOO_MANY_OPEN_FILES,
};
use windows_sys::Win32::Networking::WinSock;

/// Converts a code of the system to the form of [`std::io::Error`].
const fn code(code: u32) -> i32 {
    code.cast_signed()
}

pub(crate) const EACCES: i32 = WinSock::WSAEACCES;
pub(crate) const EAGAIN: i32 = WinSock::WSAEWOULDBLOCK;
pub(crate) const EALREADY: i32 = WinSock::WSAEALREADY;
pub(crate) const EBADF: i32 = code(ERROR_INVALID_HANDLE);
pub(crate) const ECONNABORTED: i32 = WinSock::WSAECONNABORTED;
pub(crate) const ECONNREFUSED: i32 = WinSock::WSAECONNREFUSED;
pub(crate) const ECONNRESET: i32 = WinSock::WSAECONNRESET;
pub(crate) const EDESTADDRREQ: i32 = WinSock::WSAEDESTADDRREQ;
pub(crate) const EEXIST: i32 = code(ERROR_ALREADY_EXISTS);
pub(crate) const EFBIG: i32 = code(ERROR_FILE_TOO_LARGE);
pub(crate) const EINPROGRESS: i32 = WinSock::WSAEINPROGRESS;
pub(crate) const EINTR: i32 = WinSock::WSAEINTR;
pub(crate) const EINVAL: i32 = WinSock::WSAEINVAL;
pub(crate) const EIO: i32 = code(ERROR_IO_DEVICE);
pub(crate) const EISCONN: i32 = WinSock::WSAEISCONN;
pub(crate) const EMFILE: i32 = WinSock::WSAEMFILE;
pub(crate) const EMSGSIZE: i32 = WinSock::WSAEMSGSIZE;
pub(crate) const ENFILE: i32 = code(ERROR_TOO_MANY_OPEN_FILES);
pub(crate) const ENOBUFS: i32 = WinSock::WSAENOBUFS;
pub(crate) const ENODEV: i32 = code(ERROR_DEV_NOT_EXIST);
pub(crate) const ENOENT: i32 = code(ERROR_FILE_NOT_FOUND);
pub(crate) const ENOMEM: i32 = code(ERROR_NOT_ENOUGH_MEMORY);
pub(crate) const ENOSPC: i32 = code(ERROR_DISK_FULL);
pub(crate) const ENOSYS: i32 = code(ERROR_CALL_NOT_IMPLEMENTED);
pub(crate) const ENOTCONN: i32 = WinSock::WSAENOTCONN;
pub(crate) const ENOTSOCK: i32 = WinSock::WSAENOTSOCK;
pub(crate) const EOPNOTSUPP: i32 = WinSock::WSAEOPNOTSUPP;
pub(crate) const EPERM: i32 = code(ERROR_ACCESS_DENIED);
pub(crate) const EPIPE: i32 = code(ERROR_BROKEN_PIPE);
pub(crate) const ESPIPE: i32 = code(ERROR_SEEK_ON_DEVICE);
