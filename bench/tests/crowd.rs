//! `cport-bench crowd` as a user runs it, too short to be worth anything but a test.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

use std::process::{Command, Stdio};

#[test]
fn a_crowd_is_measured() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cport-bench"));
    command.args(["crowd", "--most", "2000", "--rounds", "2"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    for size in ["1000", "2000"] {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(size));
        let values: Vec<_> = line.unwrap().split_whitespace().skip(1).take(4).collect();
        let is_time = |value: &&str| value.parse::<f64>().is_ok_and(|time| time > 0.0);
        assert!(values.len() == 4 && values.iter().all(is_time), "{text}");
    }
}
