//! The runtime: how it is built, used and shut down.

use std::fmt;
use std::future::Future;
use std::io;
use std::panic::Location;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use completion_port::{BlockDetection, Port, PortBuilder, QueueDelays};

use crate::block_on;
use crate::context::{self, Entered};
use crate::dump::{Dump, Metrics};
use crate::fork;
use crate::pool::{Pool, PoolConfig};
use crate::shared::{RuntimePort, Shared};
use crate::sync;
use crate::task::{self, JoinHandle};

/// How many threads may exist, unless the builder says otherwise.
const LIMIT: usize = 512;

/// After this time, more threads run if all running ones compute.
const COMPUTING: Duration = Duration::from_millis(10);

/// The settings of a [`Runtime`].
///
/// # Examples
///
/// ```
/// use completion_port_runtime::Runtime;
///
/// let runtime = Runtime::builder().concurrency(2).thread_name("server").build()?;
/// assert_eq!(runtime.block_on(async { 6 * 7 }), 42);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct Builder {
    port: PortBuilder,
    concurrency: usize,
    limit: usize,
    name: String,
    stack_size: Option<usize>,
    block_detection: BlockDetection,
    computing: Option<Duration>,
    #[cfg(feature = "tokio-compat")]
    pub(crate) has_tokio: bool,
    #[cfg(feature = "tokio-compat")]
    pub(crate) tokio_workers: Option<usize>,
}

