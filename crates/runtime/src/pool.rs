//! The threads that run tasks.
//!
//! While tasks can block, the number of threads that are needed is not known in advance. The pool
//! keeps at least one thread waiting at the port, which also finds the threads that sleep. When the
//! last waiting thread leaves with packets, it wakes the *manager*, a thread that starts others. So
//! a thread that has packets never spends time on starting one.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use completion_port::{Batch, ErrorKind};

use crate::context;
use crate::runtime::Handle;
use crate::shared::Shared;
use crate::state::threads::Threads;
use crate::sync::{self, JoinHandle, Mutex};

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
    /// The memory for the stack of each thread.
    pub(crate) stack_size: Option<usize>,
    /// The most threads that exist at a time.
    pub(crate) limit: usize,
    /// How many threads stay, however long they have no packets.
    pub(crate) least: usize,
}

/// The threads of a runtime.
pub(crate) struct Pool {
    config: PoolConfig,
    counts: Threads,
    manager: Mutex<Option<JoinHandle<()>>>,
    handles: Mutex<Vec<JoinHandle<()>>>,
    /// How often no thread came for a packet for [`STALLED`].
    stalls: AtomicU64,
    /// How often the system has refused a thread.
    refused: AtomicU64,
}

impl Pool {
    pub(crate) fn new(config: PoolConfig) -> Self {
        Self {
            counts: Threads::new(config.limit, config.least),
            config,
            manager: Mutex::new(None),
            handles: Mutex::new(Vec::new()),
            stalls: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    pub(crate) fn threads(&self) -> usize {
        self.counts.existing()
    }

    pub(crate) fn idle(&self) -> usize {
        self.counts.idle()
    }

    pub(crate) fn limit(&self) -> usize {
        self.config.limit
    }

    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(SeqCst)
    }

    pub(crate) fn stalls(&self) -> u64 {
        self.stalls.load(SeqCst)
    }

    /// Starts the first threads and the manager.
    pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
        let manager = {
            let shared = Arc::downgrade(shared);
            let name = format!("{}-manager", shared_name(&shared));
            sync::start_thread(name, None, move || manage(&shared))?
        };
        shared.pool.counts.set_manager(manager.thread().clone());
        *shared.pool.manager.lock().unwrap_or_else(PoisonError::into_inner) = Some(manager);
        for _ in 0..shared.pool.config.least {
            if let Err(error) = add_thread(shared) {
                // One thread suffices, and the manager tries to start others. It has to look again:
                // a thread that left meanwhile took this one for a waiting one.
                shared.pool.wake_manager();
                if shared.pool.threads() == 0 {
                    shared.pool.end();
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    pub(crate) fn wake_manager(&self) {
        self.counts.wake_manager();
    }

    /// Starts no more threads. The manager ends with the last task.
    pub(crate) fn end(&self) {
        self.counts.end();
    }

    /// Waits for the threads that have been told to end. All tasks have ended, and the calling
    /// thread is none of them.
    pub(crate) fn join(&self) {
        // First the manager, which may be starting a thread.
        let manager = self.manager.lock().unwrap_or_else(PoisonError::into_inner).take();
        manager.map(JoinHandle::join);
        let handles =
            std::mem::take(&mut *self.handles.lock().unwrap_or_else(PoisonError::into_inner));
        for handle in handles {
            // A thread of the pool catches the panics of tasks.
            let _ = handle.join();
        }
    }
}

fn shared_name(shared: &Weak<Shared>) -> String {
    shared.upgrade().map_or_else(String::new, |shared| shared.pool.config.name.clone())
}

/// Starts a thread. Does nothing at the limit.
fn add_thread(shared: &Arc<Shared>) -> io::Result<()> {
    let pool = &shared.pool;
    if !pool.counts.reserve() {
        return Ok(());
    }
    let thread = {
        let shared = Arc::clone(shared);
        let PoolConfig { name, stack_size, .. } = &pool.config;
        sync::start_thread(name.clone(), *stack_size, move || work(&shared))
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
            pool.counts.not_started(&shared.ending);
            Err(error)
        }
    }
}

/// The manager: keeps a thread waiting at the port.
fn manage(weak: &Weak<Shared>) {
    let mut since = None;
    let mut reported: Option<Instant> = None;
    loop {
        let Some(shared) = weak.upgrade() else { return };
        let pool = &shared.pool;
        if pool.counts.is_ending() {
            drop(shared);
            return end_tasks(weak);
        }
        if pool.idle() > 0 {
            since = None;
            drop(shared);
            sync::park();
            continue;
        }
        let is_full = pool.counts.is_full();
        if !is_full && add_thread(&shared).is_ok() {
            continue;
        }
        // No thread can be started, or there may be no more: look again soon.
        let now = sync::now();
        let packets = shared.port.stats().packets.total();
        // Nobody else notes for how long the threads have been at work.
        drop(shared.port.thread_stats());
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
        sync::park_timeout(PAUSE);
    }
}

/// Drops the tasks that the closed port refuses, until the last task has ended. A task that did not
/// return before the shutdown's time was over may end later, or be woken by any thread.
fn end_tasks(shared: &Weak<Shared>) {
    while let Some(shared) = shared.upgrade() {
        shared.drop_refused();
        if shared.tasks.len() == 0 {
            return;
        }
        drop(shared);
        sync::park();
    }
}

fn report(shared: &Shared) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        threads = shared.pool.threads(),
        limit = shared.pool.config.limit,
        tasks = shared.tasks.len(),
        oldest = crate::dump::oldest(shared).unwrap_or_default(),
        "every thread of the runtime sleeps or computes"
    );
    #[cfg(not(feature = "tracing"))]
    let _ = shared;
}

/// A thread of the pool: waits at the port and handles packets.
fn work(shared: &Arc<Shared>) {
    /// Announces the end of the thread, after it is no longer counted.
    struct Ends<'s>(&'s Shared);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.signal_end();
        }
    }
    let _entered = context::enter(Handle::of(Arc::clone(shared)));
    let _in_tokio = shared.enter_tokio();
    let _in_pool = context::join_pool(shared);
    let _ends = Ends(shared);
    let _listed = shared.threads.enter();
    let counts = &shared.pool.counts;
    let mut batch = Batch::new();
    loop {
        let mut is_idle = true;
        match shared.port.wait(&mut batch, IDLE) {
            Ok(packets) => {
                for packet in packets {
                    if std::mem::take(&mut is_idle) {
                        counts.leave_wait();
                    }
                    shared.handle(packet);
                }
            }
            Err(error) if error.kind() == ErrorKind::Closed => break,
            // The system refuses to report what is ready, which may pass. Tasks that are woken
            // otherwise continue.
            Err(_) => sync::park_timeout(PAUSE),
        }
        if !is_idle {
            counts.come_to_wait();
        } else if counts.may_exit() {
            return;
        }
    }
    counts.leave();
}
