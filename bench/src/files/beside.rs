//! The same reads while 64 connections echo: their cost for the echo.
//!
//! The servers are separate processes, as in the other scenarios with servers: one whose port also
//! has the reads, one with a pool of reading threads next to its port, and one without a port,
//! whose threads alternate between polling their set and reading. The latter two make as many reads
//! per second as the port in its latest turn, or all have the same fixed rate. If the file is not
//! cached, threads that alternate wait for the disk, one read each, and make fewer. A server
//! without reads shows the echo alone.
//!
//! If the port reads as fast as it can, its threads never rest. Those with a fixed rate do rest,
//! and need less for it. So there is also a server without a port that reads as fast as it can. The
//! kernel reports when each answer has reached its socket: the rest is the clients' wait for a
//! processor.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::scratch::{Scratch, Way};
use super::stamps::STAMPS;
use super::{Options, Reading, of_the_file};
use crate::asking::Ask as _;
use crate::distance;
use crate::histogram::Histogram;
use crate::load::{Handlers, Load, Pattern};
use crate::names::{BESIDE_POOL, READS_BY_HAND, WITH_READS};
use crate::remote::Remote;
use crate::report::{Cell, Row};
use crate::rounds::{WARM_UP, note_answers};
use crate::scenario::{ACTIVE, FILES};
use crate::server::Command;
use crate::sink::Service;
use crate::system;
use crate::targets::OURS;
use crate::traffic::Traffic;

/// Threads of the servers' ports: one, so that the clients have their own processor on the smallest
/// measured machines, and two.
const THREADS: [usize; 2] = [1, 2];
/// Reads per second if both have a fixed rate: a small part of a processor's capacity, and a large
/// one.
const HELD: [f64; 2] = [20_000.0, 200_000.0];
/// The echo without reads.
const ALONE: &str = "ours, no reads";
/// By hand, not held to the port's rate.
const UNHELD: &str = "epoll_one_shot, as many as it can";

pub(super) const PATTERN: Pattern = Pattern { handlers: Handlers::Quick, burst: 1 };

/// The first is the one to which the others are compared.
const ENTRIES: [&str; 4] = [WITH_READS, BESIDE_POOL, READS_BY_HAND, ALONE];

/// A server with its clients.
struct Entrant {
    remote: Remote,
    load: Load,
    reads: bool,
}

impl Remote {
    /// Starts a server that reads from a file during its echo, once it gets the command.
    fn start_reading(contender: &str, threads: usize, reading: &Reading) -> Result<Remote, String> {
        let mut command = Self::command(&system::own_program(), contender, threads);
        command.arg("--file").arg(&reading.file).args(["--way", reading.way.name()]);
        Self::spawn(command)
    }
}

/// The clients of the server at an address.
pub(super) fn connect(address: SocketAddr) -> Result<Load, String> {
    let load = Load::stamped(STAMPS).map_err(|error| format!("load generator: {error}"))?;
    let connect = |mut load: Load, _| load.connect(address, true).map(|()| load);
    (0..ACTIVE).try_fold(load, connect).map_err(|error| format!("connecting: {error}"))
}

impl Entrant {
    fn start(name: &str, threads: usize, reading: &Reading) -> Result<Entrant, String> {
        let reads = name != ALONE;
        let mut remote = if reads {
            let contender = if name == UNHELD { READS_BY_HAND } else { name };
            Remote::start_reading(contender, threads, reading)
        } else {
            Remote::start(OURS, threads, Service::Echo, Traffic::Lasting, false)
        }?;
        let load = connect(remote.address)?;
        remote.wait_for_added(ACTIVE as u64)?;
        Ok(Entrant { remote, load, reads })
    }

