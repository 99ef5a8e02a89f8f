//! R7: files next to network traffic. Servers of HTTP/1.1 read a file for each request: hyper on
//! ours and on tokio, each with the whole-file function of its `fs`, and nginx with sendfile and
//! separate threads. The client checks every byte.
//!
//! *Files alone*: a closed loop for the rate, the processor time and the latencies of each length.
//! The files are in the system's memory.
//!
//! *Other requests next to files*: an open loop of the usual small page. In some rows a part of the
//! requests ask for files of 4 KiB, at the same rate on every machine. In the last rows these files
//! are on a slow disk ([`slow_disk`]), where each read takes some time. The latencies are those of
//! the other requests. They should be the same in all rows of a contender.

mod servers;
mod slow_disk;
#[cfg(test)]
mod tests;

use std::time::Duration;

use super::Options;
use super::foreign::nginx;
use super::shared::row_name;
use super::web::{Situation, half_of_the_slowest};
use crate::contenders::Contender;
use crate::enough::Amount;
use crate::names::runtimes::{ALONE, NEXT_TO_FILES, NEXT_TO_SLOW_DISK, NGINX, OURS, TOKIO};
use crate::options::SERVED_FILES;
use crate::report::{Cell, Described};
use crate::scenario::{CPU, RATE};
use crate::traffic::{Get, Http};

use self::servers::Folder;
pub(super) use self::servers::servers;

const CONNECTIONS: usize = 64;
/// The lengths of the files. The first is that of the files next to other requests.
const LENGTHS: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Requests for files next to others, in a second: two reads at a time wait for the slow disk.
const FILES_RATE: u32 = 200;

/// The first is the one to which the others are compared.
const ALL: [&str; 3] = [OURS, TOKIO, NGINX];

/// nginx, for the report.
pub(super) fn described() -> impl Iterator<Item = Described> {
    servers().into_iter().filter(|it| row_name(it) == NGINX).map(|it| Described::of(&it))
}

/// A server, by the name of its row. The error says why there is none.
fn server(name: &str) -> Result<Contender, String> {
    if name == NGINX
        && let Some(reason) = nginx::lacks_with_files()
    {
        return Err(reason);
    }
    let mut all = servers().into_iter();
    all.find(|it| row_name(it) == name).ok_or_else(|| format!("no server `{name}`"))
}

/// R7.
pub(super) fn measure(options: &Options, rounds: Amount, step: &mut dyn FnMut(&str)) -> Vec<Cell> {
    let (_folder, lacking) = match Folder::new(&LENGTHS) {
        Ok(made) => made,
        Err(error) => {
            return vec![Cell {
                scenario: SERVED_FILES.to_owned(),
                title: "HTTP/1.1, files".to_owned(),
                compared: CPU.to_owned(),
                notes: vec![format!("left out: no files: {error}")],
                ..Cell::default()
            }];
        }
    };
    let mut cells: Vec<Cell> =
        LENGTHS.iter().map(|length| alone(options, rounds, *length, step)).collect();
    let rate = half_of_the_slowest(&cells[0]);
    cells.push(next_to_others(options, rounds, rate, lacking.as_deref(), step));
    cells
}

fn situation(options: &Options, rounds: Amount, about: String) -> Situation {
    Situation {
        scenario: SERVED_FILES,
        about,
        connections: options.connections.first().copied().unwrap_or(CONNECTIONS),
        http: Http { accepts: true, ..Http::PLAIN },
        compared: CPU,
        round: options.round.unwrap_or(Duration::from_millis(250)),
        rounds,
    }
}

/// Closed loop, files of one length.
fn alone(options: &Options, rounds: Amount, length: usize, step: &mut dyn FnMut(&str)) -> Cell {
    let about = format!("HTTP/1.1, files of {} KiB, cached", length >> 10);
    let mut situation = situation(options, rounds, about);
    situation.http.quick = Get::File(length);
    let places = options.names(&ALL).into_iter().map(|name| situation.row(name, server(name)));
    let mut cell = situation.cell(places.collect(), Vec::new(), step);
    for (quantity, rival) in [(CPU, TOKIO), (RATE, TOKIO), (CPU, NGINX), (RATE, NGINX)] {
        cell.note_ratio((quantity, OURS, rival));
    }
    cell
}

/// Open loop: the other requests alone, next to files, and next to files on a slow disk. All rows
/// are measured in the same rounds. `lacking` says why there is no slow disk.
fn next_to_others(
    options: &Options,
    rounds: Amount,
    rate: u32,
    lacking: Option<&str>,
    step: &mut dyn FnMut(&str),
) -> Cell {
    let kib = LENGTHS[0] >> 10;
    let about = format!("HTTP/1.1, the usual page next to files of {kib} KiB");
    let usual = situation(options, rounds, about.clone());
    let http = Http { rate: Some(rate), ..usual.http };
    let open = Situation {
        about,
        http,
        compared: "p99",
        round: options.round.unwrap_or(Duration::from_millis(800)),
        ..usual
    };
    let once_in = (rate / FILES_RATE).max(2);
    let next_to = |other| Http { once_in, other, ..http };
    let loads = [
        (ALONE, http),
        (NEXT_TO_FILES, next_to(Get::File(LENGTHS[0]))),
        (NEXT_TO_SLOW_DISK, next_to(Get::SlowFile(LENGTHS[0]))),
    ];
    let names = options.names(&ALL);
    let mut places = Vec::new();
    for (load, http) in loads {
        let lacking = lacking.filter(|_| load == NEXT_TO_SLOW_DISK);
        for name in &names {
            let server = lacking.map_or_else(|| server(name), |reason| Err(reason.to_owned()));
            let about = open.about.clone();
            places.push(Situation { about, http, ..open }.row(&row(name, load), server));
        }
    }
    let delay = slow_disk::DELAY;
    let disk = "a file system of the client's process (FUSE), where each read takes";
    let notes = vec![
        format!("One request in {once_in} is for a file, if any are."),
        format!("{NEXT_TO_SLOW_DISK}: {disk} {delay:?}."),
    ];
    let mut cell = open.cell(places, notes, step);
    for name in names {
        for load in [NEXT_TO_FILES, NEXT_TO_SLOW_DISK] {
            cell.note_ratio(("p99", &row(name, load), &row(name, ALONE)));
        }
    }
    cell
}

/// The name of a row.
fn row(name: &str, load: &str) -> String {
    format!("{name}, {load}")
}
