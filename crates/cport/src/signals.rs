//! Ctrl-C as something that a port can watch.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level::pipe};

/// From now on the first SIGINT or SIGTERM makes what is returned readable, and does nothing else.
/// The second one ends the process at once, with the shell's code for it.
pub(crate) fn termination() -> io::Result<UnixStream> {
    let (watched, written) = UnixStream::pair()?;
    watched.set_nonblocking(true)?;
    let asked = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // In this order: the flag of the first signal is seen by the second one only.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked))?;
        flag::register(signal, Arc::clone(&asked))?;
        pipe::register(signal, written.try_clone()?)?;
    }
    Ok(watched)
}
