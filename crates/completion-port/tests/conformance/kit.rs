//! Code shared by several claim files. A claim file uses these modules and no other claim file.

pub(crate) mod codes;
pub(crate) mod crew;
pub(crate) mod descriptors;
pub(crate) mod files;
pub(crate) mod ledger;
pub(crate) mod operations;
pub(crate) mod packets;
#[cfg(target_os = "linux")]
pub(crate) mod signals;
pub(crate) mod sockets;
pub(crate) mod takers;
pub(crate) mod threads;
