//! Random reads of 4 KiB from a file.
//!
//! *Cached*: the file is in the system's memory, and one thread reads. A contender reads one page
//! after the other, or has 32 reads in flight. Compared is the processor time of the process for
//! each read: no thread ever sleeps, and other processes are not counted. The rate is by the clock.
//!
//! *Not cached*: unbuffered (`O_DIRECT`), with 32 reads in flight. The rate is compared.
//!
//! *While an echo runs elsewhere*: see [`apart`]. *On the echo server*: see [`beside`].
//!
//! How far apart the processors are is measured between the turns, but not where the file is
//! cached: one thread reads there, and nothing passes between processors.
//!
//! Reads are of unpredictable pages. Each contender checks the data: a word of each sector in the
//! rounds, and each byte before them.

mod apart;
mod bare;
mod beside;
mod in_c;
mod ours;
mod pace;
mod plan;
mod scratch;
mod stamps;
mod threads;
mod uring;
mod uring_thread;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

pub(crate) use self::ours::read_of;
pub(crate) use self::pace::{Pace, Turn};
pub(crate) use self::plan::Plan;
pub(crate) use self::scratch::{Memory, PAGE, Scratch, Way};
use crate::distance;
use crate::enough::Amount;
use crate::names::files::{
    AT_ONCE, BY_PACKET, BY_RING, BY_TOKENS, IN_C_AT_ONCE, IN_C_BY_PACKET, IN_C_BY_RING, NO_WAIT,
    PREAD, URING, URING_THREAD,
};
use crate::processor_time::Clock;
use crate::report::{Cell, Row};
use crate::scenario::{CPU, FILES, RATE};

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) rounds: Amount,
    /// Reads of each contender in a round, where none has to wait.
    pub(crate) reads: usize,
    /// How long a round lasts otherwise.
    pub(crate) time: Duration,
    /// The directory of the file.
    pub(crate) directory: PathBuf,
    /// The length of the file, in bytes.
    pub(crate) length: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            rounds: Amount::exactly(15),
            reads: 20_000,
            time: Duration::from_millis(250),
            directory: std::env::temp_dir(),
            length: 256 << 20,
        }
    }
}

/// The file that a server reads during its echo.
#[derive(Clone, Debug, Args)]
pub(crate) struct Reading {
    #[arg(long, required = false)]
    pub(crate) file: PathBuf,
    #[arg(long, required = false)]
    pub(crate) way: Way,
}

/// Reads in flight, of those that have several.
pub(crate) const IN_FLIGHT: usize = 32;

/// A way to read.
trait Reader {
    /// Makes all reads of a plan, and checks their data.
    fn read(&mut self, plan: &mut Plan) -> io::Result<()>;
}

#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    build: fn(scratch: &Scratch, way: Way) -> io::Result<Box<dyn Reader>>,
}

/// The first is the one to which the others are compared.
const CACHED: [Entry; 10] = [
    Entry { name: AT_ONCE, build: ours::at_once },
    Entry { name: "ours, at once, shared", build: ours::shared_at_once },
    Entry { name: BY_PACKET, build: ours::by_packet },
    Entry { name: BY_TOKENS, build: ours::by_tokens },
    Entry { name: IN_C_AT_ONCE, build: in_c::at_once },
    Entry { name: IN_C_BY_PACKET, build: in_c::by_packet },
    Entry { name: PREAD, build: bare::pread },
    Entry { name: "pread, 32 buffers", build: bare::pread_around },
    Entry { name: NO_WAIT, build: bare::no_wait },
    Entry { name: URING, build: uring::build },
];

/// The first is the one to which the others are compared.
const DIRECT: [Entry; 7] = [
    Entry { name: BY_RING, build: ours::by_ring },
    Entry { name: "ours, pool", build: ours::by_threads },
    Entry { name: IN_C_BY_RING, build: in_c::by_packet },
    Entry { name: URING, build: uring::build },
    Entry { name: URING_THREAD, build: uring_thread::build },
    Entry { name: "32 threads, pread", build: threads::pool },
    Entry { name: "tokio, spawn_blocking", build: threads::tokio },
];

/// Of these the instructions are counted.
pub(crate) const PERFORMED: [&str; 5] =
    [AT_ONCE, "ours, at once, shared", BY_PACKET, BY_TOKENS, PREAD];

