//! Processes that a test starts, and claims that must not notice.

use std::io;
use std::process::{Child, Command};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Held for reading while a claim runs, and for writing while a process is made.
static MAKING: RwLock<()> = RwLock::new(());

/// Starts `command` while no claim runs in this process ([`run`](crate::run())). Until a child process
/// runs its own program it has copies of all descriptors, so that what a claim closes meanwhile would
/// stay open; and a fork of this process puts threads to sleep at their next write to memory.
///
/// # Waiting
///
/// Blocks until the claims that run have ended: a claim cannot call this itself.
///
/// # Errors
///
/// As [`Command::spawn`] has them.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let _alone = MAKING.write().unwrap_or_else(PoisonError::into_inner);
    // Comes back once the child runs its own program.
    command.spawn()
}

/// As long as this is kept no process is made.
pub(crate) fn undisturbed() -> RwLockReadGuard<'static, ()> {
    MAKING.read().unwrap_or_else(PoisonError::into_inner)
}
