//! R1 to R9 and the zoo: programs whose tasks may block, timers, files, and servers that people know, on
//! several runtimes.
//!
//! Each program has one source for all runtimes ([`api::Runtime`]), and each runtime runs it in a
//! separate process. With axum, only the code that accepts and runs the connections differs.

mod api;
mod axum;
mod cells;
mod child;
mod dns;
mod eager;
mod files;
mod foreign;
mod messages;
mod redis;
mod server;
mod shared;
mod timers;
mod web;
mod zoo;

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use crate::enough::Amount;
use crate::names::runtimes::{
    EAGER, MORE_WORKERS, OURS, PORT, SMOL, SPAWN_BLOCKING, STALLS, TOKIO,
};
use crate::options::{
    self, ASKED_FOR, BLOCKING, COMPUTING, DNS, ECHO, HTTP, INSTRUCTIONS, MESSAGES, REDIS,
    SERVED_FILES, SHORT_HTTP, TIMERS, ZOO,
};
use crate::report::{Cell, Described, Row};
use crate::run::Bench;
use crate::{distance, system};

pub(crate) use self::child::perform;

/// A runtime, and how the programs use it; the version of its crate.
#[derive(Clone, Copy, Debug)]
struct Contender {
    name: &'static str,
    about: &'static str,
    version: &'static str,
}

const ON_TOKIO: &str = concat!("tokio ", env!("VERSION_OF_tokio"));

/// The first is the one to which the others are compared.
const CONTENDERS: [Contender; 6] = [
    Contender {
        name: OURS,
        about: "completion-port-runtime with its default settings",
        version: concat!("completion-port-runtime ", env!("VERSION_OF_completion-port-runtime")),
    },
    Contender { name: TOKIO, about: "as many workers as processors", version: ON_TOKIO },
    Contender {
        name: MORE_WORKERS,
        about: "as many workers as ours has threads in that workload, measured before",
        version: ON_TOKIO,
    },
    Contender {
        name: SPAWN_BLOCKING,
        about: "what blocks is inside spawn_blocking",
        version: ON_TOKIO,
    },
    Contender {
        name: EAGER,
        about: "eager hand-off of its driver, an unstable feature",
        version: ON_TOKIO,
    },
    Contender {
        name: SMOL,
        about: "as many threads as processors",
        version: concat!("smol ", env!("VERSION_OF_smol")),
    },
];

/// What a run measures here.
#[derive(Clone, Debug)]
struct Options {
    /// All, if empty.
    against: Vec<String>,
    /// The workers of the contender that gets more of them, instead of those of ours.
    threads: Option<usize>,
    /// Instead of the usual ones, unless empty.
    connections: Vec<usize>,
    /// The length of each round, instead of the usual one.
    round: Option<Duration>,
}

