//! The errors of the system calls that Linux alone makes: each is one [`Errors`]. Those that each Unix makes
//! are in `sys/unix/errors.rs`. PLATFORM.md has a summary.

use crate::sys::portable::errors;
use crate::sys::portable::errors::{Code, Errors};
use crate::types::error::Fault;

/// epoll_wait(2). The repetition does not wait, so no signal ends it.
pub(super) const EPOLL_WAIT: Errors = Errors { again: &[libc::EINTR], ..Errors::NONE };

/// io_uring_enter(2). `EAGAIN`: the kernel is short of memory. `EBUSY`: it wants to be rid of completions first.
pub(super) const RING_ENTER: Errors =
    Errors { again: &[libc::EINTR, libc::EAGAIN, libc::EBUSY], ..Errors::NONE };

/// What a ring and its thread are made by: io_uring_setup(2), eventfd(2), and the thread. The operation that has needed
/// them is refused, and the next one tries again. With every other error threads do operations on files.
pub(super) const RING_START: Errors =
    Errors { later: &[libc::EMFILE, libc::ENFILE, libc::EAGAIN], ..Errors::NONE };

/// preadv2(2) with `RWF_NOWAIT`. `later`: what performs the request asks once more, and says what is wrong with this one read, if
/// anything is. Every other error but [`READ_FAILS`] says that the call is of no use for this file: the file system cannot
/// tell what is in the cache, the file has no positions, the kernel is too old, or a sandbox refuses the call.
pub(super) const READ_NOW: Errors =
    Errors { later: &[libc::EAGAIN, libc::EINVAL, libc::ENOMEM], ..Errors::NONE };

/// What a read fails with whatever does it.
pub(super) const READ_FAILS: [Code; 3] = [libc::EBADF, libc::EIO, libc::EISDIR];

/// The fault of a failed call that a wait makes.
#[cold]
pub(super) fn fault_of_wait(code: Code) -> Fault {
    errors::fault_of_wait(code, &[libc::EACCES, libc::ENOSYS, libc::EPERM], &[libc::ENOMEM])
}
