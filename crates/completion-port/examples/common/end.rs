//! When a server ends.

use std::sync::mpsc::{self, Receiver};

/// Something comes when the program is asked to end: by SIGTERM or Ctrl-C, and on Windows by what else ends programs.
pub(crate) fn asked_to_end() -> Result<Receiver<()>, ctrlc::Error> {
    let (ask, asked) = mpsc::channel();
    ctrlc::set_handler(move || {
        // The program may be about to end.
        let _ = ask.send(());
    })?;
    Ok(asked)
}