impl Builder {
    /// Sets how many threads may run tasks simultaneously. 0, the default, means the number of
    /// processors that the process may use ([`std::thread::available_parallelism`]).
    ///
    /// A task that sleeps in the kernel does not count, once the runtime has detected it.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    /// use std::sync::mpsc;
    ///
    /// let runtime = Runtime::builder().concurrency(1).build()?;
    /// let (say, heard) = mpsc::channel();
    /// // It sleeps in the kernel and no longer counts, so the second task runs.
    /// let sleeps = runtime.spawn(async move { heard.recv() });
    /// runtime.block_on(runtime.spawn(async move { say.send(7) })).unwrap().unwrap();
    /// assert_eq!(runtime.block_on(sleeps).unwrap(), Ok(7));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn concurrency(mut self, threads: usize) -> Self {
        self.concurrency = threads;
        self
    }

    /// Sets how many threads may exist, 512 by default.
    ///
    /// If as many tasks block at the same time, no other task runs until one of them continues.
    /// [`Metrics::stalls`] counts that. One more may exist if the threads also poll tokio (feature
    /// `tokio-compat`).
    ///
    /// # Panics
    ///
    /// If `threads` is less than 2.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let runtime = Runtime::builder().thread_limit(8).build()?;
    /// let metrics = runtime.handle().metrics();
    /// assert_eq!(metrics.thread_limit, 8);
    /// assert!(metrics.threads <= 8);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn thread_limit(mut self, threads: usize) -> Self {
        assert!(threads >= 2, "a runtime needs a thread that runs tasks, and one that waits");
        self.limit = threads;
        self
    }

    /// Sets the name of the threads, `runtime` by default.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let runtime = Runtime::builder().thread_name("server").build()?;
    /// let name = runtime.spawn(async { std::thread::current().name().map(str::to_owned) });
    /// assert_eq!(runtime.block_on(name).unwrap().as_deref(), Some("server"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets how much memory the stack of each thread may use, in bytes. By default, the standard
    /// library decides.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// fn descend(levels: usize) -> usize {
    ///     let frame = std::hint::black_box([levels; 512]);
    ///     if levels == 0 { 0 } else { 1 + descend(frame[0] - 1) }
    /// }
    ///
    /// // 1,000 frames take more than the 2 MiB that threads of the standard library have.
    /// let runtime = Runtime::builder().thread_stack_size(64 << 20).build()?;
    /// assert_eq!(runtime.block_on(runtime.spawn(async { descend(1_000) })).unwrap(), 1_000);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn thread_stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets how the runtime detects that a task sleeps. See
    /// [`PortBuilder::block_detection`](completion_port::PortBuilder::block_detection).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::BlockDetection;
    /// use completion_port_runtime::Runtime;
    ///
    /// // For a program that announces each call that blocks, by `spawn_blocking`.
    /// let runtime = Runtime::builder().block_detection(BlockDetection::Announced).build()?;
    /// assert_eq!(runtime.handle().metrics().block_detection, BlockDetection::Announced);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn block_detection(mut self, detection: BlockDetection) -> Self {
        self.block_detection = detection;
        self
    }

    /// Sets after which time more threads run than the concurrency value, if all running ones
    /// compute and other tasks wait: 10 ms by default, `None` for never. See
    /// [`PortBuilder::overcommit_after`](completion_port::PortBuilder::overcommit_after).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    /// use std::time::Duration;
    ///
    /// let time = Some(Duration::from_millis(2));
    /// let runtime = Runtime::builder().concurrency(1).overcommit_after(time).build()?;
    /// let stop = Arc::new(AtomicBool::new(false));
    /// let stops = Arc::clone(&stop);
    /// let computes = runtime.spawn(async move {
    ///     while !stop.load(Relaxed) {
    ///         std::hint::spin_loop();
    ///     }
    /// });
    /// // The only running thread computes. After two milliseconds another one runs this.
    /// runtime.block_on(runtime.spawn(async move { stops.store(true, Relaxed) })).unwrap();
    /// runtime.block_on(computes).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn overcommit_after(mut self, time: Option<Duration>) -> Self {
        self.computing = time;
        self
    }

    /// Builds the runtime's port from these settings. Use it for those that a runtime's builder
    /// lacks: how files are read, how the system reports ready sockets, whether queue delays are
    /// measured from the start.
    ///
    /// The other settings keep their meaning, in any order of the calls. The runtime's
    /// [`concurrency`](Self::concurrency) and [`block_detection`](Self::block_detection) replace
    /// those of `settings`, their defaults too. So does
    /// [`overcommit_after`](Self::overcommit_after), unless it is `None`. A hook
    /// ([`PortBuilder::on_no_idle`]) runs on the runtime's threads; these start others without it.
    ///
    /// [`build`](Self::build) fails if the system does not offer what `settings` demand.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{FileEngine, Port};
    /// use completion_port_runtime::{Runtime, fs};
    ///
    /// // Without io_uring, which many containers forbid.
    /// let settings = Port::builder().file_engine(FileEngine::Threads);
    /// let runtime = Runtime::builder().port(settings).concurrency(2).build()?;
    /// let manifest = runtime.block_on(fs::read("Cargo.toml"))?;
    /// assert!(manifest.starts_with(b"[package]"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn port(mut self, settings: PortBuilder) -> Self {
        self.port = settings;
        self
    }

    /// Starts the runtime's threads.
    ///
    /// After an error, nothing of the runtime stays.
    ///
    /// # Errors
    ///
    /// Those of [`PortBuilder::build`](completion_port::PortBuilder::build), or that of the system
    /// if it refuses the first thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let runtime = match Runtime::builder().concurrency(2).build() {
    ///     Ok(runtime) => runtime,
    ///     Err(error) => panic!("the system has no threads or descriptors left: {error}"),
    /// };
    /// assert!(runtime.handle().metrics().threads >= 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn build(self) -> io::Result<Runtime> {
        self.build_by(PortBuilder::build)
    }

    /// Starts the runtime's threads at the port that `build` makes of the settings.
    pub(crate) fn build_by(
        self,
        build: impl FnOnce(PortBuilder) -> completion_port::Result<RuntimePort>,
    ) -> io::Result<Runtime> {
        fork::watch();
        // One thread is in tokio's driver, in addition to the others.
        #[cfg(feature = "tokio-compat")]
        let polling = usize::from(self.has_tokio && self.tokio_workers == Some(0));
        #[cfg(not(feature = "tokio-compat"))]
        let polling = 0;
        #[cfg(feature = "tokio-compat")]
        let (has_tokio, workers) = (self.has_tokio, self.tokio_workers);
        let Self { port, concurrency, limit, name, stack_size, block_detection, computing, .. } =
            self;
        let mut port = port.concurrency(concurrency).block_detection(block_detection);
        if let Some(time) = computing {
            port = port.overcommit_after(time);
        }
        let running = match concurrency {
            0 => thread::available_parallelism().map_or(1, usize::from),
            given => given,
        };
        // One more waits while these run.
        let limit = limit.saturating_add(polling);
        let least = (running + 1 + polling).min(limit);
        #[cfg(feature = "tokio-compat")]
        let tokio = crate::compat::Settings {
            workers: workers.unwrap_or(running),
            name: name.clone(),
            stack_size,
        };
        let pool = Pool::new(PoolConfig { name, stack_size, limit, least });
        let shared = Arc::new(Shared::new(build(port)?, pool));
        #[cfg(feature = "tokio-compat")]
        if has_tokio {
            crate::compat::Tokio::start(&shared, tokio).inspect_err(|_| shared.end_tokio(None))?;
        }
        Pool::start(&shared).inspect_err(|_| shared.end_tokio(None))?;
        Ok(Runtime { handle: Handle(shared), has_ended: false })
    }
}

