//! System calls that a signal interrupts are made again.

use std::io::{self, ErrorKind};

/// Makes a call until no signal interrupts it.
pub(crate) fn uninterrupted<R>(mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
