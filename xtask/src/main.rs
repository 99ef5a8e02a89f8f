//! Chores of the workspace: `cargo xtask install --prefix DIR` builds the C library and installs it,
//! `cargo xtask api` lists the public interface, `cargo xtask semantics` names the tests of each rule,
//! `cargo xtask lines` counts the library's lines of code.

mod api;
mod install;
mod lines;
mod semantics;

use std::process::ExitCode;

use clap::Parser;

/// Chores of the workspace
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Chore {
    /// Build libcompletion_port and install it: the shared and the static library, completion_port_close.o,
    /// the headers and the pkg-config files completion_port, completion_port_compat and completion_port_close
    Install(install::Places),
    /// List the public interface of completion-port, or compare or update its docs/API.txt. Exits
    /// with 2 if this toolchain's rustdoc cannot list it
    Api(api::Todo),
    /// Update docs/TESTS.txt, the list of the tests of each rule. A rule's tests are those whose documentation begins with
    /// it, as in `/// Rule 36: ...`
    Semantics,
    /// Count the lines of completion-port's sources that hold code, by folder: no blank lines, comments or
    /// tests, formatted by rustfmt's default settings
    Lines,
}

fn main() -> ExitCode {
    let done = match Chore::parse() {
        Chore::Install(places) => {
            install::install(&places).map_err(|error| (1, format!("cannot install: {error}")))
        }
        Chore::Semantics => semantics::semantics()
            .map_err(|error| (1, format!("cannot write docs/TESTS.txt: {error}"))),
        Chore::Lines => {
            lines::lines().map_err(|error| (1, format!("cannot count the lines: {error}")))
        }
        Chore::Api(todo) => api::api(&todo).map_err(|failure| {
            let code = if matches!(failure, api::Failure::Unsupported(_)) { 2 } else { 1 };
            (code, failure.to_string())
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, said)) => {
            eprintln!("{said}");
            ExitCode::from(code)
        }
    }
}
