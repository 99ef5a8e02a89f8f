//! How long a packet takes to be handled, as far as it matters for the question whether what is left
//! behind is worth waking another thread.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Engine;
use super::seat::Seat;

/// What is left behind is worth a wake if a running thread would need longer for it than this, in
/// nanoseconds. A wake costs several microseconds, and it takes several tens of them until the other
/// thread is there; below some hundred, waking makes everything dearer and nothing faster.
const WORTH: u64 = 200_000;

/// Where a packet takes longer than this, each one that is left behind is worth a wake, and the
/// kernel's wait is not left empty: whatever comes meanwhile would wait for a handler to end.
const LONG: u64 = 15_000;

/// One wait in so many is measured: a look at the clock costs as much as a packet.
const SAMPLED: u32 = 8;

/// The pace of a port, guarded by the engine's lock.
#[derive(Debug)]
pub(super) struct Pace {
    /// What a packet takes, in nanoseconds: a running median, more or less, since some packets take a
    /// thousand times as long as the others.
    packet: u64,
}

impl Pace {
    pub(super) const fn new() -> Self {
        Self { packet: 8_000 }
    }

    /// A packet of a share took so many nanoseconds.
    pub(super) fn note(&mut self, packet: u64) {
        let step = self.packet / 8 + 1;
        self.packet = packet.clamp(self.packet.saturating_sub(step), self.packet + step);
    }

    /// Whether so many packets, left to the threads that run, would wait longer than a wake takes.
    pub(super) fn is_worth_a_wake(&self, packets: usize) -> bool {
        let least = if self.is_long() { self.packet } else { WORTH };
        packets as u64 * self.packet >= least
    }

    /// Whether a packet takes longer than a wake.
    pub(super) fn is_long(&self) -> bool {
        self.packet >= LONG
    }
}

impl Engine {
    /// `seat` has been handed so many packets.
    pub(super) fn begin_share(&self, seat: &Seat, packets: usize) {
        let shares = seat.shares.load(Relaxed);
        seat.shares.store(shares.wrapping_add(1), Relaxed);
        if shares.is_multiple_of(SAMPLED) {
            seat.begun.store(nanoseconds(self.backend.now()), Relaxed);
            seat.share.store(u32::try_from(packets).unwrap_or(u32::MAX), Relaxed);
        }
    }

    /// The thread of `seat` has come back. What one packet took on the average, if that was measured.
    pub(super) fn end_share(&self, seat: &Seat) -> Option<u64> {
        let begun = seat.begun.load(Relaxed);
        if begun == 0 {
            return None;
        }
        seat.begun.store(0, Relaxed);
        let took = nanoseconds(self.backend.now()).saturating_sub(begun);
        Some(took / u64::from(seat.share.load(Relaxed).max(1)))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
