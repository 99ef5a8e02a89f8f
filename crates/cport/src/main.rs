//! `cport`: demonstrations of the I/O completion port of the crate `completion-port`, and an echo
//! server on it.
//!
//! Exit codes: 0 if all went well, 1 if the demo's check of its own result failed or a server
//! thread broke down, 2 if the command could not begin (a bad argument, an address in use, too few
//! descriptors). The reason is one line on standard error.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod connection;
mod demo;
mod echo;
mod failure;
mod gauge;
mod probe;
mod retry;
mod signals;
mod text;

#[derive(Parser)]
#[command(
    version,
    about = "Demonstrations of an I/O completion port, and an echo server on it",
    after_help = "Without a command it runs the demo.\n\n\
        Exit codes:\n  0  all went well\n  \
        1  the demo found its own result wrong, or a server thread broke down\n  \
        2  the command could not begin: a bad argument, an address in use, too few descriptors",
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    demo: demo::Options,
}

#[derive(Subcommand)]
enum Command {
    /// Run three servers against real clients and check the result
    ///
    /// One after the other, on loopback: a replacement for poll, an edge-triggered UDP server, a
    /// multi-threaded server.
    Demo(demo::Options),
    /// Echo what comes in, over TCP or UDP, until Ctrl-C
    ///
    /// The first line of the output ends with the address. Ctrl-C or SIGTERM ends the server in
    /// order, and it prints its statistics; a second one ends it at once.
    Echo(echo::Options),
    /// Compare the port with its rivals, side by side
    ///
    /// Runs the command `cport-bench` beside this one, or builds and runs it if the current
    /// directory is in a source tree of completion-port. All arguments are passed on.
    Bench(bench::Options),
    /// Tell what this system offers to a port, and try each rule of the contract on it
    ///
    /// Takes about a second. Exit codes: 0 if all was as expected, 1 if something was different, 2 if it could
    /// not begin.
    Probe(probe::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command.unwrap_or(Command::Demo(arguments.demo)) {
        Command::Demo(options) => demo::run(&options),
        Command::Echo(options) => echo::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Probe(options) => probe::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("cport: {failure}");
            failure.exit_code()
        }
    }
}
