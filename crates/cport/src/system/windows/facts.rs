//! Features of Windows for a port.

use std::time::Duration;

use windows_sys::Wdk::System::SystemServices::RtlGetVersion;
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress};
use windows_sys::Win32::System::SystemInformation::OSVERSIONINFOW;
use windows_sys::w;

/// The system's name and version.
pub(crate) fn kernel() -> String {
    let mut version = OSVERSIONINFOW {
        dwOSVersionInfoSize: size_of::<OSVERSIONINFOW>().try_into().expect("a small struct"),
        ..Default::default()
    };
    // SAFETY: RtlGetVersion writes a struct whose first member has its size.
    // - valid for writes: `version` is one of this function;
    // - the size: it is that of the struct.
    unsafe { RtlGetVersion(&raw mut version) };
    let OSVERSIONINFOW {
        dwMajorVersion: major, dwMinorVersion: minor, dwBuildNumber: build, ..
    } = version;
    let wine = if is_wine() { ", as Wine has it" } else { "" };
    format!("Windows {major}.{minor}, build {build}{wine}")
}

/// Facts of this system in addition to those of every system.
pub(crate) fn facts() -> Vec<(&'static str, String)> {
    Vec::new()
}

/// What it means that the shortest wait for 50 microseconds took this long.
pub(crate) fn waits(took: Duration) -> &'static str {
    if took < Duration::from_millis(2) {
        "by a timer of high resolution"
    } else {
        "to the system's tick"
    }
}

/// Wine has a function that Windows does not have.
pub(super) fn is_wine() -> bool {
    // SAFETY: GetModuleHandleW demands a string with a zero at its end, which the macro makes.
    let library = unsafe { GetModuleHandleW(w!("ntdll.dll")) };
    // SAFETY: GetProcAddress demands a library that stays loaded, and a string with a zero at its end.
    // - loaded: ntdll.dll is in every process until its end;
    // - the string: it has one.
    unsafe { GetProcAddress(library, c"wine_get_version".as_ptr().cast()) }.is_some()
}
