//! A server's process as the harness sees it. Every wait for it has a limit.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use crate::server::{self, Hello, Snapshot};
use crate::sink::Service;
use crate::system::{self, Output};
use crate::traffic::Traffic;

/// A server answers immediately; this is for a machine that is busy with something else.
const ANSWER: Duration = Duration::from_secs(10);

/// Until the first line of a server. It may try three times to start a program of another project,
/// each for 10 s.
const HELLO: Duration = Duration::from_secs(40);

/// A running server. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Remote {
    child: Child,
    input: ChildStdin,
    output: Output,
    pub(crate) address: SocketAddr,
    /// Its sockets for datagrams.
    pub(crate) sockets: Vec<SocketAddr>,
    /// How it detects blocked threads, if it reports that.
    pub(crate) detected: Option<String>,
}

impl Remote {
    /// Starts a server of this program, with or without the kernel's counters.
    pub(crate) fn start(
        contender: &str,
        threads: usize,
        service: Service,
        traffic: Traffic,
        count: bool,
    ) -> Result<Remote, String> {
        Self::start_of(&system::own_program(), contender, threads, service, traffic, count)
    }

    /// Starts a server of that program.
    pub(crate) fn start_of(
        program: &Path,
        contender: &str,
        threads: usize,
        service: Service,
        traffic: Traffic,
        count: bool,
    ) -> Result<Remote, String> {
        let mut command = Self::command(program, contender, threads);
        if let Service::Sink(sink) = service {
            for (option, value) in [
                ("--buffer", sink.buffer.to_string()),
                ("--turns", sink.turns.to_string()),
                ("--reads", sink.reads.to_string()),
            ] {
                command.args([option, &value]);
            }
        }
        match traffic {
            Traffic::Lasting => {}
            Traffic::Http(http) if !http.accepts => {}
            Traffic::Http(_) | Traffic::Short => {
                command.arg("--accepts");
            }
            Traffic::Datagrams { sockets, .. } => {
                command.args(["--datagrams", &sockets.to_string()]);
            }
        }
        if count {
            command.arg("--count");
        }
        Self::spawn(command)
    }

    pub(crate) fn command(program: &Path, contender: &str, threads: usize) -> Command {
        let mut command = Command::new(program);
        command.args(["server", "--contender", contender, "--threads", &threads.to_string()]);
        command
    }

    pub(crate) fn spawn(mut command: Command) -> Result<Remote, String> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("server: {error}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("server: no pipes".to_owned());
        };
        let address = SocketAddr::from(([0, 0, 0, 0], 0));
        let (sockets, detected) = (Vec::new(), None);
        let mut remote =
            Remote { child, input, output: Output::of(output), address, sockets, detected };
        Hello { address: remote.address, sockets: remote.sockets, detected: remote.detected } =
            remote.hear(HELLO)?;
        Ok(remote)
    }

    /// What the server has used up so far.
    pub(crate) fn snapshot(&mut self) -> Result<Snapshot, String> {
        self.tell(server::Command::Snapshot)
    }

    /// Makes the server execute a command; returns its resource usage so far.
    pub(crate) fn tell(&mut self, command: server::Command) -> Result<Snapshot, String> {
        let line = command.line();
        self.input.write_all(line.as_bytes()).map_err(|error| format!("server: {error}"))?;
        self.hear(ANSWER)
    }

    /// Waits until the server has taken over that many connections in total.
    pub(crate) fn wait_for_added(&mut self, added: u64) -> Result<(), String> {
        let deadline = Instant::now() + ANSWER;
        loop {
            let snapshot = self.snapshot()?;
            if snapshot.refused > 0 {
                let reason = snapshot.refusal.unwrap_or_default();
                return Err(format!("{} connections refused: {reason}", snapshot.refused));
            }
            if snapshot.added >= added {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("took over {} of {added} connections", snapshot.added));
            }
            pause(Duration::from_millis(1));
        }
    }

    /// Waits until the server does nothing more, for a second at most; the last snapshot.
    pub(crate) fn settle(&mut self) -> Result<Snapshot, String> {
        let deadline = Instant::now() + Duration::from_secs(1);
        let mut last = self.snapshot()?;
        loop {
            pause(Duration::from_millis(3));
            let next = self.snapshot()?;
            // A twentieth of the time is less than what any work left over takes.
            let quiet = next.processor_time.saturating_sub(last.processor_time) < 150_000;
            if quiet || Instant::now() > deadline {
                return Ok(next);
            }
            last = next;
        }
    }

    /// Reads one line within that time; nothing follows an answer before the next command.
    fn hear<T: DeserializeOwned>(&mut self, limit: Duration) -> Result<T, String> {
        let deadline = Instant::now() + limit;
        let mut line = Vec::with_capacity(512);
        while line.last() != Some(&b'\n') {
            let left = deadline.saturating_duration_since(Instant::now());
            let more = self.output.more(left).map_err(|error| format!("server: {error}"))?;
            match more {
                None => return Err("server: does not answer".to_owned()),
                Some(bytes) if bytes.is_empty() => return Err(self.ended()),
                Some(bytes) => line.extend_from_slice(&bytes),
            }
        }
        serde_json::from_slice(&line).map_err(|error| format!("server: odd answer: {error}"))
    }

    fn ended(&mut self) -> String {
        match self.child.wait() {
            Ok(status) => format!("server: ended: {status}"),
            Err(error) => format!("server: ended: {error}"),
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // It may be stuck in a handler; nothing of it is needed any more.
        let _: io::Result<()> = self.child.kill();
        let _: io::Result<_> = self.child.wait();
    }
}

#[allow(clippy::disallowed_methods, reason = "another process is looked at from time to time")]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
