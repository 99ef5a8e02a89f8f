//! `cport demo`: four servers, one after the other, against real clients on loopback.
//!
//! Each scenario is a function that runs server and clients, and returns an [`Outcome`]: its
//! counts, and whether the result is correct.

use std::time::Duration;

use clap::Args;
use completion_port::Stats;

use crate::failure::Failure;
use crate::system::descriptor_limit;

mod client;
mod operations;
mod pattern;
mod poll;
mod progress;
mod report;
mod threads;
mod udp;

use progress::Progress;
use report::Report;

/// A scenario whose clients receive nothing for this long is stuck.
const PATIENCE: Duration = Duration::from_secs(60);
/// Descriptors that a port needs, with a margin. In addition, it may open one file per thread, from
/// which it reads whether the thread sleeps.
const DESCRIPTORS_OF_A_PORT: u64 = 8;

/// Options of `cport demo`.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON document and nothing else
    #[arg(long)]
    json: bool,
    /// Threads that may process packets at the same time in the third and the fourth scenario (0:
    /// number of processors)
    #[arg(long, value_name = "N", default_value_t = 0)]
    concurrency: u16,
    /// A tenth of the work
    #[arg(long)]
    quick: bool,
}

/// Whether to do all of the work or a tenth.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    divisor: u64,
}

impl Share {
    pub(crate) fn of(self, whole: u64) -> u64 {
        whole / self.divisor
    }
}

/// A claim about the result.
pub(crate) struct Check {
    pub(crate) claim: &'static str,
    pub(crate) passed: bool,
    pub(crate) detail: String,
}

impl Check {
    /// Claims that a count is as expected.
    pub(crate) fn count(claim: &'static str, found: u64, expected: u64) -> Self {
        let (shown, wanted) = (crate::text::grouped(found), crate::text::grouped(expected));
        Self { claim, passed: found == expected, detail: format!("{shown} of {wanted}") }
    }

    /// Claims that nothing went wrong, with the first error.
    pub(crate) fn no_error(claim: &'static str, error: Option<String>) -> Self {
        Self { claim, passed: error.is_none(), detail: error.unwrap_or_else(|| "none".into()) }
    }
}

/// The title of a scenario.
pub(crate) struct Title {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) about: &'static str,
}

/// The result of a scenario.
pub(crate) struct Outcome {
    pub(crate) connections: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Packets that each thread of the server has handled.
    pub(crate) by_thread: Vec<u64>,
    /// The most threads that had packets at the same time.
    pub(crate) peak: usize,
    pub(crate) stats: Stats,
    pub(crate) elapsed: Duration,
    /// Counts that only this scenario has.
    pub(crate) more: Vec<(&'static str, u64)>,
    pub(crate) checks: Vec<Check>,
}

/// A scenario that ran, or failed to.
pub(crate) struct Scenario {
    pub(crate) title: Title,
    pub(crate) result: Result<Outcome, String>,
}

impl Scenario {
    /// Why it has not passed.
    pub(crate) fn fault(&self) -> Option<String> {
        match &self.result {
            Err(reason) => Some(reason.clone()),
            Ok(outcome) => outcome
                .checks
                .iter()
                .find(|check| !check.passed)
                .map(|check| format!("{}: {}", check.claim, check.detail)),
        }
    }
}

/// Runs the scenarios and shows them.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    enough_descriptors()?;
    let mut report = Report::begin(options.json)?;
    let concurrency = usize::from(options.concurrency);
    let share = Share { divisor: if options.quick { 10 } else { 1 } };
    report.scenario(poll::TITLE, |progress: &Progress| poll::run(share, progress))?;
    report.scenario(udp::TITLE, |progress: &Progress| udp::run(share, progress))?;
    report.scenario(threads::TITLE, |progress: &Progress| {
        threads::run(concurrency, share, progress)
    })?;
    report.scenario(operations::TITLE, |progress: &Progress| {
        operations::run(concurrency, share, progress)
    })?;
    report.finish()
}

/// Fails before the start rather than in the middle.
fn enough_descriptors() -> Result<(), Failure> {
    let open = std::fs::read_dir("/proc/self/fd").map_or(3, |entries| entries.count() as u64);
    let needed = open + DESCRIPTORS_OF_A_PORT + threads::DESCRIPTORS;
    match descriptor_limit() {
        Some(limit) if limit < needed => Err(Failure::Unusable(format!(
            "the demo needs {needed} descriptors, and the limit is {limit}; raise it with \
             `ulimit -n {needed}`"
        ))),
        _ => Ok(()),
    }
}
