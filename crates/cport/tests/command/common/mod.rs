//! Runs the command, with a deadline for everything. Each system has its own file.

#![allow(dead_code, reason = "each system uses a part of it")]
#![allow(clippy::unwrap_used, reason = "what goes wrong here is the failure of the test")]

use std::env::consts::EXE_SUFFIX;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
pub(crate) mod linux;
#[cfg(windows)]
pub(crate) mod windows;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(windows)]
use windows as system;

/// No single event takes nearly as long unless something hangs, on a busy machine either.
pub(crate) const DEADLINE: Duration = Duration::from_secs(300);

/// The command that is tested.
pub(crate) fn cport(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cport"));
    command.args(arguments);
    command
}

/// Where a program of this name is in a directory.
pub(crate) fn program(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}{EXE_SUFFIX}"))
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
    pid: u32,
    stdout: BufReader<ChildStdout>,
    stderr: Option<JoinHandle<String>>,
    /// Each line that appears on standard error.
    pub(crate) complaints: std::sync::mpsc::Receiver<String>,
    _alive: Sender<()>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        system::set_apart(&mut command);
        let mut child = testkit::spawn(&mut command).unwrap();
        let pid = child.id();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let errors = BufReader::new(child.stderr.take().unwrap());
        let child = Arc::new(Mutex::new(child));
        let (alive, watched) = channel::<()>();
        let doomed = Arc::clone(&child);
        thread::spawn(move || {
            if watched.recv_timeout(2 * DEADLINE).is_err() {
                // It may have ended meanwhile; `Child` prevents mistaking another process for it.
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

    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    /// As Ctrl-C does it.
    pub(crate) fn interrupt(&self) {
        system::interrupt(self.pid);
    }

    /// As who manages services does it.
    pub(crate) fn terminate(&self) {
        system::terminate(self.pid);
    }

    /// The number of open sockets, or of all descriptors where sockets cannot be counted.
    pub(crate) fn open(&self) -> usize {
        system::open(&self.child.lock().unwrap())
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
        // A failed test leaves nothing running.
        let mut child = self.child.lock().unwrap();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Runs the command to its end.
pub(crate) fn run(command: Command) -> Ended {
    Running::start(command).ended()
}

pub(crate) const MIB: usize = 1024 * 1024;

/// The ways in which `cport echo` serves TCP.
pub(crate) const WAYS: [&[&str]; 2] = [&[], &["--operations"]];

/// Starts `cport echo` and returns it with the address in its first line.
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

/// Repeats a call until no signal interrupts it: the system does not restart one with a timeout.
pub(crate) fn uninterrupted<R>(mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// Whether a call on a socket has timed out.
pub(crate) fn is_over_time(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
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

/// A client that waits for nothing without end.
pub(crate) fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Writes until the server takes no more; returns how much that was.
pub(crate) fn filled(stream: &mut TcpStream) -> usize {
    let (chunk, mut sent) = (content(3, MIB), 1);
    // The server has accepted once this returns. The time this takes depends on the machine.
    let begun = Instant::now();
    stream.write_all(&chunk[..1]).unwrap();
    assert_eq!(uninterrupted(|| stream.peek(&mut [0])).unwrap(), 1);
    let stall = Duration::from_millis(200).max(20 * begun.elapsed());
    stream.set_write_timeout(Some(stall)).unwrap();
    loop {
        match uninterrupted(|| stream.write(&chunk[sent % MIB..])) {
            Ok(written) => sent += written,
            Err(error) if is_over_time(&error) && sent > MIB => return sent,
            Err(error) if is_over_time(&error) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads to the end, or to a reset; returns how much came.
pub(crate) fn rest(stream: &mut TcpStream) -> usize {
    let (mut buffer, mut back) = (vec![0; 65_536], 0);
    loop {
        match uninterrupted(|| stream.read(&mut buffer)) {
            Ok(0) => return back,
            Ok(read) => back += read,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return back,
            Err(error) => panic!("{error}"),
        }
    }
}
