//! The command as a user runs it, with rounds that are too short to be worth anything but a test.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::Value;

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cport-bench"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn directory(test: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&directory);
    directory
}

/// Two rounds of 50 ms in which the numbers of a situation are `arguments`. Only one run at a time:
/// in parallel with others, a contender may not answer anything in such a short time.
fn short_run(test: &str, arguments: &[&str]) -> (Value, Output) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = directory(test);
    let mut command = bench(&["--rounds", "2", "--seconds", "0.05", "--out"]);
    let output = command.arg(&directory).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let files: Vec<PathBuf> =
        fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    (serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap(), output)
}

fn quantity<'r>(row: &'r Value, name: &str) -> &'r Value {
    let all = row["quantities"].as_array().unwrap();
    all.iter().find(|quantity| quantity["name"] == name).unwrap_or_else(|| panic!("{name}: {row}"))
}

/// The contender has not failed, and each of these is measured in both rounds.
fn assert_has(row: &Value, names: &[&str]) {
    assert_eq!(row["failure"], Value::Null, "{row}");
    for name in names {
        let values = quantity(row, name)["values"].as_array().unwrap();
        assert_eq!(values.len(), 2, "{name}: {row}");
        assert!(values.iter().all(|value| value.as_f64().unwrap() > 0.0), "{name}: {row}");
    }
}

/// System calls, where they can be counted.
fn assert_calls_less_than(row: &Value, most: f64) {
    let calls = quantity(row, "syscalls");
    if calls["missing"].is_null() {
        let calls = calls["values"][0].as_f64().unwrap();
        assert!(calls > 0.0 && calls < most, "{row}");
    }
}

/// Contenders that run in their own scenarios unless requested: where threads block, and where
/// operations are compared.
const OF_THEIR_OWN: [&str; 9] = [
    "ours_by_tick",
    "ours_by_own_buffers",
    "ours_by_operations",
    "ours_by_packets",
    "ours_by_shared_accepts",
    "ours_by_placed_accepts",
    "ours_by_checked_accepts",
    "ours_in_c_by_operations",
    "ours_in_c_by_packets",
];

#[test]
fn every_contender_answers_in_a_run() {
    let (report, output) = short_run("every", &["--scenario", "S2", "--connections", "4"]);
    let cell = &report["cells"][0];
    let rows = cell["rows"].as_array().unwrap();
    let all = report["contenders"].as_array().unwrap().iter().map(|contender| &contender["name"]);
    let expected: Vec<_> =
        all.filter(|name| !OF_THEIR_OWN.iter().any(|own| **name == *own)).collect();
    let ran: Vec<_> = rows.iter().map(|row| &row["contender"]).collect();
    assert_eq!(ran, expected);
    assert!(rows.len() >= 9);
    assert_eq!(rows[0]["contender"], "ours");
    for row in rows {
        assert_has(row, &["cpu", "rate", "p50", "p99", "p99.9"]);
        assert_calls_less_than(row, 10.0);
        assert!(text(&output.stdout).contains(row["contender"].as_str().unwrap()));
    }
    for known in ["kernel", "rustc", "commit", "date"] {
        assert!(!report["machine"][known].as_str().unwrap().is_empty(), "{known}");
    }
}

/// The handlers differ: long, sleeping, contending for a lock, spinning.
#[test]
fn every_kind_of_handler_is_served() {
    let scenarios = ["--scenario", "s3,S4,s4b,S5,S9", "--threads", "2", "--connections", "8"];
    let against = ["--against", "mio,ours_by_tick"];
    let (report, _) = short_run("kinds", &[&scenarios[..], &against].concat());
    let cells = report["cells"].as_array().unwrap();
    let names: Vec<&str> = cells.iter().map(|cell| cell["scenario"].as_str().unwrap()).collect();
    assert_eq!(names, ["S3", "S4", "S4b", "S5", "S9"]);
    for row in cells.iter().flat_map(|cell| cell["rows"].as_array().unwrap()) {
        assert_eq!(row["failure"], Value::Null, "{row}");
    }
    // Half a microsecond would not be a handler of 20.
    let long = quantity(&cells[0]["rows"][0], "cpu")["values"][0].as_f64().unwrap();
    assert!(long > 10_000.0, "{long}");
    assert_eq!(cells[4]["compared"], "rate");
}

