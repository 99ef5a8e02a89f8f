//! The processes in which a runtime runs a program that has no clients.

use std::io;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::api::{Eager, Ours, Smol, Tokio};
use super::timers::{self, Timed};
use super::{messages, processors, zoo};
use crate::Failure;
use crate::names::runtimes::{EAGER, MORE_WORKERS, OURS, PORT, SMOL, SPAWN_BLOCKING, TOKIO};

/// A program that takes longer has lost a message.
const LONGEST: Duration = Duration::from_secs(60);

/// What the child prints.
type Said<T> = Result<T, String>;

/// Runs a situation of R5 in a new process.
pub(super) fn messages(contender: &str, name: &str, amount: usize) -> Said<messages::Cost> {
    ask(contender, &["messages", name, &amount.to_string()])
}

/// Runs a program of the zoo in a new process. Returns whether it stalls.
pub(super) fn zoo(contender: &str, name: &str) -> Said<bool> {
    ask(contender, &["zoo", name])
}

/// Runs a situation of R8 in a new process.
pub(super) fn timers(contender: &str, name: &str, count: usize) -> Said<timers::Measured> {
    ask(contender, &["timers", name, &count.to_string()])
}

fn ask<T: DeserializeOwned>(contender: &str, arguments: &[&str]) -> Said<T> {
    let mut command = Command::new(super::program(contender)?);
    command.args(["program", "--contender", contender]).args(arguments);
    let output = output_of(command.stderr(Stdio::inherit()), LONGEST)
        .map_err(|error| format!("program: {error}"))?;
    if !output.status.success() {
        return Err(format!("program: {}", output.status));
    }
    let said: Said<T> = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("program: odd answer: {error}"))?;
    said
}

/// Runs a program that prints no more than a pipe holds. The error says that it could not run, or
/// that it has not ended within the limit.
pub(super) fn output_of(command: &mut Command, limit: Duration) -> io::Result<Output> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        if begun.elapsed() > limit {
            let _: io::Result<()> = child.kill();
            let _: io::Result<_> = child.wait();
            let seconds = limit.as_secs();
            return Err(io::Error::other(format!("has not ended after {seconds} s")));
        }
        pause();
    }
    child.wait_with_output()
}

#[allow(clippy::disallowed_methods, reason = "another process is looked at from time to time")]
fn pause() {
    std::thread::sleep(Duration::from_millis(1));
}

/// The child: runs a program and prints its result.
pub(crate) fn perform(contender: &str, program: &[String]) -> Result<(), Failure> {
    match contender {
        OURS => on::<Ours>(None, false, program),
        TOKIO => on::<Tokio>(None, false, program),
        SPAWN_BLOCKING => on::<Tokio>(None, true, program),
        EAGER => on::<Eager>(None, false, program),
        MORE_WORKERS => on::<Tokio>(Some(zoo::WORKERS), false, program),
        SMOL => on::<Smol>(None, false, program),
        PORT => on_port(program),
        _ => Err(Failure::Unusable(format!("no contender `{contender}`"))),
    }
}

fn on<R: Timed>(workers: Option<usize>, offloads: bool, program: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = program.iter().map(String::as_str).collect();
    let runtime = R::start(workers).map_err(|error| Failure::Broken(error.to_string()))?;
    match words[..] {
        ["messages", name, amount] => {
            let amount = number(amount)?;
            end(&messages::perform(&runtime, name, amount).map_err(|error| error.to_string()))
        }
        ["timers", name, count] => end(&timers::perform(&runtime, name, number(count)?)),
        ["zoo", name] => {
            let stalls = zoo::stalls(&runtime, name, offloads, processors());
            end(&stalls.ok_or_else(|| format!("no program `{name}`")))
        }
        _ => Err(no_program(program)),
    }
}

/// The port has no tasks, so it has only the programs of timers.
fn on_port(program: &[String]) -> Result<(), Failure> {
    let [kind, name, count] = program else { return Err(no_program(program)) };
    if kind != "timers" {
        return Err(no_program(program));
    }
    end(&timers::perform_on_port(name, number(count)?))
}

fn number(text: &str) -> Result<usize, Failure> {
    text.parse().map_err(|_| Failure::Unusable(format!("no number: {text}")))
}

fn no_program(program: &[String]) -> Failure {
    Failure::Unusable(format!("no program `{}`", program.join(" ")))
}

/// A program that stalls has no orderly end; its threads go with the process.
fn end<T: Serialize>(said: &Said<T>) -> Result<(), Failure> {
    let line = serde_json::to_string(said).map_err(|error| Failure::Broken(error.to_string()))?;
    println!("{line}");
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_killed() {
        let mut command = Command::new("sleep");
        let error = output_of(command.arg("3600"), Duration::from_millis(1)).unwrap_err();
        assert_eq!(error.to_string(), "has not ended after 0 s");
        let mut command = Command::new("echo");
        let output = output_of(command.arg("hello"), LONGEST).unwrap();
        assert!(output.status.success() && output.stdout == b"hello\n");
    }
}
