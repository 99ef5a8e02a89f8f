//! Runs a test again in a separate process that is refused system calls, from its start or from a
//! later point: `seccomp(2)`.

use std::ffi::{c_int, c_long, c_ulong};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Tells the process that it is in the sandbox, and the code that calls fail with.
const INSIDE: &str = "TESTKIT_SANDBOX";

/// Instructions of a filter, of linux/bpf_common.h: load a word, jump if equal, return.
pub(crate) const LOAD: u16 = 0x20;
pub(crate) const JUMP_IF_EQUAL: u16 = 0x15;
pub(crate) const RETURN: u16 = 0x06;

/// An instruction, which skips this many others if it is a jump.
pub(crate) const fn instruction(
    code: u16,
    jump_if: u8,
    jump_if_not: u8,
    k: u32,
) -> libc::sock_filter {
    libc::sock_filter { code, jt: jump_if, jf: jump_if_not, k }
}

/// Installs a filter for the system calls of this thread and of the threads it creates; `flags` are
/// those of seccomp(2). Returns the call's result. Makes only system calls.
pub(crate) fn install(filter: &mut [libc::sock_filter], flags: c_ulong) -> io::Result<c_long> {
    let len = u16::try_from(filter.len()).unwrap();
    let program = libc::sock_fprog { len, filter: filter.as_mut_ptr() };
    // SAFETY: prctl(2) reads nothing for this request.
    let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: seccomp(2) reads a program of as many instructions as it says at the pointer.
    // - valid for reads: `program` is a local, of `filter`, which is borrowed mutably and has `len` instructions.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

/// Whether this process runs under [`run`].
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// The code that calls fail with in this process, if it runs under [`run`].
///
/// # Panics
///
/// Panics if something else has set the environment variable that [`run`] sets.
#[must_use]
pub fn code() -> Option<c_int> {
    std::env::var(INSIDE).ok().map(|code| code.parse().unwrap())
}

/// A filter by which these system calls (`libc::SYS_…`) fail with `code`.
fn filter(calls: &[c_long], code: c_int) -> Vec<libc::sock_filter> {
    let code = u32::try_from(code).unwrap();
    // The number is the first word of what the filter is shown.
    let mut filter = vec![instruction(LOAD, 0, 0, 0)];
    for call in calls {
        filter.push(instruction(JUMP_IF_EQUAL, 0, 1, u32::try_from(*call).unwrap()));
        filter.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | code));
    }
    filter.push(instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    filter
}

/// Makes these system calls (`libc::SYS_…`) fail with `code` in the process that `command` starts. If the
/// system has no sandboxes the command cannot be started.
pub fn refuse_to(command: &mut Command, calls: &[c_long], code: c_int) {
    let mut filter = filter(calls, code);
    // SAFETY: `pre_exec` demands a closure that does only what a forked child may: no lock, no
    // allocation.
    // - it makes two system calls; an error is made of a plain number.
    unsafe { command.pre_exec(move || install(&mut filter, 0).map(drop)) };
}

/// Makes these system calls (`libc::SYS_…`) fail with `code` from now on, in all threads of this
/// process and in the processes that it starts. This cannot be undone, so the test needs its own
/// process.
///
/// # Errors
///
/// The system has no sandboxes. The test prints this and is skipped.
pub fn refuse_from_now_on(calls: &[c_long], code: c_int) -> io::Result<()> {
    match install(&mut filter(calls, code), libc::SECCOMP_FILTER_FLAG_TSYNC)? {
        0 => Ok(()),
        thread => Err(io::Error::other(format!("thread {thread} has another filter"))),
    }
}

/// Runs the test `name` of this test binary (its full path, as libtest prints it) in a new process
/// in which these system calls (`libc::SYS_…`) fail with `code`. The test detects this with
/// [`is_inside`] and [`code`].
///
/// Panics if the test fails there, or does not exist.
///
/// # Waiting
///
/// Blocks until the process has ended.
///
/// # Errors
///
/// The system has no sandboxes. The test prints this and is skipped.
pub fn run(name: &str, calls: &[c_long], code: c_int) -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, code.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    refuse_to(&mut command, calls, code);
    let output = crate::spawn(&mut command)?.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{name} failed in the sandbox with {code}: {said}{complained}"
    );
    assert!(said.contains("1 passed"), "{name} is no test: {said}");
    Ok(())
}
