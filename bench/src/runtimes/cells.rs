//! R1, R4a and R4b: the situations with servers on a runtime, which `rounds` measures.

use std::time::Duration;

use super::server::{self, Kind};
use super::{CONTENDERS, Contender, Options, processors};
use crate::enough::Amount;
use crate::load::{Handlers, Pattern};
use crate::names::runtimes::{
    BY_AXUM, EAGER, MORE_WORKERS, OURS, SMOL, SPAWN_BLOCKING, TOKIO, with_share,
};
use crate::options::{BLOCKING, COMPUTING, ECHO};
use crate::report::{Cell, Row};
use crate::rounds::{self, Place};
use crate::scenario::{CPU, RATE, Setup, turns};
use crate::traffic::{Get, Http, Traffic};
use crate::work::Work;

const CONNECTIONS: usize = 64;
/// One request in this many blocks, for five milliseconds.
const ONCE_IN: u32 = 50;
const FIVE: u32 = 5000;
/// R4a: of how many requests one blocks, in the plot; 0: none does. The usual one is the first.
const SHARES: [u32; 6] = [ONCE_IN, 0, 200, 100, 20, 10];
/// R4b: a computation of 60 ms, like a password hash by bcrypt with cost 10, once in so many requests
/// at this rate: half a processor.
const HASH: u32 = 60_000;
const HASH_RATE: u32 = 2000;
const HASH_ONCE_IN: u32 = HASH_RATE * 60 / 500;

/// What a handler does that blocks.
const BLOCKS: [(&str, Work); 4] = [
    ("std::thread::sleep(5 ms)", Work::Sleep(FIVE)),
    ("a std::sync::Mutex held for 5 ms", Work::Held(FIVE)),
    ("std::fs::read of 64 KiB, not cached", Work::File),
    ("a lookup of `localhost` by std::net", Work::Name),
];

const ALL: [&str; 6] = [OURS, TOKIO, MORE_WORKERS, SPAWN_BLOCKING, EAGER, SMOL];
/// Those that have a server with axum.
const WITH_AXUM: [&str; 3] = [OURS, TOKIO, SPAWN_BLOCKING];

impl Kind {
    fn about(self) -> &'static str {
        match self {
            Kind::Echo => "echo",
            Kind::Http => "HTTP by hyper",
            Kind::Axum => BY_AXUM,
        }
    }

    /// The contenders where handlers block or compute.
    fn contenders(self) -> &'static [&'static str] {
        if self == Kind::Axum { &WITH_AXUM } else { &ALL }
    }

    /// Requests of HTTP. One in `once_in` asks for `work`.
    fn http(self, rate: Option<u32>, once_in: u32, work: Work) -> Traffic {
        let accepts = self == Kind::Axum;
        let other = Get::Work(work);
        Traffic::Http(Http { rate, once_in, other, accepts, ..Http::PLAIN })
    }
}

/// How a cell is measured.
struct Situation {
    scenario: &'static str,
    title: String,
    kind: Kind,
    connections: usize,
    traffic: Traffic,
    handlers: Handlers,
    compared: &'static str,
    round: Duration,
    rounds: Amount,
}

impl Situation {
    fn setup(&self, threads: usize) -> Setup {
        Setup {
            scenario: self.scenario,
            title: self.title.clone(),
            threads,
            connections: self.connections,
            pattern: Pattern { handlers: self.handlers, burst: 1 },
            traffic: self.traffic,
            drain: None,
            compared: self.compared,
            rounds: self.rounds.least,
            round: self.round,
        }
    }

    /// The row of a contender. The error says why it has no program.
    fn place(&self, contender: Contender, threads: usize) -> Result<Place, String> {
        let name = contender.name;
        let server = server::of(name, self.kind).ok_or_else(|| format!("no server `{name}`"))?;
        let setup = self.setup(threads);
        let program = super::program(name)?;
        Ok(Place { name: name.to_owned(), program, contender: server, setup, by_turn: false })
    }

    /// The workers of the contender that gets as many as ours has threads in this situation, and a
    /// note about them. Without that contender no server takes this number.
    fn workers(&self, options: &Options, among: &[&str]) -> (usize, Option<String>) {
        /// If ours does not run.
        const USUAL: usize = 16;
        if !among.contains(&MORE_WORKERS) {
            return (processors(), None);
        }
        let (threads, why) = match options.threads {
            Some(threads) => (threads, "as asked for".to_owned()),
            None => match self.own_threads() {
                Ok(threads) => (threads, "as many as ours has threads".to_owned()),
                Err(reason) => (USUAL, format!("since ours has failed: {reason}")),
            },
        };
        (threads, Some(format!("{MORE_WORKERS}: {threads} workers, {why}")))
    }

