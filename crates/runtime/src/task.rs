//! Tasks: how a future is spawned, polled, aborted and joined.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, Location, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use async_task::{ScheduleInfo, WithInfo};
use pin_project_lite::pin_project;

use crate::activity::{self, Activity, Doing, Wait};
use crate::context;
use crate::fork;
use crate::shared::{Message, Shared};
use crate::state::abort::{Abort, Listed};
use crate::state::contain;
use crate::state::places::Places;

/// A task that is ready to be polled. It carries what the runtime knows of it.
pub(crate) type Runnable = async_task::Runnable<TaskInfo>;

/// What the runtime knows of a task. It is in the task's own memory.
pub(crate) struct TaskInfo {
    shared: Arc<Shared>,
    /// Counts the tasks of the runtime.
    number: u64,
    /// The task's place in the list, or [`NOWHERE`]. Written before the task is queued.
    place: AtomicUsize,
    spawned_at: &'static Location<'static>,
    activity: Activity,
    abort: Abort,
    /// The process that has the task.
    forks: u32,
}

// A panic leaves each of its parts as it was before or after a change, since they are atomic or
// behind locks that ignore panics. `Port` doesn't say so of a hook that it may have.
impl UnwindSafe for TaskInfo {}
impl RefUnwindSafe for TaskInfo {}

/// The place of a task that is not in the list.
const NOWHERE: usize = usize::MAX;

impl TaskInfo {
    /// Names the task among those of all runtimes. After 2^44 tasks, numbers repeat.
    fn name(&self) -> u64 {
        u64::from(self.shared.number) << 44 | self.number & ((1 << 44) - 1)
    }

    fn abort_handle(&self) -> AbortHandle {
        AbortHandle {
            spawned_at: self.spawned_at,
            task: Some(Target {
                shared: Arc::clone(&self.shared),
                place: self.place.load(Relaxed),
                number: self.number,
                forks: self.forks,
            }),
        }
    }

    /// Stores what wakes the task if it is aborted, at the end of its first poll.
    fn list_waker(&self, waker: &Waker) {
        self.shared.tasks.places.list_waker(self.place.load(Relaxed), waker);
    }

    fn abort(&self) {
        // In a forked child, the task is the parent's.
        if self.forks == fork::count() {
            self.shared.tasks.abort(self.place.load(Relaxed), self.number);
        }
    }
}

/// Where a [`TaskInfo`] is. Its owner knows why the task's memory has not been freed.
struct InfoPointer(NonNull<TaskInfo>);

// SAFETY: it gives shared references only.
// - `TaskInfo` may be shared by threads, as the call of `is_shared` shows.
unsafe impl Send for InfoPointer {}
// SAFETY: as for `Send`.
unsafe impl Sync for InfoPointer {}

const _: () = {
    const fn is_shared<T: Sync>() {}
    is_shared::<TaskInfo>();
};

/// The tasks whose futures have not been dropped.
#[derive(Default)]
pub(crate) struct TaskList {
    places: Places<Listed<ListedTask>>,
    /// How many tasks were spawned.
    spawned: AtomicU64,
}

/// Finds what the runtime knows of a task in the list.
struct ListedTask(InfoPointer);

impl ListedTask {
    fn info(&self) -> &TaskInfo {
        // SAFETY: the reference requires a live `TaskInfo`.
        // - it is in the task's memory, which `async-task` frees after the task's future was dropped;
        // - that takes this out of the list, and drops it, before it ends ([`Ended`]).
        unsafe { self.0.0.as_ref() }
    }
}

impl AsRef<Abort> for ListedTask {
    fn as_ref(&self) -> &Abort {
        &self.info().abort
    }
}

/// A task, as it was when someone looked.
#[derive(Clone)]
pub(crate) struct TaskView {
    pub(crate) name: u64,
    pub(crate) number: u64,
    pub(crate) spawned_at: &'static Location<'static>,
    pub(crate) doing: Doing,
    pub(crate) waits: [Option<Wait>; 2],
}

