//! Registration and removal of many sockets, and the memory that a registration takes.
//!
//! The sockets are UDP sockets, one descriptor each. A round creates a new poller, registers all of
//! them one after the other, and removes them in the same order; so growth is part of each round.
//! The references are bare loops of `epoll_ctl`: one that watches only for reading, as most rivals
//! do, and one that watches for everything, as the port does (a writable socket is then reported
//! immediately, which has a cost in the kernel).
//!
//! Memory is the amount in use according to the C library's allocator, including its headers. A
//! separate process measures it for each number of sockets, since some of it (the port's table of
//! descriptors) stays allocated.

mod asyncfd;
mod bare;
mod mio;
mod ours;
mod polling;

use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, io};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::distance;
use crate::enough::Amount;
use crate::processor_time::Clock;
use crate::report::{Cell, Row};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) rounds: Amount,
    pub(crate) sockets: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { rounds: Amount::exactly(12), sockets: 10_000 }
    }
}

/// Numbers of registrations for measuring memory. In addition to round numbers, those at which
/// doubling arrays are full (32 · (2^k - 1) slots), and those at which they and the table of
/// descriptors, which doubles at 2^k, have just grown: the worst ones.
const AMOUNTS: [usize; 9] = [1000, 1025, 4097, 5000, 8160, 8193, 10_000, 16_352, 16_385];

/// What a contender has taken.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    registration: Duration,
    removal: Duration,
    /// Bytes in use after the registrations, beyond those before it was made.
    bytes: usize,
}

/// A way to register sockets.
#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    run: fn(sockets: &mut Vec<UdpSocket>) -> io::Result<Taken>,
}

/// The first is the one to which the others are compared.
const ENTRIES: [Entry; 10] = [
    Entry { name: "ours", run: ours::owned },
    Entry { name: "ours, plain keys", run: |sockets| ours::plain(sockets) },
    Entry { name: "ours, with packets", run: ours::with_packets },
    Entry { name: "ours, by tokens", run: ours::by_tokens },
    Entry { name: "ours, receiving", run: ours::receiving },
    Entry { name: BARE, run: |sockets| bare::reading(sockets) },
    Entry { name: BARE_ALL, run: |sockets| bare::everything(sockets) },
    Entry { name: "mio", run: |sockets| mio::run(sockets) },
    Entry { name: "polling", run: |sockets| polling::run(sockets) },
    Entry { name: "tokio", run: asyncfd::run },
];

/// The quantity that is compared: registration and removal.
const COMPARED: &str = "both";
const BARE: &str = "epoll_ctl";
const BARE_ALL: &str = "epoll_ctl, all events";

/// Measures all contenders.
pub(crate) fn run(options: Options, progress: &mut dyn FnMut(&str)) -> Vec<Cell> {
    vec![times(options, progress), memory(progress)]
}

/// Registers and removes that many sockets; returns the number of bytes for the registrations,
/// `None` if there is no such contender.
pub(crate) fn perform(name: &str, count: usize) -> io::Result<Option<usize>> {
    let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) else { return Ok(None) };
    let taken = attempt(*entry, &mut sockets(count)?, count)?;
    Ok(Some(taken.bytes))
}

fn rows() -> Vec<Row> {
    let row = |entry: &Entry| Row { contender: entry.name.to_owned(), ..Row::default() };
    ENTRIES.iter().map(row).collect()
}

/// Sockets of one descriptor each, in non-blocking mode.
fn sockets(count: usize) -> io::Result<Vec<UdpSocket>> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let make = |_| -> io::Result<UdpSocket> {
        let socket: OwnedFd = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
        Ok(socket.into())
    };
    (0..count).map(make).collect()
}

