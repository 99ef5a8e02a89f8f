//! What the engine asks of a system besides descriptors: the time, threads, and which process it is in.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::thread::Thread;
use crate::state::moment::Moment;
use crate::state::table::Descriptors;
use crate::types::error::Fault;

/// The process and its clock. Any thread may call it at any time.
pub(crate) trait Host: Send + Sync {
    /// The time, by a clock that does not go back.
    fn now(&self) -> Moment;

    /// The moment by this clock at which the system's monotonic clock shows `instant`; never an earlier one.
    fn moment_of(&self, instant: Instant) -> Moment {
        // The system's clock is read first.
        let ahead = instant.saturating_duration_since(Instant::now());
        self.now().checked_add(ahead).unwrap_or(Moment::NEVER)
    }

    /// The calling thread, as something that can be parked, unparked and looked at.
    fn this_thread(&self) -> Box<dyn Thread>;

    /// Whether [`Thread::observe`] works here, or why it does not.
    fn can_observe(&self) -> Result<(), Fault>;

    /// The process that made this host.
    fn origin(&self) -> Origin;

    /// The table of descriptor numbers of the kernel behind this host: which port holds which number. All
    /// ports on one kernel in one process share one table.
    fn descriptors(&self) -> &Descriptors;
}

/// Tells a process from those that are forked from it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// A word in memory that has another value in a forked child, and the value that it had. Reading the
    /// word tells.
    #[allow(dead_code, reason = "for systems that have forks")]
    Marked(&'static AtomicUsize, usize),
    /// The process's number, for which the system is asked each time.
    #[cfg_attr(not(feature = "sim"), allow(dead_code, reason = "for the simulated kernel"))]
    Numbered(u32),
}

impl Origin {
    /// The running process, by its number.
    #[cfg_attr(not(feature = "sim"), allow(dead_code, reason = "for the simulated kernel"))]
    pub(crate) fn by_number() -> Self {
        Self::Numbered(std::process::id())
    }

    /// Whether the running process is a forked child of this one.
    #[inline]
    pub(crate) fn is_left(self) -> bool {
        match self {
            Self::Marked(mark, was) => mark.load(Relaxed) != was,
            Self::Numbered(number) => std::process::id() != number,
        }
    }
}
