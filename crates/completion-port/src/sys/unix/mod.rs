//! Code shared by all Unix systems. Each system's own folder provides `calls`, with the calls that
//! it makes differently, and `System`, its back end.

pub(in crate::sys) mod address;
pub(crate) mod codes;
pub(crate) mod datagrams;
pub(in crate::sys) mod errors;
pub(in crate::sys) mod files;
pub(in crate::sys) mod once;
pub(in crate::sys) mod options;
pub(in crate::sys) mod parking;
pub(in crate::sys) mod sockets;
mod source;
pub(in crate::sys) mod threads;
pub(in crate::sys) mod timeout;
