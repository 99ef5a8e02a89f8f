//! Objects that threads wait for, as the headers in `compat/include` use them: creating them, changing them, waiting for
//! them.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release, Ordering::SeqCst};

use crate::abi::{self, Handle};
use crate::errors::{code, guarded, set_last, succeeds};
use crate::handles;
use crate::linux::foreign::{self, Foreign};
use crate::linux::object::{self, Object};
use crate::linux::registered::{Call, Registered};
use crate::linux::waitable::{
    self, ABANDONED, Awaited, Kind, ThreadWords, Waitable, abandon_owned,
};
use crate::linux::words::{ANY, cp_thread_id, wait_while, wake};
use crate::table::TAG;

fn opened(object: Arc<Waitable>) -> Handle {
    handles::open(|_| Ok(Object::Waitable(object))).unwrap_or_else(|code| {
        set_last(code);
        std::ptr::null_mut()
    })
}

fn open(make: impl FnOnce() -> Result<Waitable, u32>) -> Handle {
    guarded(std::ptr::null_mut(), || match make() {
        Ok(object) => opened(object.into()),
        Err(code) => {
            set_last(code);
            std::ptr::null_mut()
        }
    })
}

/// Returns the object of a handle, if it is of the right kind.
fn find(handle: Handle, is_right: impl FnOnce(&Kind) -> bool) -> Result<Arc<Waitable>, u32> {
    handles::find(handle, |object| match object {
        Object::Waitable(object) if is_right(object.kind()) => Some(Arc::clone(object)),
        _ => None,
    })
}

// ---- Events --------------------------------------------------------------------------------------

/// Creates an event. Returns null if no handle is free. An event that `stays` set until it is reset ends any number of waits.
#[unsafe(no_mangle)]
pub extern "C" fn cp_new_event(stays: c_int, is_set: c_int) -> Handle {
    open(|| Ok(Waitable::new(Kind::Event, stays == 0, u32::from(is_set != 0))))
}

/// `SetEvent`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_set_event(event: Handle) -> c_int {
    succeeds(|| object::event(event).map(|event| event.set()))
}

/// `ResetEvent`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_reset_event(event: Handle) -> c_int {
    succeeds(|| object::event(event).map(|event| event.reset()))
}

/// `PulseEvent`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_pulse_event(event: Handle) -> c_int {
    succeeds(|| object::event(event).map(|event| event.pulse()))
}

// ---- Semaphores ----------------------------------------------------------------------------------

/// Creates a semaphore. Returns null with the last error if the numbers are invalid.
#[unsafe(no_mangle)]
pub extern "C" fn cp_new_semaphore(count: i32, most: i32) -> Handle {
    open(|| match (u32::try_from(count), u32::try_from(most)) {
        (Ok(count), Ok(most)) if most > 0 && count <= most => {
            Ok(Waitable::new(Kind::Semaphore(most), true, count))
        }
        _ => Err(code::INVALID_PARAMETER),
    })
}

/// `ReleaseSemaphore`. Changes nothing if the count would exceed the semaphore's maximum.
///
/// # Safety
///
/// `before` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_release_semaphore(
    semaphore: Handle,
    count: i32,
    before: *mut i32,
) -> c_int {
    succeeds(|| {
        let semaphore = find(semaphore, |kind| matches!(kind, Kind::Semaphore(_)))?;
        let Kind::Semaphore(most) = *semaphore.kind() else { return Err(code::INVALID_HANDLE) };
        let count = u32::try_from(count).ok().filter(|count| *count > 0);
        let count = count.ok_or(code::INVALID_PARAMETER)?;
        let was = semaphore.release(count, most).ok_or(code::TOO_MANY_POSTS)?;
        if !before.is_null() {
            // SAFETY: writing through a raw pointer demands that it is valid.
            // - the caller promises it for a non-null one.
            unsafe { before.write(was.cast_signed()) };
        }
        Ok(())
    })
}

// ---- Timers --------------------------------------------------------------------------------------

/// Creates a timer that is not set.
#[unsafe(no_mangle)]
pub extern "C" fn cp_new_timer(stays: c_int) -> Handle {
    open(|| Ok(Waitable::new(Kind::Timer, stays == 0, 0)))
}

/// The time from 1601, where the reference starts counting, to 1970, in units of 100 ns.
const TICKS_FROM_1601_TO_1970: u64 = 116_444_736_000_000_000;

