//! The errors of the system calls that only Linux makes, each described by one [`Errors`].
//!
//! `sys/unix/errors.rs` has those that all Unix systems make. PLATFORM.md has a summary.

use crate::sys::portable::errors;
use crate::sys::portable::errors::{Code, Errors};
use crate::types::error::Fault;

/// epoll_wait(2). The retry does not wait, so no signal interrupts it.
pub(super) const EPOLL_WAIT: Errors = Errors { again: &[libc::EINTR], ..Errors::NONE };

/// io_uring_enter(2). `EAGAIN`: the kernel is short of memory. `EBUSY`: the kernel requires that
/// completions are taken first.
pub(super) const RING_ENTER: Errors =
    Errors { again: &[libc::EINTR, libc::EAGAIN, libc::EBUSY], ..Errors::NONE };

/// io_uring_setup(2), eventfd(2) and the start of the ring's thread.
///
/// The operation that needed them fails, and the next one tries again. After any other error,
/// threads perform file operations.
pub(super) const RING_START: Errors =
    Errors { later: &[libc::EMFILE, libc::ENFILE, libc::EAGAIN], ..Errors::NONE };

/// preadv2(2) with `RWF_NOWAIT`.
///
/// After an error in `later`, the request repeats the read and reports any error. Every other error
/// except [`READ_FAILS`] means that the call is of no use for this file: the file system cannot
/// report what is cached, the file has no positions, the kernel is too old, or a sandbox refuses
/// the call.
pub(super) const READ_NOW: Errors =
    Errors { later: &[libc::EAGAIN, libc::EINVAL, libc::ENOMEM], ..Errors::NONE };

/// Errors with which a read fails whatever mechanism performs it.
pub(super) const READ_FAILS: [Code; 3] = [libc::EBADF, libc::EIO, libc::EISDIR];

/// Converts the error code of a failed wait.
#[cold]
pub(super) fn fault_of_wait(code: Code) -> Fault {
    errors::fault_of_wait(code, &[libc::EACCES, libc::ENOSYS, libc::EPERM], &[libc::ENOMEM])
}
