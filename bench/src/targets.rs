//! What the completion port is to reach against each rival, and whether a run shows it.

use std::fmt::Write as _;

mod runtimes;

use crate::names::{
    AT_ONCE, BESIDE_POOL, BY_PACKETS, CHECKED, IN_C_AT_ONCE, IN_C_BY_PACKETS, PLACED, SHARED,
    WITH_READS, files,
};
use crate::report::{Cell, Report, Row};
use crate::rounds::FEW_SOCKETS;
use crate::scenario::{ACCEPTS, CPU, DATAGRAMS, FILES, OPERATIONS, RATE, SINK};
use crate::sink::Drain;
use crate::statistics::{Estimate, estimate_present};
use crate::table::{align, with_interval};

/// The contender that is judged.
pub(crate) const OURS: &str = "ours";
/// The numbers of threads for which there are targets.
pub(crate) const THREADS: [usize; 3] = [1, 2, 4];
/// The connections of the cells with targets.
pub(crate) const CONNECTIONS: usize = 64;

/// A rival's processor time for each request, divided by ours, in S1 with 64 connections.
struct Rival {
    name: &'static str,
    /// The minimum with 1, 2 and 4 threads.
    floor: [f64; 3],
    /// The goal.
    stretch: [f64; 3],
}

const RIVALS: [Rival; 5] = [
    Rival { name: "epoll_one_shot", floor: [1.08, 1.10, 1.20], stretch: [1.10, 1.20, 1.30] },
    Rival { name: "polling", floor: [1.10, 1.20, 1.20], stretch: [1.20, 1.35, 1.35] },
    Rival { name: "tokio", floor: [1.03, 1.00, 1.00], stretch: [1.07, 1.12, 1.15] },
    Rival { name: "mio", floor: [0.97, 0.95, 1.15], stretch: [1.00, 1.05, 1.30] },
    Rival { name: "uring", floor: [0.92, 0.95, 1.10], stretch: [0.97, 1.02, 1.20] },
];

/// S3: our throughput, divided by that of each of these. Two processors have no room for 1.5 times what a
/// rival gets out of them that leaves few of their cycles unused.
const LONG_HANDLERS: [(&str, f64); 2] = [("epoll_one_shot_late", 1.5), ("tokio", 1.0)];
/// S4 and S9: our throughput, divided by that of the best of all others.
const BLOCKED_HANDLERS: f64 = 0.95;
/// S8: our processor time for each request, divided by that with 64 sockets.
const MANY_SOCKETS: f64 = 1.10;

/// S16: our packets in a second, divided by those of this one ...
const SINK_RIVAL: &str = "epoll_one_shot";
/// ... with handlers of this many microseconds or longer ones, and with shorter ones; ...
const LONG_SINK_HANDLER: u32 = 5;
const LONG_SINK: f64 = 0.95;
const SHORT_SINK: f64 = 0.90;
/// ... and, with the longer ones, by those of the best of all others.
const BEST_SINK: f64 = 0.90;

/// S11 with one thread: the processor time for each datagram of this one, divided by ours, ...
const DATAGRAM_RIVAL: &str = "epoll_edge";
/// ... with one socket, and with more.
const ONE_SOCKET: f64 = 0.95;
const SOCKETS: f64 = 0.97;

/// S12: connections that our operations accept in a second, with one accept in flight and with sixteen, divided by those
/// of the best of these.
const ACCEPTING: [&str; 2] = [AT_ONCE, SHARED];
const ACCEPT_RIVALS: [&str; 4] = ["epoll_one_shot", "epoll_edge", "mio", "tokio"];
const ACCEPT: f64 = 1.0;

/// S12: connections that the C library accepts in a second, divided by those that Rust accepts in the same way, with the
/// system calls of `AcceptEx`, and with all system calls of the C library.
const ACCEPTING_BY_C: [&str; 3] = [SHARED, PLACED, CHECKED];
const ACCEPT_BY_C: f64 = 0.95;

/// S13: the processor time for each request by our readiness, divided by that by our operations.
const BY_OPERATIONS: [(&str, f64); 2] = [(AT_ONCE, 0.97), (BY_PACKETS, 0.90)];

