//! Windows.

use self::afd::Afd;
use self::operations::OverlappedOperations;
use self::winsock_notifications::WinsockBackend;
use crate::backend::Backend;
use crate::types::config::{FileEngine, Readiness};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;

mod address;
mod afd;
#[cfg_attr(
    not(feature = "sim"),
    allow(dead_code, reason = "the simulated kernel has more of them than a reactor")
)]
pub(crate) mod codes;
pub(crate) mod datagrams;
mod errors;
mod files;
mod host;
mod operations;
mod options;
mod port;
mod sockets;
mod source;
#[cfg(test)]
mod tests;
mod thread;
mod timeout;
mod winsock_notifications;

/// Makes the back end of this system: a completion port of the kernel.
///
/// Any number of threads can wait on it.
///
/// It is always one-shot.
pub(crate) fn native(
    _is_one_shot: bool,
    files: FileEngine,
    readiness: Readiness,
) -> Result<Box<dyn Backend>, Fault> {
    match readiness {
        // `WinsockBackend` has never run on Windows itself, so it is not the default on systems
        // that support it.
        Readiness::Automatic | Readiness::Polls => Ok(Box::new(Afd::new(files)?)),
        Readiness::Notifications => {
            match WinsockBackend::new(files, OverlappedOperations::default()) {
                Some(notified) => Ok(Box::new(notified?)),
                None => Err(Fault { kind: ErrorKind::Unsupported, code: None }),
            }
        }
    }
}
