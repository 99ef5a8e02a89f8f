//! Runs a test once more in a process of its own that is refused a system call: `seccomp(2)`.

use std::ffi::{c_int, c_long};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// Tells the process that it is in the sandbox.
const INSIDE: &str = "TESTKIT_SANDBOX";

/// Instructions of a filter, of linux/bpf_common.h: load a word, jump if equal, return.
const LOAD: u16 = 0x20;
const JUMP_IF_EQUAL: u16 = 0x15;
const RETURN: u16 = 0x06;

/// Whether this process runs under [`run`].
#[must_use]
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Makes system call `number` fail with `code` in this process and in those that it makes.
fn refuse(number: u32, code: u32) -> io::Result<()> {
    let instruction = |code, jump_if_not, k| libc::sock_filter { code, jt: 0, jf: jump_if_not, k };
    let mut filter = [
        // The number is the first word of what the filter is shown.
        instruction(LOAD, 0, 0),
        instruction(JUMP_IF_EQUAL, 1, number),
        instruction(RETURN, 0, libc::SECCOMP_RET_ERRNO | code),
        instruction(RETURN, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
    // SAFETY: prctl(2) reads nothing for this request.
    let done = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    let mode = libc::SECCOMP_SET_MODE_FILTER;
    // SAFETY: seccomp(2) reads a program of as many instructions as it says at the pointer.
    // - both live until the call returns.
    let done = unsafe { libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Makes system call `number` (`libc::SYS_…`) fail with `code` in the process that `command` starts. If the
/// system has no sandboxes the command cannot be started.
pub fn refuse_to(command: &mut Command, number: c_long, code: c_int) {
    let (number, code) = (u32::try_from(number).unwrap(), u32::try_from(code).unwrap());
    // SAFETY: `pre_exec` demands a closure that does only what a forked child may: no lock, no
    // allocation.
    // - it makes two system calls; an error is made of a plain number.
    unsafe { command.pre_exec(move || refuse(number, code)) };
}

/// Runs the test `name` of this test binary (its full path, as libtest prints it) in a new process
/// in which system call `number` (`libc::SYS_…`) fails with `code`. The test finds out by
/// [`is_inside`].
///
/// Panics if the test fails there, or does not exist.
///
/// # Waiting
///
/// Blocks until the process has ended.
///
/// # Errors
///
/// The system has no sandboxes. A test says so and is skipped.
pub fn run(name: &str, number: c_long, code: c_int) -> io::Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    refuse_to(&mut command, number, code);
    let output = crate::spawn(&mut command)?.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name} failed in the sandbox: {said}{complained}");
    assert!(said.contains("1 passed"), "{name} is no test: {said}");
    Ok(())
}
