//! Chores of the workspace: `cargo xtask install --prefix DIR` builds the C library and installs it.

mod install;

use std::process::ExitCode;

use clap::Parser;

/// Chores of the workspace
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Chore {
    /// Build libcompletion_port and install it: the shared and the static library, completion_port_close.o,
    /// the headers and the pkg-config files completion_port, completion_port_compat and completion_port_close
    Install(install::Places),
}

fn main() -> ExitCode {
    let Chore::Install(places) = Chore::parse();
    match install::install(&places) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot install: {error}");
            ExitCode::FAILURE
        }
    }
}
