//! The counts of a runtime, and its description: its tasks, and its threads.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use completion_port::{BlockDetection, ThreadStats, ThreadStatus};

use crate::activity::{Doing, Wait};
use crate::runtime::Handle;
use crate::shared::Shared;
use crate::sync;
use crate::task::TaskView;

/// The state of a runtime. [`Handle::metrics`] returns it.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::Runtime;
///
/// let runtime = Runtime::builder().concurrency(2).thread_limit(64).build()?;
/// for _ in 0..10 {
///     runtime.block_on(runtime.spawn(async {})).unwrap();
/// }
/// let metrics = runtime.handle().metrics();
/// assert_eq!((metrics.spawned, metrics.stalls, metrics.thread_limit), (10, 0, 64));
/// assert!(metrics.idle_threads <= metrics.threads);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Threads that exist, without the one that starts the others.
    pub threads: usize,
    /// How many threads may exist. See [`Builder::thread_limit`](crate::Builder::thread_limit). One more
    /// if they also poll tokio (feature `tokio-compat`).
    pub thread_limit: usize,
    /// Threads that wait for tasks.
    pub idle_threads: usize,
    /// Threads whose task was found asleep.
    pub blocked_threads: usize,
    /// Threads that poll tokio's sockets and timers, and perhaps run a task of tokio: 0 or 1. See the
    /// feature `tokio-compat`.
    pub tokio_threads: usize,
    /// Threads that have computed for long, so that another thread runs in addition.
    pub computing_threads: usize,
    /// Tasks that have not ended.
    pub tasks: usize,
    /// Tasks that were spawned so far.
    pub spawned: u64,
    /// Tasks, sockets and timers that wait for a thread.
    pub queued: usize,
    /// How often a task was found asleep.
    pub blocks_found: u64,
    /// How often every thread slept or computed for 100 ms, and no other could be started.
    pub stalls: u64,
    /// How often the system refused to start a thread. The runtime tries again.
    pub refused_threads: u64,
    /// How the runtime detects that a task sleeps.
    pub block_detection: BlockDetection,
    /// What carries out the operations on files that have to wait for a disk; `none` until one of
    /// them has to.
    pub file_engine: &'static str,
}

/// The tasks, threads and queue of a runtime. [`Handle::dump`] returns it, and `Display` writes it:
/// a line for the runtime, one for each thread, one for each task, and then the port's own.
///
/// ```text
/// 4 threads (at most 4): 0 idle, 3 asleep, 1 running; 6 tasks, 2 in the queue; 1 stalls
/// thread 1 (system's number 4711): asleep for 0.214 s in futex_do_wait; polls task 3, spawned at src/main.rs:20:17
/// thread 2 (system's number 4712): runs for 0.003 s; polls task 2, spawned at src/main.rs:31:9
/// task 1, spawned at src/main.rs:12:5: waits for: receive from 127.0.0.1:8000 on 127.0.0.1:40312, a time 1.980 s away
/// task 2, spawned at src/main.rs:31:9: runs on thread 2
/// task 3, spawned at src/main.rs:20:17: runs on thread 1
/// task 4, spawned at src/main.rs:20:17: queued
/// ```
///
/// For a task that waits, the dump shows the first two things that its last poll waited for.
/// Futures of other crates, such as channels, are not known.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::Runtime;
///
/// let runtime = Runtime::new()?;
/// let endless = runtime.spawn(std::future::pending::<()>());
/// let dump = runtime.handle().dump();
/// println!("{dump}"); // or send it to a debugging port
/// assert!(dump.to_string().contains("task 1, spawned at"));
/// # drop(endless);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Dump {
    metrics: Metrics,
    lines: Vec<String>,
    port: String,
}

/// A thread of the runtime, and what it does.
struct ThreadLine {
    number: u64,
    system: Option<u64>,
    stats: Option<ThreadStats>,
    task: Option<TaskView>,
    polls_tokio: bool,
}

fn threads(shared: &Shared, tasks: &[TaskView]) -> Vec<ThreadLine> {
    // The port notices how long a thread has been at work when it is asked, so ask twice.
    drop(shared.port.thread_stats());
    let stats = shared.port.thread_stats();
    let line = |(number, system): (u64, Option<u64>)| ThreadLine {
        number,
        system,
        stats: stats.iter().find(|it| system.is_some() && it.system_number == system).copied(),
        task: tasks.iter().find(|it| it.doing == Doing::Running(number)).cloned(),
        polls_tokio: shared.polls_tokio_on() == Some(number),
    };
    shared.threads.all().into_iter().map(line).collect()
}

/// Returns the thread that has been at work for longest, as a line of the dump.
#[cfg(feature = "tracing")]
pub(crate) fn oldest(shared: &Shared) -> Option<String> {
    let lines = threads(shared, &shared.tasks.all()).into_iter();
    let age = |line: &ThreadLine| line.stats.map(|stats| stats.handling_for);
    lines.filter(|line| line.task.is_some()).max_by_key(age).map(|line| line.to_string())
}

