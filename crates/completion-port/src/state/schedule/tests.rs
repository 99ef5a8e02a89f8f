//! The schedule without threads, clock or kernel: each row of the table in docs/design/THREADS.md,
//! the rules below that table, and random programs. After each step, the driver checks the
//! invariants.

#![allow(clippy::unwrap_used, reason = "tests, also where a fuzzer plays them")]
#![cfg_attr(
    not(test),
    allow(dead_code, unused_imports, reason = "the fuzzer has the driver and the programs alone")
)]

mod driver;
#[cfg(test)]
mod looks;
pub(crate) mod programs;
#[cfg(test)]
mod rows;

use std::time::Duration;

use self::driver::{Does, Rig};
use super::pace::SHORTEST;
use super::watchdog::{STUCK, TICK};
use super::{Found, Query, Schedule, Status, Waited, WorkerNumber};

impl Schedule {
    /// Pretends that every packet so far took this long, for models in which no time passes.
    pub(crate) fn expect(&mut self, packet: Duration) {
        let packet = u64::try_from(packet.as_nanos()).unwrap_or(u64::MAX);
        (0..100).for_each(|_| self.controller.note(packet));
    }
}

const MICROSECOND: Duration = Duration::from_micros(1);
/// The duration of a packet that is worth a wake-up, and of one that is not.
const LONG: Duration = Duration::from_micros(30);
const SHORT: Duration = MICROSECOND;

/// A port whose workers have just joined, and where packets seem to take this long.
fn rig(limit: usize, threads: usize, packet: Duration) -> Rig {
    let mut rig = Rig::new(limit, threads);
    rig.schedule.expect(packet);
    rig
}

/// `worker` waits, and finds a packet that was queued for it.
fn take_one(rig: &mut Rig, worker: WorkerNumber) {
    rig.put(1);
    rig.run_wait(worker);
    assert_eq!(rig.port.threads[worker].waited, Some(Waited::Packets));
    assert_eq!(rig.take_packet(worker), rig.port.taken.last().map(|packet| packet.number));
    assert_eq!(rig.status(worker), Status::Running);
}

fn hand(rig: &Rig, worker: WorkerNumber) -> Vec<u32> {
    rig.port.threads[worker].hand.iter().map(|packet| packet.number).collect()
}

fn queue(rig: &Rig) -> Vec<u32> {
    rig.port.queue.iter().map(|packet| packet.number).collect()
}

fn polls(rig: &Rig, worker: WorkerNumber) -> bool {
    matches!(rig.port.threads[worker].does, Does::Polls(..))
}

fn parks(rig: &Rig, worker: WorkerNumber) -> bool {
    matches!(rig.port.threads[worker].does, Does::Parks(..))
        && rig.schedule.workers.watching() != Some(worker)
}

/// Returns whether `worker` is the watchdog and sleeps outside the kernel's wait until its next
/// look.
fn watches(rig: &Rig, worker: WorkerNumber) -> bool {
    matches!(rig.port.threads[worker].does, Does::Parks(..))
        && rig.schedule.workers.watching() == Some(worker)
}

fn is_out(rig: &Rig, worker: WorkerNumber) -> bool {
    matches!(rig.port.threads[worker].does, Does::Out)
}

/// Worker 0 was found asleep while it had a packet left, and worker 1 has taken that packet.
fn found_asleep(observes: bool) -> Rig {
    let mut rig = rig(1, 3, SHORT);
    rig.port.observes = observes;
    rig.put(2);
    rig.run_wait(0);
    rig.take_packet(0);
    rig.run_wait(1);
    rig.nod(0, true);
    (0..3).for_each(|_| rig.pass(TICK));
    assert_eq!(rig.status(0), Status::FoundAsleep);
    assert_eq!(rig.take_packet(1), Some(2));
    rig
}
