//! The probe's tables, for people.

use rustix::termios::tcgetwinsize;

use super::system::Fact;
use super::{How, Row};

/// How wide a table is where there is no terminal, and at most.
const USUAL: usize = 120;
/// The least that is tried to be filled.
const LEAST: usize = 50;
const RULE: usize = 5;

fn width() -> usize {
    let columns = tcgetwinsize(std::io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { USUAL } else { columns.clamp(LEAST, USUAL) }
}

/// The widths of three columns that share what is left beside the rule's number.
fn columns() -> [usize; 3] {
    let each = (width() - RULE - 1) / 3;
    [each, each, each]
}

/// Breaks a text into lines of at most `width` characters, between words where that is possible.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let mut letters: Vec<char> = word.chars().collect();
        loop {
            let line = lines.last_mut().expect("there is always one");
            let used = line.chars().count();
            let room = width.saturating_sub(if used == 0 { 0 } else { used + 1 });
            if letters.len() <= room {
                if used > 0 {
                    line.push(' ');
                }
                line.extend(letters);
                break;
            }
            if used > 0 {
                lines.push(String::new());
                continue;
            }
            line.extend(letters.drain(..room.max(1)));
            lines.push(String::new());
        }
    }
    lines
}

/// Cells beside each other, each in a column of its own.
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

/// What the system offers, a line or more for each thing.
pub(super) fn facts(facts: &[Fact]) -> String {
    let name = facts.iter().map(|fact| fact.name.len() + 2).max().unwrap_or(0).min(width() / 2);
    let row = |fact: &Fact| beside(&[(fact.name, name), (&fact.value, width() - name)]);
    facts.iter().map(row).collect()
}

/// The names of the columns.
pub(super) fn head() -> String {
    let [what, expected, seen] = columns();
    beside(&[("rule", RULE), ("what is tried", what), ("expected", expected), ("seen", seen)])
}

/// A rule.
pub(super) fn row(row: &Row) -> String {
    let [what, expected, seen] = columns();
    let rule = row.trial.rule.to_string();
    let (wanted, was) = match (&row.trial.how, &row.seen) {
        (How::Untried(why), _) => ("", format!("not tried: {why}")),
        (How::Tried(wanted, _), Some(was)) if was == wanted => (*wanted, was.clone()),
        (How::Tried(wanted, _), Some(was)) => (*wanted, format!("DIFFERENT: {was}")),
        (How::Tried(wanted, _), None) => (*wanted, String::new()),
    };
    beside(&[(&rule, RULE), (row.trial.what, what), (wanted, expected), (&was, seen)])
}

#[cfg(test)]
mod tests {
    use super::{beside, wrapped};

    #[test]
    fn lines_are_no_longer_than_they_may_be() {
        assert_eq!(wrapped("one two three", 8), ["one two", "three"]);
        assert_eq!(wrapped("incomprehensible", 8), ["incompre", "hensible"]);
        assert_eq!(wrapped("", 8), [""]);
    }

    #[test]
    fn cells_stand_beside_each_other() {
        let table = beside(&[("a b", 3), ("long words here", 6)]);
        assert_eq!(table, "a  long\nb  words\n   here\n");
    }
}
