//! The driver: a thread that performs operations that no other thread performs.
//!
//! The driver's own port, on which it waits, performs operations of sockets that belong to no port.
//! Threads that wait on a port of the program perform its operations. If none has waited there for
//! some milliseconds, the driver performs them, every millisecond. It leaves a port alone whose
//! threads return to it between its checks: they do the same work with data in their own caches.
//!
//! The driver sleeps while threads wait on all ports with operations. A thread that leaves such a
//! port as the last one wakes it. After threads have returned, it stays awake for a while, so that
//! a busy server rarely has to wake it.

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
    /// Held while the thread is being created.
    begins: Mutex<()>,
    /// The program's ports that have operations.
    watched: Mutex<Vec<Arc<CompletionPort>>>,
    /// It does not check: a thread that leaves a port as the last one must wake it.
    is_asleep: AtomicBool,
}

static DRIVER: Own<Driver> = Own::new(begin_child);

extern "C" fn begin_child() {
    DRIVER.pass_on();
}

fn driver() -> &'static Driver {
    DRIVER.get(|_| Box::default())
}

/// The driver's pauses between checks, in milliseconds, while no port is left alone. After the last
/// one it sleeps until it is woken, unless no thread waits on some port.
const PAUSES: [u64; 8] = [1, 2, 4, 4, 4, 4, 4, 4];

/// The driver's own port.
pub(crate) fn own_port() -> Result<Arc<CompletionPort>, u32> {
    driver().own_port().map(Arc::clone)
}

/// The calling thread has started an operation that continues on this port.
#[inline]
pub(crate) fn watch(port: &Arc<CompletionPort>) {
    if port.name() != NO_PORT && !port.is_watched.load(SeqCst) {
        driver().watch(port);
    }
}

/// Signals caused by a thread's own faults.
const OF_FAULTS: [c_int; 6] =
    [libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGSEGV, libc::SIGSYS, libc::SIGTRAP];

/// Starts a thread of this library. The program chooses which of its threads handle signals, and
/// does not know this one. So it handles no signals except those of its own faults.
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
    // A new thread inherits the signal mask.
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

