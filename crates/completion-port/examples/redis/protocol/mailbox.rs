//! What clients send to another one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::lock;

/// A subscriber that leaves more unread is disconnected.
const MOST_UNREAD: usize = 1 << 20;

/// Why a session is called.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Call {
    /// Its mailbox has something.
    Mail,
    /// It ends, because its client does not read.
    CutOff,
}

/// Calls a session's handler or task. Returns false if its client is leaving.
pub(crate) type Caller = Box<dyn Fn(Call) -> bool + Send + Sync>;

/// The mailbox of a session. Its lock is taken last.
pub(crate) struct Mailbox {
    bytes: Mutex<Vec<u8>>,
    is_cut_off: AtomicBool,
    call: Caller,
}

impl Mailbox {
    pub(super) fn new(call: Caller) -> Self {
        Self { bytes: Mutex::default(), is_cut_off: AtomicBool::new(false), call }
    }

    pub(super) fn is_cut_off(&self) -> bool {
        self.is_cut_off.load(Ordering::Relaxed)
    }

    /// Sends what `write` appends, unless the client is leaving. Whatever is read of the mailbox
    /// meanwhile comes afterwards, because of the lock.
    pub(super) fn send(&self, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut bytes = lock(&self.bytes);
        if bytes.len() > MOST_UNREAD {
            self.is_cut_off.store(true, Ordering::Relaxed);
            (self.call)(Call::CutOff);
            return false;
        }
        let is_called = (self.call)(Call::Mail);
        if is_called {
            write(&mut bytes);
        }
        is_called
    }

    /// Moves everything to the end of `output`.
    pub(super) fn take(&self, output: &mut Vec<u8>) {
        output.append(&mut lock(&self.bytes));
    }
}
