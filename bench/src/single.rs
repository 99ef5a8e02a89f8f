//! The noise-free bench: one thread does everything, so no thread is ever woken, and the result is
//! the price of an event.
//!
//! A pass writes one message to each of k TCP connections over loopback; then the contender takes
//! the events and receives from each connection. `bare` does the same sends and receives without
//! asking which connection is ready. Each contender has its own connections. In a round each of
//! them makes its passes in turn, starting with another one each time; differences and ratios are
//! made within a round.
//!
//! Time is the thread's processor time: it never sleeps, and other processes are not counted. The
//! kernel's work for the loopback device is counted, unless the kernel accounts for interrupts
//! separately (`CONFIG_IRQ_TIME_ACCOUNTING`); then it is missing from all, including `bare`.
//!
//! The distance of the processors is measured before and after each round, but not between its
//! turns, which are too short for it.
//!
//! Besides readiness interfaces, there are those that receive themselves. For these the price above
//! `bare` is that of a whole receive minus a `recv`, and may well be negative.

mod c_library;
mod c_operations;
mod compio;
mod edge;
mod mio;
mod monoio;
mod one_shot;
mod ours;
mod ours_by_operations;
mod pairs;
mod polling;
mod tally;
mod tokio;
mod uring;

use std::io;
use std::time::Duration;

use self::pairs::{Driver, Pairs};
use crate::distance;
use crate::enough::Amount;
use crate::processor_time::Clock;
use crate::report::{Cell, Row};

/// Connections with a message in each pass.
pub(crate) const SIZES: [usize; 4] = [1, 4, 16, 64];

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Rounds for each number of connections.
    pub(crate) rounds: Amount,
    /// Messages that a contender handles in a round.
    pub(crate) messages: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { rounds: Amount::exactly(100), messages: 1024 }
    }
}

/// A contender with its connections.
pub(crate) trait Taker {
    /// Lets `driver` make all its passes, and takes what each of them brings: events first, then a
    /// receive from each connection they name.
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()>;
}

/// A method of learning which connections are ready.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    /// Takes the receiving ends over, in non-blocking mode.
    build: fn(receivers: Vec<std::net::TcpStream>) -> io::Result<Box<dyn Taker>>,
}

/// The first is the one to which the others are compared.
pub(crate) const ENTRIES: [Entry; 19] = [
    Entry { name: "ours", build: ours::owned },
    Entry { name: "ours, plain keys", build: ours::plain },
    Entry { name: "ours, no hint", build: ours::without_hint },
    Entry { name: "ours, persistent", build: ours::persistent },
    Entry { name: "ours, delays", build: ours::measured },
    Entry { name: "ours, deadlines", build: ours_by_operations::with_deadlines },
    Entry { name: "ours, operations", build: ours_by_operations::by_operations },
    Entry { name: "ours, C library", build: c_library::build },
    Entry { name: "ours, C library, operations", build: c_operations::build },
    Entry { name: EDGE, build: edge::build },
    Entry { name: "epoll_one_shot", build: one_shot::build },
    Entry { name: "mio", build: mio::build },
    Entry { name: "polling", build: polling::one_shot },
    Entry { name: "polling, edge", build: polling::edge },
    Entry { name: "tokio", build: tokio::build },
    Entry { name: "uring", build: uring::build },
    Entry { name: "compio", build: compio::build },
    Entry { name: "monoio", build: monoio::build },
    Entry { name: BARE, build: pairs::bare },
];

/// The floor: to it the price of an event is compared.
const EDGE: &str = "epoll_edge";
/// The quantity that is compared: the price of a message.
const COMPARED: &str = "message";
/// Neither events nor a wait.
const BARE: &str = "bare";

/// The entry of this name.
pub(crate) fn entry(name: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.name == name)
}

/// A contender, ready to run.
pub(crate) struct Prepared {
    pairs: Pairs,
    taker: Box<dyn Taker>,
}

impl Prepared {
    pub(crate) fn new(entry: &Entry, connections: usize) -> io::Result<Self> {
        let (pairs, receivers) = Pairs::new(connections)?;
        Ok(Prepared { pairs, taker: (entry.build)(receivers)? })
    }

    pub(crate) fn passes(&mut self, count: usize) -> io::Result<()> {
        self.taker.run(&mut self.pairs.driver(count))
    }
}

/// Measures all contenders, a cell for each number of connections.
pub(crate) fn run(options: Options, progress: &mut dyn FnMut(&str)) -> Vec<Cell> {
    SIZES.iter().map(|connections| cell(*connections, options, progress)).collect()
}