/// Makes that many reads from a small file; `None` if there is no such contender.
pub(crate) fn perform(name: &str, reads: usize) -> io::Result<Option<()>> {
    let Some(entry) = CACHED.iter().find(|entry| entry.name == name) else { return Ok(None) };
    let scratch = Scratch::new(&std::env::temp_dir(), 1 << 20)?;
    let mut plan = Plan::endless(scratch.pages(), 0).of(reads);
    (entry.build)(&scratch, Way::Cached)?.read(&mut plan).map(Some)
}

/// Measures all contenders.
pub(crate) fn run(options: &Options, progress: &mut dyn FnMut(&str)) -> Vec<Cell> {
    progress(&format!("{FILES}: making the file"));
    let scratch = match Scratch::new(&options.directory, options.length) {
        Ok(scratch) => scratch,
        Err(error) => {
            let reason = format!("no file in {}: {error}", options.directory.display());
            return vec![left_out("random reads of 4 KiB", &reason)];
        }
    };
    let mut cells = Vec::new();
    for way in [Way::Cached, Way::Direct] {
        let words = way.words();
        let title = format!("random reads of 4 KiB, {words}");
        if way == Way::Direct
            && let Err(reason) = scratch.check_direct()
        {
            cells.push(left_out(&title, &reason));
            break;
        }
        if let Err(error) = scratch.keep(way) {
            cells.push(left_out(&title, &error.to_string()));
            break;
        }
        progress(&title);
        cells.push(alone(way, title, &scratch, options));
        cells.push(apart::run(way, &scratch, options, progress));
        cells.extend(beside::run(way, &scratch, options, progress));
    }
    cells
}

impl Way {
    /// In the words of a title.
    fn words(self) -> &'static str {
        match self {
            Way::Cached => "cached",
            Way::Direct => "not cached",
        }
    }
}

/// A cell that could not be measured.
fn left_out(title: &str, reason: &str) -> Cell {
    Cell {
        scenario: FILES.to_owned(),
        title: title.to_owned(),
        compared: RATE.to_owned(),
        notes: vec![format!("left out: {reason}")],
        ..Cell::default()
    }
}

/// What a reader of the figures should know of the file.
fn of_the_file(scratch: &Scratch) -> String {
    let (pages, system) = (scratch.pages(), &scratch.system);
    format!("the file: {} MiB on {system}.", (pages * PAGE as u64) >> 20)
}

/// A contender that takes part in the rounds.
struct Entrant(Box<dyn Reader>);

impl Entrant {
    /// It has read a few pages, so its memory and threads exist. All data was correct.
    fn new(entry: &Entry, scratch: &Scratch, way: Way) -> io::Result<Entrant> {
        let mut reader = (entry.build)(scratch, way)?;
        reader.read(&mut Plan::endless(scratch.pages(), 0).of(20 * IN_FLIGHT).thorough())?;
        Ok(Entrant(reader))
    }
}

/// How far apart the processors are, where that matters.
fn distance_of(way: Way) -> Option<io::Result<Duration>> {
    (way == Way::Direct).then(distance::measure)
}

/// The rounds: each contender in turn, by `turn`, which gets a plan without an end.
fn measure(
    way: Way,
    entries: &[Entry],
    compared: &str,
    scratch: &Scratch,
    options: &Options,
    mut turn: impl FnMut(&mut dyn Reader, Plan, &mut Row) -> io::Result<()>,
) -> Vec<Row> {
    let row = |entry: &Entry| Row { contender: entry.name.to_owned(), ..Row::default() };
    let mut rows: Vec<Row> = entries.iter().map(row).collect();
    let mut entrants: Vec<Option<Entrant>> = Vec::new();
    for (entry, row) in entries.iter().zip(&mut rows) {
        let entrant = Entrant::new(entry, scratch, way);
        entrants.push(entrant.map_err(|error| row.failure = Some(error.to_string())).ok());
    }
    let mut round = 0;
    while options.rounds.goes_on(round, &rows, compared) {
        let mut before = distance_of(way);
        for number in 0..entries.len() {
            let index = (round + number) % entries.len();
            let (row, Some(Entrant(reader))) = (&mut rows[index], &mut entrants[index]) else {
                continue;
            };
            let plan = Plan::endless(scratch.pages(), 1 + round as u64);
            if let Err(error) = turn(&mut **reader, plan, row) {
                row.failure = Some(format!("round {}: {error}", round + 1));
                entrants[index] = None;
            }
            let behind = distance_of(way);
            if let (Some(before), Some(behind)) = (&before, &behind) {
                row.note_distance(before, behind);
            }
            before = behind;
        }
        round += 1;
    }
    rows
}

