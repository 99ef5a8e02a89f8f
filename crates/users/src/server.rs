//! A server that runs as a separate program.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::build::other;

/// No server takes longer to print its address, or to end, however busy the machine is.
const SOON: Duration = Duration::from_secs(120);

/// A server that is killed if the test fails.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
    lines: Receiver<String>,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts a program that prints `listening on <address>`.
    ///
    /// # Panics
    ///
    /// If it does not.
    #[must_use]
    pub fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut command = match other() {
            None => Command::new(program),
            Some(other) => {
                let mut command = Command::new(other.runner);
                command.arg(program);
                command
            }
        };
        let mut child = command
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a program that was built");
        let output = child.stdout.take().expect("a pipe");
        let (say, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let _ = say.send(line);
            }
        });
        let line = lines.recv_timeout(SOON).expect("a line from the server");
        let address = line.strip_prefix("listening on ").and_then(|address| address.parse().ok());
        Self { child, address: address.expect("an address"), lines }
    }

    /// Ends it by SIGTERM, or by what Wine makes Ctrl-C of.
    ///
    /// # Panics
    ///
    /// If it does not end well.
    pub fn terminate(mut self) {
        let pid = Pid::from_child(&self.child);
        let signal = if other().is_some() { Signal::INT } else { Signal::TERM };
        kill_process(pid, signal).expect("a child");
        self.assert_ends_well();
    }

    /// Ends it by the end of its input.
    ///
    /// # Panics
    ///
    /// If it does not end well.
    pub fn hang_up(mut self) {
        drop(self.child.stdin.take());
        self.assert_ends_well();
    }

    fn assert_ends_well(&mut self) {
        let end = Instant::now() + SOON;
        let status = loop {
            if let Some(status) = self.status() {
                break status;
            }
            assert!(Instant::now() < end, "the server does not end");
            thread::park_timeout(Duration::from_millis(5));
        };
        assert!(status.success(), "{status}");
    }

    fn status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    /// Asserts that the server still runs.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn assert_runs(&mut self) {
        let status = self.status();
        assert!(status.is_none(), "the server has ended: {status:?}");
    }

    /// How much processor time it has used, to a hundredth of a second.
    ///
    /// # Panics
    ///
    /// If there is no such process.
    #[must_use]
    pub fn processor_time(&self) -> Duration {
        let process = self.child.id();
        if Path::new("/proc/self/stat").exists() {
            let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
            return time_of_stat(&stat.expect("the server runs"));
        }
        let process = process.to_string();
        let told = Command::new("ps").args(["-o", "time=", "-p", &process]).output();
        let told = String::from_utf8(told.expect("ps").stdout).expect("a time");
        time_of_ps(&told).unwrap_or_else(|| panic!("no time of the server: {told:?}"))
    }

    /// Its other output so far.
    pub fn said(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }
}

/// Ends a server, which waits for no client.
///
/// # Panics
///
/// If it has ended before, or does not end well.
pub fn end(mut server: Server) {
    server.assert_runs();
    server.terminate();
}

/// With nothing to do a server does nothing, once it has done what there was to do.
///
/// # Panics
///
/// If it is busy.
pub fn assert_rests(server: &Server) {
    let window = Duration::from_millis(500);
    for _ in 0..20 {
        thread::park_timeout(Duration::from_millis(100));
        let (begun, before) = (Instant::now(), server.processor_time());
        thread::park_timeout(window);
        let used = server.processor_time() - before;
        if used < Duration::from_millis(150) || used * 10 < begun.elapsed() {
            return;
        }
    }
    panic!("the server is busy without work");
}

/// From `/proc` on Linux.
fn time_of_stat(stat: &str) -> Duration {
    // User and system time are the 14th and 15th field; the second one may have spaces in it.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let fields: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
    Duration::from_millis((fields[11] + fields[12]) * 10)
}

/// From `ps` on macOS and the BSDs, where it has hundredths: `[hours:]minutes:seconds.hundredths`.
fn time_of_ps(told: &str) -> Option<Duration> {
    let parts = told.trim().split(':');
    // A locale may have a comma.
    let parts: Option<Vec<f64>> = parts.map(|part| part.replace(',', ".").parse().ok()).collect();
    let seconds = parts?.into_iter().fold(0.0, |sum, part| sum * 60.0 + part);
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        let stat = "7 (a (b) c) S 1 7 7 0 -1 0 9 0 0 0 12 34 0 0 20 0 1 0";
        assert_eq!(time_of_stat(stat), Duration::from_millis(460));
        assert_eq!(time_of_ps("   0:00.25\n"), Some(Duration::from_millis(250)));
        assert_eq!(time_of_ps("1:02,50"), Some(Duration::from_millis(62_500)));
        assert_eq!(time_of_ps("1:00:00"), Some(Duration::from_secs(3600)));
        assert_eq!(time_of_ps(""), None);
    }
}
