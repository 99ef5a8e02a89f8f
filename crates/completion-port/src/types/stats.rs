//! The figures that a port can report about itself.

use std::time::Duration;

use crate::types::config::BlockDetection;

/// The state of a port at one moment, and its counts so far. [`Port::stats`](crate::Port::stats)
/// returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The mechanism that watches descriptors: `"epoll"`, `"kqueue"`, `"afd"` or `"notifications"`.
    /// On a simulated kernel, a name that begins with `"sim"`.
    pub backend: &'static str,
    /// The mechanism for operations on files that cannot complete immediately: `"io_uring"`,
    /// `"overlapped"`, `"threads"` or `"sim"`. `"none"` until an operation needs one.
    pub file_engine: &'static str,
    /// How the port detects a thread that blocks without announcing it. This is the method in use,
    /// never [`BlockDetection::Automatic`].
    pub block_detection: BlockDetection,
    /// How many threads may run with packets simultaneously.
    pub concurrency: usize,
    /// Registrations that have not ended.
    pub registered: usize,
    /// Packets in the queue, and registrations that wait to be checked with the kernel.
    pub queued: usize,
    /// Threads that the port counts as running with packets.
    pub running: usize,
    /// Threads that have packets, but sleep in the kernel or have announced that they block.
    pub blocked: usize,
    /// Threads that have run for so long that they do not count until they next wait. See
    /// [`PortBuilder::overcommit_after`](crate::PortBuilder::overcommit_after).
    pub excess: usize,
    /// Threads that wait. Some of them may be in the kernel's wait.
    pub parked: usize,
    /// Threads woken so far, for a packet or to look after the port.
    pub wakes: u64,
    /// Threads that were woken to take packets and found none.
    pub spurious_wakes: u64,
    /// Running threads that were found asleep without an announcement.
    pub blocks_found: u64,
    /// How often the port asked the kernel for events.
    pub polls: u64,
    /// How many of those polls returned nothing: no packet, nothing to check, no wake-up.
    pub empty_polls: u64,
    /// How often the kernel's set was replaced because it was full of duplicates of closed
    /// descriptors.
    pub rebuilds: u64,
    /// Packets taken so far, by kind.
    pub packets: PacketCounts,
}

/// What a thread at a port is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ThreadStatus {
    /// It is in user code, with packets or after a wait that timed out, and counts against the
    /// concurrency value.
    Running,
    /// It has announced that it blocks, and does not count.
    Blocked,
    /// It sleeps in user code without an announcement, and does not count.
    FoundAsleep,
    /// It has run for so long that it does not count until it next waits. See
    /// [`PortBuilder::overcommit_after`](crate::PortBuilder::overcommit_after).
    Excess,
    /// It waits, awake: it is on its way to a packet.
    Searching,
    /// It waits, asleep.
    Idle,
    /// It has taken no packet yet, or its wait found the port closed.
    Away,
}

/// How long packets have waited in the queue of a port, as a histogram.
/// [`Port::queue_delays`](crate::Port::queue_delays) returns it.
///
/// Each bucket counts the delays below a power of two, in nanoseconds, that no earlier bucket
/// counts: the first bucket those of less than 1 ns, the second one of 1 ns, the third one of 2 and
/// 3 ns, and so on. The last bucket has no limit. A delay of 1 ms is in the bucket that ends at
/// 1.048576 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueDelays {
    pub(crate) buckets: [u64; QueueDelays::BUCKETS],
    pub(crate) total: Duration,
}

impl QueueDelays {
    /// The number of buckets.
    pub const BUCKETS: usize = 40;

    /// Returns how many packets were measured.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of the delays of all these packets.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.total
    }

    /// Returns the buckets, shortest delays first: the limit that the bucket's delays are less than
    /// ([`Duration::MAX`] for the last one), and their number.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(number, count)| {
            let is_last = number + 1 == Self::BUCKETS;
            let limit = if is_last { Duration::MAX } else { Duration::from_nanos(1 << number) };
            (limit, *count)
        })
    }
}

/// Packets taken, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PacketCounts {
    /// Of the kind [`Packet::Ready`](crate::Packet::Ready).
    pub ready: u64,
    /// Of the kind [`Packet::Notified`](crate::Packet::Notified).
    pub notified: u64,
    /// Of the kind [`Packet::Posted`](crate::Packet::Posted).
    pub posted: u64,
    /// Of the kind [`Packet::Removed`](crate::Packet::Removed).
    pub removed: u64,
    /// Of operations that have ended.
    pub completed: u64,
}

impl PacketCounts {
    /// Returns the number of packets of all kinds.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ready + self.notified + self.posted + self.removed + self.completed
    }
}