/// An operation by the C library: its processor time above that of one in the same way by Rust, in nanoseconds.
const BY_C: f64 = 100.0;
/// S13: ways of both. A request has two operations, a receive and a send.
const OPERATIONS_BY_C: [(&str, &str); 2] = [(IN_C_AT_ONCE, AT_ONCE), (IN_C_BY_PACKETS, BY_PACKETS)];
const OPERATIONS_OF_A_REQUEST: f64 = 2.0;
/// S14: ways of both. A read is an operation.
const READS_BY_C: [(&str, &str); 3] = [
    (files::IN_C_AT_ONCE, files::AT_ONCE),
    (files::IN_C_BY_PACKET, files::BY_PACKET),
    (files::IN_C_BY_RING, files::BY_RING),
];

/// S14, cached: the processor time for each read by pread(2), divided by that by ours.
const CACHED_READS: [(&str, f64); 2] = [(files::AT_ONCE, 0.9), (files::BY_PACKET, 0.75)];
/// S14, not cached: reads in a second by our ring, divided by those of a ring by hand.
const DIRECT_READS: f64 = 0.9;
/// S14, during an echo: its p99 with the reads on our port, divided by that with reading threads.
const ECHO_BESIDE_READS: f64 = 1.0;

/// S15: the cost of moving a deadline, in nanoseconds.
const MOVE: f64 = 10.0;

/// A target, and the measured values.
struct Judged {
    scenario: String,
    what: String,
    measured: Option<Estimate>,
    floor: f64,
    stretch: Option<f64>,
    /// Whether less is better.
    at_most: bool,
}

impl Judged {
    /// The median against the target; with a doubt if the interval is on both sides of it.
    fn verdict(&self, target: f64) -> &'static str {
        let Some(measured) = self.measured else { return "not measured" };
        let reaches = |value: f64| if self.at_most { value <= target } else { value >= target };
        let is_met = reaches(measured.median);
        match measured.interval.map(|(low, high)| reaches(low) == reaches(high)) {
            Some(true) if is_met => "met",
            Some(true) => "missed",
            Some(false) if is_met => "met, within the noise",
            Some(false) => "missed, within the noise",
            None if is_met => "met, too few rounds",
            None => "missed, too few rounds",
        }
    }
}

/// The summary: every target that the run covers.
pub(crate) fn summary(report: &Report) -> String {
    let (judged, unknown): (Vec<Judged>, Vec<Judged>) =
        judge(report).into_iter().partition(|judged| judged.measured.is_some());
    if judged.is_empty() {
        return String::new();
    }
    let mut rows =
        vec![["", "what", "measured", "floor", "", "stretch", ""].map(str::to_owned).to_vec()];
    for judged in &judged {
        let sign = if judged.at_most { "<=" } else { ">=" };
        rows.push(vec![
            judged.scenario.clone(),
            judged.what.clone(),
            judged.measured.map_or_else(|| "-".to_owned(), |ratio| with_interval(&ratio)),
            format!("{sign} {:.2}", judged.floor),
            judged.verdict(judged.floor).to_owned(),
            judged.stretch.map_or_else(String::new, |stretch| format!("{sign} {stretch:.2}")),
            judged.stretch.map_or_else(String::new, |stretch| judged.verdict(stretch).to_owned()),
        ]);
    }
    let mut text = String::from("\nTargets (medians, with their intervals of 95 %)\n");
    text.push_str(&align(rows, 7));
    let met = judged.iter().filter(|judged| judged.verdict(judged.floor).starts_with("met"));
    let (met, all, unknown) = (met.count(), judged.len(), unknown.len());
    let _: std::fmt::Result =
        writeln!(text, "  floors met: {met} of {all} measured; {unknown} not measured");
    text
}