impl TaskList {
    /// Returns how many tasks have not ended.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Aborts all tasks.
    pub(crate) fn abort_all(&self) {
        self.places.abort_all();
    }

    /// Aborts the task of this number, unless it has left this place.
    fn abort(&self, place: usize, number: u64) {
        self.places.abort(place, |task| task.info().number == number);
    }

    /// Returns how many tasks were spawned.
    pub(crate) fn spawned(&self) -> u64 {
        self.spawned.load(Relaxed)
    }

    /// Returns the tasks that have not ended.
    pub(crate) fn all(&self) -> Vec<TaskView> {
        self.places.map(|listed| {
            let info = listed.task.info();
            let TaskInfo { number, spawned_at, activity, .. } = info;
            TaskView {
                name: info.name(),
                number: *number,
                spawned_at,
                doing: activity.doing(),
                waits: activity.waits(),
            }
        })
    }
}

pin_project! {
    /// The future of a task, with everything that must happen when it ends.
    ///
    /// The fields are in this order in memory.
    #[project = SpawnedProjection]
    #[repr(C)]
    struct Spawned<F> {
        #[pin]
        future: Option<F>,
        ended: Ended,
        // The first poll has ended.
        is_wakeable: bool,
        // Keeps the next task in memory away from the cache lines of this one, unless `async-task`
        // boxes this struct (from 2 KB on), or stores an output in its place that is larger than
        // the future.
        _apart: MaybeUninit<[u8; 64]>,
    }

    impl<F> PinnedDrop for Spawned<F> {
        fn drop(this: Pin<&mut Self>) {
            // A task that is dropped without a poll. Its panic would end the process, because
            // `async-task` allows none here.
            let mut future = this.project().future;
            contain(|| future.set(None));
        }
    }
}

/// Takes the task out of the list when its future has been dropped.
struct Ended(InfoPointer);

impl Ended {
    fn info(&self) -> &TaskInfo {
        // SAFETY: the reference requires a live `TaskInfo`.
        // - this is part of the task's future, and both are in the task's memory, or the memory
        //   that `async-task` allocates for a large future belongs to the task;
        // - `async-task` drops the future before the metadata, which futures may borrow (see
        //   `Builder::spawn_unchecked`).
        unsafe { self.0.0.as_ref() }
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        let TaskInfo { shared, place, .. } = self.info();
        let place = place.load(Relaxed);
        if place != NOWHERE {
            // This may drop the last waker, outside the lock.
            drop(shared.tasks.places.remove(place));
        }
        shared.task_ended();
    }
}

impl<F: Future> Future for Spawned<F> {
    type Output = Result<F::Output, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let info = this.ended.info();
        let _polling = info.activity.poll();
        let result = if info.abort.is_requested() {
            Err(JoinError(Reason::Aborted))
        } else {
            let future = this.future.as_mut().as_pin_mut();
            let future = future.expect("the task is not polled after its end");
            match catch_unwind(AssertUnwindSafe(|| future.poll(context))) {
                Ok(Poll::Pending) => {
                    if !std::mem::replace(this.is_wakeable, true) {
                        info.list_waker(context.waker());
                    }
                    info.activity.set_waiting();
                    return Poll::Pending;
                }
                Ok(Poll::Ready(output)) => Ok(output),
                Err(panic) => Err(JoinError(Reason::Panicked(panic))),
            }
        };
        // The join handle sees the end only after the future has been dropped.
        let dropped = catch_unwind(AssertUnwindSafe(|| this.future.set(None)));
        Poll::Ready(match dropped {
            Ok(()) => result,
            Err(panic) => {
                contain(|| drop(result));
                Err(JoinError(Reason::Panicked(panic)))
            }
        })
    }
}

/// Spawns a task. Its first poll is queued.
pub(crate) fn spawn<F>(
    shared: &Arc<Shared>,
    future: F,
    spawned_at: &'static Location<'static>,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    finish(begin(shared, future, spawned_at))
}

