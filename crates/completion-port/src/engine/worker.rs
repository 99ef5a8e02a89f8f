//! What a thread has at the port.

use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::context::BEGIN;
use crate::state::free_list::Linked;
use crate::state::moment::Moment;
use crate::state::queue::{Links, NIL, Node, TELLS};
use crate::state::schedule::{SAMPLED, Schedule, Status, WorkerNumber};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

/// How many messages a thread may put in front of its chain before other packets get their turn.
const MOST_NEXT: u32 = 64;

/// The packets that a worker has taken, by kind.
#[derive(Debug, Default)]
struct Counts {
    ready: AtomicU64,
    notified: AtomicU64,
    posted: AtomicU64,
    done: AtomicU64,
    removed: AtomicU64,
}

/// A kind of packet that is counted.
#[derive(Clone, Copy)]
pub(super) enum PacketKind {
    Ready,
    Notified,
    Posted,
    Removed,
    Done,
}

/// The counts as plain numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketTally {
    pub(crate) ready: u64,
    pub(crate) notified: u64,
    pub(crate) posted: u64,
    pub(crate) removed: u64,
    pub(crate) done: u64,
}

impl PacketTally {
    /// Adds the packets that `worker` has taken.
    pub(super) fn add(&mut self, worker: &Worker) {
        let Counts { ready, notified, posted, removed, done } = &worker.counts;
        self.ready += ready.load(Relaxed);
        self.notified += notified.load(Relaxed);
        self.posted += posted.load(Relaxed);
        self.removed += removed.load(Relaxed);
        self.done += done.load(Relaxed);
    }
}

/// A chain of cells of posted messages, or of op indexes, that a thread has emptied. Only that
/// thread touches it.
#[derive(Debug)]
pub(super) struct FreedCells {
    first: AtomicU32,
    last: AtomicU32,
    count: AtomicU32,
}

impl FreedCells {
    pub(super) fn new() -> Self {
        Self { first: AtomicU32::new(NIL), last: AtomicU32::new(NIL), count: AtomicU32::new(0) }
    }

    /// Adds a cell, whose link this is, at the front.
    #[inline]
    pub(super) fn push(&self, cell: u32, link: &AtomicU32) {
        let first = self.first.load(Relaxed);
        link.store(first, Relaxed);
        if first == NIL {
            self.last.store(cell, Relaxed);
        }
        self.first.store(cell, Relaxed);
        self.count.store(self.count.load(Relaxed) + 1, Relaxed);
    }

    /// Takes the cell at the front, if there is one. `link` returns the link of a cell.
    #[inline]
    pub(super) fn pop<'l>(&self, link: impl FnOnce(u32) -> &'l AtomicU32) -> Option<u32> {
        let first = self.first.load(Relaxed);
        if first == NIL {
            return None;
        }
        self.first.store(link(first).load(Relaxed), Relaxed);
        self.count.store(self.count.load(Relaxed) - 1, Relaxed);
        Some(first)
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Takes all cells, if there are any.
    #[inline]
    pub(super) fn take(&self) -> Option<Linked> {
        let first = self.first.load(Relaxed);
        if first == NIL {
            return None;
        }
        self.first.store(NIL, Relaxed);
        let count = self.count.load(Relaxed);
        self.count.store(0, Relaxed);
        Some(Linked { first, last: self.last.load(Relaxed), count: count as usize })
    }
}

/// In [`Worker::attention`]: the thread was seen asleep and does not count as running. Other
/// threads change it under the lock. The thread clears it when it starts to wait, and when it
/// reports that it is awake again.
const PRESUMED_BLOCKED: u8 = 1;

/// In [`Worker::attention`]: the queueing delay of the thread's packets is measured. Only the
/// thread changes it: it sets it under the lock, and clears it when it starts to wait.
const MEASURED: u8 = 2;

