//! The same reads while 64 connections echo: what they cost the echo.
//!
//! The servers are processes of their own, as in the other scenarios with servers: one whose port has the
//! reads as well, one whose reads are made by a pool of threads beside its port, and one without a port, whose
//! threads ask their set and read in turns. The latter two make as many reads in a second as the port has made in its
//! latest turn, or all are held to the same rate. Where the file is not cached, threads that read in turns wait for the
//! disk, one read each, and make fewer. A server without any reads shows what the echo is by itself.

use std::path::PathBuf;

use super::scratch::{Scratch, Way};
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
use crate::targets::OURS;
use crate::traffic::Traffic;

/// Threads of the servers' ports: one, so that the clients have a processor of their own on the smallest
/// machines that are measured, and two.
const THREADS: [usize; 2] = [1, 2];
/// Reads in a second where both are held to a rate: a small part of what a processor can do, and a large one.
const HELD: [f64; 2] = [20_000.0, 200_000.0];
/// The echo without reads.
const ALONE: &str = "ours, no reads";

const PATTERN: Pattern = Pattern { handlers: Handlers::Quick, burst: 1 };

/// The first is the one to which the others are compared.
const ENTRIES: [&str; 4] = [WITH_READS, BESIDE_POOL, READS_BY_HAND, ALONE];

/// A server with its clients.
struct Entrant {
    remote: Remote,
    load: Load,
    reads: bool,
}

impl Remote {
    /// Starts a server that reads from a file beside its echo, once it is told to.
    fn start_reading(contender: &str, threads: usize, reading: &Reading) -> Result<Remote, String> {
        let mut command = Self::command(contender, threads);
        command.arg("--file").arg(&reading.file).args(["--way", reading.way.name()]);
        Self::spawn(command)
    }
}

impl Entrant {
    fn start(name: &str, threads: usize, reading: &Reading) -> Result<Entrant, String> {
        let reads = name != ALONE;
        let mut remote = if reads {
            Remote::start_reading(name, threads, reading)
        } else {
            Remote::start(OURS, threads, Service::Echo, Traffic::Lasting, false)
        }?;
        let mut load = Load::new().map_err(|error| format!("load generator: {error}"))?;
        for _ in 0..ACTIVE {
            let connected = load.connect(remote.address, true);
            connected.map_err(|error| format!("connecting: {error}"))?;
        }
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
    let row = |name: &&str| Row { contender: (*name).to_owned(), ..Row::default() };
    let mut rows: Vec<Row> = ENTRIES.iter().map(row).collect();
    let file: PathBuf = scratch.path();
    let reading = Reading { file, way };
    let mut entrants: Vec<Option<Entrant>> = Vec::new();
    for (name, row) in ENTRIES.iter().zip(&mut rows) {
        let entrant = Entrant::start(name, threads, &reading);
        entrants.push(entrant.map_err(|reason| row.failure = Some(reason)).ok());
    }
    let mut latencies = Histogram::default();
    let mut of_the_port = None;
    let mut round = 0;
    while options.rounds.goes_on(round, &rows, P99) {
        for turn in 0..ENTRIES.len() {
            let index = (round + turn) % ENTRIES.len();
            let (name, row) = (ENTRIES[index], &mut rows[index]);
            let Some(entrant) = &mut entrants[index] else { continue };
            let rate = match speed {
                Speed::Held(rate) => Some(rate),
                Speed::OfThePort if name == WITH_READS => None,
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
            "rate and p50 to p99.9: of the echo; processors: used by the server, threads that read included."
                .to_owned(),
        ],
        ..Cell::default()
    }
}

/// What is compared: how long the slowest answers but one in a hundred take.
const P99: &str = "p99";
