//! The calling thread's last error: the system's.

use windows_sys::Win32::Foundation::{GetLastError, SetLastError};

/// Sets the calling thread's last error.
pub(crate) fn set_last(code: u32) {
    // SAFETY: SetLastError demands nothing.
    unsafe { SetLastError(code) };
}

/// The calling thread's last error.
pub(crate) fn last() -> u32 {
    // SAFETY: GetLastError demands nothing.
    unsafe { GetLastError() }
}