fn cell(connections: usize, options: Options, progress: &mut dyn FnMut(&str)) -> Cell {
    progress(&format!("single: {connections} ready"));
    let mut rows: Vec<Row> = ENTRIES
        .iter()
        .map(|entry| Row { contender: entry.name.to_owned(), ..Row::default() })
        .collect();
    let passes = (options.messages / connections).max(1);
    let mut prepared: Vec<Option<Prepared>> = Vec::new();
    for (entry, row) in ENTRIES.iter().zip(&mut rows) {
        let ready = Prepared::new(entry, connections).and_then(|mut prepared| {
            // The first passes meet cold caches, and memory that is not there yet.
            prepared.passes(passes.div_ceil(4))?;
            Ok(prepared)
        });
        prepared.push(ready.map_err(|error| row.failure = Some(error.to_string())).ok());
    }
    let mut round = 0;
    while options.rounds.goes_on(round, &rows, COMPARED) {
        let before = distance::measure();
        let mut times = [None; ENTRIES.len()];
        for turn in 0..ENTRIES.len() {
            let index = (round + turn) % ENTRIES.len();
            let Some(contender) = &mut prepared[index] else { continue };
            let begin = Clock::Thread.now();
            match contender.passes(passes) {
                Ok(()) => times[index] = Some(per_message(begin, passes * connections)),
                Err(error) => {
                    rows[index].failure = Some(error.to_string());
                    prepared[index] = None;
                }
            }
        }
        let behind = distance::measure();
        rows.iter_mut().for_each(|row| row.note_distance(&before, &behind));
        note(&mut rows, &times, round);
        round += 1;
    }
    Cell {
        scenario: "single".to_owned(),
        title: format!("one thread, {connections} ready at each wait, one message each"),
        threads: Some(1),
        connections: Some(connections),
        compared: COMPARED.to_owned(),
        rows,
        notes: vec![
            "message: send, event and receive; event: above the same sends and receives alone \
             (bare), of the same round; /edge: divided by epoll_edge of the same round."
                .to_owned(),
            "Connections of `ours, no hint` are checked after the next messages have come."
                .to_owned(),
        ],
        ..Cell::default()
    }
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn per_message(begin: Duration, messages: usize) -> f64 {
    (Clock::Thread.now() - begin).as_nanos() as f64 / messages as f64
}

/// The values of a round: the price of a message, that of its event, and both against the floor. The latter three
/// are made of the turns of two contenders; there is none if the processors were moved between these.
fn note(rows: &mut [Row], times: &[Option<f64>], round: usize) {
    let stayed: Vec<bool> = rows.iter().map(|row| row.is_comparable(row, round)).collect();
    let of =
        |name: &str| ENTRIES.iter().position(|entry| entry.name == name).and_then(|i| times[i]);
    let (bare, edge) = (of(BARE), of(EDGE));
    let ratio = |above: Option<f64>, below: Option<f64>| Some(above? / below?);
    for ((row, time), stayed) in rows.iter_mut().zip(times).zip(stayed) {
        let above = |time: Option<f64>| Some(time? - bare?).filter(|_| stayed);
        row.push(COMPARED, "ns", *time);
        row.push("message/edge", "", ratio(*time, edge).filter(|_| stayed));
        if row.contender != BARE {
            row.push("event", "ns", above(*time));
            row.push("event/edge", "", ratio(above(*time), above(edge)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every contender takes every message: a pass that is short of one would never end, and one
    /// that has one too many is an error.
    #[test]
    fn every_contender_makes_its_passes() {
        for entry in &ENTRIES {
            for connections in [1, 5] {
                let mut prepared = match Prepared::new(entry, connections) {
                    Ok(prepared) => prepared,
                    Err(error) => {
                        eprintln!("not tested, {} cannot be had: {error}", entry.name);
                        continue;
                    }
                };
                prepared.passes(20).unwrap();
                prepared.passes(3).unwrap();
                assert_eq!(prepared.pairs.sent(), 23 * connections as u64, "{}", entry.name);
            }
        }
    }

    #[test]
    fn prices_are_differences_and_ratios_within_the_round() {
        let mut rows: Vec<Row> = ENTRIES
            .iter()
            .map(|entry| Row { contender: entry.name.to_owned(), ..Row::default() })
            .collect();
        let mut times = [None; ENTRIES.len()];
        let at = |name: &str| ENTRIES.iter().position(|entry| entry.name == name).unwrap();
        times[at("ours")] = Some(1300.0);
        times[at(EDGE)] = Some(1200.0);
        times[at(BARE)] = Some(1000.0);
        note(&mut rows, &times, 0);
        let ours = &rows[at("ours")];
        assert_eq!(ours.values("event"), [Some(300.0)]);
        assert_eq!(ours.values("event/edge"), [Some(1.5)]);
        assert_eq!(ours.values("message/edge"), [Some(1300.0 / 1200.0)]);
        assert_eq!(rows[at("mio")].values("event"), [None]);
        assert!(rows[at(BARE)].values("event").is_empty());

        // The processors are moved in the next round.
        let (near, far) = (Duration::from_nanos(50), Duration::from_nanos(500));
        for row in &mut rows {
            row.note_distance(&Ok(near), &Ok(near));
            row.note_distance(&Ok(near), &Ok(far));
        }
        note(&mut rows, &times, 1);
        let ours = &rows[at("ours")];
        assert_eq!(ours.values("message"), [Some(1300.0); 2]);
        for name in ["message/edge", "event", "event/edge"] {
            assert!(matches!(ours.values(name), [Some(_), None]), "{name}");
        }
    }
}