fn judge(report: &Report) -> Vec<Judged> {
    let mut judged = Vec::new();
    for (at, threads) in THREADS.into_iter().enumerate() {
        let cell = report.cell("S1", threads, CONNECTIONS);
        for rival in &RIVALS {
            judged.push(Judged {
                scenario: format!("S1 T{threads}"),
                what: format!("cpu of {} / ours", rival.name),
                measured: cell.and_then(|cell| ratio(cell, CPU, rival.name, OURS)),
                floor: rival.floor[at],
                stretch: Some(rival.stretch[at]),
                at_most: false,
            });
        }
    }
    for cell in report.cells.iter().filter(|cell| cell.scenario == "S3") {
        for (rival, least) in LONG_HANDLERS {
            judged.push(floor(
                cell,
                format!("rate, ours / {rival}"),
                ratio(cell, RATE, OURS, rival),
                least,
            ));
        }
    }
    for cell in report.cells.iter().filter(|cell| matches!(&*cell.scenario, "S4" | "S9")) {
        if let Some(best) = best(cell, RATE, f64::gt) {
            let what = format!("rate, ours / {} (the best)", best.contender);
            let measured = ratio(cell, RATE, OURS, &best.contender);
            judged.push(floor(cell, what, measured, BLOCKED_HANDLERS));
        }
        if let Some(best) = best(cell, "p99", f64::lt) {
            let what = format!("p99 of {} (the best other) / ours", best.contender);
            judged.push(floor(cell, what, ratio(cell, "p99", &best.contender, OURS), 1.0));
        }
    }
    for cell in report.cells.iter().filter(|cell| cell.scenario == SINK) {
        judged.extend(cell.drain.into_iter().flat_map(|drain| judge_sink(cell, drain)));
    }
    let datagrams = |cell: &&Cell| cell.scenario == DATAGRAMS && cell.threads == Some(1);
    for cell in report.cells.iter().filter(datagrams) {
        let (sockets, under_way) = (cell.connections.unwrap_or(0), cell.under_way.unwrap_or(0));
        let what = format!("C{sockets}, {under_way} under way: cpu of {DATAGRAM_RIVAL} / ours");
        let least = if sockets == 1 { ONE_SOCKET } else { SOCKETS };
        judged.push(floor(cell, what, ratio(cell, CPU, DATAGRAM_RIVAL, OURS), least));
    }
    for cell in report.cells.iter().filter(|cell| cell.scenario == ACCEPTS) {
        for rust in ACCEPTING_BY_C {
            if let measured @ Some(_) = ratio(cell, RATE, IN_C_AT_ONCE, rust) {
                let what = format!("rate, {IN_C_AT_ONCE} / {rust}");
                judged.push(floor(cell, what, measured, ACCEPT_BY_C));
            }
        }
        if let Some(best) = best_of(cell, RATE, f64::gt, |name| ACCEPT_RIVALS.contains(&name)) {
            for accepting in ACCEPTING {
                let what =
                    format!("rate, {accepting} / {} (the best by readiness)", best.contender);
                let measured = ratio(cell, RATE, accepting, &best.contender);
                judged.push(floor(cell, what, measured, ACCEPT));
            }
        }
    }
    for cell in report.cells.iter().filter(|cell| cell.scenario == OPERATIONS) {
        for (name, least) in BY_OPERATIONS {
            let what = format!("cpu of {OURS} / {name}");
            judged.push(floor(cell, what, ratio(cell, CPU, OURS, name), least));
        }
        let by_c = OPERATIONS_BY_C
            .map(|(in_c, in_rust)| judge_c(cell, "", in_c, in_rust, OPERATIONS_OF_A_REQUEST));
        judged.extend(by_c.into_iter().flatten());
    }
    for cell in report.cells.iter().filter(|cell| cell.scenario == FILES) {
        judged.extend(cell.reads.iter().flat_map(|reads| judge_reads(cell, reads)));
    }
    for cell in report.cells.iter().filter(|cell| cell.scenario == "S15") {
        for row in &cell.rows {
            let Some(quantity) = row.quantity("a move") else { continue };
            let measured = estimate_present(&quantity.values);
            if measured.is_some() {
                let connections = cell.connections.unwrap_or_default();
                let what = format!("{}, {connections} connections: a move, ns", row.contender);
                judged.push(Judged { at_most: true, ..floor(cell, what, measured, MOVE) });
            }
        }
    }
    for cell in report.cells.iter().filter(|cell| cell.scenario == "S8") {
        let measured = ratio(cell, CPU, OURS, FEW_SOCKETS);
        let what = format!("cpu of ours / {FEW_SOCKETS}");
        judged.push(Judged { at_most: true, ..floor(cell, what, measured, MANY_SOCKETS) });
    }
    judged.extend(runtimes::judge(report));
    judged
}

/// The floors of a sink; other cells of the same threads differ in connections and handlers.
fn judge_sink(cell: &Cell, drain: Drain) -> Vec<Judged> {
    let Drain { handler, reads } = drain;
    let connections = cell.connections.unwrap_or(0);
    let judge = |rival: &str, remark: &str, least: f64| {
        let reads = reads.name();
        let what = format!("C{connections}, {handler} us, {reads}: rate, ours / {rival}{remark}");
        floor(cell, what, ratio(cell, RATE, OURS, rival), least)
    };
    let is_long = handler >= LONG_SINK_HANDLER;
    let mut judged = vec![judge(SINK_RIVAL, "", if is_long { LONG_SINK } else { SHORT_SINK })];
    if let Some(best) = best(cell, RATE, f64::gt).filter(|_| is_long) {
        judged.push(judge(&best.contender, " (the best)", BEST_SINK));
    }
    judged
}

