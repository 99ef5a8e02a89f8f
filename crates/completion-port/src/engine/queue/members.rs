//! The threads at the port, as other threads see them.

use std::sync::Arc;

use crate::backend::thread::Thread;
use crate::engine::worker::{Seat, Tally};
use crate::state::schedule::{SeatNumber, Wake};

/// A thread at the port, as other threads see it. Only the port keeps it for long, so that the
/// descriptors by which threads are queried are closed with the port.
#[derive(Clone)]
pub(in crate::engine) struct WorkerEntry {
    seat: Arc<Seat>,
    thread: Arc<dyn Thread>,
    /// How often the thread was woken.
    wakes: u64,
    /// How often it was found asleep without having said so.
    blocks_found: u64,
}

impl WorkerEntry {
    pub(in crate::engine) fn new(seat: Arc<Seat>, thread: Arc<dyn Thread>) -> Self {
        Self { seat, thread, wakes: 0, blocks_found: 0 }
    }

    #[inline]
    pub(in crate::engine) fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }

    #[inline]
    pub(in crate::engine) fn thread(&self) -> &Arc<dyn Thread> {
        &self.thread
    }

    pub(in crate::engine) fn wakes(&self) -> u64 {
        self.wakes
    }

    pub(in crate::engine) fn blocks_found(&self) -> u64 {
        self.blocks_found
    }
}

/// A thread that is to be woken, once the lock is given up.
#[must_use]
pub(in crate::engine) struct Notice {
    thread: Arc<dyn Thread>,
    seat: SeatNumber,
    /// In the kernel's wait rather than parked.
    in_kernel: bool,
}

impl Notice {
    /// The thread, its seat, and whether it is in the kernel's wait rather than parked.
    pub(super) fn into_parts(self) -> (Arc<dyn Thread>, SeatNumber, bool) {
        (self.thread, self.seat, self.in_kernel)
    }
}

/// The threads at a port, by the numbers of their seats.
#[derive(Default)]
pub(in crate::engine) struct Members {
    entries: Vec<Option<WorkerEntry>>,
    /// Packets that threads have taken which are not at the port any more.
    former: Tally,
    /// Threads that were found asleep, and of which no event tells yet.
    found: Vec<SeatNumber>,
}

impl Members {
    /// Adds the thread that has been given this seat.
    pub(in crate::engine) fn add(&mut self, number: SeatNumber, entry: WorkerEntry) {
        if self.entries.len() <= number {
            self.entries.resize_with(number + 1, || None);
        }
        self.entries[number] = Some(entry);
    }

    /// Removes the thread of `seat`. Its packets stay counted.
    pub(in crate::engine) fn remove(&mut self, seat: &Seat) {
        self.entries[seat.number()] = None;
        self.former.add(seat);
    }

    /// Forgets all threads.
    pub(in crate::engine) fn clear(&mut self) {
        self.entries.fill_with(|| None);
    }

    #[inline]
    pub(in crate::engine) fn get(&self, seat: SeatNumber) -> Option<&WorkerEntry> {
        self.entries[seat].as_ref()
    }

    /// The seat with this number, which a thread has.
    #[inline]
    pub(super) fn seat(&self, seat: SeatNumber) -> &Seat {
        &self.entries[seat].as_ref().expect("a thread at the port is a member").seat
    }

    /// How many numbers of seats there are.
    pub(in crate::engine) fn highest(&self) -> SeatNumber {
        self.entries.len()
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = &WorkerEntry> {
        self.entries.iter().flatten()
    }

    /// The packets that all threads have taken.
    pub(in crate::engine) fn packets(&self) -> Tally {
        let mut packets = self.former;
        for member in self.iter() {
            packets.add(&member.seat);
        }
        packets
    }

    /// What it takes to wake a thread.
    #[inline]
    pub(super) fn notice(&mut self, wake: Wake) -> Notice {
        let member = self.entries[wake.seat].as_mut().expect("an idle seat has a member");
        member.wakes += 1;
        let Wake { seat, in_kernel } = wake;
        Notice { thread: Arc::clone(&member.thread), seat, in_kernel }
    }

    /// The thread of `seat` was found asleep.
    pub(super) fn count_block(&mut self, seat: SeatNumber) {
        if let Some(member) = &mut self.entries[seat] {
            member.blocks_found += 1;
        }
    }

    /// The thread of `seat` was found asleep, and an event is to tell of it.
    pub(super) fn note_found(&mut self, seat: SeatNumber) {
        if !self.found.contains(&seat) {
            self.found.push(seat);
        }
    }

    /// The threads that were found asleep since this was last called.
    pub(super) fn take_found(&mut self) -> Vec<SeatNumber> {
        std::mem::take(&mut self.found)
    }
}
