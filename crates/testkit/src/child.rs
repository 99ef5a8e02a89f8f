//! Processes that a test starts or forks, and claims that must not notice.

use std::io;
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// Held for reading while a claim runs, and for writing while a process is made.
static MAKING: RwLock<()> = RwLock::new(());

/// Starts `command` while no claim runs in this process ([`run`](crate::run())). Until a child
/// process runs its own program it has copies of all descriptors, so that what a claim closes
/// meanwhile would stay open; and a fork of this process puts threads to sleep at their next write
/// to memory.
///
/// # Waiting
///
/// Blocks until the claims that run have ended: a claim cannot call this itself.
///
/// # Errors
///
/// Those of [`Command::spawn`].
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    /// Wine loses a new process now and then, before that has begun: `ERROR_INTERNAL_ERROR`. Windows has no such failure.
    const LOST: Option<i32> = if cfg!(windows) { Some(1359) } else { None };
    let _alone = MAKING.write().unwrap_or_else(PoisonError::into_inner);
    let mut left = 3;
    loop {
        // Returns once the child runs its own program.
        match command.spawn() {
            Err(error) if left > 0 && LOST.is_some() && error.raw_os_error() == LOST => left -= 1,
            outcome => return outcome,
        }
    }
}

/// Runs the test `name` (its full path, as libtest prints it) again in a separate process, and
/// returns whether this is that process. For tests that fork: a fork keeps the sockets of other
/// tests open.
///
/// Panics if the test fails there, or does not exist.
///
/// # Waiting
///
/// Blocks until that process has ended.
#[must_use]
pub fn in_a_process_of_its_own(name: &str) -> bool {
    const MARK: &str = "TESTKIT_PROCESS_OF_ITS_OWN";
    if std::env::var_os(MARK).is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", name, "--test-threads=1", "--nocapture"])
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let output = spawn(&mut command).unwrap().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the test's own process failed:\n{said}\n{complained}");
    assert!(said.contains("1 passed"), "there is no test {name}:\n{said}");
    // What the test has left out there is said here, too.
    said.lines().filter(|line| line.contains("SKIPPED")).for_each(|line| println!("{line}"));
    false
}

/// As long as this is kept no process is made.
pub(crate) fn undisturbed() -> RwLockReadGuard<'static, ()> {
    MAKING.read().unwrap_or_else(PoisonError::into_inner)
}
