//! What a port reports about itself.

use std::time::Duration;

use crate::engine::{Histogram, PacketTally};
use crate::port::Port;
use crate::state::schedule::Status;
use crate::types::stats::{PacketCounts, QueueDelays, Stats, ThreadStats, ThreadStatus};

impl<K, M, B> Port<K, M, B> {
    /// The state of the port at this moment, and what it has done so far. In a forked child, which
    /// has no part in the port, all numbers are zero.
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

    /// What each thread at the port does at this moment, and what it has done there so far: one entry for
    /// each thread that has waited on the port and has neither ended nor waited on another port since. In
    /// a forked child there is none.
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
            })
        });
        stats.collect()
    }

    /// Begins to measure how long packets stand in the queue, or ends it. Nothing is measured, and no
    /// time is lost for it, unless it is asked for here or by [`PortBuilder::queue_delays`](crate::PortBuilder::queue_delays).
    ///
    /// Packets that are queued when it begins are not counted. When it ends the figures stay, and go on
    /// when it begins again. In a forked child the call does nothing.
    ///
    /// While it is measured, the clock is read once for each packet, and once for each lot that is queued
    /// together; eight bytes are kept for each registration and each place of a message. A one-shot packet
    /// takes some 440 instructions more where 64 come at once, and 660 where each comes alone, besides what it
    /// takes to read the clock. Without it, wait, receipt and arming take 290 and 1,170. (`cport bench
    /// --scenario instructions`, the rows `ours` and `ours, delays`.)
    ///
    /// # Examples
    ///
    /// See [`Port::queue_delays`].
    pub fn measure_queue_delays(&self, on: bool) {
        self.store.engine.measure_delays(on);
    }

    /// How long packets have stood in the queue, as far as that was measured: from the moment at which
    /// the port learned of a condition, a message or a removal, until a thread came to its packet. What
    /// a thread has in its batch and has not come to counts as queued.
    ///
    /// # Threads
    ///
    /// Counters are read one after the other. Packets that are taken meanwhile may be in some and not in
    /// others.
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

/// What a thread does, in the words for users; `None` if the seat has none.
fn status_of(status: Status) -> Option<ThreadStatus> {
    Some(match status {
        Status::Vacant => return None,
        Status::Away => ThreadStatus::Away,
        Status::Running => ThreadStatus::Running,
        Status::Blocked => ThreadStatus::Blocked,
        Status::FoundAsleep => ThreadStatus::FoundAsleep,
        Status::Searching | Status::Called | Status::Given => ThreadStatus::Searching,
        Status::Idle => ThreadStatus::Idle,
    })
}
