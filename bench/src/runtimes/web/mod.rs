//! R2 and R3: servers of HTTP/1.1 with one page. hyper on several runtimes, two servers by hand, and
//! nginx. All answer the same bytes, except that nginx adds its own headers.
//!
//! The load is that of `crate::http` and not of wrk. Its rounds begin and end when nothing is under
//! way, so that all processor time in between belongs to counted requests. It checks every answer,
//! its connections last from round to round, and it can send at a given rate. wrk counts for itself
//! once for each contender, as a check.

mod by_hand;
mod on_epoll;
mod on_port;
#[cfg(test)]
mod tests;
mod wrk;

use std::time::Duration;

use super::cells::{half, measure};
use super::foreign::nginx;
use super::server::{self, Kind};
use super::shared::row_name;
use super::{Options, processors};
use crate::contenders::Contender;
use crate::enough::Amount;
use crate::load::{Handlers, Pattern};
use crate::names::runtimes::{EPOLL, NGINX, OURS, PORT, SMOL, TOKIO};
use crate::options::{HTTP, SHORT_HTTP};
use crate::report::{Cell, Described, Row};
use crate::rounds::Place;
use crate::scenario::{CPU, RATE, Setup};
use crate::statistics::estimate_present;
use crate::system;
use crate::traffic::{Http, Traffic};

const CONNECTIONS: [usize; 2] = [64, 512];
/// Requests that are sent together, where they are.
const TOGETHER: u32 = 16;
/// Requests of a short connection.
const OF_EACH: u32 = 10;

/// The first is the one to which the others are compared.
const ALL: [&str; 6] = [OURS, TOKIO, SMOL, PORT, EPOLL, NGINX];

/// The servers that are not on a runtime.
pub(super) fn servers() -> Vec<Contender> {
    vec![
        Contender {
            name: "port/http",
            about: "HTTP by hand on the completion port",
            version: || concat!("completion-port ", env!("VERSION_OF_completion-port")).to_owned(),
            start: on_port::start,
        },
        Contender {
            name: "epoll/http",
            about: "HTTP by hand, a set of epoll and a listener for each thread",
            version: || "epoll".to_owned(),
            start: on_epoll::start,
        },
        Contender {
            name: "nginx/http",
            about: "as many workers as processors",
            version: nginx::version,
            start: nginx::start,
        },
    ]
}

/// The same, for the report.
pub(super) fn described() -> impl Iterator<Item = Described> {
    servers().into_iter().map(|server| Described::of(&server))
}

/// A server of HTTP, by the name of its row. The error says why there is none.
fn server(name: &str) -> Result<Contender, String> {
    if name == NGINX
        && let Some(reason) = nginx::lacks()
    {
        return Err(reason);
    }
    let by_hand = servers().into_iter().find(|it| row_name(it) == name);
    by_hand.or_else(|| server::of(name, Kind::Http)).ok_or_else(|| format!("no server `{name}`"))
}

/// A cell.
pub(super) struct Situation {
    pub(super) scenario: &'static str,
    pub(super) about: String,
    pub(super) connections: usize,
    pub(super) http: Http,
    pub(super) compared: &'static str,
    pub(super) round: Duration,
    pub(super) rounds: Amount,
}

impl Situation {
    fn title(&self) -> String {
        let load = match self.http.rate {
            None => "closed loop".to_owned(),
            Some(rate) => format!("open loop, {rate} requests per second"),
        };
        format!("{}; {load}, {} connections", self.about, self.connections)
    }

    fn place(&self, name: &str) -> Result<Place, (String, String)> {
        self.row(name, server(name))
    }

    /// The row of a server, by its name.
    pub(super) fn row(
        &self,
        name: &str,
        server: Result<Contender, String>,
    ) -> Result<Place, (String, String)> {
        let contender = server.map_err(|reason| (name.to_owned(), reason))?;
        let setup = Setup {
            scenario: self.scenario,
            title: self.title(),
            threads: processors(),
            connections: self.connections,
            pattern: Pattern { handlers: Handlers::Quick, burst: 1 },
            traffic: Traffic::Http(self.http),
            drain: None,
            compared: self.compared,
            rounds: self.rounds.least,
            round: self.round,
        };
        let (name, program) = (name.to_owned(), system::own_program());
        Ok(Place { name, program, contender, setup, by_turn: false })
    }

    fn measure(&self, options: &Options, step: &mut dyn FnMut(&str)) -> Cell {
        let names = options.names(&ALL);
        let places = names.iter().map(|name| self.place(name)).collect();
        let mut notes = Vec::new();
        if self.http.of_each.is_some() {
            notes.push("A latency is that of all requests of a connection.".to_owned());
        }
        if self.http.together > 1 {
            notes.push("hyper has its usual settings: it writes each answer by itself.".to_owned());
        }
        let mut cell = self.cell(places, notes, step);
        let shares: &[(&str, &str, &str)] = match self.http.rate {
            None => {
                &[(CPU, OURS, TOKIO), (CPU, SMOL, TOKIO), (RATE, OURS, EPOLL), (RATE, PORT, EPOLL)]
            }
            Some(_) => &[("p99", OURS, TOKIO), ("p99", SMOL, TOKIO), ("p99", PORT, EPOLL)],
        };
        shares.iter().for_each(|share| cell.note_ratio(*share));
        cell
    }

