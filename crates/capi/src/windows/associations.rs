//! How a port is made and closed, and what completes on it.

use windows_sys::Win32::Foundation::CloseHandle;

use crate::abi::{Handle, NO_HANDLE};
use crate::errors::code;
use crate::handles::{self, usable_port};
use crate::table::MARK;
use crate::windows::last::last;
use crate::windows::object::Object;
use crate::windows::port::CompletionPort;

fn create(concurrency: u32) -> Result<Handle, u32> {
    handles::open(|name| {
        let concurrency = usize::try_from(concurrency).unwrap_or(usize::MAX);
        CompletionPort::new(name, concurrency).map(Object::of_port)
    })
}

/// What `CreateIoCompletionPort` does.
pub(crate) fn create_or_associate(
    file: Handle,
    existing: Handle,
    key: usize,
    concurrency: u32,
) -> Result<Handle, u32> {
    match (file.addr() != NO_HANDLE, existing.is_null()) {
        (false, true) => create(concurrency),
        (false, false) => Err(code::INVALID_PARAMETER),
        (true, false) => {
            usable_port(existing)?.associate(file, key)?;
            Ok(existing)
        }
        (true, true) => {
            let made = create(concurrency)?;
            let associated = usable_port(made).and_then(|port| port.associate(file, key));
            associated.map(|()| made).inspect_err(|_| {
                let _ = handles::close(made);
            })
        }
    }
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
