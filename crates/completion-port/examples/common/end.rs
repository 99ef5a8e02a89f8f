//! Ending a server.

use std::sync::mpsc::{self, Receiver};

/// Returns a channel that receives a value when the program is asked to end: by SIGTERM or Ctrl-C,
/// and on Windows also by other ways to end a program.
pub(crate) fn asked_to_end() -> Result<Receiver<()>, ctrlc::Error> {
    let (ask, asked) = mpsc::channel();
    ctrlc::set_handler(move || {
        // The program may already be ending.
        let _ = ask.send(());
    })?;
    Ok(asked)
}
