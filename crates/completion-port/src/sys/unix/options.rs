//! Options of sockets: getsockopt(2).

use std::io;

use crate::types::source::Descriptor;

pub(in crate::sys) use crate::sys::portable::errors::Code;

/// Returns the error code of the system call that has just failed.
pub(in crate::sys) fn last_code() -> Code {
    io::Error::last_os_error().raw_os_error().unwrap_or_default()
}

/// Returns the first four bytes of a socket option. Fails if the descriptor has no such option.
pub(in crate::sys) fn option(
    descriptor: Descriptor,
    level: i32,
    name: i32,
) -> Result<[u8; 4], Code> {
    let mut value = [0; 4];
    read_option(descriptor, level, name, &mut value).map(|_| value)
}

/// Returns a socket option as a number.
pub(in crate::sys) fn number(descriptor: Descriptor, level: i32, name: i32) -> Result<i32, Code> {
    option(descriptor, level, name).map(i32::from_ne_bytes)
}

/// Copies the first bytes of a socket option to `value` and returns their number.
pub(in crate::sys) fn read_option(
    descriptor: Descriptor,
    level: i32,
    name: i32,
    value: &mut [u8],
) -> Result<usize, Code> {
    let mut size = libc::socklen_t::try_from(value.len()).unwrap_or(libc::socklen_t::MAX);
    // SAFETY: getsockopt(2) writes at most `size` bytes at the value's pointer, and reads and
    // writes the size at the other.
    // - valid: `value` is borrowed mutably during the call, and `size`, a local, is at most its
    //   length.
    let done = unsafe {
        libc::getsockopt(descriptor, level, name, value.as_mut_ptr().cast(), &raw mut size)
    };
    if done != 0 {
        return Err(last_code());
    }
    Ok(usize::try_from(size).unwrap_or(value.len()))
}
