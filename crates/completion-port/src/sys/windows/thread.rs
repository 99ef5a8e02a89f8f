//! A thread that can be parked.

use std::os::windows::io::{AsRawHandle as _, FromRawHandle as _, OwnedHandle};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use windows_sys::Win32::Foundation::HANDLE;
use windows_sys::Win32::System::Threading::{
    CREATE_WAITABLE_TIMER_HIGH_RESOLUTION, CreateEventW, CreateWaitableTimerExW,
    GetCurrentThreadId, INFINITE, SetEvent, SetWaitableTimer, Sleep, TIMER_ALL_ACCESS,
    WaitForMultipleObjects, WaitForSingleObject,
};

use super::timeout;
use crate::backend::thread::Thread;
use crate::state::facts::Presence;

/// A wait this long uses the system's tick, which is precise enough.
const COARSE: Duration = Duration::from_millis(100);

/// Parks the thread that called [`Current::new`].
///
/// It sleeps on an event that wakes one wait and is reset by it. A high-resolution timer limits the
/// wait, since the waits themselves count in ticks of up to 15.6 ms, and the port's watchdog checks
/// every millisecond.
///
/// It does not use the standard library's `park`: each thread has one token for it, which belongs
/// to the program. A program's `unpark` would be lost here.
pub(super) struct Current {
    number: u32,
    /// `None` if the process can have no more handles. The thread then sleeps for short times.
    event: Option<OwnedHandle>,
    /// Whether an `unpark` is pending that no `park` has taken. Used only without an event.
    unparked: AtomicBool,
    /// Made when the thread first parks for a short time; `None` if the system has none.
    timer: OnceLock<Option<OwnedHandle>>,
}

fn owned(handle: HANDLE) -> Option<OwnedHandle> {
    if handle.is_null() {
        return None;
    }
    // SAFETY: `from_raw_handle` requires an open handle that nothing else owns.
    // - each caller passes a handle that CreateEventW or CreateWaitableTimerExW has just returned;
    //   null, which means a failure, was handled above.
    Some(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// Makes a timer that its wait resets.
///
/// Before Windows 10 1803 there is none of high resolution, and one with the system's tick is no
/// better than the wait's own limit.
fn new_timer() -> Option<OwnedHandle> {
    let kind = CREATE_WAITABLE_TIMER_HIGH_RESOLUTION;
    // SAFETY: CreateWaitableTimerExW reads attributes and a name at its two pointers.
    // - null means none for both.
    owned(unsafe { CreateWaitableTimerExW(ptr::null(), ptr::null(), kind, TIMER_ALL_ACCESS) })
}

impl Current {
    pub(super) fn new() -> Self {
        // SAFETY: GetCurrentThreadId has no requirements.
        let number = unsafe { GetCurrentThreadId() };
        // SAFETY: CreateEventW reads attributes and a name at its two pointers.
        // - null means none for both. The zeros mean: reset by the wait that it ends, and not
        //   signalled.
        let event = owned(unsafe { CreateEventW(ptr::null(), 0, 0, ptr::null()) });
        Self { number, event, unparked: AtomicBool::new(false), timer: OnceLock::new() }
    }

    /// Sleeps until the event is signalled or the time has passed.
    fn wait(&self, event: &OwnedHandle, timeout: Option<Duration>) {
        let Some(timeout) = timeout else { return wait_for(event, INFINITE) };
        if timeout < COARSE
            && let Some(timer) = self.timer.get_or_init(new_timer)
            && set(timer, timeout)
        {
            let both = [event.as_raw_handle(), timer.as_raw_handle()];
            // SAFETY: WaitForMultipleObjects reads as many handles at the pointer as its first
            // argument says. They must be open, and no other call that resets them may wait for
            // them.
            // - valid for reads: `both`, a local, has two;
            // - open: both are borrowed from `self` during the call;
            // - only the thread itself parks here.
            unsafe { WaitForMultipleObjects(2, both.as_ptr(), 0, INFINITE) };
            // If the event has ended the wait, the timer may still be set. The next `set` replaces
            // that.
            return;
        }
        wait_for(event, timeout::whole_milliseconds(timeout));
    }
}

fn wait_for(event: &OwnedHandle, milliseconds: u32) {
    // SAFETY: WaitForSingleObject requires an open handle.
    // - it is borrowed during the call.
    unsafe { WaitForSingleObject(event.as_raw_handle(), milliseconds) };
}

/// Sets a timer, replacing its former time. False if the system refuses.
fn set(timer: &OwnedHandle, timeout: Duration) -> bool {
    let due = timeout::relative_due_time(timeout);
    let handle = timer.as_raw_handle();
    // SAFETY: SetWaitableTimer requires an open handle of a timer, and reads the due time at the
    // pointer. It calls nothing, since no routine is passed.
    // - open: it is borrowed during the call;
    // - valid for reads: `due` is a local.
    let done = unsafe { SetWaitableTimer(handle, &raw const due, 0, None, ptr::null(), 0) };
    done != 0
}

impl Thread for Current {
    fn park(&self, timeout: Option<Duration>) {
        match &self.event {
            Some(event) => self.wait(event, timeout),
            // A park may end for no reason, and the caller checks again.
            None if !self.unparked.swap(false, SeqCst) => {
                // SAFETY: Sleep has no requirements.
                unsafe { Sleep(1) };
            }
            None => {}
        }
    }

    fn unpark(&self) {
        let Some(event) = &self.event else {
            self.unparked.store(true, SeqCst);
            return;
        };
        // SAFETY: SetEvent requires an open handle of an event.
        // - `self` has made it, and keeps it open.
        unsafe { SetEvent(event.as_raw_handle()) };
    }

    fn number(&self) -> Option<u64> {
        Some(self.number.into())
    }

    fn asleep(&self) -> Option<bool> {
        // No documented call reports it. The cycles that a thread has used do not help: a thread
        // that is ready but has no processor uses none either.
        None
    }

    fn observe(&self) -> bool {
        false
    }

    fn read_record(&self) -> Option<Presence> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Instant;

    use super::*;

    const LONG: Duration = Duration::from_secs(10);

    #[test]
    fn an_unpark_ends_the_next_park() {
        for event in [true, false] {
            let mut current = Current::new();
            assert!(current.event.is_some());
            if !event {
                current.event = None;
            }
            let begun = Instant::now();
            current.unpark();
            current.park(Some(LONG));
            assert!(begun.elapsed() < LONG);
        }
    }

    #[test]
    fn an_unpark_of_another_thread_ends_a_park() {
        let current = Arc::new(Current::new());
        let begun = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| current.unpark());
            current.park(Some(LONG));
        });
        assert!(begun.elapsed() < LONG);
    }

    #[test]
    fn a_park_is_not_shorter_than_its_limit() {
        let current = Current::new();
        for limit in [1, 3, 120].map(Duration::from_millis) {
            let begun = Instant::now();
            current.park(Some(limit));
            // The timer and this measurement use different clocks.
            assert!(begun.elapsed() + Duration::from_millis(1) >= limit, "{:?}", begun.elapsed());
        }
    }

    #[test]
    fn what_was_left_of_a_limit_does_not_end_the_next_park() {
        let current = Current::new();
        current.unpark();
        current.park(Some(Duration::from_millis(5)));
        let begun = Instant::now();
        current.park(Some(Duration::from_millis(50)));
        assert!(begun.elapsed() >= Duration::from_millis(45), "{:?}", begun.elapsed());
    }
}
