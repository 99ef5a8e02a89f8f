//! The tasks that a task has woken run on other threads if its own thread gets stuck.
//!
//! The task that was woken last is the next one of the thread, and no other thread is woken for it.
//! So it runs only if the port takes it back from the thread.

use std::future::poll_fn;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::task::{Poll, Waker};
use std::time::Duration;

use completion_port_runtime::{Handle, JoinHandle, Runtime};

/// A failure, not a measurement: nothing takes this long on any machine.
const LIMIT: Duration = Duration::from_secs(60);

/// A task that waits until it is woken. Its output is the number of its polls.
struct Waiting {
    task: JoinHandle<usize>,
    waker: Waker,
    is_polled_again: Receiver<()>,
}

impl Waiting {
    fn spawn(runtime: &Runtime) -> Self {
        let (say_waker, waker) = mpsc::channel();
        let (say, is_polled_again) = mpsc::channel();
        let mut polls = 0;
        let task = runtime.spawn(poll_fn(move |context| {
            polls += 1;
            if polls == 1 {
                say_waker.send(context.waker().clone()).unwrap();
                return Poll::Pending;
            }
            say.send(()).unwrap();
            Poll::Ready(polls)
        }));
        Self { task, waker: waker.recv_timeout(LIMIT).unwrap(), is_polled_again }
    }
}

/// A task wakes others, and then `stick` holds its thread until it is released. The others run
/// meanwhile, once each.
fn what_it_has_woken_runs_elsewhere(stick: impl FnOnce(&Receiver<()>) + Send + 'static) {
    let runtime = Runtime::builder().concurrency(1).build().unwrap();
    let waiting: Vec<_> = (0..3).map(|_| Waiting::spawn(&runtime)).collect();
    let wakers: Vec<_> = waiting.iter().map(|waiting| waiting.waker.clone()).collect();
    let (release, is_released) = mpsc::channel();
    let stuck = runtime.spawn(async move {
        wakers.into_iter().for_each(Waker::wake);
        stick(&is_released);
    });
    for waiting in &waiting {
        waiting.is_polled_again.recv_timeout(LIMIT).expect("a woken task waits for the stuck one");
    }
    assert!(!stuck.is_finished());
    release.send(()).unwrap();
    runtime.block_on(async {
        stuck.await.unwrap();
        for waiting in waiting {
            assert_eq!(waiting.task.await.unwrap(), 2);
        }
    });
}

#[test]
fn what_a_task_has_woken_runs_elsewhere_if_the_task_sleeps() {
    what_it_has_woken_runs_elsewhere(|is_released| {
        let _ = is_released.recv();
    });
}

#[test]
fn what_a_task_has_woken_runs_elsewhere_if_the_task_announces_that_it_blocks() {
    what_it_has_woken_runs_elsewhere(|is_released| {
        Handle::current().block_on(async {
            let _ = is_released.recv();
        });
    });
}

#[test]
fn what_a_task_has_woken_runs_elsewhere_if_the_task_computes() {
    what_it_has_woken_runs_elsewhere(|is_released| {
        while is_released.try_recv() == Err(TryRecvError::Empty) {
            std::hint::spin_loop();
        }
    });
}
