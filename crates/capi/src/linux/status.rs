//! How an operation has ended: the statuses that the reference stores in an OVERLAPPED, and their
//! codes in Win32's and in Winsock's calls.

use crate::errors::code;
use crate::linux::errno::code_of_errno;

/// `STATUS_SUCCESS`.
pub(crate) const SUCCESS: u32 = 0;
/// `STATUS_PENDING`: it has not ended.
pub(crate) const PENDING: u32 = 0x103;
/// `STATUS_BUFFER_OVERFLOW`: a datagram was longer than the buffers.
pub(crate) const CUT: u32 = 0x8000_0005;
/// `STATUS_CANCELLED`.
pub(crate) const CANCELLED: u32 = 0xC000_0120;
/// `STATUS_PORT_UNREACHABLE`.
pub(crate) const PORT_UNREACHABLE: u32 = 0xC000_023F;
/// `STATUS_END_OF_FILE`.
pub(crate) const END_OF_FILE: u32 = 0xC000_0011;
/// `STATUS_PIPE_BROKEN`.
pub(crate) const PIPE_BROKEN: u32 = 0xC000_014B;
/// `STATUS_UNSUCCESSFUL`.
pub(crate) const UNSUCCESSFUL: u32 = 0xC000_0001;

/// A status, and its codes in Win32's and in Winsock's calls.
type Meaning = (u32, u32, u32);

/// What has a meaning of its own. The first status of a Winsock code is the one that it becomes.
const MEANINGS: [Meaning; 72] = [
    (SUCCESS, code::SUCCESS, code::SUCCESS),
    (CUT, 234, code::WSAEMSGSIZE),
    (CANCELLED, code::OPERATION_ABORTED, code::OPERATION_ABORTED),
    (0xC000_0008, code::INVALID_HANDLE, code::WSAENOTSOCK),
    (0xC000_0022, 5, 10013),
    (0xC000_0005, 998, code::WSAEFAULT),
    (0xC000_000D, code::INVALID_PARAMETER, code::WSAEINVAL),
    (0xC000_011F, 4, 10024),
    (0xC000_0206, 1784, code::WSAEMSGSIZE),
    (0xC000_00BB, 50, code::WSAEOPNOTSUPP),
    (0xC000_0141, 59, 10047),
    (0xC000_020A, 52, 10048),
    (0xC000_0207, 1214, 10049),
    (0xC000_023C, 1231, 10051),
    (0xC000_0241, 1236, 10053),
    (0xC000_020D, 64, 10054),
    (0xC000_009A, code::NO_SYSTEM_RESOURCES, code::WSAENOBUFS),
    (0xC000_023B, 1230, 10056),
    (0xC000_023A, 1229, 10057),
    (0xC000_00B0, 233, 10058),
    (0xC000_00B5, 121, code::WSAETIMEDOUT),
    (0xC000_0236, 1225, 10061),
    (0xC000_023D, 1232, 10065),
    // What an unconnected datagram socket hears of.
    (PORT_UNREACHABLE, 1234, 10054),
    (UNSUCCESSFUL, 31, code::WSASYSCALLFAILURE),
    (0xC000_00C4, 59, 10050),
    (0xC000_0240, 1235, 10004),
    (0xC000_0350, 1256, 10064),
    // What other libraries post, or write themselves.
    (0xC000_0237, 1226, 10101),
    (0xC000_013B, 64, 10053),
    (0xC000_020C, 64, 10054),
    (0xC000_0017, code::NOT_ENOUGH_MEMORY, code::WSAENOBUFS),
    (0xC000_0002, 1, code::WSAEOPNOTSUPP),
    (0xC000_0007, 1454, code::WSAENOBUFS),
    (0xC000_000E, code::FILE_NOT_FOUND, 10050),
    (0xC000_000F, code::FILE_NOT_FOUND, 10050),
    (0xC000_0018, code::INVALID_ADDRESS, code::WSAENOBUFS),
    (0xC000_0023, code::INSUFFICIENT_BUFFER, code::WSAEFAULT),
    (0xC000_0024, code::INVALID_HANDLE, code::WSAENOTSOCK),
    (0xC000_0034, code::FILE_NOT_FOUND, 10050),
    (0xC000_003A, code::PATH_NOT_FOUND, 10050),
    (0xC000_0043, code::SHARING_VIOLATION, 10048),
    (0xC000_0044, 1816, code::WSAENOBUFS),
    (0xC000_0097, code::NOT_ENOUGH_MEMORY, code::WSAENOBUFS),
    (0xC000_00A1, 1453, code::WSAENOBUFS),
    (0xC000_00A3, 21, code::WSAEWOULDBLOCK),
    (0xC000_00BC, 51, 10061),
    (0xC000_00BE, 53, 10051),
    (0xC000_00BF, 54, 10050),
    (0xC000_00C3, 58, 10050),
    (0xC000_00D0, 71, code::WSAEWOULDBLOCK),
    (0xC000_012D, 1455, code::WSAENOBUFS),
    (0xC000_013C, 64, 10054),
    (0xC000_013D, 51, code::WSAENOBUFS),
    (0xC000_013E, 59, 10054),
    (0xC000_013F, 59, code::WSAETIMEDOUT),
    (0xC000_0140, 59, 10057),
    (0xC000_0209, 68, code::WSAENOBUFS),
    (0xC000_020F, 59, 10053),
    (0xC000_023E, 1233, 10051),
    (0xC000_02C5, code::NOACCESS, code::WSAEFAULT),
    // Only for files.
    (END_OF_FILE, code::HANDLE_EOF, code::WSAEINVAL),
    (0xC000_0010, 1, code::WSAEINVAL),
    (0xC000_00A2, 19, code::WSAEINVAL),
    (0xC000_003F, 23, code::WSAEINVAL),
    (0xC000_00C0, 55, code::WSAEINVAL),
    (PIPE_BROKEN, 109, code::WSAEINVAL),
    (0xC000_007F, 112, code::WSAEINVAL),
    (0xC000_0904, 223, code::WSAEINVAL),
    (0xC000_00B1, 232, code::WSAEINVAL),
    (0xC000_00D9, 232, code::WSAEINVAL),
    (0xC000_0185, 1117, code::WSAEINVAL),
];