/// A pool of threads that runs tasks, in which tasks may block.
///
/// Dropping it aborts the tasks and waits until they have ended; in a task, it does not wait. See
/// [`Runtime::shutdown`].
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, spawn};
/// use std::time::Duration;
///
/// let runtime = Runtime::new()?;
/// let sum = runtime.block_on(async {
///     let tasks: Vec<_> = (0..100_u32)
///         .map(|number| {
///             spawn(async move {
///                 std::thread::sleep(Duration::from_millis(1)); // other tasks run meanwhile
///                 number
///             })
///         })
///         .collect();
///     let mut sum = 0;
///     for task in tasks {
///         sum += task.await.unwrap();
///     }
///     sum
/// });
/// assert_eq!(sum, 4950);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Runtime {
    handle: Handle,
    /// [`Runtime::shutdown`] was called.
    has_ended: bool,
}

/// What [`Runtime::shutdown`] does with tasks.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, Shutdown, time::sleep};
/// use std::time::Duration;
///
/// let runtime = Runtime::new()?;
/// let request = runtime.spawn(sleep(Duration::from_millis(5)));
/// assert!(runtime.shutdown(Shutdown::Drain, None));
/// assert!(request.is_finished());
///
/// let runtime = Runtime::new()?;
/// let endless = runtime.spawn(std::future::pending::<()>());
/// assert!(runtime.shutdown(Shutdown::Abort, None));
/// // Any runtime may await the handle.
/// assert!(Runtime::new()?.block_on(endless).unwrap_err().is_aborted());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a task is waited for or aborted")]
pub enum Shutdown {
    /// They continue until they end. Tasks that they spawn are aborted.
    Drain,
    /// They are dropped, those that are being polled after that poll.
    Abort,
}

impl Runtime {
    /// Starts a runtime with the default settings.
    ///
    /// # Errors
    ///
    /// As for [`Builder::build`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let runtime = Runtime::new()?;
    /// let task = runtime.spawn(async { "hello" });
    /// assert_eq!(runtime.block_on(task).unwrap(), "hello");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new() -> io::Result<Self> {
        Self::builder().build()
    }

    /// Returns the default settings.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let builder = Runtime::builder().thread_limit(4);
    /// let (one, other) = (builder.clone().build()?, builder.build()?);
    /// assert_eq!(one.handle().metrics().thread_limit, other.handle().metrics().thread_limit);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder {
            port: Port::builder(),
            concurrency: 0,
            limit: LIMIT,
            name: "runtime".to_owned(),
            stack_size: None,
            block_detection: BlockDetection::default(),
            computing: Some(COMPUTING),
            #[cfg(feature = "tokio-compat")]
            has_tokio: false,
            #[cfg(feature = "tokio-compat")]
            tokio_workers: None,
        }
    }

    /// Returns a handle, which spawns tasks from anywhere.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let runtime = Runtime::new()?;
    /// let handle = runtime.handle().clone();
    /// // The thread isn't one of the runtime's.
    /// let thread = std::thread::spawn(move || handle.block_on(handle.spawn(async { 42 })));
    /// assert_eq!(thread.join().unwrap().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs a future on the current thread, in the context of this runtime. See
    /// [`Handle::block_on`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, time::sleep};
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::new()?;
    /// let mut greeting = String::from("hello");
    /// // The future may borrow: it runs on this thread.
    /// runtime.block_on(async {
    ///     sleep(Duration::from_millis(1)).await;
    ///     greeting.push_str(" world");
    /// });
    /// assert_eq!(greeting, "hello world");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Spawns a task. See [`spawn`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let runtime = Runtime::new()?;
    /// // Spawned from outside of the runtime, so the free function `spawn` would panic.
    /// let task = runtime.spawn(async { [1, 2, 3].iter().sum::<i32>() });
    /// assert_eq!(runtime.block_on(task).unwrap(), 6);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// Ends the runtime: refuses new tasks, lets the existing ones end, and ends the threads.
    ///
    /// Waits for that until `timeout` has passed; `None` is no limit. Returns whether all tasks
    /// have ended. If not, those that sleep or compute keep their threads until they return;
    /// afterwards nothing of the runtime runs. The calls of its sockets then fail with an error, and
    /// polling its timers panics, also in tasks of other runtimes that are waiting for them.
    ///
    /// In a forked child it does nothing and returns false: the tasks are the parent's.
    ///
    /// Called in a task of this runtime, it does not wait for that task.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, Shutdown, time::sleep};
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::new()?;
    /// let last = runtime.spawn(async {
    ///     sleep(Duration::from_millis(5)).await;
    ///     "answered"
    /// });
    /// assert!(runtime.shutdown(Shutdown::Drain, Some(Duration::from_secs(60))));
    /// assert!(last.is_finished());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown(mut self, how: Shutdown, timeout: Option<Duration>) -> bool {
        // The drop would do it again, without a limit.
        self.has_ended = true;
        end(self.handle.shared(), how, timeout)
    }
}

