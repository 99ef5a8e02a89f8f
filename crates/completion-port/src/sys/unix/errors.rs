//! The errors of the system calls that all Unix systems make, each described by one [`Errors`].
//!
//! PLATFORM.md has a summary.

use crate::sys::portable::errors::{AfterError, Errors, Retries};
use crate::sys::unix::options::{Code, last_code};

/// recv(2), recvmsg(2). `ENOBUFS` is not temporary here: it reports that the kernel has dropped
/// messages, on netlink sockets of Linux and routing sockets of the BSDs.
pub(in crate::sys) const RECEIVE: Errors =
    Errors { again: &[libc::EINTR], ready: &[libc::EAGAIN], later: &[libc::ENOMEM] };

/// send(2), sendmsg(2), sendto(2). `ENOBUFS`: the queue of a device is full.
pub(in crate::sys) const SEND: Errors =
    Errors { again: &[libc::EINTR], ready: &[libc::EAGAIN], later: &[libc::ENOMEM, libc::ENOBUFS] };

/// accept(2), accept4(2). An error of one connection (`calls::is_of_connection`) skips that
/// connection.
pub(in crate::sys) const ACCEPT: Errors = Errors {
    again: &[libc::EINTR],
    ready: &[libc::EAGAIN],
    later: &[libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS],
};

/// connect(2). `EAGAIN`: the queue of an `AF_UNIX` listener or another table of the kernel is full.
pub(in crate::sys) const CONNECT: Errors = Errors {
    again: &[libc::EINTR],
    ready: &[libc::EINPROGRESS],
    later: &[libc::EAGAIN, libc::ENOMEM, libc::ENOBUFS],
};

/// poll(2), whether it waits or not.
pub(in crate::sys) const POLL: Errors =
    Errors { again: &[libc::EINTR, libc::EAGAIN, libc::ENOMEM], ..Errors::NONE };

/// Repeats a system call while its errors are temporary, up to a limit.
///
/// A negative result is a failure.
#[inline]
pub(in crate::sys) fn repeat_for(
    errors: &Errors,
    mut call: impl FnMut() -> libc::ssize_t,
) -> Result<usize, Code> {
    let mut retries = Retries::default();
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        let code = last_code();
        if errors.then(code) != AfterError::Again || !retries.again() {
            return Err(code);
        }
    }
}

/// Repeats a system call that a signal interrupted, up to a limit. A negative result is a failure.
///
/// Linux does not interrupt non-blocking calls on TCP, UDP or `AF_UNIX`: such a call checks for
/// signals only before it sleeps. Other families (accepts of `AF_VSOCK`) and other systems do.
/// preadv(2), pwritev(2), fsync(2) and similar calls are repeated for no other reason.
#[inline]
pub(in crate::sys) fn repeat(mut call: impl FnMut() -> libc::ssize_t) -> Result<usize, Code> {
    let mut retries = Retries::default();
    loop {
        if let Ok(count) = usize::try_from(call()) {
            return Ok(count);
        }
        match last_code() {
            libc::EINTR if retries.again() => {}
            code => return Err(code),
        }
    }
}
