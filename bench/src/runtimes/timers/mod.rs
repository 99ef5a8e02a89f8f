//! R8: many timers, and deadlines that move, on runtimes and on the bare port.
//!
//! *Timers that are cancelled*: one task arms all of them, moves each to a later time and cancels
//! them in the same order. The figures are operations of that one thread in a second of wall-clock
//! time, and the processor time that the whole process uses for each operation: a runtime may leave
//! a part of the work to another thread. A timer is a boxed future. Arming it includes
//! making and polling it, and cancelling it is dropping it. Its waker only counts, so the figures do
//! not include the cost of tasks. No deadline comes before the process would be killed.
//!
//! *Timers that fire*: each has a separate task, which sleeps until the deadline. The deadlines
//! are spread over a second for 100,000 timers, in an order that has nothing to do with them. The
//! processor time is that of the process from the moment when all timers are armed until all have
//! fired, so it includes what a task costs that is woken and ends. The lateness is the time from the
//! deadline until the task runs.
//!
//! *Idle connections*: an echo whose connections have a deadline each, which moves with every message.
//! All connections send, one request at a time. On a runtime each read is inside a timeout, by the
//! means that are usual there. The port has a deadline for a connection's next event
//! ([`Ready::rearm_as_until`]). The processor time is that of the server.
//!
//! The port has no tasks. Its timers are messages for a future time ([`Port::post_at`]), and as many
//! threads wait for them as a runtime has workers. Its figures are a lower bound for what a runtime
//! on it can reach. A message has no deadline that moves.
//!
//! Each result is checked. Every timer that is cancelled returns its waker or its message, and wakes
//! no task. Every timer that fires does so once, at its deadline or later.
//!
//! [`Port::post_at`]: completion_port::Port::post_at
//! [`Ready::rearm_as_until`]: completion_port::Ready::rearm_as_until

mod api;
mod cancelled;
mod fired;
mod idle;
mod on_port;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(super) use self::api::Timed;
use self::cancelled::Cancelled;
use self::fired::Fired;
pub(super) use self::idle::servers;
use super::{Options, child, count, processors, rows, to_float};
use crate::distance;
use crate::enough::Amount;
use crate::names::runtimes::{OURS, PORT, SMOL, TOKIO};
use crate::options::TIMERS;
use crate::report::{Cell, Described, Row};
use crate::scenario::CPU;
use crate::table::MILLIONS;

/// All timers of a situation.
const COUNT: usize = 100_000;
/// The first is the one to which the others are compared.
const CONTENDERS: [&str; 4] = [OURS, TOKIO, SMOL, PORT];

const SCHEDULE: &str = "schedule";
const MOVE: &str = "move";
const CANCEL: &str = "cancel";

const CANCELLED: &str = "cancelled";
const FIRED: &str = "fired";

/// The port, for the report.
pub(super) fn described() -> Described {
    Described {
        name: PORT.to_owned(),
        about: "the completion port without a runtime".to_owned(),
        version: concat!("completion-port ", env!("VERSION_OF_completion-port")).to_owned(),
    }
}

/// What the program of a contender has measured.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Measured {
    Cancelled(Cancelled),
    Fired(Fired),
}

/// Runs a situation on a runtime.
pub(super) fn perform<R: Timed>(runtime: &R, name: &str, count: usize) -> Result<Measured, String> {
    let measured = match name {
        CANCELLED => cancelled::on_runtime(runtime, count).map(Measured::Cancelled),
        FIRED => fired::on_runtime(runtime, count).map(Measured::Fired),
        _ => return Err(unknown(name)),
    };
    measured.map_err(|error| error.to_string())
}

/// Runs a situation on the bare port.
pub(super) fn perform_on_port(name: &str, count: usize) -> Result<Measured, String> {
    let measured = match name {
        CANCELLED => on_port::cancelled(count, processors()).map(Measured::Cancelled),
        FIRED => on_port::fired(count, processors()).map(Measured::Fired),
        _ => return Err(unknown(name)),
    };
    measured.map_err(|error| error.to_string())
}