/// An unknown status is `ERROR_MR_MID_NOT_FOUND` in Win32 and `WSAEINVAL` in Winsock.
fn meaning(status: u32) -> Meaning {
    let found = MEANINGS.into_iter().find(|(known, ..)| *known == status);
    found.unwrap_or((status, 317, code::WSAEINVAL))
}

/// The status of a system error.
pub(crate) fn of_errno(errno: i32) -> u32 {
    of_winsock(code_of_errno(errno))
}

/// The status of a code of Winsock's.
pub(crate) fn of_winsock(wanted: u32) -> u32 {
    let errors = || MEANINGS.into_iter().filter(|(status, ..)| *status != CUT);
    let found = errors().find(|(_, _, code)| *code == wanted);
    found.map_or(UNSUCCESSFUL, |(status, ..)| status)
}

/// The status of a system error of an operation on a file.
pub(crate) fn of_file(errno: i32) -> u32 {
    match errno {
        // It is not open for this, or not to be changed.
        libc::EBADF | libc::EACCES | libc::EPERM => 0xC000_0022,
        libc::EINVAL => 0xC000_000D,
        libc::EFAULT => 0xC000_0005,
        libc::ENOMEM | libc::ENOBUFS => 0xC000_0017,
        libc::EMFILE | libc::ENFILE => 0xC000_011F,
        // A folder.
        libc::EISDIR => 0xC000_0010,
        libc::EROFS => 0xC000_00A2,
        libc::EUCLEAN | libc::EBADMSG => 0xC000_003F,
        libc::ENXIO | libc::ENODEV => 0xC000_00C0,
        libc::ESTALE | libc::ENOTCONN | libc::EREMOTEIO => 0xC000_00C4,
        libc::ETIMEDOUT => 0xC000_00B5,
        libc::ENOSPC | libc::EDQUOT => 0xC000_007F,
        libc::EFBIG | libc::EOVERFLOW => 0xC000_0904,
        libc::EPIPE => 0xC000_00B1,
        libc::EAGAIN => 0xC000_00D9,
        libc::EIO => 0xC000_0185,
        libc::ECANCELED => CANCELLED,
        _ => UNSUCCESSFUL,
    }
}

/// The code for a status in `GetQueuedCompletionStatus` and `GetOverlappedResult`.
pub(crate) fn code_in_win32(status: u32) -> u32 {
    meaning(status).1
}

/// The same for Winsock's calls.
pub(crate) fn code_in_winsock(status: u32) -> u32 {
    meaning(status).2
}

/// Whether a status is one of success: not of a warning, nor of an error.
pub(crate) fn is_success(status: u32) -> bool {
    status < 0x8000_0000
}

/// The status in an OVERLAPPED's `Internal`. A program that stores one itself may have extended its sign.
#[allow(clippy::cast_possible_truncation, reason = "a status has 32 bits")]
pub(crate) fn of_internal(internal: usize) -> u32 {
    internal as u32
}

/// The code for the status in an entry; `None` if the operation has succeeded.
pub(crate) fn failure(internal: usize) -> Option<u32> {
    let ended = of_internal(internal);
    (!is_success(ended)).then(|| code_in_win32(ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_status_stands_there_once_and_fails_unless_it_is_success() {
        for (place, (status, win32, winsock)) in MEANINGS.into_iter().enumerate() {
            assert_eq!(MEANINGS.iter().position(|it| it.0 == status), Some(place));
            assert_eq!(is_success(status), win32 == 0 && winsock == 0, "{status:#x}");
        }
        assert!(is_success(PENDING));
    }

    #[test]
    fn a_system_error_comes_back_as_its_winsock_code() {
        for errno in [
            libc::ECONNRESET,
            libc::EPIPE,
            libc::ECONNREFUSED,
            libc::ECONNABORTED,
            libc::ETIMEDOUT,
            libc::ENOTCONN,
            libc::ESHUTDOWN,
            libc::EISCONN,
            libc::EMSGSIZE,
            libc::EINVAL,
            libc::EFAULT,
            libc::EACCES,
            libc::EADDRINUSE,
            libc::EADDRNOTAVAIL,
            libc::ENETUNREACH,
            libc::EHOSTUNREACH,
            libc::ENOBUFS,
            libc::EMFILE,
            libc::EBADF,
            libc::EOPNOTSUPP,
            libc::EAFNOSUPPORT,
        ] {
            let status = of_errno(errno);
            assert_eq!(code_in_winsock(status), code_of_errno(errno), "errno {errno}");
            assert!(!is_success(status));
        }
        assert_eq!(of_errno(libc::EXDEV), UNSUCCESSFUL);
        for errno in 1..134 {
            let status = of_file(errno);
            assert!(meaning(status).0 == status && !is_success(status), "errno {errno}");
            assert_eq!(code_in_win32(status) == 31, status == UNSUCCESSFUL, "errno {errno}");
        }
        assert_eq!((code_in_win32(0xC000_C0DE), code_in_winsock(0xC000_C0DE)), (317, 10022));
        assert_eq!(of_internal(0xFFFF_FFFF_C000_0120), CANCELLED);
    }
}
