//! What a thread sleeps at in the kernel, until the test clears it.

#[cfg(target_os = "linux")]
use std::io::{self, ErrorKind};
#[cfg(target_os = "linux")]
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

#[cfg(target_os = "linux")]
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
#[cfg(target_os = "linux")]
use rustix::pipe::{PipeFlags, pipe_with};

#[cfg(target_os = "linux")]
use crate::missing_page::MissingPage;
use crate::patience::LIMIT;
#[cfg(target_os = "linux")]
use crate::slow_start::SlowStart;

/// Puts each thread that meets it to sleep, without announcing it to any port. Dropping clears it.
#[derive(Debug)]
pub struct Obstacle(Kind);

#[derive(Debug)]
enum Kind {
    Condition {
        over: Mutex<bool>,
        changed: Condvar,
    },
    Lock {
        lock: Arc<Mutex<()>>,
        holder: Mutex<Option<Holder>>,
    },
    #[cfg(target_os = "linux")]
    Stream {
        empty: OwnedFd,
        other_end: Mutex<Option<OwnedFd>>,
    },
    #[cfg(target_os = "linux")]
    Page(MissingPage),
    #[cfg(target_os = "linux")]
    Start(SlowStart),
}

/// The thread that has the lock, until its sender is dropped.
#[derive(Debug)]
struct Holder {
    let_go: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Obstacle {
    /// A wait with a time limit, for a condition that does not become true.
    #[must_use]
    pub fn condition() -> Self {
        Self(Kind::Condition { over: Mutex::new(false), changed: Condvar::new() })
    }

    /// A lock that another thread holds.
    #[must_use]
    pub fn lock() -> Self {
        let lock = Arc::new(Mutex::new(()));
        let (let_go, until) = mpsc::channel::<()>();
        let (holds, held) = mpsc::channel();
        let thread = {
            let lock = Arc::clone(&lock);
            thread::spawn(move || {
                let _lock = locked(&lock);
                holds.send(()).unwrap();
                // No thread sends: it ends when the other side is dropped.
                let _ = until.recv();
            })
        };
        held.recv().unwrap();
        Self(Kind::Lock { lock, holder: Mutex::new(Some(Holder { let_go, thread })) })
    }

    /// A blocking read from a pipe that is empty.
    #[must_use]
    #[cfg(target_os = "linux")]
    pub fn pipe() -> Self {
        let (empty, other_end) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        Self(Kind::Stream { empty, other_end: Mutex::new(Some(other_end)) })
    }

    /// A blocking read from a socket to which nothing was sent.
    #[must_use]
    #[cfg(target_os = "linux")]
    pub fn socket() -> Self {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let (empty, other_end) = socketpair(family, SocketType::STREAM, flags, None).unwrap();
        Self(Kind::Stream { empty, other_end: Mutex::new(Some(other_end)) })
    }

    /// The start of a process, which suspends the thread until the process runs its program.
    /// Meanwhile that process has all descriptors of this one: for a test in [a process of its
    /// own](crate::in_a_process_of_its_own).
    #[must_use]
    #[cfg(target_os = "linux")]
    pub fn slow_start() -> Self {
        Self(Kind::Start(SlowStart::new()))
    }

    /// A page that is not in memory.
    ///
    /// # Errors
    ///
    /// The system does not let us handle page faults of our own process.
    #[cfg(target_os = "linux")]
    pub fn missing_page() -> io::Result<Self> {
        MissingPage::new().map(|page| Self(Kind::Page(page)))
    }

    /// Sleeps in the kernel until the obstacle is cleared; does not sleep if it has been. Only once: an
    /// obstacle is for one thread.
    pub fn meet(&self) {
        match &self.0 {
            Kind::Condition { over, changed } => {
                let mut over = locked(over);
                while !*over {
                    let woken = changed.wait_timeout(over, LIMIT);
                    over = woken.unwrap_or_else(PoisonError::into_inner).0;
                }
            }
            Kind::Lock { lock, .. } => drop(locked(lock)),
            #[cfg(target_os = "linux")]
            Kind::Stream { empty, .. } => loop {
                match rustix::io::read(empty, &mut [0; 1]).map_err(io::Error::from) {
                    // A thread that comes later finds the end of the stream as well.
                    Ok(read) => return assert_eq!(read, 0, "nobody writes"),
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) => panic!("reading failed: {error}"),
                }
            },
            #[cfg(target_os = "linux")]
            Kind::Page(page) => assert_eq!(page.read(), 0),
            #[cfg(target_os = "linux")]
            Kind::Start(process) => process.start(),
        }
    }

    /// Wakes the thread that sleeps here, or will.
    pub fn clear(&self) {
        match &self.0 {
            Kind::Condition { over, changed } => {
                *locked(over) = true;
                changed.notify_all();
            }
            Kind::Lock { holder, .. } => {
                if let Some(Holder { let_go, thread }) = locked(holder).take() {
                    drop(let_go);
                    thread.join().unwrap();
                }
            }
            #[cfg(target_os = "linux")]
            Kind::Stream { other_end, .. } => {
                drop(locked(other_end).take());
            }
            #[cfg(target_os = "linux")]
            Kind::Page(page) => page.supply(),
            #[cfg(target_os = "linux")]
            Kind::Start(process) => process.clear(),
        }
    }
}

impl Drop for Obstacle {
    fn drop(&mut self) {
        self.clear();
    }
}