/// What a thread has at the port: its packets, its counts and its state.
///
/// The thread shares it with those that wake or relieve it. The fields that every packet touches
/// come first, in a cache line that usually only this thread writes.
#[repr(C, align(64))]
pub(crate) struct Worker {
    /// The packets that the thread was assigned and has not taken yet, as a chain of nodes. Only
    /// the thread stores a chain here, or while it waits, the thread that assigns it a packet. The
    /// thread takes nodes from the front by compare-and-swap, so that another thread can take the
    /// whole chain away if this one is stuck.
    list: AtomicU32,
    /// Changes with each wait and each packet of the thread.
    progress: AtomicU32,
    /// The node that the thread took last since it started to wait, or `NIL`. After a packet of an
    /// operation, the node of its registration. Only the thread stores it. It orders nothing, so it
    /// is an atomic of the standard library, which keeps the models of loom small.
    current: std::sync::atomic::AtomicU32,
    /// The cells of posted messages that the thread has emptied. Only the thread touches it.
    freed_cells: FreedCells,
    /// How many messages that report operations it has taken that are not subtracted from
    /// `Lists::tells` yet. Only the thread touches it.
    told: AtomicU32,
    /// What the thread has to handle before it takes its next packet; usually 0.
    attention: AtomicU8,
    /// The thread has left the port. Changed under the lock only.
    left: AtomicBool,
    counts: Counts,
    number: WorkerNumber,
    /// When the thread was assigned its current packets, if that is measured; how many there were;
    /// and how often it was assigned packets. Only the thread touches these.
    begun: AtomicU64,
    quota: AtomicU32,
    shares: AtomicU32,
    /// How many messages the thread has put in front of its chain since it last started to wait
    /// with none of them left. Only the thread touches it.
    put_next: AtomicU32,
    /// How many of those messages were left, and the thread's progress at that time. Only the
    /// thread touches these.
    own: AtomicU32,
    own_at: AtomicU32,
    /// How many messages the thread has put in front of its chain without the lock since it last
    /// started to wait. Only the thread touches it.
    put_alone: AtomicU32,
    /// The messages that the thread has put behind its packets, as a chain of nodes, the newest
    /// first. Only the thread adds to it. It takes away the whole chain under the lock, and so does
    /// another thread if this one is stuck.
    behind: AtomicU32,
    /// How long the packet that the thread took last was queued, plus one; 0 if that was not
    /// measured. Only the thread touches it.
    delay: AtomicU64,
    /// The op indexes of operations whose packets the thread has taken. Only the thread touches it.
    completed: FreedCells,
    /// The thread is carrying out deferred tasks within its wait. Only the thread touches it.
    runs_deferred: AtomicBool,
}

/// While this exists, the thread is carrying out deferred tasks within its wait.
pub(super) struct DeferredWorkGuard<'s>(&'s Worker);

impl Drop for DeferredWorkGuard<'_> {
    fn drop(&mut self) {
        self.0.runs_deferred.store(false, Relaxed);
    }
}

