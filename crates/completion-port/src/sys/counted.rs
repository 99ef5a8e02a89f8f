//! Whether a thread sleeps, where the system's completion ports count their threads.
//!
//! A completion port of Windows knows which of its threads can run, and hands a packet out only while fewer of them do than it
//! was made for. A thread is counted by the port that it has last taken packets from, whatever came of that, from the end of
//! its call until it blocks, ends, or goes to another port. So each thread has a port of its own, for one thread at a
//! time, and comes back to it from every call by which it takes packets elsewhere. Whether it sleeps another thread finds out
//! by a packet that stands there: it may be taken exactly if the thread sleeps.
//!
//! Who asks is counted there in its turn, until it goes back to its own port.
//!
//! A kernel that counts no threads (Wine) would say of each thread that it sleeps. So that is [tried](is_counting) before
//! anything is asked.
//!
//! The calls are made by [`Calls`]: those of the system, or of the simulated kernel.

use std::hint::spin_loop;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::sync::Mutex;

/// A completion port of the kernel that lets one thread run.
pub(crate) trait Calls: Send + Sync + 'static {
    /// Puts a packet into it; false if there is no memory for one.
    fn post(&self) -> bool;

    /// Takes a packet if there is one and no thread runs that the port counts beside the calling one: whether it has. Does
    /// not wait. From now on the port counts the calling thread, and no other port does; or, if the call has failed, that is
    /// not known, and it returns `None`.
    fn take(&self) -> Option<bool>;
}

/// The thread is counted by its port, and has taken packets from no other one since.
const HERE: u32 = 1;

/// A thread that is counted by a port of its own.
#[derive(Debug)]
pub(crate) struct Counted<P> {
    port: P,
    /// How often the thread has gone to other ports, times two, and [`HERE`] if it has come back since. It wraps. Only the thread itself changes it.
    rounds: AtomicU32,
    /// A packet stands in the port, or is just being put there or taken. There is never a second one.
    stands: AtomicBool,
    /// Held by the thread that asks: a second one would be answered that a thread runs, which is the first one.
    asking: Mutex<()>,
}

impl<P: Calls> Counted<P> {
    pub(crate) fn new(port: P) -> Self {
        Self {
            port,
            rounds: AtomicU32::new(0),
            stands: AtomicBool::new(false),
            asking: Mutex::new(()),
        }
    }

    #[cfg(test)]
    pub(crate) fn port(&self) -> &P {
        &self.port
    }

    /// The thread has come from another port, and is counted from now on. Only the thread itself calls it.
    pub(crate) fn come_back(&self) {
        // Nothing is known of it if that has failed.
        let Some(has_taken) = self.port.take() else { return };
        if has_taken {
            self.stands.store(false, SeqCst);
        }
        self.rounds.fetch_or(HERE, SeqCst);
    }

    /// The thread is about to take packets from another port, and nothing is known of it until it comes back. Only
    /// the thread itself calls it.
    pub(crate) fn go(&self) {
        let rounds = self.rounds.load(SeqCst) & !HERE;
        self.rounds.store(rounds.wrapping_add(2), SeqCst);
    }

    /// Whether the thread sleeps, or has ended; `None` if that is not known. The caller is counted by its port afterwards,
    /// and must leave it at once.
    fn ask(&self) -> Option<bool> {
        let rounds = self.rounds.load(SeqCst);
        if rounds & HERE == 0 {
            return None;
        }
        if !self.stands.swap(true, SeqCst) && !self.port.post() {
            self.stands.store(false, SeqCst);
            return None;
        }
        let sleeps = self.port.take()?;
        if sleeps {
            self.stands.store(false, SeqCst);
        }
        // It may have gone meanwhile, and even have come back: then the packet could be taken since it was away.
        (self.rounds.load(SeqCst) == rounds).then_some(sleeps)
    }

    /// The same, and the caller leaves the port: for the one that counts itself, or for `nowhere` if none does.
    pub(crate) fn is_asleep(&self, own: Option<&Arc<Self>>, nowhere: &impl Calls) -> Option<bool> {
        let one_at_a_time = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        let told = {
            let _away = own.map(Away::from);
            let told = self.ask();
            if own.is_none() {
                let _ = nowhere.take();
            }
            told
        };
        drop(one_at_a_time);
        told
    }
}

/// While it lives, the calling thread may take packets from any port.
#[derive(Debug)]
pub(crate) struct Away<P: Calls>(Arc<Counted<P>>);

impl<P: Calls> From<&Arc<Counted<P>>> for Away<P> {
    /// `own` is that of the calling thread.
    fn from(own: &Arc<Counted<P>>) -> Self {
        own.go();
        Self(Arc::clone(own))
    }
}

impl<P: Calls> Drop for Away<P> {
    fn drop(&mut self) {
        self.0.come_back();
    }
}

/// How long it is tried at most whether a kernel counts threads. A busy machine needs some of it; one that counts none shows it
/// as soon as the other thread has begun.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often it is tried: a thread that is to spin may meet a page that is not in memory, and blocks for that.
const ATTEMPTS: usize = 3;

