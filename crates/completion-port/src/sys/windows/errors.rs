//! The errors of the system calls, each described by one [`Errors`]. PLATFORM.md has a summary.

use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_CALL_NOT_IMPLEMENTED, ERROR_NO_SYSTEM_RESOURCES,
    ERROR_NOT_ENOUGH_MEMORY, ERROR_NOT_ENOUGH_QUOTA, ERROR_NOT_SUPPORTED,
};
use windows_sys::Win32::Networking::WinSock::{
    WSAEALREADY, WSAEINPROGRESS, WSAEMFILE, WSAENOBUFS, WSAEWOULDBLOCK,
};

use super::options::WinsockCode;
use crate::sys::portable::errors;
use crate::sys::portable::errors::Errors;
use crate::types::error::Fault;

/// The codes for a shortage of memory.
const SHORT: [WinsockCode; 4] = [
    ERROR_NO_SYSTEM_RESOURCES.cast_signed(),
    ERROR_NOT_ENOUGH_MEMORY.cast_signed(),
    ERROR_NOT_ENOUGH_QUOTA.cast_signed(),
    WSAENOBUFS,
];

/// `GetQueuedCompletionStatusEx`, `PostQueuedCompletionStatus` and `ProcessSocketNotifications`.
///
/// A post is retried without a limit, since a thread may sleep until its packet comes.
pub(super) const PORT: Errors = Errors { again: &SHORT, ..Errors::NONE };

/// `WSARecv`, `WSARecvFrom`, `WSASend`, `WSASendTo`.
pub(super) const TRANSFER: Errors =
    Errors { ready: &[WSAEWOULDBLOCK], later: &[WSAENOBUFS], ..Errors::NONE };

/// `connect`. `WSAEALREADY`: an earlier connect is in progress.
pub(super) const CONNECT: Errors = Errors {
    ready: &[WSAEWOULDBLOCK, WSAEINPROGRESS, WSAEALREADY],
    later: &[WSAENOBUFS],
    ..Errors::NONE
};

/// `accept`.
pub(super) const ACCEPT: Errors =
    Errors { ready: &[WSAEWOULDBLOCK], later: &[WSAENOBUFS, WSAEMFILE], ..Errors::NONE };

/// Converts the error code of a failed wait.
pub(super) fn fault_of_wait(code: WinsockCode) -> Fault {
    let forbidden = [ERROR_ACCESS_DENIED, ERROR_CALL_NOT_IMPLEMENTED, ERROR_NOT_SUPPORTED];
    errors::fault_of_wait(code, &forbidden.map(u32::cast_signed), &SHORT)
}
