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

/// A wait this long ends with the system's tick, which is exact enough for it.
const COARSE: Duration = Duration::from_millis(100);

/// The calling thread.
///
/// It sleeps on an event that takes one signal and is reset by the thread that it lets go on. A limit is kept by a
/// timer of high resolution beside it, since the waits themselves count in ticks of up to 15.6 ms, and the port's
/// watchdog looks every millisecond.
///
/// The standard library's `park` would not do: each thread has one token for it, which belongs to the
/// user's code. An `unpark` of that code would be lost here.
pub(super) struct Current {
    number: u32,
    /// `None` if the process can have no more handles. The thread then sleeps in short naps.
    event: Option<OwnedHandle>,
    /// An `unpark` that no `park` has taken, where there is no event.
    unparked: AtomicBool,
    /// Made when the thread first parks for a short time; `None` if it cannot be had.
    timer: OnceLock<Option<OwnedHandle>>,
}

fn owned(handle: HANDLE) -> Option<OwnedHandle> {
    if handle.is_null() {
        return None;
    }
    // SAFETY: `from_raw_handle` demands an open handle that nothing else owns.
    // - each caller passes what CreateEventW or CreateWaitableTimerExW returned it just now, and null, which
    //   stands for a failure, was sorted out above.
    Some(unsafe { OwnedHandle::from_raw_handle(handle) })
}

/// A timer that its wait resets. Before Windows 10 1803 there is none of high resolution, and one with the
/// system's tick is no better than the wait's own limit.
fn new_timer() -> Option<OwnedHandle> {
    let kind = CREATE_WAITABLE_TIMER_HIGH_RESOLUTION;
    // SAFETY: CreateWaitableTimerExW reads attributes and a name at its two pointers.
    // - null stands for none of either.
    owned(unsafe { CreateWaitableTimerExW(ptr::null(), ptr::null(), kind, TIMER_ALL_ACCESS) })
}

impl Current {
    pub(super) fn new() -> Self {
        // SAFETY: GetCurrentThreadId demands nothing.
        let number = unsafe { GetCurrentThreadId() };
        // SAFETY: CreateEventW reads attributes and a name at its two pointers.
        // - null stands for none of either. Zeros: reset by the wait that it ends, and not signalled yet.
        let event = owned(unsafe { CreateEventW(ptr::null(), 0, 0, ptr::null()) });
        Self { number, event, unparked: AtomicBool::new(false), timer: OnceLock::new() }
    }

    /// Sleeps until the event is signalled or the time is over.
    fn wait(&self, event: &OwnedHandle, timeout: Option<Duration>) {
        let Some(timeout) = timeout else { return wait_for(event, INFINITE) };
        if timeout < COARSE
            && let Some(timer) = self.timer.get_or_init(new_timer)
            && set(timer, timeout)
        {
            let both = [event.as_raw_handle(), timer.as_raw_handle()];
            // SAFETY: WaitForMultipleObjects reads as many handles at the pointer as its first argument says,
            // which must be open and be waited for by no other call that resets them for itself.
            // - valid for reads: `both`, a local, has two;
            // - open: both are borrowed from `self` over the call;
            // - only the thread itself parks here.
            unsafe { WaitForMultipleObjects(2, both.as_ptr(), 0, INFINITE) };
            // If the event has ended it, the timer may yet be due. The next `set` takes that back.
            return;
        }
        wait_for(event, timeout::whole_milliseconds(timeout));
    }
}

fn wait_for(event: &OwnedHandle, milliseconds: u32) {
    // SAFETY: WaitForSingleObject demands an open handle.
    // - it is borrowed over the call.
    unsafe { WaitForSingleObject(event.as_raw_handle(), milliseconds) };
}

/// Sets a timer, and takes back whatever it was set to. False if the system refuses.
fn set(timer: &OwnedHandle, timeout: Duration) -> bool {
    let due = timeout::relative_due_time(timeout);
    let handle = timer.as_raw_handle();
    // SAFETY: SetWaitableTimer demands an open handle of a timer, and reads the due time at the pointer. It calls
    // nothing, since no routine is given.
    // - open: it is borrowed over the call; - valid for reads: `due` is a local.
    let done = unsafe { SetWaitableTimer(handle, &raw const due, 0, None, ptr::null(), 0) };
    done != 0
}

impl Thread for Current {
    fn park(&self, timeout: Option<Duration>) {
        match &self.event {
            Some(event) => self.wait(event, timeout),
            // A park may end for no reason, and the caller looks again.
            None if !self.unparked.swap(false, SeqCst) => {
                // SAFETY: Sleep demands nothing.
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
        // SAFETY: SetEvent demands an open handle of an event.
        // - `self` has made it, and keeps it open.
        unsafe { SetEvent(event.as_raw_handle()) };
    }

    fn number(&self) -> Option<u64> {
        Some(self.number.into())
    }

    fn asleep(&self) -> Option<bool> {
        // No documented call answers this. The cycles that a thread has used do not help: a thread that is ready and has
        // no processor uses none either.
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
            // The clock of the timer and this one are not the same.
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
