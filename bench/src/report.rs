//! What a run has measured, as it is written to and read from the raw JSON.
//!
//! It holds every value of every round; medians, ratios and intervals are computed again each time
//! they are printed.

use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use serde::{Deserialize, Serialize};

use crate::distance;
use crate::machine::Machine;
use crate::sink::Drain;
use crate::statistics::{ENOUGH, Estimate, paired_difference, paired_ratio};

/// Counted up when the raw JSON changes its form.
pub(crate) const FORMAT: u32 = 1;

/// How far apart the processors were in a turn; no value if they were moved during it.
pub(crate) const APART: &str = "apart";

/// A whole run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) format: u32,
    pub(crate) machine: Machine,
    /// The command line of the run.
    pub(crate) arguments: Vec<String>,
    /// All that took part: name, description, version.
    pub(crate) contenders: Vec<Described>,
    pub(crate) cells: Vec<Cell>,
    /// How long the run took, in seconds.
    pub(crate) seconds: f64,
}

/// A contender as the run found it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) about: String,
    pub(crate) version: String,
}

/// One situation in which all contenders were measured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Cell {
    /// The scenario: `S1` … `S17`, `single`.
    pub(crate) scenario: String,
    /// A one-line description of the measurement.
    pub(crate) title: String,
    pub(crate) threads: Option<usize>,
    pub(crate) connections: Option<usize>,
    /// What the handlers of the sinks do, if the servers are sinks.
    pub(crate) drain: Option<Drain>,
    /// Requests without answer on each socket, if they are datagrams.
    pub(crate) under_way: Option<usize>,
    /// How a file is read, if one is.
    pub(crate) reads: Option<String>,
    /// The name of the quantity that is compared: the others' divided by the first row's.
    pub(crate) compared: String,
    /// One for each contender; the first is the one to which the others are compared.
    pub(crate) rows: Vec<Row>,
    /// What a reader of the figures should know.
    pub(crate) notes: Vec<String>,
}

/// What one contender did in a cell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) contender: String,
    pub(crate) quantities: Vec<Quantity>,
    /// Why it was not measured to the end.
    pub(crate) failure: Option<String>,
}

/// The values of one quantity, round by round.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Quantity {
    /// Its name in the heading of a column.
    pub(crate) name: String,
    /// `ns`, `us`, `1/s`, `B`, … or nothing for a plain number.
    pub(crate) unit: String,
    /// By round, so that values of the same round can be paired; `None` where a round gave none.
    pub(crate) values: Vec<Option<f64>>,
    /// Why there is no value at all.
    pub(crate) missing: Option<String>,
}

impl Quantity {
    pub(crate) fn new(name: &str, unit: &str) -> Quantity {
        Quantity { name: name.to_owned(), unit: unit.to_owned(), ..Quantity::default() }
    }
}

impl Row {
    /// The values of a quantity, round by round; none if there is no such quantity.
    pub(crate) fn values(&self, name: &str) -> &[Option<f64>] {
        self.quantity(name).map_or(&[], |quantity| &quantity.values)
    }

    pub(crate) fn quantity(&self, name: &str) -> Option<&Quantity> {
        self.quantities.iter().find(|quantity| quantity.name == name)
    }

    /// This row's values divided by those of `below`, round by round, where the processors were as far apart
    /// for the one as for the other.
    pub(crate) fn ratio(&self, below: &Row, name: &str) -> Option<Estimate> {
        paired_ratio(&self.comparable_values(below, name), below.values(name))
    }

    /// The same of this row's values less those of `below`.
    pub(crate) fn difference(&self, below: &Row, name: &str) -> Option<Estimate> {
        paired_difference(&self.comparable_values(below, name), below.values(name))
    }

    fn comparable_values(&self, other: &Row, name: &str) -> Vec<Option<f64>> {
        let mut values = self.values(name).to_vec();
        for (round, value) in values.iter_mut().enumerate() {
            if !self.is_comparable(other, round) {
                *value = None;
            }
        }
        values
    }

    /// In how many rounds both rows have the quantity, and are comparable.
    pub(crate) fn comparable(&self, other: &Row, name: &str) -> usize {
        let both = self.values(name).iter().zip(other.values(name)).enumerate();
        let counts = |(round, (ours, theirs)): &(usize, (&Option<f64>, &Option<f64>))| {
            ours.is_some() && theirs.is_some() && self.is_comparable(other, *round)
        };
        both.filter(counts).count()
    }

    /// Records how far apart the processors were in the next turn, from the measurements before and
    /// after it.
    pub(crate) fn note_distance(
        &mut self,
        before: &io::Result<Duration>,
        behind: &io::Result<Duration>,
    ) {
        let (before, behind) = match (before, behind) {
            (Ok(before), Ok(behind)) => (before.as_secs_f64() * 1e9, behind.as_secs_f64() * 1e9),
            (Err(error), _) | (_, Err(error)) => {
                let reason = error.to_string();
                self.push(APART, "ns", None);
                let apart = self.quantities.iter_mut().find(|quantity| quantity.name == APART);
                if let Some(apart) = apart {
                    apart.missing = Some(reason);
                }
                return;
            }
        };
        let stayed = distance::is_same(before, behind);
        self.push(APART, "ns", stayed.then(|| f64::midpoint(before, behind)));
    }

