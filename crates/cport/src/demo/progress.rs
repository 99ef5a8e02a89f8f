//! The progress line of a scenario.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::PATIENCE;
use crate::terminal::output_width;
use crate::text::{bytes, say};

/// How often the line is redrawn.
const REDRAW: Duration = Duration::from_millis(80);
/// The bar's width in characters, if there is room for it.
const WIDTH: usize = 32;
/// Width of the rest of the line: `   [] 100 %  1023.9 MiB`, and the cursor after it.
const BESIDE: usize = 25;

/// The number of bytes done, the total, and the time of the last progress.
#[derive(Debug)]
pub(crate) struct Progress {
    done: AtomicU64,
    goal: AtomicU64,
    begin: Instant,
    /// Whole seconds after `begin`.
    last: AtomicU64,
}

impl Default for Progress {
    fn default() -> Self {
        let [done, goal, last] = [const { AtomicU64::new(0) }; 3];
        Self { done, goal, begin: Instant::now(), last }
    }
}

impl Progress {
    pub(crate) fn set_goal(&self, bytes: u64) {
        self.goal.store(bytes, Relaxed);
    }

    pub(crate) fn advance(&self, bytes: usize) {
        self.done.fetch_add(bytes as u64, Relaxed);
        self.touch();
    }

    /// Notes progress other than bytes.
    pub(crate) fn touch(&self) {
        self.last.fetch_max(self.begin.elapsed().as_secs(), Relaxed);
    }

    /// Time until the scenario counts as stuck, if there is no further progress.
    pub(crate) fn time_left(&self) -> Duration {
        self.time_left_at(self.begin.elapsed())
    }

    fn time_left_at(&self, now: Duration) -> Duration {
        (Duration::from_secs(self.last.load(Relaxed)) + PATIENCE).saturating_sub(now)
    }

    fn line(&self, columns: Option<usize>) -> String {
        let width = columns.map_or(WIDTH, |columns| WIDTH.min(columns.saturating_sub(BESIDE)));
        let goal = self.goal.load(Relaxed).max(1);
        let done = self.done.load(Relaxed).min(goal);
        let full = usize::try_from(done * width as u64 / goal).unwrap_or_default();
        let (filled, empty) = ("#".repeat(full), ".".repeat(width - full));
        let line = format!("   [{filled}{empty}] {:3} %  {}", done * 100 / goal, bytes(done));
        // A wrapped line could not be redrawn.
        let room = columns.map_or(usize::MAX, |columns| columns.saturating_sub(1));
        line.chars().take(room).collect()
    }
}

/// Runs `work` and shows its progress on the terminal. The line disappears afterwards.
pub(crate) fn shown<R>(progress: &Progress, work: impl FnOnce() -> R) -> R {
    thread::scope(|scope| {
        let (working, over) = channel::<()>();
        scope.spawn(move || {
            while over.recv_timeout(REDRAW) == Err(RecvTimeoutError::Timeout) {
                // Only decoration: other code writes and checks the results.
                let _ = say(format_args!("\r{}\x1b[K", progress.line(output_width())));
            }
            let _ = say(format_args!("\r\x1b[K"));
        });
        let result = work();
        drop(working);
        result
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{PATIENCE, Progress};

    #[test]
    fn a_scenario_is_stuck_some_time_after_its_last_progress() {
        let before = Duration::from_secs(5);
        let progress = Progress { begin: Instant::now() - before, ..Progress::default() };
        assert_eq!(progress.time_left_at(PATIENCE - before), before);
        assert!(progress.time_left_at(PATIENCE).is_zero());
        progress.advance(1);
        assert!(progress.time_left_at(PATIENCE) >= before);
        assert!(!progress.time_left().is_zero());
        assert!(progress.time_left_at(2 * PATIENCE).is_zero());
    }

    #[test]
    fn the_bar_is_as_full_as_the_work_is_done() {
        let progress = Progress::default();
        assert!(progress.line(None).contains("[................................]   0 %"));
        progress.set_goal(200);
        progress.advance(100);
        assert!(
            progress.line(None).contains("[################................]  50 %  100 bytes")
        );
        progress.advance(500);
        assert!(progress.line(None).contains("[################################] 100 %"));
        assert!(progress.line(Some(35)).contains("[##########] 100 %"));
        assert!(progress.line(Some(24)).contains("[] 100 %"));
        assert_eq!(progress.line(Some(10)), "   [] 100");
    }
}
