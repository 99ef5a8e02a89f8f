//! Consoles of Windows.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::windows::io::AsRawHandle as _;
use std::os::windows::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use windows_sys::Win32::System::Console::{
    AttachConsole, COORD, CTRL_BREAK_EVENT, CTRL_C_EVENT, GenerateConsoleCtrlEvent,
    ReadConsoleOutputCharacterW, SMALL_RECT, SetConsoleCtrlHandler, SetConsoleScreenBufferSize,
    SetConsoleWindowInfo,
};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::Threading::{
    CREATE_NO_WINDOW, DETACHED_PROCESS, GetProcessHandleCount,
};
use windows_sys::core::BOOL;
use windows_sys::w;

/// The tested process gets its own invisible console.
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

/// Wine has a function that Windows does not have.
fn is_wine() -> bool {
    // SAFETY: GetModuleHandleW demands a string with a zero at its end, which the macro makes.
    let library = unsafe { GetModuleHandleW(w!("ntdll.dll")) };
    // SAFETY: GetProcAddress demands a library that stays loaded, and a string with a zero at its end.
    // - loaded: ntdll.dll is in every process until its end;
    // - the string: it has one.
    unsafe { GetProcAddress(library, c"wine_get_version".as_ptr().cast()) }.is_some()
}

/// The argument of [`press`].
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

/// Makes a call until it succeeds: under Wine one now and then fails while another process attaches
/// itself to a console.
fn again_and_again(what: &str, call: impl Fn() -> BOOL) {
    let begun = Instant::now();
    while call() == 0 {
        let error = io::Error::last_os_error();
        assert!(begun.elapsed() < super::DEADLINE, "{what}: {error}");
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

/// The arguments of [`write_to_a_console`]: the width, and the arguments between line breaks.
const WIDTH: &str = "CPORT_TEST_WIDTH";
const ARGUMENTS: &str = "CPORT_TEST_ARGUMENTS";
/// Lines of the screen.
const HEIGHT: i16 = 200;

/// Runs the command at a console of this width, which nobody sees. Returns its exit code, and the lines on the screen when
/// it has ended.
pub(crate) fn at_a_console(arguments: &[&str], width: i16) -> (i32, Vec<String>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "common::windows::write_to_a_console", "--ignored", "--nocapture"]);
    command.env(WIDTH, width.to_string()).env(ARGUMENTS, arguments.join("\n"));
    let output = command.creation_flags(CREATE_NO_WINDOW).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let named = |name: &'static str| said.lines().filter_map(move |line| line.strip_prefix(name));
    (named("code ").next().unwrap().parse().unwrap(), named("line ").map(str::to_owned).collect())
}

/// A process has one console: this one is started with its own, and the command writes to that.
#[test]
#[ignore = "it is no test: those that look at a console start it"]
fn write_to_a_console() {
    let width: i16 = std::env::var(WIDTH).unwrap().parse().unwrap();
    let screen = OpenOptions::new().read(true).write(true).open("CONOUT$").unwrap();
    resize(&screen, width);
    let mut command = super::cport(&[]);
    command.args(std::env::var(ARGUMENTS).unwrap().split('\n'));
    command.stdout(screen.try_clone().unwrap()).stderr(screen.try_clone().unwrap());
    let code = command.status().unwrap().code().unwrap();
    println!("\ncode {code}");
    let lines: Vec<String> = (0..HEIGHT).map(|row| line(&screen, width, row)).collect();
    let used = lines.iter().rposition(|line| !line.is_empty()).map_or(0, |last| last + 1);
    for line in &lines[..used] {
        println!("line {line}");
    }
}

/// Sets the width of the window and of the buffer behind it.
fn resize(screen: &File, width: i16) {
    let window = |right, bottom| SMALL_RECT { Left: 0, Top: 0, Right: right, Bottom: bottom };
    let (small, wanted) = (window(19, 9), window(width - 1, 19));
    // The window is never larger than the buffer behind it.
    // SAFETY: SetConsoleWindowInfo reads a struct, and demands an open handle, which the file has.
    again_and_again("window", || unsafe {
        SetConsoleWindowInfo(screen.as_raw_handle(), 1, &raw const small)
    });
    let size = COORD { X: width, Y: HEIGHT };
    // SAFETY: SetConsoleScreenBufferSize demands an open handle, which the file has.
    again_and_again("size", || unsafe { SetConsoleScreenBufferSize(screen.as_raw_handle(), size) });
    // SAFETY: as above.
    again_and_again("window", || unsafe {
        SetConsoleWindowInfo(screen.as_raw_handle(), 1, &raw const wanted)
    });
}

/// A line of the screen, without the spaces at its end.
fn line(screen: &File, width: i16, row: i16) -> String {
    let mut letters = vec![0_u16; usize::try_from(width).unwrap()];
    let mut count = 0;
    // SAFETY: ReadConsoleOutputCharacterW writes letters and their number, and demands an open handle.
    // - valid for writes: `letters` has room for as many as are asked for, and `count` is a number of this function;
    // - the handle: the file has it.
    let outcome = unsafe {
        ReadConsoleOutputCharacterW(
            screen.as_raw_handle(),
            letters.as_mut_ptr(),
            u32::try_from(letters.len()).unwrap(),
            COORD { X: 0, Y: row },
            &raw mut count,
        )
    };
    assert_ne!(outcome, 0, "{}", io::Error::last_os_error());
    String::from_utf16_lossy(&letters[..usize::try_from(count).unwrap()]).trim_end().to_owned()
}
