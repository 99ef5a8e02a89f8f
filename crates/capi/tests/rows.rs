//! The rows of `docs/SEMANTICS.md` for the C library, and the programs beside this file that show them.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Each row of the C library: its line, and the files in its last column.
fn rows(paper: &str) -> Vec<(&str, Vec<&str>)> {
    let rows = paper.lines().filter(|line| line.starts_with("| C ")).map(|line| {
        let last = line.rsplit('|').nth(1).unwrap_or_default();
        (line, last.split('`').skip(1).step_by(2).collect())
    });
    rows.collect()
}

fn paper() -> String {
    fs::read_to_string(package().join("../completion-port/docs/SEMANTICS.md")).unwrap()
}

/// Programs about operations begin so, and each shows something that the rows are to say.
const OF_OPERATIONS: [&str; 3] = ["overlapped_", "files", "transmit"];

#[test]
fn every_row_names_programs_that_exist_and_are_run() {
    let (paper, run) = (paper(), fs::read_to_string(package().join("tests/programs.rs")).unwrap());
    let rows = rows(&paper);
    assert!(rows.len() > 100, "the rows were not found");
    for (row, files) in rows {
        assert!(!files.is_empty(), "no program shows: {row}");
        for file in files {
            let is_unit_test = file.ends_with(".rs");
            let folder = package().join(if is_unit_test { "src" } else { "tests" });
            assert!(folder.join(file).exists(), "there is no {file}: {row}");
            let is_run = is_unit_test || run.contains(&format!(": \"{file}\""));
            assert!(is_run, "programs.rs does not run {file}: {row}");
        }
    }
}

#[test]
fn every_program_of_operations_shows_a_row() {
    let paper = paper();
    let named: BTreeSet<&str> = rows(&paper).into_iter().flat_map(|(_, files)| files).collect();
    let mut count = 0;
    for entry in fs::read_dir(package().join("tests")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_program = name.ends_with(".c") || name.ends_with(".cpp");
        if is_program && OF_OPERATIONS.iter().any(|start| name.starts_with(start)) {
            count += 1;
            assert!(named.contains(&*name), "{name} stands in no row of docs/SEMANTICS.md");
        }
    }
    assert!(count > 10, "the programs were not found: {count}");
}

#[test]
fn the_files_of_a_row_are_those_of_its_last_column() {
    let paper = "| rule 7 | `a.c` |\n| C 41 | `b.c` of it | `c.c`, `d.c` |\n| C 42 | x | y |\n";
    let rows = rows(paper);
    assert_eq!(rows[0].1, ["c.c", "d.c"]);
    assert_eq!((rows.len(), rows[1].1.len()), (2, 0));
}