fn unknown(name: &str) -> String {
    format!("no situation `{name}`")
}

/// When timer `number` fires, of those that are spread over `time`.
fn spread(number: usize, time: Duration) -> Duration {
    // Multiples of a number without a common divisor jump about.
    let part = u32::try_from(number.wrapping_mul(48_271) % 65_536).unwrap_or(0);
    time * part / 65_536
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The part of them that is performed first, for the caches, the allocator and the threads.
fn warm_up(count: usize) -> usize {
    (count / 10).max(1)
}

/// R8: a cell for each situation.
pub(super) fn measure(
    options: &Options,
    rounds: Amount,
    divided_by: usize,
    step: &mut dyn FnMut(&str),
) -> Vec<Cell> {
    let count = (COUNT / divided_by).max(1);
    vec![
        cancelled(options, rounds, count, step),
        fired(options, rounds, count, step),
        idle::measure(options, rounds, divided_by, step),
    ]
}

fn cancelled(options: &Options, rounds: Amount, count: usize, step: &mut dyn FnMut(&str)) -> Cell {
    let rows = in_turns(options, rounds, (CANCELLED, count), SCHEDULE, step, |row, measured| {
        let cost = match measured {
            Some(Measured::Cancelled(cost)) => Some(cost),
            _ => None,
        };
        note_cancelled(row, cost);
    });
    let mut cell = Cell {
        title: format!("{count} timers: armed, moved to a later time and cancelled by one thread"),
        rows,
        ..cell(SCHEDULE)
    };
    note_ratios(&mut cell, &[MOVE, CANCEL]);
    cell.notes.push("The port has no deadline of a message that moves.".to_owned());
    cell
}

fn note_cancelled(row: &mut Row, cost: Option<Cancelled>) {
    let moves = row.contender != PORT;
    let parts = [
        (SCHEDULE, true, cost.map(|cost| cost.schedule)),
        (MOVE, moves, cost.and_then(|cost| cost.moved)),
        (CANCEL, true, cost.map(|cost| cost.cancel)),
    ];
    let parts = || parts.iter().filter(|(_, exists, _)| *exists);
    for (name, _, spent) in parts() {
        row.push(name, MILLIONS, spent.map(|spent| spent.rate()));
    }
    for (name, _, spent) in parts() {
        row.push(&format!("{name} cpu"), "ns", spent.map(|spent| spent.each()));
    }
}

fn fired(options: &Options, rounds: Amount, timers: usize, step: &mut dyn FnMut(&str)) -> Cell {
    let rows = in_turns(options, rounds, (FIRED, timers), CPU, step, |row, measured| {
        let fired = match measured {
            Some(Measured::Fired(fired)) => Some(fired),
            _ => None,
        };
        let each = fired.map(|fired| to_float(fired.processor) / count(fired.timers));
        row.push(CPU, "ns", each);
        row.push("p50", "us", fired.map(|fired| to_float(fired.p50) / 1000.0));
        row.push("p99", "us", fired.map(|fired| to_float(fired.p99) / 1000.0));
    });
    let time = fired::spread_of(timers);
    let mut cell = Cell {
        title: format!("{timers} timers: all fire within {time:?}; how late"),
        rows,
        ..cell(CPU)
    };
    note_ratios(&mut cell, &["p50", "p99"]);
    cell
}

fn cell(compared: &str) -> Cell {
    Cell {
        scenario: TIMERS.to_owned(),
        threads: Some(processors()),
        compared: compared.to_owned(),
        ..Cell::default()
    }
}

/// Notes ours divided by each rival's, with intervals.
fn note_ratios(cell: &mut Cell, quantities: &[&str]) {
    for &quantity in quantities {
        for &rival in &CONTENDERS[1..] {
            cell.note_ratio((quantity, OURS, rival));
        }
    }
}

/// Runs each contender's program in turn, round after round. `note` adds a round's result to a row;
/// `None` if there is none.
fn in_turns(
    options: &Options,
    rounds: Amount,
    (name, count): (&str, usize),
    compared: &str,
    step: &mut dyn FnMut(&str),
    note: impl Fn(&mut Row, Option<Measured>),
) -> Vec<Row> {
    let mut rows = rows(options.names(&CONTENDERS).into_iter());
    let mut round = 0;
    while rounds.goes_on(round, &rows, compared) {
        for turn in 0..rows.len() {
            let at = (round + turn) % rows.len();
            let row = &mut rows[at];
            step(&format!("{name}, round {}, {}", round + 1, row.contender));
            let before = distance::measure();
            let measured = child::timers(&row.contender, name, count);
            if let Err(reason) = &measured {
                row.failure = Some(reason.clone());
            }
            note(row, measured.ok());
            row.note_distance(&before, &distance::measure());
        }
        round += 1;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::super::api::{Ours, Smol, Tokio};
    use super::*;

    const FEW: usize = 300;

    /// The programs themselves check that each timer fires once and not early, or not at all.
    fn assert_plausible(measured: Measured, moves: bool) {
        match measured {
            Measured::Cancelled(Cancelled { schedule, moved, cancel }) => {
                assert_eq!(moved.is_some(), moves);
                for spent in [Some(schedule), moved, Some(cancel)].into_iter().flatten() {
                    assert_eq!(spent.operations, FEW);
                    assert!(spent.elapsed > 0 && spent.rate() > 0.0, "{spent:?}");
                }
            }
            Measured::Fired(fired) => {
                assert_eq!(fired.timers, FEW);
                assert!(fired.processor > 0 && fired.p50 <= fired.p99, "{fired:?}");
            }
        }
    }

    fn check<R: Timed>() {
        let runtime = R::start(None).unwrap();
        for name in [CANCELLED, FIRED] {
            assert_plausible(perform(&runtime, name, FEW).unwrap(), true);
        }
        assert_eq!(perform(&runtime, "none", 1).unwrap_err(), "no situation `none`");
    }

    #[test]
    fn timers_are_cancelled_or_fire_on_our_runtime() {
        check::<Ours>();
    }

    #[test]
    fn timers_are_cancelled_or_fire_on_tokio() {
        check::<Tokio>();
    }

    #[test]
    fn timers_are_cancelled_or_fire_on_smol() {
        check::<Smol>();
    }

    #[test]
    fn timers_are_cancelled_or_fire_on_the_port() {
        for name in [CANCELLED, FIRED] {
            assert_plausible(perform_on_port(name, FEW).unwrap(), false);
        }
    }

    /// A lost round keeps its place, and a contender without an operation has no column for it.
    #[test]
    fn a_round_without_a_result_keeps_its_place() {
        let mut row = Row { contender: PORT.to_owned(), ..Row::default() };
        note_cancelled(&mut row, None);
        assert_eq!(row.values(SCHEDULE), [None]);
        assert_eq!(row.values("cancel cpu"), [None]);
        assert!(row.quantity(MOVE).is_none());
        let mut row = Row { contender: TOKIO.to_owned(), ..Row::default() };
        let spent = cancelled::Spent { operations: 10, elapsed: 1000, processor: 2000 };
        let cost = Cancelled { schedule: spent, moved: Some(spent), cancel: spent };
        note_cancelled(&mut row, Some(cost));
        assert_eq!(row.values(MOVE), [Some(10.0)]);
        assert_eq!(row.values("move cpu"), [Some(200.0)]);
    }

    #[test]
    fn deadlines_are_spread_over_the_time() {
        let time = Duration::from_secs(1);
        let spread: Vec<Duration> = (0..FEW).map(|number| spread(number, time)).collect();
        assert!(spread.iter().all(|at| *at < time));
        assert!(!spread.is_sorted());
        assert!(spread.iter().any(|at| *at > time * 9 / 10));
    }
}
