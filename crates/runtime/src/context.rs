//! The runtimes of the current thread, and where the tasks go that it wakes.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

#[cfg(feature = "tokio-compat")]
use crate::compat::driver;
use crate::runtime::Handle;
use crate::shared::Shared;
use crate::task::Runnable;

/// Where the tasks go that this thread wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// To the front of the thread's packets: a task is being polled.
    Next,
    /// The first one into [`NEXT`]: a packet is being handled, and no task is polled.
    Collected,
    /// To the queue: the thread runs tokio's scheduler, and perhaps a task of tokio that waits for
    /// this one. Or code of the program, which a waker has called, waits on this thread.
    Queued,
    /// All to [`driver::collect`]: the thread waits in tokio's driver.
    #[cfg(feature = "tokio-compat")]
    Driver,
}

thread_local! {
    /// The runtimes that the thread has entered, innermost last.
    static ENTERED: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
    /// The runtime whose pool the thread belongs to, until it leaves the pool.
    static POOL: RefCell<Option<Arc<Shared>>> = const { RefCell::new(None) };
    /// The address of that runtime, until the thread has ended: a value that is dropped then may be
    /// a runtime, which must not wait for this thread.
    static POOL_ADDRESS: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
    static WOKEN: Cell<Woken> = const { Cell::new(Woken::Next) };
    static NEXT: Cell<Option<Runnable>> = const { Cell::new(None) };
}

/// Returns the innermost runtime that the thread has entered.
pub(crate) fn current() -> Option<Handle> {
    with_current(Handle::clone)
}

/// Calls `f` with the innermost runtime that the thread has entered, if there is one. `f` must not
/// run the program's code, which may enter another one.
pub(crate) fn with_current<T>(f: impl FnOnce(&Handle) -> T) -> Option<T> {
    ENTERED.try_with(|entered| entered.borrow().last().map(f)).ok().flatten()
}

/// While this exists, the thread is in the context of a runtime.
///
/// [`Handle::enter`] returns it. Guards of one thread may be dropped in any order. One that outlives
/// an outer guard has no effect any more.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Handle, Runtime, spawn};
///
/// let (outer, inner) = (Runtime::new()?, Runtime::new()?);
/// let in_outer = outer.handle().enter();
/// let in_inner = inner.handle().enter();
/// let task = spawn(async {}); // on the innermost one
/// assert_eq!((outer.handle().metrics().spawned, inner.handle().metrics().spawned), (0, 1));
/// drop(in_inner);
/// drop(in_outer);
/// assert!(Handle::try_current().is_none());
/// # drop(task);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping it leaves the runtime"]
pub struct Entered {
    depth: usize,
    /// The guards of a thread are dropped on that thread.
    _thread: std::marker::PhantomData<*const ()>,
}

pub(crate) fn enter(handle: Handle) -> Entered {
    let depth = ENTERED.with_borrow_mut(|entered| {
        entered.push(handle);
        entered.len()
    });
    Entered { depth, _thread: std::marker::PhantomData }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // Guards that were dropped out of order leave their runtime when an outer one does.
        let left = ENTERED.try_with(|entered| {
            let mut entered = entered.borrow_mut();
            let kept = entered.len().min(self.depth - 1);
            entered.split_off(kept)
        });
        drop(left);
    }
}

/// While this exists, the thread belongs to a pool.
pub(crate) struct InPool(());

impl Drop for InPool {
    fn drop(&mut self) {
        let left = POOL.take();
        drop(left);
    }
}

/// Makes the current thread one of the pool of `shared`.
pub(crate) fn join_pool(shared: &Arc<Shared>) -> InPool {
    POOL_ADDRESS.set(Arc::as_ptr(shared));
    POOL.set(Some(Arc::clone(shared)));
    InPool(())
}

/// Calls `f` with the runtime whose pool the current thread belongs to, if there is one. `f` must
/// not leave the pool.
pub(crate) fn with_pool<T>(f: impl FnOnce(&Shared) -> T) -> Option<T> {
    POOL.try_with(|pool| pool.borrow().as_deref().map(f)).ok().flatten()
}

/// Returns whether the current thread belongs to the pool of `shared`.
pub(crate) fn is_in_pool(shared: &Shared) -> bool {
    std::ptr::eq(POOL_ADDRESS.get(), shared)
}

/// Decides about a task that the current thread has woken. Returns it unless it was collected; and
/// whether it goes first, or to the end of the queue.
pub(crate) fn accept_woken(shared: &Shared, runnable: Runnable) -> Option<(Runnable, bool)> {
    if !is_in_pool(shared) {
        return Some((runnable, false));
    }
    match WOKEN.get() {
        Woken::Next => Some((runnable, true)),
        Woken::Queued => Some((runnable, false)),
        #[cfg(feature = "tokio-compat")]
        Woken::Driver => {
            driver::collect(runnable);
            None
        }
        Woken::Collected => match NEXT.take() {
            None => {
                NEXT.set(Some(runnable));
                None
            }
            first => {
                NEXT.set(first);
                Some((runnable, false))
            }
        },
    }
}

/// Restores where the tasks go that the thread wakes.
struct Restore(Woken);

impl Drop for Restore {
    fn drop(&mut self) {
        WOKEN.set(self.0);
    }
}

/// Calls `f`, which runs tokio's scheduler. It calls [`enter_driver`] and [`leave_driver`].
#[cfg(feature = "tokio-compat")]
pub(crate) fn in_scheduler(f: impl FnOnce()) {
    let _restore = Restore(WOKEN.replace(Woken::Queued));
    f();
}

/// Notes that the thread waits in tokio's driver, where no code of the program runs but wakers.
#[cfg(feature = "tokio-compat")]
pub(crate) fn enter_driver() {
    WOKEN.set(Woken::Driver);
}

/// If the thread waits in tokio's driver, notes that tasks which it wakes there from now on are queued.
/// Returns whether it does.
#[cfg(feature = "tokio-compat")]
pub(crate) fn leave_driver_early() -> bool {
    let is_driver = WOKEN.get() == Woken::Driver;
    if is_driver {
        WOKEN.set(Woken::Queued);
    }
    is_driver
}

/// Notes that the thread has left tokio's driver.
#[cfg(feature = "tokio-compat")]
pub(crate) fn leave_driver() {
    WOKEN.set(Woken::Queued);
}

/// Calls `f`, and returns the first task of the current runtime that it wakes.
pub(crate) fn collect_woken(f: impl FnOnce()) -> Option<Runnable> {
    let restore = Restore(WOKEN.replace(Woken::Collected));
    f();
    drop(restore);
    NEXT.take()
}

/// Collects no more tasks until the end of [`collect_woken`], if the thread is in it. Returns the one
/// that was collected before.
pub(crate) fn stop_collecting() -> Option<Runnable> {
    if WOKEN.get() != Woken::Collected {
        return None;
    }
    WOKEN.set(Woken::Queued);
    NEXT.take()
}

/// Returns the task that was collected before a panic.
pub(crate) fn take_collected() -> Option<Runnable> {
    NEXT.take()
}
