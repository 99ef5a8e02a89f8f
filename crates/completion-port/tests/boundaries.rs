//! Who may import whom: the layers of ARCHITECTURE.md, checked in the sources.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::{Path, PathBuf};

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All sources below `folder` (or that one file), as path and text without comments.
fn sources(folder: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut waiting = vec![source().join(folder)];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            let text = fs::read_to_string(&path).unwrap();
            let code: Vec<_> =
                text.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
            let name = path.strip_prefix(source()).unwrap().display().to_string();
            found.push((name, code.join("\n")));
        }
    }
    assert!(!found.is_empty(), "{folder} has no sources");
    found
}

#[track_caller]
fn assert_absent(folder: &str, words: &[&str]) {
    for (name, code) in sources(folder) {
        for word in words {
            assert!(!code.contains(word), "{name} must not use `{word}`");
        }
    }
}

#[test]
fn state_knows_no_system_no_clock_and_no_unsafe() {
    let forbidden = ["crate::sys", "std::os", "libc", "Instant::now", "SystemTime", "unsafe"];
    assert_absent("state", &forbidden);
    assert_absent("state", &["crate::engine", "crate::port", "crate::packet"]);
}

#[test]
fn the_modules_of_a_slot_import_in_one_direction() {
    assert_absent("state/slot/report.rs", &["Word", "readiness::", "ownership::"]);
    assert_absent("state/slot/readiness.rs", &["ownership::"]);
}

#[test]
fn system_calls_are_made_below_sys_only() {
    for (name, code) in sources("") {
        let allowed = name.starts_with("sys/") || name == "timeout.rs";
        assert!(allowed || !code.contains("libc::"), "{name} must not use libc");
    }
}

#[test]
fn the_engine_knows_neither_keys_nor_messages() {
    assert_absent("engine", &["crate::port", "crate::packet", "crate::cells", "unsafe"]);
}

#[test]
fn a_back_end_imports_no_other_and_nothing_above_the_seam() {
    let above = ["crate::engine", "crate::port", "crate::packet", "crate::cells"];
    assert_absent("sys", &above);
    assert_absent("sys/linux", &["sys::sim"]);
    assert_absent("sys/sim", &["sys::linux"]);
}

#[test]
fn the_seam_names_no_system_and_the_engine_no_back_end() {
    for part in ["sys/backend.rs", "sys/host.rs", "sys/reactor.rs", "sys/thread.rs"] {
        assert_absent(part, &["libc", "std::os", "linux::", "sim::", "unsafe"]);
    }
    assert_absent("engine", &["sys::linux", "sys::sim", "std::os", "libc"]);
}

#[test]
fn the_target_system_is_named_in_one_place() {
    for (name, code) in sources("") {
        assert!(
            name == "sys/mod.rs" || !code.contains("target_os"),
            "{name} names a target system"
        );
    }
}

#[test]
fn the_public_words_import_only_downwards() {
    for word in ["error.rs", "interest.rs", "stats.rs", "timeout.rs"] {
        assert_absent(word, &["crate::engine", "crate::port", "crate::sys", "crate::state"]);
    }
}
