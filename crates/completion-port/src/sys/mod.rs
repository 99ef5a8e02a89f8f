//! The systems: one folder each, and the only place that knows which one it is compiled for.
//!
//! [`backend`] is the seam: what each of them implements, in the five traits of [`reactor`], [`sockets`],
//! [`files`], [`thread`] and [`host`].

pub(crate) mod backend;
#[cfg(all(
    any(target_os = "macos", target_os = "freebsd", target_os = "netbsd", target_os = "openbsd"),
    target_pointer_width = "64"
))]
mod bsd;
#[cfg(all(test, feature = "sim", target_os = "linux"))]
mod cases;
pub(crate) mod errors;
pub(crate) mod files;
pub(crate) mod host;
mod job_queue;
#[cfg(any(
    feature = "sim",
    target_os = "macos",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd"
))]
mod kqueue;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod linux;
#[cfg(any(feature = "sim", target_os = "windows"))]
mod psn;
pub(crate) mod reactor;
#[cfg(feature = "sim")]
pub mod sim;
#[cfg(any(test, target_os = "freebsd"))]
#[cfg_attr(not(target_os = "freebsd"), allow(dead_code, reason = "its tests run everywhere"))]
mod sleepers;
pub(crate) mod sockets;
pub(crate) mod thread;
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

// The folder of this system. What the crate needs of it comes through here. On a system without a back end the
// compiler then reports this error alone, and not every name that is missing because of it.
#[cfg(all(
    any(target_os = "macos", target_os = "freebsd", target_os = "netbsd", target_os = "openbsd"),
    target_pointer_width = "64"
))]
use bsd as system;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use linux as system;
#[cfg(all(test, feature = "sim", target_os = "linux"))]
use linux::Native;
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
pub(crate) use system::{fd, native};
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
#[cfg(target_os = "windows")]
pub(crate) use windows::codes;
#[cfg(target_os = "windows")]
pub(crate) use windows::{fd, native};
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
