//! `cport probe`: the system's features for a port, and whether the rules that depend on the system
//! hold here.
//!
//! The sections "One-shot reactors" and "Other systems" of `docs/SEMANTICS.md` in the crate
//! `completion-port` list the rules that differ between systems. The probe tries those whose
//! outcome depends on what the kernel reports or supports. The conformance tests cover the rest:
//! the port itself enforces it, so it holds on every kernel.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use crate::failure::Failure;
use crate::quantity;
use crate::system::in_other_words;
use crate::terminal::output_width;
use crate::text::{counted, say, show};

mod delivery;
mod files;
pub(crate) mod kit;
mod lifetime;
mod operations;
pub(crate) mod registration;
mod system;
mod table;
mod threads;
mod waits;

/// How long the probe continues without a trial that ends as expected. After that a running trial is stuck, and
/// the trials that have not run count as different. Each takes milliseconds, or two seconds for a refused connect on
/// Windows; the rest is for a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Options of `cport probe`.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON object a line and nothing else
    #[arg(long)]
    json: bool,
    /// How long to wait for an event that must happen
    ///
    /// A later event counts as missing. Only a system without it lets the probe wait this long.
    #[arg(long, value_name = "TIME", value_parser = quantity::interval, default_value = "20s")]
    patience: Duration,
}

/// A rule and its trial.
struct Trial {
    /// Its number in SEMANTICS.md.
    rule: u8,
    what: &'static str,
    /// The expected observation.
    expected: &'static str,
    run: fn() -> kit::Seen,
}

/// A finished trial.
struct Row {
    trial: &'static Trial,
    outcome: Outcome,
    took: Duration,
}

enum Outcome {
    Seen(String),
    /// The system lacks the subject of the rule.
    Lacking(String),
}

impl Row {
    /// The expectation on this system.
    fn expected(&self) -> &'static str {
        in_other_words(self.trial.rule).unwrap_or(self.trial.expected)
    }

    /// `None` if there was nothing to try.
    fn is_as_expected(&self) -> Option<bool> {
        match &self.outcome {
            Outcome::Seen(seen) => Some(seen == self.expected()),
            Outcome::Lacking(_) => None,
        }
    }

    fn seen(&self) -> String {
        match &self.outcome {
            Outcome::Seen(seen) => seen.clone(),
            Outcome::Lacking(reason) => format!("not tried: {reason}"),
        }
    }

    fn document(&self) -> serde_json::Value {
        json!({
            "rule": self.trial.rule,
            "what": self.trial.what,
            "expected": self.expected(),
            "seen": self.seen(),
            "as_expected": self.is_as_expected(),
            "milliseconds": self.took.as_secs_f64() * 1000.0,
        })
    }
}

/// All trials.
fn trials() -> impl Iterator<Item = &'static Trial> {
    let groups: [&'static [Trial]; 7] = [
        waits::TRIALS,
        registration::TRIALS,
        delivery::TRIALS,
        lifetime::TRIALS,
        threads::TRIALS,
        operations::TRIALS,
        files::TRIALS,
    ];
    groups.into_iter().flatten()
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    kit::begin(options.patience)?;
    let facts = system::facts();
    let width = output_width();
    if options.json {
        for fact in &facts {
            say(format_args!("{}\n", json!({ "system": fact.name, "value": fact.value })))?;
        }
    } else {
        show(format_args!("What this system offers\n\n{}\n", table::facts(&facts, width)))?;
        show(format_args!(
            "Whether the rules of SEMANTICS.md hold here that depend on the system\n\n{}",
            table::head(width)
        ))?;
    }
    let mut progress = Instant::now();
    let mut rows = Vec::new();
    for trial in trials() {
        let row = tried(trial, PATIENCE.saturating_sub(progress.elapsed()));
        if row.is_as_expected() != Some(false) {
            progress = Instant::now();
        }
        if options.json {
            say(format_args!("{}\n", row.document()))?;
        } else {
            say(format_args!("{}", table::row(&row, width)))?;
        }
        rows.push(row);
    }
    #[cfg(windows)]
    reference(options)?;
    let different: Vec<_> = rows
        .iter()
        .filter(|row| row.is_as_expected() == Some(false))
        .map(|row| row.trial.rule.to_string())
        .collect();
    let good = rows.iter().filter(|row| row.is_as_expected() == Some(true)).count();
    let (bad, lacking) = (different.len() as u64, rows.len() - good - different.len());
    if options.json {
        let summary = json!({ "as_expected": good, "different": bad, "not_tried": lacking });
        say(format_args!("{}\n", json!({ "summary": summary })))?;
    } else {
        let lacking = if lacking > 0 { format!(", {lacking} not tried") } else { String::new() };
        show(format_args!("\n{good} as expected, {bad} different{lacking}\n"))?;
    }
    if different.is_empty() {
        return Ok(());
    }
    Err(Failure::Wrong(format!(
        "{} not as expected: {}; `docs/PLATFORM.md` says what a port needs of a system",
        counted(bad, "trial"),
        different.join(", ")
    )))
}

