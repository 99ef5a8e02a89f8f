//! R5: what tasks cost that exchange messages, for each runtime in a separate process.

use std::future::Future;
use std::hint::black_box;
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use async_channel::{Receiver, Sender, bounded, unbounded};
use serde::{Deserialize, Serialize};

use super::api::Runtime;
use crate::processor_time::Clock;

/// The receivers of a fan-out.
const RECEIVERS: usize = 64;
/// Tasks that are spawned before the first of them is awaited.
const TOGETHER: usize = 64;
/// Tasks that yield to one another.
const YIELDING: usize = 64;
/// How long each of two tasks computes that are woken by one.
const COMPUTING: Duration = Duration::from_millis(5);

/// A situation: its name in the command and in the title, and how many operations a round has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bench {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    pub(super) amount: usize,
}

pub(super) const SPREADING: &str = "spreading";

pub(super) const BENCHES: [Bench; 6] = [
    Bench { name: "ping-pong", about: "a round trip between two tasks", amount: 100_000 },
    Bench { name: "spawn", about: "spawning a task and awaiting its end", amount: 100_000 },
    Bench { name: "yield", about: "a yield, among 64 tasks", amount: 200_000 },
    Bench { name: "wake", about: "a round trip with a thread outside", amount: 10_000 },
    Bench { name: "fan-out", about: "one of 64 messages to as many tasks", amount: 200_000 },
    Bench {
        name: SPREADING,
        about: "one task wakes two that compute for 5 ms each, until both are done",
        amount: 20,
    },
];

/// What a round has cost in all.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Cost {
    /// Operations that were counted where they arrived.
    pub(super) operations: usize,
    /// Nanoseconds from the first to the last one.
    pub(super) elapsed: u64,
    /// Processor time of the process meanwhile, in nanoseconds.
    pub(super) processor: u64,
}

/// Performs that many operations. The error says that there is no such situation, or that something
/// other arrived than was sent.
pub(super) fn perform<R: Runtime>(runtime: &R, name: &str, amount: usize) -> io::Result<Cost> {
    // A tenth of it first, for the caches, the allocator and the threads of the runtime.
    let warm_up = (amount / 10).max(RECEIVERS);
    match name {
        "ping-pong" => twice(runtime, warm_up, amount, ping_pong::<R>),
        "spawn" => twice(runtime, warm_up, amount, spawn::<R>),
        "yield" => twice(runtime, warm_up, amount, yields::<R>),
        "wake" => twice(runtime, warm_up, amount, wake::<R>),
        "fan-out" => twice(runtime, warm_up, amount, fan_out::<R>),
        SPREADING => twice(runtime, 2, amount, spread::<R>),
        _ => Err(io::Error::other(format!("no situation `{name}`"))),
    }
}

