//! What the programs need of a runtime's timers.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::{Duration, Instant};

use completion_port_runtime::time;
use tokio::task::coop;

use crate::runtimes::api::{OnTokio, Ours, Runtime, Smol};

/// A runtime with timers. Its functions are called in its context.
pub(in crate::runtimes) trait Timed: Runtime {
    /// Completes at its deadline.
    type Timer: Future + Send + 'static;

    /// Makes one. It is armed when it is polled for the first time.
    fn timer(at: Instant) -> Self::Timer;

    /// Moves the deadline.
    fn move_to(timer: Pin<&mut Self::Timer>, at: Instant);

    /// Reads, and fails if that takes longer than this time.
    fn read_within(
        time: Duration,
        stream: &mut Self::Stream,
        buffer: &mut [u8],
    ) -> impl Future<Output = io::Result<usize>> + Send;

    /// Lets a task poll any number of timers without giving up its turn.
    fn unlimited<F: Future + Send + 'static>(
        task: F,
    ) -> impl Future<Output = F::Output> + Send + 'static;
}

impl Timed for Ours {
    type Timer = time::Sleep;

    fn timer(at: Instant) -> time::Sleep {
        time::sleep_until(at)
    }

    fn move_to(timer: Pin<&mut time::Sleep>, at: Instant) {
        timer.get_mut().reset(at);
    }

    async fn read_within(
        time: Duration,
        stream: &mut Self::Stream,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        time::timeout(time, Self::read(stream, buffer)).await?
    }

    fn unlimited<F: Future + Send + 'static>(
        task: F,
    ) -> impl Future<Output = F::Output> + Send + 'static {
        task
    }
}

impl<const EAGER: bool> Timed for OnTokio<EAGER> {
    type Timer = tokio::time::Sleep;

    fn timer(at: Instant) -> tokio::time::Sleep {
        tokio::time::sleep_until(at.into())
    }

    fn move_to(timer: Pin<&mut tokio::time::Sleep>, at: Instant) {
        timer.reset(at.into());
    }

    async fn read_within(
        time: Duration,
        stream: &mut Self::Stream,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        tokio::time::timeout(time, Self::read(stream, buffer)).await?
    }

    /// Otherwise a task has a budget, after which no timer is armed before the task yields.
    fn unlimited<F: Future + Send + 'static>(
        task: F,
    ) -> impl Future<Output = F::Output> + Send + 'static {
        coop::unconstrained(task)
    }
}

impl Timed for Smol {
    type Timer = smol::Timer;

    fn timer(at: Instant) -> smol::Timer {
        smol::Timer::at(at)
    }

    fn move_to(timer: Pin<&mut smol::Timer>, at: Instant) {
        timer.get_mut().set_at(at);
    }

    async fn read_within(
        time: Duration,
        stream: &mut Self::Stream,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let too_late = async {
            smol::Timer::after(time).await;
            Err(io::ErrorKind::TimedOut.into())
        };
        smol::future::or(Self::read(stream, buffer), too_late).await
    }

    fn unlimited<F: Future + Send + 'static>(
        task: F,
    ) -> impl Future<Output = F::Output> + Send + 'static {
        task
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;
    use crate::runtimes::api::Tokio;

    /// An armed timer that is moved completes at its new deadline or later.
    fn check<R: Timed>() {
        let runtime = R::start(None).unwrap();
        let moved = runtime.block_on(async {
            R::spawn(async {
                let begun = Instant::now();
                let (hour, soon) = (Duration::from_secs(3600), Duration::from_millis(20));
                for (first, then) in [(hour, soon), (soon, soon * 2)] {
                    let mut timer = Box::pin(R::timer(begun + first));
                    // One that is late is armed no more.
                    poll_fn(|context| Poll::Ready(timer.as_mut().poll(context).is_ready())).await;
                    let at = Instant::now() + then;
                    R::move_to(timer.as_mut(), at);
                    drop(timer.await);
                    if Instant::now() < at {
                        return false;
                    }
                }
                true
            })
            .await
        });
        assert!(moved, "a timer has completed before its deadline");
    }

    #[test]
    fn a_timer_moves_on_our_runtime() {
        check::<Ours>();
    }

    #[test]
    fn a_timer_moves_on_tokio() {
        check::<Tokio>();
    }

    #[test]
    fn a_timer_moves_on_smol() {
        check::<Smol>();
    }
}
