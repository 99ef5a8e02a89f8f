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
//! | a socket or timer of tokio, in a task of this runtime | the task on this runtime's threads; tokio's driver reports readiness from one of tokio's threads | yes |
//! | `tokio::spawn`, and what crates spawn by it | tokio's workers | **no** |
//! | `tokio::task::spawn_blocking` | tokio's threads for that | yes |
//! | [`Handle::block_on`](crate::Handle::block_on) | the calling thread, in both contexts | yes |
//!
//! tokio has as many workers as the concurrency value, in addition to this runtime's threads. A task
//! of this runtime that waits for a socket of tokio is woken by another thread, which costs more
//! than a socket of [`net`](crate::net).
//!
//! # Who spawns?
//!
//! `axum::serve` and tonic's `Server` run their handlers in tasks that they spawn by `tokio::spawn`.
//! A handler that blocks there blocks a worker of tokio, and perhaps a task that it has woken just
//! before. When all workers are blocked, tokio's tasks, sockets and timers stop, also for tasks of
//! this runtime, until a handler returns. This runtime's own sockets and timers continue. There are
//! two ways to let handlers block:
//!
//! - Spawn the connections yourself: accept them in a task, and call
//!   `hyper_util::server::conn::auto::Builder::serve_connection` in a task that [`spawn`](crate::spawn)
//!   has started, with an axum `Router` as the service. For HTTP/2, give the builder an executor
//!   that calls [`spawn`](crate::spawn).
//! - Move the part that blocks: `completion_port_runtime::spawn(async { ... }).await` in the handler.
//!   tokio's threads are in the context of this runtime for that purpose.
//!
//! reqwest and sqlx spawn only their own tasks, which don't block.
//!
//! # Nesting
//!
//! `tokio::runtime::Handle::block_on` in a task of this runtime blocks the task, and other tasks
//! continue. [`Handle::block_on`](crate::Handle::block_on) in a task of tokio blocks its worker,
//! where tokio's own `block_on` panics. `tokio::task::block_in_place` in a task of this runtime only
//! calls the closure.
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
//! Without a given time, it waits forever for a task of tokio that blocks in
//! [`Handle::block_on`](crate::Handle::block_on) on tokio's own sockets or timers: tokio's driver no
//! longer runs then.
//!
//! In a forked child, the tokio runtime has no threads: it accepts tasks, and runs none.
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

use std::cell::Cell;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread;
use std::time::Instant;

use tokio::runtime;

use crate::context;
use crate::runtime::{Builder, Handle};
use crate::shared::Shared;

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
    /// `None` once it was shut down. tokio's threads keep this, so it is not dropped before.
    runtime: Mutex<Option<runtime::Runtime>>,
}

/// What the tokio runtime has in common with ours.
pub(crate) struct Settings {
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
        let mut builder = runtime::Builder::new_multi_thread();
        builder
            .worker_threads(settings.workers)
            .thread_name(format!("{}-tokio", settings.name))
            .on_thread_start(move || join(&weak))
            .enable_all();
        if let Some(bytes) = settings.stack_size {
            builder.thread_stack_size(bytes);
        }
        let runtime = builder.build()?;
        let handle = runtime.handle().clone();
        let started = Started { handle, runtime: Mutex::new(Some(runtime)) };
        // It is started once, before anyone else has `shared`.
        let _ = shared.tokio.0.set(started);
        Ok(())
    }

    /// Makes the tokio runtime the current one of the thread, until the guard is dropped.
    pub(crate) fn enter(&self) -> Option<runtime::EnterGuard<'_>> {
        self.0.get().map(|started| started.handle.enter())
    }

    /// Shuts the tokio runtime down, and waits for that until the deadline.
    pub(crate) fn end(&self, shared: &Shared, deadline: Option<Instant>) {
        let Some(started) = self.0.get() else { return };
        if OF_TOKIO.try_with(|it| std::ptr::eq(it.get(), shared)).unwrap_or(true) {
            // A thread of tokio cannot wait for itself.
            return started.end_in_background();
        }
        let end = || match (started.take(), deadline) {
            (None, _) => {}
            (Some(runtime), None) => drop(runtime),
            (Some(runtime), Some(deadline)) => {
                runtime.shutdown_timeout(deadline.saturating_duration_since(Instant::now()));
            }
        };
        // tokio panics if a task of any tokio runtime waits for this, so another thread does.
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("runtime-tokio-end".to_owned());
            match thread.spawn_scoped(scope, end) {
                Ok(thread) => drop(thread.join()),
                Err(_) => started.end_in_background(),
            }
        });
    }
}

impl Started {
    fn take(&self) -> Option<runtime::Runtime> {
        self.runtime.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn end_in_background(&self) {
        self.take().map(runtime::Runtime::shutdown_background).unwrap_or_default();
    }
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
    /// [`Builder::build`] fails if the system refuses what tokio's driver needs. If the system refuses
    /// the first of tokio's threads, tokio panics; if it refuses a later one, `build` may never return.
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
