//! The tables on the terminal.

use std::fmt::Write as _;

use crate::report::{APART, Cell, Quantity, Report, Row, too_few};
use crate::statistics::{ENOUGH, Estimate, estimate_present};

/// Place, time and configuration of a run.
pub(crate) fn head(report: &Report) -> String {
    let machine = &report.machine;
    let mut text = String::new();
    let memory = machine.memory_mib.map_or_else(|| "?".to_owned(), |memory| memory.to_string());
    let guest = if machine.virtual_machine { ", virtual" } else { "" };
    let lines = [
        format!("{}, {} processors{guest}, {memory} MiB", machine.processor, machine.processors),
        format!(
            "{} {}, {}, {} build",
            machine.system, machine.kernel, machine.rustc, machine.profile
        ),
        format!("commit {}, {}", machine.commit, machine.date),
        format!("cport bench {}", report.arguments.join(" ")),
    ];
    for line in lines {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text.push('\n');
    let rows = report.contenders.iter().map(|contender| {
        vec![contender.name.clone(), contender.version.clone(), contender.about.clone()]
    });
    text + &align(rows.collect(), 3)
}

/// The table of a cell: a line for each contender.
pub(crate) fn cell(cell: &Cell) -> String {
    let names = columns(cell);
    let base = cell.rows.first();
    let more_is_better = is_rate(cell);
    let mut head = vec![String::new()];
    for name in &names {
        let unit = unit(cell, name);
        head.push(if unit.is_empty() { name.clone() } else { format!("{name} [{unit}]") });
    }
    let is_compared = !cell.compared.is_empty();
    head.extend(is_compared.then(|| advantage_name(cell)));
    let mut rows = vec![head];
    let mut remarks: Vec<String> = Vec::new();
    for (index, row) in cell.rows.iter().enumerate() {
        let mut line = vec![row.contender.clone()];
        line.extend(names.iter().map(|name| value(row.quantity(name))));
        line.extend(is_compared.then(|| match base {
            Some(base) if index > 0 => {
                let ratio = advantage(cell, base, row, more_is_better);
                ratio.map_or_else(|| "-".to_owned(), |ratio| with_interval(&ratio))
            }
            _ => "1".to_owned(),
        }));
        rows.push(line);
        if let Some(reason) = &row.failure {
            let first = reason.lines().next().unwrap_or_default();
            remarks.push(format!("{}: {first}", row.contender));
        }
        for quantity in &row.quantities {
            if let Some(reason) = &quantity.missing {
                let remark = format!("{} not measured: {reason}", quantity.name);
                if !remarks.contains(&remark) {
                    remarks.push(remark);
                }
            }
        }
    }
    let rounds = cell.rows.iter().map(|row| row.values(&cell.compared).len()).max().unwrap_or(0);
    let plural = if rounds == 1 { "" } else { "s" };
    let rounds_taken =
        if is_compared { format!(" ({rounds} round{plural})") } else { String::new() };
    let mut text = format!("\n{}: {}{rounds_taken}\n", cell.scenario, cell.title);
    text.push_str(&align(rows, 1));
    remarks.extend(moved(cell, rounds));
    if let Some(names) = names_of_too_few(cell) {
        remarks.push(format!("Fewer than {ENOUGH} comparable rounds: {names}"));
    }
    for remark in remarks.iter().chain(&cell.notes) {
        let _: std::fmt::Result = writeln!(text, "  {remark}");
    }
    text
}

/// The rows of a cell whose ratios are of too few comparable rounds, each with the number of these.
fn names_of_too_few(cell: &Cell) -> Option<String> {
    let names: Vec<String> = too_few(&cell.rows, &cell.compared)
        .into_iter()
        .map(|(row, comparable)| format!("{} {comparable}", row.contender))
        .collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// All ratios of a report that are of too few comparable rounds, a line for each cell; nothing if there are none.
pub(crate) fn too_few_comparable(report: &Report) -> String {
    let mut text = String::new();
    for cell in &report.cells {
        let Some(names) = names_of_too_few(cell) else { continue };
        if text.is_empty() {
            let head = "Ratios of too few comparable rounds: they have no interval";
            let _: std::fmt::Result = writeln!(text, "\n{head} (fewer than {ENOUGH} rounds)");
        }
        let _: std::fmt::Result = writeln!(text, "  {}, {}: {names}", cell.scenario, cell.title);
    }
    text
}

/// A remark about the rounds that give no ratio.
fn moved(cell: &Cell, rounds: usize) -> Option<String> {
    let (base, others) = cell.rows.split_first()?;
    let has = |row: &Row, round: usize| {
        row.values(&cell.compared).get(round).is_some_and(Option::is_some)
    };
    let pairs = |row: &Row| -> (usize, usize) {
        let both: Vec<usize> =
            (0..rounds).filter(|round| has(row, *round) && has(base, *round)).collect();
        (both.iter().filter(|round| row.is_comparable(base, **round)).count(), both.len())
    };
    let pairs: Vec<_> = others.iter().map(pairs).filter(|(_, both)| *both > 0).collect();
    let moved = pairs.iter().any(|(comparable, both)| comparable < both);
    let comparable = || pairs.iter().map(|(comparable, _)| *comparable);
    let (least, most) = (comparable().min()?, comparable().max()?);
    moved.then(|| {
        format!(
            "The processors were moved: ratios are of the {least} to {most} rounds in which they were \
             as far apart for both."
        )
    })
}

/// How many times better the first row is than this one, round by round: above 1 it is ahead,
/// whether less or more is better for the quantity.
pub(crate) fn advantage(
    cell: &Cell,
    base: &Row,
    row: &Row,
    more_is_better: bool,
) -> Option<Estimate> {
    let (above, below) = if more_is_better { (base, row) } else { (row, base) };
    above.ratio(below, &cell.compared)
}

/// The unit of rates that are millions of operations in a second.
pub(crate) const MILLIONS: &str = "Mops/s";

/// Whether more is better for the compared quantity.
pub(crate) fn is_rate(cell: &Cell) -> bool {
    matches!(unit(cell, &cell.compared), "1/s" | MILLIONS)
}

fn advantage_name(cell: &Cell) -> String {
    let base = cell.rows.first().map_or("", |row| &row.contender);
    if is_rate(cell) {
        format!("{base}/it, {}", cell.compared)
    } else {
        format!("it/{base}, {}", cell.compared)
    }
}

/// The names of all quantities, in the order in which the rows have them; how far apart the processors were is the
/// last.
fn columns(cell: &Cell) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for quantity in cell.rows.iter().flat_map(|row| &row.quantities) {
        if !names.contains(&quantity.name) {
            names.push(quantity.name.clone());
        }
    }
    // Next to the figures themselves.
    names.sort_by_key(|name| name == APART);
    names
}

fn unit<'c>(cell: &'c Cell, name: &str) -> &'c str {
    cell.rows.iter().find_map(|row| row.quantity(name)).map_or("", |quantity| &quantity.unit)
}

