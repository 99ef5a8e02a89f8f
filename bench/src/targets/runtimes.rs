//! The targets of the runtime: R1 to R7, R9 and the zoo.

use super::{Judged, floor, ratio};
use crate::names::runtimes::{
    ALONE, BY_AXUM, LOOP, MORE_WORKERS, NEXT_TO_FILES, NEXT_TO_SLOW_DISK, OURS, QUIET,
    SPAWN_BLOCKING, STALLS, TOKIO,
};
use crate::options::{
    BLOCKING, COMPUTING, DNS, ECHO, HTTP, MESSAGES, REDIS, SERVED_FILES, SHORT_HTTP, ZOO,
};
use crate::report::{Cell, Report};
use crate::scenario::{CPU, RATE};
use crate::statistics::{Estimate, estimate_present};

/// R1: our processor time for each request, divided by tokio's.
const ECHO_CPU: f64 = 1.0;
/// R2, R3, R6, files alone in R7, and the open loop of R9: our processor time for each request, and in
/// an open loop of R2 and R3 our p99, divided by tokio's.
const SERVERS_OF_TOKIO: f64 = 1.0;
/// R4a, closed loop: our rate, divided by tokio's if handlers sleep, ...
const RATE_OF_TOKIO: f64 = 5.0;
/// ... and in every variant divided by that of tokio with as many workers; with axum neither; ...
const RATE_OF_WORKERS: f64 = 0.95;
/// ... our processor time for each request, divided by that of tokio with `spawn_blocking`.
const BLOCKING_CPU: f64 = 1.1;
/// R4a, open loop: the p99 of quick requests, divided by that if nothing blocks, ...
const QUICK: f64 = 1.5;
/// ... or, in the sandbox, less that, in microseconds.
const QUICK_IN_SANDBOX: f64 = 2000.0;
/// R4b: the p99 of quick requests, in microseconds.
const BESIDE_HASHES: f64 = 15_000.0;
/// R7: the p99 of other requests next to files, divided by that alone: unchanged except for noise.
const NEXT_TO: f64 = 1.1;
/// R9, closed loop: our rate, divided by that of a bare loop.
const RATE_OF_LOOP: f64 = 0.97;
/// R5: the time of an operation, divided by tokio's; ...
const OPERATION: f64 = 1.3;
/// ... that of two computations of 5 ms, in nanoseconds.
const SPREADING: f64 = 7e6;

pub(super) fn judge(report: &Report) -> Vec<Judged> {
    let in_sandbox = report.arguments.iter().any(|argument| argument == "--sandbox");
    report.cells.iter().flat_map(|cell| of_cell(cell, in_sandbox)).collect()
}

fn of_cell(cell: &Cell, in_sandbox: bool) -> Vec<Judged> {
    match &*cell.scenario {
        ECHO => {
            let connections = cell.connections.unwrap_or(0);
            let what = format!("C{connections}: cpu of {OURS} / {TOKIO}");
            vec![at_most(cell, what, ratio(cell, CPU, OURS, TOKIO), ECHO_CPU)]
        }
        HTTP | SHORT_HTTP | REDIS => {
            let (title, quantity) = (&cell.title, &cell.compared);
            let what = format!("{title}: {quantity} of {OURS} / {TOKIO}");
            vec![at_most(cell, what, ratio(cell, quantity, OURS, TOKIO), SERVERS_OF_TOKIO)]
        }
        SERVED_FILES | DNS if cell.compared == CPU => {
            let what = format!("{}: cpu of {OURS} / {TOKIO}", cell.title);
            vec![at_most(cell, what, ratio(cell, CPU, OURS, TOKIO), SERVERS_OF_TOKIO)]
        }
        DNS => {
            let what = format!("{}: rate, {OURS} / {LOOP}", cell.title);
            vec![floor(cell, what, ratio(cell, RATE, OURS, LOOP), RATE_OF_LOOP)]
        }
        SERVED_FILES => {
            let alone = format!("{OURS}, {ALONE}");
            let next_to = |load: &str| {
                let what = format!("p99 of other requests on {OURS} {load} / {ALONE}");
                let measured = ratio(cell, "p99", &format!("{OURS}, {load}"), &alone);
                at_most(cell, what, measured, NEXT_TO)
            };
            [NEXT_TO_FILES, NEXT_TO_SLOW_DISK].map(next_to).into()
        }
        BLOCKING if cell.compared == RATE => throughput(cell),
        BLOCKING => latency(cell, in_sandbox).into_iter().collect(),
        COMPUTING => {
            let what = format!("{}p99 of the quick requests on {OURS}, us", by_axum(cell));
            vec![at_most(cell, what, value(cell, "p99"), BESIDE_HASHES)]
        }
        MESSAGES => {
            let (name, _) = cell.title.split_once(':').unwrap_or((&cell.title, ""));
            vec![if name == "spreading" {
                let what = format!("{name} on {OURS}, ns");
                at_most(cell, what, value(cell, "operation"), SPREADING)
            } else {
                let what = format!("{name}: time of {OURS} / {TOKIO}");
                at_most(cell, what, ratio(cell, "operation", OURS, TOKIO), OPERATION)
            }]
        }
        ZOO => {
            let (name, _) = cell.title.split_once(':').unwrap_or((&cell.title, ""));
            // One stall is one too many, so the median says too little.
            let values = cell.row(OURS).map(|row| row.values(STALLS)).unwrap_or_default();
            let most = values.iter().flatten().copied().reduce(f64::max);
            let all_the_same = |most| Estimate { median: most, interval: Some((most, most)) };
            let what = format!("{name}: {OURS} stalls");
            vec![at_most(cell, what, most.map(all_the_same), 0.0)]
        }
        _ => Vec::new(),
    }
}

