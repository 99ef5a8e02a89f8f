//! Distinguishes a forked child from its parent, and owns the state of one process.
//!
//! A page that the kernel wipes in a forked child (`MADV_WIPEONFORK` of madvise(2)) points to the
//! process's table of descriptors. In a child the page is empty until the child makes a port, and
//! then points to the child's own table. The parent's table names the parent's ports, and may have
//! been locked when it was copied.

use std::ptr;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use crate::backend::host::Origin;
use crate::state::table::Descriptors;

/// The state of one process. Made once per process and never freed.
struct ProcessResources {
    descriptors: Descriptors,
}

/// A second pointer to the newest state, for leak detectors, which do not scan the page. No code
/// reads it.
#[used]
static NEWEST: AtomicPtr<ProcessResources> = AtomicPtr::new(ptr::null_mut());

/// Identifies a process. All zeros until the process makes a port.
struct ProcessIdentity {
    belongings: AtomicPtr<ProcessResources>,
    /// A number that differs between processes: the address of its `ProcessResources`. A child has a copy
    /// of its parent's, so its own lie at another address.
    mark: AtomicUsize,
}

/// The page that is wiped on fork, or null until it is made.
static PAGE: AtomicPtr<ProcessIdentity> = AtomicPtr::new(ptr::null_mut());

/// Used if the kernel is too old to wipe a page (before 4.14). Forks are not noticed then.
static FALLBACK: ProcessIdentity =
    ProcessIdentity { belongings: AtomicPtr::new(ptr::null_mut()), mark: AtomicUsize::new(0) };

const SIZE: usize = 4096;

/// The process that made a port.
#[derive(Clone, Copy)]
pub(super) struct Process {
    belongings: &'static ProcessResources,
    /// Holds the mark of the running process.
    place: &'static ProcessIdentity,
}

fn map_page() -> Option<*mut ProcessIdentity> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: mmap(2) requires a valid combination of arguments, and replaces no mapping unless
    // asked to.
    // - a private anonymous mapping needs no descriptor, and no address is passed.
    let page = unsafe {
        libc::mmap(ptr::null_mut(), SIZE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if page == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: madvise(2) requires a mapped range of whole pages.
    // - it is the range mapped above; the kernel rounds the length up to whole pages.
    let advised = unsafe { libc::madvise(page, SIZE, libc::MADV_WIPEONFORK) };
    if advised != 0 {
        unmap(page);
        return None;
    }
    Some(page.cast())
}

fn unmap(page: *mut libc::c_void) {
    // SAFETY: munmap(2) requires that nothing uses the range any more.
    // - the caller has just mapped it and passed it to nothing else.
    unsafe { libc::munmap(page, SIZE) };
}

/// Returns the identity of this process.
///
/// It takes no lock: another thread of the parent might have held it at the fork.
fn place() -> &'static ProcessIdentity {
    if !FALLBACK.belongings.load(Acquire).is_null() {
        // Once the fallback has been used, every port uses it, so there is one table.
        return &FALLBACK;
    }
    let mut page = PAGE.load(Acquire);
    if page.is_null() {
        let Some(made) = map_page() else { return &FALLBACK };
        match PAGE.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
            Ok(_) => page = made,
            Err(other) => {
                unmap(made.cast());
                page = other;
            }
        }
    }
    // SAFETY: a shared reference requires memory that is valid, initialized and only changed as its
    // type allows.
    // - valid and initialized: the mapping is zeroed, which is a null pointer and a zero. It starts
    //   at a page, which suits any type, is longer than a `ProcessIdentity`, and is never unmapped;
    // - only atomic operations access it; the kernel wipes it only in a process that has no other
    //   thread yet.
    unsafe { &*page }
}

impl Process {
    /// Returns this process.
    pub(super) fn current() -> Self {
        let place = place();
        let mut belongings = place.belongings.load(Acquire);
        if belongings.is_null() {
            let made =
                Box::into_raw(Box::new(ProcessResources { descriptors: Descriptors::new() }));
            match place.belongings.compare_exchange(ptr::null_mut(), made, AcqRel, Acquire) {
                Ok(_) => {
                    NEWEST.store(made, Release);
                    belongings = made;
                }
                Err(other) => {
                    // SAFETY: `from_raw` requires a pointer from `into_raw` that nothing else uses.
                    // - it was made above and not published.
                    drop(unsafe { Box::from_raw(made) });
                    belongings = other;
                }
            }
        }
        // Every thread stores the same value.
        place.mark.store(belongings.addr(), Relaxed);
        // SAFETY: a shared reference requires a valid object that nothing changes.
        // - `into_raw` made the published object, in this process or in a parent whose memory this
        //   one has a copy of; it is never freed and only changed through its locks.
        let belongings = unsafe { &*belongings };
        Self { belongings, place }
    }