    /// Whether the processors did not move between this row's turn and the other one's. Where the distance
    /// was not measured at all, nothing is known to the contrary.
    pub(crate) fn is_comparable(&self, other: &Row, round: usize) -> bool {
        let (ours, theirs) = (self.values(APART), other.values(APART));
        if ours.iter().chain(theirs).all(Option::is_none) {
            return true;
        }
        let at = |values: &[Option<f64>]| values.get(round).copied().flatten();
        at(ours).zip(at(theirs)).is_some_and(|(ours, theirs)| distance::is_same(ours, theirs))
    }

    /// Adds the next round's value to a quantity, which is made if there is none of that name.
    pub(crate) fn push(&mut self, name: &str, unit: &str, value: Option<f64>) {
        let at = self.quantities.iter().position(|quantity| quantity.name == name);
        let at = at.unwrap_or_else(|| {
            self.quantities.push(Quantity::new(name, unit));
            self.quantities.len() - 1
        });
        self.quantities[at].values.push(value.filter(|value| value.is_finite()));
    }
}

/// The rows whose ratio to the first one has no interval, since too few rounds are comparable, with
/// how many are. Rows that failed are excluded: they have an error. Without recorded distances of
/// the processors, no row counts as missing rounds.
pub(crate) fn too_few<'r>(rows: &'r [Row], compared: &str) -> Vec<(&'r Row, usize)> {
    let Some((base, others)) = rows.split_first() else { return Vec::new() };
    let is_noted = |row: &&Row| row.failure.is_none() && row.quantity(APART).is_some();
    if !is_noted(&base) {
        return Vec::new();
    }
    others
        .iter()
        .filter(is_noted)
        .map(|row| (row, row.comparable(base, compared)))
        .filter(|(_, comparable)| *comparable < ENOUGH)
        .collect()
}

impl Cell {
    pub(crate) fn row(&self, contender: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.contender == contender)
    }
}

impl Report {
    /// The cell of a scenario with these threads and connections.
    pub(crate) fn cell(&self, scenario: &str, threads: usize, connections: usize) -> Option<&Cell> {
        self.cells.iter().find(|cell| {
            cell.scenario == scenario
                && cell.threads == Some(threads)
                && cell.connections == Some(connections)
        })
    }

