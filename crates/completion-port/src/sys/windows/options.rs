//! Options of sockets, and what the codes of failed calls mean.

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

/// A code of Winsock or of the system. The two have no number in common.
pub(super) type WinsockCode = i32;

/// The code of the call to Winsock that has just failed.
pub(super) fn last_code() -> WinsockCode {
    // SAFETY: WSAGetLastError demands nothing.
    unsafe { WSAGetLastError() }
}

/// The code of the other call that has just failed.
pub(super) fn last_error() -> u32 {
    // SAFETY: GetLastError demands nothing.
    unsafe { GetLastError() }
}

/// The socket of this number.
pub(super) fn socket(descriptor: Descriptor) -> SOCKET {
    // No handle has all bits set, which stands for none.
    SOCKET::try_from(descriptor).unwrap_or(SOCKET::MAX)
}

/// The failure of a call to Winsock about `descriptor`.
pub(super) fn fault(descriptor: Descriptor, code: WinsockCode) -> Fault {
    let kind = match code {
        WSAENOTSOCK if is_open(descriptor) => ErrorKind::Other,
        WSAENOTSOCK | WSAEBADF => ErrorKind::BadDescriptor,
        code => return fault_of(code),
    };
    Fault { kind, code: Some(code) }
}

/// The failure of a call to Winsock about no socket.
pub(super) fn fault_of(code: WinsockCode) -> Fault {
    let kind = match code {
        WSAEMFILE => ErrorKind::DescriptorLimit,
        WSAENOBUFS => ErrorKind::OutOfMemory,
        WSAEAFNOSUPPORT => ErrorKind::Unsupported,
        _ => ErrorKind::Other,
    };
    Fault { kind, code: Some(code) }
}

/// The failure of a call to the system.
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

/// Whether a number names anything at all: Winsock says the same of what is closed and of what is no socket.
pub(super) fn is_open(descriptor: Descriptor) -> bool {
    // Negative numbers stand for this process or thread, whatever they are asked about. The others are multiples of four;
    // the system ignores the rest of one, and a number with it is none that it has given out.
    if descriptor < 0 || descriptor % 4 != 0 {
        return false;
    }
    let mut flags = 0;
    let handle = std::ptr::without_provenance_mut::<core::ffi::c_void>(socket(descriptor));
    let handle: HANDLE = handle;
    // SAFETY: GetHandleInformation writes flags at the pointer, and fails if the handle names nothing.
    // - valid for writes: `flags` is a local.
    let done = unsafe { GetHandleInformation(handle, &raw mut flags) };
    done != 0
}

/// A socket's option that is a number. Refused if it has no such option, or is no socket.
pub(super) fn number(descriptor: Descriptor, level: i32, name: i32) -> Result<i32, WinsockCode> {
    let mut value = [0_u8; 4];
    let mut size = 4;
    // SAFETY: getsockopt writes at most `size` bytes at the first pointer, and reads and writes the size at the
    // other.
    // - valid: both are locals, and `value` has four bytes.
    let done =
        unsafe { getsockopt(socket(descriptor), level, name, value.as_mut_ptr(), &raw mut size) };
    if done == 0 { Ok(i32::from_ne_bytes(value)) } else { Err(last_code()) }
}
