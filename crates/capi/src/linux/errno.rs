//! System errors: `errno`, and their codes.

use std::ffi::c_int;
use std::io;

use crate::errors::code;

/// Why a call has failed.
pub(crate) fn errno() -> c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: __errno_location(3) demands nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: writing through a raw pointer demands that it is valid, and that no other thread uses
    // the memory.
    // - it is the calling thread's own number.
    unsafe { place.write(errno) };
}

/// Queries the system for the library itself. A failure leaves `errno` unchanged: the program may
/// still have to read the code of its last failed call.
pub(crate) fn keeping_errno<R>(ask: impl FnOnce() -> R) -> R {
    let before = errno();
    let answer = ask();
    set_errno(before);
    answer
}

/// How often one call was repeated after an interruption by a signal.
#[derive(Debug, Default)]
pub(crate) struct Signals(u16);

impl Signals {
    /// This many signals are implausible: the system refuses the call.
    const MOST: u16 = 1000;

    /// Whether to repeat the call, which has failed with this code.
    pub(crate) fn ended(&mut self, errno: i32) -> bool {
        self.0 += u16::from(errno == libc::EINTR);
        errno == libc::EINTR && self.0 <= Self::MOST
    }
}

/// The code of a system error (`errno`) of a socket call.
#[must_use]
pub fn code_of_errno(errno: i32) -> u32 {
    match errno {
        0 => code::SUCCESS,
        libc::EINTR => 10004,
        libc::EACCES | libc::EPERM => 10013,
        libc::EFAULT => code::WSAEFAULT,
        libc::EINVAL => code::WSAEINVAL,
        libc::EMFILE | libc::ENFILE => 10024,
        libc::EAGAIN => code::WSAEWOULDBLOCK,
        libc::EINPROGRESS => 10036,
        libc::EALREADY => 10037,
        // The reference has only sockets here.
        libc::EBADF | libc::ENOTSOCK => code::WSAENOTSOCK,
        libc::EDESTADDRREQ => 10039,
        libc::EMSGSIZE => 10040,
        libc::EPROTOTYPE => 10041,
        libc::ENOPROTOOPT => 10042,
        libc::EPROTONOSUPPORT => 10043,
        libc::ESOCKTNOSUPPORT => 10044,
        libc::EOPNOTSUPP => 10045,
        libc::EPFNOSUPPORT => 10046,
        libc::EAFNOSUPPORT => 10047,
        libc::EADDRINUSE => 10048,
        libc::EADDRNOTAVAIL => 10049,
        libc::ENETDOWN => 10050,
        libc::ENETUNREACH => 10051,
        libc::ENETRESET => 10052,
        libc::ECONNABORTED => 10053,
        // For the reference, a stream without a reader is reset.
        libc::ECONNRESET | libc::EPIPE => 10054,
        libc::ENOBUFS | libc::ENOMEM => 10055,
        libc::EISCONN => 10056,
        libc::ENOTCONN => 10057,
        libc::ESHUTDOWN => 10058,
        libc::ETOOMANYREFS => 10059,
        libc::ETIMEDOUT => 10060,
        // Also the answer for a path at which no socket listens.
        libc::ECONNREFUSED | libc::ENOENT => 10061,
        libc::ELOOP => 10062,
        libc::ENAMETOOLONG => 10063,
        libc::EHOSTDOWN => 10064,
        libc::EHOSTUNREACH => 10065,
        libc::ENOTEMPTY => 10066,
        libc::EUSERS => 10068,
        libc::EDQUOT => 10069,
        libc::ESTALE => 10070,
        libc::EREMOTE => 10071,
        _ => code::WSASYSCALLFAILURE,
    }
}

/// The code of a system error.
#[unsafe(no_mangle)]
pub extern "C" fn cp_error_of_errno(errno: i32) -> u32 {
    code_of_errno(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_system_error_is_a_success() {
        for errno in 1..200 {
            assert!(code_of_errno(errno) >= 10000, "errno {errno}");
        }
        assert_eq!(code_of_errno(libc::EAGAIN), 10035);
        assert_eq!(code_of_errno(libc::EWOULDBLOCK), 10035);
    }
}
