//! System-dependent parts of the command, except ports and sockets: a folder for each system. Only
//! this file selects one.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "windows")]
mod windows;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(target_os = "windows")]
pub(crate) use windows::*;
