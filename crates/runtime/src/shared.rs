//! What a runtime's threads, tasks and handles share: the port, and what its packets do.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use completion_port::{Outcome, Packet, Port, PortBuilder, Result};

use crate::context;
use crate::fs::Pending;
use crate::pool::Pool;
use crate::readiness::SocketState;
use crate::task::{Runnable, TaskList};
use crate::time::Timer;

/// What threads and tasks send through the port.
pub(crate) enum Message {
    /// A task to be polled.
    Run(Runnable),
    /// A timer has expired.
    Timer(Arc<Timer>),
    /// An operation on a file has ended.
    File(Arc<Pending>, Outcome),
}

/// The phase of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    Open,
    /// New tasks are refused.
    Ending,
}

pub(crate) struct Shared {
    pub(crate) port: Port<Arc<SocketState>, Message>,
    pub(crate) pool: Pool,
    pub(crate) tasks: TaskList,
    phase: AtomicU8,
    /// Tasks that the closed port has refused. They are dropped where no waker is being called,
    /// because dropping a future runs the program's code.
    refused: Mutex<Vec<Message>>,
    /// Signals that a task has ended, or a thread.
    ended: (Mutex<()>, Condvar),
}

impl Shared {
    pub(crate) fn new(builder: PortBuilder, pool: Pool) -> Result<Self> {
        Ok(Self {
            port: builder.build()?,
            pool,
            tasks: TaskList::default(),
            phase: AtomicU8::new(Phase::Open as u8),
            refused: Mutex::new(Vec::new()),
            ended: (Mutex::new(()), Condvar::new()),
        })
    }

    pub(crate) fn is_open(&self) -> bool {
        self.phase.load(SeqCst) == Phase::Open as u8
    }

    /// Refuses new tasks from now on.
    pub(crate) fn begin_end(&self) {
        self.phase.store(Phase::Ending as u8, SeqCst);
    }

    /// Schedules a task that was woken.
    ///
    /// On a thread of this runtime it goes first, and the task that was to go first is queued. On
    /// other threads, and if the task yields, it is queued.
    pub(crate) fn schedule(&self, runnable: Runnable) {
        match context::accept_woken(self, runnable) {
            None => {}
            Some((runnable, true)) => self.refuse(self.port.post_next(Message::Run(runnable))),
            Some((runnable, false)) => self.post(runnable),
        }
    }

    /// Queues a task for any thread.
    pub(crate) fn post(&self, runnable: Runnable) {
        self.refuse(self.port.post(Message::Run(runnable)));
    }

    /// Keeps a message that the port has refused until it can be dropped.
    pub(crate) fn refuse(
        &self,
        posted: std::result::Result<(), completion_port::Refused<Message>>,
    ) {
        if let Err(refused) = posted {
            self.refused
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(refused.into_parts().1);
        }
    }

    /// Drops what the port has refused. Returns whether there was anything.
    pub(crate) fn drop_refused(&self) -> bool {
        let refused =
            std::mem::take(&mut *self.refused.lock().unwrap_or_else(PoisonError::into_inner));
        let is_any = !refused.is_empty();
        for message in refused {
            // A panic of one future must not keep the others.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(message)));
        }
        is_any
    }

    /// Handles a packet, on a thread of the pool.
    pub(crate) fn handle(&self, packet: Packet<'_, Arc<SocketState>, Message>) {
        let handled = catch_unwind(AssertUnwindSafe(|| match packet {
            Packet::Posted(Message::Run(runnable)) => run(runnable),
            Packet::Posted(Message::Timer(timer)) => timer.expire(self),
            Packet::Posted(Message::File(pending, outcome)) => pending.complete(outcome),
            Packet::Notified(notified) => {
                let events = notified.events();
                let state = notified.into_key();
                // A task that is woken here is run right afterwards, without passing the queue.
                if let Some(runnable) = context::collect_woken(|| state.report(events)) {
                    drop(state);
                    run(runnable);
                }
            }
            // The registration has ended. A task that still waits tries again, and gets an error.
            Packet::Removed(_, state) => state.wake_all(),
            _ => {}
        }));
        // A task's own panics are in its output. This one came from the code of a waker, which may
        // have woken a task before.
        if handled.is_err()
            && let Some(runnable) = context::take_collected()
        {
            self.post(runnable);
        }
    }

    pub(crate) fn task_ended(&self) {
        if !self.is_open() {
            self.signal_end();
        }
    }

    /// Wakes the threads in [`Shared::wait_until`].
    pub(crate) fn signal_end(&self) {
        let _guard = self.ended.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.ended.1.notify_all();
    }

    /// Waits until `condition` holds, at most until `deadline`. Returns whether it holds.
    pub(crate) fn wait_until(
        &self,
        deadline: Option<Instant>,
        condition: impl Fn() -> bool,
    ) -> bool {
        let mut guard = self.ended.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !condition() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return false;
            }
            let left = left.unwrap_or(Duration::MAX).min(Duration::from_secs(3600));
            guard = self
                .ended
                .1
                .wait_timeout(guard, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard);
        }
        true
    }
}

/// Polls a task.
fn run(runnable: Runnable) {
    runnable.run();
}
