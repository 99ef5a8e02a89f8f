//! `cport probe` if Linux refuses what a port needs.

use crate::common::linux::cport_limited;
use crate::common::{Ended, cport, run};
use serde_json::Value;

fn objects(ended: &Ended) -> Vec<Value> {
    ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The rules of which something was not as expected.
fn different(objects: &[Value]) -> Vec<u64> {
    let different = objects.iter().filter(|object| object["as_expected"] == false);
    different.map(|object| object["rule"].as_u64().unwrap()).collect()
}

#[test]
fn without_descriptors_it_does_not_begin() {
    let ended = run(cport_limited(6, &["probe", "--json"]));
    ended.assert_refused("ulimit");
}

/// With a few more it starts, and reports which rules it could not confirm.
#[test]
fn what_could_not_be_tried_is_different() {
    let ended = run(cport_limited(11, &["probe", "--json"]));
    assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
    let different = different(&objects(&ended));
    // Ten descriptors at the same time.
    assert!(different.contains(&16), "{different:?}");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:#?}");
    assert!(ended.stderr.starts_with("cport: ") && ended.stderr.contains("16"), "{ended:#?}");
}

/// A kernel that does not report current conditions: data that was read is still reported.
#[cfg(target_arch = "x86_64")]
#[test]
fn a_rule_that_does_not_hold_is_found() {
    // Some events never come.
    let mut command = cport(&["probe", "--json", "--patience", "200ms"]);
    // The standard library also checks its three descriptors by `poll`, and continues after this
    // error.
    testkit::sandbox::refuse_to(&mut command, &[libc::SYS_poll], libc::EINVAL);
    let ended = run(command);
    assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
    let different = different(&objects(&ended));
    assert!(different.contains(&20), "{different:?}");
    // Rules that do not depend on `poll` hold.
    assert!(!different.contains(&14) && !different.contains(&7), "{different:?}");
    assert!(ended.stderr.contains("20"), "{ended:#?}");
}

/// A child whose system does not announce the fork: it posts to its parent's port.
#[test]
fn a_child_that_does_not_know_that_it_is_one_is_found() {
    let mut command = cport(&["probe", "--json"]);
    testkit::sandbox::refuse_to(&mut command, &[libc::SYS_madvise], libc::EINVAL);
    let ended = run(command);
    assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
    assert_eq!(different(&objects(&ended)), [32], "{ended:#?}");
    assert!(ended.stderr.contains("1 trial not as expected: 32;"), "{ended:#?}");
}

/// A process may be allowed no further one.
#[cfg(target_arch = "x86_64")]
#[test]
fn where_there_can_be_no_child_forks_are_not_as_expected() {
    let mut command = cport(&["probe", "--json"]);
    // Threads are made by another call.
    testkit::sandbox::refuse_to(&mut command, &[libc::SYS_clone], libc::EAGAIN);
    let ended = run(command);
    assert_eq!(ended.status.code(), Some(1), "{ended:#?}");
    let objects = objects(&ended);
    assert_eq!(different(&objects), [32], "{ended:#?}");
    let rule = objects.iter().find(|object| object["rule"] == 32).unwrap();
    let seen = rule["seen"].as_str().unwrap();
    assert!(seen.starts_with("an error: Resource temporarily unavailable"), "{seen}");
}

/// A missing feature is named, and only rules that depend on it are skipped.
#[test]
fn a_system_without_records_of_switches_says_so() {
    let mut command = cport(&["probe", "--json"]);
    testkit::sandbox::refuse_to(&mut command, &[libc::SYS_perf_event_open], libc::EACCES);
    let ended = run(command);
    assert_eq!(ended.status.code(), Some(0), "{ended:#?}");
    let objects = objects(&ended);
    let fact = objects.iter().find(|object| object["system"] == "switch records").unwrap();
    let value = fact["value"].as_str().unwrap();
    assert!(value.starts_with("not available: perf_event_open: Permission denied"), "{value}");
}
