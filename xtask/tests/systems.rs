//! Checks the workflow for the systems on which `.ci/run` does not run, without running it.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use yaml_rust2::{Yaml, YamlLoader};

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn workflow() -> Yaml {
    let text = fs::read_to_string(workspace().join(".github/workflows/systems.yml")).unwrap();
    let mut documents = YamlLoader::load_from_str(&text).unwrap();
    assert_eq!(documents.len(), 1);
    documents.remove(0)
}

fn jobs(workflow: &Yaml) -> Vec<(&str, &Yaml)> {
    let jobs = workflow["jobs"].as_hash().expect("jobs");
    jobs.iter().map(|(name, job)| (name.as_str().unwrap(), job)).collect()
}

fn steps(job: &Yaml) -> &[Yaml] {
    job["steps"].as_vec().expect("steps")
}

/// The machines of a job, each of those that its matrix names.
fn machines(job: &Yaml) -> Vec<&str> {
    let machine = job["runs-on"].as_str().expect("a machine");
    match machine.strip_prefix("${{ matrix.").and_then(|rest| rest.strip_suffix(" }}")) {
        None => vec![machine],
        Some(name) => {
            let values = job["strategy"]["matrix"][name].as_vec().expect("values");
            values.iter().map(|value| value.as_str().unwrap()).collect()
        }
    }
}

/// The lines of a job that call cargo, of its steps and in a virtual machine that a step starts.
fn cargo_lines(job: &Yaml) -> Vec<&str> {
    let scripts = steps(job).iter().flat_map(|step| [&step["run"], &step["with"]["run"]]);
    let lines = scripts.filter_map(Yaml::as_str).flat_map(str::lines).map(str::trim);
    lines.filter(|line| line.starts_with("cargo ")).collect()
}

/// What a package has: its targets by kind, and its features.
struct Package {
    targets: BTreeSet<(String, String)>,
    features: BTreeSet<String>,
}

type Packages = BTreeMap<String, Package>;

/// The packages of each workspace, by the path of its manifest.
fn workspaces() -> BTreeMap<&'static str, Packages> {
    [MAIN, "bench/Cargo.toml"].map(|manifest| (manifest, packages(manifest))).into()
}

const MAIN: &str = "Cargo.toml";

fn packages(manifest: &str) -> Packages {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--locked", "--no-deps", "--format-version", "1"])
        .args(["--manifest-path", manifest])
        .current_dir(workspace())
        .output()
        .unwrap();
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let package = |package: &Value| {
        let targets = package["targets"].as_array().unwrap().iter().flat_map(|target| {
            let kinds = target["kind"].as_array().unwrap().iter();
            kinds.map(|kind| (text(kind), text(&target["name"])))
        });
        let features = package["features"].as_object().unwrap().keys().cloned();
        (
            text(&package["name"]),
            Package { targets: targets.collect(), features: features.collect() },
        )
    };
    metadata["packages"].as_array().unwrap().iter().map(package).collect()
}

/// Checks that everything a call of cargo names exists.
fn assert_names_what_exists(line: &str, workspaces: &BTreeMap<&str, Packages>) {
    // The rest is for the program that cargo starts.
    let call = line.split(" -- ").next().unwrap();
    let words: Vec<_> = call.split_whitespace().collect();
    assert!(["clippy", "test", "run", "build"].contains(&words[1]), "{line}");
    let named = |option: &str| -> Vec<&str> {
        let pairs = words.windows(2).filter(|pair| pair[0] == option);
        pairs.flat_map(|pair| pair[1].split(',')).collect()
    };
    let manifest = named("--manifest-path").first().map_or(MAIN, |path| path);
    let packages = workspaces.get(manifest).unwrap_or_else(|| panic!("no {manifest}: {line}"));
    let mut chosen: Vec<_> = named("--package")
        .into_iter()
        .map(|name| packages.get(name).unwrap_or_else(|| panic!("no package {name}: {line}")))
        .collect();
    // A workspace with a single package leaves no choice.
    if chosen.is_empty() && packages.len() == 1 {
        chosen.extend(packages.values());
    }
    assert!(!chosen.is_empty(), "no package is named: {line}");
    for kind in ["test", "example", "bin"] {
        for name in named(&format!("--{kind}")) {
            let target = (kind.to_owned(), name.to_owned());
            let is_there = chosen.iter().any(|package| package.targets.contains(&target));
            assert!(is_there, "no {kind} {name}: {line}");
        }
    }
    for feature in named("--features") {
        let is_there = chosen.iter().any(|package| package.features.contains(feature));
        assert!(is_there, "no feature {feature}: {line}");
    }
}

