//! The cases in `CASES.txt`, and the programs in this folder that show them.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A case, in one line, and the programs that show it: its own, or else those of its heading.
struct Row {
    text: String,
    programs: Vec<String>,
}

/// The programs in the parentheses at the end of a heading or an item.
fn programs(text: &str) -> Vec<String> {
    let Some((_, last)) = text.strip_suffix(')').and_then(|text| text.rsplit_once(" (")) else {
        return Vec::new();
    };
    last.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The items below the headings, which begin with `# `.
fn rows(page: &str) -> Vec<Row> {
    let (mut rows, mut of_heading) = (Vec::<Row>::new(), Vec::new());
    // Whether a line that is indented continues an item.
    let mut is_item = false;
    for line in page.lines() {
        if let Some(text) = line.strip_prefix("- ") {
            is_item = true;
            rows.push(Row { text: text.to_owned(), programs: of_heading.clone() });
        } else if line.starts_with("  ") && is_item {
            let text = &mut rows.last_mut().unwrap().text;
            text.push(' ');
            text.push_str(line.trim());
        } else {
            is_item = false;
            if line.starts_with("# ") {
                of_heading = programs(line);
            }
        }
    }
    for row in &mut rows {
        let own = programs(&row.text);
        if !own.is_empty() {
            row.programs = own;
        }
    }
    rows
}

fn page() -> String {
    fs::read_to_string(package().join("tests/CASES.txt")).unwrap()
}

/// SEMANTICS refers to the cases of these rules, each of which is several rules there.
#[test]
fn the_rules_that_are_split_up_have_cases() {
    let page = page();
    for rule in 41..=44 {
        let (item, heading) = (format!("- C {rule}: "), format!(" (C {rule}; "));
        let has_case = |line: &str| {
            line.starts_with(&item) || line.starts_with("# ") && line.contains(&heading)
        };
        assert!(page.lines().any(has_case), "C {rule} has no case");
    }
}

/// Programs about operations have these prefixes, and the rows must mention each of them.
const OF_OPERATIONS: [&str; 3] = ["overlapped_", "files", "transmit"];

#[test]
fn every_row_names_programs_that_exist_and_are_run() {
    let run = fs::read_to_string(package().join("tests/programs.rs")).unwrap();
    let rows = rows(&page());
    assert!(rows.len() > 100, "the rows were not found");
    for Row { text, programs } in rows {
        assert!(!programs.is_empty(), "no program shows: {text}");
        for file in programs {
            let is_rust = file.ends_with(".rs");
            let is_in = |folder: &str| package().join(folder).join(&file).exists();
            assert!(is_in("tests") || is_rust && is_in("src"), "there is no {file}: {text}");
            let is_run = is_rust || run.contains(&format!(": \"{file}\""));
            assert!(is_run, "programs.rs does not run {file}: {text}");
        }
    }
}

#[test]
fn every_program_of_operations_shows_a_row() {
    let rows = rows(&page());
    let named: BTreeSet<&str> =
        rows.iter().flat_map(|row| &row.programs).map(String::as_str).collect();
    let mut count = 0;
    for entry in fs::read_dir(package().join("tests")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_program = name.ends_with(".c") || name.ends_with(".cpp");
        if is_program && OF_OPERATIONS.iter().any(|start| name.starts_with(start)) {
            count += 1;
            assert!(named.contains(&*name), "no case of CASES.txt names {name}");
        }
    }
    assert!(count > 10, "the programs were not found: {count}");
}

#[test]
fn the_programs_of_a_row_are_its_own_or_those_of_its_heading() {
    let page = "Text (`x.c`).\n\n# `f` (C 2; `a.c`)\n\n- one (ours)\n- C 41: `b.c` of it,\n  and more \
                (seen; `c.c`,\n  `d.c`)\n\n# None\n\n- two\n";
    let rows = rows(page);
    let of = |at: usize| rows[at].programs.join(" ");
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[1].text, "C 41: `b.c` of it, and more (seen; `c.c`, `d.c`)");
    assert_eq!((of(0).as_str(), of(1).as_str(), of(2).as_str()), ("a.c", "c.c d.c", ""));
}
