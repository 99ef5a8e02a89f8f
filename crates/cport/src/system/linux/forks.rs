//! A parent's port in a forked child.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use completion_port::{Interest, OneShot, Registration};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};

use crate::probe::kit::{QUIET, Seen, outcome, plain, soon, wait};

/// After this many seconds, a signal ends the child: its parent may be gone.
const STUCK: u32 = 120;

/// The child calls its parent's port, and creates its own.
pub(crate) fn forked() -> Seen {
    let port = plain()?;
    let (mut near, far) = UnixStream::pair()?;
    port.register(Registration::new(&far, 1, Interest::IN, OneShot::Level))?;
    port.post(1)?;
    let mut child = match fork()? {
        Side::Parent(child) => child,
        Side::Child(to_parent) => to_parent.tell(|| {
            let (error, message) = match port.post(2) {
                Ok(()) => return Ok("posted".to_owned()),
                Err(refused) => refused.into_parts(),
            };
            let waited = outcome(wait(&port, QUIET));
            drop(port);
            let own = plain()?;
            own.post(3)?;
            let own = wait(&own, soon())?;
            Ok(format!("{:?}, {message} back, {waited}; its own: {own}", error.kind()))
        }),
    };
    let told = child.hear(soon())?;
    let posted = wait(&port, soon())?;
    near.write_all(b"x")?;
    Ok(format!("{told}; the parent: {posted}, {}", wait(&port, soon())?))
}

/// The process in which [`fork`] has returned.
enum Side {
    Parent(Child),
    Child(ToParent),
}

/// A forked child, which reports its observation and ends.
struct Child {
    process: Option<Pid>,
    words: UnixStream,
}

/// The connection from a child to its parent.
struct ToParent(UnixStream);

/// Forks this process. The child may call only the library, which promises not to hang there, and
/// the allocator, which the C library makes usable.
fn fork() -> io::Result<Side> {
    let (words, from_child) = UnixStream::pair()?;
    // SAFETY: fork(2) in a process with threads demands that the child calls only what is safe in a
    // signal handler, until it ends.
    // - safe calls: the child runs only `ToParent::tell`, see above; everything else it does is a
    //   system call.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            // SAFETY: alarm(2) demands nothing.
            unsafe { libc::alarm(STUCK) };
            Ok(Side::Child(ToParent(from_child)))
        }
        process => {
            let process = Pid::from_raw(process).expect("the number of a child is above zero");
            Ok(Side::Parent(Child { process: Some(process), words }))
        }
    }
}

impl ToParent {
    /// Reports the observation of `act` to the parent, and ends the process without running exit
    /// handlers.
    fn tell(mut self, act: impl FnOnce() -> Seen) -> ! {
        // The child must not also run the code of the parent that called this.
        let told = catch_unwind(AssertUnwindSafe(|| {
            let seen = act().unwrap_or_else(|error| format!("an error in the child: {error}"));
            // The parent sees it if nothing arrives.
            let _ = self.0.write_all(seen.as_bytes());
        }));
        // Another thread's child may have inherited this end and would keep it open.
        let _ = self.0.shutdown(Shutdown::Write);
        // SAFETY: _exit(2) demands nothing.
        unsafe { libc::_exit(i32::from(told.is_err())) }
    }
}

impl Child {
    /// Waits for the child's report, for at most the limit.
    fn hear(&mut self, limit: Duration) -> Seen {
        self.words.set_read_timeout(Some(limit))?;
        let mut words = String::new();
        match self.words.read_to_string(&mut words) {
            Ok(0) => Ok("nothing: the child broke down".to_owned()),
            Ok(_) => Ok(words),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Ok("nothing: the child is stuck".to_owned())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends the child, which has reported or is stuck.
    fn end(&mut self) -> Option<WaitStatus> {
        // The system keeps its number until it is waited for.
        let process = self.process.take()?;
        let _ = kill_process(process, Signal::KILL);
        waitpid(Some(process), WaitOptions::empty()).ok()?.map(|(_, status)| status)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(act: impl FnOnce() -> Seen) -> String {
        match fork().unwrap() {
            Side::Parent(mut child) => child.hear(soon()).unwrap(),
            Side::Child(to_parent) => to_parent.tell(act),
        }
    }

    #[test]
    fn a_child_says_what_it_has_seen() {
        assert_eq!(heard(|| Ok("this".to_owned())), "this");
        assert_eq!(heard(|| Err("that".into())), "an error in the child: that");
    }

    #[test]
    fn a_child_that_breaks_down_or_is_stuck_is_found_out_and_ended() {
        // A panic would take locks to print its message.
        let broken = heard(|| std::panic::resume_unwind(Box::new(())));
        assert_eq!(broken, "nothing: the child broke down");
        let mut stuck = match fork().unwrap() {
            Side::Parent(child) => child,
            Side::Child(to_parent) => to_parent.tell(|| {
                loop {
                    std::thread::park();
                }
            }),
        };
        assert_eq!(stuck.hear(QUIET).unwrap(), "nothing: the child is stuck");
        // Not by its own alarm.
        let signal = stuck.end().unwrap().terminating_signal();
        assert_eq!(signal, Some(Signal::KILL.as_raw()));
    }
}
