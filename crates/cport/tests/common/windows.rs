//! Consoles of Windows.

use std::io;
use std::os::windows::io::AsRawHandle as _;
use std::os::windows::process::CommandExt as _;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use windows_sys::Win32::System::Console::{
    ATTACH_PARENT_PROCESS, AttachConsole, CTRL_BREAK_EVENT, CTRL_C_EVENT, FreeConsole,
    GenerateConsoleCtrlEvent, SetConsoleCtrlHandler,
};
use windows_sys::Win32::System::Threading::{CREATE_NO_WINDOW, GetProcessHandleCount};
use windows_sys::core::BOOL;

/// The process that is tested gets a console of its own, which nobody sees.
pub(super) fn set_apart(command: &mut Command) {
    command.creation_flags(CREATE_NO_WINDOW);
}

pub(super) fn interrupt(process: u32) {
    at_the_console_of(process, CTRL_C_EVENT);
}

pub(super) fn terminate(process: u32) {
    at_the_console_of(process, CTRL_BREAK_EVENT);
}

/// A key at the console of a process. It reaches all processes of that console, to which this one belongs meanwhile.
fn at_the_console_of(process: u32, key: u32) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    unsafe extern "system" fn ignore(_key: u32) -> BOOL {
        1
    }
    let checked = |outcome: BOOL| match outcome {
        0 => panic!("{}", io::Error::last_os_error()),
        _ => outcome,
    };
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: FreeConsole demands nothing. It fails where there is none.
    unsafe { FreeConsole() };
    // SAFETY: AttachConsole takes any number.
    checked(unsafe { AttachConsole(process) });
    // SAFETY: SetConsoleCtrlHandler demands a function that may be called by any thread; this one uses nothing.
    checked(unsafe { SetConsoleCtrlHandler(Some(ignore), 1) });
    // SAFETY: GenerateConsoleCtrlEvent takes any number; 0 is all processes of the console.
    checked(unsafe { GenerateConsoleCtrlEvent(key, 0) });
    // SAFETY: FreeConsole demands nothing.
    checked(unsafe { FreeConsole() });
    // Back to where the tests were started, if that has a console.
    // SAFETY: AttachConsole takes any number.
    unsafe { AttachConsole(ATTACH_PARENT_PROCESS) };
}

/// How many handles a process has.
pub(super) fn open(child: &Child) -> usize {
    let mut count = 0;
    // SAFETY: GetProcessHandleCount demands the handle of a process, and writes a number.
    // - the handle: the child owns it;
    // - valid for writes: `count` is a number of this function.
    let outcome = unsafe { GetProcessHandleCount(child.as_raw_handle(), &raw mut count) };
    assert_ne!(outcome, 0, "{}", io::Error::last_os_error());
    usize::try_from(count).unwrap()
}
