//! System calls that close a number, and note this beforehand. `compat/source/close.c` has them
//! under the system's names.
//!
//! A signal handler may call them, and so may a child after fork or vfork. So they take no lock,
//! and only note that the number may no longer be the one that this library returned. The next
//! change to its registration then asks the kernel. This is also correct if the call has failed, or
//! has closed the number in a child that shares this memory.

use std::ffi::{c_int, c_uint};

use crate::linux::numbers;

/// What the system call returns, with `errno`.
fn outcome(result: libc::c_long) -> c_int {
    c_int::try_from(result).unwrap_or(-1)
}

/// `close`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_close(descriptor: c_int) -> c_int {
    numbers::doubt(descriptor..=descriptor);
    // SAFETY: close(2) demands that the descriptor is not used any more.
    // - it is the caller's, and the caller asks for it.
    outcome(unsafe { libc::syscall(libc::SYS_close, descriptor) })
}

/// `dup2`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_dup2(from: c_int, to: c_int) -> c_int {
    if from != to {
        return cp_dup3(from, to, 0);
    }
    // SAFETY: fcntl(2) with F_GETFD demands nothing of memory.
    let flags = unsafe { libc::syscall(libc::SYS_fcntl, from, libc::F_GETFD) };
    if flags < 0 { -1 } else { to }
}

/// `dup3`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    numbers::doubt(to..=to);
    // SAFETY: dup3(2) demands that what `to` was is not used any more.
    // - it is the caller's, and the caller asks for it.
    outcome(unsafe { libc::syscall(libc::SYS_dup3, from, to, flags) })
}

/// `close_range`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let number = |number| c_int::try_from(number).unwrap_or(c_int::MAX);
    numbers::doubt(number(first)..=number(last));
    // SAFETY: close_range(2) demands that the descriptors are not used any more.
    // - they are the caller's, and the caller asks for it.
    outcome(unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) })
}
