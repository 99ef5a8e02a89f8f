//! `cport demo`, run as a user runs it.

use crate::common::{cport, run};
use serde_json::Value;

fn scenario<'d>(document: &'d Value, name: &str) -> &'d Value {
    let all = document["scenarios"].as_array().unwrap();
    all.iter().find(|scenario| scenario["name"] == name).unwrap()
}

#[test]
fn json_is_one_document_that_says_that_every_check_passed() {
    let ended = run(cport(&["demo", "--json", "--quick"]));
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stderr, "");
    let document: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(document["passed"], true);
    assert_eq!(document["fault"], Value::Null);
    assert_eq!(document["scenarios"].as_array().unwrap().len(), 4);
    for scenario in document["scenarios"].as_array().unwrap() {
        assert_eq!(scenario["passed"], true, "{scenario}");
        let checks = scenario["checks"].as_array().unwrap();
        assert!(checks.len() >= 3 && checks.iter().all(|check| check["passed"] == true));
        let handled = scenario["packets_by_thread"].as_array().unwrap();
        assert_eq!(handled.len() as u64, scenario["threads"].as_u64().unwrap());
        let handled = handled.iter().map(|count| count.as_u64().unwrap()).sum::<u64>();
        assert_eq!(scenario["packets"]["total"], handled, "{scenario}");
        let peak = scenario["threads_at_work_peak"].as_u64().unwrap();
        assert!((1..=scenario["threads"].as_u64().unwrap()).contains(&peak), "{scenario}");
    }

    let poll = scenario(&document, "poll");
    assert_eq!(poll["connections"], 1);
    assert_eq!(poll["bytes"]["received"], 64 * 1024 * 1024 / 10);
    assert_eq!((&poll["packets"]["removed"], &poll["packets"]["ready"]), (&2.into(), &0.into()));
    assert!(poll["packets"]["notified"].as_u64().unwrap() > 2);

    let udp = scenario(&document, "udp");
    assert_eq!(udp["datagrams"], 1600);
    assert_eq!(udp["bytes"]["received"], 1600 * 512);
    assert_eq!(udp["bytes"]["sent"], udp["bytes"]["received"]);
    assert_eq!(udp["edges"], udp["packets"]["notified"]);
    assert_eq!((&udp["packets"]["removed"], &udp["packets"]["posted"]), (&1.into(), &1.into()));

    let threads = scenario(&document, "threads");
    assert_eq!((&threads["threads"], &threads["connections"]), (&16.into(), &100.into()));
    assert_eq!(threads["bytes"]["sent"], threads["bytes"]["received"]);
    assert_eq!(threads["packets"]["notified"], 0);
    assert_eq!(threads["packets"]["removed"], 101);
    assert_eq!(threads["packets"]["posted"], 16);

    let operations = scenario(&document, "operations");
    assert_eq!((&operations["connections"], &operations["timed_out"]), (&72.into(), &8.into()));
    assert_eq!(operations["bytes"]["sent"], operations["bytes"]["received"]);
    let packets = &operations["packets"];
    assert_eq!((&packets["ready"], &packets["removed"]), (&0.into(), &2.into()));
    assert!(operations["ticks"].as_u64().unwrap() > 0);
    // An accept for each connection and those that are cancelled, and a receive for each message at least.
    assert!(packets["completed"].as_u64().unwrap() >= 72 + 32 + 64 * 30);
}

#[test]
fn without_a_command_the_demo_runs_and_prints_plain_lines_to_a_pipe() {
    let ended = run(cport(&["--concurrency", "1", "--quick"]));
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stderr, "");
    assert!(!ended.stdout.contains(['\r', '\x1b']), "{}", ended.stdout);
    assert!(ended.stdout.contains("All checks passed"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("FAILED"), "{}", ended.stdout);
    let value = ended.stdout.lines().find(|line| line.contains("concurrency value")).unwrap();
    assert_eq!(value.split_whitespace().next_back(), Some("1"));
}

#[test]
fn help_and_version_tell_what_there_is() {
    let help = run(cport(&["--help"]));
    assert!(help.status.success());
    for word in ["demo", "echo", "--json", "Exit codes"] {
        assert!(help.stdout.contains(word), "{word}: {}", help.stdout);
    }
    // One for each scenario.
    let help = run(cport(&["demo", "--help"])).stdout.replace('\n', " ");
    for server in ["poll", "edge-triggered UDP", "multi-threaded", "by operations"] {
        assert!(help.contains(server), "{server}: {help}");
    }
    let version = run(cport(&["--version"]));
    assert_eq!(version.stdout.trim_end(), format!("cport {}", env!("CARGO_PKG_VERSION")));
}
