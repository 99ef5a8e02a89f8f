//! The driver: one thread of the process that sees to operations to which no other thread sees.
//!
//! Operations of sockets that belong to no port are carried out by a port of the driver's own, at which the driver
//! waits. Operations of a port of the program are carried out by the threads that wait there. While none does, the
//! driver looks every millisecond.
//!
//! The driver sleeps as long as threads are at all ports that have operations. A thread that leaves such a port empty
//! wakes it then. It does not sleep at once when threads have come back, so that a server that is busy hardly ever has
//! to wake it.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use completion_port::Batch;

use crate::errors::code;
use crate::linux::numbers::NO_PORT;
use crate::linux::port::CompletionPort;
use crate::linux::process::Own;

/// Of one process.
#[derive(Default)]
struct Driver {
    /// Its own port, once the thread runs.
    port: OnceLock<Arc<CompletionPort>>,
    /// Held while the thread is made.
    begins: Mutex<()>,
    /// The program's ports that have operations.
    watched: Mutex<Vec<Arc<CompletionPort>>>,
    /// It does not look: the thread that leaves a port empty is to wake it.
    is_asleep: AtomicBool,
}

static DRIVER: Own<Driver> = Own::new(begin_child);

extern "C" fn begin_child() {
    DRIVER.pass_on();
}

fn driver() -> &'static Driver {
    DRIVER.get(|_| Box::default())
}

/// How long the driver sleeps between looks, in milliseconds, one after the other, as long as it finds that threads
/// see to everything. Behind the last one it sleeps until it is woken.
const PAUSES: [u64; 8] = [1, 2, 4, 4, 4, 4, 4, 4];

/// The driver's own port.
pub(crate) fn own_port() -> Result<Arc<CompletionPort>, u32> {
    driver().own_port().map(Arc::clone)
}

/// The caller's thread has begun an operation that goes on at this port.
#[inline]
pub(crate) fn watch(port: &Arc<CompletionPort>) {
    if port.name() != NO_PORT && !port.is_watched.load(SeqCst) {
        driver().watch(port);
    }
}

/// Signals that a thread gets for what it does itself.
const OF_FAULTS: [c_int; 6] =
    [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

/// Starts a thread of this library's own. The program chooses which of its threads handle signals, and knows nothing of
/// this one: so it handles none, but those of its own faults.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), u32> {
    let (mut blocked, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: sigfillset(3) writes a set at the pointer.
    // - valid for writes: it is a local of that type.
    unsafe { libc::sigfillset(blocked.as_mut_ptr()) };
    for signal in OF_FAULTS {
        // SAFETY: sigdelset(3) changes the set at the pointer.
        // - it has just been written.
        unsafe { libc::sigdelset(blocked.as_mut_ptr(), signal) };
    }
    // A thread begins with the mask of the one that starts it.
    // SAFETY: pthread_sigmask(3) reads a set at one pointer and writes one at the other.
    // - valid: both are locals of that type, and the first was written above.
    let refused =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, blocked.as_ptr(), before.as_mut_ptr()) };
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    if refused == 0 {
        // SAFETY: as above; the call that has succeeded has written it.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    }
    thread.map(drop).map_err(|_| code::NO_SYSTEM_RESOURCES)
}

/// A port was left empty, or is closed.
#[inline(never)]
pub(crate) fn wake_if_asleep() {
    if let Some(driver) = DRIVER.find()
        && driver.is_asleep.load(SeqCst)
    {
        driver.wake();
    }
}

impl Driver {
    fn own_port(&'static self) -> Result<&'static Arc<CompletionPort>, u32> {
        if let Some(port) = self.port.get() {
            return Ok(port);
        }
        let _begins = self.begins.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(port) = self.port.get() {
            return Ok(port);
        }
        let port = Arc::new(CompletionPort::new(NO_PORT, 1)?);
        let own = Arc::clone(&port);
        spawn("cp-driver", move || self.serve(&own))?;
        Ok(self.port.get_or_init(|| port))
    }

    fn watched(&self) -> MutexGuard<'_, Vec<Arc<CompletionPort>>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cold]
    fn watch(&'static self, port: &Arc<CompletionPort>) {
        if !port.is_watched.swap(true, SeqCst) {
            self.watched().push(Arc::clone(port));
        }
        // Without the thread the operations are left to those that wait.
        if self.own_port().is_ok() {
            self.wake();
        }
    }

    fn wake(&self) {
        self.is_asleep.store(false, SeqCst);
        if let Some(port) = self.port.get() {
            // If there is no memory it looks at the next opportunity.
            let _ = port.post_words(0, 0, ptr::null_mut());
        }
    }

    /// What the thread does.
    fn serve(&self, port: &CompletionPort) {
        let mut batch = Batch::with_capacity(16);
        let mut pauses = 0;
        loop {
            let pause = self.look(&mut pauses);
            match port.raw().wait_cloned(&mut batch, pause) {
                // It was woken, which is all that its packets tell.
                Ok(packets) => packets.for_each(drop),
                Err(_) => return,
            }
            self.is_asleep.store(false, SeqCst);
        }
    }

    /// Looks after the program's ports. Returns for how long to sleep; `pauses` counts how often all was well.
    fn look(&self, pauses: &mut usize) -> Option<Duration> {
        let (unattended, any) = self.unattended();
        for port in &unattended {
            port.drive();
        }
        if !unattended.is_empty() {
            *pauses = 0;
        }
        if let Some(pause) = PAUSES.get(*pauses).filter(|_| any) {
            *pauses += 1;
            return Some(Duration::from_millis(*pause));
        }
        // From here on a thread that leaves a port empty wakes this one; one may have left before.
        self.is_asleep.store(true, SeqCst);
        let (unattended, _) = self.unattended();
        *pauses = 0;
        (!unattended.is_empty()).then_some(Duration::from_millis(PAUSES[0]))
    }

    /// The ports with operations to which no thread sees, and whether there are any with operations. Forgets those
    /// that have none.
    fn unattended(&self) -> (Vec<Arc<CompletionPort>>, bool) {
        let mut watched = self.watched();
        watched.retain(|port| {
            if port.has_flights() {
                return true;
            }
            port.is_watched.store(false, SeqCst);
            // The thread that begins an operation counts it, and looks then whether the port is watched.
            port.has_flights() && !port.is_watched.swap(true, SeqCst)
        });
        let unattended = watched.iter().filter(|port| port.is_unattended()).cloned().collect();
        (unattended, !watched.is_empty())
    }
}
