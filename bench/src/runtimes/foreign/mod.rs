//! Servers of other projects, each a process that is a child of the server's.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use crate::contenders::{Listening, Server, Usage};
use crate::system::Switches;

pub(super) mod nginx;
pub(super) mod redis;

/// The beginning of the reason why a contender or a check does not take part on this machine.
pub(super) const SKIPPED: &str = "skipped: ";

/// How long a program may take to listen.
const START: Duration = Duration::from_secs(10);
/// Another process may take the port that was free.
const ATTEMPTS: usize = 3;

/// A program, where it is installed.
pub(super) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Daemons are in folders that are not in everybody's PATH.
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    folders.map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// The program, or why a contender or a check that needs it is skipped.
pub(super) fn need(name: &str) -> Result<PathBuf, String> {
    find(name).ok_or_else(|| format!("{SKIPPED}{name} is not installed"))
}

/// Why a program of this version is skipped, if it is older than that. One without a number is not.
pub(super) fn too_old(version: &str, oldest: [u32; 3]) -> Option<String> {
    let is_number = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    let number = version.split_whitespace().find(is_number)?;
    let parts: Vec<u32> = number.split('.').map_while(|part| part.parse().ok()).collect();
    let [major, minor, patch] = oldest;
    (*parts < oldest[..])
        .then(|| format!("{SKIPPED}{version} is older than {major}.{minor}.{patch}"))
}

/// What a program prints when asked for its version; `None` if it is not installed.
pub(super) fn said_by(program: &str, option: &str) -> Option<String> {
    let output = Command::new(find(program)?).arg(option).stdin(Stdio::null()).output().ok()?;
    let said = [output.stdout, output.stderr].concat();
    Some(String::from_utf8_lossy(&said).trim().to_owned())
}

/// A running program. It gets SIGTERM when this is dropped, or the thread that started it ends.
pub(super) struct Foreign {
    child: Mutex<Child>,
    pid: u32,
    address: SocketAddr,
}

impl Foreign {
    /// Starts a program that listens on a free port, by a command for this port and a folder for its
    /// files. The folder is removed once the program answers.
    pub(super) fn start(
        name: &str,
        command: impl Fn(SocketAddr, &Path) -> io::Result<Command>,
    ) -> io::Result<Foreign> {
        // One process may start several simultaneously.
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = format!("cport-bench-{name}-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let mut attempt = 0;
        loop {
            attempt += 1;
            fs::create_dir_all(&folder)?;
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
            let started = command(free, &folder).and_then(|command| Self::spawn(command, free));
            let _: io::Result<()> = fs::remove_dir_all(&folder);
            match started {
                Err(_) if attempt < ATTEMPTS => {}
                started => return started,
            }
        }
    }

    fn spawn(mut command: Command, address: SocketAddr) -> io::Result<Foreign> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // SAFETY: between fork and exec, the closure may call only what is safe in a signal handler.
        // - it makes one system call, prctl(2), allocates nothing and takes no lock.
        unsafe {
            command.pre_exec(|| Ok(set_parent_process_death_signal(Some(Signal::TERM))?));
        }
        let child = command.spawn()?;
        let foreign = Foreign { pid: child.id(), child: Mutex::new(child), address };
        let deadline = Instant::now() + START;
        loop {
            let answers = answers(address);
            // If another program has taken the port, that one answers, and this one ends.
            let ended = foreign.child().try_wait()?;
            if let Some(status) = ended {
                return Err(io::Error::other(format!("ended: {status}")));
            }
            if answers {
                return Ok(foreign);
            }
            if Instant::now() > deadline {
                return Err(ErrorKind::TimedOut.into());
            }
            pause();
        }
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Its processes: the one that was started, and the children of that.
    fn processes(&self) -> io::Result<Vec<u32>> {
        let mut all = vec![self.pid];
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid))?;
        all.extend(children.split_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
        Ok(all)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        let mut child = self.child();
        // If it has been waited for, its number may belong to another process.
        if let Ok(None) = child.try_wait() {
            // Unlike SIGKILL, this ends its own children, too.
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
            let _: io::Result<_> = child.wait();
        }
    }
}

impl Server for Foreign {
    fn add(&self, _: TcpStream) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    /// It listens already, on its own port.
    fn listen(&self, _: &Listening) -> io::Result<()> {
        Ok(())
    }

