//! Signals that a thread can wait for, with a timeout.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};
use signal_hook::{flag, low_level, low_level::pipe};

/// This many signals requesting the end are handled one after the other. Another one ends the
/// process immediately, whatever the handling thread is doing.
const OBEYED: u32 = 2;

/// The unhandled signals of the process.
pub(crate) struct Signals {
    watched: UnixStream,
    written: Arc<UnixStream>,
    end: Arc<AtomicBool>,
    numbers: Arc<AtomicBool>,
    impatient: Arc<AtomicBool>,
}

/// Ends a wait for signals.
pub(crate) struct Waker(Arc<UnixStream>);

impl Signals {
    /// From now on SIGINT and SIGTERM request the end, and SIGUSR1 requests numbers. The third
    /// request for the end ends the process immediately.
    pub(crate) fn new() -> io::Result<Self> {
        let (watched, written) = UnixStream::pair()?;
        // A full pipe is enough of a wake.
        written.set_nonblocking(true)?;
        let [end, numbers, impatient] = std::array::from_fn(|_| Arc::new(AtomicBool::new(false)));
        let asked = Arc::new(AtomicU32::new(0));
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&impatient))?;
            let asked = Arc::clone(&asked);
            let count = move || {
                // The main thread may be stuck, for instance writing to a pipe that nobody reads.
                if asked.fetch_add(1, SeqCst) >= OBEYED {
                    low_level::exit(128 + signal);
                }
            };
            // SAFETY: the function must be safe in a signal handler, and must not panic.
            // - it increments an atomic number, and ends the process by _exit(2).
            unsafe { low_level::register(signal, count) }?;
        }
        for (signal, flag) in [(SIGINT, &end), (SIGTERM, &end), (SIGUSR1, &numbers)] {
            // Sets the flag before the wake.
            flag::register(signal, Arc::clone(flag))?;
            pipe::register(signal, written.try_clone()?)?;
        }
        Ok(Self { watched, written: Arc::new(written), end, numbers, impatient })
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.written))
    }

    /// Waits for a signal, a wake or the timeout.
    pub(crate) fn wait(&self, limit: Option<Duration>) -> io::Result<()> {
        // A limit of zero would be refused.
        let limit = limit.map(|limit| limit.max(Duration::from_millis(1)));
        self.watched.set_read_timeout(limit)?;
        match (&self.watched).read(&mut [0; 64]) {
            Ok(_) => Ok(()),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the end was requested since the last call.
    pub(crate) fn end(&self) -> bool {
        self.end.swap(false, SeqCst)
    }

    /// Whether numbers were requested since the last call.
    pub(crate) fn numbers(&self) -> bool {
        self.numbers.swap(false, SeqCst)
    }

    /// From now on another SIGINT or SIGTERM ends the process immediately, with the shell's exit
    /// code for it.
    pub(crate) fn last_warning(&self) {
        self.impatient.store(true, SeqCst);
    }
}

impl Waker {
    pub(crate) fn wake(&self) {
        // A full pipe also wakes.
        let _ = (&*self.0).write(&[0]);
    }
}
