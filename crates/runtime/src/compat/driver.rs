//! tokio's driver, polled by threads of this runtime ([`Builder::tokio_workers`] with 0).
//!
//! tokio's driver waits for sockets and timers in the `block_on` of a runtime without workers, which
//! also runs what was spawned by `tokio::spawn`. A thread of the pool calls it, and leaves it as
//! soon as the driver has woken tasks of this runtime. It queues all but the first of them after its
//! own packets, followed by the [`Turn`], for itself or the next thread. Then it runs the first one.
//! So an event costs neither a message to another thread nor a wake. A task that sleeps delays no
//! other: the port hands the thread's queue to another thread.
//!
//! # One turn
//!
//! There is exactly one [`Turn`] for each runtime. It is in a message in the port, or a thread of
//! the pool has it, in [`drive`]. That thread queues it again, whatever the wakers and tasks have
//! done in between. If the port has no memory for the message, it keeps it and drives again. It
//! drops it in two cases: the port was closed, or a waker has panicked in tokio's driver, which tokio
//! then drops.
//!
//! # The end
//!
//! The thread leaves the driver once the port is closed, and drives no more. Closing wakes it with
//! the waker of its `block_on`. The thread stores that waker, and checks whether the port is closed,
//! under the same lock, so no wake is lost.
//!
//! [`Builder::tokio_workers`]: crate::Builder::tokio_workers

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

use tokio::runtime::Runtime;

use crate::context;
use crate::shared::{Shared, run};
use crate::state::{contain, replace_waker};
use crate::task::Runnable;

/// The right to poll the driver of a runtime, of which there is one.
#[derive(Debug)]
pub(crate) struct Turn(());

impl Turn {
    /// Makes the only one of a runtime.
    pub(super) fn new() -> Self {
        Self(())
    }
}

thread_local! {
    /// The tasks that the driver has woken in this turn.
    static TASKS: RefCell<Vec<Runnable>> = const { RefCell::new(Vec::new()) };
    /// Wakes the future that this thread runs in tokio's `block_on`.
    static ROOT: RefCell<Option<Waker>> = const { RefCell::new(None) };
    static DRIVES: Cell<bool> = const { Cell::new(false) };
}

/// Returns whether the current thread is in the driver, or in a task of tokio that it runs there.
pub(crate) fn is_driving() -> bool {
    DRIVES.get()
}

/// Keeps a task that the driver has woken, and makes the thread leave it.
pub(crate) fn collect(task: Runnable) {
    let is_first = TASKS.with_borrow_mut(|tasks| {
        tasks.push(task);
        tasks.len() == 1
    });
    if is_first {
        ROOT.with_borrow(|root| root.as_ref().map(Waker::wake_by_ref));
    }
}

/// Queues what the driver has woken so far, for other threads: code of the program, which a waker
/// calls, is about to wait on this thread.
pub(crate) fn release(shared: &Shared) {
    if context::leave_driver_early() {
        TASKS.take().into_iter().for_each(|task| shared.post(task));
    }
}

/// Polls tokio, on a thread of the pool, until its driver has woken tasks of this runtime. Runs the
/// first of them, and queues the others and the turn. See the module's documentation.
pub(crate) fn drive(shared: &Shared, mut turn: Turn) {
    loop {
        let may_drive = poll(shared);
        let mut tasks = TASKS.take();
        let mut woken = tasks.drain(..);
        let first = woken.next();
        woken.for_each(|task| shared.post_behind(task));
        TASKS.set(tasks);
        let back = if may_drive { shared.post_turn(turn) } else { None };
        match back {
            // If this task blocks, another thread takes over the turn.
            None => return first.into_iter().for_each(run),
            // The port has no memory for it, so this thread may not run tasks.
            Some(back) => turn = back,
        }
        first.into_iter().for_each(|task| shared.post(task));
    }
}

/// Polls tokio once. Returns whether it may be polled again.
fn poll(shared: &Shared) -> bool {
    let Some(runtime) = shared.tokio.begin_turn() else { return false };
    let is_inside = Cell::new(false);
    let has_returned = contain(|| {
        shared.port.blocking(|| {
            is_inside.set(true);
            DRIVES.set(true);
            context::in_scheduler(|| run_tokio(shared, &runtime));
            is_inside.set(false);
        });
    });
    DRIVES.set(false);
    // After a panic in it, tokio has no driver any more, and would panic again.
    shared.tokio.end_turn(runtime) && (has_returned || !is_inside.get())
}

/// Runs tokio's scheduler on this thread until its driver has woken a task of ours, or the port is
/// closed.
fn run_tokio(shared: &Shared, runtime: &Runtime) {
    runtime.block_on(poll_fn(|context| {
        if TASKS.with_borrow(|tasks| !tasks.is_empty()) {
            return Poll::Ready(());
        }
        let old = ROOT.with_borrow_mut(|root| replace_waker(root, context.waker()));
        drop(old);
        if shared.tokio.may_wait(shared, context.waker()) { Poll::Pending } else { Poll::Ready(()) }
    }));
}
