//! Routines for requests to stop a program: Ctrl+C, a closed terminal, a system shutdown. Like the
//! reference, this library calls them in a separate thread, here when a signal arrives.
//!
//! The signal handler notifies the thread through a word in memory. It uses no descriptor, because
//! a program may close all descriptors it does not know, and another socket of the program may then
//! have the number.
//!
//! A forked child has neither the thread nor the routines: a signal ends it, unless it sets
//! routines itself. It inherits that Ctrl+C is ignored, like a new process of the reference.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::errors::{code, succeeds};
use crate::linux::process::Own;
use crate::linux::words::{cp_wait_word, cp_wake_word};

/// `PHANDLER_ROUTINE`.
pub type Routine = unsafe extern "C" fn(u32) -> c_int;

/// Each signal and its event; Ctrl+C is the first.
const SIGNALS: [(c_int, u32); 4] =
    [(libc::SIGINT, 0), (libc::SIGQUIT, 1), (libc::SIGHUP, 2), (libc::SIGTERM, 6)];

/// The settings of one process.
#[derive(Default)]
struct Set {
    routines: Vec<Routine>,
    has_thread: bool,
}

static SET: Own<Mutex<Set>> = Own::new(begin_child);

extern "C" fn begin_child() {
    SET.pass_on();
}

fn set() -> MutexGuard<'static, Set> {
    SET.get(|_| Box::default()).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ctrl+C does nothing. Changed with the set locked.
static IGNORES: AtomicBool = AtomicBool::new(false);

/// Signals that have arrived and were not handled yet: a bit for each, in the order of [`SIGNALS`].
static TOLD: AtomicU32 = AtomicU32::new(0);
/// The process whose thread handles them.
static OWNER: AtomicI32 = AtomicI32::new(0);

fn own_process() -> c_int {
    // SAFETY: getpid(2) demands nothing of memory.
    unsafe { libc::getpid() }
}

/// Notifies the thread of a signal. Async-signal-safe.
extern "C" fn tell(signal: c_int) {
    if OWNER.load(Relaxed) != own_process() {
        // A forked child has no such thread: the signal ends it.
        end_by(signal);
        return;
    }
    // SAFETY: __errno_location(3) demands nothing.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: reading through a raw pointer demands that it is valid.
    // - it is the calling thread's errno.
    let before = unsafe { errno.read() };
    if let Some(place) = SIGNALS.iter().position(|(known, _)| *known == signal) {
        TOLD.fetch_or(1 << place, SeqCst);
        cp_wake_word(TOLD.as_ptr(), 1);
    }
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

/// The default effect of the signal.
fn end_by(signal: c_int) {
    act(signal, libc::SIG_DFL);
    // SAFETY: kill(2) demands nothing of memory.
    unsafe { libc::kill(own_process(), signal) };
}

/// Sets the effect of a signal.
fn act(signal: c_int, action: usize) {
    // SAFETY: `assume_init` demands a value.
    // - the system's struct has only numbers and a set of bits, for which all-zero bits are valid.
    let mut wanted = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    wanted.sa_sigaction = action;
    // Interrupted calls of other threads are restarted.
    wanted.sa_flags = libc::SA_RESTART;
    // SAFETY: sigaction(2) reads the struct. The function may be called at any time.
    // - `tell` does what a signal handler may; the other actions are the system's.
    unsafe { libc::sigaction(signal, &raw const wanted, std::ptr::null_mut()) };
}

/// Waits until a signal comes, and calls the routines.
fn serve() {
    loop {
        let told = TOLD.swap(0, SeqCst);
        for (place, &(signal, event)) in SIGNALS.iter().enumerate() {
            if told & 1 << place != 0 {
                handle(signal, event);
            }
        }
        // SAFETY: `cp_wait_word` demands a number that is only used atomically and stays there.
        // - it is an atomic number that lives as long as the process.
        unsafe { cp_wait_word(TOLD.as_ptr(), 0, u32::MAX) };
    }
}

fn handle(signal: c_int, event: u32) {
    let routines = {
        let set = set();
        if IGNORES.load(Relaxed) && signal == libc::SIGINT {
            return;
        }
        set.routines.clone()
    };
    // The newest first.
    let is_handled = routines.iter().rev().any(|routine| {
        // SAFETY: the routine demands an event.
        // - the program has set it, and guarantees that any thread may call it at any time.
        unsafe { routine(event) != 0 }
    });
    if !is_handled {
        end_by(signal);
    }
}

impl Set {
    /// Creates the thread.
    fn start(&mut self) -> Result<(), u32> {
        if self.has_thread {
            return Ok(());
        }
        // Signals of its parent do not concern a forked child.
        TOLD.store(0, SeqCst);
        let thread = std::thread::Builder::new().name("cp-control".to_owned());
        thread.spawn(serve).map_err(|_| code::NO_SYSTEM_RESOURCES)?;
        OWNER.store(own_process(), Relaxed);
        self.has_thread = true;
        Ok(())
    }

    /// Sets the effect of each of these signals.
    fn apply(&self, signals: &[(c_int, u32)]) {
        for &(signal, _) in signals {
            if IGNORES.load(Relaxed) && signal == libc::SIGINT {
                act(signal, libc::SIG_IGN);
            } else if self.routines.is_empty() {
                act(signal, libc::SIG_DFL);
            } else {
                act(signal, tell as extern "C" fn(c_int) as usize);
            }
        }
    }
}

/// `SetConsoleCtrlHandler`: adds or removes a routine; without one, chooses whether Ctrl+C is
/// ignored.
///
/// # Safety
///
/// `routine` is null or may be called from any thread at any time, until it is removed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_set_control_handler(routine: Option<Routine>, add: c_int) -> c_int {
    succeeds(|| {
        let mut set = set();
        let Some(routine) = routine else {
            IGNORES.store(add != 0, Relaxed);
            // The program keeps its handlers of the others if it has set no routine.
            set.apply(&SIGNALS[..1]);
            return Ok(());
        };
        if add != 0 {
            set.start()?;
            set.routines.push(routine);
        } else {
            let is_it = |known: &Routine| *known as usize == routine as usize;
            let place = set.routines.iter().rposition(is_it).ok_or(code::INVALID_PARAMETER)?;
            set.routines.remove(place);
        }
        set.apply(&SIGNALS);
        Ok(())
    })
}
