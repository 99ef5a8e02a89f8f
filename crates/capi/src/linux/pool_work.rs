//! Calls that a program asks the pool to make: `CreateThreadpoolWork`, `TrySubmitThreadpoolCallback`.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use crate::errors::{code, guarded, set_last, succeeds};
use crate::linux::callbacks::queue_work;
use crate::linux::words::{ANY, wait_while, wake};

/// `PTP_WORK_CALLBACK`.
pub type Callback = unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void);
/// `PTP_SIMPLE_CALLBACK`.
pub type SimpleCallback = unsafe extern "C" fn(*mut c_void, *mut c_void);

/// `TP_WORK`.
struct PoolWork {
    callback: Callback,
    context: *mut c_void,
    /// One for the program until it closes the object, and one for each submitted call.
    shares: AtomicUsize,
    /// Submitted calls that have not begun.
    due: AtomicU32,
    /// Submitted calls that have not returned.
    calls: AtomicU32,
    /// Threads waiting for those.
    waiting: AtomicUsize,
}

/// Releases a share.
///
/// # Safety
///
/// `pointer` was made by [`cp_new_pool_work`]. The caller has a share, and no longer uses it.
unsafe fn release(pointer: *mut c_void) {
    let pointer = pointer.cast::<PoolWork>();
    // SAFETY: a shared reference demands a value that lives on and changes only as its type allows.
    // - lives on: the caller has a share; and only atomic counts change.
    let left = unsafe { &*pointer }.shares.fetch_sub(1, SeqCst) - 1;
    if left == 0 {
        // SAFETY: `from_raw` demands a pointer of `into_raw` that is used nowhere else.
        // - no share remains.
        drop(unsafe { Box::from_raw(pointer) });
    }
}

/// Makes one call, unless it was cancelled.
///
/// # Safety
///
/// `pointer` was made by [`cp_new_pool_work`], and has a share for this call.
unsafe extern "C" fn make_call(pointer: *mut c_void) -> u32 {
    // SAFETY: as in `release`: there is a share until then.
    let work = unsafe { &*pointer.cast::<PoolWork>() };
    if work.due.fetch_update(SeqCst, SeqCst, |due| due.checked_sub(1)).is_ok() {
        // SAFETY: the callback demands the arguments that the reference passes.
        // - they are passed; the program allows any thread to call it at any time.
        unsafe { (work.callback)(std::ptr::null_mut(), work.context, pointer) };
    }
    work.calls.fetch_sub(1, SeqCst);
    if work.waiting.load(SeqCst) > 0 {
        wake(work.calls.as_ptr(), i32::MAX, ANY);
    }
    // SAFETY: `release` demands a share.
    // - this call has one.
    unsafe { release(pointer) };
    0
}

/// Creates an object that calls a function whenever it is submitted: `CreateThreadpoolWork`. Returns null on failure.
///
/// # Safety
///
/// The function may be called with `context` from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_new_pool_work(
    callback: Option<Callback>,
    context: *mut c_void,
) -> *mut c_void {
    guarded(std::ptr::null_mut(), || {
        let Some(callback) = callback else {
            set_last(code::INVALID_PARAMETER);
            return std::ptr::null_mut();
        };
        let work = PoolWork {
            callback,
            context,
            shares: AtomicUsize::new(1),
            due: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            waiting: AtomicUsize::new(0),
        };
        Box::into_raw(Box::new(work)).cast()
    })
}

/// Submits a call: `SubmitThreadpoolWork`. If there is no memory or no thread for it, the calling thread makes the call.
///
/// # Safety
///
/// `pointer` was made by [`cp_new_pool_work`], and is not closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_submit_pool_work(pointer: *mut c_void) {
    guarded((), || {
        // SAFETY: as in `release`: it is not closed.
        let work = unsafe { &*pointer.cast::<PoolWork>() };
        work.shares.fetch_add(1, SeqCst);
        work.calls.fetch_add(1, SeqCst);
        work.due.fetch_add(1, SeqCst);
        if queue_work(make_call, pointer).is_err() {
            // SAFETY: `make_call` demands a share for it.
            // - it was taken above.
            unsafe { make_call(pointer) };
        }
    });
}

/// Waits until every submitted call has returned. With `cancels`, those that have not begun are not made, and the call
/// returns once the pool's threads have dropped them:
/// `WaitForThreadpoolWorkCallbacks`.
///
/// # Safety
///
/// As for [`cp_submit_pool_work`]; the calling thread is not inside such a call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_wait_for_pool_work(pointer: *mut c_void, cancels: c_int) {
    // SAFETY: as in `release`: it is not closed.
    let work = unsafe { &*pointer.cast::<PoolWork>() };
    if cancels != 0 {
        // The pool's threads take them, but call nothing.
        work.due.store(0, SeqCst);
    }
    work.waiting.fetch_add(1, SeqCst);
    loop {
        match work.calls.load(SeqCst) {
            0 => break,
            calls => wait_while(&work.calls, calls, None),
        }
    }
    work.waiting.fetch_sub(1, SeqCst);
}

/// `CloseThreadpoolWork`. The object is freed when its last call has returned.
///
/// # Safety
///
/// As for [`cp_submit_pool_work`]; only calls already submitted use the pointer afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_close_pool_work(pointer: *mut c_void) {
    // SAFETY: `release` demands a share.
    // - the program has one.
    unsafe { release(pointer) };
}

/// A single call of `TrySubmitThreadpoolCallback`.
struct Once {
    callback: SimpleCallback,
    context: *mut c_void,
}

/// # Safety
///
/// `pointer` is that of a boxed [`Once`], and used nowhere else.
unsafe extern "C" fn make_simple_call(pointer: *mut c_void) -> u32 {
    // SAFETY: `from_raw` demands a pointer of `into_raw` that is used nowhere else.
    // - the caller promises it.
    let once = unsafe { Box::from_raw(pointer.cast::<Once>()) };
    // SAFETY: the callback demands the arguments that the reference passes.
    // - they are passed; the program allows any thread to call it at any time.
    unsafe { (once.callback)(std::ptr::null_mut(), once.context) };
    0
}

/// Submits a single call: `TrySubmitThreadpoolCallback`.
///
/// # Safety
///
/// As for [`cp_new_pool_work`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_submit_pool_call(
    callback: Option<SimpleCallback>,
    context: *mut c_void,
) -> c_int {
    succeeds(|| {
        let callback = callback.ok_or(code::INVALID_PARAMETER)?;
        let once = Box::into_raw(Box::new(Once { callback, context }));
        queue_work(make_simple_call, once.cast()).inspect_err(|_| {
            // SAFETY: as above: it was just created, and the call was refused.
            drop(unsafe { Box::from_raw(once) });
        })
    })
}
