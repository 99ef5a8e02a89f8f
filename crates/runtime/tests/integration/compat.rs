//! The tokio runtime next to ours: what runs where, what blocking stops, nesting and the end.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use completion_port_runtime::net::{TcpListener, TcpStream};
use completion_port_runtime::{Handle, Runtime, Shutdown, sleep, spawn, spawn_blocking};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// A failure, not a measurement: nothing takes this long on any machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Who polls tokio's sockets and timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polled {
    ByWorkers,
    ByOurThreads,
}

fn runtime(concurrency: usize, polled: Polled) -> Runtime {
    let builder = Runtime::builder().concurrency(concurrency).thread_name("it").tokio_compat();
    match polled {
        Polled::ByWorkers => builder.build().unwrap(),
        Polled::ByOurThreads => builder.tokio_workers(0).build().unwrap(),
    }
}

/// Makes two tests of each function.
macro_rules! tests {
    ($($name:ident,)*) => {
        mod with_workers {
            $(#[test] fn $name() { super::$name(super::Polled::ByWorkers); })*
        }
        mod without_workers {
            $(#[test] fn $name() { super::$name(super::Polled::ByOurThreads); })*
        }
    };
}

tests! {
    sockets_and_timers_of_tokio_work_in_our_tasks,
    tasks_of_each_runtime_run_on_its_own_threads,
    a_task_of_ours_that_blocks_stops_no_other_one,
    a_task_of_tokio_that_blocks_stops_tokio_but_not_ours,
    a_task_of_tokio_moves_what_blocks_to_ours,
    block_on_may_be_nested_in_both_runtimes,
    destructors_of_our_tasks_can_use_tokio_which_ends_last,
    a_runtime_may_be_dropped_in_every_context,
    a_shutdown_does_not_wait_longer_for_tokio_than_it_may,
}

fn thread_name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

/// Connects two of tokio's streams.
async fn tokio_pair() -> (tokio::net::TcpStream, tokio::net::TcpStream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

fn sockets_and_timers_of_tokio_work_in_our_tasks(polled: Polled) {
    let runtime = runtime(2, polled);
    runtime.block_on(async {
        let (mut near, mut far) = tokio_pair().await;
        let echo = spawn(async move {
            assert_eq!(thread_name(), "it");
            let mut buffer = vec![0; 1000];
            let mut all = 0;
            while let Ok(read @ 1..) = far.read(&mut buffer).await {
                far.write_all(&buffer[..read]).await.unwrap();
                all += read;
            }
            all
        });
        let sent: Vec<u8> = (0..100_000_u32).map(|it| it.to_le_bytes()[0]).collect();
        let mut received = Vec::new();
        for part in sent.chunks(7777) {
            near.write_all(part).await.unwrap();
            let mut back = vec![0; part.len()];
            tokio::time::timeout(LIMIT, near.read_exact(&mut back)).await.unwrap().unwrap();
            received.extend(back);
        }
        assert!(sent == received, "other bytes came back");
        drop(near);
        assert_eq!(echo.await.unwrap(), sent.len());
        let never = std::future::pending::<()>();
        let elapsed = spawn(tokio::time::timeout(Duration::from_millis(1), never)).await.unwrap();
        assert!(elapsed.is_err());
    });
}

fn tasks_of_each_runtime_run_on_its_own_threads(polled: Polled) {
    let runtime = runtime(2, polled);
    let names = runtime.block_on(async {
        let ours = spawn(async { thread_name() }).await.unwrap();
        let our_blocking = spawn_blocking(|| {
            // It is in both contexts.
            tokio::runtime::Handle::current();
            drop(Handle::current());
            thread_name()
        });
        let of_tokio = tokio::spawn(async {
            // A task of tokio reaches our runtime, and ours tokio again.
            let inner = spawn(async { tokio::spawn(async { thread_name() }).await.unwrap() });
            (thread_name(), inner.await.unwrap())
        });
        let (of_tokio, inner) = of_tokio.await.unwrap();
        [ours, our_blocking.await.unwrap(), of_tokio, inner]
    });
    let tokio = if polled == Polled::ByWorkers { "it-tokio" } else { "it" };
    assert_eq!(names, ["it", "it", tokio, tokio]);
}

fn a_task_of_ours_that_blocks_stops_no_other_one(polled: Polled) {
    const TASKS: usize = 2;
    let runtime = runtime(TASKS, polled);
    runtime.block_on(async {
        let (mut near, mut far) = tokio_pair().await;
        let all_block = Arc::new(Barrier::new(TASKS + 1));
        let (release, released) = mpsc::channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let blockers: Vec<_> = (0..TASKS)
            .map(|_| {
                let (all_block, released) = (Arc::clone(&all_block), Arc::clone(&released));
                spawn(async move {
                    all_block.wait();
                    released.lock().unwrap().recv_timeout(LIMIT).unwrap();
                })
            })
            .collect();
        all_block.wait();
        // As many tasks block as may run. These two use tokio's sockets and timers meanwhile.
        let quick = spawn(async move {
            let mut byte = [0];
            far.read_exact(&mut byte).await.unwrap();
            (0..TASKS).for_each(|_| release.send(()).unwrap());
            byte
        });
        spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            near.write_all(b"x").await.unwrap();
            near
        })
        .await
        .unwrap();
        assert_eq!(&quick.await.unwrap(), b"x");
        for blocker in blockers {
            blocker.await.unwrap();
        }
    });
}

fn a_task_of_tokio_that_blocks_stops_tokio_but_not_ours(polled: Polled) {
    // tokio has one worker, or none.
    let runtime = runtime(1, polled);
    let events = Arc::new(Mutex::new(Vec::new()));
    let note = |event| {
        let events = Arc::clone(&events);
        move || events.lock().unwrap().push(event)
    };
    let (begun, is_begun) = tokio::sync::oneshot::channel();
    let (release, released) = mpsc::channel::<()>();
    let (of_tokio, on_tokio, ours) = (note("tokio's"), note("on tokio's timer"), note("ours"));
    runtime.block_on(async {
        let blocker = tokio::spawn(async move {
            begun.send(()).unwrap();
            released.recv_timeout(LIMIT).unwrap();
        });
        is_begun.await.unwrap();
        let second = tokio::spawn(async move { of_tokio() });
        let waits_for_tokio = spawn(async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            on_tokio();
        });
        // Our sockets and timers work, in a task of ours.
        let quick = spawn(async move {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (far, _) = listener.accept().await.unwrap();
            sleep(Duration::from_millis(20)).await;
            far.write_all(b"x").await.unwrap();
            near.read_exact(&mut [0]).await.unwrap();
            ours();
            release.send(()).unwrap();
        });
        quick.await.unwrap();
        blocker.await.unwrap();
        second.await.unwrap();
        waits_for_tokio.await.unwrap();
    });
    assert_eq!(events.lock().unwrap()[0], "ours");
    assert_eq!(events.lock().unwrap().len(), 3);
}

