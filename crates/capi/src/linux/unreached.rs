//! Connected datagram sockets with a peer's port that is unreachable.
//!
//! When a datagram has reached no receiver, the system fails the next call on its socket, which may be a send: that one
//! sends nothing. On the reference a send does not fail for an earlier one. A receive fails in its place.

use std::os::fd::RawFd;

use completion_port::raw::Side;

use crate::linux::descriptors::{is_local, kind};
use crate::linux::errno::{errno, set_errno};
use crate::linux::numbers::{self, Number, UNREACHED};
use crate::linux::registrations;

/// How often a send is tried again. Each time the system has one error at most, and a datagram of another thread may
/// bring the next one.
const TRIES: usize = 8;

/// Calls `send`, which is a send by the system, and again if it has failed for an earlier datagram. A later receive fails
/// for that one.
#[inline]
pub(crate) fn sent(descriptor: RawFd, mut send: impl FnMut() -> isize) -> isize {
    let mut done = send();
    for _ in 0..TRIES {
        if done >= 0 || errno() != libc::ECONNREFUSED || !leave_to_receive(descriptor) {
            break;
        }
        done = send();
    }
    done
}

/// Leaves the error that a send was about to report to a receive. False if it is the send's own, or if no receive would
/// find it.
#[cold]
fn leave_to_receive(descriptor: RawFd) -> bool {
    // A send to a socket of Unix fails by itself.
    let number = numbers::find(descriptor).filter(|number| number.is_vouched());
    let number =
        number.filter(|_| kind(descriptor) == Some(libc::SOCK_DGRAM) && !is_local(descriptor));
    set_errno(libc::ECONNREFUSED);
    number.inspect(|number| number.set_options(UNREACHED)).is_some()
}

/// A send has been made, and its number is not locked: a receive in flight may have to fail.
#[inline]
pub(crate) fn end_receive(number: &Number) {
    if number.options() & UNREACHED != 0 {
        retry_receive(number);
    }
}

/// The same by the descriptor.
#[inline]
pub(crate) fn end_receive_of(descriptor: RawFd) {
    if let Some(number) = numbers::find(descriptor) {
        end_receive(number);
    }
}

#[cold]
fn retry_receive(number: &Number) {
    let line = number.lock().line;
    if let Some(line) = line
        && let Some(port) = registrations::port_of(line.port)
    {
        port.raw().retry(line.id, Side::In);
    }
}

/// Whether a receive must fail for an earlier datagram. Sets `errno` if so.
#[inline]
pub(crate) fn fails_receive(descriptor: RawFd) -> bool {
    numbers::find(descriptor).is_some_and(|number| number.options() & UNREACHED != 0)
        && take(descriptor)
}

#[cold]
fn take(descriptor: RawFd) -> bool {
    // Otherwise the number was closed unseen, and another socket has it.
    let is_it = kind(descriptor) == Some(libc::SOCK_DGRAM);
    let was_there = numbers::find(descriptor).is_some_and(|number| number.take_options(UNREACHED));
    set_errno(libc::ECONNREFUSED);
    was_there && is_it
}