/// A turn where nothing else is done.
fn turn(reader: &mut dyn Reader, mut plan: Plan, row: &mut Row) -> io::Result<()> {
    let (begun, used) = (Instant::now(), Clock::Process.now());
    reader.read(&mut plan)?;
    let (used, taken) = (Clock::Process.now() - used, begun.elapsed());
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    let made = plan.made() as f64;
    row.push(CPU, "ns", Some(used.as_secs_f64() * 1e9 / made));
    row.push(RATE, "1/s", Some(made / taken.as_secs_f64()));
    Ok(())
}

/// Nothing but reads.
fn alone(way: Way, title: String, scratch: &Scratch, options: &Options) -> Cell {
    let (entries, compared) = match way {
        Way::Cached => (&CACHED[..], CPU),
        Way::Direct => (&DIRECT[..], RATE),
    };
    let rows = measure(way, entries, compared, scratch, options, |reader, plan, row| {
        let plan = match way {
            Way::Cached => plan.of(options.reads),
            Way::Direct => plan.within(options.time),
        };
        turn(reader, plan, row)
    });
    let note = match way {
        Way::Cached => {
            "cpu: of the whole process; pread and what is at once read one page after the other into the same buffer, \
             the others have 32 reads in flight."
        }
        Way::Direct => {
            "cpu: of the whole process; each has 32 reads in flight; what lies below the disk \
             of a virtual machine may cache all the same."
        }
    };
    Cell {
        scenario: FILES.to_owned(),
        title,
        threads: Some(1),
        reads: Some(way.words().to_owned()),
        compared: compared.to_owned(),
        rows,
        notes: vec![of_the_file(scratch), note.to_owned()],
        ..Cell::default()
    }
}

#[cfg(test)]
mod tests {
    use super::scratch::tests::scratch;
    use super::*;

    #[test]
    fn every_contender_reads_all_that_is_wanted_and_what_is_there() {
        let scratch = scratch(64);
        for entry in CACHED.iter().chain(&DIRECT) {
            let ways = [Way::Cached, Way::Direct];
            for way in ways {
                if way == Way::Direct
                    && let Err(reason) = scratch.check_direct()
                {
                    eprintln!("not tested, {}: {reason}", entry.name);
                    continue;
                }
                let mut reader = match (entry.build)(&scratch, way) {
                    Ok(reader) => reader,
                    Err(error) => {
                        eprintln!("not tested, {} cannot be had: {error}", entry.name);
                        continue;
                    }
                };
                for count in [1, 500, 0, 33] {
                    let mut plan = Plan::endless(64, count as u64).of(count).thorough();
                    reader.read(&mut plan).unwrap();
                    assert_eq!(plan.made(), count, "{}", entry.name);
                }
            }
        }
    }

    #[test]
    fn what_is_performed_is_read() {
        for name in PERFORMED {
            assert!(perform(name, 100).unwrap().is_some(), "{name}");
        }
        assert!(perform("nobody", 1).unwrap().is_none());
    }

    #[test]
    fn each_cell_has_every_quantity_in_every_round() {
        let (rounds, time) = (Amount::exactly(2), Duration::from_millis(100));
        let options = Options { rounds, reads: 200, time, ..Options::default() };
        let scratch = scratch(64);
        for way in [Way::Cached, Way::Direct] {
            if way == Way::Direct && scratch.check_direct().is_err() {
                continue;
            }
            let cell = alone(way, "a test".to_owned(), &scratch, &options);
            for row in cell
                .rows
                .iter()
                .filter(|row| ![URING, URING_THREAD].contains(&row.contender.as_str()))
            {
                assert_eq!(row.failure, None, "{}", row.contender);
                for quantity in [CPU, RATE] {
                    let values = row.values(quantity);
                    assert!(values.len() == 2 && values.iter().all(Option::is_some), "{quantity}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_had_is_left_out_and_says_why() {
        let directory = PathBuf::from("/nonexistent");
        let cells = run(&Options { directory, ..Options::default() }, &mut |_| {});
        let [cell] = &cells[..] else { panic!("{cells:?}") };
        assert!(cell.notes[0].starts_with("left out: no file in /nonexistent: "), "{cell:?}");
        assert!(crate::table::cell(cell).contains("left out"));
    }

    #[test]
    fn a_contender_that_reads_something_else_is_not_measured() {
        let scratch = scratch(8);
        // Its plan is of a longer file.
        let mut reader = bare::pread(&scratch, Way::Cached).unwrap();
        assert!(reader.read(&mut Plan::endless(1 << 20, 1).of(100)).is_err());
    }
}
