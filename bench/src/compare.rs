//! Compares this build with another `cport-bench`, so that a change of the port can be judged.
//!
//! A cell has one contender: the server of this build and that of the other one. Both take turns in
//! each round, so other load of the machine affects both, and the ratio of a round cancels it.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::contenders::Contender;
use crate::report::{Cell, Report, Row};
use crate::rounds::Place;
use crate::scenario::Setup;
use crate::system;
use crate::table::{advantage, align, is_rate, with_interval};

/// The fewest rounds, unless the user chooses a number.
pub(crate) const LEAST: usize = 7;
/// The most rounds.
pub(crate) const MOST: usize = 60;
/// How far the bounds of an interval may be from its middle, as a share of the ratio.
const NARROW: f64 = 0.03;

/// What a row of the other build has after its contender's name.
const OTHER: &str = ", the other build";

/// Checks that the program is a `cport-bench`.
pub(crate) fn check(program: &Path) -> Result<(), String> {
    let asked = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let output = asked.map_err(|error| format!("{}: {error}", program.display()))?;
    if output.status.success() && output.stdout.starts_with(b"cport") {
        Ok(())
    } else {
        Err(format!("{}: no cport-bench", program.display()))
    }
}

/// Whether a contender is a server on the port. The others are the same in both builds.
pub(crate) fn is_ours(contender: &str) -> bool {
    contender.starts_with("ours")
}

/// The servers of both builds.
pub(crate) fn places(
    setup: &Setup,
    contender: &Contender,
    other: &Path,
    descriptors: usize,
) -> Vec<Place> {
    let title = format!("{}: {}", contender.name, setup.title);
    let setup = Setup { title, ..setup.clone() };
    let names = [contender.name.to_owned(), format!("{}{OTHER}", contender.name)];
    let programs = [system::own_program(), other.to_owned()];
    let both = names.into_iter().zip(programs);
    let place = |(name, program)| Place {
        name,
        program,
        contender: *contender,
        setup: setup.clone(),
        by_turn: setup.connects_by_turn(2, descriptors),
    };
    both.map(place).collect()
}

/// Whether more rounds would not change much: the interval of each ratio is narrow. Where a server failed, there is no
/// ratio.
pub(crate) fn is_narrow(rows: &[Row], compared: &str) -> bool {
    let Some((base, others)) = rows.split_first() else { return true };
    let is_narrow = |row: &Row| {
        row.failure.is_some()
            || base.ratio(row, compared).is_some_and(|ratio| {
                let narrow = |(low, high): (f64, f64)| (high - low) / 2.0 <= NARROW * ratio.median;
                ratio.interval.is_some_and(narrow)
            })
    };
    base.failure.is_some() || others.iter().all(is_narrow)
}

/// Whether a report compares two builds.
pub(crate) fn is_comparison(report: &Report) -> bool {
    let is_it = |argument: &String| argument == "--compare" || argument.starts_with("--compare=");
    report.arguments.iter().any(is_it)
}

/// A line for each ratio; nothing if there are none.
pub(crate) fn summary(report: &Report) -> String {
    let lines: Vec<_> = report.cells.iter().filter_map(line).collect();
    if lines.is_empty() {
        return String::new();
    }
    let head =
        "\nThis build and the other one (above 1: this build is better; intervals of 95 %)\n";
    head.to_owned() + &align(lines, 2)
}

fn line(cell: &Cell) -> Option<Vec<String>> {
    let [base, other] = &cell.rows[..] else { return None };
    if !other.contender.ends_with(OTHER) {
        return None;
    }
    let ratio = advantage(cell, base, other, is_rate(cell));
    let verdict = match ratio.and_then(|ratio| ratio.interval) {
        Some((low, _)) if low > 1.0 => "better",
        Some((_, high)) if high < 1.0 => "worse",
        Some(_) => "no difference shown",
        None => "too few rounds",
    };
    Some(vec![
        cell.scenario.clone(),
        cell.title.clone(),
        cell.compared.clone(),
        ratio.map_or_else(|| "-".to_owned(), |ratio| with_interval(&ratio)),
        verdict.to_owned(),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{cell, report};

    fn both(quantity: &str, unit: &str, ours: &[f64], other: &[f64]) -> Cell {
        let name = format!("ours{OTHER}");
        let values = [("ours", ours.to_vec()), (name.as_str(), other.to_vec())];
        cell("S1", 2, 64, quantity, unit, &values)
    }

    #[test]
    fn an_interval_is_narrow_within_three_percent() {
        let narrow =
            |other: [f64; 7]| is_narrow(&both("cpu", "ns", &[100.0; 7], &other).rows, "cpu");
        assert!(narrow([100.0, 100.0, 102.0, 98.0, 101.0, 99.0, 100.0]));
        assert!(!narrow([100.0, 100.0, 104.0, 96.0, 101.0, 99.0, 100.0]));
        // No interval.
        assert!(!is_narrow(&both("cpu", "ns", &[1.0; 5], &[1.0; 5]).rows, "cpu"));
        let mut failed = both("cpu", "ns", &[1.0; 5], &[]).rows;
        failed[1].failure = Some("ended".to_owned());
        assert!(is_narrow(&failed, "cpu"));
    }

    #[test]
    fn a_ratio_above_one_is_better_whatever_is_compared() {
        let mut report = report(vec![
            both("cpu", "ns", &[100.0; 7], &[110.0; 7]),
            both("rate", "1/s", &[100.0; 7], &[110.0; 7]),
            both("cpu", "ns", &[1.0; 7], &[1.0; 7]),
            both("cpu", "ns", &[1.0; 2], &[1.0; 2]),
        ]);
        let summary = summary(&report);
        let verdicts = ["better", "worse", "no difference shown", "too few rounds"];
        let lines: Vec<&str> = summary.lines().skip(2).collect();
        assert_eq!(lines.len(), verdicts.len(), "{summary}");
        for (line, verdict) in lines.iter().zip(verdicts) {
            assert!(line.ends_with(verdict), "{summary}");
        }
        assert!(lines[0].contains("1.100 (1.100-1.100)"), "{summary}");
        assert!(lines[1].contains("0.909 (0.909-0.909)"), "{summary}");
        assert!(!is_comparison(&report));
        report.arguments.push("--compare=old".to_owned());
        assert!(is_comparison(&report));
    }

    #[test]
    fn the_servers_are_those_of_both_builds() {
        let setup = crate::rounds::tests::setup("S1");
        let contender = crate::contenders::all().remove(0);
        let places = places(&setup, &contender, Path::new("/old"), 20_000);
        let names: Vec<&str> = places.iter().map(|place| place.name.as_str()).collect();
        assert_eq!(names, ["ours", "ours, the other build"]);
        let programs: Vec<&Path> = places.iter().map(|place| place.program.as_path()).collect();
        assert_eq!(programs, [&system::own_program(), Path::new("/old")]);
        assert!(places.iter().all(|place| place.setup.title.starts_with("ours: echo")));
    }

    #[test]
    fn another_program_is_refused() {
        assert!(
            check(Path::new("/no/such/program")).unwrap_err().starts_with("/no/such/program: ")
        );
        assert_eq!(check(Path::new("/bin/true")).unwrap_err(), "/bin/true: no cport-bench");
    }
}
