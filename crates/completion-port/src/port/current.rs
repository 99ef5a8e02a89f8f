//! The seat of the calling thread on the port that it waited on last. The thread gives it up when
//! it waits on another port, or exits.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::sync::{Arc, Weak};

use crate::engine::{Engine, Worker};

/// A thread's seat. Its owners are counted within the thread, so that a wait and its packets keep
/// it at little cost.
pub(crate) struct CurrentWorker {
    engine: Weak<Engine>,
    worker: Arc<Worker>,
    has_left: Cell<bool>,
    /// How far the seat had come when a call ended in which every change was refused.
    told_at: Cell<Option<u32>>,
}

impl CurrentWorker {
    fn new(engine: &Arc<Engine>) -> Rc<Self> {
        Rc::new(Self {
            engine: Arc::downgrade(engine),
            worker: engine.join(),
            has_left: Cell::new(false),
            told_at: Cell::new(None),
        })
    }

    /// Whether the seat is at the port of `engine`. No other port has that address as long as this
    /// value lives.
    fn is_at(&self, engine: &Engine) -> bool {
        std::ptr::eq(self.engine.as_ptr(), engine)
    }

    /// Whether a call in which every change was refused returns at once, so that the thread sees
    /// the refusal. It does not if the thread's last wait was in such a call too and brought no
    /// packet: otherwise a thread that hands in the same changes again and again would spin.
    pub(crate) fn traces_refusals(&self) -> bool {
        self.told_at.get() != Some(self.worker.progress())
    }

    /// Such a call has ended. The thread goes on with its next wait or packet.
    pub(crate) fn has_heard_of_refusal(&self) {
        self.told_at.set(Some(self.worker.progress()));
    }

    /// Gives the seat up, unless that has happened. The port does so itself when it is dropped.
    fn leave(&self) {
        if !self.has_left.replace(true)
            && let Some(engine) = self.engine.upgrade()
            && !engine.forked()
        {
            engine.leave(&self.worker);
        }
    }
}

impl Deref for CurrentWorker {
    type Target = Worker;
    fn deref(&self) -> &Worker {
        &self.worker
    }
}

impl Drop for CurrentWorker {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The seat that a thread has. Dropping this gives the seat up, also if the packets of a wait still
/// exist or were forgotten.
struct WorkerGuard(Rc<CurrentWorker>);

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        self.0.leave();
    }
}

thread_local! {
    /// The port that the thread waited on last; a thread runs packets of one port at a time.
    static CURRENT: RefCell<Option<WorkerGuard>> = const { RefCell::new(None) };
}

/// The seat of the calling thread on the port of `engine`, which it is about to wait on. A seat on
/// another port is given up: the thread runs there no longer.
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
        // The thread's local values are gone already: it waits in the destructor of one of them.
        // The seat is for this wait only.
        Err(_) => CurrentWorker::new(engine),
    }
}

/// Takes a seat on a port where the calling thread has none. The seat that it has on another port
/// is given up.
#[cold]
fn change_workers(engine: &Arc<Engine>) -> Rc<CurrentWorker> {
    let current_worker = CurrentWorker::new(engine);
    let mine = WorkerGuard(Rc::clone(&current_worker));
    // The former seat is dropped after the borrow.
    drop(CURRENT.try_with(|current| current.replace(Some(mine))));
    current_worker
}

/// Calls `action` with the seat of the calling thread, as [`current_worker`] gives it. The action calls no code of a
/// program's, and comes to no wait.
#[inline]
pub(crate) fn with_current_worker<R>(
    engine: &Engine,
    action: impl FnOnce(Option<&Worker>) -> R,
) -> R {
    let mut action = Some(action);
    let mut act = |worker: Option<&Worker>| action.take().map(|action| action(worker));
    let done = CURRENT.try_with(|current| {
        let current = current.borrow();
        let current_worker = current.as_ref().map(|WorkerGuard(current_worker)| current_worker);
        act(current_worker.filter(|it| it.is_at(engine)).map(|it| &*it.worker))
    });
    // The thread's local values are gone already.
    done.ok().flatten().or_else(|| act(None)).expect("it is called once")
}

/// The seat of the calling thread on the port of `engine`, if that is the port it waited on last.
pub(crate) fn current_worker(engine: &Engine) -> Option<Arc<Worker>> {
    let worker = CURRENT.try_with(|current| {
        let current = current.borrow();
        let WorkerGuard(current_worker) = current.as_ref()?;
        current_worker.is_at(engine).then(|| Arc::clone(&current_worker.worker))
    });
    worker.ok().flatten()
}
