//! A tokio runtime without workers, which threads of ours poll (`Builder::tokio_workers`). What holds
//! with workers too is in `compat.rs`.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::BlockDetection;
use completion_port_runtime::{
    Builder, Handle, Runtime, Shutdown, sleep, spawn, spawn_blocking, yield_now,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::tasks::waker_that_joins;

/// A failure, not a measurement: nothing takes this long on any machine.
const LIMIT: Duration = Duration::from_secs(60);

fn builder(concurrency: usize) -> Builder {
    Runtime::builder().concurrency(concurrency).thread_name("it").tokio_compat().tokio_workers(0)
}

fn runtime(concurrency: usize) -> Runtime {
    builder(concurrency).build().unwrap()
}

/// Calls `f` on another thread, and fails if that takes too long.
fn in_time<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || sender.send(f()).unwrap());
    receiver.recv_timeout(LIMIT).unwrap()
}

/// Runs a future in a task, and fails if that takes too long.
fn run<T: Send + 'static>(
    runtime: &Runtime,
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let (sender, receiver) = mpsc::channel();
    drop(runtime.spawn(async move { sender.send(future.await).unwrap() }));
    receiver.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{}", runtime.handle().dump()))
}

/// Waits until a thread is in tokio's driver, and no other one runs.
fn until_idle(runtime: &Runtime) {
    let begun = Instant::now();
    loop {
        let metrics = runtime.handle().metrics();
        if (metrics.tokio_threads, metrics.idle_threads) == (1, metrics.threads - 1) {
            return;
        }
        assert!(begun.elapsed() < LIMIT, "{}", runtime.handle().dump());
        thread::yield_now();
    }
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// Connects two of tokio's streams.
async fn tokio_pair() -> (tokio::net::TcpStream, tokio::net::TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

#[test]
fn the_setting_is_for_a_runtime_with_tokio() {
    let without = Runtime::builder().concurrency(2).thread_limit(4).tokio_workers(0);
    let without = without.build().unwrap();
    let metrics = without.handle().metrics();
    assert!(without.handle().tokio().is_none());
    assert_eq!((metrics.thread_limit, metrics.tokio_threads), (4, 0));
    let one = Runtime::builder().concurrency(2).tokio_compat().tokio_workers(1).build().unwrap();
    assert_eq!(one.handle().tokio().unwrap().metrics().num_workers(), 1);
    let metrics = one.handle().metrics();
    assert_eq!((metrics.thread_limit, metrics.tokio_threads), (512, 0));
    let default = Runtime::builder().concurrency(3).tokio_compat().build().unwrap();
    assert_eq!(default.handle().tokio().unwrap().metrics().num_workers(), 3);
}

/// One more than the others, which neither sleeps in a task nor waits for one.
#[test]
fn the_thread_in_the_driver_is_counted_and_described() {
    let runtime = builder(2).thread_limit(3).build().unwrap();
    until_idle(&runtime);
    let metrics = runtime.handle().metrics();
    assert_eq!((metrics.threads, metrics.thread_limit), (4, 4));
    assert_eq!((metrics.idle_threads, metrics.blocked_threads, metrics.stalls), (3, 0, 0));
    let dump = runtime.handle().dump().to_string();
    let first = "4 threads (at most 4): 3 idle, 0 asleep, 0 running, 1 polls tokio; 0 tasks, ";
    assert!(dump.starts_with(first), "{dump}");
    assert_eq!(dump.matches("): polls tokio for ").count(), 1, "{dump}");
}

/// With a limit of two threads, one may be blocked.
#[test]
fn the_thread_in_the_driver_leaves_the_others_to_tasks() {
    let runtime = builder(1).thread_limit(2).build().unwrap();
    let (release, released) = mpsc::channel::<()>();
    let (begun, has_begun) = mpsc::channel();
    let blocked = runtime.spawn(async move {
        begun.send(()).unwrap();
        released.recv_timeout(LIMIT).unwrap();
    });
    has_begun.recv_timeout(LIMIT).unwrap();
    let limit = Instant::now() + LIMIT;
    while runtime.handle().metrics().tokio_threads == 0 {
        assert!(Instant::now() < limit, "{}", runtime.handle().dump());
        thread::yield_now();
    }
    run(&runtime, async {});
    run(&runtime, pause());
    release.send(()).unwrap();
    runtime.block_on(blocked).unwrap();
}

/// It does not count as running, even if the port detects nothing.
#[test]
fn the_thread_in_the_driver_takes_no_place_of_a_running_one() {
    let builder = builder(1).block_detection(BlockDetection::Announced).overcommit_after(None);
    let runtime = builder.build().unwrap();
    until_idle(&runtime);
    run(&runtime, async {});
    run(&runtime, pause());
    assert_eq!(runtime.handle().metrics().blocks_found, 0);
}

/// tokio wakes its driver.
#[test]
fn another_thread_adds_to_what_a_sleeping_driver_waits_for() {
    let runtime = Arc::new(runtime(1));
    let other = Arc::clone(&runtime);
    in_time(move || {
        for _ in 0..20 {
            until_idle(&other);
            other.block_on(pause());
            until_idle(&other);
            other.block_on(async {
                let (mut near, mut far) = tokio_pair().await;
                near.write_all(b"x").await.unwrap();
                far.read_exact(&mut [0]).await.unwrap();
            });
            until_idle(&other);
            let _in_tokio = other.handle().tokio().unwrap().enter();
            let _entered = other.handle().enter();
            let of_tokio = tokio::spawn(async { spawn(async { 1 }).await.unwrap() });
            assert_eq!(other.block_on(of_tokio).unwrap(), 1);
        }
    });
}

/// More tasks than may run are woken in one turn, and each of them blocks until the last one comes,
/// for which the driver has to be polled again.
#[test]
fn tasks_that_block_after_a_turn_leave_the_others_and_the_driver() {
    const TASKS: usize = 4;
    for concurrency in [1, 2] {
        let runtime = runtime(concurrency);
        let all = Arc::new(Barrier::new(TASKS + 1));
        let at = tokio::time::Instant::now() + Duration::from_millis(20);
        for _ in 0..TASKS {
            let all = Arc::clone(&all);
            drop(runtime.spawn(async move {
                tokio::time::sleep_until(at).await;
                all.wait();
            }));
        }
        run(&runtime, async move {
            let (mut near, mut far) = tokio_pair().await;
            let writes = spawn(async move {
                tokio::time::sleep_until(at + Duration::from_millis(10)).await;
                near.write_all(b"x").await
            });
            far.read_exact(&mut [0]).await.unwrap();
            all.wait();
            writes.await.unwrap().unwrap();
        });
        assert_eq!(runtime.handle().metrics().stalls, 0);
    }
}

#[test]
fn a_task_that_computes_after_a_turn_leaves_the_driver() {
    for concurrency in [1, 2] {
        let runtime = runtime(concurrency);
        let is_told = Arc::new(AtomicBool::new(false));
        let tells = Arc::clone(&is_told);
        let computes = runtime.spawn(async move {
            pause().await;
            while !is_told.load(SeqCst) {
                std::hint::spin_loop();
            }
        });
        run(&runtime, async move {
            for _ in 0..5 {
                pause().await;
            }
            tells.store(true, SeqCst);
        });
        runtime.block_on(computes).unwrap();
    }
}

#[test]
fn many_tasks_are_woken_in_one_turn() {
    const TASKS: usize = 2_000;
    let runtime = runtime(2);
    let at = tokio::time::Instant::now() + Duration::from_millis(50);
    let ended = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&ended);
    run(&runtime, async move {
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let counted = Arc::clone(&counted);
                spawn(async move {
                    tokio::time::sleep_until(at).await;
                    counted.fetch_add(1, SeqCst);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert_eq!(ended.load(SeqCst), TASKS);
}

#[test]
fn tasks_that_yield_and_the_driver_take_turns() {
    let runtime = runtime(1);
    let is_told = Arc::new(AtomicBool::new(false));
    for _ in 0..3 {
        let is_told = Arc::clone(&is_told);
        drop(runtime.spawn(async move {
            while !is_told.load(SeqCst) {
                yield_now().await;
            }
        }));
    }
    run(&runtime, async move {
        for _ in 0..5 {
            pause().await;
        }
        is_told.store(true, SeqCst);
    });
}

/// Sockets of tokio that are always ready, and tasks of tokio that always yield, stop nothing.
#[test]
fn a_busy_driver_leaves_other_tasks_their_turn() {
    let runtime = runtime(1);
    let is_told = Arc::new(AtomicBool::new(false));
    let (floods, yields) = (Arc::clone(&is_told), Arc::clone(&is_told));
    drop(runtime.handle().tokio().unwrap().spawn(async move {
        while !yields.load(SeqCst) {
            tokio::task::yield_now().await;
        }
    }));
    run(&runtime, async move {
        let (mut near, mut far) = tokio_pair().await;
        let reads = spawn(async move { while far.read(&mut [0; 1024]).await.unwrap() > 0 {} });
        let writes = spawn(async move {
            while !floods.load(SeqCst) {
                near.write_all(&[0; 4096]).await.unwrap();
            }
        });
        for _ in 0..5 {
            sleep(Duration::from_millis(1)).await;
            pause().await;
        }
        is_told.store(true, SeqCst);
        writes.await.unwrap();
        reads.await.unwrap();
    });
}

#[test]
fn tasks_of_both_kinds_wake_each_other() {
    let runtime = runtime(1);
    run(&runtime, async {
        let (to_tokio, mut at_tokio) = tokio::sync::mpsc::channel::<u32>(1);
        let (to_ours, mut at_ours) = tokio::sync::mpsc::channel::<u32>(1);
        let of_tokio = tokio::spawn(async move {
            while let Some(number) = at_tokio.recv().await {
                to_ours.send(number + 1).await.unwrap();
            }
        });
        for number in 0..1_000 {
            to_tokio.send(number).await.unwrap();
            assert_eq!(at_ours.recv().await, Some(number + 1));
        }
        drop(to_tokio);
        of_tokio.await.unwrap();
    });
}

/// A task of tokio occupies the thread that has woken ours, which another one runs meanwhile.
#[test]
fn a_task_of_tokio_may_wait_for_a_task_that_it_has_woken() {
    let runtime = runtime(1);
    run(&runtime, async {
        let (wake, is_woken) = tokio::sync::oneshot::channel::<()>();
        let (answer, answered) = mpsc::channel();
        drop(spawn(async move {
            is_woken.await.unwrap();
            answer.send(7).unwrap();
        }));
        let of_tokio = tokio::spawn(async move {
            wake.send(()).unwrap();
            answered.recv_timeout(LIMIT).unwrap()
        });
        assert_eq!(of_tokio.await.unwrap(), 7);
    });
    // The same for a task that waits for the end of one of tokio's, before which another one blocks.
    run(&runtime, async {
        let (answer, answered) = mpsc::channel();
        tokio::spawn(async move {
            let first = tokio::spawn(async {});
            drop(spawn(async move {
                first.await.unwrap();
                answer.send(7).unwrap();
            }));
            let second = tokio::spawn(async move { answered.recv_timeout(LIMIT).unwrap() });
            assert_eq!(second.await.unwrap(), 7);
        })
        .await
        .unwrap();
    });
}

#[test]
fn what_blocks_is_nested_in_tasks_and_closures_of_both_kinds() {
    let runtime = runtime(1);
    let answers = run(&runtime, async {
        let tokio = tokio::runtime::Handle::current;
        // tokio's `block_on` on its timer, in a task of ours and in closures of both kinds.
        let one = spawn(async move {
            tokio().block_on(pause());
            1
        });
        let two = spawn_blocking(move || {
            tokio().block_on(pause());
            2
        });
        let three = tokio::task::spawn_blocking(move || {
            tokio().block_on(pause());
            // And ours, which reaches our tasks.
            Handle::current().block_on(async { spawn(async { 3 }).await.unwrap() })
        });
        let four = spawn(async { tokio::task::block_in_place(|| 4) });
        // Ours in a task of tokio, which then stops tokio until a task of ours ends.
        let five = tokio::spawn(async {
            Handle::current().block_on(async {
                sleep(Duration::from_millis(1)).await;
                spawn(async { 5 }).await.unwrap()
            })
        });
        [
            one.await.unwrap(),
            two.await.unwrap(),
            three.await.unwrap(),
            four.await.unwrap(),
            five.await.unwrap(),
        ]
    });
    assert_eq!(answers, [1, 2, 3, 4, 5]);
}

/// In a task of ours, and in one of tokio, which the thread in the outer driver runs.
#[test]
fn a_runtime_is_built_used_and_dropped_in_tasks_of_another_one() {
    async fn inner() -> u32 {
        let inner = runtime(1);
        inner.block_on(async {
            pause().await;
            tokio::spawn(async { spawn(async { 1 }).await.unwrap() }).await.unwrap()
        })
    }
    let outer = runtime(1);
    assert_eq!(run(&outer, inner()), 1);
    assert_eq!(run(&outer, async { tokio::spawn(inner()).await.unwrap() }), 1);
    run(&outer, pause());
}

/// Notes that it wakes, and panics.
struct Panics(Arc<AtomicBool>);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
        panic!("a test: a waker panics in tokio's driver");
    }
}

/// tokio loses its driver by that. What is ours continues, and the end comes.
#[test]
fn a_waker_that_panics_in_the_driver_ends_only_tokio() {
    let runtime = runtime(1);
    let tokio = runtime.handle().tokio().unwrap().clone();
    let in_tokio = tokio.enter();
    let mut timer = pin!(tokio::time::sleep(Duration::from_millis(1)));
    let has_panicked = Arc::new(AtomicBool::new(false));
    let waker = Waker::from(Arc::new(Panics(Arc::clone(&has_panicked))));
    assert!(timer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(in_tokio);
    // No thread polls tokio any more.
    let limit = Instant::now() + LIMIT;
    loop {
        let metrics = runtime.handle().metrics();
        let has_left = (metrics.tokio_threads, metrics.idle_threads) == (0, metrics.threads);
        if has_left && has_panicked.load(SeqCst) {
            break;
        }
        assert!(Instant::now() < limit, "{}", runtime.handle().dump());
        run(&runtime, sleep(Duration::from_millis(1)));
    }
    run(&runtime, sleep(Duration::from_millis(1)));
    assert!(in_time(move || runtime.shutdown(Shutdown::Drain, None)));
}

#[test]
fn a_waker_in_the_driver_may_wait_for_a_task_that_it_wakes() {
    let runtime = runtime(1);
    let (waker, has_ended) = waker_that_joins(&runtime);
    let in_tokio = runtime.handle().tokio().unwrap().enter();
    let mut timer = pin!(tokio::time::sleep(Duration::from_millis(1)));
    assert!(timer.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(in_tokio);
    has_ended.recv_timeout(LIMIT).unwrap_or_else(|_| panic!("{}", runtime.handle().dump()));
    run(&runtime, pause());
}

#[test]
fn a_task_that_panics_after_a_turn_loses_neither_the_driver_nor_the_others() {
    let runtime = runtime(1);
    let at = tokio::time::Instant::now() + Duration::from_millis(20);
    let sleeps = move || tokio::time::sleep_until(at);
    let panics: Vec<_> = (0..4)
        .map(|_| {
            runtime.spawn(async move {
                sleeps().await;
                panic!("a test: a task panics");
            })
        })
        .collect();
    run(&runtime, async move { sleeps().await });
    for panicked in panics {
        assert!(runtime.block_on(panicked).unwrap_err().is_panic());
    }
    run(&runtime, pause());
}

#[test]
fn the_end_wakes_the_thread_in_the_driver() {
    for how in [Shutdown::Abort, Shutdown::Drain] {
        let runtime = runtime(2);
        until_idle(&runtime);
        assert!(in_time(move || runtime.shutdown(how, None)), "{how:?}");
    }
    for _ in 0..50 {
        // The driver may be on its way to sleep.
        let runtime = runtime(1);
        in_time(move || drop(runtime));
    }
}

/// Notes that it was dropped.
struct Notes(mpsc::Sender<&'static str>, &'static str);

impl Drop for Notes {
    fn drop(&mut self) {
        let _ = self.0.send(self.1);
    }
}

/// It runs on the thread that polls tokio, which is none that polls a task of ours.
#[test]
fn a_task_of_tokio_ends_the_runtime() {
    for timeout in [None, Some(LIMIT)] {
        let runtime = runtime(2);
        // What is shared stays.
        let handle = runtime.handle().clone();
        let (dropped, drops) = mpsc::channel();
        let (ours, of_tokio) = (Notes(dropped.clone(), "ours"), Notes(dropped, "tokio's"));
        let tokio = runtime.handle().tokio().unwrap().clone();
        let (begun, has_begun) = mpsc::channel();
        let begun_too = begun.clone();
        tokio.spawn(async move {
            let _of_tokio = of_tokio;
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        drop(runtime.spawn(async move {
            let _ours = ours;
            begun_too.send(()).unwrap();
            std::future::pending::<()>().await;
        }));
        (0..2).for_each(|_| has_begun.recv_timeout(LIMIT).unwrap());
        let (sender, receiver) = mpsc::channel();
        let (first, is_first) = mpsc::channel();
        tokio.spawn(async move {
            let has_ended = receiver
                .recv_timeout(LIMIT)
                .map(|it: Runtime| it.shutdown(Shutdown::Abort, timeout));
            first.send((has_ended, drops.try_recv(), drops)).unwrap();
        });
        sender.send(runtime).unwrap();
        let (has_ended, first, drops) = is_first.recv_timeout(LIMIT).unwrap();
        assert_eq!((has_ended, first), (Ok(true), Ok("ours")));
        // tokio ends once the task has returned.
        assert_eq!(drops.recv_timeout(LIMIT), Ok("tokio's"));
        assert_eq!(handle.metrics().tokio_threads, 0);
    }
}

/// The task that is left is waited for.
#[test]
fn a_task_of_tokio_drains_the_runtime() {
    let runtime = runtime(2);
    let tokio = runtime.handle().tokio().unwrap().clone();
    let last = runtime.spawn(sleep(Duration::from_millis(20)));
    let (sender, receiver) = mpsc::channel::<Runtime>();
    let (ended, has_ended) = mpsc::channel();
    tokio.spawn(async move {
        let runtime = receiver.recv_timeout(LIMIT).unwrap();
        ended.send(runtime.shutdown(Shutdown::Drain, Some(LIMIT))).unwrap();
    });
    sender.send(runtime).unwrap();
    assert_eq!(has_ended.recv_timeout(LIMIT), Ok(true));
    let output = Runtime::new().unwrap().block_on(last);
    assert!(output.is_ok(), "{output:?}");
}

/// A task of ours that blocks does not hold up the thread in the driver, nor the end of tokio.
#[test]
fn a_task_of_ours_ends_the_runtime() {
    let runtime = runtime(1);
    let (dropped, drops) = mpsc::channel();
    let of_tokio = Notes(dropped, "tokio's");
    let tokio = runtime.handle().tokio().unwrap().clone();
    drop(tokio.spawn(async move {
        let _of_tokio = of_tokio;
        std::future::pending::<()>().await;
    }));
    let (sender, receiver) = mpsc::channel::<Runtime>();
    let (ended, has_ended) = mpsc::channel();
    drop(runtime.spawn(async move {
        // The turn is behind this task, on the same thread.
        pause().await;
        let runtime = receiver.recv_timeout(LIMIT).unwrap();
        ended.send(runtime.shutdown(Shutdown::Drain, None)).unwrap();
    }));
    sender.send(runtime).unwrap();
    assert_eq!(has_ended.recv_timeout(LIMIT), Ok(true));
    assert_eq!(drops.recv_timeout(LIMIT), Ok("tokio's"));
}

/// The thread that ends tokio drops its tasks.
#[test]
fn the_end_does_not_wait_longer_for_the_destructor_of_a_task_of_tokio_than_it_may() {
    struct Blocks(mpsc::Receiver<()>, Arc<AtomicBool>);
    impl Drop for Blocks {
        fn drop(&mut self) {
            self.0.recv().unwrap();
            self.1.store(true, SeqCst);
        }
    }
    let runtime = runtime(1);
    let (release, released) = mpsc::channel();
    let has_ended = Arc::new(AtomicBool::new(false));
    let blocks = Blocks(released, Arc::clone(&has_ended));
    let (begun, has_begun) = mpsc::channel();
    runtime.handle().tokio().unwrap().spawn(async move {
        let _blocks = blocks;
        begun.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    has_begun.recv_timeout(LIMIT).unwrap();
    in_time(move || runtime.shutdown(Shutdown::Abort, Some(Duration::from_millis(50))));
    release.send(()).unwrap();
    let limit = Instant::now() + LIMIT;
    while !has_ended.load(SeqCst) {
        assert!(Instant::now() < limit);
        thread::yield_now();
    }
}

/// The closures of tokio's `spawn_blocking` end before the shutdown does.
#[test]
fn the_end_waits_for_closures_of_tokio() {
    let runtime = runtime(1);
    let (begun, has_begun) = mpsc::channel();
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&has_ended);
    let handle = runtime.handle().clone();
    runtime.handle().tokio().unwrap().spawn_blocking(move || {
        begun.send(()).unwrap();
        // Until the shutdown has begun.
        while handle.block_on(handle.spawn(async {})).is_ok() {}
        (0..1_000).for_each(|_| thread::yield_now());
        ended.store(true, SeqCst);
    });
    has_begun.recv_timeout(LIMIT).unwrap();
    assert!(in_time(move || runtime.shutdown(Shutdown::Abort, None)));
    assert!(has_ended.load(SeqCst));
}
