//! The workflow calls each leg of `.ci/run` and `.ci/full`, and no other.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::Path;
use std::process::Command;

const SCRIPTS: [&str; 2] = [".ci/run", ".ci/full"];

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The names of a script's legs, in their order. Each run is prepared, asked or not.
fn legs(script: &str) -> Vec<String> {
    let script = fs::read_to_string(workspace().join(script)).unwrap();
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
    assert!(output.status.success(), "{line}");
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// The legs that the workflow names after `key`.
fn called(workflow: &str, key: &str) -> Vec<String> {
    let lines = workflow.lines().filter_map(|line| line.trim_start().strip_prefix(key));
    // A step may begin with the same word.
    let lines = lines.filter(|line| !line.starts_with("bash "));
    let mut called: Vec<_> = lines.flat_map(words).collect();
    called.sort();
    called
}

#[test]
fn the_workflow_calls_each_leg_once() {
    let workflow = fs::read_to_string(workspace().join(".github/workflows/ci.yml")).unwrap();
    for (script, key) in SCRIPTS.into_iter().zip(["- run: ", "- full: "]) {
        let mut legs = legs(script);
        assert!(legs.len() > 10, "the legs were not found: {legs:?}");
        legs.sort();
        assert_eq!(called(&workflow, key), legs, "left: ci.yml, right: {script}");
    }
    for call in ["bash .ci/run ${{ matrix.run }}", "bash .ci/full ${{ matrix.full }}"] {
        assert!(workflow.contains(call), "{call}");
    }
}

/// No leg of one script is one of the other: the page that lists them would be ambiguous.
#[test]
fn a_name_stands_for_one_leg() {
    let mut names: Vec<_> = SCRIPTS.into_iter().flat_map(legs).collect();
    names.sort();
    let before = names.len();
    names.dedup();
    assert_eq!(names.len(), before, "{names:?}");
}

#[test]
fn a_leg_that_does_not_exist_is_refused() {
    for script in SCRIPTS {
        let mut command = Command::new("bash");
        let output = command.args([script, "no such leg"]).current_dir(workspace()).output();
        let output = output.unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("there is no leg \"no such leg\""), "{said}");
    }
}