fn a_task_of_tokio_moves_what_blocks_to_ours(polled: Polled) {
    let runtime = runtime(1, polled);
    let (release, released) = mpsc::channel::<()>();
    runtime.block_on(async {
        let blocker = tokio::spawn(async move {
            // It blocks a thread of ours, and tokio's only thread continues.
            spawn(async move { released.recv_timeout(LIMIT) }).await.unwrap().unwrap();
        });
        tokio::spawn(async move { release.send(()).unwrap() }).await.unwrap();
        blocker.await.unwrap();
    });
}

fn block_on_may_be_nested_in_both_runtimes(polled: Polled) {
    let runtime = runtime(1, polled);
    let answers = runtime.block_on(async {
        // tokio's, in a task of ours.
        let one = spawn(async {
            let tokio = tokio::runtime::Handle::current();
            tokio.block_on(async { tokio::spawn(async { 1 }).await.unwrap() })
        });
        // Ours, in a task of tokio.
        let two = tokio::spawn(async {
            Handle::current().block_on(async { spawn(async { 2 }).await.unwrap() })
        });
        // Ours, in a task of ours, on tokio's timer.
        let three = spawn(async {
            Handle::current().block_on(async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                tokio::task::block_in_place(|| 3)
            })
        });
        // Ours, in a task of tokio, with more calls of tokio than that task may make in a poll.
        let four = tokio::spawn(async {
            Handle::current().block_on(async {
                let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
                for _ in 0..500 {
                    sender.send(4).unwrap();
                    assert_eq!(receiver.recv().await, Some(4));
                }
                4
            })
        });
        [one.await.unwrap(), two.await.unwrap(), three.await.unwrap(), four.await.unwrap()]
    });
    assert_eq!(answers, [1, 2, 3, 4]);
}

