//! R6: servers with the protocol of Redis, and Redis itself. The commands, and the values that all
//! connections share, are those of the library's examples, on a port and on several runtimes.
//!
//! The load is that of `redis-benchmark`: its 50 connections each send a request, or 16 together, and
//! wait for the replies.

mod benchmark;
mod servers;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::benchmark::COMMANDS;
use super::foreign::redis;
use super::shared::row_name;
use super::{Options, processors};
use crate::contenders::Contender;
use crate::distance;
use crate::enough::Amount;
use crate::names::runtimes::{OURS, PORT, REDIS_ITSELF, SMOL, TOKIO};
use crate::options::REDIS;
use crate::remote::Remote;
use crate::report::{Cell, Described, Row};
use crate::scenario::{CPU, RATE};
use crate::sink::Service;
use crate::system;
use crate::traffic::Traffic;

/// The first is the one to which the others are compared.
const ALL: [&str; 5] = [OURS, TOKIO, SMOL, PORT, REDIS_ITSELF];
const CONNECTIONS: usize = 50;
/// Requests that a connection sends together.
const TOGETHER: [usize; 2] = [1, 16];

/// The servers, on runtimes and otherwise.
pub(super) fn servers() -> Vec<Contender> {
    let mut all = servers::all();
    all.push(Contender {
        name: "redis/redis",
        about: "Redis itself, with one thread for commands",
        version: redis::version,
        start: redis::start,
    });
    all
}

/// Those that are not on a runtime, for the report.
pub(super) fn described() -> impl Iterator<Item = Described> {
    let is_other = |server: &Contender| !server.about.is_empty();
    servers().into_iter().filter(is_other).map(|server| Described::of(&server))
}

/// A server, by the name of its row. The error says why there is none.
fn server(name: &str) -> Result<Contender, String> {
    if name == REDIS_ITSELF
        && let Some(reason) = redis::lacks()
    {
        return Err(reason);
    }
    let found = servers().into_iter().find(|it| row_name(it) == name);
    found.ok_or_else(|| format!("no server `{name}`"))
}

fn start(name: &str) -> Result<Remote, String> {
    let contender = server(name)?;
    // It accepts by its own means, as with short connections.
    let (traffic, threads) = (Traffic::Short, processors());
    let program = system::own_program();
    Remote::start_of(&program, contender.name, threads, Service::Echo, traffic, false)
}

/// A cell for each command, alone and pipelined.
pub(super) fn measure(options: &Options, rounds: Amount, step: &mut dyn FnMut(&str)) -> Vec<Cell> {
    let connections = options.connections.first().copied().unwrap_or(CONNECTIONS);
    let mut cells = Vec::new();
    for together in TOGETHER {
        for command in COMMANDS {
            let situation = Situation { command, together, connections, round: options.round };
            cells.push(situation.measure(options, rounds, step));
        }
    }
    cells
}

struct Situation {
    command: &'static [&'static str],
    together: usize,
    connections: usize,
    round: Option<Duration>,
}

impl Situation {
    fn measure(&self, options: &Options, rounds: Amount, step: &mut dyn FnMut(&str)) -> Cell {
        let name = self.command[0];
        let names = options.names(&ALL);
        let row = |name: &&str| Row { contender: (*name).to_owned(), ..Row::default() };
        let mut rows: Vec<Row> = names.iter().map(row).collect();
        let mut remotes: Vec<Option<Remote>> = Vec::new();
        for row in &mut rows {
            let remote = benchmark::lacks().map_or_else(|| start(&row.contender), Err);
            let remote = remote.and_then(|mut remote| self.fill(&mut remote).map(|()| remote));
            remotes.push(remote.map_err(|reason| row.failure = Some(reason)).ok());
        }
        let mut round = 0;
        while remotes.iter().any(Option::is_some) && rounds.goes_on(round, &rows, CPU) {
            for turn in 0..rows.len() {
                let at = (round + turn) % rows.len();
                let row = &mut rows[at];
                step(&format!(
                    "{name}, -P {}, round {}, {}",
                    self.together,
                    round + 1,
                    row.contender
                ));
                let apart = distance::measure();
                let turn = remotes[at].as_mut().map(|remote| self.turn(remote, row));
                if let Some(Err(reason)) = turn {
                    row.failure = Some(reason);
                    remotes[at] = None;
                }
                row.note_distance(&apart, &distance::measure());
            }
            round += 1;
        }
        let title = format!(
            "{name}; redis-benchmark -P {} -c {}, all servers",
            self.together, self.connections
        );
        let mut cell = Cell {
            scenario: REDIS.to_owned(),
            title,
            threads: Some(processors()),
            connections: Some(self.connections),
            compared: CPU.to_owned(),
            rows,
            ..Cell::default()
        };
        let ratios = [(CPU, OURS, TOKIO), (CPU, PORT, TOKIO), (RATE, OURS, REDIS_ITSELF)];
        ratios.into_iter().for_each(|ratio| cell.note_ratio(ratio));
        cell
    }

    /// Gives the keys a value that GET and MGET find.
    fn fill(&self, remote: &mut Remote) -> Result<(), String> {
        let set = COMMANDS[0];
        benchmark::run(remote.address, set, 16, self.connections, 5 * benchmark::KEYS).map(drop)
    }

    /// One turn: its values go into `row`.
    fn turn(&self, remote: &mut Remote, row: &mut Row) -> Result<(), String> {
        let requests = benchmark::amount(self.together, self.round);
        let before = remote.settle()?;
        let ran = benchmark::run(
            remote.address,
            self.command,
            self.together,
            self.connections,
            requests,
        )?;
        let after = remote.settle()?;
        let used = after.processor_time.saturating_sub(before.processor_time);
        row.push(CPU, "ns", Some(super::to_float(used) / super::count(requests)));
        row.push(RATE, "1/s", Some(ran.rate));
        row.push("p50", "us", Some(ran.p50));
        row.push("p99", "us", Some(ran.p99));
        if let Some((after, before)) = after.switches.zip(before.switches) {
            let sleeps = after.voluntary.saturating_sub(before.voluntary);
            row.push("sleeps", "", Some(super::to_float(sleeps) / super::count(requests)));
        }
        row.push("threads", "", after.threads.map(super::to_float));
        row.push("resident", "MiB", Some(super::to_float(after.resident) / f64::from(1 << 20)));
        Ok(())
    }
}