/// A sink has no latencies; a read fills the buffer, since the sockets are full.
#[test]
fn every_contender_is_a_sink_in_a_run() {
    let arguments = ["--scenario", "S16", "--connections", "4", "--threads", "2"];
    let (report, output) = short_run("sinks", &arguments);
    let cells = report["cells"].as_array().unwrap();
    let handlers = [0, 2, 5, 10, 20].map(|handler| ("one", handler));
    let expected = [&handlers[..], &[("all", 0), ("all", 5)]].concat();
    assert_eq!(cells.len(), expected.len());
    for (cell, (reads, handler)) in cells.iter().zip(expected) {
        assert_eq!(cell["compared"], "rate");
        assert_eq!(cell["drain"]["handler"], handler);
        assert_eq!(cell["drain"]["reads"], reads);
        for row in cell["rows"].as_array().unwrap() {
            assert_has(row, &["rate", "read", "cpu", "processors", "clients"]);
            let cpu = quantity(row, "cpu")["values"][0].as_f64().unwrap();
            assert!(cpu > f64::from(handler) * 500.0, "{row}");
            let read = quantity(row, "read")["values"][0].as_f64().unwrap();
            // Packets and bytes are not counted at quite the same moment.
            assert!((1000.0..=4300.0).contains(&read), "{row}");
            let names = row["quantities"].as_array().unwrap().iter().map(|it| &it["name"]);
            assert!(!names.clone().any(|name| name == "p50"), "{row}");
        }
    }
    let text = text(&output.stdout);
    assert!(text.contains("handlers of 5 us, one read for each packet; 4 connections"), "{text}");
}

/// The other build is the same one, so only the form of the result is certain.
#[test]
fn two_builds_take_turns_and_each_ratio_has_a_line() {
    let other = env!("CARGO_BIN_EXE_cport-bench");
    let sizes = ["--scenario", "S1,S13", "--threads", "2", "--connections", "4"];
    let arguments = ["--compare", other, "--against", "ours_by_packets"];
    let (report, output) = short_run("compare", &[&sizes[..], &arguments].concat());
    let cells = report["cells"].as_array().unwrap();
    let rows = |cell: &Value| -> Vec<String> {
        let rows = cell["rows"].as_array().unwrap().iter();
        rows.map(|row| row["contender"].as_str().unwrap().to_owned()).collect()
    };
    let both = |name: &str| vec![name.to_owned(), format!("{name}, the other build")];
    let expected = ["ours", "ours_by_packets", "ours", "ours_by_packets"].map(both);
    assert_eq!(cells.iter().map(rows).collect::<Vec<_>>(), expected);
    for row in cells.iter().flat_map(|cell| cell["rows"].as_array().unwrap()) {
        assert_has(row, &["cpu", "rate", "p99"]);
    }
    let text = text(&output.stdout);
    let (_, summary) = text.split_once("This build and the other one").unwrap();
    for line in ["S1  ours: echo", "S1  ours_by_packets: echo", "S13 ours_by_packets: echo"] {
        assert!(summary.contains(line), "{line}: {summary}");
    }
}

/// Each contender accepts by its own means; the rates are those of connections.
#[test]
fn every_contender_serves_short_connections_in_a_run() {
    let (report, output) = short_run("short", &["--scenario", "S10", "--threads", "2"]);
    let cell = &report["cells"][0];
    assert_eq!((&cell["connections"], &cell["compared"]), (&Value::from(32), &Value::from("cpu")));
    let rows = cell["rows"].as_array().unwrap();
    assert_eq!(rows.len(), report["contenders"].as_array().unwrap().len() - OF_THEIR_OWN.len());
    for row in rows {
        assert_has(row, &["cpu", "rate", "p50", "p99"]);
        assert_calls_less_than(row, 30.0);
    }
    let text = text(&output.stdout);
    assert!(text.contains("reset by the client; 32 clients, 2 threads"), "{text}");
    assert!(text.contains("connect(2) to close(2)"), "{text}");
}

/// Each contender has datagrams: one that had not would be named with its failure.
#[test]
fn every_contender_echoes_datagrams_in_a_run() {
    let arguments = ["--scenario", "S11", "--threads", "2", "--connections", "1,4"];
    let (report, output) = short_run("datagrams", &arguments);
    let cells = report["cells"].as_array().unwrap();
    let all = report["contenders"].as_array().unwrap().len() - OF_THEIR_OWN.len();
    let sizes: Vec<_> =
        cells.iter().map(|cell| (&cell["connections"], &cell["under_way"])).collect();
    let expected = [(1, 1), (1, 8), (4, 1)].map(|(c, u)| (Value::from(c), Value::from(u)));
    assert_eq!(sizes, expected.each_ref().map(|(c, u)| (c, u)));
    for cell in cells {
        let rows = cell["rows"].as_array().unwrap();
        assert_eq!(rows.len(), all);
        for row in rows {
            assert_has(row, &["cpu", "rate", "p50", "p99"]);
        }
    }
    let text = text(&output.stdout);
    assert!(text.contains("64 bytes; 8 under way on each of 1 socket, 2 threads"), "{text}");
}

