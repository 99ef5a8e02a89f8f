//! The code that a page shows.

use std::fs;

use crate::build::workspace;

/// The first block of Rust in a page of the workspace, or in the documentation at the top of a source, as it is
/// compiled.
///
/// # Panics
///
/// If there is no such page or block.
#[must_use]
pub fn first_program(page: &str) -> String {
    let text = fs::read_to_string(workspace().join(page)).expect("a page of the workspace");
    let lines = text.lines().filter_map(|line| {
        if !page.ends_with("rs") {
            return Some(line);
        }
        let line = line.strip_prefix("//!")?;
        Some(line.strip_prefix(' ').unwrap_or(line))
    });
    let mut program = lines
        .skip_while(|line| !matches!(*line, "```" | "```rust"))
        .skip(1)
        .take_while(|line| *line != "```")
        // What rustdoc hides is compiled all the same.
        .map(|line| line.strip_prefix("# ").unwrap_or(line))
        .collect::<Vec<_>>()
        .join("\n");
    assert!(program.contains("fn main()"), "{page} begins with no program");
    program.push('\n');
    program
}

/// The program with another end: it is called `shown`, and `main` is what follows.
///
/// # Panics
///
/// If it has none, or several.
#[must_use]
pub fn with_main(program: &str, main: &str) -> String {
    assert_eq!(program.matches("\nfn main()").count(), 1);
    let shown = program.replace("\nfn main()", "\n#[allow(dead_code)]\nfn shown()");
    format!("{shown}\n{main}")
}