/// Ends the runtime. Returns whether all tasks and threads have ended.
fn end(shared: &Arc<Shared>, how: Shutdown, timeout: Option<Duration>) -> bool {
    let deadline = timeout.and_then(|timeout| sync::now().checked_add(timeout));
    if shared.is_forked() {
        // The tasks and threads are the parent's.
        return false;
    }
    Shared::prepare_to_wait();
    // A thread of the pool cannot wait for itself. In a task of tokio, it polls none of ours.
    let own = usize::from(context::is_in_pool(shared));
    let own_tasks = own - usize::from(shared.is_polling_tokio());
    shared.begin_end();
    if how == Shutdown::Drain {
        shared.wait_until(deadline, || shared.tasks.len() <= own_tasks);
    }
    shared.tasks.abort_all();
    let all_ended = shared.wait_until(deadline, || shared.tasks.len() <= own_tasks);
    shared.pool.end();
    shared.close();
    let has_ended = shared.wait_until(deadline, || shared.threads_of_tasks() <= own) && all_ended;
    // The thread that polls tokio leaves now, unless a task of tokio blocks it.
    let have_left = shared.wait_until(deadline, || shared.pool.threads() <= own);
    if has_ended && have_left && own == 0 {
        shared.pool.join();
    }
    if !shared.polls_tokio() {
        shared.drop_refused();
    }
    // After the tasks, whose destructors may use it. Without workers, nobody polls it any more: the
    // destructors of tasks that have not ended in time find that it has ended.
    shared.end_tokio(deadline);
    shared.drop_refused();
    has_ended
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let shared = self.handle.shared();
        if self.has_ended {
            return;
        }
        let timeout = context::is_in_pool(shared).then_some(Duration::ZERO);
        end(shared, Shutdown::Abort, timeout);
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Runtime").field(&self.handle.metrics()).finish()
    }
}

