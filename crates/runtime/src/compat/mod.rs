//! A tokio runtime as well, for crates that need one (feature `tokio-compat`).
//!
//! Crates such as axum, reqwest, sqlx and tonic call tokio's own `net`, `time` and `spawn`, which
//! panic outside of a tokio runtime. [`Builder::tokio_compat`](crate::Builder::tokio_compat) starts
//! one, and every task of this runtime is polled, and dropped, in its context. So these crates run
//! unmodified in tasks of this runtime.
//!
//! # What is ours, and what is tokio's?
//!
//! | call | runs on | may block |
//! |---|---|---|
//! | [`spawn`](crate::spawn), [`spawn_blocking`](crate::spawn_blocking) | this runtime's threads | yes |
//! | a socket or timer of tokio, in a task of this runtime | the task on this runtime's threads; tokio's driver reports readiness from a worker of tokio or, without workers, from one of this runtime's threads | yes |
//! | `tokio::spawn`, and what crates spawn by it | tokio's workers or, without workers, one of this runtime's threads | **no** |
//! | `tokio::task::spawn_blocking` | tokio's threads for that | yes |
//! | [`Handle::block_on`](crate::Handle::block_on) | the calling thread, in both contexts | yes |
//!
//! # Workers of tokio, or none?
//!
//! By default, tokio has as many workers as the concurrency value, in addition to this runtime's
//! threads. That suits programs whose tasks are tokio's, such as `axum::serve`. A task of this
//! runtime that waits for a socket of tokio is then woken by another thread, which costs more than a
//! socket of [`net`](crate::net).
//!
//! With [`Builder::tokio_workers(0)`](crate::Builder::tokio_workers), tokio has no workers. A thread
//! of this runtime waits in tokio's driver, and runs the tasks of this runtime that it wakes. That
//! suits programs whose tasks are this runtime's: a service with axum, whose connections are such
//! tasks, needs three quarters of the CPU that it needs with workers. The differences:
//!
//! - Tasks of tokio run one at a time, on the thread that is in the driver, in addition to the
//!   threads that the concurrency value allows. While one blocks or computes, tokio's tasks, sockets
//!   and timers stop. `tokio::task::block_in_place` panics there, and the flavour of tokio's runtime is
//!   `CurrentThread`.
//! - One more thread may exist than [`Builder::thread_limit`](crate::Builder::thread_limit) says, and
//!   [`Metrics::thread_limit`](crate::Metrics::thread_limit) includes it.
//!   [`Metrics::tokio_threads`](crate::Metrics::tokio_threads) is 1 while a thread is in the driver.
//! - A task of this runtime that computes may delay tokio's sockets and timers, as it delays this
//!   runtime's own, until another thread takes over its thread's queue. One that blocks doesn't,
//!   unless all threads are blocked at the same time.
//! - A waker that panics in tokio's driver ends tokio's tasks, sockets and timers. Anything that
//!   waits for them then waits forever. The wakers of this runtime's tasks never panic.
//!
//! # Who spawns?
//!
//! `axum::serve` and tonic's `Server` run their handlers in tasks that they spawn by `tokio::spawn`.
//! A handler that blocks there blocks a worker of tokio, and perhaps a task that it has woken just
//! before. When all workers are blocked (without workers, the thread in the driver), tokio's tasks,
//! sockets and timers stop, also for tasks of this runtime, until a handler returns. This runtime's
//! own sockets and timers continue. There are two ways to let handlers block:
//!
//! - Spawn the connections yourself: accept them in a task, and call
//!   `hyper_util::server::conn::auto::Builder::serve_connection` in a task that [`spawn`](crate::spawn)
//!   has started, with an axum `Router` as the service. For HTTP/2, give the builder an executor
//!   that calls [`spawn`](crate::spawn).
//! - Move the part that blocks: `completion_port_runtime::spawn(async { ... }).await` in the handler.
//!   tokio's tasks are in the context of this runtime for that purpose.
//!
//! reqwest and sqlx spawn only their own tasks, which don't block.
//!
//! # Nesting
//!
//! `tokio::runtime::Handle::block_on` in a task of this runtime blocks the task, and other tasks
//! continue. [`Handle::block_on`](crate::Handle::block_on) in a task of tokio blocks its worker or,
//! without workers, the thread in the driver. tokio's own `block_on` panics there. A future that awaits
//! `tokio::task::yield_now` there, or a local task that does much, never continues, because tokio
//! continues it after the task.
//! `tokio::task::block_in_place` in a task of this runtime only calls the closure.
//!
//! # Contexts
//!
//! Both contexts exist in tasks, in `spawn_blocking` and in [`Handle::block_on`](crate::Handle::block_on)
//! of this runtime, and on all threads of the tokio runtime. A guard of
//! [`Handle::enter`](crate::Handle::enter) enters only this runtime;
//! [`Handle::tokio`](crate::Handle::tokio) returns the handle that enters tokio's.
//!
//! # Ending
//!
//! [`Runtime::shutdown`](crate::Runtime::shutdown) first ends the tasks of this runtime, as
//! documented there. Their destructors can still use tokio. Then it shuts tokio down: tokio drops
//! its tasks at their next await, whether or not this runtime's were drained, and waits for the
//! closures of its `spawn_blocking`. All that takes at most the given time. Its result is about this
//! runtime's tasks only. In a task of the tokio runtime itself it doesn't wait for tokio. It never
//! panics, unlike the drop of a tokio runtime in an async context.
//!
//! Without a given time, it waits forever for a task of tokio, or its destructor, that blocks in
//! [`Handle::block_on`](crate::Handle::block_on) on tokio's own sockets or timers: tokio's driver no
//! longer runs then.
//!
//! Without workers, tokio is polled until this runtime's tasks have ended, or the given time has
//! passed; destructors that run later find that tokio has ended. A runtime that is dropped in a task
//! of the tokio runtime that it has started doesn't wait for its tasks, as when it is dropped in one
//! of these. [`Runtime::shutdown`](crate::Runtime::shutdown) in a task of tokio does wait for them,
//! although no thread polls tokio meanwhile: give it a time if they may be waiting for tokio.
//!
//! In a forked child, the tokio runtime has no threads: it accepts tasks, and runs none. A child that
//! a task of tokio has forked must not return from that task: as on tokio alone, it would take events
//! of its parent.
//!
//! # Examples
//!
//! ```
//! use completion_port_runtime::{Runtime, spawn};
//! use std::time::Duration;
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! let runtime = Runtime::builder().tokio_compat().build()?;
//! runtime.block_on(async {
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//!     let address = listener.local_addr()?;
//!     let server = spawn(async move {
//!         let (mut stream, _) = listener.accept().await?;
//!         std::thread::sleep(Duration::from_millis(1)); // harmless in this runtime's task
//!         stream.write_all(b"hello").await
//!     });
//!     let mut client = tokio::net::TcpStream::connect(address).await?;
//!     let mut greeting = [0; 5];
//!     tokio::time::timeout(Duration::from_secs(60), client.read_exact(&mut greeting)).await??;
//!     assert_eq!(&greeting, b"hello");
//!     server.await?
//! })?;
//! # Ok::<(), std::io::Error>(())
//! ```

