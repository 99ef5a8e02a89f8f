//! Every case left out under Wine has a program that demonstrates the cause with bare calls.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The files below a folder whose names end so.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, endings));
        } else if endings.iter().any(|ending| path.extension().is_some_and(|seen| seen == *ending))
        {
            found.push(path);
        }
    }
    found
}

/// The text in quotation marks after each occurrence of the word.
fn arguments<'a>(source: &'a str, word: &str) -> Vec<&'a str> {
    let behind = source.split(word).skip(1);
    behind.filter_map(|rest| rest.strip_prefix("(\"")?.split('"').next()).collect()
}

/// All of a comment in one line.
fn flat(source: &str) -> String {
    source.replace("\n * ", " ")
}

#[test]
fn what_is_left_out_under_wine_is_shown_by_a_bare_program() {
    let shown: String = files(&workspace().join(".ci/wine"), &["c"])
        .iter()
        .map(|path| flat(&fs::read_to_string(path).unwrap()))
        .collect();
    let mut looked_for = 0;
    let mut look = |path: &Path, text: &str| {
        looked_for += 1;
        assert!(shown.contains(&format!("\"{text}\"")), "{}: {text}", path.display());
    };
    for path in files(&workspace().join("crates"), &["rs", "c", "cpp", "h"]) {
        let source = fs::read_to_string(&path).unwrap();
        for word in ["not_on_wine", "NOT_ON_WINE", "UNLESS_WINE"] {
            arguments(&source, word).into_iter().for_each(|text| look(&path, text));
        }
    }
    let programs = workspace().join(".ci/wine/programs");
    for line in fs::read_to_string(&programs).unwrap().lines() {
        if let Some(cause) = line.split('|').nth(2).filter(|cause| cause.contains("Wine")) {
            look(&programs, cause);
        }
    }
    assert!(looked_for > 30, "the texts were not found: {looked_for}");
}

#[test]
fn arguments_are_found_on_one_line() {
    assert_eq!(arguments("A(\"one\");\nB(x); A(\"two\") A(y)", "A"), ["one", "two"]);
    assert_eq!(flat("/* \"one\n * text\" */"), "/* \"one text\" */");
}
