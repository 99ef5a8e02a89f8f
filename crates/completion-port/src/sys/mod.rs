//! The systems: one folder each, and the only place that knows which one it is compiled for.
//!
//! [`backend`] is the seam: what each of them implements, in the five traits of [`reactor`], [`sockets`],
//! [`files`], [`thread`] and [`host`].

pub(crate) mod backend;
#[cfg(all(test, feature = "sim", target_os = "linux"))]
mod cases;
pub(crate) mod files;
pub(crate) mod host;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod linux;
pub(crate) mod reactor;
#[cfg(feature = "sim")]
pub mod sim;
pub(crate) mod sockets;
pub(crate) mod thread;
#[cfg(target_os = "windows")]
mod windows;

// What the crate needs of a system comes through here. On a system without a back end the compiler
// then reports this error alone, and not every name that is missing because of it.
#[cfg(all(test, feature = "sim", target_os = "linux"))]
use linux::Native;
#[cfg(all(feature = "sim", target_os = "linux", target_pointer_width = "64"))]
pub(crate) use linux::codes;
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
pub(crate) use linux::{fd, native};
#[cfg(all(feature = "sim", target_os = "windows"))]
pub(crate) use windows::codes;
#[cfg(target_os = "windows")]
pub(crate) use windows::{fd, native};
#[cfg(not(any(all(target_os = "linux", target_pointer_width = "64"), target_os = "windows")))]
compile_error!("completion-port has no back end here yet: it runs on 64-bit Linux and on Windows");
