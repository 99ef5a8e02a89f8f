//! `docs/SEMANTICS.md` and the claims in this folder agree.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// The rules of the sections that this library implements, by number. (Those from 41 to 44 are about
/// overlapped operations.)
const RULES: std::ops::RangeInclusive<u32> = 1..=45;
const LATER: std::ops::RangeInclusive<u32> = 41..=44;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The claims of this folder, as `module::claim`.
fn claims() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(root().join("tests/conformance")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "rs") {
            continue;
        }
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if module == "main" || module == "table" {
            continue;
        }
        let mut is_test = false;
        for line in fs::read_to_string(&path).unwrap().lines() {
            let line = line.trim();
            if line == "#[test]" {
                is_test = true;
            }
            let Some(rest) = line.strip_prefix("fn ") else { continue };
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            // A claim of `on_every_system!` takes the system, one of `detection` the rung, a plain
            // test nothing.
            let arguments = ["(system: &System)", "(rung: &Rung<'_>)"];
            let is_claim = arguments.iter().any(|arguments| rest.contains(arguments));
            // A macro's own tests have no name before it is used.
            if (is_claim && line.ends_with('{') || is_test) && !name.is_empty() {
                found.insert(format!("{module}::{name}"));
            }
            is_test = false;
        }
    }
    found
}

struct Row {
    rule: u32,
    claims: Vec<String>,
}

/// The rows of the table: number, ..., claims in back-quotes in the last column.
fn rows() -> Vec<Row> {
    let text = fs::read_to_string(root().join("docs/SEMANTICS.md")).unwrap();
    text.lines()
        .filter_map(|line| {
            let cells: Vec<_> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
            let rule = cells.first()?.parse().ok()?;
            let claims = cells.last()?.split('`').skip(1).step_by(2).map(str::to_owned).collect();
            Some(Row { rule, claims })
        })
        .collect()
}

#[test]
fn every_rule_has_a_row_with_a_claim() {
    let rows = rows();
    for rule in RULES.filter(|rule| !LATER.contains(rule)) {
        let claimed = rows.iter().any(|row| row.rule == rule && !row.claims.is_empty());
        assert!(claimed, "rule {rule} of docs/SEMANTICS.md names no test");
    }
}

#[test]
fn every_claim_that_the_table_names_exists() {
    let claims = claims();
    assert!(claims.len() > 40, "the claims were not found");
    for row in rows() {
        for claim in row.claims {
            assert!(claims.contains(&claim), "rule {}: there is no test `{claim}`", row.rule);
        }
    }
}

#[test]
fn every_claim_belongs_to_a_rule() {
    let named: BTreeSet<_> = rows().into_iter().flat_map(|row| row.claims).collect();
    for claim in claims() {
        assert!(named.contains(&claim), "`{claim}` stands in no row of docs/SEMANTICS.md");
    }
}