    /// Measures these rows.
    pub(super) fn cell(
        &self,
        places: Vec<Result<Place, (String, String)>>,
        notes: Vec<String>,
        step: &mut dyn FnMut(&str),
    ) -> Cell {
        let mut cell = measure(self.rounds, places, notes, step);
        // If no server has started, it has neither.
        (cell.scenario, cell.title) = (self.scenario.to_owned(), self.title());
        cell
    }

    /// wrk cannot end a connection after a number of requests, and has no rate.
    fn check_by_wrk(&self, cell: &mut Cell, step: &mut dyn FnMut(&str)) {
        if let Some(reason) = wrk::lacks() {
            cell.notes.push(format!("wrk: {reason}"));
            return;
        }
        let mut failed = Vec::new();
        for row in cell.rows.iter_mut().filter(|row| row.failure.is_none()) {
            step(&format!("wrk, {}", row.contender));
            let Ok(place) = self.place(&row.contender) else { continue };
            match wrk::count(&place, self.connections, self.http) {
                Ok(counted) => {
                    row.push("wrk rate", "1/s", Some(counted.rate));
                    row.push("wrk cpu", "ns", Some(counted.cpu));
                }
                Err(reason) => failed.push(format!("wrk, {}: {reason}", row.contender)),
            }
        }
        cell.notes.extend(failed);
    }
}

/// Half of the rate of the slowest contender, in the cell of the closed loop.
pub(super) fn half_of_the_slowest(cell: &Cell) -> u32 {
    let rate = |row: &Row| estimate_present(row.values(RATE)).map(|rate| rate.median);
    let working = cell.rows.iter().filter(|row| row.failure.is_none());
    half(working.filter_map(rate).fold(f64::INFINITY, f64::min))
}

/// A closed loop for the rate and the processor time, then an open loop for the latencies.
fn both_loops(
    situation: &Situation,
    options: &Options,
    step: &mut dyn FnMut(&str),
) -> (Cell, Cell) {
    let closed = situation.measure(options, step);
    let open = Situation {
        http: Http { rate: Some(half_of_the_slowest(&closed)), ..situation.http },
        about: situation.about.clone(),
        compared: "p99",
        round: options.round.unwrap_or(Duration::from_millis(800)),
        ..*situation
    };
    (closed, open.measure(options, step))
}

impl Options {
    /// The wanted ones of these, in their order; the first one always.
    pub(super) fn names(&self, among: &[&'static str]) -> Vec<&'static str> {
        let is_wanted = |(index, name): (usize, &&'static str)| {
            let named = self.against.is_empty() || self.against.iter().any(|it| it == name);
            (index == 0 || named).then_some(*name)
        };
        among.iter().enumerate().filter_map(is_wanted).collect()
    }
}

fn closed(options: &Options, rounds: Amount, connections: usize) -> Situation {
    Situation {
        scenario: HTTP,
        about: "HTTP/1.1, connections that stay".to_owned(),
        connections,
        http: Http { accepts: true, ..Http::PLAIN },
        compared: CPU,
        round: options.round.unwrap_or(Duration::from_millis(250)),
        rounds,
    }
}

/// R2.
pub(super) fn lasting(options: &Options, rounds: Amount, step: &mut dyn FnMut(&str)) -> Vec<Cell> {
    let connections =
        if options.connections.is_empty() { &CONNECTIONS } else { &options.connections[..] };
    let mut cells = Vec::new();
    for connections in connections {
        let situation = closed(options, rounds, *connections);
        let (mut closed, open) = both_loops(&situation, options, step);
        situation.check_by_wrk(&mut closed, step);
        cells.extend([closed, open]);
    }
    let pipelined = closed(options, rounds, connections[0]);
    let pipelined = Situation {
        about: format!("HTTP/1.1, {TOGETHER} pipelined requests on connections that stay"),
        http: Http { together: TOGETHER, ..pipelined.http },
        ..pipelined
    };
    let mut cell = pipelined.measure(options, step);
    pipelined.check_by_wrk(&mut cell, step);
    cells.push(cell);
    cells
}

/// R3.
pub(super) fn short(options: &Options, rounds: Amount, step: &mut dyn FnMut(&str)) -> Vec<Cell> {
    let connections = options.connections.first().copied().unwrap_or(CONNECTIONS[0]);
    let usual = closed(options, rounds, connections);
    let situation = Situation {
        scenario: SHORT_HTTP,
        about: format!("HTTP/1.1, connections of {OF_EACH} requests"),
        http: Http { of_each: Some(OF_EACH), ..usual.http },
        ..usual
    };
    let (closed, open) = both_loops(&situation, options, step);
    vec![closed, open]
}