#[test]
fn every_job_calls_cargo_with_what_exists() {
    let (workflow, workspaces) = (workflow(), workspaces());
    for (name, job) in jobs(&workflow) {
        let lines = cargo_lines(job);
        assert!(lines.iter().any(|line| line.starts_with("cargo test")), "{name} tests nothing");
        lines.into_iter().for_each(|line| assert_names_what_exists(line, &workspaces));
    }
}

#[test]
fn what_does_not_exist_is_found() {
    let workspaces = workspaces();
    for line in [
        "cargo test --locked",
        "cargo test --package no-such-package",
        "cargo run --package cport-bench",
        "cargo run --manifest-path no/such/Cargo.toml",
        "cargo run --manifest-path bench/Cargo.toml --bin no-such-bin",
        "cargo test --package cport --test no_such_test",
        "cargo run --package completion-port --example no_such_example",
        "cargo test --package completion-port --features sim,no-such-feature",
    ] {
        let looked = std::panic::catch_unwind(|| assert_names_what_exists(line, &workspaces));
        assert!(looked.is_err(), "{line}");
    }
    for line in [
        "cargo run --package cport --bin cport -- --package x",
        "cargo run --manifest-path bench/Cargo.toml --bin cport-bench",
    ] {
        assert_names_what_exists(line, &workspaces);
    }
}

#[test]
fn the_systems_are_those_that_are_promised() {
    let workflow = workflow();
    let mut found = BTreeSet::new();
    for (name, job) in jobs(&workflow) {
        let is_in_freebsd = steps(job).iter().any(|step| {
            step["uses"].as_str().is_some_and(|action| action.starts_with("vmactions/freebsd-vm@"))
        });
        for machine in machines(job) {
            let system = match machine.split_once('-') {
                Some(("windows", "2022" | "2025")) => machine,
                Some(("macos", _)) => "macos",
                Some(("ubuntu", _)) if is_in_freebsd => "freebsd",
                _ => panic!("{name} is for {machine}"),
            };
            found.insert(system);
        }
    }
    assert_eq!(found, BTreeSet::from(["freebsd", "macos", "windows-2022", "windows-2025"]));
}

/// The examples that end by themselves, of the library.
fn ending_examples() -> BTreeSet<String> {
    let folder = workspace().join("crates/completion-port/examples");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let sources = files.filter(|path| path.extension().is_some_and(|ending| ending == "rs"));
    let ending = sources.filter(|path| !fs::read_to_string(path).unwrap().contains("asked_to_end"));
    ending.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

#[test]
fn the_examples_that_end_are_run() {
    let workflow = workflow();
    let hosted = jobs(&workflow).into_iter().find(|(name, _)| *name == "hosted").unwrap().1;
    let run = cargo_lines(hosted).into_iter().filter(|line| line.starts_with("cargo run"));
    let named =
        run.filter_map(|line| line.split_once("--example ").map(|(_, name)| name.to_owned()));
    assert_eq!(named.collect::<BTreeSet<_>>(), ending_examples());
}

/// `cargo test` runs the examples that the manifest lists.
#[test]
fn the_examples_that_end_are_tests() {
    let manifest = workspace().join("crates/completion-port/Cargo.toml");
    let manifest = fs::read_to_string(manifest).unwrap();
    let listed = manifest.split("[[example]]").skip(1).map(|entry| {
        assert!(entry.contains("\ntest = true\nharness = false\n"), "{entry}");
        entry.split('"').nth(1).unwrap().to_owned()
    });
    assert_eq!(listed.collect::<BTreeSet<_>>(), ending_examples());
}

/// The reactor over polls is the default. The one over notifications is tested, too.
#[test]
fn both_ways_of_windows_are_tested() {
    let workflow = workflow();
    let hosted = jobs(&workflow).into_iter().find(|(name, _)| *name == "hosted").unwrap().1;
    let notified = |step: &&Yaml| step["env"]["TEST_NOTIFICATIONS"].as_i64() == Some(1);
    let tests = |step: &Yaml| {
        step["run"]
            .as_str()
            .is_some_and(|run| run.contains("cargo test --locked --package completion-port"))
    };
    assert!(steps(hosted).iter().filter(notified).any(tests), "TEST_NOTIFICATIONS");
    let tested =
        fs::read_to_string(workspace().join("crates/testkit/src/native/windows.rs")).unwrap();
    assert!(tested.contains("\"TEST_NOTIFICATIONS\""), "the test kit knows no TEST_NOTIFICATIONS");
}

/// Once the workflow has run, the sentence is false, and this test is removed with it.
#[test]
fn the_page_says_that_it_has_not_run() {
    let page = workspace().join("crates/completion-port/docs/PLATFORM.md");
    let page = fs::read_to_string(page).unwrap().replace('\n', " ");
    assert!(page.contains("`systems.yml`") && page.contains("**it has not run yet**"));
}
