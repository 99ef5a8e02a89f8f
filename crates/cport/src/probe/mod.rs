//! `cport probe`: what this system offers to a port, and whether the rules hold here.
//!
//! Each rule of the contract (`docs/SEMANTICS.md` of the crate `completion-port`) that can be tried from
//! outside is tried, with sockets and threads of this process. What is seen is compared with what is
//! expected, word by word.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::text::{counted, say};

mod calls;
mod delivery;
mod kit;
mod lifetime;
mod operations;
mod registration;
mod system;
mod table;
mod threads;

/// How long one trial may take before it is called stuck. Each takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long all of them may take. What has not been tried by then counts as different.
const ALL: Duration = Duration::from_secs(10);

/// What `cport probe` can be told.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON object a line and nothing else
    #[arg(long)]
    json: bool,
}

/// A rule as it is tried here.
struct Trial {
    /// The row of SEMANTICS.md.
    rule: u8,
    what: &'static str,
    how: How,
}

enum How {
    /// What must be seen, and what is.
    Tried(&'static str, fn() -> kit::Seen),
    /// Why it cannot be tried from outside.
    Untried(&'static str),
}

/// A trial that is over.
struct Row {
    trial: &'static Trial,
    /// What was seen; `None` if it was not tried.
    seen: Option<String>,
    took: Duration,
}

impl Row {
    /// Whether what was seen is what was expected; `None` if the rule was not tried.
    fn is_as_expected(&self) -> Option<bool> {
        match (&self.trial.how, &self.seen) {
            (How::Tried(expected, _), Some(seen)) => Some(seen == expected),
            _ => None,
        }
    }

    fn document(&self) -> serde_json::Value {
        let Trial { rule, what, how } = self.trial;
        match how {
            How::Tried(expected, _) => json!({
                "rule": rule,
                "what": what,
                "expected": expected,
                "seen": self.seen,
                "as_expected": self.is_as_expected(),
                "milliseconds": self.took.as_secs_f64() * 1000.0,
            }),
            How::Untried(why) => json!({ "rule": rule, "what": what, "not_tried": why }),
        }
    }
}

/// All trials, in the order of SEMANTICS.md.
fn trials() -> impl Iterator<Item = &'static Trial> {
    [
        calls::TRIALS,
        registration::TRIALS,
        delivery::TRIALS,
        lifetime::TRIALS,
        threads::TRIALS,
        operations::TRIALS,
    ]
    .into_iter()
    .flatten()
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    kit::begin()?;
    let facts = system::facts();
    if options.json {
        for fact in &facts {
            say(format_args!("{}\n", json!({ "system": fact.name, "value": fact.value })))?;
        }
    } else {
        say(format_args!("What this system offers\n\n{}\n", table::facts(&facts)))?;
        say(format_args!("Whether the rules of SEMANTICS.md hold here\n\n{}", table::head()))?;
    }
    let begin = Instant::now();
    let mut rows = Vec::new();
    for trial in trials() {
        let row = tried(trial, ALL.saturating_sub(begin.elapsed()));
        if options.json {
            say(format_args!("{}\n", row.document()))?;
        } else {
            say(format_args!("{}", table::row(&row)))?;
        }
        rows.push(row);
    }
    let count = |verdict| rows.iter().filter(|row| row.is_as_expected() == verdict).count() as u64;
    let (good, bad, untried) = (count(Some(true)), count(Some(false)), count(None));
    if options.json {
        let summary = json!({ "as_expected": good, "different": bad, "not_tried": untried });
        say(format_args!("{}\n", json!({ "summary": summary })))?;
    } else {
        say(format_args!("\n{} as expected, {bad} different, {untried} not tried\n", good))?;
    }
    let different: Vec<_> = rows
        .iter()
        .filter(|row| row.is_as_expected() == Some(false))
        .map(|row| row.trial.rule.to_string())
        .collect();
    if different.is_empty() {
        return Ok(());
    }
    Err(Failure::Wrong(format!(
        "{} not as expected: {}; `docs/PLATFORM.md` says what a port needs of a system",
        counted(bad, "trial"),
        different.join(", ")
    )))
}

/// Tries a rule in a thread of its own, which is left behind if it is stuck.
fn tried(trial: &'static Trial, left: Duration) -> Row {
    let begin = Instant::now();
    let How::Tried(_, run) = trial.how else {
        return Row { trial, seen: None, took: Duration::ZERO };
    };
    if left.is_zero() {
        let seen = Some("nothing: earlier trials have used up the time".to_owned());
        return Row { trial, seen, took: Duration::ZERO };
    }
    let (tell, told) = mpsc::channel();
    let spawned = thread::Builder::new().spawn(move || {
        // The receiver is gone if this took too long.
        let _ = tell.send(run().unwrap_or_else(|error| format!("an error: {error}")));
    });
    let seen = match spawned {
        Err(error) => format!("an error: no thread: {error}"),
        Ok(_) => match told.recv_timeout(PATIENCE.min(left)) {
            Ok(seen) => seen,
            Err(mpsc::RecvTimeoutError::Timeout) => "nothing: it is stuck".to_owned(),
            Err(mpsc::RecvTimeoutError::Disconnected) => "a panic".to_owned(),
        },
    };
    Row { trial, seen: Some(seen), took: begin.elapsed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_expectation_is_found() {
        static RIGHT: Trial = Trial { rule: 1, what: "", how: How::Tried("3", || Ok("3".into())) };
        static WRONG: Trial = Trial { rule: 1, what: "", how: How::Tried("3", || Ok("4".into())) };
        static FAILS: Trial = Trial { rule: 1, what: "", how: How::Tried("3", || Err("3".into())) };
        static BREAKS: Trial =
            Trial { rule: 1, what: "", how: How::Tried("3", || panic!("as it should")) };
        static LEFT: Trial = Trial { rule: 1, what: "", how: How::Untried("for a reason") };
        let verdict = |trial| tried(trial, ALL).is_as_expected();
        assert_eq!(verdict(&RIGHT), Some(true));
        assert_eq!(verdict(&WRONG), Some(false));
        assert_eq!(verdict(&FAILS), Some(false));
        assert_eq!(verdict(&BREAKS), Some(false));
        assert_eq!(verdict(&LEFT), None);
        assert_eq!(tried(&RIGHT, Duration::ZERO).is_as_expected(), Some(false));
    }
}
