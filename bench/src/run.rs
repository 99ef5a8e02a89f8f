//! A run: reads the options, measures cell by cell, prints and writes the results.

use std::fs;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::contenders::{self, Contender};
use crate::enough::{Amount, Limit};
use crate::machine::Machine;
use crate::options::{
    BLOCKING, COMPUTING, DNS, ECHO, FILES, HTTP, IN_FLIGHT, MESSAGES, REDIS, Run as Options,
    SCENARIOS, SERVED_FILES, SHORT_HTTP, TIMERS, ZOO,
};
use crate::report::{Cell, Described, FORMAT, Report};
use crate::rounds;
use crate::scenario::{Extent, Selection};
use crate::{Failure, called};
use crate::{compare, first_look, in_flight, plot, posts, system, table, targets, timers};

impl Options {
    fn selection(&self, descriptors: usize) -> Result<Selection, String> {
        for wanted in &self.scenario {
            if !SCENARIOS.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted)) {
                let names: Vec<&str> = SCENARIOS.iter().map(|(name, _)| *name).collect();
                return Err(format!("no scenario `{wanted}`; there are {}", names.join(", ")));
            }
            if let Some(reason) = system::lacks(wanted) {
                return Err(format!("{wanted} is not measured on this system: {reason}"));
            }
            let is_within = |(name, _): &(&str, u64)| name.eq_ignore_ascii_case(wanted);
            if self.compare.is_some() && WITHIN_THE_PROCESS.iter().any(is_within) {
                return Err(format!("{wanted} has no servers, so two builds cannot be compared"));
            }
        }
        Ok(Selection {
            extent: if self.quick { Extent::Quick } else { Extent::Usual },
            scenarios: self.scenario.clone(),
            threads: self.threads.clone(),
            connections: self.connections.clone(),
            rounds: self.rounds.or(self.compare.as_ref().map(|_| compare::LEAST)),
            round: self.seconds,
            descriptors,
        })
    }

    /// A number of rounds that was asked for is exact, and so is the quick run among rivals.
    fn limit(&self) -> Limit {
        let is_exact = self.rounds.is_some() || (self.quick && self.compare.is_none());
        let minutes = (!is_exact).then_some(self.limit);
        Limit::new(minutes.map(|minutes| Duration::from_secs(60) * minutes))
    }

    fn contenders(&self) -> Result<Vec<Contender>, String> {
        let all = contenders::all();
        for wanted in &self.against {
            let is_known = all.iter().any(|contender| contender.name == wanted);
            if !is_known && !system::is_runtime(wanted) {
                let names: Vec<&str> = all.iter().map(|contender| contender.name).collect();
                return Err(format!("no contender `{wanted}`; there are {}", names.join(", ")));
            }
        }
        let is_in = |(index, contender): &(usize, Contender)| {
            let named = self.against.iter().any(|wanted| wanted == contender.name);
            let usual = self.compare.is_none() || compare::is_ours(contender.name);
            *index == 0 || (self.against.is_empty() && usual) || named
        };
        Ok(all.into_iter().enumerate().filter(is_in).map(|(_, contender)| contender).collect())
    }
}

/// Measures according to the options.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    if options.sandbox {
        // Before there is another thread or process.
        let sandbox = system::enter_sandbox();
        sandbox.map_err(|error| Failure::Unusable(format!("--sandbox: {error}")))?;
    }
    let machine = Machine::here();
    let descriptors = machine.descriptors.and_then(|limit| usize::try_from(limit).ok());
    let descriptors = descriptors.unwrap_or(usize::MAX);
    let selection = options.selection(descriptors).map_err(Failure::Unusable)?;
    let contenders = options.contenders().map_err(Failure::Unusable)?;
    let setups = selection.setups().map_err(Failure::Unusable)?;
    if let Some(other) = &options.compare {
        compare::check(other).map_err(Failure::Unusable)?;
    }
    if let Some(directory) = &options.out {
        fs::create_dir_all(directory).map_err(|error| unusable(directory, &error))?;
    }
    if let Some(file) = &options.plot {
        // Better now than after all the rounds.
        fs::write(file, "").map_err(|error| unusable(file, &error))?;
    }
    if cfg!(debug_assertions) {
        eprintln!("{}: this is a debug build, its figures are worth nothing", called());
    }

    let begin = Instant::now();
    let mut report = Report {
        format: FORMAT,
        machine,
        arguments: without_out(std::env::args().skip(1)),
        contenders: contenders
            .iter()
            .map(|contender| Described {
                name: contender.name.to_owned(),
                about: contender.about.to_owned(),
                version: (contender.version)(),
            })
            .chain(system::runtimes_described(options))
            .collect(),
        cells: Vec::new(),
        seconds: 0.0,
    };
    say(&table::head(&report))?;
    let limit = options.limit();
    let server_less = if options.compare.is_some() {
        Duration::ZERO
    } else {
        within_the_process_takes(&selection)
    };
    let mut rest = Duration::ZERO;
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
        let cells = match &options.compare {
            None => vec![rounds::line_up(setup, &contenders, descriptors)],
            Some(other) => contenders
                .iter()
                .map(|contender| compare::places(setup, contender, other, descriptors))
                .collect(),
        };
        let amount = Amount {
            least: setup.rounds,
            until: limit.before(rest + server_less),
            narrow_or: options.compare.as_ref().map(|_| compare::MOST),
        };
        for places in cells {
            let cell = rounds::measure(&places, amount, &mut |step| progress.show(step));
            progress.clear();
            add(&mut report, cell)?;
        }
    }
    within_the_process(options, &selection, limit, &mut report)?;
    report.seconds = begin.elapsed().as_secs_f64();
    if let Some(directory) = &options.out {
        let file = directory.join(format!("{}.json", report.machine.date.replace(':', "")));
        report.write(&file).map_err(Failure::Broken)?;
        say(&format!("\nraw values: {}\n", file.display()))?;
    }
    finish(&report, options.plot.as_deref())
}