/// Observes the system's own call, without any expectations.
#[cfg(windows)]
fn reference(options: &Options) -> Result<(), Failure> {
    let seen = crate::system::reference();
    if options.json {
        let documents = match seen {
            Err(reason) => {
                vec![json!({ "reference": null, "seen": format!("not tried: {reason}") })]
            }
            Ok(rows) => rows
                .iter()
                .map(|row| {
                    let (what, seen, assumed) = (row.what, &row.seen, row.assumed);
                    json!({ "reference": row.rule, "what": what, "seen": seen, "assumed": assumed })
                })
                .collect(),
        };
        for document in documents {
            say(format_args!("{document}\n"))?;
        }
        return Ok(());
    }
    show(format_args!(
        "\nWhat the system's own call does, by bare calls; nothing is expected here\n\n"
    ))?;
    match seen {
        Err(reason) => show(format_args!("not tried: {reason}\n"))?,
        Ok(rows) => {
            for row in rows {
                show(format_args!("row {}: {}\n    {}\n", row.rule, row.what, row.seen))?;
                if let Some(assumed) = row.assumed {
                    show(format_args!("    assumed: {assumed}\n"))?;
                }
            }
        }
    }
    Ok(())
}

/// Tries a rule in a separate thread, which is abandoned if it is stuck.
fn tried(trial: &'static Trial, left: Duration) -> Row {
    let begin = Instant::now();
    if left.is_zero() {
        let outcome = Outcome::Seen("nothing: earlier trials are stuck".to_owned());
        return Row { trial, outcome, took: Duration::ZERO };
    }
    let (tell, told) = mpsc::channel();
    let spawned = thread::Builder::new().spawn(move || {
        let outcome = (trial.run)().map_or_else(
            |error| match error.downcast::<kit::Lacking>() {
                Ok(lacking) => Outcome::Lacking(lacking.to_string()),
                Err(error) => Outcome::Seen(format!("an error: {error}")),
            },
            Outcome::Seen,
        );
        // The receiver is gone if this took too long.
        let _ = tell.send(outcome);
    });
    let outcome = match spawned {
        Err(error) => Outcome::Seen(format!("an error: no thread: {error}")),
        Ok(_) => told.recv_timeout(left).unwrap_or_else(|error| {
            let seen = match error {
                mpsc::RecvTimeoutError::Timeout => "nothing: it is stuck",
                mpsc::RecvTimeoutError::Disconnected => "a panic",
            };
            Outcome::Seen(seen.to_owned())
        }),
    };
    Row { trial, outcome, took: begin.elapsed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_expectation_is_found() {
        static RIGHT: Trial = Trial { rule: 0, what: "", expected: "3", run: || Ok("3".into()) };
        static WRONG: Trial = Trial { rule: 0, what: "", expected: "3", run: || Ok("4".into()) };
        static FAILS: Trial = Trial { rule: 0, what: "", expected: "3", run: || Err("3".into()) };
        static BREAKS: Trial =
            Trial { rule: 0, what: "", expected: "3", run: || panic!("as it should") };
        static LACKS: Trial = Trial {
            rule: 0,
            what: "",
            expected: "3",
            run: || Err(kit::Lacking("it has none").into()),
        };
        assert_eq!(tried(&RIGHT, PATIENCE).is_as_expected(), Some(true));
        assert_eq!(tried(&RIGHT, Duration::ZERO).is_as_expected(), Some(false));
        for different in [&WRONG, &FAILS, &BREAKS] {
            assert_eq!(tried(different, PATIENCE).is_as_expected(), Some(false));
        }
        let lacking = tried(&LACKS, PATIENCE);
        assert_eq!(lacking.is_as_expected(), None);
        assert_eq!(lacking.seen(), "not tried: it has none");
    }
}