impl Options {
    /// The wanted ones of these, in their order; ours is always first.
    fn contenders(&self, among: &[&'static str]) -> Vec<Contender> {
        let is_wanted = |contender: &Contender| {
            let name = contender.name;
            let named = |wanted: &String| wanted == name;
            let asked = self.against.is_empty() || self.against.iter().any(named);
            among.contains(&name) && (name == OURS || asked)
        };
        CONTENDERS.into_iter().filter(is_wanted).collect()
    }
}

/// The program that has this contender.
fn program(contender: &str) -> Result<PathBuf, String> {
    if contender == EAGER { eager::program() } else { Ok(system::own_program()) }
}

/// All servers.
pub(crate) fn servers() -> Vec<crate::contenders::Contender> {
    [
        server::all(),
        axum::servers(),
        web::servers(),
        redis::servers(),
        files::servers(),
        timers::servers(),
        dns::servers(),
    ]
    .concat()
}

/// Whether it is one of the runtimes, or another server of R2, R3, R6 or R9.
pub(crate) fn is_contender(name: &str) -> bool {
    CONTENDERS.iter().any(|contender| contender.name == name)
        || web::described()
            .chain(redis::described())
            .chain(dns::described())
            .any(|described| described.name == name)
}

/// The runtimes that take part, for the report.
pub(crate) fn described(options: &options::Run) -> Vec<Described> {
    let is = |wanted: &str, name: &&str| wanted.eq_ignore_ascii_case(name);
    let is_wanted = |name: &&str| options.scenario.iter().any(|wanted| is(wanted, name));
    if !ASKED_FOR.iter().filter(|name| **name != INSTRUCTIONS).any(is_wanted) {
        return Vec::new();
    }
    let of_http = [HTTP, SHORT_HTTP].iter().any(is_wanted).then(web::described);
    let of_files = is_wanted(&SERVED_FILES).then(files::described);
    let of_redis = is_wanted(&REDIS).then(redis::described);
    let of_timers = is_wanted(&TIMERS).then(timers::described);
    let of_dns = is_wanted(&DNS).then(dns::described);
    let of_axum = [BLOCKING, COMPUTING].iter().any(is_wanted).then(axum::described);
    let of = |contender: Contender| Described {
        name: format!("{} in R", contender.name),
        about: contender.about.to_owned(),
        version: contender.version.to_owned(),
    };
    // The port has a server of each.
    let of_http: Vec<Described> = of_http.into_iter().flatten().collect();
    let is_new = |it: &Described| of_http.iter().all(|other| other.name != it.name);
    let of_redis: Vec<Described> = of_redis.into_iter().flatten().filter(is_new).collect();
    let of_files: Vec<Described> = of_files.into_iter().flatten().filter(is_new).collect();
    let has_port = || of_http.iter().chain(&of_redis).any(|other| other.name == PORT);
    let of_timers = of_timers.filter(|_| !has_port());
    let on_runtimes = CONTENDERS.into_iter().map(of).chain(of_axum.into_iter().flatten());
    let of_dns = of_dns.into_iter().flatten();
    let others = of_http.into_iter().chain(of_redis).chain(of_files).chain(of_timers);
    on_runtimes.chain(others).chain(of_dns).collect()
}

/// The scenarios, each with what measures it.
pub(crate) fn benches(
    options: &options::Run,
    rounds: &dyn Fn(Amount) -> Amount,
) -> Vec<Bench<'static>> {
    let here = Options {
        against: options.against.clone(),
        threads: options.threads.first().copied(),
        connections: options.connections.clone(),
        round: options.seconds,
    };
    // Where the distance of the processors hardly matters, no more rounds are taken for it.
    let exactly = |usual| Amount { until: None, ..rounds(Amount::exactly(usual)) };
    let (echo, messages) = (rounds(Amount::exactly(9)), rounds(Amount::exactly(9)));
    let (blocking, computing) = (exactly(7), exactly(7));
    let divided_by = if options.quick { 20 } else { 1 };
    let web = rounds(Amount::exactly(9));
    let of = || here.clone();
    let [for_echo, for_blocking, for_computing, for_messages, for_zoo] =
        [of(), of(), of(), of(), of()];
    let [for_web, for_short, for_redis, for_files] = [of(), of(), of(), of()];
    let [for_timers, for_dns] = [of(), of()];
    let zoo = rounds(Amount::exactly(3)).least;
    vec![
        (ECHO, Box::new(move |step| cells::echo(&for_echo, echo, step))),
        (BLOCKING, Box::new(move |step| cells::blocking(&for_blocking, blocking, step))),
        (COMPUTING, Box::new(move |step| cells::computing(&for_computing, computing, step))),
        (
            MESSAGES,
            Box::new(move |step| measure_messages(&for_messages, messages, divided_by, step)),
        ),
        (ZOO, Box::new(move |step| measure_zoo(&for_zoo, zoo, step))),
        (HTTP, Box::new(move |step| web::lasting(&for_web, web, step))),
        (SHORT_HTTP, Box::new(move |step| web::short(&for_short, web, step))),
        (REDIS, Box::new(move |step| redis::measure(&for_redis, web, step))),
        (SERVED_FILES, Box::new(move |step| files::measure(&for_files, web, step))),
        (TIMERS, Box::new(move |step| timers::measure(&for_timers, web, divided_by, step))),
        (DNS, Box::new(move |step| dns::measure(&for_dns, web, step))),
    ]
}

