//! `docs/STALLS.md` explains each line of a port's dump.

use std::fs;
use std::path::Path;

use completion_port::Port;

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/STALLS.md")).unwrap()
}

/// Returns the names before a colon, in order.
fn labels(dump: &str) -> Vec<&str> {
    dump.lines()
        .filter_map(|line| Some(line.trim_start().split_once(": ")?.0))
        .filter(|label| label.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect()
}

/// Checks that the page's first block beginning with `word` has the lines of a current dump, and
/// that each line is explained.
fn is_explained(dump: &str, word: &str) {
    let page = page();
    let begin = page.find(&format!("```text\n{word} {{\n")).unwrap() + "```text\n".len();
    let shown = &page[begin..begin + page[begin..].find("```").unwrap()];
    let labels_of_today = labels(dump);
    assert!(labels_of_today.len() > 10, "{dump}");
    assert_eq!(
        labels(shown),
        labels_of_today,
        "left: docs/STALLS.md; `cargo run --example stalled` prints what belongs there"
    );
    for label in labels_of_today {
        let explained = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .any(|line| line.contains(&format!("`{label}`")));
        assert!(explained, "docs/STALLS.md does not explain the line `{label}` of {word}");
    }
}

#[test]
fn each_line_of_a_dump_is_explained() {
    is_explained(&format!("{:#?}", Port::<()>::new().unwrap()), "Port");
}

#[test]
fn each_line_of_the_statistics_is_explained() {
    // `ready` and the other kinds of packets are explained in the row `packets`.
    is_explained(&format!("{:#?}", Port::<()>::new().unwrap().stats()), "Stats");
}
