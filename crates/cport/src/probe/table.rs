//! The probe's tables, for people.

use super::Row;
use super::system::Fact;
use crate::terminal::{fitted, lines};

/// The maximum width of a table, and the default without a terminal.
const USUAL: usize = 120;
/// In narrower terminals, cells are on separate lines instead of in columns.
const LEAST: usize = 50;
const RULE: usize = 5;

/// The width of a table in a terminal with this many columns; `None` if it is too narrow.
fn table(columns: Option<usize>) -> Option<usize> {
    let columns = columns.unwrap_or(USUAL).min(USUAL);
    (columns >= LEAST).then_some(columns)
}

/// The width of each of three columns that share the room next to the rule's number.
fn column(table: usize) -> usize {
    (table - RULE - 1) / 3
}

/// Breaks a text into lines of at most `width` characters, between words if possible.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut all = Vec::new();
    for line in lines(text, width, width) {
        let letters: Vec<char> = line.chars().collect();
        all.extend(letters.chunks(width).map(String::from_iter));
    }
    all
}

/// Cells next to each other, each in its own column.
fn beside(cells: &[(&str, usize)]) -> String {
    let cells: Vec<_> =
        cells.iter().map(|(text, width)| (wrapped(text, width - 1), *width)).collect();
    let height = cells.iter().map(|(lines, _)| lines.len()).max().unwrap_or(0);
    let mut text = String::new();
    for number in 0..height {
        let mut line = String::new();
        for (lines, width) in &cells {
            let cell = lines.get(number).map_or("", String::as_str);
            line.push_str(&format!("{cell:<width$}"));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// The facts about the system, each on one or more lines.
pub(super) fn facts(facts: &[Fact], columns: Option<usize>) -> String {
    let Some(width) = table(columns) else {
        let fact = |fact: &Fact| fitted(&format!("{}: {}\n", fact.name, fact.value), columns);
        return facts.iter().map(fact).collect();
    };
    let name = facts.iter().map(|fact| fact.name.len() + 2).max().unwrap_or(0).min(width / 2);
    let row = |fact: &Fact| beside(&[(fact.name, name), (&fact.value, width - name)]);
    facts.iter().map(row).collect()
}

/// The names of the columns, if there are columns.
pub(super) fn head(columns: Option<usize>) -> String {
    let Some(each) = table(columns).map(column) else { return String::new() };
    beside(&[("rule", RULE), ("what is tried", each), ("expected", each), ("seen", each)])
}

/// A rule.
pub(super) fn row(row: &Row, columns: Option<usize>) -> String {
    let (what, expected) = (row.trial.what, row.expected());
    let rule = row.trial.rule.to_string();
    let seen = match row.is_as_expected() {
        Some(false) => format!("DIFFERENT: {}", row.seen()),
        Some(true) | None => row.seen(),
    };
    let Some(each) = table(columns).map(column) else {
        let text = format!("rule {rule}: {what}\n  expected: {expected}\n  seen: {seen}\n");
        return fitted(&text, columns);
    };
    beside(&[(&rule, RULE), (what, each), (expected, each), (&seen, each)])
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Outcome, Trial};
    use super::*;

    #[test]
    fn lines_are_no_longer_than_they_may_be() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensible", 8), ["incompre", "hensible"]);
        assert_eq!(wrapped("", 8), [""; 0]);
    }

    #[test]
    fn cells_stand_beside_each_other() {
        let table = beside(&[("a b", 3), ("long words here", 6)]);
        assert_eq!(table, "a  long\nb  words\n   here\n");
    }

    #[test]
    fn where_there_is_no_room_for_columns_there_are_lines() {
        static TRIAL: Trial =
            Trial { rule: 7, what: "a wait", expected: "in time", run: || Ok(String::new()) };
        let rule =
            Row { trial: &TRIAL, outcome: Outcome::Seen("too soon".into()), took: Duration::ZERO };
        for columns in [None, Some(LEAST), Some(300)] {
            let text = row(&rule, columns);
            assert!(text.starts_with("7    a wait  ") && text.contains("  in time  "), "{text}");
        }
        assert_eq!(
            row(&rule, Some(20)),
            "rule 7: a wait\n  expected: in time\n  seen: DIFFERENT:\n    too soon\n"
        );
        assert_eq!(head(Some(20)), "");
        let fact = Fact { name: "kernel", value: "6.18 or so, it says".into() };
        assert_eq!(facts(&[fact], Some(20)), "kernel: 6.18 or so,\n  it says\n");
    }
}
