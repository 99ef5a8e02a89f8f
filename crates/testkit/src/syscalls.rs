//! Counts the system calls of a piece of code, by `ptrace(2)`.
//!
//! The code is a separate ignored test, with a [`section`] around the part to count. The actual
//! test starts it in a new process of the same test binary and watches it:
//!
//! ```no_run
//! #[test]
//! #[ignore = "run under a counter by `a_call_is_a_call`"]
//! fn a_call_is_a_call_counted() {
//!     testkit::syscalls::section(|| std::process::id());
//! }
//!
//! #[test]
//! fn a_call_is_a_call() {
//!     match testkit::syscalls::count("a_call_is_a_call_counted") {
//!         Ok(calls) => assert_eq!(calls.of(libc::SYS_getpid), 1),
//!         Err(refused) => println!("a_call_is_a_call: SKIPPED: {refused}"),
//!     }
//! }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_long, c_void};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::{fmt, io, ptr};

/// The first argument of the `getpriority(2)` calls at both ends of a section: no kind of target
/// that exists, so that the call does nothing but fail.
const MARK: c_int = 0x7e57;
const BEGIN: c_int = 1;
const END: c_int = 2;

/// Of linux/ptrace.h; libc does not have them for every C library.
const PTRACE_GET_SYSCALL_INFO: u32 = 0x420e;
const PTRACE_SYSCALL_INFO_ENTRY: u8 = 1;

/// Tells the process that it is being counted.
const TRACED: &str = "TESTKIT_SYSCALLS_TRACED";

/// A signal ends the counted process after this many seconds.
const LIMIT: u32 = 600;

/// How often each system call was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts(BTreeMap<c_long, usize>);

impl Counts {
    /// How often the call with this number was made: `libc::SYS_…`.
    #[must_use]
    pub fn of(&self, number: c_long) -> usize {
        self.0.get(&number).copied().unwrap_or(0)
    }

    /// How many calls were made.
    #[must_use]
    pub fn total(&self) -> usize {
        self.0.values().sum()
    }

    /// Number of the call and how often it was made.
    pub fn iter(&self) -> impl Iterator<Item = (c_long, usize)> {
        self.0.iter().map(|(number, count)| (*number, *count))
    }
}

/// Why nothing could be counted: this system does not let a process trace its child.
#[derive(Debug)]
pub struct Refused {
    call: &'static str,
    error: io::Error,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.error)
    }
}

impl std::error::Error for Refused {}

fn mark(end: c_int) {
    // SAFETY: getpriority(2) demands nothing of memory.
    unsafe { libc::syscall(libc::SYS_getpriority, MARK, end) };
}

/// Runs `act`. Counts its system calls, and those of other threads of the process meanwhile except
/// the test harness's, if the process runs under [`count`].
pub fn section<R>(act: impl FnOnce() -> R) -> R {
    mark(BEGIN);
    let done = act();
    mark(END);
    done
}

/// Whether this process runs under [`count`].
#[must_use]
pub fn is_counted() -> bool {
    std::env::var_os(TRACED).is_some()
}

/// The call itself: the functions of the C libraries take requests of different types.
fn ptrace(
    request: impl Into<c_long>,
    thread: libc::pid_t,
    address: usize,
    data: usize,
) -> io::Result<c_long> {
    // SAFETY: ptrace(2) reads or writes what the request says at `address` and `data`.
    // - the callers give plain numbers, or (PTRACE_GET_SYSCALL_INFO) a buffer and its size.
    let done = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            request.into(),
            thread,
            ptr::without_provenance_mut::<c_void>(address),
            ptr::with_exposed_provenance_mut::<c_void>(data),
        )
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// The number and the arguments of the call that `thread` is entering; `None` if it leaves one.
fn entered(thread: libc::pid_t) -> io::Result<Option<(c_long, [u64; 6])>> {
    // As `struct ptrace_syscall_info` of linux/ptrace.h: the kind of stop is the first byte, and the
    // number and arguments of an entry are 64-bit words from byte 24 on.
    let mut info = [0_u64; 16];
    let size = size_of_val(&info);
    let place = info.as_mut_ptr().expose_provenance();
    ptrace(PTRACE_GET_SYSCALL_INFO, thread, size, place)?;
    let [kind, ..] = info[0].to_ne_bytes();
    if kind != PTRACE_SYSCALL_INFO_ENTRY {
        return Ok(None);
    }
    let mut arguments = [0; 6];
    arguments.copy_from_slice(&info[4..10]);
    Ok(Some((c_long::try_from(info[3]).unwrap_or(-1), arguments)))
}

