//! How an operation of the system has ended.

use windows_sys::Win32::Foundation::RtlNtStatusToDosError;

/// The code for an operation's status, as in an entry; `None` if it has succeeded.
pub(crate) fn failure(internal: usize) -> Option<u32> {
    // A status has 32 bits, and the system writes no more of its word.
    let status = u32::try_from(internal & u32::MAX as usize).unwrap_or(0).cast_signed();
    // SAFETY: RtlNtStatusToDosError demands nothing: it looks a number up.
    (status < 0).then(|| unsafe { RtlNtStatusToDosError(status) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::code;

    #[test]
    fn errors_and_warnings_are_failures_with_the_codes_of_the_system() {
        let of = |status: usize| failure(status);
        assert_eq!(of(0), None);
        assert_eq!(of(0x103), None);
        assert_eq!(of(0xC000_0120), Some(code::OPERATION_ABORTED));
        assert_eq!(of(0xFFFF_FFFF_C000_0120), Some(code::OPERATION_ABORTED));
        assert_eq!(of(0xC000_0011), Some(code::HANDLE_EOF));
        assert_eq!(of(0x8000_0005), Some(234));
    }
}