/// Memory in use according to the C library's allocator.
fn in_use() -> usize {
    // SAFETY: mallinfo2(3) demands nothing.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

fn times(options: Options, progress: &mut dyn FnMut(&str)) -> Cell {
    progress(&format!("S7: registration of {} sockets", options.sockets));
    let mut rows = rows();
    let mut notes = Vec::new();
    match sockets(options.sockets) {
        Ok(mut sockets) => {
            let mut round = 0;
            while options.rounds.goes_on(round, &rows, COMPARED) {
                let mut before = distance::measure();
                let mut taken = [None; ENTRIES.len()];
                for turn in 0..ENTRIES.len() {
                    let index = (round + turn) % ENTRIES.len();
                    match attempt(ENTRIES[index], &mut sockets, options.sockets) {
                        Ok(done) => taken[index] = Some(done),
                        Err(error) => rows[index].failure = Some(error.to_string()),
                    }
                    let behind = distance::measure();
                    rows[index].note_distance(&before, &behind);
                    before = behind;
                }
                note_times(&mut rows, &taken, options.sockets, round);
                round += 1;
            }
        }
        Err(error) => notes.push(format!("{} sockets cannot be had: {error}", options.sockets)),
    }
    Cell {
        scenario: "S7".to_owned(),
        title: format!("registration and removal of {} sockets", options.sockets),
        threads: Some(1),
        connections: Some(options.sockets),
        compared: COMPARED.to_owned(),
        rows,
        notes,
        ..Cell::default()
    }
}

/// Runs a contender, which must return all sockets.
fn attempt(entry: Entry, sockets: &mut Vec<UdpSocket>, count: usize) -> io::Result<Taken> {
    let done = (entry.run)(sockets)?;
    if sockets.len() == count {
        return Ok(done);
    }
    Err(io::Error::other(format!("{} of {count} sockets came back", sockets.len())))
}

/// The values of a round, in which it has been noted how far apart the processors were.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn note_times(rows: &mut [Row], taken: &[Option<Taken>], sockets: usize, round: usize) {
    let each = |time: Duration| time.as_nanos() as f64 / sockets as f64;
    let both = |taken: Taken| each(taken.registration + taken.removal);
    let ratios = |name: &str| -> Vec<Option<f64>> {
        let below = ENTRIES.iter().position(|entry| entry.name == name);
        let ratio = |(row, above): (&Row, &Option<Taken>)| {
            let below = below.filter(|below| row.is_comparable(&rows[*below], round))?;
            Some(both((*above)?) / both(taken[below]?))
        };
        rows.iter().zip(taken).map(ratio).collect()
    };
    let (bare, all) = (ratios(BARE), ratios(BARE_ALL));
    for (index, (row, taken)) in rows.iter_mut().zip(taken).enumerate() {
        row.push("registration", "ns", taken.map(|taken| each(taken.registration)));
        row.push("removal", "ns", taken.map(|taken| each(taken.removal)));
        row.push(COMPARED, "ns", taken.map(both));
        row.push("/epoll_ctl", "", bare[index]);
        row.push("/all events", "", all[index]);
    }
}

fn memory(progress: &mut dyn FnMut(&str)) -> Cell {
    progress("S7: memory");
    let mut rows = rows();
    for (entry, row) in ENTRIES.iter().zip(&mut rows) {
        for amount in AMOUNTS {
            match bytes_in_child(entry.name, amount) {
                #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
                Ok(bytes) => {
                    row.push(&amount.to_string(), "B", Some(bytes as f64 / amount as f64));
                }
                Err(error) => {
                    row.failure = Some(format!("{amount} sockets: {error}"));
                    break;
                }
            }
        }
    }
    Cell {
        scenario: "S7".to_owned(),
        title: "memory of a registration without its key, by the number of registrations"
            .to_owned(),
        threads: Some(1),
        compared: "10000".to_owned(),
        rows,
        ..Cell::default()
    }
}

/// The result of [`perform`] in a separate process: `cport-bench memory CONTENDER SOCKETS`, which
/// prints it.
fn bytes_in_child(name: &str, count: usize) -> io::Result<usize> {
    let mut child = Command::new(env::current_exe()?);
    child.args(["memory", name, &count.to_string()]).stdin(Stdio::null());
    let done = child.output()?;
    let text = String::from_utf8_lossy(&done.stdout);
    text.trim().parse().map_err(|_| {
        let errors = String::from_utf8_lossy(&done.stderr);
        io::Error::other(format!("{}: {}", done.status, errors.trim()))
    })
}

