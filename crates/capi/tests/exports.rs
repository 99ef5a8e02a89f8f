//! The shared library exports what `exported_symbols.txt` lists, and its headers declare the same. The leg `C library` compares
//! the list with the installed library. `exported_symbols_windows.txt` lists the exports of the DLL, which the leg `wine` of
//! `.ci/full` compares.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

mod toolchain;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

use toolchain::{Profile, has, library_directory, package, succeed};

type Functions = BTreeMap<String, BTreeSet<String>>;

/// Which functions each header is to declare.
fn listed() -> Functions {
    listed_in("exported_symbols.txt")
}

fn listed_in(file: &str) -> Functions {
    let text = fs::read_to_string(package().join("tests").join(file)).unwrap();
    let mut headers = BTreeMap::new();
    // After the first line, which describes the file.
    for part in text.split("\n\n").skip(1) {
        let (header, names) = part.strip_prefix("# ").unwrap().split_once('\n').unwrap();
        headers.insert(header.to_owned(), names.lines().map(str::to_owned).collect());
    }
    headers
}

/// The functions that a header declares without defining them: declarations that end in `);`,
/// outside comments.
fn declared(header: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(package().join("include").join(header)).unwrap();
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
    let listed: BTreeSet<_> = listed().into_values().flatten().collect();
    let library = library_directory(Profile::Debug).join("libcompletion_port.so");
    let symbols = succeed(Command::new("nm").args(["-D", "--defined-only", "-P"]).arg(library));
    let exported: BTreeSet<String> =
        symbols.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect();
    let more: Vec<_> = exported.difference(&listed).collect();
    let fewer: Vec<_> = listed.difference(&exported).collect();
    let is_same = more.is_empty() && fewer.is_empty();
    assert!(is_same, "not listed: {more:?}; not exported: {fewer:?}");
}

#[test]
fn each_header_declares_what_is_listed() {
    let listed = listed();
    let headers = fs::read_dir(package().join("include")).unwrap();
    let headers: BTreeSet<_> =
        headers.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let of_windows = "completion_port_windows.h".to_owned();
    assert_eq!(headers, listed.keys().cloned().chain([of_windows]).collect());
    for (header, names) in listed {
        assert_eq!(declared(&header), names, "{header}");
    }
}

/// What the header of both systems declares for Windows, Linux has as well.
#[test]
fn the_headers_for_windows_declare_what_is_listed() {
    let (everywhere, windows) = (listed(), listed_in("exported_symbols_windows.txt"));
    let own = "completion_port_windows.h";
    assert_eq!(declared(own), windows[own]);
    let common = "completion_port.h";
    assert!(windows[common].is_subset(&everywhere[common]));
    let text = fs::read_to_string(package().join("include").join(common)).unwrap();
    let (for_both, _) = text.split_once("#ifndef CP_ON_WINDOWS\n").unwrap();
    for name in &everywhere[common] {
        let is_declared = for_both.contains(&format!("{name}("));
        assert_eq!(is_declared, windows[common].contains(name), "{name}");
    }
}
