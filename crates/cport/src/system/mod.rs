//! What the command asks of the system, beside ports and sockets: a folder for each, and the only place that knows
//! which one it is compiled for.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "windows")]
mod windows;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(target_os = "windows")]
pub(crate) use windows::*;
