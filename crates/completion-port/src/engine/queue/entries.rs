//! The threads at the port, as other threads see them.

use std::sync::Arc;

use crate::backend::thread::Thread;
use crate::engine::worker::{PacketTally, Worker};
use crate::state::moment::Moment;
use crate::state::schedule::{Wake, WorkerNumber};

/// A thread at the port, as other threads see it.
///
/// Only the port keeps entries for long, so that the descriptors for querying threads are closed
/// with the port.
#[derive(Clone)]
pub(in crate::engine) struct WorkerEntry {
    worker: Arc<Worker>,
    thread: Arc<dyn Thread>,
    /// How often the thread was woken.
    wakes: u64,
    /// How often it was found asleep without having announced it.
    blocks_found: u64,
    /// The thread's progress when that was last noticed, and when it was first noticed.
    noticed: (u32, Moment),
}

impl WorkerEntry {
    pub(in crate::engine) fn new(worker: Arc<Worker>, thread: Arc<dyn Thread>) -> Self {
        let noticed = (worker.progress().wrapping_sub(1), Moment::ZERO);
        Self { worker, thread, wakes: 0, blocks_found: 0, noticed }
    }

    #[inline]
    pub(in crate::engine) fn worker(&self) -> &Arc<Worker> {
        &self.worker
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

    /// Notices the thread's progress at `now`. Returns since when, at least, it is the same.
    pub(in crate::engine) fn notice(&mut self, now: Moment) -> Moment {
        let progress = self.worker.progress();
        if self.noticed.0 != progress {
            self.noticed = (progress, now);
        }
        self.noticed.1
    }
}

/// A thread to wake once the lock is released.
#[must_use]
pub(in crate::engine) struct PendingWake {
    thread: Arc<dyn Thread>,
    worker: WorkerNumber,
    /// In the kernel's wait rather than parked.
    in_kernel: bool,
}

impl PendingWake {
    /// Returns the thread, its worker number, and whether it is in the kernel's wait.
    pub(super) fn into_parts(self) -> (Arc<dyn Thread>, WorkerNumber, bool) {
        (self.thread, self.worker, self.in_kernel)
    }
}

/// The threads at a port, by worker number.
#[derive(Default)]
pub(in crate::engine) struct WorkerEntries {
    entries: Vec<Option<WorkerEntry>>,
    /// The packets taken by threads that have left the port.
    former: PacketTally,
    /// Threads that were found asleep, but not reported by an event yet.
    found: Vec<WorkerNumber>,
}

impl WorkerEntries {
    /// Adds the thread with this worker number.
    pub(in crate::engine) fn add(&mut self, number: WorkerNumber, entry: WorkerEntry) {
        if self.entries.len() <= number {
            self.entries.resize_with(number + 1, || None);
        }
        self.entries[number] = Some(entry);
    }

    /// Removes the thread of `worker`. Its packets stay counted.
    pub(in crate::engine) fn remove(&mut self, worker: &Worker) {
        self.entries[worker.number()] = None;
        self.former.add(worker);
    }

    /// Removes all threads.
    pub(in crate::engine) fn clear(&mut self) {
        self.entries.fill_with(|| None);
    }

    #[inline]
    pub(in crate::engine) fn get(&self, worker: WorkerNumber) -> Option<&WorkerEntry> {
        self.entries[worker].as_ref()
    }

    /// Returns the worker with this number, which exists.
    #[inline]
    pub(super) fn worker(&self, worker: WorkerNumber) -> &Worker {
        &self.entries[worker].as_ref().expect("a thread at the port has an entry").worker
    }

    /// Returns a number that is higher than that of any worker.
    pub(in crate::engine) fn highest(&self) -> WorkerNumber {
        self.entries.len()
    }

    pub(in crate::engine) fn iter_mut(&mut self) -> impl Iterator<Item = &mut WorkerEntry> {
        self.entries.iter_mut().flatten()
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = &WorkerEntry> {
        self.entries.iter().flatten()
    }

    /// Returns the packets that all threads have taken.
    pub(in crate::engine) fn packets(&self) -> PacketTally {
        let mut packets = self.former;
        for entry in self.iter() {
            packets.add(&entry.worker);
        }
        packets
    }

    /// Prepares the notice that wakes a thread, and counts it.
    #[inline]
    pub(super) fn notice(&mut self, wake: Wake) -> PendingWake {
        let entry = self.entries[wake.worker].as_mut().expect("an idle worker has an entry");
        entry.wakes += 1;
        let Wake { worker, in_kernel } = wake;
        PendingWake { thread: Arc::clone(&entry.thread), worker, in_kernel }
    }

    /// Notices the progress of the thread of `worker` at `now`.
    pub(super) fn notice_progress(&mut self, worker: WorkerNumber, now: Moment) {
        if let Some(entry) = &mut self.entries[worker] {
            entry.notice(now);
        }
    }

    /// Counts that the thread of `worker` was found asleep.
    pub(super) fn count_block(&mut self, worker: WorkerNumber) {
        if let Some(entry) = &mut self.entries[worker] {
            entry.blocks_found += 1;
        }
    }

    /// Notes that the thread of `worker` was found asleep, for an event to report.
    pub(super) fn note_found(&mut self, worker: WorkerNumber) {
        if !self.found.contains(&worker) {
            self.found.push(worker);
        }
    }

    /// Takes the threads that were found asleep since the last call.
    pub(super) fn take_found(&mut self) -> Vec<WorkerNumber> {
        std::mem::take(&mut self.found)
    }
}
