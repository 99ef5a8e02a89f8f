//! How long a packet takes to be handled, and what follows from that: how much of what is queued a
//! thread takes, and whether what it leaves behind is worth waking another one.
//!
//! Times come in as numbers of nanoseconds, from whoever has a clock.

/// What is left behind is worth a wake if a running thread would need longer for it than this. A wake
/// costs several microseconds, and it takes several tens of them until the other thread is there;
/// below some hundred, waking makes everything dearer and nothing faster.
const WORTH: u64 = 200_000;

/// Where a packet takes longer than this, each one that is left behind is worth a wake, and the
/// kernel's wait is not left empty: whatever comes meanwhile would wait for a handler to end.
const LONG: u64 = 15_000;

/// A share of fewer packets than this costs more than it brings, unless they are long.
const PART: usize = 16;

/// The pace of a port, guarded by the engine's lock.
#[derive(Debug)]
pub(crate) struct Pace {
    /// What a packet takes, in nanoseconds: a running median, more or less, since some packets take a
    /// thousand times as long as the others.
    packet: u64,
}

impl Pace {
    pub(crate) const fn new() -> Self {
        Self { packet: 8_000 }
    }

    /// A packet took so many nanoseconds.
    pub(crate) fn note(&mut self, packet: u64) {
        let step = self.packet / 8 + 1;
        self.packet = packet.clamp(self.packet.saturating_sub(step), self.packet + step);
    }

    /// Whether so many packets, left to the threads that run, would wait longer than a wake takes.
    pub(crate) fn is_worth_a_wake(&self, packets: usize) -> bool {
        let needed = if self.is_long() { self.packet } else { WORTH };
        packets as u64 * self.packet >= needed
    }

    /// Whether a packet takes longer than a wake.
    pub(crate) fn is_long(&self) -> bool {
        self.packet >= LONG
    }

    /// How much of what is queued a thread takes, if `threads` may run, itself included, and `helpers`
    /// of them are idle.
    pub(crate) fn share(&self, queued: usize, threads: usize, helpers: usize) -> usize {
        if threads <= 1 {
            return queued;
        }
        if self.is_long() {
            // Who gets less comes back sooner, and nothing waits for a handler that it need not.
            return queued.div_ceil(2 * threads).max(1);
        }
        let half = queued / 2;
        if helpers > 0 && self.is_worth_a_wake(half) {
            return queued - half;
        }
        // What falls to each, so that none waits for another's share to be over.
        queued.div_ceil(threads).max(PART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(packet: u64) -> Pace {
        Pace { packet }
    }

    #[test]
    fn a_single_slow_packet_changes_little_and_many_change_all() {
        let mut pace = at(5_000);
        pace.note(5_000_000);
        assert!(!pace.is_long());
        (0..20).for_each(|_| pace.note(20_000));
        assert!(pace.is_long());
        (0..20).for_each(|_| pace.note(5_000));
        assert!(!pace.is_long());
    }

    #[test]
    fn short_packets_are_worth_a_wake_in_numbers_and_long_ones_each() {
        assert!(!at(5_000).is_worth_a_wake(39));
        assert!(at(5_000).is_worth_a_wake(40));
        assert!(at(20_000).is_worth_a_wake(1));
        assert!(!at(20_000).is_worth_a_wake(0));
    }

    #[test]
    fn a_thread_takes_what_falls_to_it() {
        assert_eq!(at(20_000).share(9, 1, 0), 9, "it is alone");
        assert_eq!(at(20_000).share(4, 2, 1), 1);
        assert_eq!(at(20_000).share(64, 2, 0), 16);
        assert_eq!(at(5_000).share(64, 2, 0), 32);
        assert_eq!(at(10_000).share(64, 8, 1), 32, "half, if it calls somebody for the rest");
        assert_eq!(at(5_000).share(64, 8, 1), 16);
    }
}
