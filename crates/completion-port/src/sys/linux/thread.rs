//! A thread that can be parked, and looked at through `/proc`.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use super::blocked::Switches;
use super::clock::{self, Timer};
use super::process::Process;
use crate::state::facts::Presence;
use crate::state::moment::Moment;
use crate::sys::thread::Thread;

/// The calling thread.
///
/// Not the standard library's `park`: its one token for each thread is the user's, whose own
/// `unpark` would be swallowed here.
pub(super) struct Current {
    id: libc::c_long,
    state: Mutex<State>,
    given: Condvar,
    /// What the thread naps by, made for its first nap: a thread that never watches has none.
    timer: OnceLock<Timer>,
    /// `/proc/self/task/TID/stat`, opened when the thread joins, since there may be no descriptor left when
    /// somebody looks; only then if there was none before.
    stat: OnceLock<Arc<File>>,
    process: Process,
    /// The scheduler's records, once somebody wants them.
    switches: OnceLock<Switches>,
}

#[derive(Default)]
struct State {
    /// Whether the next `park` or `nap` returns at once.
    token: bool,
    /// In a nap, which can be postponed until then.
    nap: Option<Moment>,
}

impl Current {
    pub(super) fn new(process: Process) -> Self {
        // SAFETY: gettid(2) demands nothing. By its number, since the C library's function is younger
        // (glibc 2.30).
        let id = unsafe { libc::syscall(libc::SYS_gettid) };
        Self {
            id,
            state: Mutex::default(),
            given: Condvar::new(),
            timer: OnceLock::new(),
            stat: OnceLock::new(),
            process,
            switches: OnceLock::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn timer(&self) -> Option<&Timer> {
        if self.timer.get().is_none() {
            // Only the thread itself makes one.
            let _ = self.timer.set(Timer::new()?);
        }
        self.timer.get()
    }
}

thread_local! {
    /// The calling thread's `stat` of the port that it was last at, and the process that has opened it: to be
    /// used again by one that goes from port to port.
    static STAT: RefCell<Option<(Process, Weak<File>)>> = const { RefCell::new(None) };
}

fn stat_of(thread: libc::c_long) -> io::Result<Arc<File>> {
    File::open(format!("/proc/self/task/{thread}/stat")).map(Arc::new)
}

impl Thread for Current {
    fn park(&self, timeout: Option<Duration>) {
        let mut state = self.state();
        if !state.token {
            // Waking for no reason is allowed: the caller looks again.
            state = match timeout {
                None => self.given.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(timeout) => {
                    let woken = self.given.wait_timeout(state, timeout);
                    woken.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        state.token = false;
    }

    fn nap(&self, until: Moment, last: Option<Moment>) {
        let last = last.unwrap_or(Moment::LAST);
        let until = until.min(last);
        let mut state = self.state();
        // Under the lock, as every other change of the timer: none is lost.
        let Some(timer) = self.timer().filter(|timer| timer.set(until)) else {
            drop(state);
            return self.park(Some(until.since(clock::now())));
        };
        if !state.token {
            state.nap = Some(last);
            drop(state);
            timer.wait();
            state = self.state();
            state.nap = None;
        }
        state.token = false;
    }

    fn postpone(&self, until: Moment) {
        let state = self.state();
        if let (State { token: false, nap: Some(last) }, Some(timer)) = (&*state, self.timer.get())
        {
            timer.set(until.min(*last));
        }
    }

    fn unpark(&self) {
        let mut state = self.state();
        state.token = true;
        match (state.nap, self.timer.get()) {
            (Some(_), Some(timer)) => {
                // Not refused: it was not when the nap began.
                timer.set(Moment::ZERO);
            }
            _ => self.given.notify_one(),
        }
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
                // It has ended, and will not run again; unless there is no `/proc` at all.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    return Path::new("/proc/self/task").exists().then_some(true);
                }
                // No descriptor left, for instance: tried again next time.
                Err(_) => return None,
            },
        };
        let mut line = [0; 128];
        match stat.read_at(&mut line, 0) {
            Ok(read) => state_of(&line[..read]).map(|state| matches!(state, b'S' | b'D')),
            // It has ended, and will not run again.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Some(true),
            Err(_) => None,
        }
    }

    fn observe(&self) -> bool {
        if self.switches.get().is_none() {
            let Ok(switches) = Switches::of(self.id, self.process) else { return false };
            // Should another thread have been faster, these are given up.
            let _ = self.switches.set(switches);
        }
        true
    }

    fn glance(&self) -> Option<Presence> {
        match self.switches.get()?.newest()? {
            // The record is stamped by the clock of the machine, and this process has a time namespace in
            // which the clock is behind: how long it has slept the record does not tell.
            Presence::Asleep { since } if since > clock::now() => None,
            presence => Some(presence),
        }
    }
}

/// The state's letter in a line of proc_pid_stat(5): the first field behind the command's name, which
/// stands in brackets and may itself have any character in it.
fn state_of(line: &[u8]) -> Option<u8> {
    let end_of_name = line.iter().rposition(|byte| *byte == b')')?;
    line.get(end_of_name + 2).copied()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
    use std::sync::mpsc;
    use std::thread;

    use super::super::clock::now;
    use super::*;

    /// Lets a thread nap, and returns how long it did.
    fn nap(
        until: Duration,
        last: Option<Duration>,
        meanwhile: impl FnOnce(&Current, Moment),
    ) -> Duration {
        let begun = now();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let napping = scope.spawn(move || {
                let current = Arc::new(Current::new(Process::current()));
                say.send(Arc::clone(&current)).unwrap();
                current.nap(begun + until, last.map(|last| begun + last));
                now().since(begun)
            });
            let current = heard.recv().unwrap();
            while current.state().nap.is_none() && !napping.is_finished() {
                thread::yield_now();
            }
            meanwhile(&current, begun);
            napping.join().unwrap()
        })
    }

