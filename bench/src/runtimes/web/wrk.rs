//! wrk, whose counts are compared with those of the benchmark's own clients.

use std::env;
use std::fs;
use std::process::{Command, Stdio};

use crate::remote::Remote;
use crate::rounds::Place;
use crate::runtimes::foreign::need;
use crate::sink::Service;
use crate::traffic::{Http, Traffic};

const NAME: &str = "wrk";
/// The shortest that it takes.
const SECONDS: &str = "1s";

/// What wrk has counted, and the server's processor time for each request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Counted {
    pub(super) rate: f64,
    pub(super) cpu: f64,
}

/// Why it counts nothing, if it doesn't.
pub(super) fn lacks() -> Option<String> {
    need(NAME).err()
}

/// Runs it once against a server that nobody else uses.
pub(super) fn count(place: &Place, connections: usize, http: Http) -> Result<Counted, String> {
    let program = need(NAME)?;
    let traffic = Traffic::Http(http);
    let (name, threads) = (place.contender.name, place.setup.threads);
    let mut remote =
        Remote::start_of(&place.program, name, threads, Service::Echo, traffic, false)?;
    let script = env::temp_dir().join(format!("cport-bench-wrk-{}.lua", std::process::id()));
    let mut command = Command::new(program);
    command.args(["--threads", "1", "--duration", SECONDS]);
    command.args(["--connections", &connections.to_string()]);
    if http.together > 1 {
        let text = pipelined(http.together);
        fs::write(&script, text).map_err(|error| format!("{}: {error}", script.display()))?;
        command.arg("--script").arg(&script);
    }
    command.arg(format!("http://{}/0/0", remote.address));
    let before = remote.settle()?;
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string());
    let after = remote.settle()?;
    let _: std::io::Result<()> = fs::remove_file(&script);
    let output = output?;
    if !output.status.success() {
        return Err(format!("{}", output.status));
    }
    let used = after.processor_time.saturating_sub(before.processor_time);
    parse(&String::from_utf8_lossy(&output.stdout), used)
}

/// A script that sends several requests together; wrk itself counts the answers of each.
fn pipelined(together: u32) -> String {
    format!(
        "init = function(args)\n  local one = wrk.format(\"GET\", \"/0/0\")\n  \
         all = string.rep(one, {together})\nend\nrequest = function() return all end\n"
    )
}

/// Reads what it has printed. Requests without the expected answer are an error.
fn parse(text: &str, used: u64) -> Result<Counted, String> {
    let odd = || format!("odd output: {text}");
    if let Some(line) = text
        .lines()
        .map(str::trim)
        .find(|line| line.starts_with("Non-2xx") || line.starts_with("Socket errors"))
    {
        return Err(line.to_owned());
    }
    let word = |line: &str, at: usize| line.split_whitespace().nth(at)?.parse::<f64>().ok();
    let find = |what: &str, at: usize| word(text.lines().find(|line| line.contains(what))?, at);
    let requests = find(" requests in ", 0).ok_or_else(odd)?;
    let rate = find("Requests/sec:", 1).ok_or_else(odd)?;
    #[allow(clippy::cast_precision_loss, reason = "nanoseconds of a run are below 2^53")]
    let used = used as f64;
    if requests > 0.0 { Ok(Counted { rate, cpu: used / requests }) } else { Err(odd()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
Running 1s test @ http://127.0.0.1:80/0/0
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.02ms  100.00us   2.00ms   70.00%
  20000 requests in 1.10s, 1.50MB read
Requests/sec:  18181.82
Transfer/sec:      1.36MB
";

    #[test]
    fn its_counts_are_read() {
        let counted = parse(TEXT, 100_000_000).unwrap();
        assert_eq!(counted, Counted { rate: 18181.82, cpu: 5000.0 });
        let errors =
            TEXT.replace("Requests/sec", "  Socket errors: connect 0, read 1\nRequests/sec");
        assert_eq!(parse(&errors, 1).unwrap_err(), "Socket errors: connect 0, read 1");
        let errors = TEXT.replace("Requests/sec", "  Non-2xx or 3xx responses: 5\nRequests/sec");
        assert_eq!(parse(&errors, 1).unwrap_err(), "Non-2xx or 3xx responses: 5");
        assert!(parse("unable to connect", 1).unwrap_err().starts_with("odd output"));
        assert!(parse(&TEXT.replace("20000", "0"), 1).is_err());
    }
}
