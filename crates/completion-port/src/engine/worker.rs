//! What a thread has at the port.

use std::fmt;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::context::BEGIN;
use crate::state::free_list::Linked;
use crate::state::moment::Moment;
use crate::state::queue::{NIL, Node};
use crate::state::schedule::{SAMPLED, Schedule, WorkerNumber};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

/// How many messages a thread puts in front of what it has left, before the other packets have their turn.
const MOST_NEXT: u32 = 64;

/// Packets that a seat has taken, by kind.
#[derive(Debug, Default)]
struct Counts {
    ready: AtomicU64,
    notified: AtomicU64,
    posted: AtomicU64,
    removed: AtomicU64,
    done: AtomicU64,
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

/// The same as plain numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) ready: u64,
    pub(crate) notified: u64,
    pub(crate) posted: u64,
    pub(crate) removed: u64,
    pub(crate) done: u64,
}

impl Tally {
    /// Adds what the thread of `worker` has taken.
    pub(super) fn add(&mut self, worker: &Worker) {
        let Counts { ready, notified, posted, removed, done } = &worker.counts;
        self.ready += ready.load(Relaxed);
        self.notified += notified.load(Relaxed);
        self.posted += posted.load(Relaxed);
        self.removed += removed.load(Relaxed);
        self.done += done.load(Relaxed);
    }
}

/// Cells of posted messages, or records of operations, that a thread has emptied: a chain of their numbers. Only that
/// thread touches it.
#[derive(Debug)]
pub(super) struct Emptied {
    first: AtomicU32,
    last: AtomicU32,
    count: AtomicU32,
}

impl Emptied {
    pub(super) fn new() -> Self {
        Self { first: AtomicU32::new(NIL), last: AtomicU32::new(NIL), count: AtomicU32::new(0) }
    }

    /// Puts a cell in front, which has this link.
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

    /// Takes the one in front, if there is one. `link` tells the link of a cell.
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

    /// Takes all of them, if there are any.
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

/// In [`Worker::attention`]: the thread was seen asleep and is not counted. Other threads change it under the
/// lock. The thread itself clears it when it comes to wait, and when it says that it is awake again.
const PRESUMED_BLOCKED: u8 = 1;

/// In [`Worker::attention`]: it is measured how long the packets of the thread stood in the queue. Only the
/// thread itself changes it: it sets it under the lock, and clears it when it comes to wait.
const MEASURED: u8 = 2;

/// A thread's place at the port. The thread shares it with the threads that wake or relieve it.
/// What every packet touches comes first, in a cache line that only this thread writes as a rule.
#[repr(C, align(64))]
pub(crate) struct Worker {
    /// The packets that the thread has been handed and has not looked at yet. Only the thread puts
    /// a chain here, or while it waits the thread that hands it a packet. The thread takes from the
    /// front by compare-and-swap, so that another thread can take the whole chain away if this one
    /// is stuck.
    list: AtomicU32,
    /// Moves on whenever the thread does something with the port.
    progress: AtomicU32,
    /// Cells of posted messages that the thread has emptied. Only the thread touches it.
    emptied: Emptied,
    /// What the thread has to see to before it takes its next packet; 0 as a rule.
    attention: AtomicU8,
    /// The seat was given up. Changed under the lock only.
    left: AtomicBool,
    counts: Counts,
    number: WorkerNumber,
    /// When the thread was handed what it has now, if that is measured; how much that was; and how
    /// often it was handed something. Only the thread touches these.
    begun: AtomicU64,
    quota: AtomicU32,
    shares: AtomicU32,
    /// How many messages the thread has put in front of what it had left, since it last came to wait with none of
    /// them left. Only the thread touches it.
    put_next: AtomicU32,
    /// How many of them were left, and how far the thread had moved on then. Only the thread touches these.
    own: AtomicU32,
    own_at: AtomicU32,
    /// How long the packet that the thread came to last stood in the queue, plus one; 0 if that was not
    /// measured. Only the thread touches it.
    delay: AtomicU64,
    /// Records of operations whose packets the thread has taken. Only the thread touches it.
    completed: Emptied,
    /// The thread is in its wait, and goes on there with what was deferred. Only the thread touches it.
    goes_on: AtomicBool,
}

/// A thread goes on with what was deferred, within its wait.
pub(super) struct GoingOn<'s>(&'s Worker);

impl Drop for GoingOn<'_> {
    fn drop(&mut self) {
        self.0.goes_on.store(false, Relaxed);
    }
}

