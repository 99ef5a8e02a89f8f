//! How fast a server reads during its echo, and when.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use super::IN_FLIGHT;

/// A read may begin so much before its time: the thread that reads sleeps at most as often.
const AHEAD: Duration = Duration::from_millis(1);
/// How long the last reads may take.
const LAST: Duration = Duration::from_secs(8);

/// When the next read is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Now,
    At(Instant),
    /// When the reads begin again.
    Rest,
}

/// What those who read, as many as there are reads in flight, go by.
pub(crate) struct Pace {
    going: RwLock<Option<Going>>,
    /// Reads whose time has been reported.
    told: AtomicU64,
    rest: Mutex<Rest>,
    changed: Condvar,
}

#[derive(Default)]
struct Rest {
    /// How many rest.
    count: usize,
    /// How often the reads have begun.
    begun: u64,
}

#[derive(Clone, Copy)]
struct Going {
    begun: Instant,
    /// Reads in a second.
    rate: Option<f64>,
}

impl Pace {
    /// Nothing is read yet, and all are going to rest.
    pub(crate) fn new() -> Pace {
        Pace {
            going: RwLock::new(None),
            told: AtomicU64::new(0),
            rest: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    fn going(&self) -> Option<Going> {
        *self.going.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, going: Option<Going>) {
        *self.going.write().unwrap_or_else(PoisonError::into_inner) = going;
    }

    fn lock(&self) -> MutexGuard<'_, Rest> {
        self.rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether reads are made.
    pub(crate) fn is_going(&self) -> bool {
        self.going().is_some()
    }

    /// When the caller makes its next read.
    pub(crate) fn turn(&self) -> Turn {
        let Some(Going { begun, rate }) = self.going() else { return Turn::Rest };
        let Some(rate) = rate else { return Turn::Now };
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let before = self.told.fetch_add(1, Ordering::Relaxed) as f64;
        let at = begun + Duration::from_secs_f64(before / rate);
        if at > Instant::now() + AHEAD { Turn::At(at) } else { Turn::Now }
    }

    /// Starts: this many reads per second, or as many as possible.
    pub(crate) fn begin(&self, rate: Option<f64>) {
        let mut rest = self.lock();
        rest.count = 0;
        rest.begun += 1;
        self.told.store(0, Ordering::Relaxed);
        self.set(Some(Going { begun: Instant::now(), rate }));
        drop(rest);
        self.changed.notify_all();
    }

    /// Ends, and waits until all rest.
    pub(crate) fn end(&self) -> io::Result<()> {
        let mut rest = self.lock();
        self.set(None);
        let end = Instant::now() + LAST;
        while rest.count < IN_FLIGHT {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let missing = IN_FLIGHT - rest.count;
                return Err(io::Error::other(format!("{missing} reads are missing")));
            }
            let waited = self.changed.wait_timeout(rest, left);
            rest = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    /// One more rests.
    pub(crate) fn rest(&self) {
        self.lock().count += 1;
        self.changed.notify_all();
    }

    /// Rests until the reads begin. They may have ended again by then.
    pub(crate) fn rest_until_begun(&self) {
        let mut rest = self.lock();
        if self.is_going() {
            return;
        }
        rest.count += 1;
        self.changed.notify_all();
        let before = rest.begun;
        while rest.begun == before {
            rest = self.changed.wait(rest).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_told_their_times_one_after_the_other() {
        let pace = Pace::new();
        assert_eq!(pace.turn(), Turn::Rest);
        pace.begin(None);
        assert!((0..1000).all(|_| pace.turn() == Turn::Now));
        pace.begin(Some(10.0));
        assert_eq!(pace.turn(), Turn::Now);
        let times: Vec<Turn> = (0..2).map(|_| pace.turn()).collect();
        let [Turn::At(first), Turn::At(second)] = times[..] else { panic!("{times:?}") };
        assert_eq!(second - first, Duration::from_millis(100));
    }

    #[test]
    fn the_end_waits_for_all() {
        let pace = Pace::new();
        pace.begin(None);
        std::thread::scope(|scope| {
            let ended = scope.spawn(|| pace.end());
            for _ in 0..IN_FLIGHT {
                while pace.turn() == Turn::Now {
                    std::thread::yield_now();
                }
                assert!(!ended.is_finished());
                pace.rest();
            }
            ended.join().unwrap().unwrap();
        });
        // They are counted again.
        pace.begin(None);
        assert_eq!(pace.lock().count, 0);
    }

    /// Reads may begin and end before a thread has woken up.
    #[test]
    fn a_thread_that_rests_is_counted_each_time() {
        let pace = Pace::new();
        std::thread::scope(|scope| {
            for _ in 0..IN_FLIGHT {
                scope.spawn(|| {
                    while pace.lock().begun < 10 {
                        pace.rest_until_begun();
                    }
                });
            }
            for _ in 0..10 {
                pace.end().unwrap();
                pace.begin(None);
            }
        });
    }
}
