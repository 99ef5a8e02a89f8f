//! Ctrl-C, Ctrl-Break and the end of the console as signals that a thread can wait for, with a
//! timeout.
//!
//! The system starts a thread for each of them, which calls the handler. So the handler may lock.

use std::io;
use std::process;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use windows_sys::Win32::System::Console::{CTRL_BREAK_EVENT, CTRL_C_EVENT, SetConsoleCtrlHandler};
use windows_sys::core::BOOL;

/// This many signals requesting the end are handled one after the other. Another one ends the
/// process immediately, whatever the handling thread is doing.
const OBEYED: u32 = 2;

/// The unhandled requests to the process. A handler gets no context argument.
static ASKED: Asked = Asked {
    state: Mutex::new(State { count: 0, end: false, wake: false, impatient: false }),
    changed: Condvar::new(),
};

struct Asked {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    count: u32,
    end: bool,
    wake: bool,
    impatient: bool,
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The unhandled requests to the process.
pub(crate) struct Signals(());

/// Ends a wait for signals.
pub(crate) struct Waker(());

impl Signals {
    /// From now on Ctrl-C, Ctrl-Break and the end of the console request the end. The third of them
    /// ends the process immediately.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: SetConsoleCtrlHandler demands a function that may be called by any thread until the process ends.
        // - any thread: `handle` uses nothing but a static with a lock;
        // - until the end: it is a function of this program.
        if unsafe { SetConsoleCtrlHandler(Some(handle), 1) } == 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(()))
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(())
    }

    /// Waits for a signal, a wake or the timeout.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> io::Result<()> {
        let is_quiet = |state: &mut State| !state.wake;
        let mut state = match limit {
            None => ASKED
                .changed
                .wait_while(ASKED.lock(), is_quiet)
                .unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                ASKED
                    .changed
                    .wait_timeout_while(ASKED.lock(), limit, is_quiet)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0
            }
        };
        state.wake = false;
        Ok(())
    }

    /// Whether the end was requested since the last call.
    pub(crate) fn end(&self) -> bool {
        std::mem::take(&mut ASKED.lock().end)
    }

    /// Nothing requests numbers here.
    pub(crate) fn numbers(&self) -> bool {
        false
    }

    /// From now on another one ends the process immediately.
    pub(crate) fn last_warning(&self) {
        ASKED.lock().impatient = true;
    }
}

impl Waker {
    pub(crate) fn wake(&self) {
        ASKED.lock().wake = true;
        ASKED.changed.notify_all();
    }
}

/// The exit codes of a Unix shell for SIGINT and SIGTERM.
unsafe extern "system" fn handle(kind: u32) -> BOOL {
    let mut state = ASKED.lock();
    state.count += 1;
    if state.impatient || state.count > OBEYED {
        drop(state);
        process::exit(128 + if kind == CTRL_C_EVENT { 2 } else { 15 });
    }
    (state.end, state.wake) = (true, true);
    drop(state);
    ASKED.changed.notify_all();
    if kind != CTRL_C_EVENT && kind != CTRL_BREAK_EVENT {
        // The console is being closed, or the session is ending: when this returns, the system ends
        // the process. It does so after some seconds in any case.
        loop {
            thread::park();
        }
    }
    1
}
