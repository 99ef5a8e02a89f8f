//! Ports in the C library: creating, taking, posting, closing.

use std::ffi::c_void;

use crate::abi::{self, Entry, Handle, NO_HANDLE};
use crate::errors::{code, guarded, set_last, succeeds};
use crate::handles::{open_port, usable_port};
use crate::system::associations::{associate, close, is_ready};
use crate::system::status::failure;
use crate::system::waiting::take;
use crate::taking::Changed;

/// Creates a port, associates a file with one, or both.
fn create_or_associate(
    file: Handle,
    existing: Handle,
    key: usize,
    concurrency: u32,
) -> Result<Handle, u32> {
    match (file.addr() != NO_HANDLE, existing.is_null()) {
        (false, true) => open_port(concurrency),
        (false, false) => Err(code::INVALID_PARAMETER),
        (true, false) => {
            associate(file, &usable_port(existing)?, key)?;
            Ok(existing)
        }
        (true, true) => {
            let made = open_port(concurrency)?;
            let associated = usable_port(made).and_then(|port| associate(file, &port, key));
            associated.map(|()| made).inspect_err(|_| {
                let _ = close(made);
            })
        }
    }
}

/// Creates a port, or associates a descriptor's operations with one: `CreateIoCompletionPort`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_create_io_completion_port(
    file: Handle,
    existing: Handle,
    key: usize,
    concurrency: u32,
) -> Handle {
    guarded(std::ptr::null_mut(), || {
        create_or_associate(file, existing, key, concurrency).unwrap_or_else(|code| {
            set_last(code);
            std::ptr::null_mut()
        })
    })
}

/// Closes a handle: `CloseHandle`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_close_handle(handle: Handle) -> i32 {
    succeeds(|| close(handle))
}

/// Takes one packet: `GetQueuedCompletionStatus`.
///
/// # Safety
///
/// The three pointers are null or point to room for the values written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_dequeue(
    port: Handle,
    bytes: *mut u32,
    key: *mut usize,
    overlapped: *mut *mut c_void,
    milliseconds: u32,
) -> i32 {
    succeeds(|| {
        if overlapped.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller guarantees it for a non-null pointer.
        unsafe { overlapped.write(std::ptr::null_mut()) };
        if bytes.is_null() || key.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        let port = usable_port(port)?;
        let mut entry = Entry { key: 0, overlapped: std::ptr::null_mut(), internal: 0, bytes: 0 };
        let timeout = abi::timeout(milliseconds);
        // SAFETY: `take` demands room for that many entries.
        // - there is room for one.
        unsafe { take(&port, &raw mut entry, 1, timeout, Changed::AsAsked) }?;
        // SAFETY: as above.
        unsafe { bytes.write(entry.bytes) };
        // SAFETY: as above.
        unsafe { key.write(entry.key) };
        // SAFETY: as above.
        unsafe { overlapped.write(entry.overlapped) };
        // This is the packet of a failed operation.
        failure(entry.internal).map_or(Ok(()), Err)
    })
}

/// Takes packets: `GetQueuedCompletionStatusEx`.
///
/// # Safety
///
/// `entries` is null or points to room for `room` entries, and `removed` is null or points to room for
/// a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_dequeue_many(
    port: Handle,
    entries: *mut Entry,
    room: u32,
    removed: *mut u32,
    milliseconds: u32,
    _alertable: i32,
) -> i32 {
    succeeds(|| {
        if removed.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller guarantees it for a non-null pointer.
        unsafe { removed.write(0) };
        if entries.is_null() || room == 0 {
            return Err(code::INVALID_PARAMETER);
        }
        let port = usable_port(port)?;
        let timeout = abi::timeout(milliseconds);
        // SAFETY: `take` demands room for that many entries.
        // - the caller guarantees that there is.
        let taken = unsafe { take(&port, entries, room as usize, timeout, Changed::AsAsked) }?;
        // SAFETY: as above.
        unsafe { removed.write(taken) };
        Ok(())
    })
}

/// Whether a packet is queued, or the handle of a file is signalled: returns the code of success or
/// of a timeout.
#[unsafe(no_mangle)]
pub extern "C" fn cp_peek(port: Handle) -> u32 {
    let peek = || {
        if is_ready(port)? { Ok(code::SUCCESS) } else { Err(code::WAIT_TIMEOUT) }
    };
    guarded(code::INTERNAL_ERROR, || peek().unwrap_or_else(|code| code))
}

/// Posts three values: `PostQueuedCompletionStatus`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_post(port: Handle, bytes: u32, key: usize, overlapped: *mut c_void) -> i32 {
    succeeds(|| usable_port(port)?.post_words(bytes, key, overlapped))
}