/// The median, with as many digits as it is good for.
fn value(quantity: Option<&Quantity>) -> String {
    let median = quantity.and_then(|quantity| estimate_present(&quantity.values));
    median.map_or_else(|| "-".to_owned(), |estimate| number(estimate.median))
}

fn number(value: f64) -> String {
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// A ratio with its interval.
pub(crate) fn with_interval(ratio: &Estimate) -> String {
    match ratio.interval {
        Some((low, high)) => format!("{:.3} ({low:.3}-{high:.3})", ratio.median),
        None => format!("{:.3} (?)", ratio.median),
    }
}

/// Columns side by side; the first `left` of them are flush left, the others flush right.
pub(crate) fn align(rows: Vec<Vec<String>>, left: usize) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..count).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::from(" ");
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _: std::fmt::Result = if column < left {
                write!(line, " {cell:<width$}")
            } else {
                write!(line, "  {cell:>width$}")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::report::tests::{cell as made, report};

    fn line<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name));
        line.unwrap_or_else(|| panic!("{name} in {text}")).split_whitespace().collect()
    }

    #[test]
    fn of_times_the_rival_is_divided_by_ours() {
        let values = [("ours", vec![1000.0; 6]), ("mio", vec![1200.0; 6])];
        let text = cell(&made("S1", 2, 64, "cpu", "ns", &values));
        assert!(text.contains("S1: a test (6 rounds)"), "{text}");
        assert_eq!(line(&text, "cpu"), ["cpu", "[ns]", "it/ours,", "cpu"]);
        assert_eq!(line(&text, "ours"), ["ours", "1000", "1"]);
        assert_eq!(line(&text, "mio"), ["mio", "1200", "1.200", "(1.200-1.200)"]);
    }

    #[test]
    fn of_rates_ours_is_divided_by_the_rival() {
        let values = [("ours", vec![1000.0, 3000.0]), ("mio", vec![500.0, 1500.0])];
        let text = cell(&made("S3", 2, 4, "rate", "1/s", &values));
        assert!(text.contains("ours/it, rate"), "{text}");
        assert_eq!(line(&text, "mio"), ["mio", "1000", "2.000", "(?)"]);
    }

    #[test]
    fn it_is_told_of_how_many_rounds_the_ratios_are() {
        let values = [("ours", vec![1000.0; 6]), ("mio", vec![1200.0; 6])];
        let mut cell_ = made("S1", 2, 64, "cpu", "ns", &values);
        assert!(!cell(&cell_).contains("moved"));
        let mut failed = Row { contender: "tokio".to_owned(), ..Row::default() };
        failed.push("cpu", "ns", None);
        cell_.rows.push(failed);
        for apart in [50.0, 50.0, 50.0, 50.0, 500.0, 500.0] {
            cell_.rows[0].push(APART, "ns", Some(50.0));
            cell_.rows[1].push(APART, "ns", Some(apart));
        }
        let text = cell(&cell_);
        assert!(
            text.contains("The processors were moved: ratios are of the 4 to 4 rounds"),
            "{text}"
        );
        assert!(text.contains("  Fewer than 6 comparable rounds: mio 4\n"), "{text}");
    }

    #[test]
    fn a_report_lists_the_cells_with_ratios_of_too_few_comparable_rounds() {
        let cell_of = |threads, apart| {
            let values = [("ours", vec![1.0; 6]), ("mio", vec![1.0; 6]), ("tokio", vec![1.0; 6])];
            let mut cell = made("S1", threads, 64, "cpu", "ns", &values);
            for round in 0..6 {
                cell.rows[0].push(APART, "ns", Some(50.0));
                cell.rows[1].push(APART, "ns", Some(if round == 0 { apart } else { 50.0 }));
                cell.rows[2].push(APART, "ns", Some(50.0));
            }
            cell
        };
        let enough = cell_of(1, 50.0);
        assert_eq!(too_few_comparable(&report(vec![enough.clone()])), "");
        let mut few = cell_of(2, 500.0);
        few.title = "another".to_owned();
        let text = too_few_comparable(&report(vec![enough, few]));
        assert!(text.ends_with("(fewer than 6 rounds)\n  S1, another: mio 5\n"), "{text}");
    }

    #[test]
    fn what_is_missing_is_a_dash_and_its_reason_is_told_once() {
        let mut cell_ = made("S1", 2, 64, "cpu", "ns", &[("ours", vec![1.0]), ("mio", vec![2.0])]);
        for row in &mut cell_.rows {
            row.push("syscalls", "", None);
            row.quantities[1].missing = Some("no permission".to_owned());
        }
        cell_.rows[1].failure = Some("stalled".to_owned());
        cell_.notes.push("a note".to_owned());
        let text = cell(&cell_);
        assert_eq!(line(&text, "ours"), ["ours", "1.00", "-", "1"]);
        assert_eq!(text.matches("syscalls not measured: no permission").count(), 1);
        assert!(text.contains("mio: stalled") && text.contains("  a note\n"), "{text}");
    }

    #[test]
    fn columns_stand_below_one_another() {
        let cells = |row: [&str; 2]| row.map(str::to_owned).to_vec();
        let text = align(vec![cells(["a", "1"]), cells(["long", "22"])], 1);
        assert_eq!(text, "  a      1\n  long  22\n");
    }

    #[test]
    fn the_head_names_machine_and_options() {
        let text = head(&report(Vec::new()));
        assert!(text.contains("processors") && text.contains("commit "), "{text}");
        assert!(text.contains("cport bench --quick\n"), "{text}");
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        let shown = [12_345.6, 99.96, 1.234_5, 0.012_34, -0.5].map(number);
        assert_eq!(shown, ["12346", "100.0", "1.23", "0.012", "-0.500"]);
    }

    fn milliseconds(microseconds: f64) -> String {
        match microseconds / 1000.0 {
            long @ 100.0.. => format!("{long:.0}"),
            middle @ 1.0.. => format!("{middle:.1}"),
            short => format!("{short:.2}"),
        }
    }

    /// COMPARE.md names the file of each scenario in its tables: one table of ratios, one of the p99, which has the
    /// port, too.
    #[test]
    fn the_page_on_alternatives_has_the_figures_of_the_files_that_it_names() {
        let names = ["epoll_one_shot", "epoll_edge", "mio", "polling", "tokio", "uring"];
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let page = root.join("crates/completion-port/docs/COMPARE.md");
        let page = fs::read_to_string(page).unwrap();
        let named = page.lines().filter_map(|line| {
            let arguments = line.strip_prefix("cargo run --release -- bench report ")?;
            let (file, scenarios) = arguments.split_once(" # ")?;
            Some((Report::read(&root.join(file)).unwrap(), scenarios))
        });
        let reports: Vec<(Report, &str)> = named.collect();
        let mut rows = 0;
        for row in page.lines().filter(|line| line.starts_with("| S")) {
            let fields: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [scenario, threads, figures @ ..] = &fields[..] else { panic!("{row}") };
            let scenario = scenario.split(':').next().unwrap();
            let threads = threads.parse().unwrap();
            let named = reports
                .iter()
                .find(|(_, scenarios)| scenarios.split(' ').any(|name| name == scenario));
            let (report, _) = named.unwrap_or_else(|| panic!("no file has {scenario}"));
            let is_meant =
                |cell: &&Cell| cell.scenario == scenario && cell.threads == Some(threads);
            let cells: Vec<&Cell> = report.cells.iter().filter(is_meant).collect();
            assert_eq!(cells.len(), 1, "{row}");
            let (cell, ours) = (cells[0], &cells[0].rows[0]);
            let of = |name: &str| cell.row(name).unwrap();
            let measured: Vec<String> = if figures.len() == names.len() {
                let ratio = |name: &&str| advantage(cell, ours, of(name), is_rate(cell)).unwrap();
                let shown = names.iter().map(ratio).map(|ratio| {
                    let doubt = if ratio.interval.is_none() { "?" } else { "" };
                    format!("{:.2}{doubt}", ratio.median)
                });
                shown.collect()
            } else {
                let compared = [ours].into_iter().chain(names.iter().map(|name| of(name)));
                let p99 = compared.map(|row| estimate_present(row.values("p99")).unwrap().median);
                p99.map(milliseconds).collect()
            };
            assert_eq!(*figures, measured, "{row}");
            rows += 1;
        }
        assert!(rows > 10, "{rows}");
    }
}