    fn answer(&self, _: UdpSocket) -> io::Result<()> {
        Err(ErrorKind::Unsupported.into())
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(self.address)
    }

    fn usage(&self) -> Option<io::Result<Usage>> {
        Some(self.processes().and_then(|processes| usage_of(&processes)))
    }
}

/// Whether a server replies to a line. Redis knows the command, and nginx refuses the request.
fn answers(address: SocketAddr) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(START / 10))?;
        stream.write_all(b"PING\r\n\r\n")?;
        stream.read(&mut [0])
    };
    matches!(ask(), Ok(1))
}

/// What these processes have used so far. Threads that have ended do not count.
fn usage_of(processes: &[u32]) -> io::Result<Usage> {
    let odd = |file: &str| io::Error::other(format!("{file} has another form than expected"));
    let mut usage = Usage::default();
    let mut switches = Switches::default();
    let mut threads = 0;
    for pid in processes {
        for task in fs::read_dir(format!("/proc/{pid}/task"))? {
            let task = task?.path();
            let files = ["schedstat", "status"].map(|file| fs::read_to_string(task.join(file)));
            // The thread has ended meanwhile.
            let [Ok(times), Ok(status)] = files else { continue };
            let time = times.split_whitespace().next().and_then(|time| time.parse::<u64>().ok());
            usage.processor_time += time.ok_or_else(|| odd("schedstat"))?;
            let field = |name: &str| -> u64 {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
            };
            switches.voluntary += field("voluntary_ctxt_switches:");
            switches.involuntary += field("nonvoluntary_ctxt_switches:");
            threads += 1;
        }
        let memory = fs::read_to_string(format!("/proc/{pid}/statm"))?;
        let pages = memory.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
        usage.resident += pages.ok_or_else(|| odd("statm"))? * rustix::param::page_size() as u64;
    }
    if threads == 0 {
        return Err(io::Error::other("the kernel has no schedstat, or the process has ended"));
    }
    (usage.switches, usage.threads) = (Some(switches), Some(threads));
    Ok(usage)
}

#[allow(clippy::disallowed_methods, reason = "another process is looked at from time to time")]
fn pause() {
    std::thread::sleep(Duration::from_millis(2));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usage_of_a_process_grows_with_its_work() {
        let mut command = Command::new("sh");
        let mut child = command.args(["-c", "while :; do :; done"]).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut last = Usage::default();
        while last.processor_time < 50_000_000 {
            pause();
            let next = usage_of(&[child.id()]).unwrap();
            assert!(next.processor_time >= last.processor_time, "{next:?} {last:?}");
            assert!(Instant::now() < deadline, "{next:?}");
            last = next;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(usage_of(&[child.id()]).is_err());
        assert!(usage_of(&[]).unwrap_err().to_string().contains("no schedstat"));
        assert!(last.resident > 0 && last.threads == Some(1), "{last:?}");
    }

    #[test]
    fn a_program_that_is_too_old_is_named() {
        let lacks = |version| too_old(version, [1, 19, 5]);
        let reason = "skipped: nginx 1.18.0 (Ubuntu) is older than 1.19.5";
        assert_eq!(lacks("nginx 1.18.0 (Ubuntu)").unwrap(), reason);
        assert!(lacks("nginx 1.19.4").is_some() && lacks("nginx 0.20").is_some());
        for version in ["nginx 1.19.5", "nginx 1.19.10", "nginx 1.20", "nginx 2.0.1", "nginx"] {
            assert_eq!(lacks(version), None, "{version}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        assert_eq!(
            need("no-such-program").unwrap_err(),
            "skipped: no-such-program is not installed"
        );
        assert!(need("sh").is_ok());
        let missing = |_: SocketAddr, _: &Path| Ok(Command::new("/no/such/program"));
        assert!(Foreign::start("missing", missing).is_err());
        // It listens, and never answers.
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let accepting = std::thread::spawn(move || drop(listener.accept()));
        assert!(!answers(address));
        accepting.join().unwrap();
        let ends = |_: SocketAddr, _: &Path| Ok(Command::new("true"));
        let error = Foreign::start("ending", ends).err().unwrap();
        assert!(error.to_string().contains("ended"), "{error}");
    }
}