/// Notes, when dropped, whether a task of tokio can be spawned there and ends.
struct Spawns(Arc<Mutex<Vec<&'static str>>>, &'static str);

impl Drop for Spawns {
    fn drop(&mut self) {
        let tokio = tokio::runtime::Handle::current();
        let is_spawned = tokio.block_on(tokio.spawn(async { true })).unwrap();
        assert!(is_spawned);
        self.0.lock().unwrap().push(self.1);
    }
}

fn destructors_of_our_tasks_can_use_tokio_which_ends_last(polled: Polled) {
    struct Notes(Arc<Mutex<Vec<&'static str>>>);
    impl Drop for Notes {
        fn drop(&mut self) {
            let is_in_context = Handle::try_current().is_some();
            self.0.lock().unwrap().push(if is_in_context { "tokio's" } else { "no context" });
        }
    }
    for how in [Shutdown::Abort, Shutdown::Drain] {
        let runtime = runtime(2, polled);
        let order = Arc::new(Mutex::new(Vec::new()));
        let (notes, spawns) = (Notes(Arc::clone(&order)), Spawns(Arc::clone(&order), "ours"));
        let (begun, is_begun) = mpsc::channel();
        let also_begun = begun.clone();
        runtime.handle().tokio().unwrap().spawn(async move {
            let _notes = notes;
            also_begun.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        drop(runtime.spawn(async move {
            let _spawns = spawns;
            begun.send(()).unwrap();
            if how == Shutdown::Abort {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }));
        (0..2).for_each(|_| is_begun.recv_timeout(LIMIT).unwrap());
        assert!(runtime.shutdown(how, None));
        assert_eq!(*order.lock().unwrap(), ["ours", "tokio's"], "{how:?}");
    }
}

fn a_runtime_may_be_dropped_in_every_context(polled: Polled) {
    // In a task of the tokio runtime it has started, which cannot wait for itself.
    let one = runtime(1, polled);
    let (sender, receiver) = mpsc::channel();
    let (dropped, is_dropped) = mpsc::channel();
    one.handle().tokio().unwrap().spawn(async move {
        drop::<Runtime>(receiver.recv().unwrap());
        dropped.send(()).unwrap();
    });
    sender.send(one).unwrap();
    is_dropped.recv_timeout(LIMIT).unwrap();
    // In one of its tasks.
    let own = runtime(1, polled);
    let (sender, receiver) = mpsc::channel();
    let (dropped, is_dropped) = mpsc::channel();
    drop(own.spawn(async move {
        drop::<Runtime>(receiver.recv().unwrap());
        dropped.send(()).unwrap();
    }));
    sender.send(own).unwrap();
    is_dropped.recv_timeout(LIMIT).unwrap();
    // In another tokio runtime, where a drop of a tokio runtime panics.
    let other = tokio::runtime::Builder::new_current_thread().build().unwrap();
    other.block_on(async { drop(runtime(1, polled)) });
}

/// Shuts a runtime down within this time, while a task of tokio blocks. Returns whether its own tasks
/// have ended, which takes longer on a busy machine.
fn shut_beside_a_blocked_task(time: Duration, polled: Polled) -> bool {
    let runtime = runtime(1, polled);
    let (begun, is_begun) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let has_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&has_ended);
    runtime.handle().tokio().unwrap().spawn(async move {
        begun.send(()).unwrap();
        released.recv_timeout(LIMIT).unwrap();
        ended.store(true, SeqCst);
    });
    is_begun.recv_timeout(LIMIT).unwrap();
    let is_done = runtime.shutdown(Shutdown::Abort, Some(time));
    assert!(!has_ended.load(SeqCst), "it has waited for a task of tokio");
    release.send(()).unwrap();
    is_done
}

/// The result is about our tasks only.
fn a_shutdown_does_not_wait_longer_for_tokio_than_it_may(polled: Polled) {
    let mut times = (0..8).map(|doublings| Duration::from_millis(50 << doublings));
    assert!(times.any(|time| shut_beside_a_blocked_task(time, polled)));
}

#[test]
fn without_the_setting_there_is_no_tokio() {
    let runtime = Runtime::new().unwrap();
    assert!(runtime.handle().tokio().is_none());
    let is_in_tokio = runtime.spawn(async { tokio::runtime::Handle::try_current().is_ok() });
    assert!(!runtime.block_on(is_in_tokio).unwrap());
}