/// The floors of reads from files: whichever contenders the cell has.
fn judge_reads(cell: &Cell, reads: &str) -> Vec<Judged> {
    let judge = |what: &str, quantity: &str, above: &str, below: &str, least: f64| {
        let rows = cell.row(above).zip(cell.row(below));
        let what = format!("{reads}: {what}{above} / {below}");
        rows.map(|(above, below)| floor(cell, what, above.ratio(below, quantity), least))
    };
    let cached = CACHED_READS.map(|(name, least)| judge("cpu of ", CPU, files::PREAD, name, least));
    // By one thread that does nothing else, and as an operation is done where no disk holds up a socket.
    let direct = [files::URING, files::URING_THREAD]
        .map(|by_hand| judge("rate, ", RATE, files::BY_RING, by_hand, DIRECT_READS));
    let beside = judge("p99, ", "p99", WITH_READS, BESIDE_POOL, ECHO_BESIDE_READS);
    let beside = beside.map(|judged| Judged { at_most: true, ..judged });
    let about = format!("{reads}: ");
    let by_c = READS_BY_C.map(|(in_c, in_rust)| judge_c(cell, &about, in_c, in_rust, 1.0));
    cached.into_iter().chain(direct).chain([beside]).chain(by_c).flatten().collect()
}

/// The additional cost of an operation in the C library compared to Rust, if the cell has both: for
/// rows with this many operations in the counted unit.
fn judge_c(cell: &Cell, about: &str, in_c: &str, in_rust: &str, operations: f64) -> Option<Judged> {
    let (above, below) = cell.row(in_c).zip(cell.row(in_rust))?;
    let what = format!("{about}cpu of {in_c} - {in_rust}, ns an operation");
    let measured = above.difference(below, CPU).map(|difference| difference.over(operations));
    Some(Judged { at_most: true, ..floor(cell, what, measured, BY_C) })
}

fn floor(cell: &Cell, what: String, measured: Option<Estimate>, floor: f64) -> Judged {
    let threads = cell.threads.map_or_else(String::new, |threads| format!(" T{threads}"));
    let scenario = format!("{}{threads}", cell.scenario);
    Judged { scenario, what, measured, floor, stretch: None, at_most: false }
}

fn ratio(cell: &Cell, quantity: &str, above: &str, below: &str) -> Option<Estimate> {
    cell.row(above)?.ratio(cell.row(below)?, quantity)
}

/// The best of all others by the median.
fn best<'c>(cell: &'c Cell, quantity: &str, is_better: fn(&f64, &f64) -> bool) -> Option<&'c Row> {
    best_of(cell, quantity, is_better, |name| name != OURS)
}