/// The scenarios that need no server, and how many seconds they take; a guess, on the safe side.
const WITHIN_THE_PROCESS: [(&str, u64); 17] = [
    ("S6", 50),
    ("S7", 15),
    (FILES, 220),
    ("S15", 20),
    (IN_FLIGHT, 60),
    ("single", 40),
    (ECHO, 80),
    (BLOCKING, 700),
    (COMPUTING, 150),
    (MESSAGES, 120),
    (ZOO, 200),
    (HTTP, 300),
    (SHORT_HTTP, 150),
    (REDIS, 200),
    (SERVED_FILES, 150),
    (TIMERS, 250),
    (DNS, 80),
];

/// How long it takes to measure what needs no server.
fn within_the_process_takes(selection: &Selection) -> Duration {
    let wanted = WITHIN_THE_PROCESS.into_iter().filter(|(name, _)| selection.wants(name));
    Duration::from_secs(wanted.map(|(_, seconds)| seconds).sum())
}

/// A scenario without a server, and the function that measures it and reports its steps.
pub(crate) type Bench<'b> = (&'static str, Box<dyn Fn(&mut dyn FnMut(&str)) -> Vec<Cell> + 'b>);

/// Measures what needs no server.
fn within_the_process(
    options: &Options,
    selection: &Selection,
    limit: Limit,
    report: &mut Report,
) -> Result<(), Failure> {
    let (posts, timers) = (posts::Options::default(), timers::Options::default());
    let in_flight = in_flight::Options::default();
    // With `--rounds 2` it is a try, whatever is measured.
    let rounds = |usual: Amount| Amount {
        least: selection.rounds.unwrap_or(usual.least),
        until: limit.before(Duration::ZERO),
        narrow_or: None,
    };
    // A first look takes fewer messages.
    let messages = posts.messages / if options.quick { 20 } else { 1 };
    let posts = posts::Options { rounds: rounds(posts.rounds), messages };
    let timers = timers::Options { rounds: rounds(timers.rounds), ..timers };
    let in_flight = in_flight::Options { rounds: rounds(in_flight.rounds), ..in_flight };
    let mut benches: Vec<Bench<'_>> = vec![
        ("S6", Box::new(move |step| posts::run(posts, step))),
        ("S15", Box::new(move |step| timers::run(timers, step))),
        (IN_FLIGHT, Box::new(move |step| in_flight::run(in_flight, step))),
    ];
    benches.extend(system::benches(options, &rounds));
    benches.sort_by_key(|(name, _)| SCENARIOS.iter().position(|(scenario, _)| scenario == name));
    for (name, run) in benches {
        if selection.wants(name) && options.compare.is_none() {
            let progress = Progress::new(name.to_owned());
            let cells = run(&mut |step| progress.show(step));
            progress.clear();
            cells.into_iter().try_for_each(|cell| add(report, cell))?;
        }
    }
    if selection.wants("instructions") {
        let progress = Progress::new("instructions".to_owned());
        let cells =
            system::instructions(options.compare.as_deref(), &mut |step| progress.show(step));
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
    // Targets need more than one situation.
    let is_quick = report.arguments.iter().any(|argument| argument == "--quick");
    say(&if compare::is_comparison(report) {
        compare::summary(report)
    } else if is_quick {
        first_look::summary(report)
    } else {
        targets::summary(report)
    })?;
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

/// A progress line on a terminal; nothing elsewhere.
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

/// The arguments without that for the folder of the raw results, which is this machine's affair.
fn without_out(mut arguments: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    while let Some(argument) = arguments.next() {
        if argument == "--out" {
            arguments.next();
        } else if !argument.starts_with("--out=") {
            kept.push(argument);
        }
    }
    kept
}
