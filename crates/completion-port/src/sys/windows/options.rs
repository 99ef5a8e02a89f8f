//! Options of sockets, and the errors of failed calls.

use windows_sys::Win32::Foundation::{
    ERROR_INVALID_HANDLE, ERROR_NO_SYSTEM_RESOURCES, ERROR_NOT_ENOUGH_MEMORY,
    ERROR_NOT_ENOUGH_QUOTA, ERROR_TOO_MANY_OPEN_FILES, GetHandleInformation, GetLastError, HANDLE,
};
use windows_sys::Win32::Networking::WinSock::{
    SOCKET, WSAEAFNOSUPPORT, WSAEBADF, WSAEMFILE, WSAENOBUFS, WSAENOTSOCK, WSAGetLastError,
    getsockopt,
};

use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// A code of Winsock or of the system. Their numbers do not overlap.
pub(super) type WinsockCode = i32;

/// Returns the code of the Winsock call that has just failed.
pub(super) fn last_code() -> WinsockCode {
    // SAFETY: WSAGetLastError has no requirements.
    unsafe { WSAGetLastError() }
}

/// Returns the code of the system call that has just failed.
pub(super) fn last_error() -> u32 {
    // SAFETY: GetLastError has no requirements.
    unsafe { GetLastError() }
}

/// Converts a descriptor to a socket.
pub(super) fn socket(descriptor: Descriptor) -> SOCKET {
    // No handle has all bits set, which means none.
    SOCKET::try_from(descriptor).unwrap_or(SOCKET::MAX)
}

/// Returns the fault of a Winsock call on `descriptor`.
pub(super) fn fault(descriptor: Descriptor, code: WinsockCode) -> Fault {
    let kind = match code {
        WSAENOTSOCK if is_open(descriptor) => ErrorKind::Other,
        WSAENOTSOCK | WSAEBADF => ErrorKind::BadDescriptor,
        code => return fault_of(code),
    };
    Fault { kind, code: Some(code) }
}

/// Returns the fault of a Winsock call without a socket.
pub(super) fn fault_of(code: WinsockCode) -> Fault {
    let kind = match code {
        WSAEMFILE => ErrorKind::DescriptorLimit,
        WSAENOBUFS => ErrorKind::OutOfMemory,
        WSAEAFNOSUPPORT => ErrorKind::Unsupported,
        _ => ErrorKind::Other,
    };
    Fault { kind, code: Some(code) }
}

/// Returns the fault of a system call.
pub(super) fn system_fault(code: u32) -> Fault {
    let kind = match code {
        ERROR_INVALID_HANDLE => ErrorKind::BadDescriptor,
        ERROR_TOO_MANY_OPEN_FILES => ErrorKind::DescriptorLimit,
        ERROR_NOT_ENOUGH_MEMORY | ERROR_NOT_ENOUGH_QUOTA | ERROR_NO_SYSTEM_RESOURCES => {
            ErrorKind::OutOfMemory
        }
        _ => ErrorKind::Other,
    };
    Fault { kind, code: Some(code.cast_signed()) }
}

/// Returns whether a number names any open object.
///
/// Winsock has one code for closed numbers and for numbers that are not sockets.
pub(super) fn is_open(descriptor: Descriptor) -> bool {
    // Negative numbers are pseudo-handles of this process or thread, which every call accepts. The
    // others are multiples of four: the system ignores the lowest bits, and assigns no number that
    // has them set.
    if descriptor < 0 || descriptor % 4 != 0 {
        return false;
    }
    let mut flags = 0;
    let handle = std::ptr::without_provenance_mut::<core::ffi::c_void>(socket(descriptor));
    let handle: HANDLE = handle;
    // SAFETY: GetHandleInformation writes flags at the pointer, and fails if the handle names
    // nothing.
    // - valid for writes: `flags` is a local.
    let done = unsafe { GetHandleInformation(handle, &raw mut flags) };
    done != 0
}

/// Returns a numeric option of a socket. Fails if the descriptor has no such option.
pub(super) fn number(descriptor: Descriptor, level: i32, name: i32) -> Result<i32, WinsockCode> {
    let mut value = [0_u8; 4];
    let mut size = 4;
    // SAFETY: getsockopt writes at most `size` bytes at the first pointer, and reads and writes the
    // size at the other.
    // - valid: both are locals, and `value` has four bytes.
    let done =
        unsafe { getsockopt(socket(descriptor), level, name, value.as_mut_ptr(), &raw mut size) };
    if done == 0 { Ok(i32::from_ne_bytes(value)) } else { Err(last_code()) }
}
