//! `dnsperf`: the queries that it sends, and what it prints.

use std::env;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::runtimes::child::output_of;
use crate::runtimes::foreign::{need, said_by, too_old};

const NAME: &str = "dnsperf";
/// Those before it print other statistics.
const OLDEST: [u32; 3] = [2, 0, 0];
/// A thread of it has no more.
const MOST_SOCKETS: usize = 256;

/// Different names.
const NAMES: usize = 100;

/// After how many seconds a query is lost. None is late, even on a machine that is busy with something
/// else.
const LOST_AFTER: &str = "20";
/// How long it may take to start and to end.
const LIMIT: Duration = Duration::from_secs(60);

/// The program, and a file with queries, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Dnsperf {
    program: PathBuf,
    pub(super) version: String,
    queries: PathBuf,
}

/// What it sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) sockets: usize,
    /// The most queries without answer, on all sockets together.
    pub(super) under_way: usize,
    /// Queries in a second; as many as possible without it.
    pub(super) rate: Option<u32>,
}

/// What a run has shown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ran {
    /// Their number. All were answered.
    pub(super) queries: f64,
    pub(super) rate: f64,
    /// The average, in microseconds.
    pub(super) latency: f64,
}

impl Load {
    /// Its options.
    pub(super) fn options(self) -> String {
        let rate = self.rate.map(|rate| format!(" -Q {rate}")).unwrap_or_default();
        format!("-c {} -q {}{rate}", self.sockets, self.under_way)
    }
}

impl Dnsperf {
    /// Writes the file. The error says why there is no load.
    pub(super) fn new() -> Result<Dnsperf, String> {
        let program = need(NAME)?;
        let version = version(&said_by(NAME, "-h").unwrap_or_default());
        if let Some(reason) = too_old(&version, OLDEST) {
            return Err(reason);
        }
        let queries = env::temp_dir().join(format!("cport-bench-dns-{}", std::process::id()));
        let lines = (0..NAMES).map(|number| format!("host{number}.example.org A\n"));
        fs::write(&queries, lines.collect::<String>())
            .map_err(|error| format!("{}: {error}", queries.display()))?;
        Ok(Dnsperf { program, version, queries })
    }

    /// Sends queries for that long to a server with one socket.
    pub(super) fn run(
        &self,
        server: &[SocketAddr],
        load: Load,
        time: Duration,
    ) -> Result<Ran, String> {
        let [server] = server else { return Err("a name server has one socket".to_owned()) };
        if load.sockets > MOST_SOCKETS {
            return Err(format!("{NAME} has at most {MOST_SOCKETS} sockets"));
        }
        let mut command = Command::new(&self.program);
        command.args(["-s", &server.ip().to_string(), "-p", &server.port().to_string()]);
        command.arg("-d").arg(&self.queries).args(["-T", "1", "-t", LOST_AFTER]);
        command.args(["-l", &time.as_secs_f64().to_string()]).args(load.options().split(' '));
        let output = output_of(command.stderr(Stdio::piped()), time + LIMIT);
        let output = output.map_err(|error| format!("{NAME}: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let complaint = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{NAME}: {}: {complaint}{said}", output.status));
        }
        parse(&said)
    }
}

impl Drop for Dnsperf {
    fn drop(&mut self) {
        let _: io::Result<()> = fs::remove_file(&self.queries);
    }
}

/// Its version, which the first lines of its help contain.
fn version(said: &str) -> String {
    let number = said.lines().find_map(|line| line.split_once("Version "));
    number.map_or(NAME.to_owned(), |(_, number)| format!("{NAME} {}", number.trim()))
}

/// Reads its statistics. A query without an answer is an error, and so is an answer that reports one.
fn parse(said: &str) -> Result<Ran, String> {
    let odd = || format!("{NAME}: odd output: {said}");
    let find = |name: &str| {
        let value = said.lines().find_map(|line| line.trim_start().strip_prefix(name));
        value.map(str::trim).ok_or_else(odd)
    };
    let number = |name: &str| {
        let word = find(name)?.split_whitespace().next();
        word.and_then(|word| word.parse::<f64>().ok()).ok_or_else(odd)
    };
    let (sent, completed) = (number("Queries sent:")?, number("Queries completed:")?);
    let (lost, codes) = (number("Queries lost:")?, find("Response codes:")?);
    if lost > 0.0 || completed < sent {
        return Err(format!("{NAME}: {completed} of {sent} queries answered, {lost} lost"));
    }
    if !codes.split(", ").all(|code| code.starts_with("NOERROR ")) {
        return Err(format!("{NAME}: response codes: {codes}"));
    }
    let rate = number("Queries per second:")?;
    let latency = number("Average Latency (s):")? * 1e6;
    Ok(Ran { queries: completed, rate, latency })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
DNS Performance Testing Tool
Version 2.10.0

[Status] Command line: dnsperf -s 127.0.0.1 -p 49221 -d queries -T 1 -l 0.25 -c 100 -q 100 -Q 2000
[Status] Sending queries (to 127.0.0.1:49221)
[Status] Started at: Sun Nov 29 11:02:27 2026
[Status] Stopping after 0.250000 seconds
[Status] Testing complete (time limit)

Statistics:

  Queries sent:         500
  Queries completed:    500 (100.00%)
  Queries lost:         0 (0.00%)

  Response codes:       NOERROR 500 (100.00%)
  Average packet size:  request 35, response 51
  Run time (s):         0.250205
  Queries per second:   1998.361344

  Average Latency (s):  0.000054 (min 0.000031, max 0.000493)
  Latency StdDev (s):   0.000026

";

    #[test]
    fn its_statistics_are_read() {
        let ran = parse(TEXT).unwrap();
        assert_eq!((ran.queries, ran.rate), (500.0, 1998.361344));
        assert!((ran.latency - 54.0).abs() < 1e-6, "{ran:?}");
        assert_eq!(version(TEXT), "dnsperf 2.10.0");
        for text in ["", &TEXT.replace("per second", "per hour"), &TEXT.replace("0.000054", "x")] {
            assert!(parse(text).unwrap_err().starts_with("dnsperf: odd output: "), "{text}");
        }
    }

    #[test]
    fn a_lost_query_and_an_error_in_an_answer_are_errors() {
        let completed = TEXT.replace("completed:    500", "completed:    499");
        let lost = completed.replace("lost:         0", "lost:         1");
        assert_eq!(parse(&lost).unwrap_err(), "dnsperf: 499 of 500 queries answered, 1 lost");
        assert!(parse(&completed).unwrap_err().ends_with(" 499 of 500 queries answered, 0 lost"));
        let code = "NOERROR 499 (99.80%), SERVFAIL 1 (0.20%)";
        let failed = TEXT.replace("NOERROR 500 (100.00%)", code);
        assert_eq!(parse(&failed).unwrap_err(), format!("dnsperf: response codes: {code}"));
    }

    #[test]
    fn the_options_say_what_is_sent() {
        let closed = Load { sockets: 1, under_way: 16, rate: None };
        assert_eq!(closed.options(), "-c 1 -q 16");
        assert_eq!(Load { rate: Some(9000), ..closed }.options(), "-c 1 -q 16 -Q 9000");
    }
}
