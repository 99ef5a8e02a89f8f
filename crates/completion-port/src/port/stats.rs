//! The figures that a port reports about itself.

use std::time::Duration;

use crate::engine::{Histogram, PacketTally};
use crate::port::Port;
use crate::port::registration::Id;
use crate::state::schedule::Status;
use crate::types::stats::{PacketCounts, QueueDelays, Stats, ThreadStatus};

/// What one thread at a port is doing, and its counts so far.
/// [`Port::thread_stats`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadStats {
    /// The thread's number at the port, as in dumps and events. A later thread may get the same
    /// number.
    pub worker: usize,
    /// The system's number of the thread, if it has one. On Linux this is the result of `gettid`,
    /// which debuggers, `top` and `/proc` show.
    pub system_number: Option<u64>,
    /// What the thread is doing.
    pub status: ThreadStatus,
    /// Packets that the thread has taken, by kind.
    pub packets: PacketCounts,
    /// How often the thread was woken.
    pub wakes: u64,
    /// How often the thread was found asleep in a handler without an announcement.
    pub blocks_found: u64,
    /// The registration whose packet the thread took last, while the thread is in user code.
    ///
    /// `None` for a message, after the last packet of a registration, and if the thread has ended
    /// the registration. The handler may have returned its token since. If another thread has ended
    /// the registration since, this may be a later one.
    pub handling: Option<Id>,
    /// For how long, at least, the thread has been in user code since it took that packet, or since
    /// it last called [`Port::blocking`] or [`Port::post_after`].
    ///
    /// The port notices a packet when an idle thread looks, about every millisecond, and at each
    /// call of [`Port::thread_stats`]. So call that twice.
    pub handling_for: Duration,
}

