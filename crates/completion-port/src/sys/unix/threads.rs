//! Starts the library's own threads.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::options::Code;
use crate::sys::system::calls;

/// The stack size of a thread, the same as in the standard library.
const STACK: usize = 2 << 20;

/// The function that a thread runs.
type ThreadMain = Box<dyn FnOnce() + Send>;

/// Starts a thread with the C library instead of the standard library.
///
/// Each thread of the standard library takes a lock of it when it starts and ends. If another
/// thread of the parent holds that lock during a fork, it stays locked in the child, and a thread
/// that the child starts would wait forever. The C library makes its own locks usable in the
/// child.
pub(in crate::sys) fn start(
    name: &'static CStr,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), Code> {
    let named = move || {
        calls::name_thread(name);
        run();
    };
    let mut attributes = ThreadAttributes::new()?;
    attributes.detach(STACK)?;
    let passed: *mut ThreadMain = Box::into_raw(Box::new(Box::new(named)));
    let mut thread = MaybeUninit::uninit();
    // SAFETY: pthread_create(3) writes a thread id at the first pointer and reads attributes at the
    // second; the new thread calls the function with the last argument.
    // - valid: the first is a local, and the attributes were made above;
    // - the function requires a pointer from `Box::into_raw`, and is its only owner.
    let refused = unsafe {
        libc::pthread_create(thread.as_mut_ptr(), &raw const attributes.0, begin, passed.cast())
    };
    if refused == 0 {
        return Ok(());
    }
    // SAFETY: `from_raw` requires a pointer from `into_raw`, and takes it once.
    // - no thread was started that would take it.
    drop(unsafe { Box::from_raw(passed) });
    Err(refused)
}

/// The start function of each of these threads.
extern "C" fn begin(passed: *mut c_void) -> *mut c_void {
    // SAFETY: `from_raw` requires a pointer from `into_raw`, and takes it once.
    // - `start` has passed it to this thread alone.
    let run = unsafe { Box::from_raw(passed.cast::<ThreadMain>()) };
    // The panic hook has reported a panic. No frame above this one can be unwound.
    let _ = catch_unwind(AssertUnwindSafe(run));
    ptr::null_mut()
}

/// The attributes with which a thread is made.
struct ThreadAttributes(libc::pthread_attr_t);

impl ThreadAttributes {
    fn new() -> Result<Self, Code> {
        let mut attributes = MaybeUninit::uninit();
        // SAFETY: pthread_attr_init(3) writes attributes at the pointer.
        // - valid for writes: it is a local.
        let refused = unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) };
        // SAFETY: `assume_init` requires an initialized value.
        // - the call succeeded, so it has written the value.
        if refused == 0 { Ok(Self(unsafe { attributes.assume_init() })) } else { Err(refused) }
    }

    /// Makes the thread detached, with a stack of `stack` bytes.
    fn detach(&mut self, stack: usize) -> Result<(), Code> {
        let state = libc::PTHREAD_CREATE_DETACHED;
        // SAFETY: pthread_attr_setdetachstate(3) changes the attributes at the pointer.
        // - they were made by `new`, and are borrowed mutably.
        let refused = unsafe { libc::pthread_attr_setdetachstate(&raw mut self.0, state) };
        if refused != 0 {
            return Err(refused);
        }
        // SAFETY: as for pthread_attr_setdetachstate(3).
        let refused = unsafe { libc::pthread_attr_setstacksize(&raw mut self.0, stack) };
        if refused == 0 { Ok(()) } else { Err(refused) }
    }
}

impl Drop for ThreadAttributes {
    fn drop(&mut self) {
        // SAFETY: pthread_attr_destroy(3) requires attributes that are not used afterwards.
        // - they were made by `new`, and are dropped here.
        unsafe { libc::pthread_attr_destroy(&raw mut self.0) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_thread_runs_and_its_panic_ends_nothing_but_the_thread() {
        struct Says(mpsc::Sender<&'static str>);
        impl Drop for Says {
            fn drop(&mut self) {
                let _ = self.0.send("dropped");
            }
        }
        let (say, heard) = mpsc::channel();
        let says = Says(say);
        start(c"port-test", move || {
            let _ = says.0.send("runs");
            std::panic::resume_unwind(Box::new(()));
        })
        .unwrap();
        let all: Vec<_> = heard.iter().collect();
        assert_eq!(all, ["runs", "dropped"]);
    }
}
