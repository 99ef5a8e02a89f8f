//! How a port is made and closed, and what completes on it.

use std::sync::Arc;

use windows_sys::Win32::Foundation::CloseHandle;

use crate::abi::Handle;
use crate::handles::{self, usable_port};
use crate::table::MARK;
use crate::windows::last::last;
use crate::windows::port::CompletionPort;

/// Lets the operations of one of the system's handles complete on a port.
pub(crate) fn associate(file: Handle, port: &Arc<CompletionPort>, key: usize) -> Result<(), u32> {
    port.associate(file, key)
}

/// Whether a handle has the mark of this library, so that it is none of the system.
fn has_mark(handle: Handle) -> bool {
    // Those that stand for no file, for this process and the like have the highest bit as well.
    handle.addr() as u64 & (MARK | MARK << 1) == MARK
}

/// What `CloseHandle` does. A handle that is not of this library is one of the system, which closes it.
pub(crate) fn close(handle: Handle) -> Result<(), u32> {
    if has_mark(handle) {
        return handles::close(handle).map(drop);
    }
    // SAFETY: CloseHandle fails for what is no open handle.
    // - that no thread uses one that is open is the caller's affair, as it is with the system's call.
    let done = unsafe { CloseHandle(handle) };
    if done == 0 { Err(last()) } else { Ok(()) }
}

/// Whether a packet is queued at a port.
pub(crate) fn is_ready(handle: Handle) -> Result<bool, u32> {
    usable_port(handle)?.is_ready()
}