impl<K, M, B> Port<K, M, B> {
    /// Returns the current state of the port and its counts so far. In a forked child all numbers
    /// are zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::Port;
    ///
    /// let port: Port<(), &str> = Port::builder().build()?;
    /// port.post("hello")?;
    /// let stats = port.stats();
    /// assert_eq!((stats.queued, stats.registered, stats.packets.total()), (1, 0, 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> Stats {
        let seen = self.store.engine.snapshot();
        Stats {
            backend: self.store.engine.backend().name(),
            file_engine: self.store.engine.backend().files_name().unwrap_or("none"),
            block_detection: self.store.engine.detection(),
            concurrency: self.store.engine.limit(),
            registered: seen.registered,
            queued: seen.queued,
            running: seen.threads.running,
            blocked: seen.threads.blocked,
            excess: seen.threads.excess,
            parked: seen.threads.idle,
            wakes: seen.threads.wakes,
            spurious_wakes: seen.threads.spurious,
            blocks_found: seen.threads.blocks_found,
            polls: seen.polls,
            empty_polls: seen.empty_polls,
            rebuilds: seen.rebuilds,
            packets: counts(&seen.packets),
        }
    }

    /// Returns what each thread at the port is doing, and its counts so far.
    ///
    /// There is one entry for each thread that has waited on the port and has since neither ended
    /// nor waited on another port. In a forked child there are none.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Port, ThreadStatus};
    ///
    /// let port: Port<(), &str> = Port::builder().build()?;
    /// port.post("hello")?;
    /// let mut batch = Batch::new();
    /// assert_eq!(port.wait(&mut batch, None)?.count(), 1);
    /// let threads = port.thread_stats();
    /// assert_eq!(threads.len(), 1);
    /// assert_eq!((threads[0].status, threads[0].packets.posted), (ThreadStatus::Running, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn thread_stats(&self) -> Vec<ThreadStats> {
        let threads = self.store.engine.threads().into_iter();
        let stats = threads.filter_map(|thread| {
            Some(ThreadStats {
                worker: thread.worker,
                system_number: thread.system_number,
                status: status_of(thread.status)?,
                packets: counts(&thread.packets),
                wakes: thread.wakes,
                blocks_found: thread.blocks_found,
                handling: thread.handling.map(Id),
                handling_for: thread.handling_for,
            })
        });
        stats.collect()
    }

    /// Returns how many threads are idle: they wait, awake or asleep, and have no packet.
    ///
    /// Takes the port's lock for a moment. In a forked child the number is 0.
    /// [`PortBuilder::on_no_idle`](crate::PortBuilder::on_no_idle) reports that it has become 0.
    ///
    /// # Examples
    ///
    /// A thread of a growing pool that has had nothing to do ends, if another one is idle:
    ///
    /// ```
    /// use completion_port::{Batch, Port};
    /// use std::time::Duration;
    ///
    /// let port = Port::<()>::new()?;
    /// let mut batch = Batch::new();
    /// while let Ok(packets) = port.wait(&mut batch, Some(Duration::from_millis(10))) {
    ///     let handled = packets.count();
    ///     if handled == 0 && port.idle_threads() > 0 {
    ///         break;
    ///     }
    ///     # assert_eq!(port.idle_threads(), 0);
    ///     # port.close();
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn idle_threads(&self) -> usize {
        self.store.engine.idle_threads()
    }

    /// Starts or stops measuring how long packets wait in the queue.
    ///
    /// By default nothing is measured, and that costs nothing.
    /// [`PortBuilder::queue_delays`](crate::PortBuilder::queue_delays) starts the measurement when
    /// the port is made.
    ///
    /// Packets that are already queued when the measurement starts are not counted. When it stops
    /// the figures remain, and a new start adds to them. In a forked child the call does nothing.
    ///
    /// While measuring, the port reads the clock once for each packet, and once for each group of
    /// packets that is queued together. It keeps eight bytes for each registration and each message
    /// cell. Besides reading the clock, a one-shot packet takes about 440 more instructions if 64
    /// arrive together, and 660 if it arrives alone. Without measuring, wait, receipt and arming
    /// take 290 and 1,170 instructions. (Measured by `cport bench --scenario instructions`, rows
    /// `ours` and `ours, delays`.)
    ///
    /// # Examples
    ///
    /// See [`Port::queue_delays`].
    pub fn measure_queue_delays(&self, on: bool) {
        self.store.engine.measure_delays(on);
    }

    /// Returns how long packets have waited in the queue while that was measured.
    ///
    /// A delay lasts from the moment at which the port learned of a condition, a message or a
    /// removal until a thread reached its packet. A packet in a thread's batch counts as queued
    /// until the thread reaches it.
    ///
    /// # Threads
    ///
    /// Counters are read one after the other. Packets that are taken meanwhile may appear in only
    /// some of them.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Port};
    /// use std::time::Duration;
    ///
    /// let port: Port<(), &str> = Port::builder().queue_delays(true).build()?;
    /// port.post("hello")?;
    /// std::thread::sleep(Duration::from_millis(1));
    /// assert_eq!(port.wait(&mut Batch::new(), None)?.count(), 1);
    /// let delays = port.queue_delays();
    /// assert_eq!(delays.count(), 1);
    /// assert!(delays.total() >= Duration::from_millis(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn queue_delays(&self) -> QueueDelays {
        let Histogram { buckets, total } = self.store.engine.delays();
        QueueDelays { buckets, total: Duration::from_nanos(total) }
    }
}

fn counts(tally: &PacketTally) -> PacketCounts {
    PacketCounts {
        ready: tally.ready,
        notified: tally.notified,
        posted: tally.posted,
        removed: tally.removed,
        completed: tally.done,
    }
}

/// Translates a worker's status for users; `None` if the worker has no thread.
fn status_of(status: Status) -> Option<ThreadStatus> {
    Some(match status {
        Status::Vacant => return None,
        Status::Away => ThreadStatus::Away,
        Status::Running => ThreadStatus::Running,
        Status::Blocked => ThreadStatus::Blocked,
        Status::FoundAsleep => ThreadStatus::FoundAsleep,
        Status::Excess => ThreadStatus::Excess,
        Status::Searching | Status::Called | Status::Given => ThreadStatus::Searching,
        Status::Idle => ThreadStatus::Idle,
    })
}
