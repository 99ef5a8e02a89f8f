//! R9: name servers, each with one socket. The answers are those of the library's example, on several
//! runtimes and in a bare loop of recvmmsg(2) and sendmmsg(2).
//!
//! The load is that of `dnsperf`. In the open loop it sends at half the capacity of the slowest
//! contender, which is measured first. In the closed loop an answer makes room for the next query.

mod bare_loop;
mod dnsperf;
mod servers;
#[cfg(test)]
mod tests;

use std::time::Duration;

use self::dnsperf::{Dnsperf, Load};
pub(super) use self::servers::servers;
use super::cells::half;
use super::shared::row_name;
use super::{Options, processors};
use crate::contenders::Contender;
use crate::distance;
use crate::enough::Amount;
use crate::names::runtimes::{LOOP, OURS, SMOL, TOKIO};
use crate::options::DNS;
use crate::remote::Remote;
use crate::report::{Cell, Described, Row};
use crate::scenario::{CPU, RATE};
use crate::sink::Service;
use crate::system;
use crate::traffic::Traffic;

/// The first is the one to which the others are compared.
const ALL: [&str; 4] = [OURS, TOKIO, SMOL, LOOP];
/// Sockets of the client in the open loop.
const SOCKETS: [usize; 2] = [1, 100];
/// The most queries without answer in the open loop. At half the capacity there are fewer, and none is
/// lost: a socket has room for more than twice as many.
const MOST_UNDER_WAY: usize = 100;
/// Queries without answer in the closed loop.
const UNDER_WAY: usize = 16;

/// Those that are not on a runtime, for the report.
pub(super) fn described() -> impl Iterator<Item = Described> {
    let is_other = |server: &Contender| !server.about.is_empty();
    servers().into_iter().filter(is_other).map(|server| Described::of(&server))
}

/// A server, by the name of its row. The error says why there is none.
fn server(name: &str) -> Result<Contender, String> {
    let found = servers().into_iter().find(|it| row_name(it) == name);
    found.ok_or_else(|| format!("no server `{name}`"))
}

fn start(name: &str) -> Result<Remote, String> {
    let contender = server(name)?;
    let (traffic, threads) = (Traffic::Datagrams { sockets: 1, under_way: 1 }, processors());
    let program = system::own_program();
    Remote::start_of(&program, contender.name, threads, Service::Echo, traffic, false)
}

/// A cell for each number of sockets in the open loop, and one for the closed loop.
pub(super) fn measure(options: &Options, rounds: Amount, step: &mut dyn FnMut(&str)) -> Vec<Cell> {
    let sockets = if options.connections.is_empty() { &SOCKETS } else { &options.connections[..] };
    let dnsperf = Dnsperf::new();
    let round = options.round.unwrap_or(Duration::from_millis(500));
    let open = |sockets: &usize| Situation {
        load: Load { sockets: *sockets, under_way: MOST_UNDER_WAY, rate: None },
        compared: CPU,
        round,
    };
    let closed = Situation {
        load: Load { sockets: 1, under_way: UNDER_WAY, rate: None },
        compared: RATE,
        round,
    };
    let situations = sockets.iter().map(open).chain([closed]);
    situations.map(|situation| situation.measure(&dnsperf, options, rounds, step)).collect()
}

struct Situation {
    /// Its rate is that of the open loop as soon as the capacities are known.
    load: Load,
    /// The rate in the closed loop, and the processor time in the open one.
    compared: &'static str,
    round: Duration,
}

impl Situation {
    fn measure(
        mut self,
        dnsperf: &Result<Dnsperf, String>,
        options: &Options,
        rounds: Amount,
        step: &mut dyn FnMut(&str),
    ) -> Cell {
        let mut rows = super::rows(options.names(&ALL).into_iter());
        let mut notes = Vec::new();
        match dnsperf {
            Ok(dnsperf) => {
                notes.push(format!("The load is that of {}.", dnsperf.version));
                notes.extend(self.take_rounds(dnsperf, &mut rows, rounds, step));
            }
            Err(reason) => rows.iter_mut().for_each(|row| row.failure = Some(reason.clone())),
        }
        let kind = if self.compared == CPU { "open" } else { "closed" };
        let title =
            format!("name servers, {kind} loop; dnsperf {}, all servers", self.load.options());
        let mut cell = Cell {
            scenario: DNS.to_owned(),
            title,
            threads: Some(processors()),
            connections: Some(self.load.sockets),
            compared: self.compared.to_owned(),
            rows,
            notes,
            ..Cell::default()
        };
        [TOKIO, LOOP].into_iter().for_each(|it| cell.note_ratio((self.compared, OURS, it)));
        cell
    }

    /// Starts the servers and measures their capacities, then all rounds. Returns a note about the
    /// capacities if the rate depends on them.
    fn take_rounds(
        &mut self,
        dnsperf: &Dnsperf,
        rows: &mut [Row],
        rounds: Amount,
        step: &mut dyn FnMut(&str),
    ) -> Option<String> {
        let mut remotes: Vec<Option<Remote>> = Vec::new();
        let mut slowest = f64::INFINITY;
        let mut capacities = Vec::new();
        for row in rows.iter_mut() {
            step(&format!("{}, capacity of {}", self.load.options(), row.contender));
            let remote = start(&row.contender).and_then(|remote| {
                let ran = dnsperf.run(&remote.sockets, self.load, self.round)?;
                capacities.push(format!("{} {:.0}", row.contender, ran.rate));
                slowest = slowest.min(ran.rate);
                Ok(remote)
            });
            remotes.push(remote.map_err(|reason| row.failure = Some(reason)).ok());
        }
        if self.compared == CPU {
            self.load.rate = Some(half(slowest));
        }
        let options = self.load.options();
        let mut round = 0;
        while remotes.iter().any(Option::is_some) && rounds.goes_on(round, rows, self.compared) {
            for turn in 0..rows.len() {
                let at = (round + turn) % rows.len();
                let row = &mut rows[at];
                step(&format!("{options}, round {}, {}", round + 1, row.contender));
                let apart = distance::measure();
                let turn = remotes[at].as_mut().map(|remote| self.turn(dnsperf, remote, row));
                if let Some(Err(reason)) = turn {
                    row.failure = Some(reason);
                    remotes[at] = None;
                }
                row.note_distance(&apart, &distance::measure());
            }
            round += 1;
        }
        let note = || format!("Capacity in queries per second: {}", capacities.join(", "));
        self.load.rate.map(|_| note())
    }

    /// One turn: its values go into `row`.
    fn turn(&self, dnsperf: &Dnsperf, remote: &mut Remote, row: &mut Row) -> Result<(), String> {
        let before = remote.settle()?;
        let ran = dnsperf.run(&remote.sockets, self.load, self.round)?;
        let after = remote.settle()?;
        let used = after.processor_time.saturating_sub(before.processor_time);
        row.push(CPU, "ns", Some(super::to_float(used) / ran.queries));
        row.push(RATE, "1/s", Some(ran.rate));
        row.push("latency", "us", Some(ran.latency));
        if let Some((after, before)) = after.switches.zip(before.switches) {
            let sleeps = after.voluntary.saturating_sub(before.voluntary);
            row.push("sleeps", "", Some(super::to_float(sleeps) / ran.queries));
        }
        row.push("threads", "", after.threads.map(super::to_float));
        row.push("resident", "MiB", Some(super::to_float(after.resident) / f64::from(1 << 20)));
        Ok(())
    }
}
