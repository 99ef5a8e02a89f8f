//! `cport bench`: which command it becomes, and that nothing is lost on the way.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::run;

/// A directory of its own for a test, with the command in it and nothing beside it.
fn installed(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{test}"));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    // By this name it is started, so that it looks for the benchmark here.
    fs::hard_link(env!("CARGO_BIN_EXE_cport"), directory.join("cport")).unwrap();
    directory
}

fn bench(installed: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(installed.join("cport"));
    // Not a source tree, nor is anything above it.
    command.arg("bench").args(arguments).current_dir("/").env_remove("CARGO");
    command
}

#[test]
fn the_benchmark_beside_the_command_gets_every_argument_and_its_exit_code_is_passed_on() {
    let directory = installed("beside");
    symlink("/bin/sh", directory.join("cport-bench")).unwrap();
    let arguments = ["-c", "printf '%s|' \"$0\" \"$@\"; exit 7", "--help", "--quick", "a b", "--"];
    let ended = run(bench(&directory, &arguments));
    assert_eq!(ended.status.code(), Some(7), "{ended:?}");
    assert_eq!(ended.stdout, "--help|--quick|a b|--|");
    assert_eq!(ended.stderr, "");
}

#[test]
fn in_a_source_tree_it_is_built_and_run() {
    let directory = installed("tree");
    let deep = directory.join("crates/bench/src");
    fs::create_dir_all(&deep).unwrap();
    for manifest in ["Cargo.toml", "crates/bench/Cargo.toml"] {
        fs::write(directory.join(manifest), "").unwrap();
    }
    for here in [&directory, &deep] {
        let mut command = bench(&directory, &["--quick", "--out", "here"]);
        command.current_dir(here).env("CARGO", "/bin/echo");
        let ended = run(command);
        assert!(ended.status.success(), "{ended:?}");
        let manifest = directory.join("Cargo.toml");
        assert_eq!(
            ended.stdout.trim_end(),
            format!(
                "run --release --package cport-bench --manifest-path {} -- --quick --out here",
                manifest.display()
            )
        );
    }
    let mut command = bench(&directory, &[]);
    command.current_dir(&directory).env("CARGO", "/no/such/cargo");
    run(command).assert_refused("cannot run /no/such/cargo: No such file or directory");
}

/// Neither in a source tree nor elsewhere.
#[test]
fn help_and_what_is_wrong_with_the_arguments_need_nothing_to_be_built() {
    let directory = installed("help");
    fs::create_dir_all(directory.join("crates/bench")).unwrap();
    for manifest in ["Cargo.toml", "crates/bench/Cargo.toml"] {
        fs::write(directory.join(manifest), "").unwrap();
    }
    for here in [&*directory, Path::new("/")] {
        let said = |arguments: &[&str]| {
            let mut command = bench(&directory, arguments);
            // It would say so.
            command.current_dir(here).env("CARGO", "/no/such/cargo");
            run(command)
        };
        for (arguments, words) in [
            (&["--help"][..], "Usage: cport bench [OPTIONS]"),
            (&["--help"], "--quick"),
            (&["--help"], "S16 "),
            (&["report", "--help"], "Usage: cport bench report [OPTIONS] <FILE>"),
            (&["help", "model"], "Usage: cport bench model [OPTIONS]"),
            (&["--version"], env!("CARGO_PKG_VERSION")),
        ] {
            let ended = said(arguments);
            assert!(ended.status.success(), "{ended:?}");
            assert!(ended.stdout.contains(words), "{words} in {ended:?}");
            assert!(!ended.stdout.contains("cport-bench"), "{ended:?}");
            assert_eq!(ended.stderr, "");
        }
        for (arguments, words) in [
            (&["--nonsense"][..], "unexpected argument '--nonsense'"),
            (&["--rounds", "0"], "a number from 1 to 100000 is wanted"),
            (&["report"], "Usage: cport bench report"),
        ] {
            let ended = said(arguments);
            assert_eq!(ended.status.code(), Some(2), "{ended:?}");
            assert!(ended.stderr.contains(words), "{words} in {ended:?}");
        }
    }
}

#[test]
fn without_either_it_says_how_to_get_the_benchmark() {
    let directory = installed("nowhere");
    run(bench(&directory, &["--quick"]))
        .assert_refused("`git clone https://github.com/completion-port/completion-port`, and in it `cargo run --release -- bench`");
}
