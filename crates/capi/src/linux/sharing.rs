//! Ports of TCP that several sockets have.
//!
//! On the reference a connection, also one that has ended a while ago, does not keep a port from being bound; here it
//! does, unless both sockets have `SO_REUSEADDR`. So this library sets that option of listeners, whose connections have
//! it from them, and of streams that the program binds and connects. A socket that is only bound does not have it: two
//! of them would be bound to one port. A bind that fails is made again with the option, which then meets with no
//! resistance but that of listeners and of sockets that are only bound.

use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

use std::ffi::c_int;

use libc::{sockaddr_in, socklen_t};

use crate::linux::choices::Chosen;
use crate::linux::{descriptors, numbers};

/// What the program has chosen of a socket.
pub(crate) fn chosen(descriptor: RawFd) -> Chosen {
    let chosen = numbers::find(descriptor).map(|number| number.lock().chosen);
    chosen.unwrap_or_default().known(descriptor)
}

/// Whether it is a stream with a port.
fn has_ports(descriptor: RawFd) -> bool {
    descriptors::kind(descriptor) == Some(libc::SOCK_STREAM)
        && descriptors::size_of_address(descriptor) as usize >= size_of::<sockaddr_in>()
}

/// Tells the system whether the port may have other sockets.
pub(crate) fn set_reuse(descriptor: RawFd, on: bool) {
    let value = c_int::from(on);
    let size = socklen_t::try_from(size_of_val(&value)).unwrap_or(4);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
    // SAFETY: setsockopt(2) reads `size` bytes at the pointer.
    // - valid: `value` is a local of that size.
    unsafe { libc::setsockopt(descriptor, level, name, (&raw const value).cast(), size) };
}

/// Binds a socket once more by `call`, which has failed since its port is in use. `None` if there is no use in that.
pub(crate) fn bind_beside_connections<R>(descriptor: RawFd, call: impl FnOnce() -> R) -> Option<R> {
    static ONE: Mutex<()> = Mutex::new(());
    if !has_ports(descriptor) || chosen(descriptor).is_shared {
        return None;
    }
    // Two that bind at the same time would both have the option.
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    set_reuse(descriptor, true);
    let outcome = call();
    set_reuse(descriptor, false);
    Some(outcome)
}

/// The program has bound a socket to a port of its choice.
pub(crate) fn note_bound(descriptor: RawFd) {
    if has_ports(descriptor)
        && let Some(number) = numbers::entry(descriptor)
    {
        number.lock().chosen.of(descriptor).has_port = true;
    }
}

/// A socket that the program has bound is to be connected.
pub(crate) fn before_connect(descriptor: RawFd) {
    if chosen(descriptor).has_port {
        set_reuse(descriptor, true);
    }
}

/// Lets a socket listen by `call`, which says whether it does.
pub(crate) fn listen(descriptor: RawFd, call: impl FnOnce() -> bool) {
    let is_new = has_ports(descriptor) && descriptors::listens(descriptor) == Some(false);
    if is_new {
        set_reuse(descriptor, true);
    }
    if !call() && is_new && !chosen(descriptor).is_shared {
        set_reuse(descriptor, false);
    }
}
