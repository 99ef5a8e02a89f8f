//! Creating and closing a port, and associating handles with it.

use std::sync::Arc;

use windows_sys::Win32::Foundation::CloseHandle;

use crate::abi::Handle;
use crate::handles::{self, usable_port};
use crate::table::MARK;
use crate::windows::last::last;
use crate::windows::port::CompletionPort;

/// Associates the operations of one of the system's handles with a port.
pub(crate) fn associate(file: Handle, port: &Arc<CompletionPort>, key: usize) -> Result<(), u32> {
    port.associate(file, key)
}

/// Whether a handle has the mark of this library and is therefore not the system's.
fn has_mark(handle: Handle) -> bool {
    // Pseudo-handles, for example of this process, have the highest bit set as well.
    handle.addr() as u64 & (MARK | MARK << 1) == MARK
}

/// `CloseHandle`. Passes handles that are not this library's to the system.
pub(crate) fn close(handle: Handle) -> Result<(), u32> {
    if has_mark(handle) {
        return handles::close(handle).map(drop);
    }
    // SAFETY: CloseHandle fails for a handle that is not open.
    // - the caller guarantees that no thread uses an open one, as for the system's call.
    let done = unsafe { CloseHandle(handle) };
    if done == 0 { Err(last()) } else { Ok(()) }
}

/// Whether a packet is queued at a port.
pub(crate) fn is_ready(handle: Handle) -> Result<bool, u32> {
    usable_port(handle)?.is_ready()
}
