//! A thread that can be parked, and observed through `/proc`.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::blocked::Switches;
use super::clock;
use super::process::Process;
use crate::backend::thread::Thread;
use crate::state::facts::Presence;
use crate::sys::unix::parking::Parking;

/// The thread that called [`Current::new`].
pub(super) struct Current {
    id: libc::c_long,
    parking: Parking,
    /// `/proc/self/task/TID/stat`. The thread opens it when it joins, since no descriptor may be
    /// available when another thread queries it. If that failed, the query opens it.
    stat: OnceLock<Arc<File>>,
    process: Process,
    /// The scheduler's records, once the thread is observed.
    switches: OnceLock<Switches>,
}

impl Current {
    pub(super) fn new(process: Process) -> Self {
        // SAFETY: gettid(2) has no requirements. Called by number, since the C library's function
        // is newer (glibc 2.30).
        let id = unsafe { libc::syscall(libc::SYS_gettid) };
        Self {
            id,
            parking: Parking::default(),
            stat: OnceLock::new(),
            process,
            switches: OnceLock::new(),
        }
    }
}

thread_local! {
    /// The `stat` that the calling thread opened at its last port, and the process that opened it.
    /// A thread that changes ports reuses it.
    static STAT: RefCell<Option<(Process, Weak<File>)>> = const { RefCell::new(None) };
}

fn stat_of(thread: libc::c_long) -> io::Result<Arc<File>> {
    File::open(format!("/proc/self/task/{thread}/stat")).map(Arc::new)
}

impl Thread for Current {
    fn park(&self, timeout: Option<Duration>) {
        self.parking.park(timeout);
    }

    fn unpark(&self) {
        self.parking.unpark();
    }

    fn number(&self) -> Option<u64> {
        u64::try_from(self.id).ok()
    }

    fn prepare(&self) {
        let known = STAT.try_with(|stat| {
            let known = stat.borrow();
            let (process, stat) = known.as_ref()?;
            if process.is_current() { stat.upgrade() } else { None }
        });
        let Some(stat) = known.ok().flatten().or_else(|| stat_of(self.id).ok()) else { return };
        let _ = STAT.try_with(|kept| kept.replace(Some((self.process, Arc::downgrade(&stat)))));
        let _ = self.stat.set(stat);
    }

    fn asleep(&self) -> Option<bool> {
        let stat = match self.stat.get() {
            Some(stat) => stat,
            None => match stat_of(self.id) {
                Ok(file) => self.stat.get_or_init(|| file),
                // The thread has ended and will not run again, unless there is no `/proc` at all.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Path::new("/proc/self/task").exists().then_some(true);
                }
                // For example, no descriptor is available. The next query tries again.
                Err(_) => return None,
            },
        };
        let mut line = [0; 128];
        match stat.read_at(&mut line, 0) {
            Ok(read) => state_of(&line[..read]).map(|state| matches!(state, b'S' | b'D')),
            // The thread has ended and will not run again.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Some(true),
            Err(_) => None,
        }
    }

    fn processor_time(&self) -> Option<Duration> {
        clock::processor_time(self.id)
    }

    fn observe(&self) -> bool {
        if self.switches.get().is_none() {
            let Ok(switches) = Switches::of(self.id, self.process) else { return false };
            // If another thread was faster, these are dropped.
            let _ = self.switches.set(switches);
        }
        true
    }

    fn read_record(&self) -> Option<Presence> {
        match self.switches.get()?.newest()? {
            // The record has the time of the machine's clock. In a time namespace this process's
            // clock can show an earlier time. The record then does not show how long the thread has
            // slept.
            Presence::Asleep { since } if since > clock::now() => None,
            presence => Some(presence),
        }
    }
}

/// Returns the state letter of a line of proc_pid_stat(5).
///
/// It follows the command's name, which is in parentheses and may itself contain any character.
fn state_of(line: &[u8]) -> Option<u8> {
    let end_of_name = line.iter().rposition(|byte| *byte == b')')?;
    line.get(end_of_name + 2).copied()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn processor_time_grows_while_a_thread_runs_and_only_then() {
        let (asks, asked) = mpsc::channel();
        let (goes_on, goes) = mpsc::channel::<()>();
        let worker = thread::spawn(move || {
            let current = Arc::new(Current::new(Process::current()));
            let begun = current.processor_time().unwrap();
            let runs = || current.processor_time().unwrap() < begun + Duration::from_millis(2);
            while runs() {
                std::hint::spin_loop();
            }
            asks.send(Arc::clone(&current)).unwrap();
            goes.recv().unwrap();
        });
        let current = asked.recv().unwrap();
        while current.asleep() != Some(true) {
            thread::yield_now();
        }
        let slept = current.processor_time();
        assert!(slept > Some(Duration::from_millis(2)));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(5) {
            assert_eq!(current.processor_time(), slept, "it sleeps");
        }
        goes_on.send(()).unwrap();
        worker.join().unwrap();
        // The kernel may take a moment to end it after the join.
        let begun = Instant::now();
        while current.processor_time().is_some() {
            assert!(begun.elapsed() < Duration::from_secs(10), "it has ended");
            thread::yield_now();
        }
    }

    #[test]
    fn the_state_is_found_behind_any_name() {
        assert_eq!(state_of(b"17 (worker) S 1 17 17 0"), Some(b'S'));
        assert_eq!(state_of(b"17 (a) R (b) R 1 17"), Some(b'R'));
        assert_eq!(state_of(b"17 (cut"), None);
        assert_eq!(state_of(b""), None);
    }
}
