//! Repeats system calls that a signal interrupts.

use std::io::{self, ErrorKind};

/// Repeats a call until no signal interrupts it.
pub(crate) fn uninterrupted<R>(mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
