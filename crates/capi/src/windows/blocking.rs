//! Handlers that sleep, and say so.

use std::ffi::c_void;

use crate::abi::Handle;
use crate::handles::usable_port;

/// What is called while its thread does not count as running.
pub type Routine = unsafe extern "C" fn(*mut c_void);

/// Calls `routine`, which is expected to sleep: until it returns another thread may run in the place of the calling one.
///
/// # Safety
///
/// `routine` may be called with `context` by the calling thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_blocking(port: Handle, routine: Option<Routine>, context: *mut c_void) {
    let call = || {
        if let Some(routine) = routine {
            // SAFETY: the routine demands what the program guarantees that it demands.
            // - the caller guarantees it.
            unsafe { routine(context) };
        }
    };
    // No panic of this library comes out of the routine, and what the routine throws is not this library's affair.
    match usable_port(port) {
        Ok(port) => port.port.blocking(call),
        Err(_) => call(),
    }
}
