//! How long packets stand in a port before their turn comes, for ports that are asked to measure it.
//!
//! A port that is not asked spends next to nothing on it: what is queued comes here if the [`Flags`] say so, what a
//! thread takes if it [is measured](Worker::is_measured); both are looked at for other reasons anyway.

use std::array;
use std::sync::atomic::Ordering::Relaxed;

use super::Queue;
use super::lists::{Flags, Lists};
use crate::engine::worker::Worker;
use crate::memory::arena::Arena;
use crate::state::moment::Moment;
use crate::state::queue::{Node, NodeList, OP, POSTED, cell_of, is_op};
use crate::sync::AtomicU64;

/// Bucket `n` counts delays of less than 2^n nanoseconds that no earlier one counts; the last one counts the
/// rest.
const BUCKETS: usize = 40;

/// What is counted, and since when each node stands in the queue.
pub(super) struct Delays {
    /// Stamps from before this are of an earlier time of measuring, when they may not have been used up.
    since: AtomicU64,
    slots: Arena<AtomicU64>,
    posts: Arena<AtomicU64>,
    ops: Arena<AtomicU64>,
    buckets: [AtomicU64; BUCKETS],
    /// All delays together, in nanoseconds.
    total: AtomicU64,
}

/// The counts as plain numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Histogram {
    pub(crate) buckets: [u64; BUCKETS],
    pub(crate) total: u64,
}

/// A moment as it is noted; never 0, which stands for none.
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

    /// A node is queued. Without memory for its stamp it is not counted. The port is locked, as when its cell was
    /// reserved: room for many is made seldom, and twice as much each time.
    fn begin(&self, node: Node, now: u64) {
        let (stamps, number) = self.place(node);
        if stamps.reserve(number) {
            stamps.at(number).store(now, Relaxed);
        }
    }

    /// A node comes off the queue: how long it stood there, in nanoseconds. `None` if that was not measured.
    fn end(&self, node: Node, now: u64) -> Option<u64> {
        let (stamps, number) = self.place(node);
        let began = stamps.find(number)?.swap(0, Relaxed);
        // Zero, too, is before any beginning.
        (began >= self.since.load(Relaxed)).then(|| now.saturating_sub(began))
    }
}

impl Queue {
    /// Begins or ends to measure how long packets stand in the port.
    pub(crate) fn measure_delays(&self, on: bool) {
        if self.forked() {
            return;
        }
        // Before the lock is taken: this allocates.
        let delays = on.then(|| self.delays.get_or_init(|| Box::new(Delays::new())));
        let mut hub = self.lock();
        if let Some(delays) = delays
            && !hub.lists().flags().has(Flags::MEASURED)
        {
            delays.since.store(stamp(self.backend().now()), Relaxed);
        }
        hub.lists_mut().set_measured(on);
    }

    /// What was measured so far.
    pub(crate) fn delays(&self) -> Histogram {
        let Some(delays) = self.delays.get() else {
            return Histogram { buckets: [0; BUCKETS], total: 0 };
        };
        Histogram {
            buckets: array::from_fn(|n| delays.buckets[n].load(Relaxed)),
            total: delays.total.load(Relaxed),
        }
    }

    /// These nodes are about to be queued, or have just been, on a port of which something is notable.
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

    /// The same for one node.
    #[cold]
    pub(in crate::engine) fn note_queued_one(&self, lists: &Lists, node: Node) {
        if lists.flags().has(Flags::MEASURED)
            && let Some(delays) = self.delays.get()
        {
            delays.begin(node, stamp(self.backend().now()));
        }
        lists.tell_collectors();
    }

    /// The thread of `worker`, which calls this, has come to `node`.
    pub(in crate::engine) fn count_delay(&self, worker: &Worker, node: Node) {
        let Some(delays) = self.delays.get() else { return };
        let delay = delays.end(node, stamp(self.backend().now()));
        worker.note_delay(delay);
        if let Some(delay) = delay {
            delays.buckets[bucket(delay)].fetch_add(1, Relaxed);
            delays.total.fetch_add(delay, Relaxed);
        }
    }

    /// What the thread of `worker`, which calls this, came to last has brought no packet.
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
