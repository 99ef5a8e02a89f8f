//! The call that changes registrations and takes packets. Each entry has its own result.

use crate::abi::{self, Entry, Handle, Registration};
use crate::errors::{code, guarded};
use crate::handles::usable_port;
use crate::system::waiting::take;
use crate::taking::Changed;

/// The arguments of the call.
struct Arguments {
    count: usize,
    registrations: *mut Registration,
    milliseconds: u32,
    room: usize,
    entries: *mut Entry,
    received: *mut u32,
}

impl Arguments {
    fn check(&self) -> Result<(), u32> {
        if (self.count > 0 && self.registrations.is_null())
            || (self.room > 0 && (self.entries.is_null() || self.received.is_null()))
        {
            return Err(code::WSAEFAULT);
        }
        let is_left_over = (self.count == 0 && !self.registrations.is_null())
            || (self.room == 0
                && (!self.entries.is_null() || !self.received.is_null() || self.milliseconds != 0));
        if is_left_over || self.overlap() {
            return Err(code::WSAEINVAL);
        }
        Ok(())
    }

    fn overlap(&self) -> bool {
        let bytes =
            |from: usize, count: usize, size: usize| from..from.saturating_add(count * size);
        let changes = bytes(self.registrations.addr(), self.count, size_of::<Registration>());
        let packets = bytes(self.entries.addr(), self.room, size_of::<Entry>());
        changes.start < packets.end
            && packets.start < changes.end
            && self.count > 0
            && self.room > 0
    }
}

/// Applies registrations, then takes packets: `ProcessSocketNotifications`.
///
/// # Safety
///
/// `registrations` is null or points to `count` of them, `entries` to room for `room` of them, and
/// `received` is null or points to a number; no other thread uses them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_process_notifications(
    port: Handle,
    count: u32,
    registrations: *mut Registration,
    milliseconds: u32,
    room: u32,
    entries: *mut Entry,
    received: *mut u32,
) -> u32 {
    let process = || {
        let port = usable_port(port)?;
        let (count, room) = (count as usize, room as usize);
        let arguments = Arguments { count, registrations, milliseconds, room, entries, received };
        arguments.check()?;
        let mut refused = 0;
        for index in 0..count {
            // SAFETY: `add` demands that the result is in the same allocation.
            // - the caller guarantees that there are `count` registrations.
            let registration = unsafe { registrations.add(index) };
            // SAFETY: reading and writing through a raw pointer demands that it is valid, and that
            // no other thread uses the memory.
            // - the caller guarantees it.
            let registration = unsafe { &mut *registration };
            registration.result = match port.change(registration) {
                Ok(()) => code::SUCCESS,
                Err(code) => {
                    refused += 1;
                    code
                }
            };
        }
        if room == 0 {
            return Ok(code::SUCCESS);
        }
        let changed = match refused {
            0 => Changed::AsAsked,
            refused if refused < count => Changed::InPart,
            _ => Changed::NotAtAll,
        };
        // SAFETY: `take` demands room for that many entries.
        // - the caller guarantees that there is.
        let taken = unsafe { take(&port, entries, room, abi::timeout(milliseconds), changed) };
        // SAFETY: writing through a raw pointer demands that it is valid, and that no other thread
        // uses the memory.
        // - the caller guarantees it, and it is not null (`check`).
        unsafe { received.write(*taken.as_ref().unwrap_or(&0)) };
        taken.map(|_| code::SUCCESS)
    };
    guarded(code::INTERNAL_ERROR, || process().unwrap_or_else(|code| code))
}
