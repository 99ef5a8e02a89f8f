//! TCP ports that several sockets use.
//!
//! On the reference, a connection does not prevent a bind to its port, whether it is open or has ended recently. Here it
//! does, unless both sockets have the system's `SO_REUSEADDR`. So this library sets that option on listeners, whose
//! connections inherit it, and on streams that the program binds and then connects. A socket that is only bound does not
//! have it: otherwise two of them could be bound to one port. If a bind fails, the library repeats it with the option set.
//! Then only listeners and sockets that are only bound can make it fail.
//!
//! The program's own `SO_REUSEADDR` lets sockets share a port if all of them have it. For streams that is the system's
//! `SO_REUSEPORT`, which no bind repeated for another socket has.

use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use std::ffi::c_int;

use libc::{sockaddr_in, socklen_t};

use crate::linux::choices::Chosen;
use crate::linux::process::Own;
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

/// Held while a socket that is being bound, or begins to listen, has the system's `SO_REUSEADDR`: another one could be bound
/// to the same port.
static REUSE: Own<Mutex<()>> = Own::new(begin_child);

/// In a forked child.
extern "C" fn begin_child() {
    REUSE.pass_on();
}

fn lock_reuse() -> MutexGuard<'static, ()> {
    REUSE.get(|_| Box::default()).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the system's `SO_REUSEADDR`.
fn set_reuse(descriptor: RawFd, on: bool) {
    set(descriptor, libc::SO_REUSEADDR, on);
}

/// Sets an option of the system.
fn set(descriptor: RawFd, name: c_int, on: bool) {
    let value = c_int::from(on);
    let size = socklen_t::try_from(size_of_val(&value)).unwrap_or(4);
    let level = libc::SOL_SOCKET;
    // SAFETY: setsockopt(2) reads `size` bytes at the pointer.
    // - valid: `value` is a local of that size.
    unsafe { libc::setsockopt(descriptor, level, name, (&raw const value).cast(), size) };
}

/// Sets whether the program lets other sockets use the port. `is_vouched`: it is a socket of this library.
pub(crate) fn share(descriptor: RawFd, on: bool, is_vouched: bool) {
    if !has_ports(descriptor) {
        set_reuse(descriptor, on);
        return;
    }
    set(descriptor, libc::SO_REUSEPORT, on);
    // What other code has set.
    if !on && !is_vouched && descriptors::listens(descriptor) != Some(true) {
        set_reuse(descriptor, false);
    }
}

/// Repeats, through `call`, a bind that failed because the port is in use. Returns `None` if repeating cannot help.
pub(crate) fn bind_beside_connections<R>(descriptor: RawFd, call: impl FnOnce() -> R) -> Option<R> {
    if !has_ports(descriptor) {
        return None;
    }
    let _reuse = lock_reuse();
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
    if !has_ports(descriptor) || descriptors::listens(descriptor) != Some(false) {
        call();
        return;
    }
    let _reuse = lock_reuse();
    set_reuse(descriptor, true);
    if !call() {
        set_reuse(descriptor, false);
    }
}
