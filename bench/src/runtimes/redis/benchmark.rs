//! `redis-benchmark`: the commands that it sends, and what it prints.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::runtimes::child::output_of;
use crate::runtimes::foreign::{SKIPPED, need};

const NAME: &str = "redis-benchmark";

/// Different keys.
pub(super) const KEYS: usize = 1000;
const KEY: &str = "key:__rand_int__";

/// It has no test of MGET, so all are given as commands. The first one sets the keys of the others.
pub(super) const COMMANDS: [&[&str]; 4] = [
    &["SET", KEY, "xxx"],
    &["GET", KEY],
    &["INCR", "counter:__rand_int__"],
    &["MGET", KEY, KEY, KEY, KEY, KEY, KEY, KEY, KEY, KEY, KEY],
];

/// What a run has shown; times in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ran {
    pub(super) rate: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
}

/// Why it does not run, if it doesn't.
pub(super) fn lacks() -> Option<String> {
    need(NAME).err()
}

/// The requests of a turn: about a quarter of a second, or the given time.
pub(super) fn amount(together: usize, round: Option<Duration>) -> usize {
    let each_second = if together > 1 { 400_000.0 } else { 80_000.0 };
    let seconds = round.unwrap_or(Duration::from_millis(250)).as_secs_f64();
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of requests is positive and below 2^31"
    )]
    let requests = (each_second * seconds) as usize;
    requests.max(1000)
}

/// How long that many requests may take, even on a machine that is busy with something else.
fn limit_of(requests: usize) -> Duration {
    let requests = u32::try_from(requests).unwrap_or(u32::MAX);
    Duration::from_secs(60) + Duration::from_micros(100) * requests
}

/// Sends that many requests of a command.
pub(super) fn run(
    server: SocketAddr,
    command: &[&str],
    together: usize,
    connections: usize,
    requests: usize,
) -> Result<Ran, String> {
    let mut benchmark = Command::new(need(NAME)?);
    benchmark.args(["-h", &server.ip().to_string(), "-p", &server.port().to_string()]);
    benchmark.args(["-P", &together.to_string(), "-c", &connections.to_string()]);
    benchmark.args(["-n", &requests.to_string(), "-r", &KEYS.to_string(), "--csv"]);
    let limit = limit_of(requests);
    let output = output_of(benchmark.args(command).stderr(Stdio::piped()), limit);
    let output = output.map_err(|error| format!("{NAME}: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{NAME}: {}: {said}{complaint}", output.status));
    }
    parse(&said)
}

/// The last line: the command, the rate, then times in milliseconds (average, least, and those of
/// 50 %, 95 %, 99 % and all). Before 6.2 it printed the rate only. An error of the server has a
/// separate line.
fn parse(said: &str) -> Result<Ran, String> {
    let odd = || format!("{NAME}: odd output: {said}");
    if let Some(line) = said.lines().find(|line| line.contains("Error from server")) {
        return Err(line.to_owned());
    }
    let line = said.lines().rfind(|line| line.starts_with('"')).ok_or_else(odd)?;
    let values: Vec<f64> =
        line.split("\",\"").filter_map(|value| value.trim_matches('"').parse().ok()).collect();
    match values[..] {
        [rate, _, _, p50, _, p99, _] => Ok(Ran { rate, p50: p50 * 1000.0, p99: p99 * 1000.0 }),
        [_] => Err(format!("{SKIPPED}this {NAME} prints no latencies")),
        _ => Err(odd()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_last_line_is_read() {
        let said = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
                    \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\"\n\
                    \"GET key:__rand_int__\",\"50000.00\",\"0.5\",\"0.1\",\"0.4\",\"0.7\",\"0.9\",\"1.5\"\n";
        let ran = parse(said).unwrap();
        assert_eq!(ran, Ran { rate: 50_000.0, p50: 400.0, p99: 900.0 });
        assert!(parse("").unwrap_err().contains("odd output"));
        let error = parse("\"GET key:__rand_int__\",\"50000.00\"\n").unwrap_err();
        assert_eq!(error, "skipped: this redis-benchmark prints no latencies");
        let said = "Error from server: ERR unknown command 'X'\n";
        assert_eq!(parse(said).unwrap_err(), said.trim_end());
    }

    #[test]
    fn a_turn_has_requests_for_its_time() {
        assert_eq!(amount(1, None), 20_000);
        assert_eq!(amount(16, Some(Duration::from_secs(1))), 400_000);
        assert_eq!(amount(1, Some(Duration::from_millis(1))), 1000);
    }
}
