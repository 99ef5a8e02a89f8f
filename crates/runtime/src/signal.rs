//! Signals that ask a program to stop, and on Unix any other signal.
//!
//! # Examples
//!
//! A server that stops on Ctrl-C or SIGTERM, and lets its requests end:
//!
//! ```no_run
//! use completion_port_runtime::{Runtime, Shutdown, signal};
//! use std::time::Duration;
//!
//! let runtime = Runtime::new()?;
//! runtime.block_on(async {
//!     // spawn(serve(listener));
//!     signal::shutdown().await
//! })?;
//! runtime.shutdown(Shutdown::Drain, Some(Duration::from_secs(10)));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io;

#[cfg(unix)]
pub use unix::Signal;

/// Waits for Ctrl-C (`SIGINT`). From the first call on, Ctrl-C no longer ends the process, even if
/// nobody waits for it.
///
/// Ctrl-C that is pressed while no call waits is not remembered: on Unix, [`Signal`] remembers it.
/// Cancelling the call has no other effect.
///
/// # Errors
///
/// If the system allows no handler, or outside a runtime.
///
/// # Examples
///
/// ```
/// # #[cfg(unix)]
/// # fn run() -> std::io::Result<()> {
/// # use completion_port_runtime::{Runtime, signal, spawn, time::timeout};
/// # let runtime = Runtime::new()?;
/// # runtime.block_on(async {
/// # let _handled = signal::Signal::interrupt()?; // for a signal before the first poll
/// let mut waits = spawn(signal::ctrl_c());
/// // The user presses Ctrl-C.
/// # loop {
/// #     let own = std::process::id().to_string();
/// #     let mut kill = std::process::Command::new("kill");
/// #     assert!(kill.args(["-INT", &own]).status()?.success());
/// #     if let Ok(heard) = timeout(std::time::Duration::from_millis(10), &mut waits).await {
/// #         heard??;
/// #         break;
/// #     }
/// # }
/// assert!(waits.is_finished());
/// # Ok::<(), std::io::Error>(())
/// # })
/// # }
/// # #[cfg(unix)]
/// # run()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn ctrl_c() -> io::Result<()> {
    #[cfg(unix)]
    return Signal::interrupt()?.recv().await;
    #[cfg(windows)]
    return crate::windows_console::ctrl_c().await;
}

/// Waits for `SIGTERM`, by which service managers stop a program. See [`ctrl_c`].
///
/// # Errors
///
/// As for [`ctrl_c`].
///
/// # Examples
///
/// ```
/// # #[cfg(unix)]
/// # fn run() -> std::io::Result<()> {
/// # use completion_port_runtime::{Runtime, signal, spawn, time::timeout};
/// # let runtime = Runtime::new()?;
/// # runtime.block_on(async {
/// # let _handled = signal::Signal::terminate()?; // for a signal before the first poll
/// let mut waits = spawn(signal::terminate());
/// // The service manager stops the program.
/// # loop {
/// #     let own = std::process::id().to_string();
/// #     let mut kill = std::process::Command::new("kill");
/// #     assert!(kill.args(["-TERM", &own]).status()?.success());
/// #     if let Ok(heard) = timeout(std::time::Duration::from_millis(10), &mut waits).await {
/// #         heard??;
/// #         break;
/// #     }
/// # }
/// assert!(waits.is_finished());
/// # Ok::<(), std::io::Error>(())
/// # })
/// # }
/// # #[cfg(unix)]
/// # run()?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[cfg(unix)]
pub async fn terminate() -> io::Result<()> {
    Signal::terminate()?.recv().await
}

/// Waits until the program is asked to stop: by Ctrl-C, or on Unix by `SIGTERM`. See [`ctrl_c`].
///
/// # Errors
///
/// As for [`ctrl_c`].
///
/// # Examples
///
/// ```
/// # #[cfg(unix)]
/// # fn run() -> std::io::Result<()> {
/// # use completion_port_runtime::{Runtime, signal, spawn, time::timeout};
/// # let runtime = Runtime::new()?;
/// # runtime.block_on(async {
/// # let _handled = signal::Signal::terminate()?; // for a signal before the first poll
/// let mut waits = spawn(signal::shutdown());
/// // The user presses Ctrl-C, or the service manager stops the program.
/// # loop {
/// #     let own = std::process::id().to_string();
/// #     let mut kill = std::process::Command::new("kill");
/// #     assert!(kill.args(["-TERM", &own]).status()?.success());
/// #     if let Ok(heard) = timeout(std::time::Duration::from_millis(10), &mut waits).await {
/// #         heard??;
/// #         break;
/// #     }
/// # }
/// assert!(waits.is_finished());
/// # Ok::<(), std::io::Error>(())
/// # })
/// # }
/// # #[cfg(unix)]
/// # run()?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn shutdown() -> io::Result<()> {
    #[cfg(unix)]
    {
        let (mut interrupt, mut terminate) = (Signal::interrupt()?, Signal::terminate()?);
        std::future::poll_fn(|context| match interrupt.poll_recv(context) {
            std::task::Poll::Pending => terminate.poll_recv(context),
            ready => ready,
        })
        .await
    }
    #[cfg(windows)]
    ctrl_c().await
}