fn throughput(cell: &Cell) -> Vec<Judged> {
    let variant = format!("{}{}", by_axum(cell), variant(cell));
    let rate = |rival: &str, least: f64| {
        let what = format!("{variant}: rate, {OURS} / {rival}");
        floor(cell, what, ratio(cell, RATE, OURS, rival), least)
    };
    let mut judged = Vec::new();
    if by_axum(cell).is_empty() {
        judged.push(rate(MORE_WORKERS, RATE_OF_WORKERS));
        if cell.title.contains("thread::sleep") {
            judged.push(rate(TOKIO, RATE_OF_TOKIO));
        }
    }
    let what = format!("{variant}: cpu of {OURS} / {SPAWN_BLOCKING}");
    judged.push(at_most(cell, what, ratio(cell, CPU, OURS, SPAWN_BLOCKING), BLOCKING_CPU));
    judged
}

/// The beginning of a target's name, if the servers use axum.
fn by_axum(cell: &Cell) -> String {
    let is_it = cell.title.starts_with(BY_AXUM);
    if is_it { format!("{BY_AXUM}, ") } else { String::new() }
}

/// What blocks, without the description of the load.
fn variant(cell: &Cell) -> &str {
    let title = cell.title.split(';').next().unwrap_or_default();
    title.rsplit(", ").next().map_or(title, |last| last.rsplit(": ").next().unwrap_or(last))
}

/// The quick requests while others block, and while none does. The first row is the usual share.
fn latency(cell: &Cell, in_sandbox: bool) -> Option<Judged> {
    let blocking = cell.rows.first()?;
    let quiet = cell.row(&format!("{OURS}, {QUIET}"))?;
    let what = cell.title.split(';').next().unwrap_or_default();
    let what = what.strip_prefix("HTTP by hyper, ").unwrap_or(what);
    Some(if in_sandbox {
        let what = format!("{what}: p99 of the quick requests, less that if nothing blocks, us");
        at_most(cell, what, blocking.difference(quiet, "p99"), QUICK_IN_SANDBOX)
    } else {
        let what = format!("{what}: p99 of the quick requests / that if nothing blocks");
        at_most(cell, what, blocking.ratio(quiet, "p99"), QUICK)
    })
}

/// Our own figures.
fn value(cell: &Cell, quantity: &str) -> Option<Estimate> {
    estimate_present(cell.row(OURS)?.values(quantity))
}