/// `SetWaitableTimer` without a routine. The time is in units of 100 ns, and relative if it is negative. The period is in
/// milliseconds.
#[unsafe(no_mangle)]
pub extern "C" fn cp_set_timer(timer: Handle, due: i64, period: i32) -> c_int {
    succeeds(|| {
        let timer = find(timer, |kind| matches!(kind, Kind::Timer))?;
        let period = u64::try_from(period).map_err(|_| code::INVALID_PARAMETER)? * 1_000_000;
        let is_absolute = due >= 0;
        let ticks = due.unsigned_abs();
        let ticks = if is_absolute { ticks.saturating_sub(TICKS_FROM_1601_TO_1970) } else { ticks };
        timer.set_timer(ticks.saturating_mul(100), is_absolute, period);
        Ok(())
    })
}

/// `CancelWaitableTimer`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_cancel_timer(timer: Handle) -> c_int {
    succeeds(|| find(timer, |kind| matches!(kind, Kind::Timer)).map(|timer| timer.cancel_timer()))
}

// ---- Mutexes -------------------------------------------------------------------------------------

/// Creates a mutex. The calling thread may own it from the start.
#[unsafe(no_mangle)]
pub extern "C" fn cp_new_mutex(is_owned: c_int) -> Handle {
    guarded(std::ptr::null_mut(), || {
        let mutex = Arc::new(Waitable::new(Kind::Mutex, true, 1));
        if is_owned != 0 {
            let objects = vec![(0, Arc::clone(&mutex))];
            // It is free, so this does not block.
            let _ = waitable::wait(Awaited { objects, ports: Vec::new() }, false, None);
        }
        opened(mutex)
    })
}

/// `ReleaseMutex`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_release_mutex(mutex: Handle) -> c_int {
    succeeds(|| {
        let mutex = find(mutex, |kind| matches!(kind, Kind::Mutex))?;
        if mutex.give_up() { Ok(()) } else { Err(code::NOT_OWNER) }
    })
}

// ---- Threads -------------------------------------------------------------------------------------

thread_local! {
    /// The object of the calling thread, with a share of it. Null if the thread was not made by a header's function. Has no
    /// destructor, so it can be used at any time in a thread's life.
    static OWN: Cell<*const Waitable> = const { Cell::new(std::ptr::null()) };
}

/// Creates the object of a thread that is about to be started. The thread passes `thread` to [`cp_begin_thread`], or the
/// caller passes it to [`cp_discard_thread`]. Returns null if no handle is free, and then sets no `thread`.
///
/// # Safety
///
/// `thread` points to room for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_new_thread(is_suspended: c_int, thread: *mut *const c_void) -> Handle {
    guarded(std::ptr::null_mut(), || {
        let may_go = AtomicU32::new(u32::from(is_suspended == 0));
        let words = ThreadWords { may_go, ..ThreadWords::default() };
        let object = Arc::new(Waitable::new(Kind::Thread(words), false, 0));
        let handle = opened(Arc::clone(&object));
        if !handle.is_null() {
            // SAFETY: writing through a raw pointer demands that it is valid.
            // - the caller promises it.
            unsafe { thread.write(Arc::into_raw(object).cast()) };
        }
        handle
    })
}

/// Discards the object of a thread that was not started.
///
/// # Safety
///
/// `thread` was returned by [`cp_new_thread`], and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_discard_thread(thread: *const c_void) {
    // SAFETY: `from_raw` demands a pointer of `into_raw` whose share nothing else uses.
    // - the caller promises it.
    drop(unsafe { Arc::from_raw(thread.cast::<Waitable>()) });
}

/// Makes this the object of the calling thread. Returns when the thread may run.
///
/// # Safety
///
/// As for [`cp_discard_thread`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_begin_thread(thread: *const c_void) {
    let thread = thread.cast::<Waitable>();
    OWN.set(thread);
    // SAFETY: a shared reference demands a value that lives on and changes only as its type allows.
    // - lives on: the thread keeps its share until it calls `cp_end_thread`.
    let Some(words) = unsafe { &*thread }.thread() else { return };
    words.id.store(cp_thread_id(), Release);
    wake(words.id.as_ptr(), i32::MAX, ANY);
    while words.may_go.load(Acquire) == 0 {
        wait_while(&words.may_go, 0, None);
    }
}