#[cfg(unix)]
mod unix {
    use std::future::poll_fn;
    use std::io;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;
    use std::task::{Context, Poll};

    use signal_hook_registry::SigId;

    use crate::activity::Label;
    use crate::readiness::{Direction, Io};

    /// A signal that the process waits for. From then on, the signal does not end the process, even
    /// after this is dropped.
    ///
    /// Signals that arrive while nobody waits are remembered; several may count as one. If several
    /// values wait for the same signal, each gets it.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, signal::Signal};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let mut hangup = Signal::hangup()?;
    ///     # let kill = std::process::Command::new("kill")
    ///     #     .args(["-HUP", &std::process::id().to_string()])
    ///     #     .status()?;
    ///     # assert!(kill.success());
    ///     hangup.recv().await?; // reload the configuration
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[derive(Debug)]
    pub struct Signal {
        id: SigId,
        receiver: Io<UnixDatagram>,
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
        ///
        /// # Examples
        ///
        /// ```
        /// use completion_port_runtime::{Runtime, signal::Signal};
        ///
        /// # fn kill(signal: &str) -> std::io::Result<()> {
        /// #     let own = std::process::id().to_string();
        /// #     let status = std::process::Command::new("kill").args([signal, &own]).status()?;
        /// #     assert!(status.success());
        /// #     Ok(())
        /// # }
        /// Runtime::new()?.block_on(async {
        ///     let mut children = Signal::new(libc::SIGCHLD)?;
        ///     let child = std::process::Command::new("true").spawn()?;
        ///     children.recv().await?;
        ///     assert!(child.wait_with_output()?.status.success());
        ///     Ok::<(), std::io::Error>(())
        /// })?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn new(number: i32) -> io::Result<Self> {
            let (receiver, sender) = UnixDatagram::pair()?;
            sender.set_nonblocking(true)?;
            receiver.set_nonblocking(true)?;
            let receiver = Io::new(receiver)?.labelled(Label::Signal(number));
            let descriptor = sender.as_raw_fd();
            let handle = move || {
                // SAFETY: `send` requires a buffer of that length, and is allowed in a signal
                // handler.
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

        /// Handles `SIGINT`, which Ctrl-C sends.
        ///
        /// # Errors
        ///
        /// As for [`Signal::new`].
        ///
        /// # Examples
        ///
        /// ```
        /// use completion_port_runtime::{Runtime, signal::Signal};
        ///
        /// # fn kill(signal: &str) -> std::io::Result<()> {
        /// #     let own = std::process::id().to_string();
        /// #     let status = std::process::Command::new("kill").args([signal, &own]).status()?;
        /// #     assert!(status.success());
        /// #     Ok(())
        /// # }
        /// Runtime::new()?.block_on(async {
        ///     let (mut one, mut other) = (Signal::interrupt()?, Signal::interrupt()?);
        ///     kill("-INT")?; // as Ctrl-C does
        ///     one.recv().await?; // each value gets it
        ///     other.recv().await?;
        ///     Ok::<(), std::io::Error>(())
        /// })?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn interrupt() -> io::Result<Self> {
            Self::new(libc::SIGINT)
        }

        /// Handles `SIGTERM`, by which service managers stop a program.
        ///
        /// # Errors
        ///
        /// As for [`Signal::new`].
        ///
        /// # Examples
        ///
        /// ```
        /// use completion_port_runtime::{Runtime, signal::Signal};
        ///
        /// # fn kill(signal: &str) -> std::io::Result<()> {
        /// #     let own = std::process::id().to_string();
        /// #     let status = std::process::Command::new("kill").args([signal, &own]).status()?;
        /// #     assert!(status.success());
        /// #     Ok(())
        /// # }
        /// Runtime::new()?.block_on(async {
        ///     let mut terminate = Signal::terminate()?;
        ///     kill("-TERM")?; // while nobody waits
        ///     terminate.recv().await?; // it is remembered
        ///     Ok::<(), std::io::Error>(())
        /// })?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn terminate() -> io::Result<Self> {
            Self::new(libc::SIGTERM)
        }