fn at_most(cell: &Cell, what: String, measured: Option<Estimate>, most: f64) -> Judged {
    Judged { at_most: true, ..floor(cell, what, measured, most) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::runtimes::with_share;
    use crate::report::tests::{cell, report};

    /// The verdict about the only target of these cells.
    fn verdicts(cells: Vec<Cell>, arguments: &[&str]) -> Vec<(String, &'static str)> {
        let mut report = report(cells);
        report.arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let judged = judge(&report);
        judged.into_iter().map(|it| (it.what.clone(), it.verdict(it.floor))).collect()
    }

    fn titled(title: &str, cell: Cell) -> Cell {
        Cell { title: title.to_owned(), ..cell }
    }

    #[test]
    fn throughput_is_judged_by_three_rivals() {
        let six = |value: f64| vec![value; 6];
        let rates = [(OURS, six(960.0)), (TOKIO, six(200.0)), (MORE_WORKERS, six(1000.0))];
        let cell = cell(BLOCKING, 2, 64, RATE, "1/s", &rates);
        let title = "echo, one request in 50: std::thread::sleep(5 ms); closed loop, 64";
        let found = verdicts(vec![titled(title, cell)], &[]);
        let what = "std::thread::sleep(5 ms): rate, ours / tokio";
        assert!(found.contains(&(what.to_owned(), "missed")), "{found:?}");
        assert!(found.contains(&(format!("{what}_more_workers"), "met")), "{found:?}");
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn with_axum_the_rate_has_no_target() {
        let costs = [(OURS, vec![10.0; 6]), (TOKIO, vec![9.0; 6]), (SPAWN_BLOCKING, vec![12.0; 6])];
        let closed = cell(BLOCKING, 2, 64, CPU, "ns", &costs);
        let closed = Cell { compared: RATE.to_owned(), ..closed };
        let title = "HTTP by axum, one request in 50: std::thread::sleep(5 ms); closed loop, 64";
        let what = "HTTP by axum, std::thread::sleep(5 ms): cpu of ours / tokio_spawn_blocking";
        assert_eq!(verdicts(vec![titled(title, closed)], &[]), [(what.to_owned(), "met")]);
        let open = cell(COMPUTING, 2, 64, "p99", "us", &[(OURS, vec![16_000.0; 6])]);
        let what = "HTTP by axum, p99 of the quick requests on ours, us";
        let open = titled("HTTP by axum, 2000 requests", open);
        assert_eq!(verdicts(vec![open], &[]), [(what.to_owned(), "missed")]);
    }

    #[test]
    fn a_latency_is_judged_by_its_difference_in_the_sandbox() {
        let (blocking, quiet) = (with_share(OURS, 50), with_share(OURS, 0));
        let values = [(&*blocking, vec![1500.0; 6]), (&*quiet, vec![500.0; 6])];
        let cell = || titled("HTTP, x", cell(BLOCKING, 2, 64, "p99", "us", &values));
        assert_eq!(verdicts(vec![cell()], &[])[0].1, "missed");
        assert_eq!(verdicts(vec![cell()], &["--sandbox"])[0].1, "met");
    }

    #[test]
    fn other_requests_are_judged_next_to_files_and_next_to_a_slow_disk() {
        let six = |value: f64| vec![value; 6];
        let names = [ALONE, NEXT_TO_FILES, NEXT_TO_SLOW_DISK].map(|load| format!("{OURS}, {load}"));
        let values = [(&*names[0], six(100.0)), (&names[1], six(105.0)), (&names[2], six(120.0))];
        let found = verdicts(vec![cell(SERVED_FILES, 2, 64, "p99", "us", &values)], &[]);
        let what = |load| format!("p99 of other requests on ours {load} / alone");
        let expected = [(what(NEXT_TO_FILES), "met"), (what(NEXT_TO_SLOW_DISK), "missed")];
        assert_eq!(found, expected);
        let costs = [(OURS, six(10.0)), (TOKIO, six(9.0))];
        let files = cell(SERVED_FILES, 2, 64, CPU, "ns", &costs);
        let found = verdicts(vec![titled("files", files)], &[]);
        assert_eq!(found, [("files: cpu of ours / tokio".to_owned(), "missed")]);
    }

    #[test]
    fn name_servers_are_compared_with_tokio_and_with_a_bare_loop() {
        let six = |value: f64| vec![value; 6];
        let costs = [(OURS, six(10.0)), (TOKIO, six(10.0)), (LOOP, six(5.0))];
        let open = titled("open", cell(DNS, 2, 1, CPU, "ns", &costs));
        let rates = [(OURS, six(960.0)), (TOKIO, six(2000.0)), (LOOP, six(1000.0))];
        let closed = titled("closed", cell(DNS, 2, 1, RATE, "1/s", &rates));
        let expected =
            [("open: cpu of ours / tokio", "met"), ("closed: rate, ours / loop", "missed")];
        let expected = expected.map(|(what, verdict)| (what.to_owned(), verdict));
        assert_eq!(verdicts(vec![open, closed], &[]), expected);
    }

    #[test]
    fn one_stall_is_one_too_many() {
        let zoo = |values: &[f64]| {
            let values = [(OURS, values.to_vec()), (TOKIO, vec![1.0; 3])];
            titled("lifo: a program", cell(ZOO, 2, 0, STALLS, "", &values))
        };
        let found = verdicts(vec![zoo(&[0.0; 3]), zoo(&[0.0, 1.0, 0.0])], &[]);
        assert_eq!(
            found.iter().map(|(_, verdict)| *verdict).collect::<Vec<_>>(),
            ["met", "missed"]
        );
    }

    #[test]
    fn messages_and_computations_have_their_own_limits() {
        let values = [(OURS, vec![7.5e6; 6]), (TOKIO, vec![10e6; 6])];
        let of = |title: &str| titled(title, cell(MESSAGES, 2, 0, "operation", "ns", &values));
        let found = verdicts(vec![of("spreading: x"), of("yield: x")], &[]);
        assert_eq!(found[0], ("spreading on ours, ns".to_owned(), "missed"));
        assert_eq!(found[1], ("yield: time of ours / tokio".to_owned(), "met"));
        let computing = cell(COMPUTING, 2, 64, "p99", "us", &[(OURS, vec![9000.0; 6])]);
        assert_eq!(verdicts(vec![computing], &[])[0].1, "met");
    }
}
