//! TCP ports that several sockets use.
//!
//! On the reference, a connection does not prevent a bind to its port, whether it is open or has ended recently. Here it
//! does, unless both sockets have `SO_REUSEADDR`. So this library sets that option on listeners, whose connections inherit
//! it, and on streams that the program binds and then connects. A socket that is only bound does not have it: otherwise two
//! of them could be bound to one port. If a bind fails, the library repeats it with the option set. Then only listeners and
//! sockets that are only bound can make it fail.

use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

use std::ffi::c_int;

use libc::{sockaddr_in, socklen_t};

use crate::linux::choices::Chosen;
use crate::linux::{descriptors, numbers};

/// Returns the program's choices for a socket.
pub(crate) fn chosen(descriptor: RawFd) -> Chosen {
    let chosen = numbers::find(descriptor).map(|number| number.lock().chosen);
    chosen.unwrap_or_default().known(descriptor)
}

/// Whether the socket is a stream with a port.
fn has_ports(descriptor: RawFd) -> bool {
    descriptors::kind(descriptor) == Some(libc::SOCK_STREAM)
        && descriptors::size_of_address(descriptor) as usize >= size_of::<sockaddr_in>()
}

/// Sets whether the system lets other sockets use the port.
pub(crate) fn set_reuse(descriptor: RawFd, on: bool) {
    let value = c_int::from(on);
    let size = socklen_t::try_from(size_of_val(&value)).unwrap_or(4);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
    // SAFETY: setsockopt(2) reads `size` bytes at the pointer.
    // - valid: `value` is a local of that size.
    unsafe { libc::setsockopt(descriptor, level, name, (&raw const value).cast(), size) };
}

/// Repeats, through `call`, a bind that failed because the port is in use. Returns `None` if repeating cannot help.
pub(crate) fn bind_beside_connections<R>(descriptor: RawFd, call: impl FnOnce() -> R) -> Option<R> {
    static ONE: Mutex<()> = Mutex::new(());
    if !has_ports(descriptor) || chosen(descriptor).is_shared {
        return None;
    }
    // Two sockets binding at the same time would both have the option.
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    set_reuse(descriptor, true);
    let outcome = call();
    set_reuse(descriptor, false);
    Some(outcome)
}

/// Records that the program has bound a socket to a port of its choice.
pub(crate) fn note_bound(descriptor: RawFd) {
    if has_ports(descriptor)
        && let Some(number) = numbers::entry(descriptor)
    {
        number.lock().chosen.of(descriptor).has_port = true;
    }
}

/// Prepares a bound socket for connecting.
pub(crate) fn before_connect(descriptor: RawFd) {
    if chosen(descriptor).has_port {
        set_reuse(descriptor, true);
    }
}

/// Makes a socket listen through `call`, which returns whether that succeeded.
pub(crate) fn listen(descriptor: RawFd, call: impl FnOnce() -> bool) {
    let is_new = has_ports(descriptor) && descriptors::listens(descriptor) == Some(false);
    if is_new {
        set_reuse(descriptor, true);
    }
    if !call() && is_new && !chosen(descriptor).is_shared {
        set_reuse(descriptor, false);
    }
}
