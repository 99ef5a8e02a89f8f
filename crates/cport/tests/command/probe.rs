//! `cport probe`, run as a user runs it.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::{Ended, cport, run};
use completion_port::{FileEngine, Port};
use serde_json::Value;

fn objects(ended: &Ended) -> Vec<Value> {
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The rules that differ between systems, by the lists at the end of SEMANTICS.md, with items such as `- **7**: `,
/// `- **12, 17**: ` or `- **68–74**: `.
fn differing() -> BTreeSet<u64> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../completion-port/docs/SEMANTICS.md");
    let page = std::fs::read_to_string(Path::new(page)).unwrap();
    let (_, lists) = page.split_once("\n## One-shot reactors\n").unwrap();
    let named =
        lists.lines().filter_map(|line| Some(line.strip_prefix("- **")?.split_once("**: ")?.0));
    let mut rules = BTreeSet::new();
    for part in named.flat_map(|numbers| numbers.split(", ")) {
        let (first, last) = part.split_once('–').unwrap_or((part, part));
        rules.extend(first.parse::<u64>().unwrap()..=last.parse().unwrap());
    }
    rules
}

/// Whether this file system has what the rule's trial needs.
fn is_tried(objects: &[Value], rule: u64) -> bool {
    let row = objects.iter().find(|object| object["rule"] == rule).unwrap();
    let is_lacking = row["seen"] == "not tried: this file system has no RWF_NOWAIT";
    if is_lacking {
        println!("SKIPPED the probe's trial of rule {rule}: {}", row["seen"]);
    }
    !is_lacking
}

#[test]
fn the_rules_that_depend_on_the_system_hold_on_this_one() {
    let ended = run(cport(&["probe", "--json"]));
    assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
    assert_eq!(ended.stderr, "");
    let objects = objects(&ended);
    let listed: BTreeSet<_> = objects.iter().filter_map(|object| object["rule"].as_u64()).collect();
    assert!(listed.len() > 10, "{listed:?}");
    assert!(listed.is_subset(&differing()), "{listed:?}");
    let mut not_tried = Vec::new();
    for rule in objects.iter().filter(|object| object["rule"].is_u64()) {
        if rule["as_expected"].is_null() {
            not_tried.push(rule["rule"].as_u64().unwrap());
            continue;
        }
        assert_eq!(rule["as_expected"], true, "{rule}");
        assert_eq!(rule["expected"], rule["seen"], "{rule}");
    }
    let all = not_tried.len();
    not_tried.retain(|rule| *rule != 69 || is_tried(&objects, 69));
    // That on forked children, where there are none.
    assert_eq!(not_tried, if cfg!(windows) { &[32][..] } else { &[] });
    let summary = &objects.last().unwrap()["summary"];
    assert_eq!((&summary["different"], &summary["not_tried"]), (&0.into(), &all.into()));
    assert_eq!(summary["as_expected"], listed.len() - all);
    let linux = ["io_uring", "switch records"];
    let names = ["kernel", "back end", "waits", "processors"].into_iter();
    for name in names.chain(linux.into_iter().filter(|_| cfg!(target_os = "linux"))) {
        let fact = objects.iter().find(|object| object["system"] == name);
        let value = fact.and_then(|fact| fact["value"].as_str()).unwrap_or_default();
        assert!(!value.is_empty() && !value.contains("unknown"), "{name}: {value}");
    }
    // The probe reports a ring if a port can have one.
    if cfg!(target_os = "linux") {
        let fact = objects.iter().find(|object| object["system"] == "io_uring").unwrap();
        let has_ring = Port::builder().file_engine(FileEngine::Ring).build::<(), ()>().is_ok();
        let says = fact["value"].as_str().unwrap();
        assert_eq!(says.starts_with("a port does operations on files by it"), has_ring, "{says}");
        assert!(!says.contains("not used"), "{says}");
    }
}

#[test]
fn a_pipe_gets_a_table_of_plain_lines() {
    let ended = run(cport(&["probe"]));
    assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
    assert!(ended.stdout.contains("expected") && ended.stdout.contains("seen"));
    assert!(!ended.stdout.contains("DIFFERENT"));
    for line in ended.stdout.lines() {
        assert!(line.chars().count() <= 120 && !line.contains('\x1b'), "{line}");
    }
}

/// Of the library that `CPORT_REFERENCE` names, or of the system, which may not have the call.
#[cfg(windows)]
#[test]
fn what_the_systems_own_call_does_is_shown_and_not_judged() {
    let objects = objects(&run(cport(&["probe", "--json"])));
    let shown: Vec<_> = objects.iter().filter(|object| object.get("reference").is_some()).collect();
    let rows: Vec<_> = shown.iter().filter_map(|row| row["reference"].as_u64()).collect();
    if rows.is_empty() && std::env::var_os("CPORT_REFERENCE").is_none() {
        assert_eq!(shown.len(), 1, "{shown:?}");
        assert!(shown[0]["seen"].as_str().unwrap().starts_with("not tried: ws2_32.dll has no "));
        return;
    }
    assert_eq!(rows[..11], [2, 9, 11, 13, 14, 15, 20, 24, 25, 26, 34]);
    assert_eq!(rows[11..], [10, 12, 14, 21, 25, 28, 30, 50]);
    let assumed = shown.iter().map(|row| row["assumed"].is_string());
    assert!(assumed.eq((0..rows.len()).map(|row| row >= 11)), "{shown:?}");
    for row in shown {
        let seen = row["seen"].as_str().unwrap();
        assert!(!seen.is_empty() && !seen.contains("an error") && row["as_expected"].is_null());
    }
    assert!(objects.last().unwrap()["summary"]["different"].is_u64());
}