        /// Handles `SIGHUP`, by which programs are asked to read their configuration again.
        ///
        /// # Errors
        ///
        /// As for [`Signal::new`].
        ///
        /// # Examples
        ///
        /// ```
        /// use completion_port_runtime::{Runtime, signal::Signal, spawn};
        ///
        /// # fn kill(signal: &str) -> std::io::Result<()> {
        /// #     let own = std::process::id().to_string();
        /// #     let status = std::process::Command::new("kill").args([signal, &own]).status()?;
        /// #     assert!(status.success());
        /// #     Ok(())
        /// # }
        /// Runtime::new()?.block_on(async {
        ///     let mut hangup = Signal::hangup()?;
        ///     let reloads = spawn(async move { hangup.recv().await });
        ///     kill("-HUP")?;
        ///     reloads.await??;
        ///     Ok::<(), std::io::Error>(())
        /// })?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn hangup() -> io::Result<Self> {
            Self::new(libc::SIGHUP)
        }

        /// Handles `SIGQUIT`.
        ///
        /// # Errors
        ///
        /// As for [`Signal::new`].
        ///
        /// # Examples
        ///
        /// ```
        /// use completion_port_runtime::{Runtime, signal::Signal};
        ///
        /// # fn kill(signal: &str) -> std::io::Result<()> {
        /// #     let own = std::process::id().to_string();
        /// #     let status = std::process::Command::new("kill").args([signal, &own]).status()?;
        /// #     assert!(status.success());
        /// #     Ok(())
        /// # }
        /// Runtime::new()?.block_on(async {
        ///     drop(Signal::quit()?);
        ///     kill("-QUIT")?; // it doesn't end the process any more
        ///     let mut quit = Signal::quit()?;
        ///     kill("-QUIT")?;
        ///     quit.recv().await?;
        ///     Ok::<(), std::io::Error>(())
        /// })?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn quit() -> io::Result<Self> {
            Self::new(libc::SIGQUIT)
        }

        /// Handles `SIGUSR1`.
        ///
        /// # Errors
        ///
        /// As for [`Signal::new`].
        ///
        /// # Examples
        ///
        /// ```
        /// use completion_port_runtime::{Runtime, signal::Signal};
        ///
        /// # fn kill(signal: &str) -> std::io::Result<()> {
        /// #     let own = std::process::id().to_string();
        /// #     let status = std::process::Command::new("kill").args([signal, &own]).status()?;
        /// #     assert!(status.success());
        /// #     Ok(())
        /// # }
        /// Runtime::new()?.block_on(async {
        ///     let mut rotate_logs = Signal::user_defined1()?;
        ///     for _ in 0..2 {
        ///         kill("-USR1")?;
        ///         rotate_logs.recv().await?;
        ///     }
        ///     Ok::<(), std::io::Error>(())
        /// })?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn user_defined1() -> io::Result<Self> {
            Self::new(libc::SIGUSR1)
        }

        /// Handles `SIGUSR2`.
        ///
        /// # Errors
        ///
        /// As for [`Signal::new`].
        ///
        /// # Examples
        ///
        /// ```
        /// use completion_port_runtime::{Runtime, signal::Signal, time::timeout};
        /// use std::time::Duration;
        ///
        /// # fn kill(signal: &str) -> std::io::Result<()> {
        /// #     let own = std::process::id().to_string();
        /// #     let status = std::process::Command::new("kill").args([signal, &own]).status()?;
        /// #     assert!(status.success());
        /// #     Ok(())
        /// # }
        /// Runtime::new()?.block_on(async {
        ///     let (mut dump, mut rotate) = (Signal::user_defined2()?, Signal::user_defined1()?);
        ///     kill("-USR2")?;
        ///     dump.recv().await?;
        ///     // The other one hasn't come.
        ///     assert!(timeout(Duration::from_millis(1), rotate.recv()).await.is_err());
        ///     Ok::<(), std::io::Error>(())
        /// })?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub fn user_defined2() -> io::Result<Self> {
            Self::new(libc::SIGUSR2)
        }

        /// Waits for the signal. Cancelling it loses no signal.
        ///
        /// # Errors
        ///
        /// Those of the system; an error if the runtime has ended.
        ///
        /// # Examples
        ///
        /// ```
        /// use completion_port_runtime::{Runtime, signal::Signal, time::timeout};
        /// use std::time::Duration;
        ///
        /// # fn kill(signal: &str) -> std::io::Result<()> {
        /// #     let own = std::process::id().to_string();
        /// #     let status = std::process::Command::new("kill").args([signal, &own]).status()?;
        /// #     assert!(status.success());
        /// #     Ok(())
        /// # }
        /// Runtime::new()?.block_on(async {
        ///     let mut hangup = Signal::hangup()?;
        ///     let limit = Duration::from_millis(1);
        ///     assert!(timeout(limit, hangup.recv()).await.is_err()); // cancelled
        ///     kill("-HUP")?;
        ///     hangup.recv().await?;
        ///     Ok::<(), std::io::Error>(())
        /// })?;
        /// # Ok::<(), std::io::Error>(())
        /// ```
        pub async fn recv(&mut self) -> io::Result<()> {
            poll_fn(|context| self.poll_recv(context)).await
        }

        pub(super) fn poll_recv(&mut self, context: &Context<'_>) -> Poll<io::Result<()>> {
            self.receiver
                .poll(Direction::Read, context, |socket| socket.recv(&mut [0; 1]).map(drop))
        }
    }

    impl Drop for Signal {
        fn drop(&mut self) {
            signal_hook_registry::unregister(self.id);
        }
    }
}
