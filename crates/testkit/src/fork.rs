//! Forked copies of the process.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::{fs, io};

/// A signal ends a child that is stuck for this many seconds. Its own child is ended sooner, so
/// that it can report this.
static STUCK: AtomicU32 = AtomicU32::new(480);

/// A forked child of this process.
#[derive(Debug)]
#[must_use = "a child that nobody waits for stays there as long as this process"]
pub struct Forked(libc::pid_t);

/// Forks this process, whose other threads may be anywhere meanwhile; `None` in the child, which must end
/// by [`exit`].
///
/// The child may call the allocator, which the C library makes usable in it, and the library under test,
/// which promises not to hang there; nothing else that takes a lock. If it is stuck, a signal ends it.
#[track_caller]
pub fn fork() -> Option<Forked> {
    // SAFETY: fork(2) in a process with threads demands that the child calls only what is safe in a
    // signal handler.
    // - the callers call the library under test and the allocator, see above.
    let process = unsafe { libc::fork() };
    assert!(process >= 0, "{}", io::Error::last_os_error());
    if process > 0 {
        return Some(Forked(process));
    }
    let limit = STUCK.load(Relaxed);
    STUCK.store(limit.div_ceil(2), Relaxed);
    // SAFETY: alarm(2) demands nothing.
    unsafe { libc::alarm(limit) };
    None
}

/// Ends a forked child, with nothing run at its exit.
pub fn exit(status: u8) -> ! {
    // SAFETY: _exit(2) demands nothing.
    unsafe { libc::_exit(status.into()) }
}

impl Forked {
    /// The child's exit status. Panics if the child was stuck, or died of a signal.
    ///
    /// # Waiting
    ///
    /// Blocks until the child has ended.
    #[track_caller]
    #[must_use]
    pub fn status(self) -> u8 {
        let mut status = 0;
        // SAFETY: waitpid(2) writes a status at the pointer.
        // - valid for writes: `status` is a local.
        while unsafe { libc::waitpid(self.0, &raw mut status, 0) } < 0 {
            assert_eq!(io::Error::last_os_error().kind(), io::ErrorKind::Interrupted);
        }
        let stuck = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGALRM;
        assert!(!stuck, "the child was stuck");
        assert!(libc::WIFEXITED(status), "the child ended with status {status:#x}");
        u8::try_from(libc::WEXITSTATUS(status)).unwrap()
    }
}

/// Runs `act` in a forked child, whose exit status is what `act` returns, and returns it. As [`fork`]. A
/// panic of `act` is status 255.
///
/// # Waiting
///
/// Blocks until the child has ended.
#[track_caller]
pub fn in_forked_child(act: impl FnOnce() -> u8) -> u8 {
    match fork() {
        Some(child) => child.status(),
        None => exit(catch_unwind(AssertUnwindSafe(act)).unwrap_or(255)),
    }
}

/// As [`in_forked_child`], for a child whose monotonic clock is this many seconds ahead of this
/// process's, or behind if negative: it has its own time namespace.
///
/// # Waiting
///
/// Blocks until the child has ended.
///
/// # Errors
///
/// This process may not make time namespaces. The test prints this and is skipped.
pub fn in_forked_child_with_clock(ahead: i64, act: impl FnOnce() -> u8) -> io::Result<u8> {
    /// No status of a child that got so far.
    const REFUSED: u8 = 254;
    let status = in_forked_child(|| {
        // SAFETY: unshare(2) demands nothing of memory.
        // With this flag it is for the children of the calling process.
        let refused = unsafe { libc::unshare(libc::CLONE_NEWTIME) } != 0;
        let offset = format!("monotonic {ahead} 0\n");
        if refused || fs::write("/proc/self/timens_offsets", offset).is_err() {
            return REFUSED;
        }
        in_forked_child(act)
    });
    if status == REFUSED { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(status) }
}

/// How often a test forks while other threads are busy: a hundred times, or `FORKS` in the
/// environment.
#[must_use]
pub fn forks() -> u32 {
    std::env::var("FORKS").map_or(100, |number| number.parse().unwrap())
}