pub(crate) mod driver;

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak, mpsc};
use std::task::Waker;
use std::thread;
use std::time::Instant;

use tokio::runtime;

use crate::activity;
use crate::context;
use crate::runtime::{Builder, Handle};
use crate::shared::{Message, Shared};
use crate::state::{contain, replace_waker};
use driver::Turn;

thread_local! {
    /// The runtime whose tokio runtime the thread belongs to, by address.
    static OF_TOKIO: Cell<*const Shared> = const { Cell::new(std::ptr::null()) };
}

/// A tokio runtime, if the builder has asked for one.
#[derive(Debug, Default)]
pub(crate) struct Tokio(OnceLock<Started>);

#[derive(Debug)]
struct Started {
    handle: runtime::Handle,
    state: Mutex<State>,
    /// Whether threads of ours poll it.
    is_driven: bool,
    /// The number of the thread that polls it. 0: none.
    thread: AtomicU64,
}

#[derive(Debug)]
struct State {
    /// `None` while a thread of ours polls it, and once it was shut down. tokio's threads, and ours,
    /// keep this, so it is not dropped before.
    runtime: Option<Box<runtime::Runtime>>,
    /// Wakes the thread that polls it.
    root: Option<Waker>,
    /// It is shut down, by the thread that polls it if there is one.
    has_ended: bool,
}

/// What the tokio runtime has in common with ours.
pub(crate) struct Settings {
    /// 0: threads of ours poll it.
    pub(crate) workers: usize,
    pub(crate) name: String,
    pub(crate) stack_size: Option<usize>,
}

