//! The end of a runtime, and code of the program that panics where only the runtime could notice.

use std::future::{pending, poll_fn};
use std::io::Write;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use completion_port_runtime::net::TcpStream;
use completion_port_runtime::time::Sleep;
use completion_port_runtime::{Handle, Runtime, Shutdown, sleep, spawn, timeout, yield_now};
use futures_io::AsyncRead as _;

const LIMIT: Duration = Duration::from_secs(60);

fn runtime(concurrency: usize) -> Runtime {
    Runtime::builder().concurrency(concurrency).build().unwrap()
}

/// Panics when it is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        // Nothing is allocated for that: the runtime forgets it.
        std::panic::resume_unwind(Box::new(()));
    }
}

/// Counts how often it is dropped.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Makes a stream of the current runtime, and one of the standard library.
fn streams() -> (TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (TcpStream::from_std(listener.accept().unwrap().0).unwrap(), far)
}

/// Polls a future once. It must not be ready.
async fn poll_once(future: &mut (impl Future + Unpin)) {
    poll_fn(|context| {
        assert!(Pin::new(&mut *future).poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
}

/// A task that yields goes behind those that were spawned before.
#[test]
fn a_task_that_yields_lets_queued_tasks_run_first() {
    const ROUNDS: usize = 100;
    let runtime = Runtime::builder().concurrency(1).overcommit_after(None).build().unwrap();
    let first = runtime.block_on(async {
        let task = spawn(async {
            let mut first = 0;
            for _ in 0..ROUNDS {
                let has_run = Arc::new(AtomicBool::new(false));
                let runs = Arc::clone(&has_run);
                let other = spawn(async move { runs.store(true, SeqCst) });
                yield_now().await;
                first += usize::from(has_run.load(SeqCst));
                other.await.unwrap();
            }
            first
        });
        task.await.unwrap()
    });
    // The system may stop the thread that has taken the other task.
    assert!(first > ROUNDS / 2, "{first} of {ROUNDS}");
}

/// A timer of one runtime, awaited in another, when the first one ends.
#[test]
fn a_task_that_waits_for_a_timer_of_an_ended_runtime_panics() {
    let (first, other) = (runtime(1), runtime(1));
    let mut sleep = sleep(Duration::from_secs(3600));
    first.block_on(poll_once(&mut sleep));
    let (say, waits) = mpsc::channel();
    let task = other.spawn(async move {
        poll_once(&mut sleep).await;
        say.send(()).unwrap();
        sleep.await;
    });
    waits.recv_timeout(LIMIT).unwrap();
    drop(first);
    let ended = other.block_on(async { timeout(LIMIT, task).await.unwrap() });
    assert!(ended.unwrap_err().is_panic());
}

/// The same in `block_on`, and for a timer that is polled for the first time afterwards.
#[test]
fn block_on_a_timer_of_an_ended_runtime_panics() {
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    let (say, waits) = mpsc::channel();
    let waiting = {
        let handle = handle.clone();
        thread::spawn(move || {
            handle.block_on(async move {
                let mut sleep = sleep(Duration::from_secs(3600));
                poll_once(&mut sleep).await;
                say.send(()).unwrap();
                sleep.await;
            });
        })
    };
    waits.recv_timeout(LIMIT).unwrap();
    drop(runtime);
    waiting.join().unwrap_err();
    thread::spawn(move || handle.block_on(sleep(Duration::from_secs(3600)))).join().unwrap_err();
}

/// A deadline that is moved forward wakes the task, although nothing polls it meanwhile.
#[test]
fn a_deadline_that_is_moved_to_an_earlier_time_wakes_the_task() {
    struct Signals(mpsc::Sender<()>);
    impl Wake for Signals {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    let runtime = runtime(1);
    let _entered = runtime.handle().enter();
    let (say, woken) = mpsc::channel();
    let waker = Waker::from(Arc::new(Signals(say)));
    let mut sleep: Sleep = sleep(Duration::from_secs(3600));
    assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
    sleep.reset(Instant::now() + Duration::from_millis(2));
    woken.recv_timeout(LIMIT).unwrap();
    assert!(sleep.is_elapsed());
}

/// Tasks of a runtime that drains may wait for their sockets.
#[test]
fn sockets_work_while_a_runtime_drains() {
    let runtime = runtime(2);
    let handle = runtime.handle().clone();
    let (near, mut far) = runtime.block_on(async { streams() });
    let reader = runtime.spawn(async move {
        let mut read = [0; 2];
        near.read_exact(&mut read[..1]).await?;
        near.read_exact(&mut read[1..]).await?;
        std::io::Result::Ok(read)
    });
    let ends = thread::spawn(move || runtime.shutdown(Shutdown::Drain, Some(LIMIT)));
    // It has begun to end when it refuses tasks.
    while !is_ending(&handle) {
        thread::yield_now();
    }
    far.write_all(b"a").unwrap();
    far.write_all(b"b").unwrap();
    assert!(ends.join().unwrap());
    let other = self::runtime(1);
    assert_eq!(other.block_on(reader).unwrap().unwrap(), *b"ab");
}

fn is_ending(handle: &Handle) -> bool {
    handle.block_on(handle.spawn(async {})).is_err_and(|error| error.is_aborted())
}

/// A task that returns after the shutdown, and was woken meanwhile, is dropped, and its handle
/// reports that.
#[test]
fn a_task_that_outlives_the_shutdown_is_dropped_when_it_returns() {
    let runtime = runtime(2);
    let dropped = Arc::new(AtomicUsize::new(0));
    let (release, blocked) = mpsc::channel::<()>();
    let (say, runs) = mpsc::channel();
    let counted = Counted(Arc::clone(&dropped));
    let task = runtime.spawn(async move {
        let _counted = counted;
        say.send(()).unwrap();
        let _ = blocked.recv();
        pending::<()>().await;
    });
    runs.recv_timeout(LIMIT).unwrap();
    assert!(!runtime.shutdown(Shutdown::Abort, Some(Duration::from_millis(20))));
    drop(release);
    let other = self::runtime(1);
    let ended = other.block_on(async { timeout(LIMIT, task).await.unwrap() });
    assert!(ended.unwrap_err().is_aborted());
    assert_eq!(dropped.load(SeqCst), 1);
}

/// The destructor of a future that the runtime drops without polling it panics.
#[test]
fn a_panic_of_a_future_that_is_dropped_without_a_poll_ends_nothing_else() {
    let runtime = runtime(1);
    let handle = runtime.handle().clone();
    drop(runtime);
    let bomb = Bomb;
    let task = handle.spawn(async move {
        let _bomb = bomb;
        pending::<()>().await;
    });
    assert!(self::runtime(1).block_on(task).unwrap_err().is_aborted());
}

/// A waker that panics, with a value whose destructor panics too, keeps no other task from being
/// woken, and ends no thread.
#[test]
fn a_waker_that_panics_keeps_no_other_task_from_being_woken() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new(Bomb));
        }
    }
    let runtime = runtime(1);
    let threads = runtime.handle().metrics().threads;
    runtime.block_on(async {
        let (near, mut far) = streams();
        let (mut half, other) = near.into_split();
        let (say, waits) = mpsc::channel();
        let reader = spawn(async move {
            let mut buffer = [0; 1];
            let mut read = pin!(other.stream().read_exact(&mut buffer));
            poll_once(&mut read).await;
            say.send(()).unwrap();
            read.await
        });
        waits.recv_timeout(LIMIT).unwrap();
        let waker = Waker::from(Arc::new(Panics));
        let mut context = Context::from_waker(&waker);
        assert!(Pin::new(&mut half).poll_read(&mut context, &mut [0; 1]).is_pending());
        far.write_all(b"x").unwrap();
        timeout(LIMIT, reader).await.unwrap().unwrap().unwrap();
    });
    assert_eq!(runtime.handle().metrics().threads, threads);
    assert!(runtime.shutdown(Shutdown::Abort, Some(LIMIT)));
}

/// A forked child has none of the threads: there, the end of a runtime waits for nothing, and new
/// tasks are aborted.
#[cfg(target_os = "linux")]
#[test]
fn a_runtime_in_a_forked_child_ends_without_its_threads() {
    let runtime = runtime(1);
    let task = runtime.spawn(pending::<()>());
    let status = testkit::in_forked_child(|| {
        let refused = runtime.handle().spawn(pending::<()>());
        let is_refused = refused.is_finished();
        drop(runtime);
        u8::from(!is_refused)
    });
    assert_eq!(status, 0);
    task.abort();
    assert!(self::runtime(1).block_on(task).unwrap_err().is_aborted());
}
