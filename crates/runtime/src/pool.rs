//! The threads that run tasks.
//!
//! While tasks can block, the number of threads that are needed is not known in advance. The pool
//! keeps at least one thread waiting at the port, which also finds the threads that sleep. When the
//! last waiting thread leaves with packets, it wakes the *manager*, a thread that starts others. So
//! a thread that has packets never spends time on starting one.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use completion_port::{Batch, ErrorKind};

use crate::context;
use crate::runtime::Handle;
use crate::shared::Shared;

/// How often the manager tries again if the system refuses a thread, and looks whether threads are
/// still blocked.
const PAUSE: Duration = Duration::from_millis(10);

/// How long no thread must have come for a packet before the manager reports it.
const STALLED: Duration = Duration::from_millis(100);

/// The shortest time between two reports.
const REPORTS: Duration = Duration::from_secs(10);

/// A thread without packets for this long exits, if enough others wait.
const IDLE: Duration = Duration::from_secs(10);

/// The settings of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolConfig {
    pub(crate) name: String,
    /// The most threads that exist at a time.
    pub(crate) limit: usize,
    /// How many threads stay, however long they have no packets.
    pub(crate) least: usize,
}

/// The threads of a runtime.
pub(crate) struct Pool {
    config: PoolConfig,
    /// The threads that exist, including those being started.
    threads: AtomicUsize,
    /// The threads that wait at the port or are on their way there.
    idle: AtomicUsize,
    /// The pool starts no more threads.
    is_ending: AtomicBool,
    manager: Mutex<Option<(Thread, JoinHandle<()>)>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
    /// How often no thread came for a packet for [`STALLED`].
    stalls: AtomicU64,
    /// How often the system has refused a thread.
    refused: AtomicU64,
}

impl Pool {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self {
            config,
            threads: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            is_ending: AtomicBool::new(false),
            manager: Mutex::new(None),
            handles: Mutex::new(Vec::new()),
            stalls: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.load(SeqCst)
    }

    pub(crate) fn idle(&self) -> usize {
        self.idle.load(SeqCst)
    }

    pub(crate) fn stalls(&self) -> u64 {
        self.stalls.load(SeqCst)
    }