    fn own_threads(&self) -> Result<usize, String> {
        let (_, snapshot) = rounds::pilot(&self.place(CONTENDERS[0], processors())?)?;
        snapshot.workers.ok_or_else(|| "it does not count its threads".to_owned())
    }
}

/// Measures these rows; a contender without a program has a row with the reason.
pub(super) fn measure(
    rounds: Amount,
    places: Vec<Result<Place, (String, String)>>,
    notes: Vec<String>,
    step: &mut dyn FnMut(&str),
) -> Cell {
    let mut lacking = Vec::new();
    let mut present = Vec::new();
    for place in places {
        match place {
            Ok(place) => present.push(place),
            Err((contender, reason)) => {
                lacking.push(Row { contender, failure: Some(reason), ..Row::default() });
            }
        }
    }
    let mut cell = rounds::measure(&present, rounds, step);
    cell.rows.extend(lacking);
    cell.threads = Some(processors());
    cell.notes.extend(notes);
    cell
}

fn named(contender: Contender, place: Result<Place, String>) -> Result<Place, (String, String)> {
    place.map_err(|reason| (contender.name.to_owned(), reason))
}

/// A cell whose rows are these contenders.
fn cell(
    options: &Options,
    situation: &Situation,
    among: &[&'static str],
    step: &mut dyn FnMut(&str),
) -> Cell {
    step("counting the threads of ours");
    let (threads, note) = situation.workers(options, among);
    let contenders = options.contenders(among).into_iter();
    let places = contenders.map(|it| named(it, situation.place(it, threads))).collect();
    measure(situation.rounds, places, note.into_iter().collect(), step)
}

/// R1.
pub(super) fn echo(options: &Options, rounds: Amount, step: &mut dyn FnMut(&str)) -> Vec<Cell> {
    let connections = if options.connections.is_empty() {
        vec![1, CONNECTIONS, 1000]
    } else {
        options.connections.clone()
    };
    let cells = connections.into_iter().map(|connections| {
        let situation = Situation {
            scenario: ECHO,
            title: format!("echo of 64 bytes, {connections} connections, all runtimes"),
            kind: Kind::Echo,
            connections,
            traffic: Traffic::Lasting,
            handlers: Handlers::Quick,
            compared: CPU,
            round: options.round.unwrap_or(Duration::from_millis(250)),
            rounds,
        };
        cell(options, &situation, &[OURS, TOKIO, MORE_WORKERS, EAGER, SMOL], step)
    });
    cells.collect()
}

/// R4a: throughput of an echo, then latencies with hyper; both with axum.
pub(super) fn blocking(options: &Options, rounds: Amount, step: &mut dyn FnMut(&str)) -> Vec<Cell> {
    let mut cells = Vec::new();
    for (closed, open) in [(Kind::Echo, Kind::Http), (Kind::Axum, Kind::Axum)] {
        for block in BLOCKS {
            cells.push(throughput(options, rounds, closed, block, step));
        }
        for (index, block) in BLOCKS.into_iter().enumerate() {
            let is_plotted = open == Kind::Http && index == 0;
            let shares = if is_plotted { &SHARES[..] } else { &SHARES[..2] };
            cells.push(latencies(options, rounds, open, block, shares, step));
        }
    }
    cells
}

/// Closed loop.
fn throughput(
    options: &Options,
    rounds: Amount,
    kind: Kind,
    (what, work): (&str, Work),
    step: &mut dyn FnMut(&str),
) -> Cell {
    let (traffic, handlers) = match kind {
        Kind::Echo => (Traffic::Lasting, Handlers::Sometimes { once_in: ONCE_IN.into(), work }),
        Kind::Http | Kind::Axum => (kind.http(None, ONCE_IN, work), Handlers::Quick),
    };
    let about = kind.about();
    let situation = Situation {
        scenario: BLOCKING,
        title: format!("{about}, one request in {ONCE_IN}: {what}; closed loop, 64 connections"),
        kind,
        connections: CONNECTIONS,
        traffic,
        handlers,
        compared: RATE,
        round: options.round.unwrap_or(Duration::from_millis(400)),
        rounds,
    };
    cell(options, &situation, kind.contenders(), step)
}

/// Open loop, at half the capacity of the slowest contender. Each share of requests that block has
/// rows of its own, so that all shares are measured in the same rounds. With two shares, all
/// contenders are measured with the first, and only ours with the other one, in which nothing blocks.
fn latencies(
    options: &Options,
    rounds: Amount,
    kind: Kind,
    (what, work): (&str, Work),
    shares: &[u32],
    step: &mut dyn FnMut(&str),
) -> Cell {
    let mut situation = Situation {
        scenario: BLOCKING,
        title: String::new(),
        kind,
        connections: CONNECTIONS,
        traffic: kind.http(None, ONCE_IN, work),
        handlers: Handlers::Quick,
        compared: "p99",
        round: options.round.unwrap_or(Duration::from_millis(700)),
        rounds,
    };
    let contenders = options.contenders(kind.contenders());
    let (threads, note) = situation.workers(options, kind.contenders());
    let mut notes: Vec<String> = note.into_iter().collect();
    let mut slowest = f64::INFINITY;
    let mut capacities = Vec::new();
    for contender in &contenders {
        step(&format!("capacity of {}", contender.name));
        let place = situation.place(*contender, threads);
        // One that fails here fails in the rounds too, and is reported there.
        let Ok((rate, _)) = place.and_then(|place| rounds::pilot(&place)) else { continue };
        capacities.push(format!("{} {rate:.0}", contender.name));
        slowest = slowest.min(rate);
    }
    let rate = half(slowest);
    notes.push(format!("Capacity in requests per second: {}", capacities.join(", ")));
    let is_plotted = shares.len() > 2;
    situation.round = options.round.unwrap_or(Duration::from_millis(800));
    situation.title = format!(
        "{}, {what}; open loop, {rate} requests per second, 64 connections, by the share of \
         requests that block",
        kind.about()
    );
    let mut places = Vec::new();
    for share in shares {
        let of_share = Situation {
            traffic: kind.http(Some(rate), *share, work),
            title: situation.title.clone(),
            ..situation
        };
        for contender in &contenders {
            if !is_plotted && *share == 0 && contender.name != OURS {
                continue;
            }
            let name = with_share(contender.name, *share);
            let place = of_share.place(*contender, threads);
            let place = place.map(|place| Place { name: name.clone(), ..place });
            places.push(place.map_err(|reason| (name, reason)));
        }
    }
    measure(rounds, places, notes, step)
}

/// Half of a rate, to two digits or so; something, if no contender has one.
pub(super) fn half(rate: f64) -> u32 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is clamped")]
    let half = (rate / 2.0).clamp(100.0, 1e6) as u32;
    if rate.is_finite() { half / 100 * 100 } else { 1000 }
}

