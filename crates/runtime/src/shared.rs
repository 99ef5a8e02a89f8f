//! What a runtime's threads, tasks and handles share: the port, and what its packets do.

use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use completion_port::{Outcome, Packet, Port};

use crate::activity::{SocketList, ThreadList};
#[cfg(feature = "tokio-compat")]
use crate::compat::driver::{self, Turn};
use crate::context;
use crate::fork;
use crate::fs::Pending;
use crate::pool::Pool;
use crate::readiness::SocketState;
use crate::state::contain;
use crate::state::ending::{Ending, Phase};
use crate::sync::{self, Mutex};
use crate::task::{Runnable, TaskList};
use crate::time::{self, Place, Timers};

/// What threads and tasks send through the port. It is small, since each one is copied several
/// times on its way.
pub(crate) enum Message {
    /// A task to be polled.
    Run(Runnable),
    /// A timer has expired: the one that was set for this place as the timer of this generation.
    Timer(Place, u32),
    /// An operation on a file has ended.
    File(Box<(Arc<Pending>, Outcome)>),
    /// tokio's driver is to be polled.
    #[cfg(feature = "tokio-compat")]
    Drive(Turn),
}

const _: () = assert!(size_of::<Message>() <= 16);

/// The port of a runtime.
pub(crate) type RuntimePort = Port<Arc<SocketState>, Message>;

pub(crate) struct Shared {
    pub(crate) port: RuntimePort,
    pub(crate) pool: Pool,
    pub(crate) tasks: TaskList,
    pub(crate) timers: Timers,
    pub(crate) ending: Ending,
    /// What only [`Handle::dump`](crate::Handle::dump) reads.
    pub(crate) threads: ThreadList,
    pub(crate) sockets: SocketList,
    pub(crate) built_at: Instant,
    /// Tells the runtimes of the process apart.
    pub(crate) number: u16,
    /// Tasks that the closed port has refused. They are dropped where no waker is being called,
    /// because dropping a future runs the program's code.
    refused: Mutex<Vec<Message>>,
    /// The process that has the threads.
    process: u32,
    /// What [`fork::count`] returns there.
    pub(crate) forks: u32,
    #[cfg(feature = "tokio-compat")]
    pub(crate) tokio: crate::compat::Tokio,
}

impl Shared {
    pub(crate) fn new(port: RuntimePort, pool: Pool) -> Self {
        static LAST: AtomicU16 = AtomicU16::new(0);
        Self {
            port,
            pool,
            tasks: TaskList::default(),
            timers: Timers::default(),
            ending: Ending::new(),
            threads: ThreadList::default(),
            sockets: SocketList::default(),
            built_at: sync::now(),
            number: LAST.fetch_add(1, SeqCst),
            refused: Mutex::new(Vec::new()),
            process: std::process::id(),
            forks: fork::count(),
            #[cfg(feature = "tokio-compat")]
            tokio: crate::compat::Tokio::default(),
        }
    }

    /// Returns whether the port was closed.
    pub(crate) fn is_closed(&self) -> bool {
        !self.ending.is_before(Phase::Closed)
    }

