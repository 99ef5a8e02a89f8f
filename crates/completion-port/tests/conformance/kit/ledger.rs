//! Keys and messages that are counted.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use completion_port::{BorrowedSource, Source};
use testkit::Socket;

/// Tracks values that must be dropped exactly once.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Book>);

#[derive(Debug, Default)]
pub(crate) struct Book {
    last: AtomicU64,
    alive: Mutex<BTreeSet<u64>>,
    /// The number of entries that were dropped though they were not alive.
    faults: AtomicUsize,
    /// Whether the next drop, or the next clone, panics.
    drop_panics: AtomicBool,
    clone_panics: AtomicBool,
}

impl Ledger {
    /// Creates a value that is alive until it is dropped.
    pub(crate) fn entry(&self) -> Entry {
        let number = self.0.last.fetch_add(1, SeqCst);
        self.0.alive.lock().unwrap().insert(number);
        Entry { number, ledger: self.clone() }
    }

    /// Returns the number of live values.
    #[track_caller]
    pub(crate) fn alive(&self) -> usize {
        assert_eq!(self.0.faults.load(SeqCst), 0, "a value was dropped twice");
        self.0.alive.lock().unwrap().len()
    }

    pub(crate) fn panic_at_next_drop(&self) {
        self.0.drop_panics.store(true, SeqCst);
    }

    pub(crate) fn panic_at_next_clone(&self) {
        self.0.clone_panics.store(true, SeqCst);
    }
}

/// A value that its ledger tracks. Two values are equal only if they are the same.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    ledger: Ledger,
}

impl Clone for Entry {
    fn clone(&self) -> Self {
        if self.ledger.0.clone_panics.swap(false, SeqCst) {
            resume_unwind(Box::new("clone"));
        }
        self.ledger.entry()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.ledger.0.alive.lock().unwrap().remove(&self.number) {
            self.ledger.0.faults.fetch_add(1, SeqCst);
        }
        if self.ledger.0.drop_panics.swap(false, SeqCst) {
            resume_unwind(Box::new("drop"));
        }
    }
}

/// A key that owns its socket, and that the ledger counts.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) socket: Socket,
    pub(crate) _entry: Entry,
}

impl Source for Owner {
    fn as_source(&self) -> BorrowedSource<'_> {
        self.socket.as_source()
    }
}