/// R4b.
pub(super) fn computing(
    options: &Options,
    rounds: Amount,
    step: &mut dyn FnMut(&str),
) -> Vec<Cell> {
    let cells = [Kind::Http, Kind::Axum].map(|kind| {
        let situation = Situation {
            scenario: COMPUTING,
            title: format!(
                "{}, {HASH_RATE} requests per second, one in {HASH_ONCE_IN} computes for 60 ms \
                 (half a processor); open loop, 64 connections",
                kind.about()
            ),
            kind,
            connections: CONNECTIONS,
            traffic: kind.http(Some(HASH_RATE), HASH_ONCE_IN, Work::Turns(turns(HASH))),
            handlers: Handlers::Quick,
            compared: "p99",
            round: options.round.unwrap_or(Duration::from_secs(2)),
            rounds,
        };
        cell(options, &situation, kind.contenders(), step)
    });
    cells.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::runtimes::QUIET;

    #[test]
    fn computations_take_half_a_processor() {
        let each_second = f64::from(HASH_RATE) / f64::from(HASH_ONCE_IN);
        let used = each_second * f64::from(HASH) / 1e6;
        assert!((used - 0.5).abs() < 0.01, "{used}");
    }

    #[test]
    fn half_of_a_rate_is_a_round_number() {
        assert_eq!(half(17_350.0), 8600);
        assert_eq!(half(50.0), 100);
        assert_eq!(half(f64::INFINITY), 1000);
    }

    #[test]
    fn the_name_of_a_row_has_its_share() {
        assert_eq!(with_share(OURS, 0), format!("ours, {QUIET}"));
        assert_eq!(with_share(TOKIO, 200), "tokio, 0.5 %");
        assert_eq!(with_share(TOKIO, 10), "tokio, 10 %");
    }
}
