//! The calls that the kit makes on real sockets, with one signature on every system.

#[cfg(all(unix, not(target_os = "linux")))]
mod bsd;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(all(unix, not(target_os = "linux")))]
pub(crate) use bsd::*;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(unix)]
pub(crate) use unix::*;
#[cfg(windows)]
pub(crate) use windows::*;
