//! The completion port by which a thread is counted that waits at a port of the library.

use std::cell::OnceCell;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use super::port::Port;
use crate::sys::counted::{self, Away, Calls};

/// A completion port of the kernel that lets one thread run.
pub(super) struct CountingPort(Port);

/// A thread that is counted.
pub(super) type Counted = counted::Counted<CountingPort>;

/// For how long a thread blocks that is to show whether it is counted.
const BLOCKS: Duration = Duration::from_millis(50);

thread_local! {
    /// Made when the thread first waits at a port that is to find out who sleeps.
    static OWN: OnceCell<Arc<Counted>> = const { OnceCell::new() };
}

impl CountingPort {
    fn new() -> Option<Self> {
        Port::for_threads(1).ok().map(Self)
    }
}

impl Calls for CountingPort {
    fn post(&self) -> bool {
        self.0.try_post()
    }

    fn take(&self) -> Option<bool> {
        self.0.takes_one()
    }
}

/// How often it is tried whether the system counts threads, where that could not be tried to the end.
const MOST_TRIALS: u32 = 3;

/// Whether the system counts threads at all. It is tried once, or a few times if it could not be tried to the end: in a process that
/// is short of handles, or where no thread begins. The threads that wait first are not looked at then.
pub(super) fn is_counting() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    static TRIALS: Mutex<u32> = Mutex::new(0);
    if let Some(found) = FOUND.get() {
        return *found;
    }
    let mut trials = TRIALS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = FOUND.get() {
        return *found;
    }
    *trials += 1;
    let found = counted::is_counting(CountingPort::new, || thread::park_timeout(BLOCKS));
    if found.is_some() || *trials == MOST_TRIALS {
        FOUND.get_or_init(|| found.unwrap_or(false));
    }
    found.unwrap_or(false)
}

/// The calling thread is counted from now on. `None` if the system does not count threads, or has no handle left.
pub(super) fn begin() -> Option<Arc<Counted>> {
    if !is_counting() {
        return None;
    }
    // It may have taken packets from a port of its own since it last waited.
    own().inspect(|own| own.come_back()).or_else(|| {
        let own = Arc::new(Counted::new(CountingPort::new()?));
        own.come_back();
        // A thread that is ending is not counted.
        OWN.try_with(|place| Arc::clone(place.get_or_init(|| own))).ok()
    })
}

/// The calling thread, if it is counted.
fn own() -> Option<Arc<Counted>> {
    OWN.try_with(|own| own.get().cloned()).ok().flatten()
}

/// The calling thread may take packets from any port, for as long as what is returned lives.
pub(super) fn away() -> Option<Away<CountingPort>> {
    OWN.try_with(|own| own.get().map(Away::from)).ok().flatten()
}

/// Whether a thread sleeps, or has ended; `None` if that is not known.
pub(super) fn is_asleep(thread: &Counted) -> Option<bool> {
    static NOWHERE: OnceLock<Option<CountingPort>> = OnceLock::new();
    // A port of no thread: who has none of its own goes there. Without it nothing is asked.
    let nowhere = NOWHERE.get_or_init(CountingPort::new).as_ref()?;
    thread.is_asleep(own().as_ref(), nowhere)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::sys::windows::host::is_wine;

    #[test]
    fn wine_counts_no_threads() {
        let begun = Instant::now();
        let counts = is_counting();
        let took = begun.elapsed();
        println!("the system counts the threads of completion ports: {counts}, asked for {took:?}");
        assert!(!(counts && is_wine()));
        assert_eq!(begin().is_some(), counts);
        assert_eq!(away().is_some(), counts);
    }
}