#[test]
fn a_report_and_its_plot_are_made_anew_from_the_raw_values() {
    let arguments = ["--quick", "--against", "epoll_one_shot"];
    let (_, output) = short_run("anew", &arguments);
    let file = fs::read_dir(directory_of("anew")).unwrap().next().unwrap().unwrap().path();
    let plot = directory_of("anew").join("plot.svg");
    let again = bench(&["report"]).arg(&file).arg("--plot").arg(&plot).output().unwrap();
    assert!(again.status.success(), "{again:?}");
    let table = |output: &Output| {
        let text = text(&output.stdout).to_owned();
        text[text.find("S1:").unwrap()..].to_owned()
    };
    let without_path = |table: String| -> Vec<String> {
        let is_path = |line: &&str| line.starts_with("raw values") || line.starts_with("plot:");
        table.lines().filter(|line| !is_path(line)).map(str::to_owned).collect()
    };
    let lines = |output| {
        let mut lines = without_path(table(output));
        lines.retain(|line| !line.is_empty());
        lines
    };
    assert_eq!(lines(&again), lines(&output));
    // One situation is compared with its rivals, and with no floor.
    for output in [&again, &output] {
        let text = text(&output.stdout);
        assert!(text.contains("A first look: one situation (S1), 2 rounds."), "{text}");
        assert!(!text.contains("floor") && !text.contains("missed"), "{text}");
    }
    // Two rounds are too few for any ratio, however many of them are comparable.
    let (_, too_few) =
        text(&again.stdout).split_once("Ratios of too few comparable rounds").unwrap();
    assert!(too_few.contains("S1, ") && too_few.contains(": epoll_one_shot "), "{too_few}");
    let svg = fs::read_to_string(&plot).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains(">epoll, one-shot + MOD<"), "{svg}");
}