    /// Starts the first threads and the manager.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
        let manager = {
            let shared = Arc::downgrade(shared);
            let name = format!("{}-manager", shared_name(&shared));
            thread::Builder::new().name(name).spawn(move || manage(&shared))?
        };
        let thread = manager.thread().clone();
        *shared.pool.manager.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((thread, manager));
        for _ in 0..shared.pool.config.least {
            if let Err(error) = add_thread(shared) {
                // One thread suffices, and the manager tries to start others.
                if shared.pool.threads() == 0 {
                    shared.pool.end();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Notes that a waiting thread leaves with packets. The last one wakes the manager.
    #[inline]
    fn leave_wait(&self) {
        if self.idle.fetch_sub(1, SeqCst) == 1 {
            self.wake_manager();
        }
    }

    #[cold]
    fn wake_manager(&self) {
        if let Some((thread, _)) = &*self.manager.lock().unwrap_or_else(PoisonError::into_inner) {
            thread.unpark();
        }
    }

    /// Starts no more threads, and ends the manager.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, SeqCst);
        self.wake_manager();
    }

    /// Waits for the threads that have been told to end. The calling thread may be one of them.
    pub(crate) fn join(&self) {
        let own = thread::current().id();
        let manager = self.manager.lock().unwrap_or_else(PoisonError::into_inner).take();
        let handles =
            std::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        let all = handles.into_iter().chain(manager.map(|(_, handle)| handle));
        for handle in all.filter(|handle| handle.thread().id() != own) {
            // A thread of the pool catches the panics of tasks.
            let _ = handle.join();
        }
    }

    /// Counts a thread that is about to be started. Returns false at the limit.
    fn reserve(&self) -> bool {
        let more = |threads| (threads < self.config.limit).then_some(threads + 1);
        let is_reserved = self.threads.fetch_update(SeqCst, SeqCst, more).is_ok();
        if is_reserved {
            self.idle.fetch_add(1, SeqCst);
        }
        is_reserved
    }

    /// Returns whether a thread that has had no packets for long may exit. If so, it is no longer
    /// counted.
    fn may_exit(&self) -> bool {
        let least = self.config.least;
        let fewer = |threads| (threads > least).then(|| threads - 1);
        // Another thread keeps waiting: if this was the last one, the manager starts a thread.
        let is_spare = self.idle() > 1;
        let exits = is_spare && self.threads.fetch_update(SeqCst, SeqCst, fewer).is_ok();
        if exits {
            self.leave_wait();
        }
        exits
    }
}

fn shared_name(shared: &Weak<Shared>) -> String {
    shared.upgrade().map_or_else(String::new, |shared| shared.pool.config.name.clone())
}

/// Starts a thread. Does nothing at the limit.
fn add_thread(shared: &Arc<Shared>) -> io::Result<()> {
    let pool = &shared.pool;
    if !pool.reserve() {
        return Ok(());
    }
    let thread = {
        let shared = Arc::clone(shared);
        thread::Builder::new().name(pool.config.name.clone()).spawn(move || work(&shared))
    };
    match thread {
        Ok(thread) => {
            let mut handles = pool.handles.lock().unwrap_or_else(PoisonError::into_inner);
            handles.retain(|handle| !handle.is_finished());
            handles.push(thread);
            Ok(())
        }
        Err(error) => {
            pool.refused.fetch_add(1, SeqCst);
            pool.threads.fetch_sub(1, SeqCst);
            pool.idle.fetch_sub(1, SeqCst);
            Err(error)
        }
    }
}

/// The manager: keeps a thread waiting at the port.
fn manage(shared: &Weak<Shared>) {
    let mut since = None;
    let mut reported: Option<Instant> = None;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        let pool = &shared.pool;
        if pool.is_ending.load(SeqCst) {
            return;
        }
        if pool.idle() > 0 {
            since = None;
            drop(shared);
            thread::park();
            continue;
        }
        let is_full = pool.threads() >= pool.config.limit;
        if !is_full && add_thread(&shared).is_ok() {
            continue;
        }
        // No thread can be started, or there may be no more: look again soon.
        let now = Instant::now();
        let packets = shared.port.stats().packets.total();
        let (begun, seen) = *since.get_or_insert((now, packets));
        if seen != packets {
            since = None;
        } else if now - begun >= STALLED {
            since = Some((now, packets));
            pool.stalls.fetch_add(1, SeqCst);
            if reported.is_none_or(|reported| now - reported >= REPORTS) {
                reported = Some(now);
                report(&shared);
            }
        }
        drop(shared);
        thread::park_timeout(PAUSE);
    }
}

fn report(shared: &Shared) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        threads = shared.pool.threads(),
        limit = shared.pool.config.limit,
        tasks = shared.tasks.len(),
        "every thread of the runtime sleeps or computes"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = shared;
}

/// A thread of the pool: waits at the port and handles packets.
fn work(shared: &Arc<Shared>) {
    /// Keeps the counts right even if the thread panics.
    struct Counted<'s>(&'s Shared);
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.signal_end();
        }
    }
    let _entered = context::enter(Handle::of(Arc::clone(shared)));
    context::join_pool(shared);
    let _counted = Counted(shared);
    let pool = &shared.pool;
    let mut batch = Batch::new();
    loop {
        let mut is_idle = true;
        match shared.port.wait(&mut batch, IDLE) {
            Ok(packets) => {
                for packet in packets {
                    if std::mem::take(&mut is_idle) {
                        pool.leave_wait();
                    }
                    shared.handle(packet);
                }
            }
            Err(error) if error.kind() == ErrorKind::Closed => break,
            // The system refuses to report what is ready, which may pass. Tasks that are woken
            // otherwise continue.
            Err(_) => thread::park_timeout(PAUSE),
        }
        if !is_idle {
            pool.idle.fetch_add(1, SeqCst);
        } else if pool.may_exit() {
            return;
        }
    }
    pool.threads.fetch_sub(1, SeqCst);
    pool.leave_wait();
}