/// Spawns a task on the innermost runtime that the thread has entered. `None` if there is none.
pub(crate) fn spawn_here<F>(
    future: F,
    spawned_at: &'static Location<'static>,
) -> Option<JoinHandle<F::Output>>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let mut future = Some(future);
    let begun = context::with_current(|handle| {
        future.take().map(|future| begin(handle.shared(), future, spawned_at))
    });
    begun.flatten().map(finish)
}

/// A new task that is in the list, and whether it may be queued.
struct Begun<T> {
    task: JoinHandle<T>,
    runnable: Runnable,
    is_admitted: bool,
}

/// Queues a new task. If the runtime has ended, drops its future, and the handle reports that:
/// nobody may be left who would do it later. Both may run the program's code.
fn finish<T>(Begun { task, runnable, is_admitted }: Begun<T>) -> JoinHandle<T> {
    let Some(TaskInfo { shared, .. }) = task.info() else { return task };
    let refused =
        if is_admitted { shared.try_post(runnable) } else { Some(Message::Run(runnable)) };
    if refused.is_some() {
        let _in_tokio = shared.enter_tokio();
        drop(refused);
    }
    task
}

/// Creates a task and lists it. Does not run the program's code.
fn begin<F>(
    shared: &Arc<Shared>,
    future: F,
    spawned_at: &'static Location<'static>,
) -> Begun<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let info = TaskInfo {
        shared: Arc::clone(shared),
        number: shared.tasks.spawned.fetch_add(1, Relaxed) + 1,
        place: AtomicUsize::new(NOWHERE),
        spawned_at,
        activity: Activity::default(),
        abort: Abort::new(),
        forks: fork::count(),
    };
    // `async-task` counts another reference during each call of a schedule function that has a size.
    let (runnable, task) = async_task::Builder::new().metadata(info).spawn(
        |info| Spawned {
            future: Some(future),
            ended: Ended(InfoPointer(NonNull::from(info))),
            is_wakeable: false,
            _apart: MaybeUninit::uninit(),
        },
        WithInfo(schedule),
    );
    let info = runnable.metadata();
    let is_admitted = shared.ending.admit(|| {
        let task = ListedTask(InfoPointer(NonNull::from(info)));
        let place = shared.tasks.places.insert(Listed::new(task));
        runnable.metadata().place.store(place, Relaxed);
    });
    let info = InfoPointer(NonNull::from(info));
    let task = JoinHandle { task: Some(task.fallible()), info, spawned_at };
    Begun { task, runnable, is_admitted }
}

/// Schedules a task that was woken.
fn schedule(runnable: Runnable, how: ScheduleInfo) {
    runnable.metadata().activity.set_queued();
    let mut runnable = Some(runnable);
    context::with_pool(|pool| {
        let is_own =
            |runnable: &mut Runnable| std::ptr::eq(pool, &raw const *runnable.metadata().shared);
        if let Some(runnable) = runnable.take_if(is_own) {
            pool.schedule(runnable, how.woken_while_running);
        }
    });
    if let Some(runnable) = runnable {
        // Once it is queued, the task may end on another thread.
        let shared = Arc::clone(&runnable.metadata().shared);
        shared.schedule(runnable, how.woken_while_running);
    }
}

