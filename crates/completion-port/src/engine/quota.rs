//! Measures how long a thread takes for its quota of packets, and says how many packets it should
//! take.

use std::sync::atomic::Ordering::Relaxed;

use super::Engine;
use super::seat::Seat;
use crate::state::moment::Moment;
use crate::state::schedule::{Advice, LOOK, SAMPLED};

impl Engine {
    /// Pretends that every packet so far took this long: for models in which no time passes.
    #[cfg(test)]
    #[allow(dead_code, reason = "for the models, which are a test crate of their own")]
    pub(crate) fn expect(&self, packet: std::time::Duration) {
        self.lock().schedule.expect(packet);
    }

    /// The thread of `seat` has been handed this many `packets`.
    pub(super) fn begin_quota(&self, seat: &Seat, packets: usize) {
        let shares = seat.shares.load(Relaxed);
        seat.shares.store(shares.wrapping_add(1), Relaxed);
        if shares.is_multiple_of(SAMPLED) {
            seat.begun.store(self.backend.now().nanoseconds(), Relaxed);
            seat.quota.store(u32::try_from(packets).unwrap_or(u32::MAX), Relaxed);
        }
    }

    /// How many packets a thread takes at a time if it cannot give any back.
    pub(crate) fn advised_room(&self) -> usize {
        let advised = self.advised.load(Relaxed);
        if advised == Advice::ALL { usize::MAX } else { self.advise_anew(advised) }
    }

    #[cold]
    fn advise_anew(&self, advised: u32) -> usize {
        if self.forked() {
            return usize::MAX;
        }
        let now = self.backend.now();
        if now < Moment::from_nanoseconds(self.advise_at.load(Relaxed)) {
            return advised as usize;
        }
        self.advise_at.store((now + LOOK).nanoseconds(), Relaxed);
        let mut state = self.lock();
        let advised = state.schedule.advise(now);
        self.advised.store(advised, Relaxed);
        advised as usize
    }

    /// The thread of `seat` has come back. Returns how long one packet took on the average, if that
    /// was measured.
    pub(super) fn end_quota(&self, seat: &Seat) -> Option<u64> {
        let begun = seat.begun.load(Relaxed);
        if begun == 0 {
            return None;
        }
        seat.begun.store(0, Relaxed);
        let took = self.backend.now().nanoseconds_since(Moment::from_nanoseconds(begun));
        Some(took / u64::from(seat.quota.load(Relaxed).max(1)))
    }
}