impl Tokio {
    /// Starts the tokio runtime of `shared`, which has no threads yet.
    ///
    /// tokio's threads keep `shared` until [`Tokio::end`].
    pub(crate) fn start(shared: &Arc<Shared>, settings: Settings) -> io::Result<()> {
        let weak = Arc::downgrade(shared);
        let is_driven = settings.workers == 0;
        let mut builder = if is_driven {
            runtime::Builder::new_current_thread()
        } else {
            let mut builder = runtime::Builder::new_multi_thread();
            builder.worker_threads(settings.workers);
            builder
        };
        builder
            .thread_name(format!("{}-tokio", settings.name))
            .on_thread_start(move || join(&weak))
            .enable_all();
        if is_driven {
            builder.on_thread_park(context::enter_driver).on_thread_unpark(context::leave_driver);
        }
        if let Some(bytes) = settings.stack_size {
            builder.thread_stack_size(bytes);
        }
        let runtime = builder.build()?;
        let handle = runtime.handle().clone();
        let state = State { runtime: Some(Box::new(runtime)), root: None, has_ended: false };
        let state = Mutex::new(state);
        let started = Started { handle, state, is_driven, thread: AtomicU64::new(0) };
        // It is started once, before anyone else has `shared`.
        let _ = shared.tokio.0.set(started);
        if is_driven {
            shared
                .port
                .post(Message::Drive(Turn::new()))
                .map_err(|refused| refused.into_parts().0)?;
        }
        Ok(())
    }

    pub(crate) fn is_driven(&self) -> bool {
        self.0.get().is_some_and(|started| started.is_driven)
    }

    /// Returns the number of the thread of ours that is polling it.
    pub(crate) fn polling_thread(&self) -> Option<u64> {
        // Relaxed: it is for descriptions, and for a shutdown, which also waits for the thread's end.
        let number = self.0.get()?.thread.load(Relaxed);
        (number != 0).then_some(number)
    }

    /// Returns the runtime for a thread that begins to poll it, until [`Tokio::end_turn`]. `None` if
    /// it was shut down.
    fn begin_turn(&self) -> Option<Box<runtime::Runtime>> {
        let started = self.0.get()?;
        let runtime = started.lock().runtime.take()?;
        started.thread.store(activity::thread(), Relaxed);
        Some(runtime)
    }

    /// Returns it, or shuts it down if that was asked for meanwhile. Returns whether it still exists.
    fn end_turn(&self, runtime: Box<runtime::Runtime>) -> bool {
        let Some(started) = self.0.get() else { return false };
        let mut state = started.lock();
        started.thread.store(0, Relaxed);
        if state.has_ended {
            drop(state);
            // A waker or a destructor may panic.
            contain(|| runtime.shutdown_background());
            return false;
        }
        state.runtime = Some(runtime);
        true
    }

    /// Stores how to wake the thread that is about to wait in the driver. Returns whether it may.
    fn may_wait(&self, shared: &Shared, root: &Waker) -> bool {
        let Some(started) = self.0.get() else { return false };
        let mut state = started.lock();
        let old = replace_waker(&mut state.root, root);
        // The end closes the port before it takes the lock, to wake the thread.
        let may_wait = !shared.is_closed();
        drop(state);
        drop(old);
        may_wait
    }

    /// Wakes the thread that is in the driver, after the port was closed.
    pub(crate) fn wake_driver(&self) {
        let Some(started) = self.0.get() else { return };
        let root = started.lock().root.take();
        root.map(Waker::wake).unwrap_or_default();
    }