/// The best by the median of those that `counts` names.
fn best_of<'c>(
    cell: &'c Cell,
    quantity: &str,
    is_better: fn(&f64, &f64) -> bool,
    counts: impl Fn(&str) -> bool,
) -> Option<&'c Row> {
    let median = |row: &Row| estimate_present(row.values(quantity)).map(|found| found.median);
    let others = cell.rows.iter().filter(|row| counts(&row.contender) && row.failure.is_none());
    others.filter(|row| median(row).is_some()).reduce(|best, row| {
        let is_better = median(row).zip(median(best)).is_some_and(|(a, b)| is_better(&a, &b));
        if is_better { row } else { best }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::READS_BY_HAND;
    use crate::report::tests::{cell, report};
    use crate::sink::Reads;

    fn line<'t>(text: &'t str, scenario: &str, what: &str) -> &'t str {
        let is_it = |line: &&str| line.contains(scenario) && line.contains(what);
        text.lines().find(is_it).unwrap_or_else(|| panic!("{scenario} {what} in {text}"))
    }

    #[test]
    fn nothing_measured_is_no_summary() {
        assert_eq!(summary(&report(Vec::new())), "");
    }

    #[test]
    fn a_ratio_is_met_missed_or_in_doubt() {
        let rounds = |value: f64| vec![value; 8];
        let noisy = vec![1000.0, 1300.0, 1000.0, 1300.0, 1000.0, 1300.0, 1000.0, 1300.0];
        let report = report(vec![cell(
            "S1",
            2,
            64,
            CPU,
            "ns",
            &[
                ("ours", rounds(1000.0)),
                ("epoll_one_shot", rounds(1150.0)),
                ("tokio", rounds(990.0)),
                ("mio", noisy),
                ("uring", rounds(1030.0)),
            ],
        )]);
        let text = summary(&report);
        let one_shot = line(&text, "S1 T2", "epoll_one_shot");
        assert!(one_shot.contains(">= 1.10 met "), "{one_shot}");
        assert!(one_shot.ends_with(">= 1.20 missed"), "{one_shot}");
        assert!(line(&text, "S1 T2", "tokio").contains(">= 1.00 missed"), "{text}");
        let mio = line(&text, "S1 T2", "mio");
        assert!(mio.contains(">= 0.95 met ") && mio.ends_with("met, within the noise"), "{mio}");
        assert!(!text.contains("polling") && !text.contains("S1 T4"), "{text}");
        assert!(text.contains("floors met: 3 of 4 measured; 11 not measured"), "{text}");
    }

    #[test]
    fn a_few_rounds_prove_nothing() {
        let values = [("ours", vec![1000.0; 5]), ("tokio", vec![2000.0; 5])];
        let text = summary(&report(vec![cell("S1", 2, 64, CPU, "ns", &values)]));
        assert!(line(&text, "S1 T2", "tokio").contains("met, too few rounds"), "{text}");
    }

    #[test]
    fn throughput_is_compared_with_the_best_of_the_others() {
        let values =
            [("ours", vec![900.0; 6]), ("mio", vec![1000.0; 6]), ("tokio", vec![800.0; 6])];
        let text = summary(&report(vec![cell("S9", 4, 64, RATE, "1/s", &values)]));
        let rate = line(&text, "S9 T4", "rate, ours / mio");
        assert!(rate.contains("0.900") && rate.contains(">= 0.95 missed"), "{rate}");
    }

    #[test]
    fn sinks_are_compared_with_one_shot_and_long_handlers_with_the_best_too() {
        let rates = [
            ("ours", vec![920.0; 6]),
            ("epoll_one_shot", vec![1000.0; 6]),
            ("uring", vec![1100.0; 6]),
        ];
        let sink = |handler, reads| {
            let drain = Some(Drain { handler, reads });
            Cell { drain, ..cell(SINK, 2, 8, RATE, "1/s", &rates) }
        };
        let text = summary(&report(vec![sink(2, Reads::All), sink(5, Reads::One)]));
        let short = line(&text, "S16 T2", "C8, 2 us, all: rate, ours / epoll_one_shot");
        assert!(short.contains("0.920") && short.contains(">= 0.90 met"), "{short}");
        assert!(!text.contains("C8, 2 us, all: rate, ours / uring"), "{text}");
        let long = line(&text, "S16 T2", "C8, 5 us, one: rate, ours / epoll_one_shot");
        assert!(long.contains(">= 0.95 missed"), "{long}");
        let best = line(&text, "S16 T2", "C8, 5 us, one: rate, ours / uring (the best)");
        assert!(best.contains("0.836") && best.contains(">= 0.90 missed"), "{best}");
        assert!(text.contains("floors met: 1 of 3 measured"), "{text}");
    }

    #[test]
    fn datagrams_of_one_thread_are_compared_with_an_edge_triggered_set() {
        let values = [("ours", vec![1000.0; 6]), ("epoll_edge", vec![960.0; 6])];
        let datagrams = |threads, sockets, under_way| {
            let cell = cell(DATAGRAMS, threads, sockets, CPU, "ns", &values);
            Cell { under_way: Some(under_way), ..cell }
        };
        let cells = vec![datagrams(1, 1, 8), datagrams(1, 64, 1), datagrams(2, 64, 1)];
        let text = summary(&report(cells));
        let one = line(&text, "S11 T1", "C1, 8 under way: cpu of epoll_edge / ours");
        assert!(one.contains("0.960") && one.contains(">= 0.95 met"), "{one}");
        let many = line(&text, "S11 T1", "C64, 1 under way");
        assert!(many.contains(">= 0.97 missed"), "{many}");
        assert!(!text.contains("S11 T2"), "{text}");
    }

    #[test]
    fn accepts_are_compared_with_the_best_by_readiness() {
        let values = [
            ("ours", vec![980.0; 6]),
            (AT_ONCE, vec![1050.0; 6]),
            (SHARED, vec![990.0; 6]),
            (PLACED, vec![960.0; 6]),
            (CHECKED, vec![940.0; 6]),
            (IN_C_AT_ONCE, vec![930.0; 6]),
            ("mio", vec![1000.0; 6]),
            ("tokio", vec![900.0; 6]),
            ("uring", vec![1200.0; 6]),
            ("compio", vec![1200.0; 6]),
        ];
        let text = summary(&report(vec![cell(ACCEPTS, 2, 32, RATE, "1/s", &values)]));
        let one = line(&text, "S12 T2", "rate, ours_by_operations / mio (the best by readiness)");
        assert!(one.contains("1.050") && one.contains(">= 1.00 met"), "{one}");
        let sixteen = line(&text, "S12 T2", "rate, ours_by_shared_accepts / mio");
        assert!(sixteen.contains("0.990") && sixteen.contains(">= 1.00 missed"), "{sixteen}");
        let by_c = line(&text, "S12 T2", "ours_in_c_by_operations / ours_by_shared_accepts");
        assert!(by_c.contains("0.939") && by_c.contains(">= 0.95 missed"), "{by_c}");
        let placed = line(&text, "S12 T2", "ours_in_c_by_operations / ours_by_placed_accepts");
        assert!(placed.contains("0.969") && placed.contains(">= 0.95 met"), "{placed}");
        let checked = line(&text, "S12 T2", "ours_in_c_by_operations / ours_by_checked_accepts");
        assert!(checked.contains("0.989") && checked.contains(">= 0.95 met"), "{checked}");
        assert!(text.contains("floors met: 3 of 5 measured"), "{text}");
    }

    #[test]
    fn operations_are_compared_with_readiness_and_moves_with_nothing() {
        let values =
            [("ours", vec![960.0; 6]), (AT_ONCE, vec![1000.0; 6]), (BY_PACKETS, vec![1000.0; 6])];
        let echo = cell(OPERATIONS, 1, 64, CPU, "ns", &values);
        let moves = cell("S15", 1, 10_000, "a move", "ns", &[("rearm_until", vec![12.0; 6])]);
        let text = summary(&report(vec![echo, moves]));
        let verdict = |scenario, what| -> Vec<&str> {
            line(&text, scenario, what).split_whitespace().rev().take(3).collect()
        };
        assert_eq!(verdict("S13 T1", AT_ONCE), ["missed", "0.97", ">="]);
        assert_eq!(verdict("S13 T1", BY_PACKETS), ["met", "0.90", ">="]);
        assert_eq!(verdict("S15 T1", "a move"), ["missed", "10.00", "<="]);
    }

    #[test]
    fn an_operation_by_the_c_library_is_compared_with_one_by_rust() {
        let echo = [
            ("ours", vec![900.0; 6]),
            (AT_ONCE, vec![1000.0; 6]),
            (BY_PACKETS, vec![1200.0; 6]),
            (IN_C_AT_ONCE, vec![1199.0; 6]),
            (IN_C_BY_PACKETS, vec![1401.0; 6]),
        ];
        let cached = [
            (files::AT_ONCE, vec![500.0; 6]),
            (files::IN_C_AT_ONCE, vec![599.0; 6]),
            (files::BY_PACKET, vec![700.0; 6]),
            (files::IN_C_BY_PACKET, vec![801.0; 6]),
        ];
        let cached = cell(FILES, 1, 64, CPU, "ns", &cached);
        let cached = Cell { reads: Some("cached".to_owned()), ..cached };
        let text = summary(&report(vec![cell(OPERATIONS, 2, 64, CPU, "ns", &echo), cached]));
        // Two operations a request.
        let at_once = line(&text, "S13 T2", "cpu of ours_in_c_by_operations - ours_by_operations");
        assert!(at_once.contains("99.500") && at_once.ends_with("<= 100.00 met"), "{at_once}");
        let by_packets = line(&text, "S13 T2", "cpu of ours_in_c_by_packets - ours_by_packets");
        assert!(by_packets.contains("100.500") && by_packets.contains("missed"), "{by_packets}");
        let read = line(&text, "S14 T1", "cached: cpu of ours in C, at once - ours, at once");
        assert!(read.contains("99.000") && read.ends_with("<= 100.00 met"), "{read}");
        let by_packet = line(&text, "S14 T1", "cpu of ours in C, by packet - ours, by packet");
        assert!(by_packet.contains("101.000") && by_packet.contains("missed"), "{by_packet}");
    }

    /// The verdict follows the median; the interval qualifies it.
    #[test]
    fn an_interval_on_both_sides_of_a_target_is_a_doubt_for_differences_too() {
        let noisy: Vec<f64> = [1150.0, 1280.0].repeat(4);
        let echo = [(AT_ONCE, vec![1000.0; 8]), (IN_C_AT_ONCE, noisy)];
        let text = summary(&report(vec![cell(OPERATIONS, 1, 64, CPU, "ns", &echo)]));
        let at_once = line(&text, "S13 T1", IN_C_AT_ONCE);
        assert!(at_once.contains("107.500 (75.000-140.000)"), "{at_once}");
        assert!(at_once.ends_with("missed, within the noise"), "{at_once}");
    }

    #[test]
    fn reads_are_compared_with_pread_a_ring_by_hand_and_a_pool() {
        let of = |threads, reads: &str, quantity, values: &[(&str, Vec<f64>)]| {
            let cell = cell(FILES, threads, 64, quantity, "", values);
            Cell { reads: Some(reads.to_owned()), ..cell }
        };
        let cached = [
            (files::AT_ONCE, vec![1000.0; 6]),
            (files::BY_PACKET, vec![1250.0; 6]),
            (files::PREAD, vec![910.0; 6]),
            (files::URING, vec![1.0; 6]),
        ];
        let direct = [
            (files::BY_RING, vec![880.0; 6]),
            (files::URING, vec![1000.0; 6]),
            (files::URING_THREAD, vec![900.0; 6]),
        ];
        let beside = [
            (WITH_READS, vec![80.0; 6]),
            (BESIDE_POOL, vec![100.0; 6]),
            (READS_BY_HAND, vec![1.0; 6]),
        ];
        let text = summary(&report(vec![
            of(1, "cached", CPU, &cached),
            of(1, "not cached", RATE, &direct),
            of(2, "cached, as many", "p99", &beside),
            of(1, "cached, while 64 connections echo elsewhere", CPU, &cached),
            of(1, "not cached, while 64 connections echo elsewhere", RATE, &direct),
        ]));
        let at_once = line(&text, "S14 T1", "cached: cpu of pread / ours, at once");
        assert!(at_once.contains("0.910") && at_once.contains(">= 0.90 met"), "{at_once}");
        let by_packet = line(&text, "S14 T1", "cached: cpu of pread / ours, by packet");
        assert!(by_packet.contains("0.728") && by_packet.contains(">= 0.75 missed"), "{by_packet}");
        let ring = line(&text, "S14 T1", "not cached: rate, ours, ring / uring  ");
        assert!(ring.contains(">= 0.90 missed"), "{ring}");
        let alike = format!("not cached: rate, ours, ring / {}", files::URING_THREAD);
        let ring = line(&text, "S14 T1", &alike);
        assert!(ring.contains("0.978") && ring.ends_with(">= 0.90 met"), "{ring}");
        let elsewhere = "while 64 connections echo elsewhere: cpu of pread / ours, at once";
        assert!(line(&text, "S14 T1", elsewhere).ends_with(">= 0.90 met"), "{text}");
        let elsewhere =
            "not cached, while 64 connections echo elsewhere: rate, ours, ring / uring  ";
        assert!(line(&text, "S14 T1", elsewhere).ends_with(">= 0.90 missed"), "{text}");
        let echo = line(&text, "S14 T2", "cached, as many: p99, ours");
        assert!(echo.contains("0.800") && echo.contains("<= 1.00 met"), "{echo}");
        // It shows the kernel's behaviour with such threads, and is not a rival.
        assert!(!text.contains(READS_BY_HAND), "{text}");
        assert!(text.contains("floors met: 5 of 9 measured"), "{text}");
    }

    #[test]
    fn many_sockets_are_compared_with_few() {
        let values = [("ours", vec![1090.0; 6]), (FEW_SOCKETS, vec![1000.0; 6])];
        let text = summary(&report(vec![cell("S8", 2, 19_500, CPU, "ns", &values)]));
        let many = line(&text, "S8 T2", FEW_SOCKETS);
        assert!(many.contains("1.090") && many.contains("<= 1.10 met"), "{many}");
    }
}
