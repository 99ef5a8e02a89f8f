//! The workflow calls each leg of `.ci/run`, and no other.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::Command;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The names that `.ci/run` has legs for, in their order. Each run is prepared, asked or not.
fn legs() -> Vec<String> {
    let script = fs::read_to_string(workspace().join(".ci/run")).unwrap();
    let calls = script.lines().filter_map(|line| line.trim_start().strip_prefix("leg "));
    let names = calls.filter_map(|call| match call.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => call.split(' ').next(),
    });
    names.filter(|name| *name != "prepare").map(str::to_owned).collect()
}

/// The words of a line of the workflow as the shell sees them.
fn words(line: &str) -> Vec<String> {
    let output = Command::new("bash")
        .args(["-c", &format!("printf '%s\\n' {line}")])
        .output()
        .expect("bash, which the checks are written in");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn the_workflow_calls_each_leg_once() {
    let mut legs = legs();
    assert!(legs.len() > 10, "the legs were not found: {legs:?}");
    let workflow = fs::read_to_string(workspace().join(".github/workflows/ci.yml")).unwrap();
    assert!(workflow.contains("run: bash .ci/run ${{ matrix.legs }}"));
    let mut called: Vec<_> = workflow
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("- legs: "))
        .flat_map(words)
        .collect();
    legs.sort();
    called.sort();
    assert_eq!(called, legs, "left: .github/workflows/ci.yml, right: .ci/run");
}

#[test]
fn a_leg_that_does_not_exist_is_refused() {
    let mut command = Command::new("bash");
    let output =
        command.args([".ci/run", "no such leg"]).current_dir(workspace()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("there is no leg \"no such leg\""), "{said}");
}
