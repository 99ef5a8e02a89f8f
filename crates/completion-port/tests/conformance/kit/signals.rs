//! Signals that only interrupt calls.

use testkit::System;
use testkit::scheduler::ThreadNumber;

use crate::kit::threads::eventually;

/// Interrupts the sleep of `thread` by a signal, and waits until it sleeps again.
pub(crate) fn interrupt_sleep(on: &System, thread: ThreadNumber) {
    eventually(on, "the thread sleeps", || thread.sleeps());
    let before = thread.sleeps_begun();
    interrupt(thread.get());
    eventually(on, "it sleeps again", || thread.sleeps_begun() > before && thread.sleeps());
}

pub(crate) extern "C" fn ignore(_signal: libc::c_int) {}

/// Installs a handler that does nothing, and that leaves interrupted calls interrupted.
pub(crate) fn catch_signals() {
    let mut mask = std::mem::MaybeUninit::uninit();
    // SAFETY: sigemptyset(3) writes a set at the pointer.
    // - valid for writes: `mask` is a local.
    let done = unsafe { libc::sigemptyset(mask.as_mut_ptr()) };
    assert_eq!(done, 0);
    // SAFETY: `assume_init` requires a valid value.
    // - sigemptyset(3) has succeeded, and so has written it.
    let sa_mask = unsafe { mask.assume_init() };
    let handler: extern "C" fn(libc::c_int) = ignore;
    let action = libc::sigaction {
        sa_sigaction: handler as libc::sighandler_t,
        sa_mask,
        sa_flags: 0,
        sa_restorer: None,
    };
    // SAFETY: sigaction(2) reads an action at the first pointer, and writes nothing to a null
    // pointer. The handler must be sound to run at any moment.
    // - valid for reads: `action` is a local;
    // - sound: the handler does nothing.
    let done = unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(done, 0);
}

/// Sends a signal to a thread of this process.
pub(crate) fn interrupt(thread: libc::pid_t) {
    // SAFETY: tgkill(2) accesses no memory, and fails for a thread that is gone.
    unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread, libc::SIGUSR1) };
}
