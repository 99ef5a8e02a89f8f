//! `cport bench`: which command it becomes, and that nothing is lost on the way.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{program, run};

/// A separate directory for a test, with only the command in it.
fn installed(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("bench-{test}"));
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    // By this name it is started, so that it looks for the benchmark here.
    fs::hard_link(env!("CARGO_BIN_EXE_cport"), program(&directory, "cport")).unwrap();
    directory
}

fn bench(installed: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program(installed, "cport"));
    // Not inside a source tree.
    command.arg("bench").args(arguments).current_dir("/").env_remove("CARGO");
    command
}

/// The exit code of a benchmark that prints its arguments.
const TOLD: i32 = 7;

#[test]
#[ignore = "it is no test, but a benchmark that tells its arguments"]
fn tell() {
    for argument in env::args().skip_while(|argument| argument != "--") {
        println!("<{argument}>");
    }
    std::process::exit(TOLD);
}

#[test]
fn the_benchmark_beside_the_command_gets_every_argument_and_its_exit_code_is_passed_on() {
    let directory = installed("beside");
    // These tests are a program that every system can run.
    fs::hard_link(env::current_exe().unwrap(), program(&directory, "cport-bench")).unwrap();
    let own = ["bench::tell", "--exact", "--ignored", "--nocapture"];
    let passed = ["--", "--help", "--quick", "a b", "--", "\"", ""];
    let ended = run(bench(&directory, &[&own[..], &passed].concat()));
    assert_eq!(ended.status.code(), Some(TOLD), "{ended:?}");
    let told: Vec<_> = ended.stdout.lines().filter(|line| line.starts_with('<')).collect();
    assert_eq!(told, passed.map(|argument| format!("<{argument}>")), "{ended:?}");
    assert_eq!(ended.stderr, "");
}

/// The same with a source tree around it, and a folder deep in that.
fn installed_in_a_tree(test: &str) -> (PathBuf, PathBuf) {
    let directory = installed(test);
    let deep = directory.join("bench").join("src");
    fs::create_dir_all(&deep).unwrap();
    fs::write(directory.join("bench/Cargo.toml"), "[package]\nname = \"cport-bench\"\n").unwrap();
    (directory, deep)
}

/// Cargo is replaced by a Unix program that prints its arguments.
#[cfg(target_os = "linux")]
#[test]
fn in_a_source_tree_it_is_built_and_run() {
    let (directory, deep) = installed_in_a_tree("tree");
    // In a source tree the program next to the command is ignored: it may be out of date.
    fs::write(program(&directory, "cport-bench"), "no program").unwrap();
    // A nearer `bench` that belongs to another project is ignored.
    let other = directory.join("other");
    fs::create_dir_all(other.join("bench")).unwrap();
    fs::write(other.join("bench/Cargo.toml"), "[package]\nname = \"other\"\n").unwrap();
    for here in [&directory, &deep, &other] {
        let mut command = bench(&directory, &["--quick", "--out", "here"]);
        command.current_dir(here).env("CARGO", "/bin/echo");
        let ended = run(command);
        assert!(ended.status.success(), "{ended:?}");
        let manifest = directory.join("bench/Cargo.toml");
        assert_eq!(
            ended.stdout.trim_end(),
            format!("run --release --manifest-path {} -- --quick --out here", manifest.display())
        );
    }
}

#[test]
fn in_a_source_tree_without_cargo_it_says_so() {
    let (directory, deep) = installed_in_a_tree("cargo");
    for here in [&directory, &deep] {
        let mut command = bench(&directory, &[]);
        command.current_dir(here).env("CARGO", "/no/such/cargo");
        let ended = run(command);
        ended.assert_refused("cannot run /no/such/cargo: ");
        ended.assert_refused("it builds the benchmark, and comes with https://rustup.rs");
    }
}

/// Neither in a source tree nor elsewhere.
#[test]
fn help_and_what_is_wrong_with_the_arguments_need_nothing_to_be_built() {
    let (directory, _) = installed_in_a_tree("help");
    for here in [&*directory, Path::new("/")] {
        let said = |arguments: &[&str]| {
            let mut command = bench(&directory, arguments);
            // It would report this.
            command.current_dir(here).env("CARGO", "/no/such/cargo");
            run(command)
        };
        for (arguments, words) in [
            (&["--help"][..], "Usage: cport bench [OPTIONS]"),
            (&["--help"], "--quick"),
            (&["--help"], "S17 "),
            (&["--help"], "A run needs a source tree"),
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
            (&["--rounds", "0"], "expected a number from 1 to 100000"),
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
    run(bench(&directory, &["--quick"])).assert_refused(concat!(
        "`git clone ",
        env!("CARGO_PKG_REPOSITORY"),
        "`, and in it `cargo run --release -- bench`"
    ));
}
