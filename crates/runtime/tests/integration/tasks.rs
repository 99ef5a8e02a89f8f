//! Tasks: output, panics, aborts, detached tasks, blocking, and the end of a runtime.

use std::future::{Future, poll_fn};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use completion_port_runtime::{
    Handle, JoinHandle, Runtime, Shutdown, interval, sleep, spawn, spawn_blocking, timeout,
    yield_now,
};

/// A failure, not a measurement: nothing takes this long on any machine.
const LIMIT: Duration = Duration::from_secs(60);

fn runtime(concurrency: usize) -> Runtime {
    Runtime::builder().concurrency(concurrency).build().unwrap()
}

/// Counts how many values exist.
#[derive(Clone)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[test]
fn a_task_returns_its_output_and_many_tasks_run() {
    let runtime = runtime(2);
    let sum = runtime.block_on(async {
        let tasks: Vec<_> = (0..1_000_u64).map(|number| spawn(async move { number })).collect();
        let mut sum = 0;
        for task in tasks {
            sum += task.await.unwrap();
        }
        sum
    });
    assert_eq!(sum, 499_500);
    assert_eq!(runtime.handle().metrics().tasks, 0);
}

#[test]
fn tasks_wake_each_other() {
    let runtime = runtime(2);
    let (say, heard) = mpsc::channel();
    runtime.block_on(async move {
        let (left, right) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(0)));
        let other = {
            let (left, right) = (Arc::clone(&left), Arc::clone(&right));
            spawn(async move {
                for round in 1..=1_000 {
                    while *left.lock().unwrap() < round {
                        yield_now().await;
                    }
                    *right.lock().unwrap() = round;
                }
            })
        };
        for round in 1..=1_000 {
            *left.lock().unwrap() = round;
            while *right.lock().unwrap() < round {
                yield_now().await;
            }
        }
        other.await.unwrap();
        say.send(()).unwrap();
    });
    heard.recv_timeout(LIMIT).unwrap();
}

#[test]
fn a_panic_ends_only_its_task() {
    let runtime = runtime(1);
    runtime.block_on(async {
        let panicked = spawn(async { std::panic::resume_unwind(Box::new("on purpose")) });
        let error = panicked.await.map(|(): ()| ()).unwrap_err();
        assert!(error.is_panic() && !error.is_aborted());
        assert_eq!(error.to_string(), "the task panicked: on purpose");
        assert_eq!(*error.try_into_panic().unwrap().downcast::<&str>().unwrap(), "on purpose");
        assert_eq!(spawn(async { 7 }).await.unwrap(), 7);
    });
}

#[test]
fn an_aborted_task_drops_its_future_before_its_handle_reports_it() {
    let runtime = runtime(2);
    let count = Arc::new(AtomicUsize::new(0));
    runtime.block_on(async {
        let counted = Counted::new(&count);
        let task = spawn(async move {
            let _counted = counted;
            std::future::pending::<()>().await;
        });
        yield_now().await;
        task.abort();
        assert!(task.await.unwrap_err().is_aborted());
        assert_eq!(count.load(SeqCst), 0);
    });
}

#[test]
fn an_abort_after_the_end_changes_nothing() {
    let runtime = runtime(1);
    runtime.block_on(async {
        let task = spawn(async { 3 });
        let abort = task.abort_handle();
        while !task.is_finished() {
            yield_now().await;
        }
        abort.abort();
        assert_eq!(task.await.unwrap(), 3);
    });
}

#[test]
fn handles_may_be_used_after_a_caught_panic() {
    fn check<T: UnwindSafe + RefUnwindSafe>(_: &T) {}
    let runtime = runtime(1);
    let task = runtime.spawn(async {});
    check(&task);
    check(&task.abort_handle());
}

/// The handle of a task that has ended does not wake the one that came after it.
#[test]
fn an_abort_after_the_end_reaches_no_later_task() {
    let runtime = runtime(1);
    let polls = Arc::new(AtomicUsize::new(0));
    runtime.block_on(async {
        let ended = spawn(async {});
        let abort = ended.abort_handle();
        ended.await.unwrap();
        let later = spawn({
            let polls = Arc::clone(&polls);
            poll_fn(move |_| {
                polls.fetch_add(1, SeqCst);
                Poll::<()>::Pending
            })
        });
        // The only thread comes to this one after those.
        spawn(async {}).await.unwrap();
        abort.abort();
        spawn(async {}).await.unwrap();
        assert_eq!(polls.load(SeqCst), 1);
        later.abort();
        assert!(later.await.unwrap_err().is_aborted());
    });
}