/// The last thread has left a port, or a port is being closed.
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
        // Without the thread, only waiting threads perform the operations.
        if self.own_port().is_ok() {
            self.wake();
        }
    }

    fn wake(&self) {
        self.is_asleep.store(false, SeqCst);
        if let Some(port) = self.port.get() {
            // If there is no memory, it checks at the next opportunity.
            let _ = port.post_words(0, 0, ptr::null_mut());
        }
    }

    /// The thread's main loop.
    fn serve(&self, port: &CompletionPort) {
        let mut batch = Batch::with_capacity(16);
        let mut pauses = 0;
        loop {
            let pause = self.look(&mut pauses);
            match port.raw().wait_cloned(&mut batch, pause) {
                // It was woken; its packets carry no other information.
                Ok(packets) => packets.for_each(drop),
                Err(_) => return,
            }
            self.is_asleep.store(false, SeqCst);
        }
    }

    /// Checks the program's ports. Returns how long to sleep; `pauses` counts consecutive checks
    /// that found none left alone.
    fn look(&self, pauses: &mut usize) -> Option<Duration> {
        let left_alone = self.some(|port| port.is_left_alone() && port.has_operations());
        for port in &left_alone {
            port.drive();
        }
        if !left_alone.is_empty() {
            *pauses = 0;
        }
        if let Some(pause) = PAUSES.get(*pauses).filter(|_| !self.watched().is_empty()) {
            *pauses += 1;
            return Some(Duration::from_millis(*pause));
        }
        *pauses = 0;
        self.forget_idle();
        // From here on a thread that leaves a port as the last one wakes this one. One may have
        // left before.
        self.is_asleep.store(true, SeqCst);
        let unattended = self.some(CompletionPort::is_unattended);
        (!unattended.is_empty()).then_some(Duration::from_millis(PAUSES[0]))
    }

    /// The watched ports for which `is_one` returns true.
    fn some(&self, is_one: impl Fn(&CompletionPort) -> bool) -> Vec<Arc<CompletionPort>> {
        let mut watched = self.watched();
        watched.retain(|port| port.is_open() || port.has_operations());
        watched.iter().filter(|port| is_one(port)).cloned().collect()
    }

    /// Forgets ports without operations.
    fn forget_idle(&self) {
        self.watched().retain(|port| {
            if port.has_operations() {
                return true;
            }
            port.is_watched.store(false, SeqCst);
            // A thread that starts an operation first counts it, then checks whether the port is
            // watched.
            port.has_operations() && !port.is_watched.swap(true, SeqCst)
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

    use std::io::{Read, Write};
    use std::os::fd::{AsRawFd, RawFd};
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicUsize;

    use completion_port::Started;
    use completion_port::raw::{Attempt, Ending, Side};

    use super::*;
    use crate::linux::numbers::{self, Key};
    use crate::linux::port::{Begun, BoxedOperation, PortOperation, Told};

    /// Counts its attempts, and stays in flight.
    struct Counting(Arc<AtomicUsize>);

    impl PortOperation for Counting {
        fn attempt(&mut self, _: RawFd) -> Attempt {
            self.0.fetch_add(1, SeqCst);
            Attempt::Idle
        }

        fn begins_unasked(&self) -> bool {
            false
        }

        fn end(self: Box<Self>, _: Ending) {}

        fn conclude(self: Box<Self>, _: bool, _: Told) -> Begun {
            unreachable!("it is never done")
        }

        fn withdraw(self: Box<Self>) {}
    }

    /// A port with one operation, which only the test's thread sees to, and a driver that watches it.
    struct Watched {
        driver: Driver,
        pauses: usize,
        port: Arc<CompletionPort>,
        near: UnixStream,
        far: UnixStream,
        attempts: Arc<AtomicUsize>,
    }

    impl Watched {
        fn new() -> Self {
            let driver = Driver::default();
            let port = Arc::new(CompletionPort::new(7, 1).unwrap());
            driver.watched().push(Arc::clone(&port));
            let (near, far) = UnixStream::pair().unwrap();
            let number = numbers::entry(near.as_raw_fd()).unwrap();
            let key = Key { word: 0, is_line: true, number };
            let line = port.raw().associate_number(near.as_raw_fd(), key);
            let line = line.map_err(|refused| refused.error()).unwrap();
            let attempts = Arc::new(AtomicUsize::new(0));
            let task = BoxedOperation(Box::new(Counting(Arc::clone(&attempts))));
            let started = port.raw().start_task(line, Side::In, task);
            assert!(matches!(started, Ok(Started::InFlight(_))));
            port.begin_operation();
            Self { driver, pauses: 0, port, near, far, attempts }
        }

        /// A byte comes, and the driver looks at the port. Returns whether it has performed the
        /// operation.
        fn is_driven(&mut self) -> bool {
            self.far.write_all(b"x").unwrap();
            let before = self.attempts.load(SeqCst);
            self.driver.look(&mut self.pauses);
            let is_driven = self.attempts.load(SeqCst) > before;
            self.near.read_exact(&mut [0]).unwrap();
            is_driven
        }
    }

    #[test]
    fn it_drives_a_port_only_if_no_thread_has_waited_there_since_its_last_look() {
        let mut watched = Watched::new();
        let port = Arc::clone(&watched.port);
        assert!(watched.is_driven() && watched.is_driven(), "none has ever waited");
        for waits in 1..4 {
            for _ in 0..waits {
                port.come();
                port.leave();
            }
            assert!(!watched.is_driven(), "threads have waited");
            port.come();
            port.leave();
            assert!(!watched.is_driven(), "one has waited since");
            assert!(watched.is_driven() && watched.is_driven(), "none has since");
        }
        port.come();
        assert!((0..20).all(|_| !watched.is_driven()), "a thread waits");
        port.leave();
        assert!(!watched.is_driven(), "it has waited until now");
        assert!(watched.is_driven());
        port.end_operation();
        assert!(!watched.is_driven(), "it has no operations");
    }
}
