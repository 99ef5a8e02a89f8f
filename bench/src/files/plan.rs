//! Which pages are read, in which order, and how many.

use std::io;
use std::time::{Duration, Instant};

use super::scratch::{Memory, PAGE};

/// Offsets of pages, one after the other, in an order that looks like none.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pages: u64,
    state: u64,
    left: usize,
    until: Option<Instant>,
    /// Whether every byte is looked at.
    thorough: bool,
    /// Reads that returned the right data.
    made: usize,
}

impl Plan {
    /// Endless reads of a file with that many pages. Another seed reads other pages.
    pub(crate) fn endless(pages: u64, seed: u64) -> Plan {
        let state = seed.wrapping_mul(0xd134_2543_de82_ef95);
        Plan { pages, state, left: usize::MAX, until: None, thorough: false, made: 0 }
    }

    /// That many of these reads.
    pub(super) fn of(self, count: usize) -> Plan {
        Plan { left: count, ..self }
    }

    /// Those of these reads that start within that time.
    pub(super) fn within(self, time: Duration) -> Plan {
        Plan { until: Some(Instant::now() + time), ..self }
    }

    /// The same reads, of which every byte is looked at.
    pub(super) fn thorough(self) -> Plan {
        Plan { thorough: true, ..self }
    }

    /// Makes it memory for the next read. False if there is none.
    #[inline]
    pub(crate) fn aim(&mut self, memory: &mut Memory) -> bool {
        let next = self.next();
        memory.offset = next.unwrap_or(0);
        next.is_some()
    }

    /// Checks a read's data, and counts it.
    #[inline]
    pub(crate) fn check(&mut self, memory: &Memory, count: usize) -> io::Result<()> {
        memory.check(count, self.thorough)?;
        self.made += 1;
        Ok(())
    }

    pub(super) fn made(&self) -> usize {
        self.made
    }

    /// Deals the reads to that many threads.
    pub(super) fn deal(&self, threads: usize) -> Vec<Plan> {
        let left = |index: usize| match self.left {
            usize::MAX => usize::MAX,
            left => left / threads + usize::from(index < left % threads),
        };
        let seed = |index: usize| self.state.wrapping_add(1 + index as u64);
        (0..threads)
            .map(|index| Plan {
                left: left(index),
                until: self.until,
                thorough: self.thorough,
                ..Plan::endless(self.pages, seed(index))
            })
            .collect()
    }

    /// A part that was dealt has been read.
    pub(super) fn add(&mut self, part: &Plan) {
        self.made += part.made;
    }
}

impl Iterator for Plan {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        if self.left == 0 || self.until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
        if self.left != usize::MAX {
            self.left -= 1;
        }
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let mixed = mixed ^ (mixed >> 31);
        #[allow(clippy::cast_possible_truncation, reason = "the upper half of a product")]
        let page = ((u128::from(mixed) * u128::from(self.pages)) >> 64) as u64;
        Some(page * PAGE as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_are_read_about_as_often() {
        let mut counts = [0; 16];
        for offset in Plan::endless(16, 7).of(16_000) {
            assert!(offset.is_multiple_of(PAGE as u64));
            counts[usize::try_from(offset).unwrap() / PAGE] += 1;
        }
        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
    }

    #[test]
    fn plans_of_other_seeds_and_parts_of_a_plan_are_of_other_pages() {
        let first = |plan: Plan| plan.take(4).collect::<Vec<u64>>();
        let plan = Plan::endless(1 << 30, 1);
        assert_eq!(first(plan.clone()), first(plan.clone()));
        assert_ne!(first(plan.clone()), first(Plan::endless(1 << 30, 2)));
        let parts = plan.of(10).deal(4);
        assert_eq!(parts.iter().map(|part| part.clone().count()).sum::<usize>(), 10);
        assert_ne!(first(parts[0].clone()), first(parts[1].clone()));
    }

    #[test]
    fn a_plan_ends_with_its_time() {
        let begun = Instant::now();
        let count = Plan::endless(8, 0).within(Duration::from_millis(5)).count();
        assert!(count > 0 && begun.elapsed() >= Duration::from_millis(5));
    }
}