/// One thread does everything there, and the processors are as far apart as elsewhere.
#[test]
fn the_distance_is_noted_within_the_process_too() {
    let (report, output) = short_run("within", &["--scenario", "single"]);
    let cells = report["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 4);
    for row in cells.iter().flat_map(|cell| cell["rows"].as_array().unwrap()) {
        let apart = quantity(row, "apart");
        assert_eq!(apart["values"].as_array().unwrap().len(), 2, "{row}");
    }
    assert!(text(&output.stdout).contains("apart [ns]"));
}

fn directory_of(test: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(test)
}

#[test]
fn what_makes_no_sense_is_refused_in_one_line() {
    for (arguments, words) in [
        (&["--scenario", "S77"][..], "no scenario `S77`; there are S1, "),
        (&["--against", "nobody"], "no contender `nobody`; there are ours, "),
        (&["--scenario", "S1", "--connections", "99999"], "99999 connections: the limit is"),
        (&["report", "/no/such/file"], "/no/such/file: No such file"),
        (&["report", "/proc/self/cmdline"], "no report of this benchmark"),
        (&["--quick", "--out", "/proc/nothing"], "/proc/nothing: "),
        (&["--quick", "--compare", "/no/such/program"], "/no/such/program: No such file"),
        (&["--quick", "--compare", "/bin/true"], "/bin/true: no cport-bench"),
        (&["--scenario", "s6", "--compare", "/bin/true"], "s6 has no servers"),
        (&["--quick", "--plot", "/no/such/directory/plot.svg"], "/no/such/directory/plot.svg: "),
    ] {
        let output = bench(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
        let complaint = text(&output.stderr).trim_end();
        let lines: Vec<&str> =
            complaint.lines().filter(|line| !line.contains("debug build")).collect();
        assert_eq!(lines.len(), 1, "{arguments:?}: {complaint}");
        assert!(lines[0].starts_with("cport-bench: "), "{complaint}");
        assert!(lines[0].contains(words), "{arguments:?}: {complaint}");
    }
    for arguments in [
        &["--rounds", "0"][..],
        &["--threads", "two"],
        &["--seconds", "-1"],
        &["server", "--contender", "ours", "--threads", "2", "--turns", "5"],
        &["--rounds", "6", "--limit", "10"],
        &["--limit", "soon"],
        &["--nonsense"],
    ] {
        let output = bench(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
}

/// `cport bench` announces its name with a variable.
#[test]
fn usage_has_the_name_by_which_it_was_called() {
    for (arguments, usage) in [
        (&["--help"][..], "Usage: @ [OPTIONS]"),
        (&["report", "--help"], "Usage: @ report [OPTIONS] <FILE>"),
        (&["model", "--help"], "Usage: @ model [OPTIONS]"),
        (&["--nonsense"], "Usage: @ "),
        (&["report", "/no/such/file"], "@: /no/such/file: No such file"),
    ] {
        let said = |command: &mut Command| {
            let output = command.output().unwrap();
            format!("{}{}", text(&output.stdout), text(&output.stderr))
        };
        let alone = said(&mut bench(arguments));
        assert!(alone.contains(&usage.replace('@', "cport-bench")), "{alone}");
        let by_cport = said(bench(arguments).env("CPORT_BENCH_CALLED_BY_CPORT", "1"));
        assert!(by_cport.contains(&usage.replace('@', "cport bench")), "{by_cport}");
        assert!(!by_cport.contains("cport-bench"), "{by_cport}");
    }
}

#[test]
fn a_server_tells_its_address_answers_and_ends_with_its_input() {
    let mut server = bench(&["server", "--contender", "ours", "--threads", "2", "--count"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = server.stdin.take().unwrap();
    let mut output = BufReader::new(server.stdout.take().unwrap());
    let mut hear = || -> Value {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let address = hear()["address"].as_str().unwrap().to_owned();
    let mut client = TcpStream::connect(address).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut snapshot = || {
        input.write_all(b"snapshot\n").unwrap();
        hear()
    };
    let before = snapshot();
    let mut answer = [0; 64];
    for number in 0..100_u8 {
        client.write_all(&[number; 64].map(|byte| byte | 0x80)).unwrap();
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, [number | 0x80; 64]);
    }
    let after = snapshot();
    assert_eq!(after["added"], 1);
    let more = |name: &str| Some(after[name].as_u64()? - before[name].as_u64()?);
    assert!(more("processor_time").unwrap() > 100_000, "{after}");
    match more("system_calls") {
        // A receive and a send for each message at least.
        Some(calls) => assert!((200..2000).contains(&calls), "{calls}"),
        None => assert!(after["not_counted"].is_string(), "{after}"),
    }
    drop(input);
    assert!(server.wait().unwrap().success());
}

#[test]
fn reads_are_measured_alone_and_beside_an_echo() {
    let (report, output) = short_run("files", &["--scenario", "S14", "--file-size", "4"]);
    let cells = report["cells"].as_array().unwrap();
    for row in cells[0]["rows"].as_array().unwrap() {
        assert_has(row, &["cpu", "rate"]);
    }
    assert_eq!(cells[1]["reads"], "cached, while 64 connections echo elsewhere");
    for row in cells[1]["rows"].as_array().unwrap() {
        assert_has(row, &["cpu", "rate", "echo", "echo p99"]);
    }
    // Three speeds, each with one thread and with two.
    for (number, cell) in cells[2..8].iter().enumerate() {
        let rows = cell["rows"].as_array().unwrap();
        let names: Vec<&str> = rows.iter().map(|row| row["contender"].as_str().unwrap()).collect();
        let by_hand = "epoll_one_shot, its threads pread";
        let with_reads =
            ["ours, reads on the same port", "ours beside 32 threads that pread", by_hand];
        let unheld = if number < 4 { &[][..] } else { &["epoll_one_shot, as many as it can"] };
        assert_eq!(names, [&with_reads[..], &["ours, no reads"], unheld].concat());
        let alone = &rows[3];
        let echo = ["rate", "p50", "p99", "come p99", "processors"];
        for row in rows.iter().filter(|row| row["contender"] != "ours, no reads") {
            assert_has(row, &echo);
            assert_has(row, &["reads"]);
        }
        assert_has(alone, &echo);
        let reads = quantity(alone, "reads")["values"].as_array().unwrap();
        assert!(reads.iter().all(|reads| reads.as_f64() == Some(0.0)), "{alone}");
    }
    assert_eq!(cells[2]["reads"], "cached, 20000 in a second");
    assert_eq!([&cells[2]["threads"], &cells[3]["threads"]], [1, 2]);
    // The other ones need a disk.
    let left_out = text(&output.stdout).contains("left out: ");
    assert_eq!(cells.len(), if left_out { 9 } else { 12 });
}
