//! What a port can tell about itself.

use std::time::Duration;

use crate::types::config::BlockDetection;

/// The state of a port at one moment, and what it has done so far; from
/// [`Port::stats`](crate::Port::stats).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The mechanism that watches descriptors: `"epoll"`, or `"sim"` for the simulated kernel.
    pub backend: &'static str,
    /// What does operations on files that cannot be done at once: `"io_uring"`, `"overlapped"`, `"threads"`, `"sim"`; or `"none"`, as
    /// long as no operation has needed it.
    pub file_engine: &'static str,
    /// How a thread that blocks without saying so is found out: what was chosen, never
    /// [`BlockDetection::Automatic`].
    pub block_detection: BlockDetection,
    /// How many threads may run with packets at once.
    pub concurrency: usize,
    /// Registrations that have not ended.
    pub registered: usize,
    /// Packets in the queue, and registrations that wait to be checked with the kernel.
    pub queued: usize,
    /// Threads that run with packets, as far as is known.
    pub running: usize,
    /// Threads that have packets, but sleep in the kernel or said that they would.
    pub blocked: usize,
    /// Threads that wait; some of them may be in the kernel's wait.
    pub parked: usize,
    /// Threads woken so far, for a packet or to look after the port.
    pub wakes: u64,
    /// Threads that were woken to take packets and found none.
    pub spurious_wakes: u64,
    /// Running threads that were found asleep without having said so.
    pub blocks_found: u64,
    /// How often the kernel was asked for events.
    pub polls: u64,
    /// How many of those polls brought nothing: no packet, nothing to check, no wake-up.
    pub empty_polls: u64,
    /// How often the kernel's set was replaced because duplicates of closed descriptors filled it.
    pub rebuilds: u64,
    /// Packets taken so far, by kind.
    pub packets: PacketCounts,
}

/// What one thread at a port does, and what it has done there so far; from
/// [`Port::thread_stats`](crate::Port::thread_stats).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadStats {
    /// The thread's number at the port, as in dumps and events. A later thread may get the same number.
    pub worker: usize,
    /// The system's number of the thread, if it has one: on Linux what `gettid` returns, as debuggers, `top`
    /// and `/proc` show it.
    pub system_number: Option<u64>,
    /// What the thread does.
    pub status: ThreadStatus,
    /// Packets that the thread has taken, by kind.
    pub packets: PacketCounts,
    /// How often the thread was woken.
    pub wakes: u64,
    /// How often the thread was found asleep in a handler without having said so.
    pub blocks_found: u64,
}

/// What a thread at a port does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ThreadStatus {
    /// It is in user code with packets, or after a wait that timed out, and counts against the concurrency
    /// value.
    Running,
    /// It has said that it blocks, and does not count.
    Blocked,
    /// It sleeps in user code without having said so, and does not count.
    FoundAsleep,
    /// It waits, awake: it is on its way to a packet.
    Searching,
    /// It waits, asleep.
    Idle,
    /// It has taken no packet yet, or its wait found the port closed.
    Away,
}

/// How long packets have stood in the queue of a port: how many of them for how long; from
/// [`Port::queue_delays`](crate::Port::queue_delays).
///
/// A bucket counts delays of less than a power of two, in nanoseconds, that are in no bucket before it: the
/// first one those of less than 1 ns, the second one of 1 ns, the third one of 2 and 3 ns, and so on. The
/// last one has no limit. A delay of 1 ms is in the bucket that ends at 1.048576 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueDelays {
    pub(crate) buckets: [u64; QueueDelays::BUCKETS],
    pub(crate) total: Duration,
}

impl QueueDelays {
    /// How many buckets there are.
    pub const BUCKETS: usize = 40;

    /// How many packets were measured.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The delays of all these packets together.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.total
    }

    /// The buckets, the shortest delays first: what the delays in each of them are less than
    /// ([`Duration::MAX`] for the last one), and how many those are.
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
    /// [`Packet::Ready`](crate::Packet::Ready).
    pub ready: u64,
    /// [`Packet::Notified`](crate::Packet::Notified).
    pub notified: u64,
    /// [`Packet::Posted`](crate::Packet::Posted).
    pub posted: u64,
    /// [`Packet::Removed`](crate::Packet::Removed).
    pub removed: u64,
    /// Of operations that have ended.
    pub completed: u64,
}

impl PacketCounts {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ready + self.notified + self.posted + self.removed + self.completed
    }
}
