//! The scenarios of runtimes as a user runs them, too short to be worth anything but a test. All but
//! the runtime that needs a build of its own take part.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::slice;
use std::sync::{Mutex, PoisonError};

use serde_json::Value;

/// Distances that differ by less than this are surely the same to the benchmark, which allows twice as
/// much.
const SAME: f64 = 1.5;

const ALL: &str = "tokio,tokio_more_workers,tokio_spawn_blocking,smol";

fn folder(test: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("runtimes").join(test)
}

/// Runs the command alone, and returns its cells and what it has printed.
fn run(test: &str, arguments: &[&str]) -> (Vec<Value>, String) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = folder(test);
    let _ = fs::remove_dir_all(&folder);
    let mut command = Command::new(env!("CARGO_BIN_EXE_cport-bench"));
    command.args(arguments).arg("--out").arg(&folder).stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let file = fs::read_dir(&folder).unwrap().next().unwrap().unwrap().path();
    let report: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    (report["cells"].as_array().unwrap().clone(), String::from_utf8(output.stdout).unwrap())
}

fn rows(cell: &Value) -> Vec<&str> {
    cell["rows"].as_array().unwrap().iter().map(|row| row["contender"].as_str().unwrap()).collect()
}

/// No row has failed, and each of these quantities has a positive value in every round.
fn assert_has(cell: &Value, names: &[&str], rounds: usize) {
    for row in cell["rows"].as_array().unwrap() {
        assert_eq!(row["failure"], Value::Null, "{row}");
        let quantities = row["quantities"].as_array().unwrap();
        for name in names {
            let quantity = quantities.iter().find(|quantity| quantity["name"] == *name);
            let values = quantity.unwrap_or_else(|| panic!("{name}: {row}"))["values"].as_array();
            let values = values.unwrap();
            assert_eq!(values.len(), rounds, "{name}: {row}");
            assert!(values.iter().all(|value| value.as_f64().unwrap() > 0.0), "{name}: {row}");
        }
    }
}

/// The text has this ratio of two rows. A ratio needs a round in which the processors were as far
/// apart for the one row as for the other. On a machine that moves them a short run may have none.
fn assert_ratio(cells: &[Value], text: &str, ratio: &str) {
    let rows = cells.iter().flat_map(|cell| cell["rows"].as_array().unwrap());
    let quantities = rows.flat_map(|row| row["quantities"].as_array().unwrap());
    let apart = quantities.filter(|quantity| quantity["name"] == "apart");
    let apart: Vec<Option<f64>> = apart
        .flat_map(|quantity| quantity["values"].as_array().unwrap().iter().map(Value::as_f64))
        .collect();
    let known = || apart.iter().flatten().copied();
    let have_stayed = apart.iter().all(Option::is_some)
        && known().fold(0.0, f64::max) < SAME * known().fold(f64::INFINITY, f64::min);
    let are_unknown = apart.iter().all(Option::is_none);
    assert!(text.contains(ratio) || !have_stayed && !are_unknown, "{ratio}: {text}");
}