    pub(crate) fn write(&self, file: &Path) -> Result<(), String> {
        let mut text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        text.push('\n');
        fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// Drops the turns in which the processors did not have the wanted distance, and the cells
    /// without recorded distances.
    pub(crate) fn keep(&mut self, is_wanted: impl Fn(f64) -> bool) {
        self.cells.retain(|cell| cell.rows.iter().any(|row| row.quantity(APART).is_some()));
        for row in self.cells.iter_mut().flat_map(|cell| &mut cell.rows) {
            let apart = row.values(APART).to_vec();
            // Quantities measured once, and not in each turn, are independent of it.
            let of_turns = row.quantities.iter_mut().filter(|it| it.values.len() == apart.len());
            for quantity in of_turns {
                for (value, apart) in quantity.values.iter_mut().zip(&apart) {
                    *value = value.filter(|_| apart.is_some_and(&is_wanted));
                }
            }
        }
    }

    pub(crate) fn read(file: &Path) -> Result<Report, String> {
        let text = fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
        let report: Report = serde_json::from_str(&text)
            .map_err(|e| format!("{}: no report of this benchmark: {e}", file.display()))?;
        if report.format == FORMAT {
            Ok(report)
        } else {
            Err(format!("{}: format {} is not known", file.display(), report.format))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A cell with one quantity.
    pub(crate) fn cell(
        scenario: &str,
        threads: usize,
        connections: usize,
        quantity: &str,
        unit: &str,
        values: &[(&str, Vec<f64>)],
    ) -> Cell {
        let rows = values.iter().map(|(contender, values)| {
            let mut row = Row { contender: (*contender).to_owned(), ..Row::default() };
            values.iter().for_each(|value| row.push(quantity, unit, Some(*value)));
            row
        });
        Cell {
            scenario: scenario.to_owned(),
            title: "a test".to_owned(),
            threads: Some(threads),
            connections: Some(connections),
            drain: None,
            under_way: None,
            reads: None,
            compared: quantity.to_owned(),
            rows: rows.collect(),
            notes: Vec::new(),
        }
    }

    pub(crate) fn report(cells: Vec<Cell>) -> Report {
        Report {
            format: FORMAT,
            machine: Machine::here(),
            arguments: vec!["--quick".to_owned()],
            contenders: Vec::new(),
            cells,
            seconds: 1.5,
        }
    }

    fn row(apart: &[Option<f64>], cpu: &[f64]) -> Row {
        let mut row = Row::default();
        cpu.iter().for_each(|cpu| row.push("cpu", "ns", Some(*cpu)));
        apart.iter().for_each(|apart| row.push(APART, "ns", *apart));
        row
    }

    #[test]
    fn ratios_are_of_rounds_in_which_the_processors_were_as_far_apart() {
        let ours = row(&[Some(50.0), Some(500.0), Some(60.0), None], &[10.0; 4]);
        let other =
            row(&[Some(60.0), Some(50.0), Some(50.0), Some(50.0)], &[20.0, 99.0, 40.0, 99.0]);
        assert_eq!(other.ratio(&ours, "cpu").unwrap().median, 3.0);
        assert_eq!(ours.ratio(&other, "cpu").unwrap().median, 0.375);
        // Of the same rounds: the first one and the third.
        assert_eq!(other.difference(&ours, "cpu").unwrap().median, 20.0);
    }

    #[test]
    fn a_distance_counts_only_if_it_stayed_the_same() {
        let mut row = Row::default();
        let near = || Ok(Duration::from_nanos(50));
        row.note_distance(&near(), &Ok(Duration::from_nanos(60)));
        row.note_distance(&near(), &Ok(Duration::from_nanos(500)));
        row.note_distance(&near(), &Err(io::ErrorKind::Unsupported.into()));
        assert_eq!(row.values(APART), [Some(55.0), None, None]);
        assert_eq!(row.quantities[0].missing.as_deref(), Some("unsupported"));
    }

    #[test]
    fn ratios_of_too_few_comparable_rounds_are_named() {
        let near = [Some(50.0); 8];
        let base = row(&near, &[1.0; 8]);
        let moved = |far: usize| {
            let mut apart = near;
            apart[..far].fill(Some(500.0));
            row(&apart, &[1.0; 8])
        };
        let failed = Row { failure: Some("stalled".to_owned()), ..moved(8) };
        let counts = |rows: &[Row]| -> Vec<usize> {
            too_few(rows, "cpu").into_iter().map(|(_, comparable)| comparable).collect()
        };
        assert_eq!(counts(&[base.clone(), moved(2), moved(3), failed, moved(8)]), [5, 0]);
        // A round without a value is not comparable either.
        let mut missing = moved(2);
        missing.quantities[0].values[7] = None;
        assert_eq!(counts(&[base.clone(), missing]), [5]);
        assert!(counts(&[base, row(&[], &[1.0])]).is_empty());
        assert!(counts(&[]).is_empty());
    }

    #[test]
    fn only_turns_with_the_wanted_distance_are_kept() {
        let mut near = row(&[Some(50.0), Some(500.0), None], &[10.0, 20.0, 30.0]);
        near.push("syscalls", "", Some(2.0));
        let with = |row| Cell { rows: vec![row], ..Cell::default() };
        let mut report = report(vec![with(near), with(row(&[], &[10.0]))]);
        report.keep(|apart| apart < 150.0);
        assert_eq!(report.cells.len(), 1);
        let row = &report.cells[0].rows[0];
        assert_eq!(row.values("cpu"), [Some(10.0), None, None]);
        assert_eq!(row.values("syscalls"), [Some(2.0)]);
    }

    #[test]
    fn ratios_are_of_all_rounds_if_nobody_knows_where_the_processors_were() {
        for apart in [&[][..], &[None, None]] {
            let (ours, other) = (row(apart, &[10.0, 10.0]), row(apart, &[20.0, 40.0]));
            assert_eq!(other.ratio(&ours, "cpu").unwrap().median, 3.0);
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let mut written = report(vec![cell("S1", 2, 64, "cpu", "ns", &[("ours", vec![1.5])])]);
        written.cells[0].rows[0].push("cpu", "ns", None);
        written.cells[0].rows[0].push("cpu", "ns", Some(f64::NAN));
        let file = std::env::temp_dir().join(format!("report-{}.json", std::process::id()));
        written.write(&file).unwrap();
        let read = Report::read(&file).unwrap();
        assert_eq!(
            read.cell("S1", 2, 64).unwrap().row("ours").unwrap().values("cpu"),
            [Some(1.5), None, None]
        );
        assert_eq!(serde_json::to_value(&read).unwrap(), serde_json::to_value(&written).unwrap());

        std::fs::write(&file, "{}").unwrap();
        assert!(Report::read(&file).unwrap_err().contains("no report of this benchmark"));
        written.format = FORMAT + 1;
        written.write(&file).unwrap();
        assert!(Report::read(&file).unwrap_err().contains("is not known"));
        std::fs::remove_file(&file).unwrap();
        assert!(Report::read(&file).unwrap_err().contains("No such file"));
    }
}
