//! A run: reads the options, measures cell by cell, prints and writes what came of it.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;

use crate::Failure;
use crate::contenders::{self, Contender};
use crate::enough::{Amount, Limit};
use crate::machine::Machine;
use crate::report::{Cell, Described, FORMAT, Report};
use crate::rounds::{self, Limits};
use crate::scenario::{Extent, SCENARIOS, Selection};
use crate::sink::Reads;
use crate::{callgrind, plot, posts, registration, single, table, targets};

/// What `--help` says after the options.
pub(crate) fn help() -> String {
    let lines: Vec<String> =
        SCENARIOS.iter().map(|(name, about)| format!("  {name:<14}{about}\n")).collect();
    format!(
        "Scenarios:\n{}\nEach contender's figures are medians of the rounds. Intervals (95 %) are \
         order statistics of the\nrounds; ratios are made within a round. A server's `sleeps` are \
         its voluntary context switches for\neach request: each is a thread that had to be woken. \
         `own wakes` is its own count, `syscalls` the\nkernel's, in a round apart.\n\n\
         Exit codes:\n  0  the run came to its end\n  1  it broke down\n  \
         2  it could not begin: a bad argument, a file that cannot be read or written",
        lines.concat()
    )
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// One situation only (S1, 64 connections, 2 threads), in half a minute
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Every number of threads with every number of connections, in an hour or two
    #[arg(long)]
    full: bool,
    /// Only these scenarios
    #[arg(long, value_name = "S1,S4,…", value_delimiter = ',')]
    scenario: Vec<String>,
    /// Only these contenders, besides `ours`
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    against: Vec<String>,
    /// These numbers of threads instead of each scenario's own
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = count)]
    threads: Vec<usize>,
    /// These numbers of connections instead of each scenario's own
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = count)]
    connections: Vec<usize>,
    /// S16: handlers that compute for so many microseconds, instead of the usual ones
    #[arg(long, value_name = "US,…", value_delimiter = ',', value_parser = microseconds)]
    handler: Vec<u32>,
    /// S16: handlers that read once for each packet, or all there is, instead of the usual ones
    #[arg(long, value_name = "one,all", value_delimiter = ',', hide_possible_values = true)]
    reads: Vec<Reads>,
    /// Exactly so many rounds for each situation; intervals need six
    #[arg(long, value_name = "N", value_parser = count)]
    rounds: Option<usize>,
    /// Take more rounds than usual, where too few are comparable, only until so many minutes of the run are over
    #[arg(long, value_name = "MINUTES", default_value_t = 30, conflicts_with = "rounds")]
    limit: u32,
    /// How long each round lasts
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,
    /// Write the raw JSON into this directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the plot of S1 with 64 connections
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=100_000) => Ok(count),
        _ => Err("a number from 1 to 100000 is wanted".to_owned()),
    }
}

fn microseconds(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(microseconds @ 0..=100) => Ok(microseconds),
        _ => Err("a number from 0 to 100 is wanted".to_owned()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=60.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("a number from 0.01 to 60 is wanted".to_owned()),
    }
}

impl Options {
    fn selection(&self, descriptors: usize) -> Result<Selection, String> {
        for wanted in &self.scenario {
            if !SCENARIOS.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted)) {
                let names: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
                return Err(format!("no scenario `{wanted}`; there are {}", names.join(", ")));
            }
        }
        Ok(Selection {
            extent: match (self.quick, self.full) {
                (true, _) => Extent::Quick,
                (_, true) => Extent::Full,
                _ => Extent::Usual,
            },
            scenarios: self.scenario.clone(),
            threads: self.threads.clone(),
            connections: self.connections.clone(),
            handlers: self.handler.clone(),
            reads: self.reads.clone(),
            rounds: self.rounds,
            round: self.seconds,
            descriptors,
        })
    }

    /// A number of rounds that was asked for is exact, and so is the quick run.
    fn limit(&self) -> Limit {
        let minutes = (self.rounds.is_none() && !self.quick).then_some(self.limit);
        Limit::new(minutes.map(|minutes| Duration::from_secs(60) * minutes))
    }

    fn contenders(&self) -> Result<Vec<Contender>, String> {
        let all = contenders::all();
        for wanted in &self.against {
            if !all.iter().any(|contender| contender.name == wanted) {
                let names: Vec<&str> = all.iter().map(|contender| contender.name).collect();
                return Err(format!("no contender `{wanted}`; there are {}", names.join(", ")));
            }
        }
        let is_in = |(index, contender): &(usize, Contender)| {
            let named = self.against.iter().any(|wanted| wanted == contender.name);
            *index == 0 || self.against.is_empty() || named
        };
        Ok(all.into_iter().enumerate().filter(is_in).map(|(_, contender)| contender).collect())
    }
}

