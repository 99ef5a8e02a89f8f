//! Ctrl-C on Windows: the system calls a handler of the process, on a separate thread.

use std::future::poll_fn;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use windows_sys::Win32::System::Console::{CTRL_C_EVENT, SetConsoleCtrlHandler};

static STATE: Mutex<State> =
    Mutex::new(State { events: 0, next: 0, waiting: Vec::new(), is_set: false });

struct State {
    /// How often Ctrl-C was pressed.
    events: u64,
    next: u64,
    /// The futures that wait, by number.
    waiting: Vec<(u64, Waker)>,
    /// The process has the handler.
    is_set: bool,
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "system" fn handle(event: u32) -> i32 {
    if event != CTRL_C_EVENT {
        return 0;
    }
    let waiting = {
        let mut state = lock();
        state.events += 1;
        std::mem::take(&mut state.waiting)
    };
    // An ordinary thread of the process: it may take locks and allocate. A waker that panics must
    // not unwind into the system.
    for (_, waker) in waiting {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| waker.wake()));
    }
    1
}

/// Installs the handler once.
fn install(state: &mut State) -> io::Result<()> {
    if !state.is_set {
        // SAFETY: SetConsoleCtrlHandler requires a function that may be called from any thread.
        // - `handle` takes a lock, and lets no panic out.
        if unsafe { SetConsoleCtrlHandler(Some(handle), 1) } == 0 {
            return Err(io::Error::last_os_error());
        }
        state.is_set = true;
    }
    Ok(())
}

/// A future's place among those that wait. Dropped, it waits no more.
struct Place(u64);

impl Drop for Place {
    fn drop(&mut self) {
        let waker = {
            let mut state = lock();
            let at = state.waiting.iter().position(|(number, _)| *number == self.0);
            at.map(|at| state.waiting.swap_remove(at))
        };
        // Outside the lock: this may drop a task.
        drop(waker);
    }
}

pub(crate) async fn ctrl_c() -> io::Result<()> {
    let (place, seen) = {
        let mut state = lock();
        install(&mut state)?;
        state.next += 1;
        (Place(state.next), state.events)
    };
    poll_fn(|context| {
        let mut state = lock();
        if state.events != seen {
            return Poll::Ready(());
        }
        let old = match state.waiting.iter_mut().find(|(number, _)| *number == place.0) {
            Some((_, waker)) => Some(std::mem::replace(waker, context.waker().clone())),
            None => {
                state.waiting.push((place.0, context.waker().clone()));
                None
            }
        };
        drop(state);
        drop(old);
        Poll::Pending
    })
    .await;
    Ok(())
}
