//! The worker of the calling thread at the port it waited on last. The thread gives it up when it
//! waits on another port, or exits.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use crate::engine::{Engine, Worker};

/// A thread's worker. Its owners are counted within the thread, so that a wait and its packets can
/// share it at little cost.
pub(crate) struct CurrentWorker {
    engine: Weak<Engine>,
    worker: Arc<Worker>,
    has_left: Cell<bool>,
    /// The worker's progress when a call ended in which every change was refused.
    refusal_noted_at: Cell<Option<u32>>,
}

impl CurrentWorker {
    fn new(engine: &Arc<Engine>) -> Rc<Self> {
        Rc::new(Self {
            engine: Arc::downgrade(engine),
            worker: engine.join(),
            has_left: Cell::new(false),
            refusal_noted_at: Cell::new(None),
        })
    }

    /// Returns whether the worker belongs to the port of `engine`. The weak reference ensures that
    /// no other port gets that address while this value lives.
    fn is_at(&self, engine: &Engine) -> bool {
        std::ptr::eq(self.engine.as_ptr(), engine)
    }

    /// Returns whether a call in which every change was refused returns immediately, so that the
    /// thread sees the refusal.
    ///
    /// It does not if the thread's last wait was in such a call too and returned no packet.
    /// Otherwise a thread that submits the same changes repeatedly would spin.
    pub(crate) fn returns_for_refusals(&self) -> bool {
        self.refusal_noted_at.get() != Some(self.worker.progress())
    }

    /// Notes that such a call has ended. The thread's next wait or packet makes the note obsolete.
    pub(crate) fn note_refusal(&self) {
        self.refusal_noted_at.set(Some(self.worker.progress()));
    }

    /// Gives up the worker, unless that has already happened. A port that is dropped gives up its
    /// workers itself.
    fn leave(&self) {
        if !self.has_left.replace(true)
            && let Some(engine) = self.engine.upgrade()
            && !engine.forked()
        {
            engine.leave(&self.worker);
            engine.continue_finishing();
        }
    }
}

impl Deref for CurrentWorker {
    type Target = Worker;
    fn deref(&self) -> &Worker {
        &self.worker
    }
}

/// A share of the calling thread's worker, for a call that may run code of the program. Counted
/// within the thread: an atomic count would cost as much as the lock of a port.
pub(crate) struct OwnWorker(Rc<CurrentWorker>);

impl Deref for OwnWorker {
    type Target = Worker;
    #[inline]
    fn deref(&self) -> &Worker {
        &self.0
    }
}

impl Drop for CurrentWorker {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The thread's share of its worker. Dropping it gives up the worker, even if the packets of a wait
/// still exist or were forgotten.
struct WorkerGuard(Rc<CurrentWorker>);

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        self.0.leave();
    }
}

thread_local! {
    /// The worker at the port that the thread waited on last. A thread runs packets of one port at
    /// a time.
    static CURRENT: RefCell<Option<WorkerGuard>> = const { RefCell::new(None) };
}

/// Returns the worker of the calling thread at the port of `engine`, which it is about to wait on.
/// Gives up a worker at another port, because the thread no longer runs there.
#[inline]
pub(crate) fn take_worker(engine: &Arc<Engine>) -> Rc<CurrentWorker> {
    let joined = CURRENT.try_with(|current| {
        let current = current.borrow();
        let WorkerGuard(current_worker) = current.as_ref()?;
        current_worker.is_at(engine).then(|| Rc::clone(current_worker))
    });
    match joined {
        Ok(Some(current_worker)) => current_worker,
        Ok(None) => change_workers(engine),
        // The thread's local values are already destroyed: it waits in the destructor of one of
        // them. This worker lasts for this wait only.
        Err(_) => CurrentWorker::new(engine),
    }
}

/// Creates a worker for the calling thread, and gives up its worker at another port.
#[cold]
fn change_workers(engine: &Arc<Engine>) -> Rc<CurrentWorker> {
    let current_worker = CurrentWorker::new(engine);
    let mine = WorkerGuard(Rc::clone(&current_worker));
    // The old worker is dropped after the borrow has ended.
    drop(CURRENT.try_with(|current| current.replace(Some(mine))));
    current_worker
}

/// Calls `action` with the worker of the calling thread, as returned by [`current_worker`]. The
/// action must not call code of the program, and must not wait.
#[inline]
pub(crate) fn with_current_worker<R>(
    engine: &Engine,
    action: impl FnOnce(Option<&Worker>) -> R,
) -> R {
    // Outside the access to the thread's local value, which would pass the result through memory.
    let worker = own_worker(engine);
    action(worker.as_deref())
}

/// Returns the worker of the calling thread at the port of `engine`, if that is the port it waited
/// on last.
#[inline]
pub(crate) fn own_worker(engine: &Engine) -> Option<OwnWorker> {
    let worker = CURRENT.try_with(|current| {
        let current = current.borrow();
        let WorkerGuard(current_worker) = current.as_ref()?;
        current_worker.is_at(engine).then(|| OwnWorker(Rc::clone(current_worker)))
    });
    worker.ok().flatten()
}

/// The same, with a share that the engine may keep.
pub(crate) fn current_worker(engine: &Engine) -> Option<Arc<Worker>> {
    own_worker(engine).map(|OwnWorker(current_worker)| Arc::clone(&current_worker.worker))
}
