//! The one function that a program may look up by the reference's own name.

use crate::abi::{Entry, Handle, Registration};
use crate::notifications::cp_process_notifications;

/// Applies registrations, then takes packets, of a port of this library.
///
/// # Safety
///
/// As [`cp_process_notifications`].
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the name is the reference's")]
pub unsafe extern "system" fn ProcessSocketNotifications(
    port: Handle,
    count: u32,
    registrations: *mut Registration,
    milliseconds: u32,
    room: u32,
    entries: *mut Entry,
    received: *mut u32,
) -> u32 {
    // SAFETY: as this call.
    unsafe {
        cp_process_notifications(port, count, registrations, milliseconds, room, entries, received)
    }
}