/// A spawned task: awaiting it returns the task's output.
///
/// Dropping it detaches the task, which continues. So does cancelling a future that awaits the
/// handle by value; a handle that is awaited by `&mut` can be awaited again.
///
/// # Errors
///
/// A [`JoinError`] if the task panicked or was aborted. Its future has been dropped then, as it has
/// been before the output is returned.
///
/// A task belongs to the process that spawned it. In a forked child, the handle of a task that had
/// not ended reports an abort when it is polled, and the task continues in the parent.
///
/// # Panics
///
/// If it is polled after it was ready.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, spawn, time::timeout, yield_now};
/// use std::time::Duration;
///
/// Runtime::new()?.block_on(async {
///     let mut task = spawn(std::future::pending::<()>());
///     let time = Duration::from_millis(1);
///     assert!(timeout(time, &mut task).await.is_err()); // it still runs
///     task.abort();
///     assert!((&mut task).await.unwrap_err().is_aborted());
///     assert!(task.is_finished());
///
///     let panicked = spawn(async { std::panic::resume_unwind(Box::new("on purpose")) });
///     let error = panicked.await.map(|(): ()| ()).unwrap_err();
///     assert_eq!(error.to_string(), "the task panicked: on purpose");
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "dropping it detaches the task; `drop` says so"]
pub struct JoinHandle<T> {
    /// `None` once the output was returned.
    task: Option<async_task::FallibleTask<Result<T, JoinError>, TaskInfo>>,
    /// Valid while there is a `task`.
    info: InfoPointer,
    spawned_at: &'static Location<'static>,
}

impl<T> JoinHandle<T> {
    /// Returns what the runtime knows of the task. `None` once the output was returned.
    fn info(&self) -> Option<&TaskInfo> {
        self.task.as_ref()?;
        // SAFETY: the reference requires a live `TaskInfo`.
        // - it is in the task's memory, which is not freed as long as there is a `task`;
        // - the reference borrows the handle, which can't give the `task` up meanwhile.
        Some(unsafe { self.info.0.as_ref() })
    }

    /// Ends the task at its next poll, which drops its future. Awaiting it then returns an error
    /// ([`JoinError::is_aborted`]), unless the task had already completed.
    ///
    /// A task that is being polled ends after that poll, even if it blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, time::sleep};
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::new()?;
    /// let task = runtime.spawn(sleep(Duration::from_secs(3600)));
    /// task.abort();
    /// task.abort(); // no effect
    /// assert!(runtime.block_on(task).unwrap_err().is_aborted());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn abort(&self) {
        if let Some(info) = self.info() {
            info.abort();
        }
    }

    /// Returns a handle that aborts the task.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let runtime = Runtime::new()?;
    /// let task = runtime.spawn(std::future::pending::<()>());
    /// let abort = task.abort_handle();
    /// std::thread::spawn(move || abort.abort()); // while this thread waits for the task
    /// assert!(runtime.block_on(task).unwrap_err().is_aborted());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn abort_handle(&self) -> AbortHandle {
        let ended = AbortHandle { spawned_at: self.spawned_at, task: None };
        self.info().map_or(ended, TaskInfo::abort_handle)
    }

    /// Returns whether the task has ended.
    ///
    /// The future of a task that has ended has been dropped. If the runtime drops a task without
    /// polling it again, the task counts as ended when that begins.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let runtime = Runtime::new()?;
    /// let mut task = runtime.spawn(async { 1 });
    /// assert_eq!(runtime.block_on(&mut task).unwrap(), 1);
    /// assert!(task.is_finished());
    /// assert!(!runtime.spawn(std::future::pending::<()>()).is_finished());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(async_task::FallibleTask::is_finished)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let task = self.task.as_mut().expect("polled after it was ready");
        let polled = Pin::new(task).poll(context);
        if polled.is_pending()
            && let Some(info) = self.info()
        {
            if info.forks != fork::count() {
                // The parent's threads run the task. Its drop detaches what this process has of it.
                return Poll::Ready(Err(JoinError(Reason::Aborted)));
            }
            activity::note(Wait::Task(info.name()));
        }
        polled.map(|result| {
            self.task = None;
            // Without a result, the runtime has dropped the task without polling it again.
            result.unwrap_or(Err(JoinError(Reason::Aborted)))
        })
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("is_finished", &self.is_finished())
            .finish_non_exhaustive()
    }
}

