//! The systems, one folder each. Only this file knows which system it is compiled for.
//!
//! Each system implements the traits of [`backend`](crate::backend).

#[cfg(all(
    any(target_os = "macos", target_os = "freebsd", target_os = "netbsd", target_os = "openbsd"),
    target_pointer_width = "64"
))]
mod bsd;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod linux;
pub(crate) mod portable;
#[cfg(all(test, feature = "sim", target_os = "linux"))]
mod tests;
#[cfg(all(
    any(
        target_os = "linux",
        target_os = "macos",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd"
    ),
    target_pointer_width = "64"
))]
mod unix;
#[cfg(target_os = "windows")]
mod windows;

// The folder of this system, through which the crate uses it. On a system without a back end, the
// compiler reports only the error below, and not every missing name.
#[cfg(all(
    any(target_os = "macos", target_os = "freebsd", target_os = "netbsd", target_os = "openbsd"),
    target_pointer_width = "64"
))]
use bsd as system;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use linux as system;
#[cfg(all(
    any(
        target_os = "linux",
        target_os = "macos",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd"
    ),
    target_pointer_width = "64"
))]
pub(crate) use system::native;
#[cfg(all(
    any(
        target_os = "linux",
        target_os = "macos",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd"
    ),
    target_pointer_width = "64"
))]
#[allow(unused_imports, reason = "for the simulated kernel, and for some reactors")]
pub(crate) use unix::codes;
#[cfg(all(
    any(
        target_os = "linux",
        target_os = "macos",
        target_os = "freebsd",
        target_os = "netbsd",
        target_os = "openbsd"
    ),
    target_pointer_width = "64"
))]
pub(crate) use unix::datagrams;
#[cfg(target_os = "windows")]
pub(crate) use windows::codes;
#[cfg(target_os = "windows")]
pub(crate) use windows::datagrams;
#[cfg(target_os = "windows")]
pub(crate) use windows::native;
#[cfg(not(any(
    all(
        any(
            target_os = "linux",
            target_os = "macos",
            target_os = "freebsd",
            target_os = "netbsd",
            target_os = "openbsd"
        ),
        target_pointer_width = "64"
    ),
    target_os = "windows"
)))]
compile_error!("completion-port runs on Linux, macOS and BSDs of 64 bits, and on Windows");
