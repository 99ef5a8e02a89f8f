//! What the systems have in common that are Unix. Each of them says in `calls` of its own folder what it does in its
//! own way, and in `System` what its back end is.

pub(in crate::sys) mod address;
pub(crate) mod codes;
pub(in crate::sys) mod errors;
pub(in crate::sys) mod files;
pub(in crate::sys) mod once;
pub(in crate::sys) mod options;
pub(in crate::sys) mod parking;
pub(in crate::sys) mod sockets;
mod source;
pub(in crate::sys) mod threads;
pub(in crate::sys) mod timeout;
