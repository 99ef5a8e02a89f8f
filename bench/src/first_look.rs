//! What can be said after `bench --quick`, which measures one situation.

use std::fmt::Write as _;

use crate::report::{Cell, Report, Row};
use crate::table::{advantage, is_rate};

/// Which rivals the port is ahead of, which are ahead of it, and of which nothing is shown.
pub(crate) fn summary(report: &Report) -> String {
    report.cells.iter().map(of_cell).collect()
}

fn of_cell(cell: &Cell) -> String {
    let Some((base, others)) = cell.rows.split_first() else { return String::new() };
    let (mut ahead, mut behind, mut open, mut unknown) = (vec![], vec![], vec![], vec![]);
    for row in others {
        let name = &row.contender;
        let ratio = advantage(cell, base, row, is_rate(cell));
        match ratio.and_then(|ratio| Some((ratio.median, ratio.interval?))) {
            Some((median, (low, _))) if low > 1.0 => ahead.push(format!("{name} {median:.2}")),
            Some((median, (_, high))) if high < 1.0 => behind.push(format!("{name} {median:.2}")),
            Some((median, _)) => open.push(format!("{name} {median:.2}")),
            None => unknown.push(match ratio {
                Some(ratio) => format!("{name} {:.2}?", ratio.median),
                None => name.clone(),
            }),
        }
    }
    let rounds = cell.rows.iter().map(|row: &Row| row.values(&cell.compared).len()).max();
    let mut text = format!(
        "\nA first look: one situation ({}), {} rounds. What it shows of `{}`, with 95 %:\n",
        cell.scenario,
        rounds.unwrap_or(0),
        cell.compared,
    );
    for (what, names) in [
        ("the port is ahead of", ahead),
        ("the port is behind", behind),
        ("too close to tell", open),
        ("too few comparable rounds to tell", unknown),
    ] {
        if !names.is_empty() {
            let _: std::fmt::Result = writeln!(text, "  {what}: {}", names.join(", "));
        }
    }
    text + "  Other situations come out otherwise: `cport bench` measures them, in about half an hour.\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{cell, report};
    use crate::scenario::CPU;

    #[test]
    fn what_one_situation_shows_is_said_of_each_rival() {
        let noisy = vec![900.0, 1100.0, 900.0, 1100.0, 900.0, 1100.0];
        let values = [
            ("ours", vec![1000.0; 6]),
            ("polling", vec![1200.0; 6]),
            ("uring", vec![950.0; 6]),
            ("mio", noisy),
            ("tokio", vec![1100.0; 2]),
            ("failed", Vec::new()),
        ];
        let text = summary(&report(vec![cell("S1", 2, 64, CPU, "ns", &values)]));
        for line in [
            "A first look: one situation (S1), 6 rounds.",
            "  the port is ahead of: polling 1.20\n",
            "  the port is behind: uring 0.95\n",
            "  too close to tell: mio 1.00\n",
            "  too few comparable rounds to tell: tokio 1.10?, failed\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        assert!(!text.contains("floor") && !text.contains("missed"), "{text}");
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        assert_eq!(summary(&report(Vec::new())), "");
    }
}
