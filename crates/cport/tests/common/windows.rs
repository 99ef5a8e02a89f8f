//! Consoles of Windows.

use std::io;
use std::os::windows::io::AsRawHandle as _;
use std::os::windows::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use windows_sys::Win32::System::Console::{
    AttachConsole, CTRL_BREAK_EVENT, CTRL_C_EVENT, GenerateConsoleCtrlEvent, SetConsoleCtrlHandler,
};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Threading::{
    CREATE_NO_WINDOW, DETACHED_PROCESS, GetProcessHandleCount,
};
use windows_sys::core::BOOL;
use windows_sys::w;

/// The process that is tested gets a console of its own, which nobody sees.
pub(super) fn set_apart(command: &mut Command) {
    command.creation_flags(CREATE_NO_WINDOW);
}

pub(super) fn interrupt(process: u32) {
    at_the_console_of(process, CTRL_C_EVENT);
}

/// Under Wine by Ctrl-C, too: it makes no Ctrl-Break, as `.ci/wine/differences.c` shows.
pub(super) fn terminate(process: u32) {
    let key = if is_wine() {
        println!("SKIPPED Ctrl-Break: Wine makes none");
        CTRL_C_EVENT
    } else {
        CTRL_BREAK_EVENT
    };
    at_the_console_of(process, key);
}

/// Wine says so by a function that Windows does not have.
fn is_wine() -> bool {
    // SAFETY: GetModuleHandleW demands a string with a zero at its end, which the macro makes.
    let library = unsafe { GetModuleHandleW(w!("ntdll.dll")) };
    // SAFETY: GetProcAddress demands a library that stays loaded, and a string with a zero at its end.
    // - loaded: ntdll.dll is in every process until its end;
    // - the string: it has one.
    unsafe { GetProcAddress(library, c"wine_get_version".as_ptr().cast()) }.is_some()
}

/// What [`press`] is told.
const PROCESS: &str = "CPORT_TEST_PROCESS";
const KEY: &str = "CPORT_TEST_KEY";

/// A key at the console of a process: pressed by a process that belongs to that console, since a process has one
/// console, and its output goes with it.
fn at_the_console_of(process: u32, key: u32) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "common::windows::press", "--ignored"]);
    command.env(PROCESS, process.to_string()).env(KEY, key.to_string());
    let output = command.creation_flags(DETACHED_PROCESS).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "it is no test: those that press a key start it"]
fn press() {
    unsafe extern "system" fn ignore(_key: u32) -> BOOL {
        1
    }
    let number = |name| std::env::var(name).unwrap().parse().unwrap();
    // SAFETY: AttachConsole takes any number.
    again_and_again("attach", || unsafe { AttachConsole(number(PROCESS)) });
    // SAFETY: SetConsoleCtrlHandler demands a function that may be called by any thread; this one uses nothing.
    again_and_again("handle", || unsafe { SetConsoleCtrlHandler(Some(ignore), 1) });
    // SAFETY: GenerateConsoleCtrlEvent takes any number; 0 is all processes of the console.
    again_and_again("press", || unsafe { GenerateConsoleCtrlEvent(number(KEY), 0) });
}

/// Makes a call until it succeeds, for some seconds: under Wine one now and then fails while another process attaches
/// itself to a console.
fn again_and_again(what: &str, call: impl Fn() -> BOOL) {
    let begun = Instant::now();
    while call() == 0 {
        let error = io::Error::last_os_error();
        assert!(begun.elapsed() < Duration::from_secs(5), "{what}: {error}");
        thread::park_timeout(Duration::from_millis(20));
    }
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