/// The values of a quantity, which the row has in every round.
fn values(row: &Value, name: &str) -> Vec<f64> {
    let mut quantities = row["quantities"].as_array().unwrap().iter();
    let quantity = quantities.find(|quantity| quantity["name"] == name).unwrap();
    quantity["values"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

fn assert_all(cell: &Value, holds: impl Fn(&Value) -> bool) {
    for row in cell["rows"].as_array().unwrap() {
        assert!(holds(row), "{row}");
    }
}

fn title(cell: &Value) -> &str {
    cell["title"].as_str().unwrap()
}

#[test]
fn messages_are_exchanged_on_every_runtime() {
    let arguments = ["--scenario", "R5", "--quick", "--rounds", "2", "--against", "tokio,smol"];
    let (cells, text) = run("messages", &arguments);
    let names: Vec<&str> =
        cells.iter().map(|cell| title(cell).split(':').next().unwrap()).collect();
    assert_eq!(names, ["ping-pong", "spawn", "yield", "wake", "fan-out", "spreading"]);
    for cell in &cells {
        assert_eq!(rows(cell), ["ours", "tokio", "smol"]);
        assert_has(cell, &["operation", "cpu"], 2);
        assert!(text.contains(title(cell)), "{text}");
    }
}

#[test]
fn every_runtime_echoes() {
    let sizes = ["--connections", "1,8", "--rounds", "2", "--seconds", "0.05"];
    let arguments = [&["--scenario", "R1", "--against", ALL][..], &sizes].concat();
    let (cells, text) = run("echo", &arguments);
    assert_eq!(cells.iter().map(|cell| &cell["connections"]).collect::<Vec<_>>(), [1, 8]);
    for cell in &cells {
        assert_eq!(rows(cell), ["ours", "tokio", "tokio_more_workers", "smol"]);
        assert_has(cell, &["cpu", "rate", "p50", "p99", "p99.9", "threads", "resident"], 2);
    }
    assert_ratio(&cells, &text, "C8: cpu of ours / tokio");
    assert!(text.contains("ours: blocked threads by "), "{text}");
}

/// The same cells of R4a with axum: it is measured on ours and on tokio, in each way to block.
fn assert_axum_is_served(cells: &[Value], text: &str) {
    for (index, what) in ["sleep", "Mutex", "read", "lookup"].into_iter().enumerate() {
        let (closed, open) = (&cells[index], &cells[index + 4]);
        for (cell, load) in [(closed, "closed loop"), (open, "open loop")] {
            assert!(title(cell).starts_with("HTTP by axum, "), "{cell}");
            assert!(title(cell).contains(what) && title(cell).contains(load), "{cell}");
            assert_has(cell, &["cpu", "rate", "p50", "p99", "threads", "resident"], 2);
            assert!(cell["notes"].to_string().contains("blocked threads by "), "{cell}");
        }
        assert_eq!(rows(closed), ["ours", "tokio", "tokio_spawn_blocking"]);
        let shares =
            ["ours, 2 %", "tokio, 2 %", "tokio_spawn_blocking, 2 %", "ours, nothing blocks"];
        assert_eq!(rows(open), shares);
    }
    assert_ratio(cells, text, "HTTP by axum, std::thread::sleep(5 ms): cpu of ours / ");
    for words in [
        "ours with axum",
        "feature `tokio-compat`",
        "sockets, and the driver that one of our threads waits in",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// Throughput and latencies in each way to block, and the plot of the first.
#[test]
fn handlers_that_block_are_served_by_every_runtime() {
    let rounds = ["--rounds", "2", "--seconds", "0.05", "--threads", "16", "--against", ALL];
    let plot = folder("plot.svg");
    fs::create_dir_all(plot.parent().unwrap()).unwrap();
    let plot_to = ["--plot", plot.to_str().unwrap()];
    let arguments = [&["--scenario", "R4a"][..], &rounds, &plot_to].concat();
    let (cells, text) = run("blocking", &arguments);
    assert_eq!(cells.len(), 16);
    assert_axum_is_served(&cells[8..], &text);
    let all = ["ours", "tokio", "tokio_more_workers", "tokio_spawn_blocking", "smol"];
    for (index, what) in ["sleep", "Mutex", "read", "lookup"].into_iter().enumerate() {
        let (closed, open) = (&cells[index], &cells[index + 4]);
        assert!(title(closed).contains(what) && title(closed).contains("closed loop"), "{closed}");
        assert_eq!(rows(closed), all);
        assert_has(closed, &["cpu", "rate", "p50", "p99", "threads", "resident"], 2);
        assert!(title(open).contains(what) && title(open).contains("open loop"), "{open}");
        assert_has(open, &["cpu", "rate", "p50", "p99", "p99.9", "threads", "resident"], 2);
        let rows = rows(open);
        assert!(rows.starts_with(&["ours, 2 %", "tokio, 2 %"]), "{rows:?}");
        assert!(rows.contains(&"ours, nothing blocks"), "{rows:?}");
        assert_eq!(rows.len(), if index == 0 { 6 * all.len() } else { all.len() + 1 });
    }
    assert_ratio(&cells, &text, "std::thread::sleep(5 ms): rate, ours / tokio ");
    assert!(text.contains("p99 of the quick requests / that if nothing blocks"), "{text}");
    let svg = fs::read_to_string(plot).unwrap();
    assert_eq!(svg.matches("class=\"line\"").count(), all.len(), "{svg}");
}

#[test]
fn handlers_that_compute_are_served_in_a_sandbox() {
    let rounds = ["--rounds", "2", "--seconds", "0.3", "--threads", "4", "--against", ALL];
    let arguments = [&["--scenario", "R4b", "--sandbox"][..], &rounds].concat();
    let (cells, text) = run("computing", &arguments);
    assert_eq!(cells.len(), 2);
    for (cell, server) in cells.iter().zip(["HTTP by hyper", "HTTP by axum"]) {
        assert!(title(cell).starts_with(server), "{cell}");
        assert_has(cell, &["cpu", "rate", "p50", "p99", "threads", "resident"], 2);
    }
    assert_eq!(rows(&cells[1]), ["ours", "tokio", "tokio_spawn_blocking"]);
    // The port has neither perf nor io_uring.
    assert!(text.contains("ours: blocked threads by Tick, files by threads"), "{text}");
    assert!(text.contains("p99 of the quick requests on ours, us"), "{text}");
    assert!(text.contains("HTTP by axum, p99 of the quick requests on ours, us"), "{text}");
}

/// The rows that have not been skipped because a program of another project is missing or too old.
fn present(mut cell: Value) -> Value {
    let is_skipped = |row: &Value| {
        row["failure"].as_str().is_some_and(|failure| failure.starts_with("skipped: "))
    };
    cell["rows"].as_array_mut().unwrap().retain(|row| !is_skipped(row));
    cell
}

const OF_HTTP: &str = "tokio,smol,port,epoll,nginx";

#[test]
fn every_server_of_http_answers_on_connections_that_stay() {
    let sizes = ["--connections", "5", "--rounds", "2", "--seconds", "0.05"];
    let arguments = [&["--scenario", "R2", "--against", OF_HTTP][..], &sizes].concat();
    let (cells, text) = run("http", &arguments);
    let titles = ["connections that stay; closed", "connections that stay; open", "16 pipelined"];
    assert_eq!(cells.len(), titles.len());
    for (cell, part) in cells.iter().zip(titles) {
        assert!(title(cell).contains(part), "{cell}");
        assert!(rows(cell).starts_with(&["ours", "tokio", "smol", "port", "epoll"]), "{cell}");
        assert!(rows(cell).contains(&"nginx"), "{cell}");
        let cell = present(cell.clone());
        assert_has(&cell, &["cpu", "rate", "p50", "p99", "threads", "resident"], 2);
        let notes = cell["notes"].to_string();
        if part.contains("open") {
            assert_ratio(slice::from_ref(&cell), &notes, "p99, ours / tokio: ");
            continue;
        }
        assert_ratio(slice::from_ref(&cell), &notes, "rate, ours / epoll: ");
        if !notes.contains("wrk is not installed") {
            // A note names each row for which wrk has reported an error.
            let mut cell = cell.clone();
            let has_counted = |row: &Value| {
                !notes.contains(&format!("wrk, {}: ", row["contender"].as_str().unwrap()))
            };
            cell["rows"].as_array_mut().unwrap().retain(has_counted);
            assert_has(&cell, &["wrk rate", "wrk cpu"], 1);
        }
    }
    assert_ratio(&cells, &text, "closed loop, 5 connections: cpu of ours / tokio");
    assert_ratio(&cells, &text, "5 connections: p99 of ours / tokio");
}

#[test]
fn every_server_of_http_answers_on_short_connections_in_a_sandbox() {
    let sizes = ["--connections", "5", "--rounds", "2", "--seconds", "0.05", "--sandbox"];
    let arguments = [&["--scenario", "R3", "--against", OF_HTTP][..], &sizes].concat();
    let (cells, text) = run("short_http", &arguments);
    assert_eq!(cells.len(), 2);
    for cell in cells {
        assert!(title(&cell).contains("connections of 10 requests"), "{cell}");
        assert_has(&present(cell), &["cpu", "rate", "p50", "p99", "threads", "resident"], 2);
    }
    assert!(text.contains("ours: blocked threads by Tick"), "{text}");
    assert!(text.contains("A latency is that of all requests of a connection."), "{text}");
}

#[test]
fn every_server_of_redis_answers_its_benchmark() {
    let sizes = ["--connections", "5", "--rounds", "2", "--seconds", "0.01"];
    let against = ["--scenario", "R6", "--against", "tokio,smol,port,redis"];
    let (cells, text) = run("redis", &[&against[..], &sizes].concat());
    assert_eq!(cells.len(), 8);
    for (index, cell) in cells.into_iter().enumerate() {
        let name = ["SET", "GET", "INCR", "MGET"][index % 4];
        let together = if index < 4 { "-P 1 " } else { "-P 16 " };
        assert!(title(&cell).starts_with(name) && title(&cell).contains(together), "{cell}");
        assert_eq!(rows(&cell), ["ours", "tokio", "smol", "port", "redis"]);
        // All of them, if the clients are not installed.
        assert_has(&present(cell), &["cpu", "rate", "p50", "p99", "threads", "resident"], 2);
    }
    assert!(text.contains("SET; redis-benchmark -P 1 "), "{text}");
}

#[test]
fn every_name_server_answers_dnsperf() {
    let sizes = ["--connections", "5", "--rounds", "2", "--seconds", "0.05"];
    let against = ["--scenario", "R9", "--against", "tokio,smol,loop"];
    let (cells, text) = run("dns", &[&against[..], &sizes].concat());
    assert_eq!(cells.len(), 2);
    for (cell, load) in cells.into_iter().zip(["open loop; dnsperf -c 5 ", "dnsperf -c 1 -q 16,"]) {
        assert!(title(&cell).contains(load), "{cell}");
        assert_eq!(rows(&cell), ["ours", "tokio", "smol", "loop"]);
        // All of them, if the client is not installed.
        let quantities = ["cpu", "rate", "latency", "threads", "resident"];
        assert_has(&present(cell), &quantities, 2);
    }
    assert!(text.contains("name servers, closed loop; dnsperf -c 1 -q 16, "), "{text}");
}

/// The client checks each byte of the files.
#[test]
fn files_are_served_next_to_other_requests() {
    let arguments = ["--scenario", "R7", "--rounds", "2", "--against", "tokio,nginx"];
    let sizes = ["--connections", "5", "--seconds", "0.05"];
    let usual: &[&str] = &[];
    for sandbox in [usual, &["--sandbox"]] {
        let (cells, text) = run("files", &[&arguments[..], &sizes, sandbox].concat());
        assert_eq!(cells.len(), 4);
        for (cell, length) in cells.iter().zip(["4 KiB", "64 KiB", "1024 KiB"]) {
            let words = format!("files of {length}, cached; closed loop, 5 connections");
            assert!(title(cell).contains(&words), "{cell}");
            assert_eq!(rows(cell), ["ours", "tokio", "nginx"]);
            let quantities = ["cpu", "rate", "p50", "p99", "threads", "resident"];
            assert_has(&present(cell.clone()), &quantities, 2);
        }
        let open = &cells[3];
        assert!(title(open).contains("next to files of 4 KiB; open loop"), "{open}");
        let mut found = rows(open);
        found.sort_unstable();
        let loads = ["alone", "next to a slow disk", "next to files"];
        let expected =
            ["nginx", "ours", "tokio"].map(|name| loads.map(|it| format!("{name}, {it}")));
        assert_eq!(found, expected.concat());
        assert_has(&present(open.clone()), &["cpu", "rate", "p50", "p99"], 2);
        let what = "next to a slow disk: a file system of the client's process";
        assert!(open["notes"].to_string().contains(what) && text.contains(what), "{text}");
    }
}

/// The programs check each timer; a fault is the row's failure.
#[test]
fn timers_are_armed_and_fire_on_every_contender() {
    let arguments =
        ["--scenario", "R8", "--quick", "--rounds", "2", "--against", "tokio,smol,port"];
    let sizes = ["--connections", "70", "--seconds", "0.05"];
    let usual: &[&str] = &[];
    for sandbox in [usual, &["--sandbox"]] {
        let (cells, text) = run("timers", &[&arguments[..], &sizes, sandbox].concat());
        assert_eq!(cells.len(), 3);
        for cell in &cells {
            assert_eq!(rows(cell), ["ours", "tokio", "smol", "port"]);
        }
        assert!(title(&cells[0]).contains("5000 timers: armed"), "{text}");
        assert_has(&cells[0], &["schedule", "schedule cpu", "cancel", "cancel cpu"], 2);
        // The port's messages have no deadline that moves.
        let mut moving = cells[0].clone();
        moving["rows"].as_array_mut().unwrap().retain(|row| row["contender"] != "port");
        assert_has(&moving, &["move", "move cpu"], 2);
        assert!(text.contains("schedule [Mops/s]"), "{text}");
        assert_ratio(&cells, &text, "cancel, ours / port: ");
        assert!(title(&cells[1]).contains("5000 timers: all fire within 50ms"), "{text}");
        assert_has(&cells[1], &["cpu", "p50", "p99"], 2);
        assert_ratio(&cells, &text, "p99, ours / tokio: ");
        assert!(title(&cells[2]).contains("70 connections; each request moves"), "{text}");
        assert_has(&cells[2], &["cpu", "rate", "p50", "p99", "threads", "resident"], 2);
        assert_ratio(&cells, &text, "rate, ours / port: ");
        // No operation takes less than a nanosecond, and no timer is in both halves.
        assert_all(&cells[0], |row| values(row, "schedule").iter().all(|rate| *rate < 1000.0));
        assert_all(&cells[1], |row| {
            let (p50, p99) = (values(row, "p50"), values(row, "p99"));
            p50.iter().zip(p99).all(|(p50, p99)| *p50 <= p99)
        });
    }
}

/// The programs say who stalls; of a runtime with fewer workers than tasks that block that is known.
#[test]
fn the_zoo_says_who_stalls() {
    let arguments =
        ["--scenario", "zoo", "--rounds", "1", "--against", "tokio,tokio_spawn_blocking"];
    let (cells, text) = run("zoo", &arguments);
    assert_eq!(cells.len(), 8);
    for cell in &cells {
        assert_eq!(rows(cell), ["ours", "tokio", "tokio_spawn_blocking"]);
        assert!(
            cell["rows"].as_array().unwrap().iter().all(|row| row["failure"].is_null()),
            "{cell}"
        );
        assert_eq!(cell["notes"].as_array().unwrap().len(), 4, "{cell}");
    }
    let all_sleep = cells.iter().find(|cell| title(cell).starts_with("all-sleep")).unwrap();
    assert!(all_sleep["notes"].to_string().contains("tokio stalls (1 of 1)"), "{all_sleep}");
    assert!(text.contains("bad-task: ours stalls"), "{text}");
}

#[test]
fn a_program_that_does_not_exist_is_an_error() {
    for (arguments, words) in [
        (["program", "--contender", "ours", "zoo", "unicorn"], "no program `unicorn`"),
        (["program", "--contender", "none", "zoo", "lifo"], "no contender `none`"),
        (["program", "--contender", "port", "zoo", "lifo"], "no program `zoo lifo`"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cport-bench"));
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        assert!(String::from_utf8(said).unwrap().contains(words), "{arguments:?}");
    }
}