/// What the watched process has done so far.
struct Watch {
    /// The first thread of the process. It belongs to the test harness and only waits for the test.
    /// When it starts to wait is random, so it counts only in its own section.
    first: libc::pid_t,
    seen: BTreeSet<libc::pid_t>,
    /// The thread that is in a section.
    open: Option<libc::pid_t>,
    sections: usize,
    counts: Counts,
}

impl Watch {
    fn new(first: libc::pid_t) -> Self {
        let counts = Counts::default();
        Self { first, seen: BTreeSet::new(), open: None, sections: 0, counts }
    }

    fn enter(&mut self, thread: libc::pid_t, number: c_long, arguments: [u64; 6]) {
        let what = u64::try_from(MARK).unwrap();
        if number == libc::SYS_getpriority && arguments[0] == what {
            let begins = arguments[1] == u64::try_from(BEGIN).unwrap();
            self.open = begins.then_some(thread);
            self.sections += usize::from(begins);
        } else if let Some(opener) = self.open
            && (thread != self.first || thread == opener)
        {
            *self.counts.0.entry(number).or_default() += 1;
        }
    }

    /// Handles one stop of `thread`, and returns the signal to continue it with.
    fn stopped(&mut self, thread: libc::pid_t, status: c_int) -> io::Result<c_int> {
        let signal = libc::WSTOPSIG(status);
        let first = self.seen.insert(thread);
        if signal == libc::SIGTRAP | 0x80 {
            if let Some((number, arguments)) = entered(thread)? {
                self.enter(thread, number, arguments);
            }
            Ok(0)
        } else if status >> 16 != 0 || signal == libc::SIGTRAP {
            // A thread was made, or the program was started.
            Ok(0)
        } else if first && signal == libc::SIGSTOP {
            // How a traced thread begins.
            Ok(0)
        } else {
            Ok(signal)
        }
    }
}

/// Runs the ignored test `name` of this test binary (its full path, as libtest prints it) in a new
/// process, and counts the system calls of all its threads within its [`section`]s.
///
/// Panics if the test fails, has no section, or does not end within ten minutes.
///
/// # Waiting
///
/// Blocks until the process has ended.
///
/// # Errors
///
/// The system does not let us trace. The test prints this and is skipped.
pub fn count(name: &str) -> Result<Counts, Refused> {
    let refused = |call| move |error| Refused { call, error };
    let mut command = Command::new(std::env::current_exe().map_err(refused("current_exe"))?);
    command
        .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
        .env(TRACED, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let begin = || {
        ptrace(libc::PTRACE_TRACEME, 0, 0, 0)?;
        // SAFETY: alarm(2) demands nothing of memory.
        unsafe { libc::alarm(LIMIT) };
        Ok(())
    };
    // SAFETY: `pre_exec` demands a closure that does only what a forked child may: no lock, no
    // allocation.
    // - it makes two system calls; the error of the first is made of a plain number.
    unsafe { command.pre_exec(begin) };
    // The trace belongs to this thread: it makes the child, and it alone waits.
    let child = crate::spawn(&mut command).map_err(refused("ptrace(PTRACE_TRACEME)"))?;
    let process = libc::pid_t::try_from(child.id()).unwrap();
    let mut watch = Watch::new(process);
    let mut begun = false;
    loop {
        let mut status = 0;
        // SAFETY: waitpid(2) writes one int at the pointer.
        // - valid for writes: `status` lives until the call returns.
        // Only children and traced threads of this very thread are waited for.
        let thread =
            unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if thread < 0 {
            let error = io::Error::last_os_error();
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            panic!("waiting for the counted process failed: {error}");
        }
        if !libc::WIFSTOPPED(status) {
            if thread != process {
                continue;
            }
            assert!(
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                "the counted test {name} failed (wait status {status:#x})"
            );
            assert!(watch.sections > 0, "{name} is no test, or has no section");
            assert!(watch.open.is_none(), "a section of {name} has no end");
            return Ok(watch.counts);
        }
        if !begun {
            begun = true;
            let options =
                libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
            ptrace(libc::PTRACE_SETOPTIONS, thread, 0, usize::try_from(options).unwrap())
                .map_err(refused("ptrace(PTRACE_SETOPTIONS)"))?;
        }
        // A thread may be killed at any stop; then it is gone for both calls, which is no error.
        let signal = watch.stopped(thread, status).unwrap_or(0);
        let _ = ptrace(libc::PTRACE_SYSCALL, thread, 0, usize::try_from(signal).unwrap());
    }
}