    /// Returns whether this is the running process and not a parent of it.
    ///
    /// Always true if the kernel cannot wipe pages.
    #[inline]
    pub(super) fn is_current(self) -> bool {
        ptr::eq(self.place.belongings.load(Acquire), self.belongings)
    }

    /// Returns the identity in a form that the engine can check.
    pub(super) fn origin(self) -> Origin {
        Origin::Marked(&self.place.mark, ptr::from_ref(self.belongings).addr())
    }

    /// Returns whether a fork would be noticed.
    pub(super) fn notices_forks(self) -> bool {
        !ptr::eq(self.place, &raw const FALLBACK)
    }

    /// Returns the table of which port of the process has which descriptor.
    pub(super) fn descriptors(self) -> &'static Descriptors {
        &self.belongings.descriptors
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::sync::mpsc::{self, RecvTimeoutError};
    use std::thread;
    use std::time::Duration;

    use super::{FALLBACK, Process};
    use crate::state::table::{Descriptors, Holder};
    use crate::sys::linux::blocked::Switches;
    use crate::types::source::Descriptor;

    #[test]
    fn where_forks_are_not_noticed_there_are_no_records_of_switches() {
        // A forked child would read from a mapping that it does not have.
        let process = Process { place: &FALLBACK, ..Process::current() };
        assert!(!process.notices_forks());
        let refused = Switches::of(0, process).map(drop).map_err(|error| error.kind());
        assert_eq!(refused, Err(ErrorKind::Unsupported));
    }

    /// A port whose set has every descriptor.
    struct Port;

    impl Holder for Port {
        fn watches(&self, _descriptor: Descriptor, _name: u64) -> bool {
            true
        }

        fn is_live(&self, _name: u64) -> bool {
            true
        }

        fn retire(&self, _name: u64) {}
    }

    const NUMBER: Descriptor = 7;

    fn claims(table: &Descriptors, port: u64, name: u64, attach: impl FnOnce()) -> bool {
        let attach = || {
            attach();
            Ok(())
        };
        table.claim(NUMBER, port, name, attach, || Ok(()), || {}).is_ok()
    }

    /// Asserts that no other thread attaches a number while `ask` makes a system call about it.
    #[track_caller]
    fn assert_alone(ask: impl FnOnce(&Descriptors, u64, &dyn Fn())) {
        let holder: Arc<dyn Holder> = Arc::new(Port);
        let table = Descriptors::new();
        let port = table.enter(Arc::downgrade(&holder));
        assert!(claims(&table, port, 1, || {}));
        let (asks, asked) = mpsc::channel();
        let (attaches, attached) = mpsc::channel();
        thread::scope(|scope| {
            let table = &table;
            scope.spawn(move || {
                asked.recv().unwrap();
                assert!(claims(table, port, 2, || attaches.send(()).unwrap()));
            });
            ask(table, port, &|| {
                asks.send(()).unwrap();
                // Ample time for a thread that need not wait.
                let attached = attached.recv_timeout(Duration::from_millis(20));
                assert_eq!(attached, Err(RecvTimeoutError::Timeout));
            });
        });
        assert_eq!(table.find(NUMBER, port), Some(2));
    }

    #[test]
    fn a_number_is_attached_by_no_thread_while_another_one_detaches_it() {
        assert_alone(|table, port, kernel| table.release(NUMBER, port, 1, kernel));
    }

    #[test]
    fn a_number_is_attached_by_no_thread_while_the_kernel_is_asked_about_it() {
        assert_alone(|table, port, kernel| {
            let watches = || {
                kernel();
                true
            };
            assert!(table.holds(NUMBER, port, 1, watches));
        });
    }

    #[test]
    fn a_number_is_attached_by_one_thread_at_a_time() {
        assert_alone(|table, port, kernel| assert!(claims(table, port, 1, kernel)));
    }
}
