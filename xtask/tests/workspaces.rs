//! Workspaces cannot inherit from each other, so this compares the settings of others with the main
//! one's.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

use std::fs;
use std::path::Path;

/// The sections of a manifest whose names begin so, with their settings and without comments.
fn sections(manifest: &str, prefix: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(manifest);
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut inside = false;
    let mut kept = Vec::new();
    for line in lines {
        if let Some(name) = line.strip_prefix('[') {
            inside = name.starts_with(prefix);
            kept.extend(inside.then(|| name.trim_start_matches(prefix).to_owned()));
        } else if inside {
            kept.push(line.to_owned());
        }
    }
    kept
}

#[test]
fn other_workspaces_have_the_lints_of_the_main_one() {
    let lints = sections("Cargo.toml", "workspace.lints");
    assert!(lints.len() > 20, "{lints:?}");
    for manifest in ["bench/Cargo.toml", "ecosystem/Cargo.toml"] {
        assert_eq!(sections(manifest, "lints"), lints, "{manifest}");
    }
}