/// Runs the situation in a task, since the main thread is not one of the runtime's.
fn twice<R: Runtime, F: Future<Output = usize> + Send + 'static>(
    runtime: &R,
    warm_up: usize,
    amount: usize,
    situation: fn(usize) -> F,
) -> io::Result<Cost> {
    runtime.block_on(async {
        R::spawn(situation(warm_up)).await;
        let (begun, used) = (Instant::now(), Clock::Process.now());
        let operations = R::spawn(situation(amount)).await;
        let (elapsed, processor) = (begun.elapsed(), Clock::Process.now() - used);
        if operations == 0 {
            return Err(io::Error::other("no operation was counted"));
        }
        Ok(Cost { operations, elapsed: nanoseconds(elapsed), processor: nanoseconds(processor) })
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Sends back every number.
async fn answer(from: Receiver<usize>, to: Sender<usize>) {
    while let Ok(number) = from.recv().await {
        if to.send(number).await.is_err() {
            return;
        }
    }
}

async fn ping_pong<R: Runtime>(trips: usize) -> usize {
    let ((to, from), (back_to, back)) = (bounded(1), bounded(1));
    let answering = R::spawn(answer(from, back_to));
    let mut arrived = 0;
    for number in 0..trips {
        let _ = to.send(number).await;
        assert_eq!(back.recv().await, Ok(number), "the answer to another message");
        arrived += 1;
    }
    drop(to);
    answering.await;
    arrived
}

async fn spawn<R: Runtime>(tasks: usize) -> usize {
    let mut ended = 0;
    let mut together = Vec::with_capacity(TOGETHER);
    for number in (0..tasks).step_by(TOGETHER) {
        let until = tasks.min(number + TOGETHER);
        together.extend((number..until).map(|number| R::spawn(async move { black_box(number) })));
        for (task, number) in together.drain(..).zip(number..) {
            assert_eq!(task.await, number, "the output of another task");
            ended += 1;
        }
    }
    ended
}

async fn yields<R: Runtime>(amount: usize) -> usize {
    let each = amount / YIELDING;
    let tasks: Vec<_> = (0..YIELDING)
        .map(|_| {
            R::spawn(async move {
                for _ in 0..each {
                    R::yield_now().await;
                }
                each
            })
        })
        .collect();
    let mut yielded = 0;
    for task in tasks {
        yielded += task.await;
    }
    yielded
}

/// The thread waits for each answer, so each message wakes the task from outside.
async fn wake<R: Runtime>(trips: usize) -> usize {
    let (to, from) = bounded(1);
    let (back_to, back) = mpsc::channel();
    let outside = thread::spawn(move || {
        for number in 0..trips {
            if to.send_blocking(number).is_err() || back.recv() != Ok(number) {
                return number;
            }
        }
        trips
    });
    while let Ok(number) = from.recv().await {
        let _ = back_to.send(number);
    }
    // It has closed the channel, and only returns.
    outside.join().unwrap_or(0)
}

async fn fan_out<R: Runtime>(messages: usize) -> usize {
    let (back_to, back) = unbounded();
    let (senders, tasks): (Vec<_>, Vec<_>) = (0..RECEIVERS)
        .map(|_| {
            let (to, from) = bounded(1);
            (to, R::spawn(answer(from, back_to.clone())))
        })
        .unzip();
    let mut arrived = 0;
    for round in 0..messages / RECEIVERS {
        for to in &senders {
            let _ = to.send(round).await;
        }
        for _ in 0..RECEIVERS {
            assert_eq!(back.recv().await, Ok(round), "an answer of another round");
            arrived += 1;
        }
    }
    drop(senders);
    for task in tasks {
        task.await;
    }
    arrived
}

/// Two tasks wait, a third one wakes both. Returns how often.
async fn spread<R: Runtime>(times: usize) -> usize {
    let ((first, first_from), (second, second_from)) = (bounded(1), bounded(1));
    let (done_to, done) = bounded(2);
    for from in [first_from, second_from] {
        let done_to = done_to.clone();
        R::detach(R::spawn(async move {
            while let Ok(()) = from.recv().await {
                compute();
                let _ = done_to.send(()).await;
            }
        }));
    }
    let mut woken = 0;
    for _ in 0..times {
        let _ = first.send(()).await;
        let _ = second.send(()).await;
        let both = (done.recv().await, done.recv().await);
        assert_eq!(both, (Ok(()), Ok(())), "a task has ended");
        woken += 1;
    }
    woken
}

/// By the processor's time, so that other processes make it no shorter.
fn compute() {
    let begun = Clock::Thread.now();
    while Clock::Thread.now() - begun < COMPUTING {
        black_box(begun);
    }
}

#[cfg(test)]
mod tests {
    use super::super::api::{Ours, Smol, Tokio};
    use super::*;

    /// The programs themselves check that each message arrives once, and in order.
    fn check<R: Runtime>() {
        let runtime = R::start(None).unwrap();
        for Bench { name, .. } in BENCHES {
            let amount = if name == SPREADING { 2 } else { 1280 };
            let cost = perform(&runtime, name, amount).unwrap();
            assert_eq!(cost.operations, amount, "{name}");
            if name == SPREADING {
                assert!(cost.processor >= nanoseconds(COMPUTING) * 4, "{cost:?}");
            }
        }
        assert!(perform(&runtime, "nothing", 1).is_err());
    }

    #[test]
    fn every_message_arrives_on_our_runtime() {
        check::<Ours>();
    }

    #[test]
    fn every_message_arrives_on_tokio() {
        check::<Tokio>();
    }

    #[test]
    fn every_message_arrives_on_smol() {
        check::<Smol>();
    }
}
