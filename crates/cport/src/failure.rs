//! How the command fails: one line for people, one number for scripts.

use std::process::ExitCode;
use std::{fmt, io};

use crate::system::{descriptor_limit, is_descriptor_limit};

/// Why the command ends without success.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It could not begin: exit code 2.
    Unusable(String),
    /// It ran, and the result is wrong: exit code 1.
    Wrong(String),
}

impl Failure {
    /// The system refused something that is needed to begin.
    pub(crate) fn to_begin(what: &str, error: &io::Error) -> Self {
        Self::Unusable(format!("{what}: {}", reason(error)))
    }

    /// The system refused something in the middle of the work. If descriptors have run out, that is
    /// for the user to change, as at the beginning.
    pub(crate) fn midway(what: &str, error: &io::Error) -> Self {
        let line = format!("{what}: {}", reason(error));
        if is_descriptor_limit(error) { Self::Unusable(line) } else { Self::Wrong(line) }
    }

    /// The same, with what can be done about it.
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
        None => format!("{error}; other processes have them all"),
    }
}

/// Where faults are reported.
pub(crate) const ISSUES: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/issues");
