//! Many operations in flight on one socket, against one of them and against readiness: datagrams,
//! receives from a stream, and accepts.
//!
//! *One thread* feeds a socket 32 times and takes all of that again. *4 threads take* what another
//! thread feeds, which never is more than 128 ahead. The price of feeding is part of each figure,
//! and the same for all.

mod sinks;

use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::distance;
use crate::enough::Amount;
use crate::processor_time::Clock;
use crate::report::{Cell, Row};
use sinks::{By, Counted};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Rounds of each situation.
    pub(crate) rounds: Amount,
    /// Datagrams or receives in each round. There are fewer accepts.
    pub(crate) times: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { rounds: Amount::exactly(9), times: 20_480 }
    }
}

/// An accept, with the connect before it, takes as long as this many datagrams.
const PRICE_OF_ACCEPT: usize = 8;

/// How often a lone thread feeds its socket before it takes.
const BURST: usize = 32;

/// How many threads take what another one feeds.
const THREADS: usize = 4;

/// The quantity that is compared.
const COMPARED: &str = "CPU";

/// The first is the one to which the others are compared.
const ENTRIES: [(&str, By); 5] = [
    ("1 in flight, start_now", By::OneNow),
    ("1 in flight", By::InFlight(1)),
    ("16 in flight", By::InFlight(16)),
    ("64 in flight", By::InFlight(64)),
    ("readiness", By::Readiness),
];

/// Takes so often, in this way.
type Take = fn(By, usize) -> io::Result<Counted>;

/// The names of [`ENTRIES`].
pub(crate) const NAMES: [&str; ENTRIES.len()] = {
    let mut names = [""; ENTRIES.len()];
    let mut index = 0;
    while index < names.len() {
        names[index] = ENTRIES[index].0;
        index += 1;
    }
    names
};

/// Sends and takes that many datagrams with one thread; `None` if there is no such entry.
pub(crate) fn perform(name: &str, times: usize) -> io::Result<Option<()>> {
    let Some((_, by)) = ENTRIES.iter().find(|entry| entry.0 == name) else { return Ok(None) };
    alone::<UdpSocket>(*by, times).map(|_| Some(()))
}

/// A situation: its title, its threads, how it takes, and the price of taking once.
type Situation = (&'static str, usize, Take, usize);

const SITUATIONS: [Situation; 6] = [
    ("datagrams, one thread", 1, alone::<UdpSocket>, 1),
    ("datagrams, 4 threads take", THREADS, together::<UdpSocket>, 1),
    ("a stream, one thread", 1, alone::<TcpStream>, 1),
    ("a stream, 4 threads take", THREADS, together::<TcpStream>, 1),
    ("accepts, one thread", 1, alone::<TcpListener>, PRICE_OF_ACCEPT),
    ("accepts, 4 threads take", THREADS, together::<TcpListener>, PRICE_OF_ACCEPT),
];

fn alone<S: sinks::Kind>(by: By, times: usize) -> io::Result<Counted> {
    sinks::alone::<S>(by, BURST, times)
}

fn together<S: sinks::Kind>(by: By, times: usize) -> io::Result<Counted> {
    sinks::together::<S>(by, THREADS, times)
}

/// Measures all situations, a cell for each.
pub(crate) fn run(options: Options, progress: &mut dyn FnMut(&str)) -> Vec<Cell> {
    let mut cells = Vec::new();
    for situation in SITUATIONS {
        progress(&format!("S17: {}", situation.0));
        cells.push(cell(situation, options));
    }
    cells
}

fn cell((title, threads, take, price): Situation, options: Options) -> Cell {
    let times = (options.times / price).next_multiple_of(BURST);
    let mut rows: Vec<Row> = ENTRIES
        .iter()
        .map(|(name, _)| Row { contender: (*name).to_owned(), ..Row::default() })
        .collect();
    let mut round = 0;
    while options.rounds.goes_on(round, &rows, COMPARED) {
        let mut before = distance::measure();
        for turn in 0..ENTRIES.len() {
            let index = (round + turn) % ENTRIES.len();
            let row = &mut rows[index];
            if row.failure.is_some() {
                continue;
            }
            match measure(take, ENTRIES[index].1, times) {
                Ok(measured) => {
                    measured.note(times, row);
                    let behind = distance::measure();
                    row.note_distance(&before, &behind);
                    before = behind;
                }
                Err(error) => row.failure = Some(error.to_string()),
            }
        }
        round += 1;
    }
    Cell {
        scenario: crate::options::IN_FLIGHT.to_owned(),
        title: title.to_owned(),
        threads: Some(threads),
        compared: COMPARED.to_owned(),
        rows,
        ..Cell::default()
    }
}

/// What taking has cost.
struct Measured {
    elapsed: Duration,
    processor: Duration,
    counted: Counted,
}

fn measure(take: Take, by: By, times: usize) -> io::Result<Measured> {
    let (begin, processor) = (Instant::now(), Clock::Process.now());
    let counted = take(by, times)?;
    let processor = Clock::Process.now().saturating_sub(processor);
    Ok(Measured { elapsed: begin.elapsed(), processor, counted })
}

impl Measured {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn note(&self, times: usize, row: &mut Row) {
        let times = times as f64;
        row.push("CPU", "ns", Some(self.processor.as_nanos() as f64 / times));
        row.push("time", "ns", Some(self.elapsed.as_nanos() as f64 / times));
        row.push("wakes", "", Some(self.counted.wakes as f64 / times));
        row.push("polls", "", Some(self.counted.polls as f64 / times));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each situation checks that everything is taken.
    #[test]
    fn every_way_takes_everything_in_every_situation() {
        let options = Options { rounds: Amount::exactly(2), times: 512 };
        for situation in SITUATIONS {
            let cell = cell(situation, options);
            for row in cell.rows {
                assert_eq!(row.failure, None, "{} {}", cell.title, row.contender);
                assert_eq!(row.values(COMPARED).len(), 2, "{} {}", cell.title, row.contender);
            }
        }
    }

    #[test]
    fn operations_in_flight_cost_few_polls() {
        for by in [By::InFlight(16), By::InFlight(64)] {
            let Counted { polls, wakes } = alone::<UdpSocket>(by, 3200).unwrap();
            assert!(polls < 320 && wakes == 0, "{polls} polls, {wakes} wakes");
        }
    }
}