/// How a seat is made and given up, and what is known of its thread.
impl Worker {
    pub(super) fn new(number: WorkerNumber) -> Self {
        Self {
            number,
            list: AtomicU32::new(NIL),
            begun: AtomicU64::new(0),
            quota: AtomicU32::new(0),
            shares: AtomicU32::new(BEGIN),
            put_next: AtomicU32::new(0),
            own: AtomicU32::new(0),
            own_at: AtomicU32::new(BEGIN),
            emptied: Emptied::new(),
            completed: Emptied::new(),
            goes_on: AtomicBool::new(false),
            progress: AtomicU32::new(BEGIN),
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

    /// Whether the seat was given up. Without the lock the answer may change at any time.
    #[inline]
    pub(super) fn has_left(&self) -> bool {
        self.left.load(Relaxed)
    }

    /// The seat is given up. Returns whether it was before. The caller has the lock.
    pub(super) fn leave(&self) -> bool {
        self.left.swap(true, Relaxed)
    }

    /// A packet of this kind was taken. Only the thread itself calls this.
    #[inline]
    pub(super) fn count(&self, kind: PacketKind) {
        let counter = match kind {
            PacketKind::Ready => &self.counts.ready,
            PacketKind::Notified => &self.counts.notified,
            PacketKind::Posted => &self.counts.posted,
            PacketKind::Removed => &self.counts.removed,
            PacketKind::Done => &self.counts.done,
        };
        // Only the seat's own thread writes it.
        counter.store(counter.load(Relaxed) + 1, Relaxed);
    }

    #[inline]
    pub(super) fn advance(&self) {
        // Only the thread itself writes it.
        self.progress.store(self.progress.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// A number that moves on with each wait and each packet of the thread. Only the thread itself
    /// calls this.
    pub(crate) fn progress(&self) -> u32 {
        self.progress.load(Relaxed)
    }

    /// Whether the thread, which has the lock, has the seat still and counts as running.
    pub(super) fn runs(&self, schedule: &Schedule) -> bool {
        !self.left.load(Relaxed) && schedule.is_running(self.number)
    }

    /// The thread goes on with what was deferred, until what this returns is dropped.
    pub(super) fn begin_going_on(&self) -> GoingOn<'_> {
        self.goes_on.store(true, Relaxed);
        GoingOn(self)
    }

    /// Whether the thread, which calls this, has found what it tells of within its wait.
    pub(super) fn goes_on(&self) -> bool {
        self.goes_on.load(Relaxed)
    }

    #[inline]
    pub(super) fn emptied(&self) -> &Emptied {
        &self.emptied
    }

    /// Records of operations whose packets the thread has taken. Only the thread touches it.
    #[inline]
    pub(super) fn completed(&self) -> &Emptied {
        &self.completed
    }
}

/// What the thread has to see to before it takes its next packet.
impl Worker {
    /// The thread comes to wait: there is nothing that it has to see to.
    #[inline]
    pub(super) fn clear_attention(&self) {
        self.attention.store(0, Relaxed);
    }

    /// The thread was seen asleep, or is seen to be awake. The caller has the lock.
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

    /// It is measured from here on how long the packets of the thread stood in the queue.
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

    /// How long the packet that the thread has come to stood in the queue, if that was measured.
    pub(super) fn note_delay(&self, delay: Option<u64>) {
        self.delay.store(delay.map_or(0, |delay| delay.saturating_add(1)), Relaxed);
    }

    /// Takes the delay that was noted last.
    pub(super) fn take_delay(&self) -> Option<u64> {
        self.delay.swap(0, Relaxed).checked_sub(1)
    }
}

/// The packets that the thread was handed and has not looked at.
impl Worker {
    /// The first node of the thread; `NIL` if it has none left, or has to see to something before.
    /// Only the thread itself calls this.
    #[inline]
    pub(super) fn first(&self) -> Node {
        let node = self.list.load(Acquire);
        if self.attention.load(Relaxed) == 0 { node } else { NIL }
    }

    /// The thread takes `node`, which has this link, if it is still the first one.
    #[inline]
    pub(super) fn takes(&self, node: Node, link: &AtomicU32) -> bool {
        self.advance();
        // If the chain was taken away since, its head is no longer this node, and cannot become it
        // again: only this thread puts a new chain here.
        let next = link.load(Relaxed);
        self.list.compare_exchange(node, next, AcqRel, Relaxed).is_ok()
    }

    /// Whether the thread has nothing left to look at, and nothing to see to. Only the thread itself
    /// calls this.
    #[inline]
    pub(crate) fn is_empty_handed(&self) -> bool {
        self.list.load(Relaxed) == NIL && self.attention.load(Relaxed) == 0
    }

    /// Whether nothing is left, whatever the thread has to see to.
    #[inline]
    pub(super) fn is_chain_empty(&self) -> bool {
        self.list.load(Relaxed) == NIL
    }

    /// The first node of the chain, whatever the thread has to see to.
    #[inline]
    pub(super) fn chain(&self) -> Node {
        self.list.load(Acquire)
    }

    /// Hands the thread a chain of nodes. The caller has the lock.
    #[inline]
    pub(super) fn hand(&self, list: Node) {
        self.list.store(list, Release);
    }

    /// Takes the whole chain away. The caller has the lock.
    #[inline]
    pub(super) fn take_chain(&self) -> Node {
        self.list.swap(NIL, AcqRel)
    }

    /// Puts a node, which has this link, in front of the chain. The thread itself calls this, with the lock.
    pub(super) fn put_in_front(&self, node: Node, link: &AtomicU32) {
        // Other threads take the chain away under the lock only, and this thread takes nothing from
        // it meanwhile.
        link.store(self.list.load(Relaxed), Relaxed);
        self.list.store(node, Release);
        if self.begun.load(Relaxed) != 0 {
            // It takes its part of the time that is measured.
            self.quota.store(self.quota.load(Relaxed).saturating_add(1), Relaxed);
        }
    }
}

/// The messages that the thread puts in front of what it has left.
impl Worker {
    /// The thread comes to wait. With none of its own messages left it may put as many in front again.
    pub(super) fn come_to_wait(&self) {
        if self.put_next.load(Relaxed) == 0 {
            return self.advance();
        }
        self.advance_with_own(self.own_left());
        if self.own_left() == 0 {
            self.put_next.store(0, Relaxed);
        }
    }

    /// The thread moves on without having taken a packet. Now it has so many of its own messages left.
    pub(super) fn advance_with_own(&self, own: u32) {
        self.advance();
        self.own.store(own, Relaxed);
        self.own_at.store(self.progress(), Relaxed);
    }

    /// How many messages the thread has left of those that it has put in front: each packet that it has taken since
    /// was one of them, since they came first. If another thread has taken them they count until then.
    pub(super) fn own_left(&self) -> u32 {
        let taken = self.progress().wrapping_sub(self.own_at.load(Relaxed));
        self.own.load(Relaxed).saturating_sub(taken)
    }

    /// Whether the thread may put one more message in front of what it has left.
    pub(super) fn may_put_next(&self) -> bool {
        let count = self.put_next.load(Relaxed);
        self.put_next.store((count + 1).min(MOST_NEXT), Relaxed);
        count < MOST_NEXT
    }
}

/// How long the thread takes for its quota of packets. Only the thread itself calls these.
impl Worker {
    /// The thread has been handed this many `packets`.
    #[inline]
    pub(super) fn begin_quota(&self, packets: usize, now: impl FnOnce() -> Moment) {
        let shares = self.shares.load(Relaxed);
        self.shares.store(shares.wrapping_add(1), Relaxed);
        if shares.is_multiple_of(SAMPLED) {
            self.begun.store(now().nanoseconds(), Relaxed);
            self.quota.store(u32::try_from(packets).unwrap_or(u32::MAX), Relaxed);
        }
    }

    /// The thread has come back. Returns how long one packet took on the average, if that
    /// was measured.
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
            let emptied = Emptied::new();
            assert_eq!(emptied.pop(link), None);
            for cell in [2, 0, 3] {
                emptied.push(cell, link(cell));
            }
            assert_eq!(
                (emptied.pop(link), emptied.pop(link), emptied.len()),
                (Some(3), Some(0), 1)
            );
            emptied.push(1, link(1));
            let Linked { first, last, count } = emptied.take().unwrap();
            assert_eq!((first, links[1].load(Relaxed), last, count), (1, 2, 2, 2));
            assert_eq!(
                (emptied.pop(link), emptied.len(), emptied.take().is_none()),
                (None, 0, true)
            );
            // None is left of those before: the last one of the next is the first that is pushed.
            emptied.push(0, link(0));
            assert_eq!((emptied.pop(link), emptied.pop(link)), (Some(0), None));
            emptied.push(3, link(3));
            assert_eq!(emptied.take().map(|all| (all.first, all.last, all.count)), Some((3, 3, 1)));
        });
    }
}