    /// One turn: its values go into `row`. Returns how many reads were made in a second.
    fn turn(
        &mut self,
        rate: Option<f64>,
        options: &Options,
        latencies: &mut Histogram,
        row: &mut Row,
    ) -> Result<f64, String> {
        let Entrant { remote, load, reads } = self;
        let apart = distance::measure();
        if *reads {
            remote.tell(Command::Read(rate))?;
        }
        load.run(PATTERN, WARM_UP, latencies)?;
        let before = remote.snapshot()?;
        latencies.clear();
        let tally = load.run(PATTERN, options.time, latencies)?;
        let after = remote.snapshot()?;
        if *reads {
            remote.tell(Command::Rest)?;
        }
        remote.settle()?;
        #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
        let in_second =
            |more: u64| more as f64 / after.time.saturating_sub(before.time) as f64 * 1e9;
        let made = in_second(after.packets.saturating_sub(before.packets));
        note_answers(row, &tally, latencies);
        let come = load.come().and_then(|come| come.per_mille(990));
        row.push("come p99", "us", come.map(|time| time / 1000.0));
        row.push("reads", "1/s", Some(made));
        let used = in_second(after.processor_time.saturating_sub(before.processor_time));
        row.push("processors", "", Some(used / 1e9));
        row.note_distance(&apart, &distance::measure());
        Ok(made)
    }
}

/// How fast is read.
#[derive(Clone, Copy)]
enum Speed {
    /// All are held to this.
    Held(f64),
    /// As fast as the port can, which then never rests; the pool is held to that.
    OfThePort,
}

/// Measures all contenders, a cell for each speed and number of threads.
pub(super) fn run(
    way: Way,
    scratch: &Scratch,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Vec<Cell> {
    let held = if way == Way::Cached { &HELD[..] } else { &[] };
    let speeds = held.iter().copied().map(Speed::Held).chain([Speed::OfThePort]);
    let cells = speeds.flat_map(|speed| THREADS.map(|threads| (speed, threads)));
    cells.map(|(speed, threads)| cell(way, speed, threads, scratch, options, progress)).collect()
}

fn cell(
    way: Way,
    speed: Speed,
    threads: usize,
    scratch: &Scratch,
    options: &Options,
    progress: &mut dyn FnMut(&str),
) -> Cell {
    let fast = match speed {
        Speed::Held(rate) => format!("{rate} in a second"),
        Speed::OfThePort => "as many as the port can".to_owned(),
    };
    let reads = format!("{}, {fast}", way.words());
    let title = format!(
        "random reads of 4 KiB, {reads}, while {ACTIVE} connections echo, {threads} threads"
    );
    progress(&title);
    let is_unlimited = matches!((way, speed), (Way::Cached, Speed::OfThePort));
    let entries: Vec<&str> = ENTRIES.into_iter().chain(is_unlimited.then_some(UNHELD)).collect();
    let row = |name: &&str| Row { contender: (*name).to_owned(), ..Row::default() };
    let mut rows: Vec<Row> = entries.iter().map(row).collect();
    let file: PathBuf = scratch.path();
    let reading = Reading { file, way };
    let mut entrants: Vec<Option<Entrant>> = Vec::new();
    for (name, row) in entries.iter().zip(&mut rows) {
        let entrant = Entrant::start(name, threads, &reading);
        entrants.push(entrant.map_err(|reason| row.failure = Some(reason)).ok());
    }
    let mut latencies = Histogram::default();
    let mut of_the_port = None;
    let mut round = 0;
    while options.rounds.goes_on(round, &rows, P99) {
        for turn in 0..entries.len() {
            let index = (round + turn) % entries.len();
            let (name, row) = (entries[index], &mut rows[index]);
            let Some(entrant) = &mut entrants[index] else { continue };
            let rate = match speed {
                Speed::Held(rate) => Some(rate),
                Speed::OfThePort if matches!(name, WITH_READS | UNHELD) => None,
                Speed::OfThePort => of_the_port,
            };
            match entrant.turn(rate, options, &mut latencies, row) {
                Ok(made) if name == WITH_READS => of_the_port = Some(made),
                Ok(_) => {}
                Err(reason) => {
                    row.failure = Some(format!("round {}: {reason}", round + 1));
                    entrants[index] = None;
                }
            }
        }
        round += 1;
    }
    Cell {
        scenario: FILES.to_owned(),
        title,
        threads: Some(threads),
        connections: Some(ACTIVE),
        reads: Some(reads),
        compared: P99.to_owned(),
        rows,
        notes: vec![
            of_the_file(scratch),
            "rate and p50 to p99.9: of the echo; come p99: until the answer is at the clients' socket, by the kernel's \
             clock; processors: used by the server, threads that read included."
                .to_owned(),
        ],
        ..Cell::default()
    }
}

/// The compared quantity: the 99th percentile of the answer times.
const P99: &str = "p99";