    /// Makes the tokio runtime the current one of the thread, until the guard is dropped.
    pub(crate) fn enter(&self) -> Option<runtime::EnterGuard<'_>> {
        self.0.get().map(|started| started.handle.enter())
    }

    /// Shuts the tokio runtime down, and waits for that until the deadline.
    pub(crate) fn end(&self, shared: &Arc<Shared>, deadline: Option<Instant>) {
        let Some(started) = self.0.get() else { return };
        // If a thread is polling it, that one shuts it down.
        let Some(runtime) = started.take() else { return };
        if OF_TOKIO.try_with(|it| std::ptr::eq(it.get(), Arc::as_ptr(shared))).unwrap_or(true) {
            // A thread of tokio cannot wait for itself.
            contain(|| runtime.shutdown_background());
            return;
        }
        // tokio panics if a task of any tokio runtime waits for this, so another thread does.
        let given = Arc::new(Mutex::new(Some(runtime)));
        let taken = Arc::clone(&given);
        let (ends, has_ended) = mpsc::channel::<()>();
        let handle = Handle::of(Arc::clone(shared));
        let end = move || {
            let _ends = ends;
            // As tokio's tasks, whose destructors run here.
            let _entered = context::enter(handle);
            match (lock(&taken).take(), deadline) {
                (None, _) => {}
                (Some(runtime), None) => drop(runtime),
                (Some(runtime), Some(deadline)) => {
                    runtime.shutdown_timeout(deadline.saturating_duration_since(Instant::now()));
                }
            }
        };
        match (thread::Builder::new().name("runtime-tokio-end".to_owned()).spawn(end), deadline) {
            // Without workers, this thread also drops tokio's tasks, and their destructors may block.
            (Ok(_), Some(deadline)) if started.is_driven => {
                let left = deadline.saturating_duration_since(Instant::now());
                let _ = has_ended.recv_timeout(left);
            }
            (Ok(thread), _) => drop(thread.join()),
            (Err(_), _) => {
                let runtime = lock(&given).take();
                let _entered = context::enter(Handle::of(Arc::clone(shared)));
                contain(|| {
                    runtime.map(|runtime| runtime.shutdown_background()).unwrap_or_default()
                });
            }
        }
    }
}

impl Started {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Takes it to be shut down, unless a thread of ours is polling it.
    fn take(&self) -> Option<Box<runtime::Runtime>> {
        let mut state = self.lock();
        state.has_ended = true;
        state.runtime.take()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes our runtime the current one of a thread of tokio, for the rest of the thread's life.
fn join(shared: &Weak<Shared>) {
    let Some(shared) = shared.upgrade() else { return };
    OF_TOKIO.set(Arc::as_ptr(&shared));
    std::mem::forget(context::enter(Handle::of(shared)));
}

impl Builder {
    /// Starts a tokio runtime too, and runs all tasks in its context. See [`compat`](crate::compat)
    /// for what runs where.
    ///
    /// [`tokio_workers`](Self::tokio_workers) sets who polls its sockets and timers.
    ///
    /// [`Builder::build`] fails if the system refuses what tokio's driver needs. With workers: if the
    /// system refuses the first of them, tokio panics. If it refuses a later one, `build` may never
    /// return.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, spawn};
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().concurrency(2).tokio_compat().build()?;
    /// let answer = runtime.block_on(async {
    ///     // A timer of tokio, in a task of this runtime.
    ///     spawn(async {
    ///         tokio::time::sleep(Duration::from_millis(1)).await;
    ///         42
    ///     })
    ///     .await
    /// });
    /// assert_eq!(answer.unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn tokio_compat(mut self) -> Self {
        self.has_tokio = true;
        self
    }

    /// Sets how many workers tokio has: by default as many as the concurrency value. With 0, threads
    /// of this runtime poll tokio's sockets and timers, and run the tasks of `tokio::spawn`, one at a
    /// time. See [`compat`](crate::compat#workers-of-tokio-or-none) for the difference.
    ///
    /// It has no effect without [`tokio_compat`](Self::tokio_compat).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, spawn};
    /// use std::time::Duration;
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    ///
    /// let runtime = Runtime::builder().concurrency(1).tokio_compat().tokio_workers(0).build()?;
    /// runtime.block_on(async {
    ///     let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    ///     let address = listener.local_addr()?;
    ///     let server = spawn(async move {
    ///         let (mut stream, _) = listener.accept().await?;
    ///         // Another thread polls tokio meanwhile.
    ///         std::thread::sleep(Duration::from_millis(5));
    ///         stream.write_all(b"hello").await
    ///     });
    ///     let mut client = tokio::net::TcpStream::connect(address).await?;
    ///     let mut greeting = [0; 5];
    ///     client.read_exact(&mut greeting).await?;
    ///     assert_eq!(&greeting, b"hello");
    ///     server.await?
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn tokio_workers(mut self, workers: usize) -> Self {
        self.tokio_workers = Some(workers);
        self
    }
}

impl Handle {
    /// Returns the handle of the tokio runtime that [`Builder::tokio_compat`] has started.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let runtime = Runtime::builder().tokio_compat().build()?;
    /// let on_tokio = runtime.handle().tokio().expect("it was asked for").spawn(async { 42 });
    /// assert_eq!(runtime.block_on(on_tokio)?, 42);
    /// assert!(Runtime::new()?.handle().tokio().is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn tokio(&self) -> Option<&runtime::Handle> {
        self.shared().tokio.0.get().map(|started| &started.handle)
    }
}