#[test]
fn a_task_whose_handle_is_dropped_continues() {
    let runtime = runtime(1);
    let (say, heard) = mpsc::channel();
    drop(runtime.spawn(async move {
        sleep(Duration::from_millis(5)).await;
        say.send(()).unwrap();
    }));
    heard.recv_timeout(LIMIT).unwrap();
}

/// The claim: tasks that sleep hold up no other task, however many they are.
#[test]
fn tasks_that_sleep_hold_up_no_other() {
    if cfg!(windows) {
        println!("SKIPPED tasks_that_sleep_hold_up_no_other: this system finds no blocked threads");
        return;
    }
    let runtime = runtime(2);
    let (say, heard) = mpsc::channel();
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let sleepers: Vec<_> = (0..64)
        .map(|_| {
            let blocked = Arc::clone(&blocked);
            runtime.spawn(async move {
                let _ = blocked.lock().unwrap().recv();
            })
        })
        .collect();
    for round in 0..100 {
        let say = say.clone();
        drop(runtime.spawn(async move { say.send(round).unwrap() }));
        assert_eq!(heard.recv_timeout(LIMIT).unwrap(), round);
    }
    drop(release);
    runtime.block_on(async {
        for sleeper in sleepers {
            sleeper.await.unwrap();
        }
    });
}

/// Spawned tasks are in the queue. `taking_back` tests those that a task has woken.
#[test]
fn what_a_sleeping_task_has_spawned_runs_elsewhere() {
    let runtime = runtime(1);
    let (say, heard) = mpsc::channel();
    let (release, blocked) = mpsc::channel::<()>();
    let task = runtime.spawn(async move {
        for number in 0..10 {
            let say = say.clone();
            drop(spawn(async move { say.send(number).unwrap() }));
        }
        blocked.recv().unwrap();
    });
    let mut all: Vec<i32> = (0..10).map(|_| heard.recv_timeout(LIMIT).unwrap()).collect();
    all.sort_unstable();
    assert_eq!(all, (0..10).collect::<Vec<_>>());
    release.send(()).unwrap();
    runtime.block_on(task).unwrap();
}

/// Two tasks that are woken by one run at the same time.
#[test]
fn two_tasks_that_one_wakes_run_at_the_same_time() {
    let runtime = runtime(2);
    let barrier = Arc::new(Barrier::new(2));
    runtime.block_on(async {
        spawn(async move {
            let both: Vec<_> = (0..2)
                .map(|_| {
                    let barrier = Arc::clone(&barrier);
                    // It ends only if both are in it.
                    spawn(async move { barrier.wait().is_leader() })
                })
                .collect();
            let mut leaders = 0;
            for task in both {
                leaders += usize::from(task.await.unwrap());
            }
            assert_eq!(leaders, 1);
        })
        .await
        .unwrap();
    });
}

#[test]
fn computing_tasks_let_others_run_after_a_while() {
    let runtime = runtime(1);
    let stop = Arc::new(AtomicUsize::new(0));
    let busy = {
        let stop = Arc::clone(&stop);
        runtime.spawn(async move {
            while stop.load(SeqCst) == 0 {
                std::hint::spin_loop();
            }
        })
    };
    let quick = {
        let stop = Arc::clone(&stop);
        runtime.spawn(async move { stop.store(1, SeqCst) })
    };
    runtime.block_on(async {
        quick.await.unwrap();
        busy.await.unwrap();
    });
}

#[test]
fn block_on_in_a_task_blocks_the_task() {
    let runtime = runtime(1);
    let answer = runtime.block_on(async {
        spawn(async {
            let handle = Handle::try_current().unwrap();
            let inner = handle.spawn(async {
                sleep(Duration::from_millis(1)).await;
                5
            });
            handle.block_on(inner).unwrap()
        })
        .await
        .unwrap()
    });
    assert_eq!(answer, 5);
}

/// A future that parks its thread takes the token of a wake. `block_on` counts the wake nevertheless.
/// Wakes a task when it is woken, and waits for its end.
struct Joins {
    runtime: Handle,
    task: Mutex<Option<(tokio::sync::oneshot::Sender<()>, JoinHandle<()>)>>,
    ended: mpsc::Sender<()>,
}

