//! What the shared library exports is what `exported_symbols.txt` lists, and what its header declares.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

mod toolchain;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use toolchain::{Profile, has, library_directory, package, succeed};

fn listed() -> BTreeSet<String> {
    let text = fs::read_to_string(package().join("tests/exported_symbols.txt")).unwrap();
    text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
}

/// The functions that the header declares and does not define: those whose declaration ends in `);`, without
/// what stands in comments.
fn declared() -> BTreeSet<String> {
    let text = fs::read_to_string(package().join("include/completion_port.h")).unwrap();
    let mut code = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once("/*") {
        code.push_str(before);
        rest = after.split_once("*/").unwrap().1;
    }
    code.push_str(rest);
    let code: Vec<_> = code.lines().filter(|line| !line.starts_with('#')).collect();
    let code = code.join(" ");
    let mut names = BTreeSet::new();
    for statement in code.split([';', '}']) {
        let statement = statement.trim();
        if statement.contains("inline")
            || statement.contains("typedef")
            || !statement.ends_with(')')
        {
            continue;
        }
        let Some((head, _)) = statement.split_once('(') else { continue };
        let name = head.trim_end().rsplit([' ', '*']).next().unwrap();
        if name.starts_with("cp_") {
            names.insert(name.to_owned());
        }
    }
    names
}

#[test]
fn the_shared_library_exports_what_is_listed() {
    if !has("nm") {
        return;
    }
    let listed = listed();
    for profile in [Profile::Debug, Profile::Release] {
        let library = library_directory(profile).join("libcompletion_port.so");
        let symbols = succeed(Command::new("nm").args(["-D", "--defined-only", "-P"]).arg(library));
        let exported: BTreeSet<String> =
            symbols.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
        let more: Vec<_> = exported.difference(&listed).collect();
        let fewer: Vec<_> = listed.difference(&exported).collect();
        let is_same = more.is_empty() && fewer.is_empty();
        assert!(is_same, "{profile:?}: not listed: {more:?}; not exported: {fewer:?}");
    }
}

#[test]
fn the_header_declares_what_is_listed() {
    assert_eq!(declared(), listed());
}
