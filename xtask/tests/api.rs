//! The listing of the public interface is up to date, and a change of the interface is noticed.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::PathBuf;
use std::process::{Command, Output};
use std::{env, fs, process};

/// What `cargo xtask api` ends with where rustdoc writes no JSON that it can read.
const UNSUPPORTED: i32 = 2;

fn xtask(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask")).arg("api").args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn the_listing_is_the_public_interface() {
    let output = xtask(&["--check"]);
    if output.status.code() == Some(UNSUPPORTED) {
        print!("{}", said(&output));
        return;
    }
    assert!(output.status.success(), "{}", said(&output));
}

/// JSON of a format that is not known is not read as if it were.
#[test]
fn another_format_is_refused_by_name() {
    let json: PathBuf = env::temp_dir().join(format!("another-format-{}.json", process::id()));
    fs::write(&json, "{\"root\":0,\"format_version\":1}").unwrap();
    let output = xtask(&["--check", "--json", json.to_str().unwrap()]);
    fs::remove_file(&json).unwrap();
    assert_eq!(output.status.code(), Some(UNSUPPORTED));
    assert!(said(&output).starts_with("SKIPPED public interface: "), "{}", said(&output));
    assert!(said(&output).contains("format 1,"), "{}", said(&output));
}
