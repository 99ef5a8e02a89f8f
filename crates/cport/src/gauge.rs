//! Counts threads that work at the same time.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Counts the threads that are between taking packets and their next wait, and remembers the
/// maximum.
///
/// It is independent of the port: it shows the effect of the concurrency value. A thread that falls
/// asleep in the kernel while handling packets, on a lock or a page fault, is the only way to
/// exceed that value: the port lets another one run, and both run for a while after the first one
/// wakes.
#[derive(Debug, Default)]
pub(crate) struct Gauge {
    now: AtomicUsize,
    peak: AtomicUsize,
}

impl Gauge {
    /// The calling thread has packets until it drops the result.
    pub(crate) fn enter(&self) -> Entered<'_> {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        self.peak.fetch_max(now, Relaxed);
        Entered(self)
    }

    /// The maximum.
    pub(crate) fn peak(&self) -> usize {
        self.peak.load(Relaxed)
    }
}

/// A thread that has packets.
#[derive(Debug)]
#[must_use = "the thread counts until this is dropped"]
pub(crate) struct Entered<'g>(&'g Gauge);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Gauge;

    #[test]
    fn the_peak_is_the_most_that_were_in_at_once() {
        let gauge = Gauge::default();
        drop(gauge.enter());
        drop(gauge.enter());
        assert_eq!(gauge.peak(), 1);
        let (first, second) = (gauge.enter(), gauge.enter());
        drop((first, second));
        drop(gauge.enter());
        assert_eq!(gauge.peak(), 2);
    }
}
