//! `cport completions`: generates shell completions of commands and options.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::text::say;

/// The options of `cport completions`.
#[derive(Args)]
pub(crate) struct Options {
    /// The shell that reads them
    shell: Shell,
}

/// Prints the completions of a command.
pub(crate) fn run(options: &Options, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut command, "cport", &mut script);
    say(format_args!("{}", String::from_utf8_lossy(&script)))
}
