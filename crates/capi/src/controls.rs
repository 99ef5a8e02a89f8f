//! The routines that a program has set for what would stop it: Ctrl+C, a terminal that is closed, the end of the
//! system. The reference calls them in a thread of their own, and so does this library, when a signal says so.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::errors::{code, succeeds};

/// `PHANDLER_ROUTINE`.
pub type Routine = unsafe extern "C" fn(u32) -> c_int;

/// Each signal, and the event that it stands for; Ctrl+C is the first.
const SIGNALS: [(c_int, u32); 4] =
    [(libc::SIGINT, 0), (libc::SIGQUIT, 1), (libc::SIGHUP, 2), (libc::SIGTERM, 6)];

/// What is set; one for the process.
struct Set {
    routines: Vec<Routine>,
    /// Ctrl+C does nothing.
    ignores: bool,
    has_thread: bool,
}

static SET: Mutex<Set> =
    Mutex::new(Set { routines: Vec::new(), ignores: false, has_thread: false });

/// The end of the pipe to which the signal handler writes, and the process whose thread reads from it.
static WRITES_TO: AtomicI32 = AtomicI32::new(-1);
static OWNER: AtomicI32 = AtomicI32::new(0);

/// Tells the thread which signal came. Does what a signal handler may.
extern "C" fn tell(signal: c_int) {
    // SAFETY: getpid(2) demands nothing of memory.
    let is_owner = OWNER.load(Relaxed) == unsafe { libc::getpid() };
    if !is_owner {
        // A forked child has no such thread: the signal is its end.
        end_by(signal);
        return;
    }
    // SAFETY: __errno_location(3) demands nothing.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: reading through a raw pointer demands that it is valid.
    // - it is the calling thread's own number.
    let before = unsafe { errno.read() };
    let byte = u8::try_from(signal).unwrap_or(0);
    // SAFETY: write(2) reads one byte at the pointer.
    // - valid: `byte` is a local. If the pipe is full, enough signals are told.
    unsafe { libc::write(WRITES_TO.load(Relaxed), (&raw const byte).cast(), 1) };
    // SAFETY: as above.
    unsafe { errno.write(before) };
}

/// What the signal does by itself.
fn end_by(signal: c_int) {
    act(signal, libc::SIG_DFL);
    // SAFETY: getpid(2) demands nothing of memory.
    let own = unsafe { libc::getpid() };
    // SAFETY: kill(2) demands nothing of memory.
    unsafe { libc::kill(own, signal) };
}

/// Sets what a signal does.
fn act(signal: c_int, action: usize) {
    // SAFETY: `assume_init` demands a value.
    // - the system's struct has numbers and a set of bits only, of which all bits zero are one.
    let mut wanted = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
    wanted.sa_sigaction = action;
    // Calls of other threads go on where they were.
    wanted.sa_flags = libc::SA_RESTART;
    // SAFETY: sigaction(2) reads the struct. The function may be called at any time.
    // - `tell` does what a signal handler may; the other actions are the system's.
    unsafe { libc::sigaction(signal, &raw const wanted, std::ptr::null_mut()) };
}

/// Reads which signals came, and calls the routines.
fn serve(reads_from: c_int) {
    loop {
        let mut byte = 0_u8;
        // SAFETY: read(2) writes one byte at the pointer.
        // - valid: `byte` is a local.
        let read = unsafe { libc::read(reads_from, (&raw mut byte).cast(), 1) };
        let found = SIGNALS.iter().find(|(signal, _)| *signal == c_int::from(byte));
        let Some((signal, event)) = found.filter(|_| read == 1) else { continue };
        let routines = {
            let set = SET.lock().unwrap_or_else(PoisonError::into_inner);
            if set.ignores && *signal == libc::SIGINT {
                continue;
            }
            set.routines.clone()
        };
        // The newest first.
        let is_handled = routines.iter().rev().any(|routine| {
            // SAFETY: the routine demands an event.
            // - the program has set it, and says that any thread may call it at any time.
            unsafe { routine(*event) != 0 }
        });
        if !is_handled {
            end_by(*signal);
        }
    }
}

impl Set {
    /// Makes the thread and the pipe.
    fn start(&mut self) -> Result<(), u32> {
        if self.has_thread {
            return Ok(());
        }
        let mut ends = [0; 2];
        // SAFETY: pipe2(2) writes two numbers at the pointer.
        // - valid: `ends` has room for two.
        let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) };
        if made != 0 {
            return Err(code::NO_SYSTEM_RESOURCES);
        }
        // The handler must not wait if the pipe is full.
        // SAFETY: fcntl(2) with F_SETFL demands nothing of memory.
        unsafe { libc::fcntl(ends[1], libc::F_SETFL, libc::O_NONBLOCK) };
        let thread = std::thread::Builder::new().name("cp-control".to_owned());
        thread.spawn(move || serve(ends[0])).map_err(|_| code::NO_SYSTEM_RESOURCES)?;
        WRITES_TO.store(ends[1], Relaxed);
        // SAFETY: getpid(2) demands nothing of memory.
        OWNER.store(unsafe { libc::getpid() }, Relaxed);
        self.has_thread = true;
        Ok(())
    }

    /// What each of these signals does from now on.
    fn apply(&self, signals: &[(c_int, u32)]) {
        for &(signal, _) in signals {
            if self.ignores && signal == libc::SIGINT {
                act(signal, libc::SIG_IGN);
            } else if self.routines.is_empty() {
                act(signal, libc::SIG_DFL);
            } else {
                act(signal, tell as extern "C" fn(c_int) as usize);
            }
        }
    }
}

/// `SetConsoleCtrlHandler`: adds a routine or takes it away; without one, Ctrl+C is ignored or not.
///
/// # Safety
///
/// `routine` is null or may be called from any thread at any time, until it is taken away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_set_control_handler(routine: Option<Routine>, add: c_int) -> c_int {
    succeeds(|| {
        let mut set = SET.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(routine) = routine else {
            set.ignores = add != 0;
            // The others are the program's own still, if it has set no routine.
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
