//! The threads of the servers.

use std::io;
use std::thread;

/// Starts a thread that serves for as long as the process lives. Should it fail, the process ends:
/// a server with a thread too few would be measured as if nothing had happened.
pub(crate) fn spawn(
    name: &'static str,
    serve: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<()> {
    let run = move || end_with(serve());
    thread::Builder::new().name(name.to_owned()).spawn(run).map(drop)
}

/// Ends the process if what serves has failed. The thread, or that of the task, has the contender's name.
pub(crate) fn end_with(served: io::Result<()>) {
    let Err(error) = served else { return };
    eprintln!("{}: {error}", thread::current().name().unwrap_or("server"));
    std::process::exit(1);
}