/// A handle of a [`Runtime`]: spawns tasks and runs futures from any thread.
///
/// It does not keep the runtime running. After the runtime has ended, tasks that it spawns are
/// aborted.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::Runtime;
///
/// let runtime = Runtime::new()?;
/// let handle = runtime.handle().clone();
/// assert_eq!(handle.block_on(handle.spawn(async { 1 })).unwrap(), 1);
/// drop(runtime);
/// let late = handle.spawn(async { 2 });
/// assert!(handle.block_on(late).unwrap_err().is_aborted());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl Handle {
    pub(crate) fn of(shared: Arc<Shared>) -> Self {
        Self(shared)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    pub(crate) fn into_shared(self) -> Arc<Shared> {
        self.0
    }

    /// Returns the handle of the runtime that the current thread has entered: in a task, in
    /// [`Handle::block_on`], or while a guard of [`Handle::enter`] exists.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Handle, Runtime};
    ///
    /// assert!(Handle::try_current().is_none());
    /// let runtime = Runtime::new()?;
    /// let is_there = runtime.spawn(async { Handle::try_current().is_some() });
    /// assert!(runtime.block_on(is_there).unwrap());
    /// assert!(Handle::try_current().is_none());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn try_current() -> Option<Self> {
        context::current()
    }

    /// Returns the handle of the runtime that the current thread has entered.
    ///
    /// # Panics
    ///
    /// Outside a runtime. See [`Handle::try_current`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Handle, Runtime};
    ///
    /// let answer = Runtime::new()?.block_on(async {
    ///     let handle = Handle::current();
    ///     // From any thread, also one that is not of the runtime:
    ///     std::thread::spawn(move || handle.block_on(handle.spawn(async { 42 }))).join()
    /// });
    /// assert_eq!(answer.unwrap().unwrap(), 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    #[must_use]
    pub fn current() -> Self {
        here()
    }

    /// Makes this the current runtime of the thread until the guard is dropped: [`spawn`], sockets
    /// and timers use it.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Handle, Runtime, spawn};
    ///
    /// let runtime = Runtime::new()?;
    /// let entered = runtime.handle().enter();
    /// let task = spawn(async { 5 }); // it would panic outside a runtime
    /// drop(entered);
    /// assert!(Handle::try_current().is_none());
    /// assert_eq!(runtime.block_on(task).unwrap(), 5);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn enter(&self) -> Entered {
        context::enter(self.clone())
    }

    /// Spawns a task on this runtime. See [`spawn`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Handle, Runtime};
    ///
    /// let runtime = Runtime::new()?;
    /// let outer = runtime.spawn(async {
    ///     let inner = Handle::current().spawn(async { "inner" });
    ///     inner.await.unwrap()
    /// });
    /// assert_eq!(runtime.block_on(outer).unwrap(), "inner");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        task::spawn(&self.0, future, Location::caller())
    }

    /// Runs a closure on a thread of the runtime. See [`spawn_blocking`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    /// use std::sync::mpsc;
    ///
    /// let runtime = Runtime::new()?;
    /// let (say, heard) = mpsc::channel();
    /// let receives = runtime.handle().spawn_blocking(move || heard.recv());
    /// say.send("from outside").unwrap();
    /// assert_eq!(runtime.block_on(receives).unwrap(), Ok("from outside"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let shared = Arc::clone(&self.0);
        let work = async move { shared.port.blocking(work) };
        task::spawn(&self.0, work, Location::caller())
    }

    /// Runs a future on the current thread until it completes, in the context of this runtime.
    ///
    /// Tasks and sockets of the runtime continue on its own threads. In a task, this blocks the
    /// task's thread, and another one takes its place.
    ///
    /// # Panics
    ///
    /// If the future panics.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Handle, Runtime};
    ///
    /// let runtime = Runtime::builder().concurrency(1).build()?;
    /// let outer = runtime.spawn(async {
    ///     let handle = Handle::current();
    ///     let inner = handle.spawn(async { 3 });
    ///     // As in a callback that isn't async. It blocks the task: another thread runs `inner`.
    ///     handle.block_on(inner).unwrap() + 1
    /// });
    /// assert_eq!(runtime.block_on(outer).unwrap(), 4);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _entered = self.enter();
        let _in_tokio = self.0.enter_tokio();
        Shared::prepare_to_wait();
        // In a task of tokio, a future whose budget of tokio's calls is used up would be continued
        // only after the task.
        #[cfg(feature = "tokio-compat")]
        let future = tokio::task::coop::unconstrained(future);
        if context::is_in_pool(&self.0) {
            return self.0.port.blocking(|| block_on::block_on(future));
        }
        block_on::block_on(future)
    }

    /// Returns what the runtime does now and has done.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let runtime = Runtime::new()?;
    /// let task = runtime.spawn(std::future::pending::<()>());
    /// assert_eq!(runtime.handle().metrics().tasks, 1);
    /// task.abort();
    /// assert!(runtime.block_on(task).is_err());
    /// let metrics = runtime.handle().metrics();
    /// assert_eq!((metrics.tasks, metrics.spawned), (0, 1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let stats = self.0.port.stats();
        let tokio_threads = usize::from(self.0.polls_tokio_on().is_some());
        Metrics {
            threads: self.0.pool.threads(),
            thread_limit: self.0.pool.limit(),
            idle_threads: self.0.pool.idle(),
            blocked_threads: stats.blocked.saturating_sub(tokio_threads),
            tokio_threads,
            computing_threads: stats.excess,
            tasks: self.0.tasks.len(),
            spawned: self.0.tasks.spawned(),
            queued: stats.queued,
            blocks_found: stats.blocks_found,
            stalls: self.0.pool.stalls(),
            block_detection: stats.block_detection,
            file_engine: stats.file_engine,
            refused_threads: self.0.pool.refused(),
        }
    }

    /// Starts or stops measuring how long tasks, sockets and timers wait for a thread. It costs some
    /// hundred instructions for each: see
    /// [`Port::measure_queue_delays`](completion_port::Port::measure_queue_delays).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let runtime = Runtime::new()?;
    /// runtime.block_on(runtime.spawn(async {})).unwrap();
    /// assert_eq!(runtime.handle().queue_delays().count(), 0); // off by default
    /// runtime.handle().measure_queue_delays(true);
    /// runtime.block_on(runtime.spawn(async {})).unwrap();
    /// assert_ne!(runtime.handle().queue_delays().count(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn measure_queue_delays(&self, on: bool) {
        self.0.port.measure_queue_delays(on);
    }

    /// Returns how long tasks, sockets and timers have waited for a thread while that was measured.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let runtime = Runtime::new()?;
    /// runtime.handle().measure_queue_delays(true);
    /// runtime.block_on(runtime.spawn(async {})).unwrap();
    /// assert!(runtime.handle().queue_delays().count() >= 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn queue_delays(&self) -> QueueDelays {
        self.0.port.queue_delays()
    }

    /// Returns a description of the runtime's tasks, threads and queue, for a program that stalls.
    ///
    /// It works on any thread, also if all threads of the runtime are blocked: call it from a
    /// debugging port or a watchdog thread. It takes a few system calls for each thread and each
    /// task that waits for a socket.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, time::sleep};
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::new()?;
    /// let task = runtime.spawn(sleep(Duration::from_secs(3600)));
    /// # while !runtime.handle().dump().to_string().contains("a time 3599") {
    /// #     std::thread::yield_now();
    /// # }
    /// let dump = runtime.handle().dump().to_string();
    /// assert!(dump.contains("waits for: a time 3599"), "{dump}");
    /// # drop(task);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn dump(&self) -> Dump {
        Dump::of(self)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").field(&self.metrics()).finish()
    }
}

