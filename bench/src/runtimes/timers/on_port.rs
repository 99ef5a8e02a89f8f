//! The bare port: timers are messages for a future time, for which threads wait as workers of a
//! runtime do.

use std::io;
use std::net::UdpSocket;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use completion_port::{Batch, Packet, Port};

use super::cancelled::{Begin, Cancelled, LATER, SPREAD};
use super::fired::{self, Fired, Firing};
use super::{spread, warm_up};

/// A message is a timer's number.
type Timers<M> = Port<UdpSocket, M>;

/// Closes the port at the end, however that comes. Its threads end with it.
struct Closing<'p, M>(&'p Timers<M>);

impl<M> Drop for Closing<'_, M> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Calls `run` while that many threads wait at the port and call `handle` with each message.
fn with_threads<M: Send, T>(
    port: &Timers<M>,
    threads: usize,
    handle: impl Fn(M) + Sync,
    run: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    thread::scope(|scope| {
        let _closing = Closing(port);
        for _ in 0..threads {
            scope.spawn(|| {
                let mut batch = Batch::with_capacity(64);
                // It fails when the port is closed.
                while let Ok(packets) = port.wait(&mut batch, None) {
                    for packet in packets {
                        let Packet::Posted(message) = packet else { continue };
                        handle(message);
                    }
                }
            });
        }
        run()
    })
}

/// The calling thread arms and cancels, while `threads` threads wait.
pub(super) fn cancelled(count: usize, threads: usize) -> io::Result<Cancelled> {
    let port: Timers<usize> = Port::builder().build()?;
    let fired = OnceLock::new();
    let handle = |number: usize| {
        // One of them is enough for the message.
        let _ = fired.set(number);
    };
    let cost = with_threads(&port, threads, handle, || {
        arm_cancel(&port, warm_up(count))?;
        arm_cancel(&port, count)
    })?;
    match fired.get() {
        None => Ok(cost),
        Some(number) => Err(io::Error::other(format!("timer {number} fired, and was cancelled"))),
    }
}

fn arm_cancel(port: &Timers<usize>, count: usize) -> io::Result<Cancelled> {
    let base = Instant::now() + LATER;
    let mut timers = Vec::with_capacity(count);
    let begin = Begin::now();
    for number in 0..count {
        timers.push(port.post_at(base + spread(number, SPREAD), number)?);
    }
    let schedule = begin.spent(count);
    let mut cancelled = 0;
    let begin = Begin::now();
    for (number, timer) in timers.into_iter().enumerate() {
        cancelled += usize::from(port.cancel_post(timer) == Some(number));
    }
    let cancel = begin.spent(count);
    if cancelled < count {
        return Err(io::Error::other(format!("{cancelled} of {count} timers were cancelled")));
    }
    Ok(Cancelled { schedule, moved: None, cancel })
}

/// The calling thread arms; `threads` threads take the messages.
pub(super) fn fired(count: usize, threads: usize) -> io::Result<Fired> {
    type Message = (Arc<Firing>, usize);
    let port: Timers<Message> = Port::builder().build()?;
    let handle = |(firing, number): Message| firing.fire(number);
    with_threads(&port, threads, handle, || {
        fired::repeat(count, |firing| {
            for number in 0..firing.timers() {
                port.post_at(firing.at(number), (Arc::clone(firing), number))?;
                firing.arm();
            }
            Ok(())
        })
    })
}