/// Runs `act`, which never sleeps, and returns the processor time it took: that is free of what other
/// processes do meanwhile.
fn timed(act: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
    let begin = Clock::Thread.now();
    act()?;
    Ok(Clock::Thread.now() - begin)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::APART;

    /// Each contender fails if a removal returns another key than the registered one.
    #[test]
    fn every_contender_brings_all_sockets_back() {
        let mut sockets = sockets(100).unwrap();
        for entry in ENTRIES {
            let taken = attempt(entry, &mut sockets, 100).unwrap();
            assert!(taken.registration > Duration::ZERO, "{}", entry.name);
            assert!(taken.removal > Duration::ZERO, "{}", entry.name);
        }
    }

    #[test]
    fn each_turn_notes_how_far_apart_the_processors_were() {
        let rounds = Amount::exactly(3);
        let cell = times(Options { rounds, sockets: 50 }, &mut |_| {});
        for row in &cell.rows {
            assert_eq!(row.failure, None, "{}", row.contender);
            assert_eq!(row.values(COMPARED).len(), 3, "{}", row.contender);
            assert_eq!(row.values(APART).len(), 3, "{}", row.contender);
        }
    }

    #[test]
    fn a_socket_that_is_lost_is_an_error() {
        let mut sockets = sockets(3).unwrap();
        let forgetful = Entry {
            name: "forgetful",
            run: |sockets| {
                sockets.pop();
                Ok(Taken::default())
            },
        };
        assert!(attempt(forgetful, &mut sockets, 3).is_err());
    }

    #[test]
    fn memory_in_use_is_seen() {
        let seen = || {
            let before = in_use();
            let memory = std::hint::black_box(vec![1_u8; 1 << 22]);
            let after = in_use();
            drop(memory);
            after.wrapping_sub(before)
        };
        // Other tests, in other threads, take and give back memory meanwhile.
        let is_seen = (0..1000).any(|_| (1 << 22..(1 << 22) + (1 << 16)).contains(&seen()));
        assert!(is_seen, "{}", seen());
    }

    #[test]
    fn prices_are_for_each_socket_and_compared_with_both_loops() {
        let mut rows = rows();
        let taken = |micros| {
            let (registration, removal) = (Duration::from_micros(micros), Duration::ZERO);
            Some(Taken { registration, removal, bytes: 0 })
        };
        let all: Vec<_> = ENTRIES
            .iter()
            .map(|entry| match entry.name {
                "ours" => taken(12),
                BARE => taken(10),
                BARE_ALL => taken(16),
                _ => None,
            })
            .collect();
        note_times(&mut rows, &all, 10, 0);
        assert_eq!(rows[0].values("registration"), [Some(1200.0)]);
        assert_eq!(rows[0].values("/epoll_ctl"), [Some(1.2)]);
        assert_eq!(rows[0].values("/all events"), [Some(0.75)]);
    }

    #[test]
    fn ratios_are_of_turns_in_which_the_processors_were_as_far_apart() {
        let mut rows = rows();
        for (entry, row) in ENTRIES.iter().zip(&mut rows) {
            let apart = || Ok(Duration::from_nanos(if entry.name == BARE { 500 } else { 50 }));
            row.note_distance(&apart(), &apart());
        }
        let taken = Taken { registration: Duration::from_micros(10), ..Taken::default() };
        note_times(&mut rows, &[Some(taken); ENTRIES.len()], 10, 0);
        assert_eq!(rows[0].values("registration"), [Some(1000.0)]);
        assert_eq!(rows[0].values("/epoll_ctl"), [None]);
        assert_eq!(rows[0].values("/all events"), [Some(1.0)]);
    }
}
