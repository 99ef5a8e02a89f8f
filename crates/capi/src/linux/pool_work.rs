//! Calls by the threads of the pool that a program asks for: `CreateThreadpoolWork`, `TrySubmitThreadpoolCallback`.

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
    /// One for the program until it closes it, and one for each call that was asked for.
    shares: AtomicUsize,
    /// Calls that were asked for, and have not begun.
    due: AtomicU32,
    /// Calls that were asked for, and have not returned.
    calls: AtomicU32,
    /// Threads that wait for those.
    waiting: AtomicUsize,
}

/// Gives up a share.
///
/// # Safety
///
/// `pointer` was made by [`cp_new_pool_work`], and the caller has a share, which it uses no more.
unsafe fn release(pointer: *mut c_void) {
    let pointer = pointer.cast::<PoolWork>();
    // SAFETY: a shared reference demands a value that lives on and is not changed but as its type allows.
    // - lives on: the caller has a share; and only counts change, which are atomic.
    let left = unsafe { &*pointer }.shares.fetch_sub(1, SeqCst) - 1;
    if left == 0 {
        // SAFETY: `from_raw` demands a pointer of `into_raw` that is used nowhere else.
        // - no share is left.
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
        // SAFETY: the callback demands what the reference gives it.
        // - that is what it gets; the program says that any thread may call it at any time.
        unsafe { (work.callback)(std::ptr::null_mut(), work.context, pointer) };
    }
    work.calls.fetch_sub(1, SeqCst);
    if work.waiting.load(SeqCst) > 0 {
        wake(work.calls.as_ptr(), i32::MAX, ANY);
    }
    // SAFETY: `release` demands a share.
    // - that of this call.
    unsafe { release(pointer) };
    0
}

/// Makes what calls a function whenever it is submitted: `CreateThreadpoolWork`. Null if it fails.
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

/// Asks for a call: `SubmitThreadpoolWork`. If there is neither memory nor a thread for it, the calling thread makes it.
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

/// Waits until each call that was asked for has returned, or with `cancels` each that has begun:
/// `WaitForThreadpoolWorkCallbacks`.
///
/// # Safety
///
/// As for [`cp_submit_pool_work`]; the calling thread is not in such a call itself.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_wait_for_pool_work(pointer: *mut c_void, cancels: c_int) {
    // SAFETY: as in `release`: it is not closed.
    let work = unsafe { &*pointer.cast::<PoolWork>() };
    if cancels != 0 {
        // Threads of the pool take them, and call nothing.
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

/// `CloseThreadpoolWork`: it goes when the last call has returned.
///
/// # Safety
///
/// As for [`cp_submit_pool_work`]; the pointer is not used again, but by calls that were asked for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_close_pool_work(pointer: *mut c_void) {
    // SAFETY: `release` demands a share.
    // - that of the program.
    unsafe { release(pointer) };
}

/// One call of `TrySubmitThreadpoolCallback`.
struct Once {
    callback: SimpleCallback,
    context: *mut c_void,
}

/// # Safety
///
/// `pointer` is that of a [`Once`] in a box, and used nowhere else.
unsafe extern "C" fn make_simple_call(pointer: *mut c_void) -> u32 {
    // SAFETY: `from_raw` demands a pointer of `into_raw` that is used nowhere else.
    // - the caller promises it.
    let once = unsafe { Box::from_raw(pointer.cast::<Once>()) };
    // SAFETY: the callback demands what the reference gives it.
    // - that is what it gets; the program says that any thread may call it at any time.
    unsafe { (once.callback)(std::ptr::null_mut(), once.context) };
    0
}

/// Asks for one call: `TrySubmitThreadpoolCallback`.
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
            // SAFETY: as above: it was made just now, and the call was refused.
            drop(unsafe { Box::from_raw(once) });
        })
    })
}
