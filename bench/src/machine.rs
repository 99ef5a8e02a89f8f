//! Where, when and from which source a run was made.

use std::process::Command;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::system;

/// The system's description of the machine.
#[derive(Debug, Default)]
pub(crate) struct Hardware {
    pub(crate) processor: Option<String>,
    pub(crate) memory_mib: Option<u64>,
    pub(crate) is_virtual: bool,
}

/// The data needed to compare two runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    /// Processors that this process may use.
    pub(crate) processors: usize,
    pub(crate) memory_mib: Option<u64>,
    /// Older reports lack it, and are all from Linux.
    #[serde(default = "linux")]
    pub(crate) system: String,
    pub(crate) kernel: String,
    /// Whether the processors belong to a hypervisor, as far as they report it.
    pub(crate) virtual_machine: bool,
    pub(crate) rustc: String,
    /// The build: `release` or `debug`; only the former is worth comparing.
    pub(crate) profile: String,
    /// The source, with `-dirty` if it has changes; `unknown` without Git.
    pub(crate) commit: String,
    /// UTC.
    pub(crate) date: String,
    /// Descriptors that each process may have.
    pub(crate) descriptors: Option<u64>,
}

impl Machine {
    pub(crate) fn here() -> Machine {
        let unknown = || "unknown".to_owned();
        let hardware = system::hardware();
        Machine {
            processor: hardware.processor.unwrap_or_else(unknown),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory_mib: hardware.memory_mib,
            system: system::NAME.to_owned(),
            kernel: system::kernel().unwrap_or_else(unknown),
            virtual_machine: hardware.is_virtual,
            rustc: env!("BENCH_RUSTC").to_owned(),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            commit: commit().unwrap_or_else(unknown),
            date: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or_else(|_| unknown(), |time| date(time.as_secs())),
            descriptors: system::most_descriptors(),
        }
    }
}

fn linux() -> String {
    "Linux".to_owned()
}

fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output =
            Command::new("git").args(["-C", env!("CARGO_MANIFEST_DIR")]).args(arguments).output();
        let output = output.ok().filter(|output| output.status.success())?;
        Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let clean = git(&["status", "--porcelain"])?.is_empty();
    Some(if clean { commit } else { format!("{commit}-dirty") })
}

/// Seconds since 1970 as `2026-03-01T12:00:00Z`.
fn date(seconds: u64) -> String {
    let (mut days, time) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_772_323_200, "2026-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }

    #[test]
    fn this_machine_is_described() {
        let here = Machine::here();
        assert!(here.processors >= 1);
        assert!(here.rustc.starts_with("rustc 1."), "{}", here.rustc);
        assert!(here.kernel.contains('.'), "{}", here.kernel);
        assert_eq!(here.profile, if cfg!(debug_assertions) { "debug" } else { "release" });
    }
}
