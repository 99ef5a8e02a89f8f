//! How long packets are queued, for ports that are asked to measure it.
//!
//! A port that does not measure spends almost nothing on it. [`Flags`] include whether queued nodes
//! are stamped, and a worker's attention includes whether it [is measured](Worker::is_measured).
//! Both are tested for other reasons anyway.

use std::array;
use std::sync::atomic::Ordering::Relaxed;

use super::Queue;
use super::lists::{Flags, Lists};
use crate::engine::worker::Worker;
use crate::memory::arena::Arena;
use crate::state::moment::Moment;
use crate::state::queue::{Node, NodeList, OP, POSTED, cell_of, is_op};
use crate::sync::AtomicU64;

/// Bucket `n` counts delays of less than 2^n nanoseconds that no earlier bucket counts. The last
/// bucket counts the rest.
const BUCKETS: usize = 40;

/// The counts, and for each queued node when it was queued.
pub(super) struct Delays {
    /// When measuring last started. Older stamps are left over from an earlier period.
    since: AtomicU64,
    slots: Arena<AtomicU64>,
    posts: Arena<AtomicU64>,
    ops: Arena<AtomicU64>,
    buckets: [AtomicU64; BUCKETS],
    /// The sum of all delays, in nanoseconds.
    total: AtomicU64,
}

/// The counts as plain numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Histogram {
    pub(crate) buckets: [u64; BUCKETS],
    pub(crate) total: u64,
}

/// Converts a moment to a stamp, which is never 0: that means none.
fn stamp(now: Moment) -> u64 {
    now.nanoseconds().saturating_add(1)
}

fn bucket(delay: u64) -> usize {
    let bits = u64::BITS - delay.leading_zeros();
    (bits as usize).min(BUCKETS - 1)
}

impl Delays {
    fn new() -> Self {
        Self {
            since: AtomicU64::new(0),
            slots: Arena::new(),
            posts: Arena::new(),
            ops: Arena::new(),
            buckets: array::from_fn(|_| AtomicU64::new(0)),
            total: AtomicU64::new(0),
        }
    }

    fn place(&self, node: Node) -> (&Arena<AtomicU64>, u32) {
        if node & POSTED == 0 {
            (&self.slots, node)
        } else if is_op(node) {
            (&self.ops, node & !OP)
        } else {
            (&self.posts, cell_of(node))
        }
    }

    /// Stamps a node that is queued. If there is no memory for the stamp, the node is not counted.
    ///
    /// The port is locked, as when the node's cell was reserved. The arena allocates seldom, and
    /// twice as much each time.
    fn begin(&self, node: Node, now: u64) {
        let (stamps, number) = self.place(node);
        if stamps.reserve(number) {
            stamps.at(number).store(now, Relaxed);
        }
    }

    /// Returns how long a node that leaves the queue was queued, in nanoseconds.
    ///
    /// `None` if that was not measured.
    fn end(&self, node: Node, now: u64) -> Option<u64> {
        let (stamps, number) = self.place(node);
        let began = stamps.find(number)?.swap(0, Relaxed);
        // This also rules out 0, which means that there is no stamp.
        (began >= self.since.load(Relaxed)).then(|| now.saturating_sub(began))
    }
}

impl Queue {
    /// Starts or stops measuring how long packets are queued.
    pub(crate) fn measure_delays(&self, on: bool) {
        if self.forked() {
            return;
        }
        // Before the lock is taken, since this allocates.
        let delays = on.then(|| self.delays.get_or_init(|| Box::new(Delays::new())));
        let mut hub = self.lock();
        if let Some(delays) = delays
            && !hub.lists().flags().has(Flags::MEASURED)
        {
            delays.since.store(stamp(self.backend().now()), Relaxed);
        }
        hub.lists_mut().set_measured(on);
    }

    /// Returns what was measured so far.
    pub(crate) fn delays(&self) -> Histogram {
        let Some(delays) = self.delays.get() else {
            return Histogram { buckets: [0; BUCKETS], total: 0 };
        };
        Histogram {
            buckets: array::from_fn(|n| delays.buckets[n].load(Relaxed)),
            total: delays.total.load(Relaxed),
        }
    }

    /// Stamps nodes that are being queued, if that is measured, and wakes collectors.
    ///
    /// Called if any of the port's flags is set.
    #[cold]
    pub(in crate::engine) fn note_queued(&self, lists: &Lists, nodes: &NodeList) {
        if lists.flags().has(Flags::MEASURED)
            && let Some(delays) = self.delays.get()
        {
            let now = stamp(self.backend().now());
            nodes.any(self.nodes(), |node| {
                delays.begin(node, now);
                false
            });
        }
        lists.tell_collectors();
    }

    /// Like [`Queue::note_queued`], for one node.
    #[cold]
    pub(in crate::engine) fn note_queued_one(&self, lists: &Lists, node: Node) {
        if lists.flags().has(Flags::MEASURED)
            && let Some(delays) = self.delays.get()
        {
            delays.begin(node, stamp(self.backend().now()));
        }
        lists.tell_collectors();
    }

    /// Like [`Queue::note_queued_one`], for a message that the thread of `worker` puts in front of
    /// or behind its packets. That thread calls this.
    ///
    /// If measuring has begun since the thread's last wait, the thread counts delays from now on.
    /// Otherwise it would take this message and leave the stamp. The next message in that cell,
    /// which the thread may queue without the lock and a stamp, would be counted from the old one.
    #[cold]
    pub(super) fn note_queued_own(&self, lists: &Lists, worker: &Worker, node: Node) {
        if lists.flags().has(Flags::MEASURED) && !worker.is_measured() {
            worker.measure();
            // The packet that it took last was not counted.
            worker.note_delay(None);
        }
        self.note_queued_one(lists, node);
    }

    /// Counts the delay of `node`, which the thread of `worker` has taken. That thread calls this.
    pub(in crate::engine) fn count_delay(&self, worker: &Worker, node: Node) {
        let Some(delays) = self.delays.get() else { return };
        let delay = delays.end(node, stamp(self.backend().now()));
        worker.note_delay(delay);
        if let Some(delay) = delay {
            delays.buckets[bucket(delay)].fetch_add(1, Relaxed);
            delays.total.fetch_add(delay, Relaxed);
        }
    }

    /// Removes the node taken last from the counts, since it has brought no packet.
    ///
    /// The thread of `worker` calls this.
    pub(in crate::engine) fn uncount_delay(&self, worker: &Worker) {
        if !worker.is_measured() {
            return;
        }
        if let Some(delay) = worker.take_delay()
            && let Some(delays) = self.delays.get()
        {
            delays.buckets[bucket(delay)].fetch_sub(1, Relaxed);
            delays.total.fetch_sub(delay, Relaxed);
        }
    }
}
