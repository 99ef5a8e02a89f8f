//! `cport`: demonstrations of the I/O completion port of the crate `completion-port`, and an echo
//! server on it.
//!
//! Exit codes: 0 on success; 1 if the demo's result is wrong, the probe found a difference, a
//! server thread failed or clients were cut off; 2 if the command could not start (a bad argument,
//! an address in use, too few descriptors). The reason is one line on standard error.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};

mod bench;
mod completions;
mod connection;
mod demo;
mod echo;
mod failure;
mod gauge;
mod probe;
mod quantity;
mod retry;
mod system;
mod terminal;
mod text;

#[derive(Parser)]
#[command(
    version,
    about = "An I/O completion port: demonstrations, an echo server, a probe of the system, a benchmark",
    after_help = "Without a command it runs the demo.\n\n\
        Exit codes:\n  0  all went well\n  \
        1  the demo found its own result wrong, the probe found something different, a server thread broke down, or clients were cut off\n  \
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
    /// Run four servers against real clients and check the result
    ///
    /// One after the other, on loopback: a replacement for poll, an edge-triggered UDP server, a
    /// multi-threaded server, and one that accepts, receives and sends by operations.
    Demo(demo::Options),
    /// Echo received data over TCP or UDP, until Ctrl-C
    ///
    /// The first line of the output ends with the address. Ctrl-C or SIGTERM ends the server once
    /// its clients have their data back, and it prints its statistics. A second one cuts them off.
    Echo(echo::Options),
    /// Compare the port with its rivals, side by side
    ///
    /// In a source tree of completion-port, builds the benchmark and runs it. Elsewhere, runs the
    /// `cport-bench` that is in the same directory. All arguments are passed on.
    Bench(bench::Passed),
    /// Report this system's features for a port, and test the rules that depend on them
    ///
    /// Takes a moment. Exit codes: 0 if all was as expected, 1 if something was different, 2 if it
    /// could not start.
    Probe(probe::Options),
    /// Print shell completions of commands and options
    ///
    /// bash: source <(cport completions bash); zsh: cport completions zsh > DIR/_cport, with DIR in
    /// $fpath; fish: cport completions fish > ~/.config/fish/completions/cport.fish
    Completions(completions::Options),
}

/// The whole command line, including the benchmark's, which is passed on unread.
fn command() -> clap::Command {
    let bench = |passed: clap::Command| {
        let mut bench = bench::Arguments::command().name("bench");
        if let Some(about) = passed.get_about() {
            bench = bench.about(about.clone());
        }
        bench
    };
    Arguments::command().mut_subcommand("bench", bench)
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match arguments.command.unwrap_or(Command::Demo(arguments.demo)) {
        Command::Demo(options) => demo::run(&options),
        Command::Echo(options) => echo::run(&options),
        Command::Bench(passed) => bench::run(&passed),
        Command::Probe(options) => probe::run(&options),
        Command::Completions(options) => completions::run(&options, command()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let line = format!("cport: {failure}");
            eprintln!("{}", terminal::fitted(&line, terminal::error_width()));
            failure.exit_code()
        }
    }
}
