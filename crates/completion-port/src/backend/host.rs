//! What the engine needs from a system besides descriptors: the time, threads, and whether the
//! process has forked.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::thread::Thread;
use crate::state::moment::Moment;
use crate::state::table::Descriptors;
use crate::types::error::Fault;
use crate::types::source::KernelId;

/// The process and its clock. Any thread may call these methods at any time.
pub(crate) trait Host: Send + Sync {
    /// Returns the time, by a clock that never goes back.
    fn now(&self) -> Moment;

    /// Converts an `instant` of the system's monotonic clock, never to an earlier moment.
    fn moment_of(&self, instant: Instant) -> Moment {
        // Read the system's clock first: a delay between the two reads makes the result later.
        let ahead = instant.saturating_duration_since(Instant::now());
        self.now().checked_add(ahead).unwrap_or(Moment::NEVER)
    }

    /// Returns the calling thread, as something that can be parked, unparked and queried.
    fn this_thread(&self) -> Box<dyn Thread>;

    /// Whether [`Thread::observe`] works here, or why not.
    fn can_observe(&self) -> Result<(), Fault>;

    /// Identifies the process that created this host.
    fn origin(&self) -> Origin;

    /// Returns the kernel that assigns the descriptor numbers.
    fn kernel_id(&self) -> KernelId {
        KernelId::SYSTEM
    }

    /// Returns the table that says which port holds which descriptor number of this kernel.
    ///
    /// All ports on one kernel in one process share one table.
    fn descriptors(&self) -> &Descriptors;
}

/// Distinguishes a process from its forked children.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Origin {
    /// A word in memory whose value differs in a forked child, and its value in this process.
    /// Reading the word suffices.
    #[allow(dead_code, reason = "for systems that have forks")]
    Marked(&'static AtomicUsize, usize),
    /// The process's id. Each test asks the system.
    #[cfg_attr(not(feature = "sim"), allow(dead_code, reason = "for the simulated kernel"))]
    Numbered(u32),
}

impl Origin {
    /// Identifies the current process by its id.
    #[cfg_attr(not(feature = "sim"), allow(dead_code, reason = "for the simulated kernel"))]
    pub(crate) fn by_number() -> Self {
        Self::Numbered(std::process::id())
    }

    /// Whether the current process is a forked child of this one.
    #[inline]
    pub(crate) fn is_left(self) -> bool {
        match self {
            Self::Marked(mark, was) => mark.load(Relaxed) != was,
            Self::Numbered(number) => std::process::id() != number,
        }
    }
}