    const SOON: Duration = Duration::from_millis(20);
    const LATER: Duration = Duration::from_millis(60);
    const NEVER: Duration = Duration::from_secs(1000);

    #[test]
    fn a_nap_ends_when_it_was_to() {
        assert!(nap(SOON, None, |_, _| {}) >= SOON);
        assert!(nap(NEVER, Some(SOON), |_, _| {}) >= SOON);
    }

    #[test]
    fn a_nap_that_is_postponed_lasts_longer() {
        let mut in_time = false;
        while !in_time {
            let napped = nap(SOON, None, |current, begun| {
                current.postpone(begun + LATER);
                in_time = now() < begun + SOON;
            });
            assert!(!in_time || napped >= LATER);
        }
    }

    #[test]
    fn a_nap_is_not_postponed_beyond_its_last_moment() {
        let napped = nap(SOON, Some(LATER), |current, begun| current.postpone(begun + NEVER));
        assert!((SOON..NEVER).contains(&napped));
    }

    #[test]
    fn a_napping_thread_is_unparked_and_nothing_postpones_that() {
        let unparked = |current: &Current, begun| {
            current.unpark();
            current.postpone(begun + NEVER);
        };
        assert!(nap(NEVER, None, unparked) < NEVER);
    }

    #[test]
    fn who_was_unparked_does_not_nap() {
        let current = Current::new(Process::current());
        current.unpark();
        current.nap(now() + NEVER, None);
        assert!(!current.state().token, "once");
    }

    /// Whoever unparks is heard, whatever others do to the nap meanwhile.
    #[test]
    fn no_unpark_is_lost_among_naps_that_are_postponed() {
        const TIMES: u32 = 2_000;
        let current = Current::new(Process::current());
        let (woken, over) = (AtomicU32::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while woken.load(SeqCst) < TIMES {
                    current.nap(now() + NEVER, None);
                    // More often than it was unparked would be allowed, but not seldom.
                    woken.fetch_add(1, SeqCst);
                }
                over.store(true, SeqCst);
            });
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    current.postpone(now() + NEVER);
                }
            });
            while !over.load(SeqCst) {
                let before = woken.load(SeqCst);
                current.unpark();
                while woken.load(SeqCst) == before && !over.load(SeqCst) {
                    std::hint::spin_loop();
                }
            }
        });
    }

    #[test]
    fn the_state_is_found_behind_any_name() {
        assert_eq!(state_of(b"17 (worker) S 1 17 17 0"), Some(b'S'));
        assert_eq!(state_of(b"17 (a) R (b) R 1 17"), Some(b'R'));
        assert_eq!(state_of(b"17 (cut"), None);
        assert_eq!(state_of(b""), None);
    }
}