/// Ends the calling thread's object, if it has one.
#[unsafe(no_mangle)]
pub extern "C" fn cp_end_thread(result: u32) {
    // Before the end releases threads that wait for it.
    abandon_owned();
    let own = OWN.replace(std::ptr::null());
    if own.is_null() {
        return;
    }
    // SAFETY: `from_raw` demands a pointer of `into_raw` whose share nothing else uses.
    // - it is the share of `cp_begin_thread`, which is removed here.
    let thread = unsafe { Arc::from_raw(own) };
    if let Some(words) = thread.thread() {
        words.result.store(result, Release);
    }
    thread.set();
}

fn find_thread(thread: Handle) -> Result<Arc<Waitable>, u32> {
    find(thread, |kind| matches!(kind, Kind::Thread(_)))
}

/// `GetThreadId`. Returns 0 if the handle is not a thread's.
#[unsafe(no_mangle)]
pub extern "C" fn cp_thread_number(thread: Handle) -> u32 {
    let number = || {
        let thread = find_thread(thread)?;
        let words = thread.thread().ok_or(code::INVALID_HANDLE)?;
        loop {
            match words.id.load(Acquire) {
                0 => wait_while(&words.id, 0, None),
                number => return Ok(number),
            }
        }
    };
    guarded(0, || {
        number().unwrap_or_else(|code| {
            set_last(code);
            0
        })
    })
}

/// `ResumeThread`. Returns the previous suspend count: 1 for a thread that was created suspended and not resumed yet.
#[unsafe(no_mangle)]
pub extern "C" fn cp_resume_thread(thread: Handle) -> u32 {
    let resume = || {
        let thread = find_thread(thread)?;
        let words = thread.thread().ok_or(code::INVALID_HANDLE)?;
        let could_go = words.may_go.swap(1, SeqCst);
        wake(words.may_go.as_ptr(), 1, ANY);
        Ok(1 - could_go)
    };
    guarded(u32::MAX, || {
        resume().unwrap_or_else(|code| {
            set_last(code);
            u32::MAX
        })
    })
}

/// `GetExitCodeThread`. The result is `goes_on` while the thread is running.
///
/// # Safety
///
/// `result` points to room for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_thread_result(thread: Handle, goes_on: u32, result: *mut u32) -> c_int {
    succeeds(|| {
        let thread = find_thread(thread)?;
        let words = thread.thread().ok_or(code::INVALID_HANDLE)?;
        let has_ended = thread.is_signalled();
        let told = if has_ended { words.result.load(Acquire) } else { goes_on };
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller promises it.
        unsafe { result.write(told) };
        Ok(())
    })
}

// ---- Objects of headers --------------------------------------------------------------------------

/// Returns a handle for an object, and takes over a share of it. Returns null if no handle is free.
///
/// # Safety
///
/// Any thread may call `retain` and `release` with `object`, and may call `release` once more than `retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_open_object(
    object: *mut c_void,
    kind: u32,
    retain: foreign::Callback,
    release: foreign::Callback,
) -> Handle {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: `new` demands functions that any thread may call, and a share that `release` gives up.
        // - the caller guarantees both.
        let object = unsafe { Foreign::new(object, kind, retain, release) };
        handles::open(|_| Ok(Object::Foreign(object.into()))).unwrap_or_else(|code| {
            set_last(code);
            std::ptr::null_mut()
        })
    })
}

/// Returns the object of a handle, with a share for the caller. Returns null if it is not of this kind.
#[unsafe(no_mangle)]
pub extern "C" fn cp_find_object(handle: Handle, kind: u32) -> *mut c_void {
    guarded(std::ptr::null_mut(), || {
        let found = handles::find(handle, |object| match object {
            Object::Foreign(foreign) => foreign.share(kind),
            _ => None,
        });
        found.unwrap_or_else(|code| {
            set_last(code);
            std::ptr::null_mut()
        })
    })
}

// ---- Waits ---------------------------------------------------------------------------------------

/// `MAXIMUM_WAIT_OBJECTS`.
const MOST: u32 = 64;
/// `WAIT_FAILED`.
const FAILED: u32 = u32::MAX;
const _: () = assert!(MOST <= ABANDONED);

