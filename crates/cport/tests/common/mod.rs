//! Running the command, with a deadline for everything.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "what goes wrong here is the failure of the test")]

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Nothing here takes nearly as long unless it hangs.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// The command that is tested.
pub(crate) fn cport(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cport"));
    command.args(arguments);
    command
}

/// The same, with at most `limit` descriptors. What the test runner leaves open is closed.
pub(crate) fn cport_limited(limit: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let closed = (3..10).map(|number| format!(" {number}>&-")).collect::<String>();
    // Closed first: where there is a limit the shell has no room to close one for a single command.
    let script = format!("exec{closed}; ulimit -n {limit} && exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_cport")]).args(arguments);
    command
}

/// How a run of the command ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// The command refused to begin, and said so in one line on standard error alone.
    pub(crate) fn assert_refused(&self, words: &str) {
        assert_eq!(self.status.code(), Some(2), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        assert_eq!(self.stderr.lines().count(), 1, "{self:?}");
        assert!(self.stderr.starts_with("cport: "), "{self:?}");
        assert!(self.stderr.contains(words), "{self:?}");
    }
}

/// A command that runs, and is killed if it does not end in time.
#[derive(Debug)]
pub(crate) struct Running {
    child: Arc<Mutex<Child>>,
    pid: Pid,
    stdout: BufReader<ChildStdout>,
    stderr: Option<JoinHandle<String>>,
    /// Each line that appears on standard error.
    pub(crate) complaints: std::sync::mpsc::Receiver<String>,
    _alive: Sender<()>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let pid = Pid::from_child(&child);
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let errors = BufReader::new(child.stderr.take().unwrap());
        let child = Arc::new(Mutex::new(child));
        let (alive, watched) = channel::<()>();
        let doomed = Arc::clone(&child);
        thread::spawn(move || {
            if watched.recv_timeout(DEADLINE).is_err() {
                // Ended meanwhile is as good; it is told from another process by `Child`.
                let _ = doomed.lock().unwrap().kill();
            }
        });
        let (complain, complaints) = channel();
        let stderr = thread::spawn(move || {
            let mut all = String::new();
            for line in errors.lines().map_while(Result::ok) {
                all.push_str(&line);
                all.push('\n');
                let _ = complain.send(line);
            }
            all
        });
        Self { child, pid, stdout, stderr: Some(stderr), complaints, _alive: alive }
    }

    /// The next line of standard output; empty at its end.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    /// How many sockets it has open.
    pub(crate) fn sockets(&self) -> usize {
        let all = fs::read_dir(format!("/proc/{}/fd", self.pid.as_raw_nonzero())).unwrap();
        // One that is closed meanwhile has no name any more.
        let names = all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        names.filter(|name| name.to_string_lossy().starts_with("socket:")).count()
    }

    /// Waits for the end.
    pub(crate) fn ended(mut self) -> Ended {
        let mut stdout = String::new();
        self.stdout.read_to_string(&mut stdout).unwrap();
        let stderr = self.stderr.take().unwrap().join().unwrap();
        let status = self.child.lock().unwrap().wait().unwrap();
        Ended { status, stdout, stderr }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind.
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Runs the command to its end.
pub(crate) fn run(command: Command) -> Ended {
    Running::start(command).ended()
}

/// The ways in which `cport echo` serves TCP.
pub(crate) const WAYS: [&[&str]; 2] = [&[], &["--operations"]];

/// Starts `cport echo` and returns it with the address that its first line tells.
pub(crate) fn echo(arguments: &[&str]) -> (Running, SocketAddr) {
    served(cport(&[&["echo", "--listen", "127.0.0.1:0"], arguments].concat()))
}

/// The same for a command that is ready made.
pub(crate) fn served(command: Command) -> (Running, SocketAddr) {
    let mut server = Running::start(command);
    let first = server.line();
    let address = first.rsplit(' ').next().and_then(|word| word.parse().ok());
    (server, address.unwrap_or_else(|| panic!("no address in the first line: {first:?}")))
}

/// Makes a call until no signal interrupts it: one with a timeout does not go on by itself.
pub(crate) fn uninterrupted<R>(mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Bytes that differ by place and by `seed`.
pub(crate) fn content(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let step = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(step).take(length).collect()
}

/// A terminal with a command in it.
pub(crate) struct Terminal {
    child: Child,
    columns: usize,
    output: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    /// Starts the command in a terminal that is so wide.
    pub(crate) fn start(mut command: Command, columns: u16) -> Self {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let size =
            rustix::termios::Winsize { ws_col: columns, ws_row: 24, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&master, size).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
        let end = || fs::File::options().read(true).write(true).open(&name).unwrap();
        command.env("TERM", "xterm").env_remove("COLUMNS");
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        // It holds the terminal's other end, without which there is no end of the output.
        drop(command);
        let output = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&output);
        let mut master = fs::File::from(master);
        let reader = thread::spawn(move || {
            let mut buffer = [0; 4096];
            // EIO, once no process has the other end any more.
            while let Ok(read @ 1..) = uninterrupted(|| master.read(&mut buffer)) {
                shared.lock().unwrap().extend_from_slice(&buffer[..read]);
            }
        });
        Self { child, columns: usize::from(columns), output, reader: Some(reader) }
    }

    /// All that was written so far.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits until all of this was written.
    pub(crate) fn wait_for(&self, words: &str) {
        self.wait_until(words, |text| text.contains(words));
    }

    /// Waits until what was written is as it is wanted.
    pub(crate) fn wait_until(&self, wanted: &str, is_so: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !is_so(&self.text()) {
            assert!(begun.elapsed() < DEADLINE, "{wanted:?} is not in {}", self.text());
            thread::yield_now();
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for the end. No line was wider than the terminal, whatever was written over.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < DEADLINE, "it does not end: {}", self.text());
            thread::yield_now();
        };
        self.reader.take().unwrap().join().unwrap();
        let text = self.text();
        for line in text.split(['\n', '\r']) {
            let line = visible(line);
            assert!(line.chars().count() <= self.columns, "{} columns: {line:?}", self.columns);
        }
        (status, text)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The text without what moves the cursor or sets colours (`ESC [ … letter`).
fn visible(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    let end =
        |part: &str| part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |at| at + 1);
    parts.fold(first, |text, part| text + &part[end(part)..])
}
