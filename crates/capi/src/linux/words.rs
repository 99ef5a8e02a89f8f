//! Waits on a word in memory, plus a clock and the thread id: what headers cannot get from strict C alone.

use std::io;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use crate::abi;
use crate::errors::code;

/// Any thread that waits on a word.
pub(crate) const ANY: u32 = u32::MAX;

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

/// The calling thread's id.
#[unsafe(no_mangle)]
pub extern "C" fn cp_thread_id() -> u32 {
    // SAFETY: gettid(2) demands nothing of memory.
    u32::try_from(unsafe { libc::gettid() }).unwrap_or(0)
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// Waits while the word is `expected`, for `limit` at most. `sorts` are the kinds of waiter this thread counts as. May return
/// early. Returns whether the time is up.
///
/// # Safety
///
/// `word` points to a number that is only used atomically and stays there until this returns.
pub(crate) unsafe fn sleep(
    word: *const u32,
    expected: u32,
    limit: Option<Duration>,
    sorts: u32,
) -> bool {
    // With a set of kinds, the system takes the time at which the wait ends, on the monotonic clock.
    let end = limit.map(|limit| timespec(Duration::from_nanos(cp_clock()).saturating_add(limit)));
    let end = end.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: futex(2) with FUTEX_WAIT_BITSET reads a word and a time.
    // - valid: the caller promises it of the word, and `end` is null or a local.
    let done = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            expected,
            end,
            std::ptr::null::<u32>(),
            sorts,
        )
    };
    done < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT)
}

/// Waits while a word of the library is `expected`, for `limit` at most. May return early.
pub(crate) fn wait_while(word: &AtomicU32, expected: u32, limit: Option<Duration>) {
    // SAFETY: `sleep` demands a number that is only used atomically and stays there.
    // - it is an atomic number, and borrowed.
    unsafe { sleep(word.as_ptr(), expected, limit, ANY) };
}

/// Wakes at most `count` threads that wait on the word. Only the address matters: the memory may be freed by now.
pub(crate) fn wake(word: *const u32, count: i32, sorts: u32) {
    // SAFETY: futex(2) with FUTEX_WAKE_BITSET uses the address as a name only.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word,
            libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG,
            count,
            std::ptr::null::<libc::timespec>(),
            std::ptr::null::<u32>(),
            sorts,
        )
    };
}

/// Waits while the word is `expected`, for this number of milliseconds at most. May return early. Returns 0 if it was woken
/// or the word has changed, or the code of a timeout.
///
/// # Safety
///
/// `word` points to a number that is only used atomically and stays there until this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_wait_word(word: *const u32, expected: u32, milliseconds: u32) -> u32 {
    // SAFETY: as this call.
    let is_over = unsafe { sleep(word, expected, abi::timeout(milliseconds), ANY) };
    if is_over { code::WAIT_TIMEOUT } else { code::SUCCESS }
}

/// Wakes at most `count` threads that wait on the word.
#[unsafe(no_mangle)]
pub extern "C" fn cp_wake_word(word: *const u32, count: i32) {
    wake(word, count, ANY);
}

/// Same as [`cp_wait_word`] without a limit, for a thread of the kinds whose bits are set.
///
/// # Safety
///
/// As for [`cp_wait_word`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_wait_word_as(word: *const u32, expected: u32, sorts: u32) {
    // SAFETY: as this call.
    unsafe { sleep(word, expected, None, sorts) };
}

/// Wakes at most `count` threads that wait on the word as one of these kinds.
#[unsafe(no_mangle)]
pub extern "C" fn cp_wake_word_as(word: *const u32, count: i32, sorts: u32) {
    wake(word, count, sorts);
}