/// Spawns a task on the current runtime.
///
/// The task runs whether or not its handle is awaited. A panic ends only the task, and is in the
/// handle's result. Tasks may block: other tasks continue on other threads. Dropping the handle
/// detaches the task. If the runtime is ending, the task is dropped, and its handle reports an abort.
///
/// # Panics
///
/// Outside a runtime.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, spawn};
///
/// Runtime::new()?.block_on(async {
///     let task = spawn(async { 6 * 7 });
///     assert_eq!(task.await.unwrap(), 42);
///     let endless = spawn(std::future::pending::<()>());
///     endless.abort();
///     assert!(endless.await.unwrap_err().is_aborted());
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let task = task::spawn_here(future, Location::caller());
    let Some(task) = task else { panic!("{}", crate::readiness::no_runtime()) };
    task
}

/// Runs a closure on a thread of the current runtime, in addition to the threads that run tasks.
///
/// A task may block or compute itself. This is for long computations, which should not count
/// against the concurrency value, and for existing programs. Aborting its handle has an effect
/// only before the closure begins.
///
/// # Panics
///
/// Outside a runtime.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, spawn_blocking};
///
/// let sum = Runtime::new()?.block_on(async {
///     spawn_blocking(|| (1..=1_000_000_u64).sum::<u64>()).await
/// });
/// assert_eq!(sum.unwrap(), 500_000_500_000);
/// # Ok::<(), std::io::Error>(())
/// ```
#[track_caller]
pub fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    here().spawn_blocking(work)
}

#[track_caller]
fn here() -> Handle {
    let Some(handle) = Handle::try_current() else { panic!("{}", crate::readiness::no_runtime()) };
    handle
}