/// R5: a cell for each situation.
fn measure_messages(
    options: &Options,
    rounds: Amount,
    divided_by: usize,
    step: &mut dyn FnMut(&str),
) -> Vec<Cell> {
    /// The quantity that is compared: wall-clock time.
    const COMPARED: &str = "operation";
    let contenders = options.contenders(&[OURS, TOKIO, EAGER, SMOL]);
    let mut cells = Vec::new();
    for bench in messages::BENCHES {
        let amount = (bench.amount / divided_by).max(1);
        let mut rows = rows(contenders.iter().map(|contender| contender.name));
        let mut round = 0;
        while rounds.goes_on(round, &rows, COMPARED) {
            for turn in 0..rows.len() {
                let at = (round + turn) % rows.len();
                let row = &mut rows[at];
                step(&format!("{}, round {}, {}", bench.name, round + 1, row.contender));
                let before = distance::measure();
                let cost = child::messages(&row.contender, bench.name, amount);
                if let Err(reason) = &cost {
                    row.failure = Some(reason.clone());
                }
                let cost = cost.ok();
                let each = |total: fn(&messages::Cost) -> u64| {
                    cost.as_ref().map(|cost| to_float(total(cost)) / count(cost.operations))
                };
                row.push(COMPARED, "ns", each(|cost| cost.elapsed));
                row.push("cpu", "ns", each(|cost| cost.processor));
                row.note_distance(&before, &distance::measure());
            }
            round += 1;
        }
        cells.push(Cell {
            scenario: MESSAGES.to_owned(),
            title: format!("{}: {}", bench.name, bench.about),
            threads: Some(processors()),
            compared: COMPARED.to_owned(),
            rows,
            ..Cell::default()
        });
    }
    cells
}

/// The zoo: a cell for each program.
fn measure_zoo(options: &Options, rounds: usize, step: &mut dyn FnMut(&str)) -> Vec<Cell> {
    let contenders = options.contenders(&CONTENDERS.map(|contender| contender.name));
    let mut cells = Vec::new();
    for animal in zoo::ANIMALS {
        let mut rows = rows(contenders.iter().map(|contender| contender.name));
        for round in 0..rounds {
            for turn in 0..rows.len() {
                let at = (round + turn) % rows.len();
                let row = &mut rows[at];
                step(&format!("{}, round {}, {}", animal.name, round + 1, row.contender));
                let stalls = child::zoo(&row.contender, animal.name);
                if let Err(reason) = &stalls {
                    row.failure = Some(reason.clone());
                }
                row.push(STALLS, "", stalls.ok().map(|stalls| f64::from(u8::from(stalls))));
            }
        }
        let workers = zoo::WORKERS;
        let mut notes = vec![format!("{MORE_WORKERS}: {workers} workers")];
        notes.splice(0..0, verdicts(&rows));
        cells.push(Cell {
            scenario: ZOO.to_owned(),
            title: format!("{}: {}", animal.name, animal.about),
            threads: Some(processors()),
            rows,
            notes,
            ..Cell::default()
        });
    }
    cells
}

/// In words: who stalls, and who does not.
fn verdicts(rows: &[Row]) -> Vec<String> {
    let verdict = |row: &Row| {
        let values = || row.values(STALLS).iter().flatten();
        let (all, stalled) = (values().count(), values().filter(|value| **value > 0.0).count());
        match (all, stalled) {
            (0, _) => None,
            (_, 0) => Some(format!("{} does not stall", row.contender)),
            _ => Some(format!("{} stalls ({stalled} of {all})", row.contender)),
        }
    };
    rows.iter().filter_map(verdict).collect()
}

fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn rows<'n>(names: impl Iterator<Item = &'n str>) -> Vec<Row> {
    names.map(|name| Row { contender: name.to_owned(), ..Row::default() }).collect()
}

#[allow(clippy::cast_precision_loss, reason = "counts and nanoseconds of a run are below 2^53")]
fn to_float(number: u64) -> f64 {
    number as f64
}

#[allow(clippy::cast_precision_loss, reason = "counts of a run are below 2^53")]
fn count(number: usize) -> f64 {
    number as f64
}