/// Measures what the options say.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let machine = Machine::here();
    let descriptors = machine.descriptors.and_then(|limit| usize::try_from(limit).ok());
    let descriptors = descriptors.unwrap_or(usize::MAX);
    let selection = options.selection(descriptors).map_err(Failure::Unusable)?;
    let contenders = options.contenders().map_err(Failure::Unusable)?;
    let setups = selection.setups().map_err(Failure::Unusable)?;
    if let Some(directory) = &options.out {
        fs::create_dir_all(directory).map_err(|error| unusable(directory, &error))?;
    }
    if let Some(file) = &options.plot {
        // Better now than after all the rounds.
        fs::write(file, "").map_err(|error| unusable(file, &error))?;
    }
    if cfg!(debug_assertions) {
        eprintln!("cport-bench: this is a debug build, its figures are worth nothing");
    }

    let begin = Instant::now();
    let mut report = Report {
        format: FORMAT,
        machine,
        arguments: std::env::args().skip(1).collect(),
        contenders: contenders
            .iter()
            .map(|contender| Described {
                name: contender.name.to_owned(),
                about: contender.about.to_owned(),
                version: (contender.version)(),
            })
            .collect(),
        cells: Vec::new(),
        seconds: 0.0,
    };
    say(&table::head(&report))?;
    let limit = options.limit();
    let (server_less, mut rest) = (within_the_process_takes(&selection), Duration::ZERO);
    for setup in &setups {
        rest += rounds::usual_time(setup, contenders.len(), descriptors);
    }
    for (done, setup) in setups.iter().enumerate() {
        let progress = Progress::new(format!("{} {}/{}", setup.scenario, done + 1, setups.len()));
        let belongs =
            |it: &&Contender| !options.against.is_empty() || it.belongs_to(setup.scenario);
        let contenders: Vec<_> = contenders.iter().filter(belongs).copied().collect();
        let usual = rounds::usual_time(setup, report.contenders.len(), descriptors);
        rest = rest.saturating_sub(usual);
        let limits = Limits { descriptors, until: limit.before(rest + server_less) };
        let cell = rounds::measure(setup, &contenders, limits, &mut |step| progress.show(step));
        progress.clear();
        add(&mut report, cell)?;
    }
    within_the_process(&selection, limit, &mut report)?;
    report.seconds = begin.elapsed().as_secs_f64();
    if let Some(directory) = &options.out {
        let file = directory.join(format!("{}.json", report.machine.date.replace(':', "")));
        report.write(&file).map_err(Failure::Broken)?;
        say(&format!("\nraw values: {}\n", file.display()))?;
    }
    finish(&report, options.plot.as_deref())
}

/// How long it takes to measure what needs no server; a guess, on the safe side.
fn within_the_process_takes(selection: &Selection) -> Duration {
    let all = [("S6", 50), ("S7", 15), ("single", 40)];
    let wanted = all.into_iter().filter(|(name, _)| selection.wants(name));
    Duration::from_secs(wanted.map(|(_, seconds)| seconds).sum())
}

/// Measures what needs no server.
fn within_the_process(
    selection: &Selection,
    limit: Limit,
    report: &mut Report,
) -> Result<(), Failure> {
    let (posts, registration, single) =
        (posts::Options::default(), registration::Options::default(), single::Options::default());
    // With `--rounds 2` it is a try, whatever is measured.
    let rounds = |usual: Amount| Amount {
        least: selection.rounds.unwrap_or(usual.least),
        until: limit.before(Duration::ZERO),
    };
    let posts = posts::Options { rounds: rounds(posts.rounds), ..posts };
    let registration =
        registration::Options { rounds: rounds(registration.rounds), ..registration };
    let single = single::Options { rounds: rounds(single.rounds), ..single };
    type Bench<'b> = (&'static str, &'b dyn Fn(&Progress) -> Vec<Cell>);
    let benches: [Bench<'_>; 3] = [
        ("S6", &|progress| posts::run(posts, &mut |step| progress.show(step))),
        ("S7", &|progress| registration::run(registration, &mut |step| progress.show(step))),
        ("single", &|progress| single::run(single, &mut |step| progress.show(step))),
    ];
    for (name, run) in benches {
        if selection.wants(name) {
            let progress = Progress::new(name.to_owned());
            let cells = run(&progress);
            progress.clear();
            cells.into_iter().try_for_each(|cell| add(report, cell))?;
        }
    }
    if selection.wants("instructions") {
        let progress = Progress::new("instructions".to_owned());
        let cells = callgrind::run(&mut |step| progress.show(step));
        progress.clear();
        let cells = cells.map_err(|error| Failure::Broken(format!("instructions: {error}")))?;
        cells.into_iter().try_for_each(|cell| add(report, cell))?;
    }
    Ok(())
}

fn add(report: &mut Report, cell: Cell) -> Result<(), Failure> {
    say(&table::cell(&cell))?;
    report.cells.push(cell);
    Ok(())
}

/// Prints a report that was read from a file.
pub(crate) fn show(report: &Report, plot: Option<&Path>) -> Result<(), Failure> {
    say(&table::head(report))?;
    for cell in &report.cells {
        say(&table::cell(cell))?;
    }
    finish(report, plot)
}

/// The summary, and the plot if it is wanted.
fn finish(report: &Report, file: Option<&Path>) -> Result<(), Failure> {
    say(&targets::summary(report))?;
    say(&table::too_few_comparable(report))?;
    let Some(file) = file else { return Ok(()) };
    let svg = plot::svg(report).map_err(Failure::Unusable)?;
    fs::write(file, svg).map_err(|error| unusable(file, &error))?;
    say(&format!("\nplot: {}\n", file.display()))
}

fn unusable(file: &Path, error: &io::Error) -> Failure {
    Failure::Unusable(format!("{}: {error}", file.display()))
}

fn say(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .map_err(|error| Failure::Broken(format!("standard output: {error}")))
}

/// One line on a terminal that tells what is being measured; nothing elsewhere.
struct Progress {
    is_terminal: bool,
    cell: String,
}

impl Progress {
    fn new(cell: String) -> Progress {
        Progress { is_terminal: io::stderr().is_terminal(), cell }
    }

    fn show(&self, step: &str) {
        if self.is_terminal {
            eprint!("\r\x1b[K{}: {step}", self.cell);
        }
    }

    fn clear(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