impl fmt::Display for ThreadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "thread {}", self.number)?;
        if let Some(system) = self.system {
            write!(f, " (system's number {system})")?;
        }
        f.write_str(": ")?;
        let sleeps = |status| matches!(status, ThreadStatus::FoundAsleep | ThreadStatus::Blocked);
        match self.stats {
            stats if self.polls_tokio => {
                f.write_str("polls tokio")?;
                stats.map_or(Ok(()), |stats| for_time(f, stats.handling_for))?;
                if let Some(place) = kernel_place(self.system) {
                    write!(f, " in {place}")?;
                }
            }
            Some(stats) if sleeps(stats.status) => {
                f.write_str("asleep")?;
                if stats.status == ThreadStatus::Blocked {
                    f.write_str(" in a call that was announced")?;
                }
                for_time(f, stats.handling_for)?;
                if let Some(place) = kernel_place(self.system) {
                    write!(f, " in {place}")?;
                }
            }
            Some(stats) if stats.status == ThreadStatus::Excess => {
                f.write_str("computes")?;
                for_time(f, stats.handling_for)?;
            }
            Some(stats) if stats.status == ThreadStatus::Running => {
                f.write_str("runs")?;
                for_time(f, stats.handling_for)?;
            }
            _ if self.task.is_none() => f.write_str("idle")?,
            _ => f.write_str("runs")?,
        }
        match &self.task {
            Some(task) => write!(f, "; polls {task}"),
            None => Ok(()),
        }
    }
}

fn for_time(f: &mut fmt::Formatter<'_>, time: Duration) -> fmt::Result {
    write!(f, " for {:.3} s", time.as_secs_f64())
}

/// Returns where in the kernel a thread sleeps, if the system tells.
fn kernel_place(system: Option<u64>) -> Option<String> {
    #[cfg(target_os = "linux")]
    {
        let place = std::fs::read_to_string(format!("/proc/self/task/{}/wchan", system?)).ok()?;
        (!place.is_empty() && place != "0").then_some(place)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = system;
        None
    }
}

/// Names a task.
impl fmt::Display for TaskView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place: &Location<'_> = self.spawned_at;
        write!(f, "task {}, spawned at {place}", self.number)
    }
}

fn describe_task(shared: &Shared, tasks: &[TaskView], task: &TaskView) -> String {
    let doing = match task.doing {
        Doing::Queued => "queued".to_owned(),
        Doing::Running(thread) => format!("runs on thread {thread}"),
        Doing::Waiting => {
            let waits = task.waits.iter().flatten();
            let waits: Vec<_> = waits.map(|wait| describe_wait(shared, tasks, *wait)).collect();
            match &waits[..] {
                [] => "waits for something outside of the runtime".to_owned(),
                waits => format!("waits for: {}", waits.join(", ")),
            }
        }
    };
    format!("{task}: {doing}")
}

fn describe_wait(shared: &Shared, tasks: &[TaskView], wait: Wait) -> String {
    match wait {
        Wait::Read(socket) => shared.sockets.describe(socket, false),
        Wait::Write(socket) => shared.sockets.describe(socket, true),
        Wait::Timer(at) => {
            let until = shared.built_at + Duration::from_nanos(at);
            let left = until.saturating_duration_since(sync::now());
            format!("a time {:.3} s away", left.as_secs_f64())
        }
        Wait::File => "an operation on a file".to_owned(),
        Wait::Task(name) => match tasks.iter().find(|it| it.name == name) {
            Some(task) => format!("the end of {task}"),
            None => "the end of a task of another runtime".to_owned(),
        },
    }
}

impl Dump {
    pub(crate) fn of(handle: &Handle) -> Self {
        let shared = handle.shared();
        let mut tasks = shared.tasks.all();
        tasks.sort_unstable_by_key(|task| task.number);
        let threads = threads(shared, &tasks).into_iter().map(|line| line.to_string());
        let lines = threads.chain(tasks.iter().map(|task| describe_task(shared, &tasks, task)));
        Self {
            lines: lines.collect(),
            metrics: handle.metrics(),
            port: format!("{:#?}", shared.port),
        }
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let it = &self.metrics;
        let others = it.idle_threads + it.blocked_threads + it.tokio_threads;
        let running = it.threads.saturating_sub(others);
        write!(
            f,
            "{} threads (at most {}): {} idle, ",
            it.threads, it.thread_limit, it.idle_threads
        )?;
        write!(f, "{} asleep, {running} running", it.blocked_threads)?;
        if it.tokio_threads > 0 {
            f.write_str(", 1 polls tokio")?;
        }
        write!(f, "; {} tasks, ", it.tasks)?;
        writeln!(f, "{} in the queue; {} stalls", it.queued, it.stalls)?;
        for line in &self.lines {
            writeln!(f, "{line}")?;
        }
        f.write_str(&self.port)
    }
}
