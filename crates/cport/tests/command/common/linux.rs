//! Signals, limits and terminals of Linux.

use std::fs;
use std::io::Read as _;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{DEADLINE, uninterrupted};

/// Signals are for one process: it need not be set apart.
pub(super) fn set_apart(_command: &mut Command) {}

pub(super) fn interrupt(process: u32) {
    send(process, Signal::INT);
}

pub(super) fn terminate(process: u32) {
    send(process, Signal::TERM);
}

pub(crate) fn send(process: u32, signal: Signal) {
    let process = i32::try_from(process).ok().and_then(Pid::from_raw).unwrap();
    kill_process(process, signal).unwrap();
}

/// How many sockets a process has.
pub(super) fn open(child: &Child) -> usize {
    let all = fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    // One that is closed meanwhile has no name any more.
    let names = all.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    names.filter(|name| name.to_string_lossy().starts_with("socket:")).count()
}

/// The command that is tested, with at most `limit` descriptors. What the test runner leaves open is closed.
pub(crate) fn cport_limited(limit: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new("sh");
    let closed = (3..10).map(|number| format!(" {number}>&-")).collect::<String>();
    // Closed first: where there is a limit the shell has no room to close one for a single command.
    let script = format!("exec{closed}; ulimit -n {limit} && exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_cport")]).args(arguments);
    command
}

/// How often a test looks whether something has happened.
const LOOK: Duration = Duration::from_millis(2);

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
        // It holds the terminal's other end, which would keep the output open.
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

    /// Waits until the output is as wanted.
    pub(crate) fn wait_until(&self, wanted: &str, is_so: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !is_so(&self.text()) {
            assert!(begun.elapsed() < DEADLINE, "{wanted:?} is not in {}", self.text());
            thread::park_timeout(LOOK);
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    /// Waits for the end. No line was wider than the terminal, whatever was written over.
    pub(crate) fn ended(mut self) -> (ExitStatus, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < DEADLINE, "it does not end: {}", self.text());
            thread::park_timeout(LOOK);
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
