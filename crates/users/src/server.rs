//! A server that runs as a program of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::build::other;

/// No server takes longer to say where it listens, or to end.
const SOON: Duration = Duration::from_secs(20);

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
    /// If it does not end well, and soon. Returns how long it took.
    #[must_use]
    pub fn terminate(mut self) -> Duration {
        let began = Instant::now();
        let pid = Pid::from_child(&self.child);
        let signal = if other().is_some() { Signal::INT } else { Signal::TERM };
        kill_process(pid, signal).expect("a child");
        self.assert_ends_well();
        began.elapsed()
    }

    /// Ends it by the end of its input.
    ///
    /// # Panics
    ///
    /// If it does not end well, and soon.
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

    /// How much processor time it has used.
    ///
    /// # Panics
    ///
    /// If `/proc` has no such process.
    #[must_use]
    pub fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        let stat = stat.expect("the server runs");
        // User and system time are the 14th and 15th field; the second one may have spaces in it.
        let fields: Vec<u64> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .map(|field| field.parse().unwrap_or(0))
            .collect();
        Duration::from_millis((fields[11] + fields[12]) * 10)
    }

    /// What it said besides, so far.
    pub fn said(&self) -> Vec<String> {
        self.lines.try_iter().collect()
    }
}
