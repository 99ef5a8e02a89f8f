//! What a port can tell about itself.

use crate::detection::BlockDetection;

/// The state of a port at one moment, and what it has done so far; from
/// [`Port::stats`](crate::Port::stats).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The mechanism that watches descriptors: `"epoll"`, or `"sim"` for the simulated kernel.
    pub backend: &'static str,
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
}

impl PacketCounts {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.ready + self.notified + self.posted + self.removed
    }
}
