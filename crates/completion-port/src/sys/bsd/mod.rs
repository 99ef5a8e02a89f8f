//! macOS, FreeBSD, NetBSD and OpenBSD.

use self::native::Native;
use crate::backend::Backend;
use crate::sys::portable::kqueue::Kqueue;
use crate::types::config::{FileEngine, Readiness};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;

pub(in crate::sys) mod calls;
pub(in crate::sys) mod datagrams;
mod files;
mod host;
mod native;
mod process;
#[cfg(target_os = "freebsd")]
mod sleepers;
mod thread;

/// The back end, under the name that the code shared by all Unix systems uses.
pub(in crate::sys) type System = Kqueue<Native>;

/// Makes the back end of this system: one kqueue, on which any number of threads can wait.
///
/// It is always edge-triggered. Threads perform the file operations.
pub(crate) fn native(
    _is_one_shot: bool,
    files: FileEngine,
    readiness: Readiness,
) -> Result<Box<dyn Backend>, Fault> {
    if readiness != Readiness::Automatic {
        return Err(Fault { kind: ErrorKind::Unsupported, code: None });
    }
    match files {
        FileEngine::Automatic | FileEngine::Threads => Ok(Box::new(Kqueue::new(Native::new())?)),
        FileEngine::Ring => Err(Fault { kind: ErrorKind::Unsupported, code: None }),
    }
}