/// Whether a kernel counts threads, as is tried by a new `port` each time: a packet is held back as long as another thread
/// spins, and is there when that has blocked, which it does by `block`. `None` if it could not be tried to the end.
///
/// The other thread may not come to run at all, as long as the caller holds a lock of the system that each thread takes when
/// it begins. So it is waited for no longer than a while, and not waited for in the end.
pub(crate) fn is_counting<P: Calls>(
    mut port: impl FnMut() -> Option<P>,
    block: impl Fn() + Clone + Send + 'static,
) -> Option<bool> {
    let end = Instant::now() + PATIENCE;
    for _ in 0..ATTEMPTS {
        if is_counted(&Arc::new(port()?), block.clone(), end)? {
            return Some(true);
        }
    }
    Some(false)
}

/// Spins, and lets others run, until something is so, or the time is over: then it is false.
fn is_soon(end: Instant, is_so: impl Fn() -> bool) -> bool {
    while !is_so() {
        if Instant::now() >= end {
            return false;
        }
        thread::yield_now();
    }
    true
}

fn is_counted<P: Calls>(
    port: &Arc<P>,
    block: impl FnOnce() + Send + 'static,
    end: Instant,
) -> Option<bool> {
    let (is_there, may_block) =
        (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let begun = thread::Builder::new().name("port-probe".to_owned()).spawn({
        let (port, is_there, may_block) =
            (Arc::clone(port), Arc::clone(&is_there), Arc::clone(&may_block));
        move || {
            let _ = port.take();
            is_there.store(true, SeqCst);
            while !may_block.load(SeqCst) && Instant::now() < end {
                spin_loop();
            }
            block();
        }
    });
    if begun.is_err() || !is_soon(end, || is_there.load(SeqCst)) || !port.post() {
        may_block.store(true, SeqCst);
        return None;
    }
    let is_held_back = port.take().map(|has_taken| !has_taken);
    may_block.store(true, SeqCst);
    // One that is held back for good, though the thread has blocked, shows as little as one that was not.
    Some(is_held_back? && is_soon(end, || port.take() == Some(true)))
}

#[cfg(test)]
mod tests {
    use std::sync::{OnceLock, Weak};

    use super::*;

    /// A port whose thread goes to another one and comes back just when it is asked about.
    #[derive(Default)]
    struct Moves {
        whose: OnceLock<Weak<Counted<Moves>>>,
        is_asked: AtomicBool,
        has_memory: AtomicBool,
        fails: AtomicBool,
    }

    impl Calls for Moves {
        fn post(&self) -> bool {
            self.has_memory.load(SeqCst)
        }

        fn take(&self) -> Option<bool> {
            if self.fails.load(SeqCst) {
                return None;
            }
            if !self.is_asked.swap(false, SeqCst) {
                return Some(false);
            }
            let whose = self.whose.get().unwrap().upgrade().unwrap();
            whose.go();
            whose.come_back();
            // Taken while it was away.
            Some(true)
        }
    }

    fn counted() -> Arc<Counted<Moves>> {
        let counted = Arc::new(Counted::new(Moves::default()));
        counted.port.whose.set(Arc::downgrade(&counted)).unwrap();
        counted.come_back();
        counted
    }

    #[test]
    fn a_thread_that_was_away_for_a_moment_is_not_said_to_sleep() {
        let counted = counted();
        counted.port.has_memory.store(true, SeqCst);
        let nowhere = Moves::default();
        assert_eq!(counted.is_asleep(None, &nowhere), Some(false));
        counted.port.is_asked.store(true, SeqCst);
        assert_eq!(counted.is_asleep(None, &nowhere), None);
    }

    #[test]
    fn nothing_is_known_of_a_thread_that_could_not_come_back() {
        let counted = counted();
        counted.port.has_memory.store(true, SeqCst);
        counted.go();
        counted.port.fails.store(true, SeqCst);
        counted.come_back();
        counted.port.fails.store(false, SeqCst);
        let nowhere = Moves::default();
        assert_eq!(counted.is_asleep(None, &nowhere), None);
        counted.come_back();
        assert_eq!(counted.is_asleep(None, &nowhere), Some(false));
    }

    #[test]
    fn a_kernel_that_could_not_be_tried_is_not_said_to_count_no_threads() {
        assert_eq!(is_counting(|| None::<Moves>, || {}), None);
        // No packet can be posted.
        assert_eq!(is_counting(|| Some(Moves::default()), || {}), None);
    }

    #[test]
    fn a_system_short_of_memory_tells_nothing_and_is_asked_again() {
        let counted = counted();
        let nowhere = Moves::default();
        assert_eq!(counted.is_asleep(None, &nowhere), None);
        counted.port.has_memory.store(true, SeqCst);
        assert_eq!(counted.is_asleep(None, &nowhere), Some(false));
    }
}
