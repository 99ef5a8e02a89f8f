//! Signals that ask a program to stop.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;

use signal_hook_registry::SigId;

use crate::net;

/// A signal that the process waits for. From then on, the signal does not end the process, even
/// after this is dropped.
///
/// Signals that arrive while nobody waits are remembered; several may count as one.
#[derive(Debug)]
pub struct Signal {
    id: SigId,
    receiver: net::UnixDatagram,
    /// The handler writes into it, so it stays open until the handler is removed.
    _sender: UnixDatagram,
}

impl Signal {
    /// Handles the signal with this number from now on.
    ///
    /// # Errors
    ///
    /// If the system allows no handler for the signal, or outside a runtime.
    ///
    /// # Panics
    ///
    /// If the signal is one for which handlers are forbidden, such as `SIGKILL`.
    pub fn new(number: i32) -> io::Result<Self> {
        let (receiver, sender) = UnixDatagram::pair()?;
        sender.set_nonblocking(true)?;
        let receiver = net::UnixDatagram::from_std(receiver)?;
        let descriptor = sender.as_raw_fd();
        let handle = move || {
            // SAFETY: `send` requires a buffer of that length, and is allowed in a signal handler.
            // - the buffer: one byte of a constant;
            // - the descriptor is open: `Signal` removes the handler before it closes it;
            // - `errno` is restored by the caller, `signal-hook-registry`.
            unsafe { libc::send(descriptor, [0_u8].as_ptr().cast(), 1, libc::MSG_DONTWAIT) };
        };
        // SAFETY: `register` requires an action that is allowed in a signal handler.
        // - it makes one system call, allocates nothing and takes no lock.
        let id = unsafe { signal_hook_registry::register(number, handle) }?;
        Ok(Self { id, receiver, _sender: sender })
    }

    /// Waits for the signal. Cancelling it loses no signal.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn recv(&mut self) -> io::Result<()> {
        self.receiver.recv(&mut [0; 1]).await.map(drop)
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        signal_hook_registry::unregister(self.id);
    }
}

/// Waits for Ctrl-C (`SIGINT`). From the first call on, Ctrl-C no longer ends the process.
///
/// # Errors
///
/// As for [`Signal::new`].
pub async fn ctrl_c() -> io::Result<()> {
    Signal::new(libc::SIGINT)?.recv().await
}

/// Waits for `SIGTERM`, by which service managers stop a program. See [`ctrl_c`].
///
/// # Errors
///
/// As for [`Signal::new`].
pub async fn terminate() -> io::Result<()> {
    Signal::new(libc::SIGTERM)?.recv().await
}