/// Aborts a task. See [`JoinHandle::abort`].
///
/// Dropping it has no effect on the task.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, spawn};
///
/// Runtime::new()?.block_on(async {
///     let tasks = [spawn(std::future::pending::<u8>()), spawn(std::future::pending())];
///     let aborts: Vec<_> = tasks.iter().map(|task| task.abort_handle()).collect();
///     aborts.iter().for_each(|abort| abort.abort());
///     for task in tasks {
///         assert!(task.await.unwrap_err().is_aborted());
///     }
///     aborts[0].abort(); // no effect: the task has ended
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct AbortHandle {
    spawned_at: &'static Location<'static>,
    /// `None` if the task's output had been returned before there was this handle.
    task: Option<Target>,
}

/// Names a task that may have ended.
#[derive(Clone)]
struct Target {
    shared: Arc<Shared>,
    place: usize,
    number: u64,
    /// The process that has the task.
    forks: u32,
}

// As for `TaskInfo`.
impl UnwindSafe for Target {}
impl RefUnwindSafe for Target {}

impl AbortHandle {
    /// Ends the task, as [`JoinHandle::abort`] does.
    pub fn abort(&self) {
        // In a forked child, the task is the parent's.
        if let Some(Target { shared, place, number, forks }) = &self.task
            && *forks == fork::count()
        {
            shared.tasks.abort(*place, *number);
        }
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle").field("spawned_at", &self.spawned_at).finish_non_exhaustive()
    }
}

/// Why a task has no output: it panicked, or was aborted.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::Runtime;
///
/// let runtime = Runtime::new()?;
/// let panicked = runtime.spawn(async { std::panic::resume_unwind(Box::new("no such user")) });
/// let error = runtime.block_on(panicked).map(|(): ()| ()).unwrap_err();
/// assert!(error.is_panic());
/// assert_eq!(error.to_string(), "the task panicked: no such user");
/// // So `?` works in functions that return `std::io::Result`.
/// assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::Other);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct JoinError(Reason);

enum Reason {
    Aborted,
    Panicked(Box<dyn Any + Send>),
}

impl JoinError {
    /// Returns whether the task was aborted, by its handle or by the end of its runtime.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        matches!(self.0, Reason::Aborted)
    }

    /// Returns whether the task panicked.
    #[must_use]
    pub fn is_panic(&self) -> bool {
        !self.is_aborted()
    }

    /// Returns the payload of the task's panic, or the error if the task did not panic.
    ///
    /// # Errors
    ///
    /// The error itself if the task was aborted.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::Runtime;
    ///
    /// let runtime = Runtime::new()?;
    /// let panicked = runtime.spawn(async { std::panic::resume_unwind(Box::new(7)) });
    /// let error = runtime.block_on(panicked).map(|(): ()| ()).unwrap_err();
    /// match error.try_into_panic() {
    ///     Ok(payload) => assert_eq!(*payload.downcast::<i32>().unwrap(), 7),
    ///     Err(aborted) => panic!("{aborted}"),
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_into_panic(self) -> Result<Box<dyn Any + Send>, Self> {
        match self.0 {
            Reason::Panicked(panic) => Ok(panic),
            Reason::Aborted => Err(self),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_aborted() { "JoinError::Aborted" } else { "JoinError::Panicked" })
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reason::Panicked(panic) = &self.0 else { return f.write_str("the task was aborted") };
        let text = panic.downcast_ref::<&str>().copied();
        match text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)) {
            Some(text) => write!(f, "the task panicked: {text}"),
            None => f.write_str("the task panicked"),
        }
    }
}

impl std::error::Error for JoinError {}

// The payload is only moved out or read through `downcast_ref` of `'static` types by the owner.
impl From<JoinError> for std::io::Error {
    fn from(error: JoinError) -> Self {
        Self::other(error.to_string())
    }
}

/// Lets other tasks run: the task goes to the end of the queue.
///
/// Cancelling it loses nothing.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, spawn, yield_now};
///
/// Runtime::new()?.block_on(async {
///     let task = spawn(async { 1 });
///     while !task.is_finished() {
///         yield_now().await;
///     }
/// });
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn yield_now() {
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        // A task that is woken while it is polled is scheduled when that ends.
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