    /// Returns whether this process is a forked child, which has none of the threads.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Enters the context of the tokio runtime, if there is one, until the guard is dropped.
    #[cfg(feature = "tokio-compat")]
    pub(crate) fn enter_tokio(&self) -> Option<tokio::runtime::EnterGuard<'_>> {
        self.tokio.enter()
    }

    #[cfg(not(feature = "tokio-compat"))]
    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn enter_tokio(&self) -> Option<()> {
        None
    }

    /// Returns whether threads of the pool poll tokio.
    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn polls_tokio(&self) -> bool {
        #[cfg(feature = "tokio-compat")]
        return self.tokio.is_driven();
        #[cfg(not(feature = "tokio-compat"))]
        false
    }

    /// Returns the number of the thread that is polling tokio.
    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn polls_tokio_on(&self) -> Option<u64> {
        #[cfg(feature = "tokio-compat")]
        return self.tokio.polling_thread();
        #[cfg(not(feature = "tokio-compat"))]
        None
    }

    /// Returns whether the current thread is polling tokio, perhaps in a task of tokio.
    #[allow(clippy::unused_self, reason = "as with the feature")]
    pub(crate) fn is_polling_tokio(&self) -> bool {
        #[cfg(feature = "tokio-compat")]
        return context::is_in_pool(self) && driver::is_driving();
        #[cfg(not(feature = "tokio-compat"))]
        false
    }

    /// Returns how many threads the pool has, without another one that is polling tokio.
    pub(crate) fn threads_of_tasks(&self) -> usize {
        let polls = !self.is_polling_tokio() && self.polls_tokio_on().is_some();
        self.pool.threads().saturating_sub(usize::from(polls))
    }

    /// Prepares the current thread to wait for tasks. A waker may have called the code that waits:
    /// then what was woken before is queued, since this thread does not run it soon.
    pub(crate) fn prepare_to_wait() {
        context::with_pool(|shared| {
            context::stop_collecting().into_iter().for_each(|task| shared.post(task));
            #[cfg(feature = "tokio-compat")]
            driver::release(shared);
        });
    }

    /// Shuts the tokio runtime down, if there is one.
    pub(crate) fn end_tokio(self: &Arc<Self>, deadline: Option<Instant>) {
        #[cfg(feature = "tokio-compat")]
        self.tokio.end(self, deadline);
        #[cfg(not(feature = "tokio-compat"))]
        let _ = deadline;
    }

    /// Refuses new tasks from now on.
    pub(crate) fn begin_end(&self) {
        self.ending.enter(Phase::Ending);
    }

    /// Closes the port, and wakes everyone who waits for a socket or a timer.
    pub(crate) fn close(&self) {
        self.ending.enter(Phase::Closed);
        // It fails in a forked child, which has no threads.
        let _ = self.port.shutdown();
        self.timers.close();
        #[cfg(feature = "tokio-compat")]
        self.tokio.wake_driver();
    }

    /// Schedules a task that was woken.
    ///
    /// On a thread of this runtime it goes first, and the task that was to go first is queued. On
    /// other threads it is queued. One that was woken while it was polled, or yields, goes behind
    /// the thread's packets: this thread is awake, so no other one is woken to handle it.
    pub(crate) fn schedule(&self, runnable: Runnable, woken_while_running: bool) {
        if woken_while_running {
            return self.post_behind(runnable);
        }
        match context::accept_woken(self, runnable) {
            None => {}
            Some((runnable, true)) => {
                self.keep(refused(self.port.post_next(Message::Run(runnable))))
            }
            Some((runnable, false)) => self.post(runnable),
        }
    }

    /// Queues a task behind the packets of the current thread.
    pub(crate) fn post_behind(&self, runnable: Runnable) {
        self.keep(refused(self.port.post_behind(Message::Run(runnable))));
    }

    /// Queues the turn of tokio's driver behind the packets of the current thread. Returns it if the
    /// port has no memory for it, and drops it if the port was closed, or in a forked child.
    #[cfg(feature = "tokio-compat")]
    pub(crate) fn post_turn(&self, turn: Turn) -> Option<Turn> {
        match refused(self.port.post_behind(Message::Drive(turn))) {
            Some(Message::Drive(turn)) if !self.is_closed() && !self.is_forked() => Some(turn),
            _ => None,
        }
    }

    /// Queues a task for any thread.
    pub(crate) fn post(&self, runnable: Runnable) {
        self.keep(self.try_post(runnable));
    }

    /// Queues a task for any thread. Returns it if the port refuses it.
    pub(crate) fn try_post(&self, runnable: Runnable) -> Option<Message> {
        refused(self.port.post(Message::Run(runnable)))
    }

    /// Keeps a message that the port has refused for the manager, which drops it.
    fn keep(&self, refused: Option<Message>) {
        if let Some(message) = refused {
            self.refused.lock().unwrap_or_else(PoisonError::into_inner).push(message);
            self.pool.wake_manager();
        }
    }

    /// Drops what the port has refused, and what it refuses meanwhile.
    pub(crate) fn drop_refused(&self) {
        let _in_tokio = self.enter_tokio();
        loop {
            let refused =
                std::mem::take(&mut *self.refused.lock().unwrap_or_else(PoisonError::into_inner));
            if refused.is_empty() {
                return;
            }
            drop(refused);
        }
    }

    /// Handles a packet, on a thread of the pool.
    pub(crate) fn handle(&self, packet: Packet<'_, Arc<SocketState>, Message>) {
        let is_handled = contain(|| match packet {
            Packet::Posted(Message::Run(runnable)) => run(runnable),
            // The first task that is woken here is run right afterwards, without passing the queue.
            Packet::Posted(Message::Timer(place, generation)) => {
                let woken = context::collect_woken(|| time::expire(self, place, generation));
                woken.into_iter().for_each(run);
            }
            #[cfg(feature = "tokio-compat")]
            Packet::Posted(Message::Drive(turn)) => driver::drive(self, turn),
            Packet::Posted(Message::File(ended)) => {
                let (pending, outcome) = *ended;
                pending.complete(outcome);
            }
            Packet::Notified(notified) => {
                let events = notified.events();
                let state = notified.into_key();
                // So is the first one here.
                if let Some(runnable) = context::collect_woken(|| state.report(events)) {
                    drop(state);
                    run(runnable);
                }
            }
            // The registration has ended. A task that still waits tries again, and gets an error.
            Packet::Removed(_, state) => state.wake_all(),
            _ => {}
        });
        // A task's own panics are in its output. This one came from the code of a waker, which may
        // have woken a task before.
        if !is_handled && let Some(runnable) = context::take_collected() {
            self.post(runnable);
        }
    }

    pub(crate) fn task_ended(&self) {
        if self.ending.task_ended() {
            // It stays until the last task has ended.
            self.pool.wake_manager();
        }
    }

    /// Wakes the threads in [`Shared::wait_until`].
    pub(crate) fn signal_end(&self) {
        self.ending.signal();
    }

    /// Waits until `condition` holds, at most until `deadline`. Returns whether it holds.
    pub(crate) fn wait_until(
        &self,
        deadline: Option<Instant>,
        condition: impl Fn() -> bool,
    ) -> bool {
        self.ending.wait_until(deadline, condition)
    }
}

/// Returns the message if the port has refused it.
fn refused(posted: std::result::Result<(), completion_port::Refused<Message>>) -> Option<Message> {
    posted.err().map(|refused| refused.into_parts().1)
}

/// Polls a task.
pub(crate) fn run(runnable: Runnable) {
    runnable.run();
}
