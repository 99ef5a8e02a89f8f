//! How the command fails: one line for people, one exit code for scripts.

use std::process::ExitCode;
use std::{fmt, io};

use crate::system::{descriptor_limit, is_descriptor_limit};

/// Why the command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It could not start: exit code 2.
    Unusable(String),
    /// It ran, and the result is wrong: exit code 1.
    Wrong(String),
}

impl Failure {
    /// The system refused something that is needed for the start.
    pub(crate) fn to_begin(what: &str, error: &io::Error) -> Self {
        Self::Unusable(format!("{what}: {}", reason(error)))
    }

    /// The system refused something in the middle of the work. If descriptors have run out, the
    /// user has to change that, as at the start.
    pub(crate) fn midway(what: &str, error: &io::Error) -> Self {
        let line = format!("{what}: {}", reason(error));
        if is_descriptor_limit(error) { Self::Unusable(line) } else { Self::Wrong(line) }
    }

    /// The same, with advice.
    pub(crate) fn and(self, remedy: &str) -> Self {
        match self {
            Self::Unusable(line) => Self::Unusable(line + remedy),
            Self::Wrong(line) => Self::Wrong(line + remedy),
        }
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Unusable(_) => ExitCode::from(2),
            Self::Wrong(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable(line) | Self::Wrong(line) => f.write_str(line),
        }
    }
}

fn reason(error: &io::Error) -> String {
    if !is_descriptor_limit(error) {
        return error.to_string();
    }
    match descriptor_limit() {
        Some(limit) => format!("{error}; the limit is {limit} descriptors, `ulimit -n` raises it"),
        None => format!("{error}; other processes use all of them"),
    }
}

/// Where faults are reported.
pub(crate) const ISSUES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/issues");
