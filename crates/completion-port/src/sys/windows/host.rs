//! The process: its clock, its table of sockets, its threads.

use std::sync::OnceLock;
use std::time::Instant;

use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleA, GetProcAddress};

use super::afd::Afd;
use super::thread::Current;
use crate::backend::host::{Host, Origin};
use crate::backend::thread::Thread;
use crate::state::moment::Moment;
use crate::state::table::Descriptors;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;

/// Returns the time since its first use.
///
/// The standard library reads the performance counter for it.
pub(super) fn now() -> Moment {
    static BEGIN: OnceLock<Instant> = OnceLock::new();
    let elapsed = BEGIN.get_or_init(Instant::now).elapsed();
    // Zero is the moment before all others.
    Moment::from_nanoseconds(1) + elapsed
}

/// Returns whether the system is Wine, which may lose the result of a call.
pub(super) fn is_wine() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        // SAFETY: GetModuleHandleA reads a name that ends with a zero.
        let library = unsafe { GetModuleHandleA(c"ntdll.dll".as_ptr().cast()) };
        // SAFETY: GetProcAddress requires a loaded library, and reads a name that ends with a zero.
        // - every process has this library loaded; a null handle would mean the program itself.
        unsafe { GetProcAddress(library, c"wine_get_version".as_ptr().cast()) }.is_some()
    })
}

/// Returns the table of which port of the process has which socket.
fn descriptors() -> &'static Descriptors {
    static TABLE: OnceLock<Descriptors> = OnceLock::new();
    TABLE.get_or_init(Descriptors::new)
}

impl Host for Afd {
    fn now(&self) -> Moment {
        now()
    }

    fn this_thread(&self) -> Box<dyn Thread> {
        Box::new(Current::new())
    }

    fn can_observe(&self) -> Result<(), Fault> {
        // Only administrators can read the scheduler's records, through a trace of the whole
        // system.
        Err(Fault { kind: ErrorKind::Unsupported, code: None })
    }

    fn origin(&self) -> Origin {
        // No process is a copy of another one here. Querying the number only reads the thread's own
        // block.
        Origin::by_number()
    }

    fn descriptors(&self) -> &Descriptors {
        descriptors()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_does_not_go_back() {
        let mut last = now();
        for _ in 0..1000 {
            let next = now();
            assert!(next >= last);
            last = next;
        }
    }
}
