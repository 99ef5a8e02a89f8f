//! Whether the process is a forked child of the one that made a runtime.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// How many forks lie between the process and the first one with a runtime.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Returns a number that differs in a forked child. Reading it costs no system call.
///
/// Relaxed: the child has one thread at first, which has written it.
pub(crate) fn count() -> u32 {
    FORKS.load(Relaxed)
}

/// Counts forks from now on. If the system has no memory for that, or the program forks without its
/// C library, handles in the child wait as if the parent's tasks might still end.
#[cfg(unix)]
pub(crate) fn watch() {
    static WATCHED: std::sync::Once = std::sync::Once::new();

    unsafe extern "C" fn in_child() {
        FORKS.fetch_add(1, Relaxed);
    }

    WATCHED.call_once(|| {
        // SAFETY: pthread_atfork(3) requires handlers that may be called at any fork.
        // - the one for the child is a function of this library: glibc removes it with the library, and
        //   others don't unload one that has thread-local variables;
        // - it changes one atomic word, which is allowed between fork(2) and exec(2).
        let _ = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

#[cfg(not(unix))]
pub(crate) fn watch() {}