/// How a worker begins and ends, and what is known about its thread.
impl Worker {
    pub(super) fn new(number: WorkerNumber) -> Self {
        Self {
            number,
            list: AtomicU32::new(NIL),
            begun: AtomicU64::new(0),
            quota: AtomicU32::new(0),
            shares: AtomicU32::new(BEGIN),
            put_next: AtomicU32::new(0),
            put_alone: AtomicU32::new(0),
            own: AtomicU32::new(0),
            own_at: AtomicU32::new(BEGIN),
            behind: AtomicU32::new(NIL),
            freed_cells: FreedCells::new(),
            told: AtomicU32::new(0),
            completed: FreedCells::new(),
            runs_deferred: AtomicBool::new(false),
            progress: AtomicU32::new(BEGIN),
            current: std::sync::atomic::AtomicU32::new(NIL),
            attention: AtomicU8::new(0),
            left: AtomicBool::new(false),
            counts: Counts::default(),
            delay: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn number(&self) -> WorkerNumber {
        self.number
    }

    /// Whether the thread has left the port. Without the lock the answer may change at any time.
    #[inline]
    pub(super) fn has_left(&self) -> bool {
        self.left.load(Relaxed)
    }

    /// Marks the worker as left. Returns whether it was before. The caller holds the lock.
    pub(super) fn leave(&self) -> bool {
        self.left.swap(true, Relaxed)
    }

    /// Counts a packet of this kind. Only the thread itself calls this.
    #[inline]
    pub(super) fn count(&self, kind: PacketKind) {
        let counter = match kind {
            PacketKind::Ready => &self.counts.ready,
            PacketKind::Notified => &self.counts.notified,
            PacketKind::Posted => &self.counts.posted,
            PacketKind::Removed => &self.counts.removed,
            PacketKind::Done => &self.counts.done,
        };
        // Only this worker's thread writes it.
        counter.store(counter.load(Relaxed) + 1, Relaxed);
    }

    #[inline]
    pub(super) fn advance(&self) {
        // Only this worker's thread writes it.
        self.progress.store(self.progress.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Notes that the packet that the thread has just taken belongs to this slot.
    #[inline]
    pub(crate) fn handles(&self, slot: Node) {
        self.current.store(slot, Relaxed);
    }

    /// Notes that the thread has no packet of this slot any more. The registration may have ended.
    pub(crate) fn stops_handling(&self, slot: Node) {
        if self.current.load(Relaxed) == slot {
            self.current.store(NIL, Relaxed);
        }
    }

    /// Returns the node that the thread took last since it started to wait, or `NIL`.
    pub(super) fn current(&self) -> Node {
        self.current.load(Relaxed)
    }

    /// Returns a number that changes with each wait and each packet of the thread.
    ///
    /// Only the thread itself calls this.
    pub(crate) fn progress(&self) -> u32 {
        self.progress.load(Relaxed)
    }

    /// Whether the thread is still at the port and counts as running.
    ///
    /// Only the thread itself calls this, with the lock.
    pub(super) fn runs(&self, schedule: &Schedule) -> bool {
        !self.left.load(Relaxed) && schedule.workers().status(self.number) == Status::Running
    }

    /// Marks the thread as carrying out deferred tasks, until the result is dropped.
    pub(super) fn begin_deferred(&self) -> DeferredWorkGuard<'_> {
        self.runs_deferred.store(true, Relaxed);
        DeferredWorkGuard(self)
    }

    /// Whether the thread is carrying out deferred tasks within its wait.
    ///
    /// Only the thread itself calls this.
    pub(super) fn runs_deferred(&self) -> bool {
        self.runs_deferred.load(Relaxed)
    }

    #[inline]
    pub(super) fn freed_cells(&self) -> &FreedCells {
        &self.freed_cells
    }

    /// Counts a message that the thread has taken.
    #[inline]
    pub(super) fn count_message(&self, node: Node) {
        self.count(PacketKind::Posted);
        if node & TELLS != 0 {
            self.told.store(self.told.load(Relaxed) + 1, Relaxed);
        }
    }

    /// Returns how many messages that report operations the thread has taken since the last
    /// [`take_told`](Self::take_told).
    #[inline]
    pub(super) fn told(&self) -> u32 {
        self.told.load(Relaxed)
    }

    /// Returns that number and resets it.
    #[inline]
    pub(super) fn take_told(&self) -> usize {
        let told = self.told();
        self.told.store(0, Relaxed);
        told as usize
    }

    /// Returns the op indexes of operations whose packets the thread has taken.
    ///
    /// Only the thread touches them.
    #[inline]
    pub(super) fn completed(&self) -> &FreedCells {
        &self.completed
    }
}

/// What the thread has to handle before it takes its next packet.
impl Worker {
    /// Clears what the thread has to handle, since it starts to wait.
    #[inline]
    pub(super) fn clear_attention(&self) {
        self.attention.store(0, Relaxed);
    }

    /// Notes that the thread was seen asleep, or is awake. The caller holds the lock.
    pub(super) fn presume_blocked(&self, is_blocked: bool) {
        if is_blocked {
            self.attention.fetch_or(PRESUMED_BLOCKED, Relaxed);
        } else {
            self.attention.fetch_and(!PRESUMED_BLOCKED, Relaxed);
        }
    }

    pub(super) fn is_presumed_blocked(&self) -> bool {
        self.attention.load(Relaxed) & PRESUMED_BLOCKED != 0
    }

    /// Starts to measure the queueing delay of the thread's packets.
    pub(super) fn measure(&self) {
        self.attention.fetch_or(MEASURED, Relaxed);
    }

    pub(super) fn is_measured(&self) -> bool {
        self.attention.load(Relaxed) & MEASURED != 0
    }

    #[inline]
    pub(super) fn has_attention(&self) -> bool {
        self.attention.load(Relaxed) != 0
    }

    /// Stores how long the packet that the thread has just taken was queued, if that was measured.
    pub(super) fn note_delay(&self, delay: Option<u64>) {
        self.delay.store(delay.map_or(0, |delay| delay.saturating_add(1)), Relaxed);
    }

    /// Takes the delay that was stored last.
    pub(super) fn take_delay(&self) -> Option<u64> {
        self.delay.swap(0, Relaxed).checked_sub(1)
    }
}

/// The packets that the thread was assigned and has not taken yet.
impl Worker {
    /// Returns the first node of the chain.
    ///
    /// `NIL` if the chain is empty, or if the thread has something else to handle first. Only the
    /// thread itself calls this.
    #[inline]
    pub(super) fn first(&self) -> Node {
        let node = self.list.load(Acquire);
        if self.attention.load(Relaxed) == 0 { node } else { NIL }
    }

    /// Takes `node`, whose link this is, if it is still the first of the chain.
    #[inline]
    pub(super) fn takes(&self, node: Node, link: &AtomicU32) -> bool {
        self.advance();
        // If another thread has taken the chain away, its head is no longer this node, and cannot
        // become it again: only this thread stores a new chain here.
        let next = link.load(Relaxed);
        self.current.store(node, Relaxed);
        let is_taken = self.list.compare_exchange(node, next, AcqRel, Relaxed).is_ok();
        if !is_taken {
            self.current.store(NIL, Relaxed);
        }
        is_taken
    }

    /// Whether the chain is empty and the thread has nothing else to handle.
    ///
    /// Only the thread itself calls this.
    #[inline]
    pub(crate) fn is_empty_handed(&self) -> bool {
        self.list.load(Relaxed) == NIL && self.attention.load(Relaxed) == 0
    }

    /// Whether the chain is empty, even if the thread has something else to handle.
    #[inline]
    pub(super) fn is_chain_empty(&self) -> bool {
        self.list.load(Relaxed) == NIL
    }

    /// Returns the first node of the chain, even if the thread has something else to handle first.
    #[inline]
    pub(super) fn chain(&self) -> Node {
        self.list.load(Acquire)
    }

    /// Assigns the thread a chain of nodes. The caller holds the lock.
    #[inline]
    pub(super) fn assign(&self, list: Node) {
        self.list.store(list, Release);
    }

    /// Takes the whole chain away. The caller holds the lock.
    #[inline]
    pub(super) fn take_chain(&self) -> Node {
        self.list.swap(NIL, AcqRel)
    }

    /// Adds a node, whose link this is, at the front of the chain.
    ///
    /// The thread itself calls this, with the lock.
    pub(super) fn put_in_front(&self, node: Node, link: &AtomicU32) {
        // Other threads take the chain away under the lock only, and this thread takes no node
        // meanwhile.
        link.store(self.list.load(Relaxed), Relaxed);
        self.list.store(node, Release);
        self.add_to_quota();
    }

    /// Adds a node, whose link this is, at the front of the chain, if that has others.
    ///
    /// The thread itself calls this, while it handles packets. Returns false if there are none,
    /// perhaps because another thread has just taken them away.
    #[inline]
    fn also_put_in_front(&self, node: Node, link: &AtomicU32) -> bool {
        let first = self.list.load(Relaxed);
        if first == NIL {
            return false;
        }
        link.store(first, Relaxed);
        // Only this thread adds nodes, so the chain that begins with this one is the same.
        let is_put = self.list.compare_exchange(first, node, Release, Relaxed).is_ok();
        if is_put {
            self.add_to_quota();
        }
        is_put
    }

    /// Adds a node at the end of the chain, if the chain is shorter than `most`. Returns whether it
    /// was.
    ///
    /// The thread itself calls this, with the lock.
    pub(super) fn append(&self, node: Node, most: usize, links: &impl Links) -> bool {
        // As in `put_in_front`, no node of the chain is taken meanwhile.
        let mut last = self.list.load(Relaxed);
        if last == NIL {
            self.put_in_front(node, links.link(node));
            return true;
        }
        for _ in 1..most {
            let link = links.link(last);
            let next = link.load(Relaxed);
            if next == NIL {
                links.link(node).store(NIL, Relaxed);
                link.store(node, Relaxed);
                self.add_to_quota();
                return true;
            }
            last = next;
        }
        false
    }

    /// Notes that the thread has one more packet, which takes part of the time that is measured.
    fn add_to_quota(&self) {
        if self.begun.load(Relaxed) != 0 {
            self.quota.store(self.quota.load(Relaxed).saturating_add(1), Relaxed);
        }
    }
}

/// The messages that the thread puts in front of its chain.
impl Worker {
    /// Starts a wait. If none of the messages it put in front is left, the thread may add more.
    pub(super) fn come_to_wait(&self) {
        self.current.store(NIL, Relaxed);
        if self.put_next.load(Relaxed) == 0 {
            return self.advance();
        }
        self.advance_with_own(self.own_left());
        if self.own_left() == 0 {
            self.put_next.store(0, Relaxed);
        }
    }

    /// Advances the thread without a packet. It has `own` of the messages it put in front left.
    pub(super) fn advance_with_own(&self, own: u32) {
        self.advance();
        self.own.store(own, Relaxed);
        self.own_at.store(self.progress(), Relaxed);
    }

    /// Returns how many of the messages that the thread put in front are left.
    ///
    /// They come first, so each packet that the thread has taken since was one of them. Messages
    /// that another thread took away still count until this thread has taken that many packets.
    pub(super) fn own_left(&self) -> u32 {
        let taken = self.progress().wrapping_sub(self.own_at.load(Relaxed));
        self.own.load(Relaxed).saturating_sub(taken)
    }

    /// Whether the thread may put one more message in front of its chain. Counts that message.
    pub(super) fn may_put_next(&self) -> bool {
        let count = self.put_next.load(Relaxed);
        self.put_next.store((count + 1).min(MOST_NEXT), Relaxed);
        count < MOST_NEXT
    }

    /// Whether the thread may put a message in front of its chain without the lock, unless the chain
    /// is taken away. `displaces`: only if no other is there that it has put there.
    ///
    /// It has taken a packet and has others left. So the schedule knows that it has several, and
    /// that another thread has to keep watch.
    #[inline]
    pub(super) fn may_put_alone(&self, displaces: bool) -> bool {
        !self.is_chain_empty()
            && self.current() != NIL
            && !self.has_attention()
            && !self.runs_deferred()
            && self.put_next.load(Relaxed) < MOST_NEXT
            && (!displaces || self.own_left() == 0)
    }

    /// Puts a message in front of the chain, after [`Worker::may_put_alone`]. Returns false if the
    /// chain was taken away.
    #[inline]
    pub(super) fn put_alone(&self, node: Node, link: &AtomicU32) -> bool {
        if !self.also_put_in_front(node, link) {
            return false;
        }
        self.may_put_next();
        self.put_alone.store(self.put_alone.load(Relaxed).saturating_add(1), Relaxed);
        self.advance_with_own(self.own_left() + 1);
        true
    }

    /// Returns how many messages the thread has put in front without the lock since the last call.
    pub(super) fn take_put_alone(&self) -> u32 {
        let count = self.put_alone.load(Relaxed);
        if count > 0 {
            self.put_alone.store(0, Relaxed);
        }
        count
    }
}

/// The messages that the thread puts behind its packets.
impl Worker {
    /// Whether there are any. The thread itself calls this, or a thread that holds the lock.
    #[inline]
    pub(super) fn has_behind(&self) -> bool {
        self.behind.load(Relaxed) != NIL
    }

    /// Adds a node, whose link this is. The thread itself calls this, with the lock.
    pub(super) fn put_behind(&self, node: Node, link: &AtomicU32) {
        link.store(self.behind.load(Relaxed), Relaxed);
        self.behind.store(node, Release);
    }

    /// Adds a node, whose link this is, if there are others. The thread itself calls this.
    ///
    /// Returns false if there are none, perhaps because another thread has just taken them away.
    #[inline]
    pub(super) fn also_put_behind(&self, node: Node, link: &AtomicU32) -> bool {
        let newest = self.behind.load(Relaxed);
        if newest == NIL {
            return false;
        }
        link.store(newest, Relaxed);
        // Only this thread adds nodes, so the chain that begins with this one is the same.
        self.behind.compare_exchange(newest, node, Release, Relaxed).is_ok()
    }

    /// Takes the whole chain away, the newest first. The caller holds the lock.
    pub(super) fn take_behind(&self) -> Node {
        self.behind.swap(NIL, AcqRel)
    }
}

/// How long the thread takes for the packets it was assigned. Only the thread itself calls these.
impl Worker {
    /// Notes that the thread was assigned `packets`, and starts measuring every [`SAMPLED`]th time.
    #[inline]
    pub(super) fn begin_quota(&self, packets: usize, now: impl FnOnce() -> Moment) {
        let shares = self.shares.load(Relaxed);
        self.shares.store(shares.wrapping_add(1), Relaxed);
        if shares.is_multiple_of(SAMPLED) {
            self.begun.store(now().nanoseconds(), Relaxed);
            self.quota.store(u32::try_from(packets).unwrap_or(u32::MAX), Relaxed);
        }
    }

    /// Stops measuring when the thread returns to wait.
    ///
    /// Returns the average time per packet, if it was measured.
    #[inline]
    pub(super) fn end_quota(&self, now: impl FnOnce() -> Moment) -> Option<u64> {
        let begun = self.begun.load(Relaxed);
        if begun == 0 {
            return None;
        }
        self.begun.store(0, Relaxed);
        let took = now().nanoseconds_since(Moment::from_nanoseconds(begun));
        Some(took / u64::from(self.quota.load(Relaxed).max(1)))
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Worker").field("number", &self.number).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::tests::tested;

    #[test]
    fn what_was_emptied_is_taken_one_by_one_or_all_at_once() {
        tested(|| {
            let links: [AtomicU32; 4] = std::array::from_fn(|_| AtomicU32::new(7));
            let link = |cell: u32| &links[cell as usize];
            let freed_cells = FreedCells::new();
            assert_eq!(freed_cells.pop(link), None);
            for cell in [2, 0, 3] {
                freed_cells.push(cell, link(cell));
            }
            assert_eq!(
                (freed_cells.pop(link), freed_cells.pop(link), freed_cells.len()),
                (Some(3), Some(0), 1)
            );
            freed_cells.push(1, link(1));
            let Linked { first, last, count } = freed_cells.take().unwrap();
            assert_eq!((first, links[1].load(Relaxed), last, count), (1, 2, 2, 2));
            assert_eq!(
                (freed_cells.pop(link), freed_cells.len(), freed_cells.take().is_none()),
                (None, 0, true)
            );
            // The chain is empty again: the first cell that is pushed is also the last.
            freed_cells.push(0, link(0));
            assert_eq!((freed_cells.pop(link), freed_cells.pop(link)), (Some(0), None));
            freed_cells.push(3, link(3));
            assert_eq!(
                freed_cells.take().map(|all| (all.first, all.last, all.count)),
                Some((3, 3, 1))
            );
        });
    }

    /// Links of a few nodes.
    struct Few([AtomicU32; 4]);

    impl Links for Few {
        fn link(&self, node: Node) -> &AtomicU32 {
            &self.0[node as usize]
        }
    }

    #[test]
    fn a_node_goes_to_the_end_of_a_chain_that_is_short() {
        tested(|| {
            let links = Few(std::array::from_fn(|_| AtomicU32::new(7)));
            let worker = Worker::new(0);
            for (node, most, is_added) in
                [(2, 1, true), (0, 1, false), (0, 2, true), (3, 2, false), (3, 8, true)]
            {
                assert_eq!(worker.append(node, most, &links), is_added, "{node} {most}");
            }
            for node in [2, 0, 3] {
                assert_eq!(worker.first(), node);
                assert!(worker.takes(node, links.link(node)));
            }
            assert!(worker.is_chain_empty());
        });
    }
}