impl Wake for Joins {
    fn wake(self: Arc<Self>) {
        let (wake, task) = self.task.lock().unwrap().take().unwrap();
        wake.send(()).unwrap();
        self.runtime.block_on(task).unwrap();
        self.ended.send(()).unwrap();
    }
}

/// A waker that wakes a task and waits for its end, and a channel that reports this.
pub(crate) fn waker_that_joins(runtime: &Runtime) -> (Waker, mpsc::Receiver<()>) {
    let (wake, is_woken) = tokio::sync::oneshot::channel();
    let task = runtime.spawn(async { is_woken.await.unwrap() });
    let (ended, has_ended) = mpsc::channel();
    let task = Mutex::new(Some((wake, task)));
    (Waker::from(Arc::new(Joins { runtime: runtime.handle().clone(), task, ended })), has_ended)
}

/// The task would otherwise run right after the packet whose handler calls the waker.
#[test]
fn a_waker_may_wait_for_a_task_that_it_wakes() {
    let runtime = runtime(1);
    let (waker, has_ended) = waker_that_joins(&runtime);
    let _entered = runtime.handle().enter();
    let mut timer = pin!(sleep(Duration::from_millis(1)));
    assert!(timer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    has_ended.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{}", runtime.handle().dump()));
}

#[test]
fn block_on_loses_no_wake_whose_token_the_future_takes() {
    let (say, heard) = mpsc::channel();
    let blocks = thread::spawn(move || {
        let mut was_polled = false;
        runtime(1).block_on(poll_fn(|context| {
            if std::mem::replace(&mut was_polled, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            // It returns immediately, because the wake has left the token.
            thread::park();
            Poll::Pending
        }));
        say.send(()).unwrap();
    });
    heard.recv_timeout(LIMIT).expect("the wake is lost");
    blocks.join().unwrap();
}

#[test]
fn blocking_work_runs_beside_the_tasks() {
    let runtime = runtime(1);
    runtime.block_on(async {
        let barrier = Arc::new(Barrier::new(5));
        let work: Vec<_> = (0..4)
            .map(|number| {
                let barrier = Arc::clone(&barrier);
                spawn_blocking(move || {
                    barrier.wait();
                    number
                })
            })
            .collect();
        spawn(async move { barrier.wait() }).await.unwrap();
        let mut sum = 0;
        for work in work {
            sum += work.await.unwrap();
        }
        assert_eq!(sum, 6);
        let panicked = spawn_blocking(|| std::panic::resume_unwind(Box::new(1))).await;
        assert!(panicked.map(|(): ()| ()).unwrap_err().is_panic());
    });
}

#[test]
fn the_limit_of_threads_is_reported_and_survived() {
    let runtime = Runtime::builder().concurrency(2).thread_limit(4).build().unwrap();
    let (release, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let sleepers: Vec<_> = (0..8)
        .map(|_| {
            let blocked = Arc::clone(&blocked);
            runtime.spawn(async move {
                let _ = blocked.lock().unwrap().recv();
            })
        })
        .collect();
    let begun = Instant::now();
    while runtime.handle().metrics().stalls == 0 {
        assert!(begun.elapsed() < LIMIT, "{}", runtime.handle().dump());
        thread::yield_now();
    }
    let metrics = runtime.handle().metrics();
    assert_eq!((metrics.threads, metrics.idle_threads, metrics.tasks), (4, 0, 8));
    assert!(runtime.handle().dump().to_string().contains("tasks.rs"));
    drop(release);
    runtime.block_on(async {
        for sleeper in sleepers {
            sleeper.await.unwrap();
        }
    });
}

#[test]
fn a_dropped_runtime_drops_its_tasks_and_their_handles_report_it() {
    let count = Arc::new(AtomicUsize::new(0));
    let runtime = runtime(2);
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let counted = Counted::new(&count);
            runtime.spawn(async move {
                let _counted = counted;
                if number % 2 == 0 {
                    sleep(Duration::from_secs(3600)).await;
                } else {
                    std::future::pending::<()>().await;
                }
            })
        })
        .collect();
    let handle = runtime.handle().clone();
    drop(runtime);
    assert_eq!(count.load(SeqCst), 0);
    let other = self::runtime(1);
    other.block_on(async {
        for task in tasks {
            assert!(task.await.unwrap_err().is_aborted());
        }
        // A task of a runtime that has ended is aborted immediately.
        let counted = Counted::new(&count);
        let late = handle.spawn(async move { drop(counted) });
        assert!(late.await.unwrap_err().is_aborted());
        assert_eq!(count.load(SeqCst), 0);
    });
    assert_eq!(handle.metrics().threads, 0);
}

/// Tasks that are spawned while the runtime ends are aborted, and every handle reports it.
#[test]
fn tasks_that_are_spawned_while_the_runtime_ends_are_aborted() {
    let other = runtime(1);
    for _ in 0..30 {
        let runtime = runtime(2);
        let handle = runtime.handle().clone();
        let spawning = thread::spawn(move || {
            let mut tasks = Vec::new();
            while handle.metrics().threads > 0 {
                tasks.push(handle.spawn(std::future::pending::<()>()));
                thread::yield_now();
            }
            tasks
        });
        drop(runtime);
        let tasks = spawning.join().unwrap();
        other.block_on(async {
            for task in tasks {
                let ended = timeout(LIMIT, task).await.unwrap();
                assert!(ended.unwrap_err().is_aborted());
            }
        });
    }
}

#[test]
fn a_runtime_that_drains_lets_its_tasks_end() {
    let runtime = runtime(2);
    let (say, heard) = mpsc::channel();
    for number in 0..10 {
        let say = say.clone();
        drop(runtime.spawn(async move {
            sleep(Duration::from_millis(10)).await;
            say.send(number).unwrap();
        }));
    }
    assert!(runtime.shutdown(Shutdown::Drain, Some(LIMIT)));
    assert_eq!(heard.try_iter().count(), 10);
}

#[test]
fn a_shutdown_with_a_limit_leaves_a_task_that_does_not_return() {
    let runtime = runtime(2);
    let (release, blocked) = mpsc::channel::<()>();
    let (say, heard) = mpsc::channel();
    drop(runtime.spawn(async move {
        say.send(()).unwrap();
        let _ = blocked.recv();
        say.send(()).unwrap();
    }));
    heard.recv_timeout(LIMIT).unwrap();
    assert!(!runtime.shutdown(Shutdown::Abort, Some(Duration::from_millis(20))));
    drop(release);
    heard.recv_timeout(LIMIT).unwrap();
}

#[test]
fn a_runtime_may_be_dropped_in_its_own_task_and_in_another_runtime() {
    let outer = runtime(1);
    outer.block_on(async {
        let inner = runtime(1);
        assert_eq!(inner.block_on(async { 1 }), 1);
        spawn(async move { drop(inner) }).await.unwrap();
    });
    let (say, heard) = mpsc::channel();
    let handle = outer.handle().clone();
    drop(handle.spawn(async move {
        drop(outer);
        say.send(()).unwrap();
    }));
    heard.recv_timeout(LIMIT).unwrap();
}

#[test]
fn time_passes() {
    let runtime = runtime(1);
    runtime.block_on(async {
        let begun = Instant::now();
        sleep(Duration::from_millis(20)).await;
        assert!(begun.elapsed() >= Duration::from_millis(20));
        assert!(timeout(Duration::from_millis(5), std::future::pending::<()>()).await.is_err());
        assert_eq!(timeout(LIMIT, async { 4 }).await, Ok(4));

        let mut ticks = interval(Duration::from_millis(2));
        let first = ticks.tick().await;
        let second = ticks.tick().await;
        assert_eq!(second - first, Duration::from_millis(2));
        // A missed tick is not repeated.
        let missed = Instant::now() + Duration::from_millis(9);
        while Instant::now() < missed {
            thread::yield_now();
        }
        ticks.tick().await;
        let next = ticks.tick().await;
        assert!(Instant::now() >= next);

        // The deadline is moved, later and earlier.
        let mut moved = std::pin::pin!(sleep(Duration::from_millis(2)));
        let polled = timeout(Duration::from_millis(1), moved.as_mut()).await;
        let until = Instant::now() + Duration::from_millis(15);
        moved.as_mut().get_mut().reset(until);
        assert!(polled.is_err() || polled.is_ok());
        moved.as_mut().await;
        assert!(Instant::now() >= until);
        let mut far = std::pin::pin!(sleep(Duration::from_secs(3600)));
        assert!(timeout(Duration::from_millis(1), far.as_mut()).await.is_err());
        far.as_mut().get_mut().reset(Instant::now() + Duration::from_millis(1));
        far.await;
    });
}
