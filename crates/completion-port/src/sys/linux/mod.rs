//! Linux.

use self::epoll::Epoll;
use crate::backend::Backend;
use crate::types::config::{FileEngine, Readiness};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;

mod blocked;
pub(in crate::sys) mod calls;
mod clock;
pub(in crate::sys) mod datagrams;
mod epoll;
mod errors;
mod files;
mod process;
#[cfg(all(test, feature = "sim"))]
pub(in crate::sys) mod tests;
mod thread;

/// The back end, under the name that the code shared by all Unix systems uses.
pub(in crate::sys) use epoll::Epoll as System;

/// Makes the best back end of this system.
///
/// If `is_one_shot`, it arms a descriptor for one edge at a time. `files` selects how it performs
/// file operations.
pub(crate) fn native(
    is_one_shot: bool,
    files: FileEngine,
    readiness: Readiness,
) -> Result<Box<dyn Backend>, Fault> {
    if readiness != Readiness::Automatic {
        return Err(Fault { kind: ErrorKind::Unsupported, code: None });
    }
    let set = if is_one_shot { Epoll::one_shot() } else { Epoll::new() };
    Ok(Box::new(set?.with_files(files)?))
}