/// Waits until one of the handles is signalled, or until all are: `WaitForMultipleObjects`.
///
/// # Safety
///
/// `handles` is null or points to `count` handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_wait_for(
    handles: *const Handle,
    count: u32,
    all: c_int,
    milliseconds: u32,
) -> u32 {
    let wait = || {
        if count == 0 || count > MOST || handles.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        // SAFETY: reading demands `count` values there, however they are aligned.
        // - the caller promises it.
        let handle = |place: usize| unsafe { handles.wrapping_add(place).read_unaligned() };
        // Not on the heap: a wait for one object that is signalled needs no memory.
        let mut room = [std::ptr::null_mut(); MOST as usize];
        let handles = &mut room[..count as usize];
        (0..).zip(&mut *handles).for_each(|(place, it)| *it = handle(place));
        let handles: &[Handle] = handles;
        let is_same = |one: &Handle, other: &Handle| (one.addr() ^ other.addr()) & !TAG == 0;
        let is_copy = |(place, handle): (usize, &Handle)| {
            handles[..place].iter().any(|other| is_same(handle, other))
        };
        // If one wait takes a signal, it cannot be there for each copy of a handle.
        if all != 0 && handles.iter().enumerate().any(is_copy) {
            return Err(code::INVALID_PARAMETER);
        }
        let awaited = object::awaited(handles)?;
        waitable::wait(awaited, all != 0, abi::timeout(milliseconds))
    };
    guarded(FAILED, || {
        wait().unwrap_or_else(|failed| {
            if failed == code::WAIT_TIMEOUT {
                return failed;
            }
            set_last(failed);
            FAILED
        })
    })
}

/// The number of waits queued at an object. Tests use it to be sure that the next signal goes to one of them.
#[unsafe(no_mangle)]
pub extern "C" fn cp_waiting(object: Handle) -> u32 {
    guarded(0, || {
        let object = find(object, |_| true);
        object.map_or(0, |object| u32::try_from(object.waiting()).unwrap_or(u32::MAX))
    })
}

// ---- Waits that call a function -------------------------------------------------------------------

/// `WAITORTIMERCALLBACK`.
pub type Callback = unsafe extern "C" fn(*mut c_void, u8);

/// `WT_EXECUTEONLYONCE`.
const ONCE: u32 = 8;

/// Calls a function whenever a handle is signalled or the time is up: `RegisterWaitForSingleObject`. Returns null on failure.
///
/// # Safety
///
/// The function may be called with `context` from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_register_wait(
    handle: Handle,
    callback: Option<Callback>,
    context: *mut c_void,
    milliseconds: u32,
    flags: u32,
) -> Handle {
    let register = || {
        let callback = callback.ok_or(code::INVALID_PARAMETER)?;
        let awaited = object::awaited(&[handle])?;
        let wait = Registered::new();
        let opened = handles::open(|_| Ok(Object::Registered(Arc::clone(&wait))))?;
        let (call, limit) = (Call { callback, context }, abi::timeout(milliseconds));
        wait.start(awaited, call, limit, flags & ONCE != 0).map(|()| opened).inspect_err(|_| {
            let _ = handles::close(opened);
        })
    };
    guarded(std::ptr::null_mut(), || {
        register().unwrap_or_else(|code| {
            set_last(code);
            std::ptr::null_mut()
        })
    })
}

/// `UnregisterWaitEx`. No call begins after it. If the event is `INVALID_HANDLE_VALUE`, it waits for a call in progress.
/// Otherwise it fails with `ERROR_IO_PENDING` if a call is in progress, and the event, if there is one, is set when that call
/// ends.
#[unsafe(no_mangle)]
pub extern "C" fn cp_unregister_wait(handle: Handle, event: Handle) -> c_int {
    succeeds(|| {
        let waits = event.addr() == abi::NO_HANDLE;
        let tells = !event.is_null() && !waits;
        let tell = if tells { Some(object::event(event)?) } else { None };
        let is_wait = |object: &Object| match object {
            Object::Registered(wait) => Some(Arc::clone(wait)),
            _ => None,
        };
        let wait = handles::find(handle, is_wait)?;
        handles::close(handle)?;
        let is_calling = wait.stop(tell);
        if waits {
            wait.until_ended();
        }
        if is_calling && !waits { Err(code::IO_PENDING) } else { Ok(()) }
    })
}
