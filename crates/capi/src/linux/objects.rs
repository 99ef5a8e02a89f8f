//! Handles for what headers of this library make (threads, for instance), and the two things that such
//! headers cannot have from strict C alone: a clock, and a wait for a word in memory.

use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use crate::abi::{self, Handle};
use crate::errors::{code, guarded, set_last};
use crate::handles;
use crate::linux::foreign::{Callback, Foreign, Setter};
use crate::linux::object::Object;

/// A handle for an object, which takes over a share of it; null if there is none left.
///
/// # Safety
///
/// `retain` and `release` may be called with `object` from any thread, and `release` once more than
/// `retain`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_open_object(
    object: *mut c_void,
    kind: u32,
    retain: Callback,
    release: Callback,
) -> Handle {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: `new` demands functions that may be called from any thread, and a share that `release` gives up.
        // - the caller says so of both.
        opened(unsafe { Foreign::new(object, kind, retain, release, None) })
    })
}

/// The same for an event, which `set` sets or resets.
///
/// # Safety
///
/// As for [`cp_open_object`]; `set`, too, may be called with `object` from any thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_open_event(
    object: *mut c_void,
    kind: u32,
    retain: Callback,
    release: Callback,
    set: Setter,
) -> Handle {
    guarded(std::ptr::null_mut(), || {
        // SAFETY: as above.
        opened(unsafe { Foreign::new(object, kind, retain, release, Some(set)) })
    })
}

fn opened(foreign: Foreign) -> Handle {
    handles::open(|_| Ok(Object::Foreign(foreign.into()))).unwrap_or_else(|code| {
        set_last(code);
        std::ptr::null_mut()
    })
}

/// The object of a handle, with a share of it for the caller; null if it is not one of this kind.
#[unsafe(no_mangle)]
pub extern "C" fn cp_find_object(handle: Handle, kind: u32) -> *mut c_void {
    guarded(std::ptr::null_mut(), || {
        let found = handles::find(handle, |object| match object {
            Object::Foreign(foreign) => foreign.share(kind),
            Object::Port(_) | Object::File(_) => None,
        });
        found.unwrap_or_else(|code| {
            set_last(code);
            std::ptr::null_mut()
        })
    })
}

/// Nanoseconds of a clock that only goes forward.
#[unsafe(no_mangle)]
pub extern "C" fn cp_clock() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one timespec at the pointer.
    // - valid for writes: `time` lives until the call returns.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(time.tv_sec).wrapping_mul(1_000_000_000).wrapping_add(part(time.tv_nsec))
}

/// The number of the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn cp_thread_id() -> u32 {
    // SAFETY: gettid(2) demands nothing of memory.
    u32::try_from(unsafe { libc::gettid() }).unwrap_or(0)
}

thread_local! {
    /// What a header has told of the calling thread. Has no destructor, so that it can be used at any time in a
    /// thread's life.
    static OWN_THREAD: Cell<*mut c_void> = const { Cell::new(std::ptr::null_mut()) };
}

/// What `cp_set_own_thread` was last told by the calling thread; null at first.
#[unsafe(no_mangle)]
pub extern "C" fn cp_own_thread() -> *mut c_void {
    OWN_THREAD.get()
}

/// Remembers an object for the calling thread.
#[unsafe(no_mangle)]
pub extern "C" fn cp_set_own_thread(object: *mut c_void) {
    OWN_THREAD.set(object);
}

/// Waits while the word is `expected`, at most so many milliseconds; it may also return early. 0 if it
/// was woken or the word is another, else the code of a time that is over.
///
/// # Safety
///
/// `word` points to a number that is only used atomically and stays there until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_wait_word(word: *const u32, expected: u32, milliseconds: u32) -> u32 {
    let limit = abi::timeout(milliseconds).map(timespec);
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: futex(2) with FUTEX_WAIT reads a word and a time.
    // - valid: the caller says so of the word, and `limit` is null or a local.
    let done = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            limit,
        )
    };
    let is_over = done < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT);
    if is_over { code::WAIT_TIMEOUT } else { code::SUCCESS }
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Wakes at most `count` threads that wait for the word.
///
/// # Safety
///
/// None: the word is only named, not used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_wake_word(word: *const u32, count: i32) {
    // SAFETY: futex(2) with FUTEX_WAKE uses the address as a name only.
    unsafe {
        libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, count)
    };
}

/// Changes whenever an object of a header is signalled; one for the process. Begins shortly before it wraps, so
/// that every program that waits for long comes through that.
pub(crate) static SIGNALS: AtomicU32 = AtomicU32::new(u32::MAX - 3);

/// Where that number is.
#[unsafe(no_mangle)]
pub extern "C" fn cp_signals() -> *const u32 {
    SIGNALS.as_ptr()
}

/// An object was signalled: each thread that waits for one looks again.
#[unsafe(no_mangle)]
pub extern "C" fn cp_signal() {
    SIGNALS.fetch_add(1, SeqCst);
    // SAFETY: `cp_wake_word` demands nothing: it does not use the word.
    unsafe { cp_wake_word(SIGNALS.as_ptr(), i32::MAX) };
}
