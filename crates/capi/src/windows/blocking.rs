//! Handlers that announce that they sleep.

use std::ffi::c_void;

use crate::abi::Handle;
use crate::handles::usable_port;

/// A routine that runs while its thread does not count as running.
pub type Routine = unsafe extern "C" fn(*mut c_void);

/// Calls `routine`, which is expected to sleep. Until it returns, another thread may run instead of
/// the calling one.
///
/// # Safety
///
/// `routine` may be called with `context` by the calling thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_blocking(port: Handle, routine: Option<Routine>, context: *mut c_void) {
    let call = || {
        if let Some(routine) = routine {
            // SAFETY: the program defines the requirements of its routine.
            // - the caller guarantees them.
            unsafe { routine(context) };
        }
    };
    // A panic of this library never passes through the routine. Exceptions of the routine are not
    // this library's concern.
    match usable_port(port) {
        Ok(port) => port.port.blocking(call),
        Err(_) => call(),
    }
}
