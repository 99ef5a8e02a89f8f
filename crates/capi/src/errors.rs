//! Error codes: the last error of each thread, as in the reference, and conversions from errors of
//! the system and the port.

use std::panic::{AssertUnwindSafe, catch_unwind};

use completion_port::{Error, ErrorKind};

use crate::system::last;

/// The codes that this library returns, by the reference's names.
#[allow(missing_docs, reason = "the reference documents its codes")]
pub mod code {
    pub const SUCCESS: u32 = 0;
    pub const FILE_NOT_FOUND: u32 = 2;
    pub const PATH_NOT_FOUND: u32 = 3;
    pub const TOO_MANY_OPEN_FILES: u32 = 4;
    pub const ACCESS_DENIED: u32 = 5;
    pub const INVALID_HANDLE: u32 = 6;
    pub const NOT_ENOUGH_MEMORY: u32 = 8;
    pub const NOT_SAME_DEVICE: u32 = 17;
    pub const SHARING_VIOLATION: u32 = 32;
    pub const HANDLE_EOF: u32 = 38;
    pub const NOT_SUPPORTED: u32 = 50;
    pub const FILE_EXISTS: u32 = 80;
    pub const INVALID_PARAMETER: u32 = 87;
    pub const INSUFFICIENT_BUFFER: u32 = 122;
    pub const MOD_NOT_FOUND: u32 = 126;
    pub const PROC_NOT_FOUND: u32 = 127;
    pub const NEGATIVE_SEEK: u32 = 131;
    pub const DIR_NOT_EMPTY: u32 = 145;
    pub const BUSY: u32 = 170;
    pub const ALREADY_EXISTS: u32 = 183;
    pub const BAD_EXE_FORMAT: u32 = 193;
    pub const FILENAME_EXCED_RANGE: u32 = 206;
    pub const WAIT_TIMEOUT: u32 = 258;
    pub const NOT_OWNER: u32 = 288;
    pub const TOO_MANY_POSTS: u32 = 298;
    pub const INVALID_ADDRESS: u32 = 487;
    pub const ABANDONED_WAIT_0: u32 = 735;
    pub const OPERATION_ABORTED: u32 = 995;
    pub const IO_INCOMPLETE: u32 = 996;
    pub const IO_PENDING: u32 = 997;
    pub const NOACCESS: u32 = 998;
    pub const FILE_INVALID: u32 = 1006;
    pub const MAPPED_ALIGNMENT: u32 = 1132;
    pub const NOT_FOUND: u32 = 1168;
    pub const INTERNAL_ERROR: u32 = 1359;
    pub const NO_SYSTEM_RESOURCES: u32 = 1450;
    pub const CANT_RESOLVE_FILENAME: u32 = 1921;
    pub const WSAEFAULT: u32 = 10014;
    pub const WSAEINVAL: u32 = 10022;
    pub const WSAEWOULDBLOCK: u32 = 10035;
    pub const WSAENOTSOCK: u32 = 10038;
    pub const WSAEMSGSIZE: u32 = 10040;
    pub const WSAESOCKTNOSUPPORT: u32 = 10044;
    pub const WSAEOPNOTSUPP: u32 = 10045;
    pub const WSAEAFNOSUPPORT: u32 = 10047;
    pub const WSAENOBUFS: u32 = 10055;
    pub const WSAETIMEDOUT: u32 = 10060;
    pub const WSASYSCALLFAILURE: u32 = 10107;
    pub const WSANOTINITIALISED: u32 = 10093;
    pub const WSATYPE_NOT_FOUND: u32 = 10109;
    pub const WSAHOST_NOT_FOUND: u32 = 11001;
    pub const WSATRY_AGAIN: u32 = 11002;
    pub const WSANO_RECOVERY: u32 = 11003;
    pub const WSANO_DATA: u32 = 11004;
}

/// Sets the calling thread's last error.
pub fn set_last(code: u32) {
    last::set_last(code);
}

/// Calls `f`. A panic, which would be a bug of this library, is returned as `otherwise`, with its
/// own last error.
pub fn guarded<R>(otherwise: R, f: impl FnOnce() -> R) -> R {
    // Only the port could be left inconsistent, and it stays usable (see its documentation).
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|_| {
        set_last(code::INTERNAL_ERROR);
        otherwise
    })
}

/// Calls `f`; its error becomes the last one, and the result 0 (`FALSE`) instead of 1 (`TRUE`).
pub fn succeeds(f: impl FnOnce() -> Result<(), u32>) -> i32 {
    guarded(0, || match f() {
        Ok(()) => 1,
        Err(code) => {
            set_last(code);
            0
        }
    })
}

/// The code of a port's error.
#[must_use]
pub fn code_of(error: Error) -> u32 {
    match error.kind() {
        ErrorKind::AlreadyRegistered | ErrorKind::Removing | ErrorKind::KeyHeld => {
            code::INVALID_PARAMETER
        }
        ErrorKind::BadDescriptor | ErrorKind::NotPollable => code::WSAENOTSOCK,
        ErrorKind::Closed | ErrorKind::Forked => code::INVALID_HANDLE,
        ErrorKind::NotRegistered => code::NOT_FOUND,
        ErrorKind::OutOfMemory => code::NOT_ENOUGH_MEMORY,
        ErrorKind::DescriptorLimit | ErrorKind::WatchLimit => code::NO_SYSTEM_RESOURCES,
        ErrorKind::Unsupported => code::NOT_SUPPORTED,
        _ => code::INTERNAL_ERROR,
    }
}

/// The calling thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn cp_last_error() -> u32 {
    last::last()
}

/// Sets the calling thread's last error.
#[unsafe(no_mangle)]
pub extern "C" fn cp_set_last_error(code: u32) {
    set_last(code);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;

    #[test]
    fn a_panic_stops_at_the_border_and_is_the_last_error() {
        set_last(0);
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let outcome = guarded(-1, || panic!("a fault"));
        std::panic::set_hook(hook);
        assert_eq!((outcome, cp_last_error()), (-1, code::INTERNAL_ERROR));
    }

    #[test]
    fn each_thread_has_a_last_error_of_its_own() {
        let (may_set, has_set) = (AtomicBool::new(false), AtomicBool::new(false));
        // Calls nothing else in between: where the last error is the system's, system calls set it,
        // too.
        let wait_for = |flag: &AtomicBool| {
            while !flag.load(SeqCst) {
                std::hint::spin_loop();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                wait_for(&may_set);
                set_last(8);
                has_set.store(true, SeqCst);
            });
            set_last(7);
            may_set.store(true, SeqCst);
            wait_for(&has_set);
            assert_eq!(cp_last_error(), 7);
        });
    }
}
