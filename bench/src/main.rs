//! `cport-bench`: the completion port side by side with its rivals.
//!
//! Exit codes: 0 if the run is complete, 1 if it failed, 2 if it could not start (a bad argument, a
//! file that cannot be read). The reason is one line on standard error.

#![cfg_attr(windows, allow(dead_code, reason = "measurements on Linux use more"))]

mod asking;
mod compare;
mod contenders;
mod datagrams;
mod distance;
mod enough;
mod first_look;
mod flood;
mod histogram;
mod http;
mod in_flight;
mod load;
mod machine;
mod model;
mod names;
// The command `cport` shows the same help, and this package is not in the registry, as that one is.
#[path = "../../crates/cport/src/bench/options.rs"]
mod options;
mod plot;
mod posts;
mod processor_time;
mod remote;
mod report;
mod rounds;
mod run;
mod scenario;
mod server;
mod short;
mod sink;
mod statistics;
mod system;
mod table;
mod targets;
mod timers;
mod traffic;
mod work;

// The port's own schedule, for `model`.
#[path = "../../crates/completion-port/src/memory/mod.rs"]
#[allow(
    dead_code,
    rustdoc::broken_intra_doc_links,
    unexpected_cfgs,
    unused_imports,
    unused_macros,
    reason = "the library's sources are used in part"
)]
mod memory;
#[path = "../../crates/completion-port/src/state/mod.rs"]
#[allow(
    dead_code,
    rustdoc::broken_intra_doc_links,
    unused_imports,
    reason = "the library's sources are used in part"
)]
mod state;
#[path = "../../crates/completion-port/src/sync/mod.rs"]
#[allow(
    dead_code,
    rustdoc::broken_intra_doc_links,
    unused_imports,
    reason = "the library's sources are used in part"
)]
mod sync;
#[path = "../../crates/completion-port/src/types/mod.rs"]
#[allow(
    dead_code,
    rustdoc::broken_intra_doc_links,
    unexpected_cfgs,
    unused_imports,
    unreachable_pub,
    unnameable_types,
    reason = "the library's sources are used in part"
)]
mod types;

// Measured only on Linux; `system` represents it elsewhere.
#[cfg(target_os = "linux")]
mod c_library;
#[cfg(target_os = "linux")]
mod callgrind;
#[cfg(target_os = "linux")]
mod crowd;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod handover;
#[cfg(target_os = "linux")]
mod registration;
#[cfg(target_os = "linux")]
mod runtimes;
#[cfg(target_os = "linux")]
mod single;

use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::report::Report;

#[derive(Debug, Parser)]
#[command(
    version = env!("VERSION_OF_completion-port"),
    about = options::ABOUT,
    after_help = options::help(),
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: options::Run,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Shown(options::Command),
    #[command(hide = true)]
    Server(server::Options),
    /// A piece of work whose instructions are counted
    #[command(hide = true)]
    Perform { bench: String, contender: String, size: usize, amount: usize },
    /// Runs a program on a runtime, and prints what it has cost
    #[command(hide = true)]
    Program {
        #[arg(long)]
        contender: String,
        program: Vec<String>,
    },
    /// Prints the memory of that many registrations
    #[command(hide = true)]
    Memory { contender: String, sockets: usize },
}

impl Arguments {
    fn of_the_process() -> Arguments {
        let command = Arguments::command().name(called()).bin_name(called());
        let matches = command.get_matches();
        Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit())
    }
}

/// The name under which it was started.
fn called() -> &'static str {
    match std::env::var_os(options::CALLED_BY_CPORT) {
        Some(_) => "cport bench",
        None => "cport-bench",
    }
}

/// Why the command ends without success.
#[derive(Debug)]
enum Failure {
    /// It could not begin.
    Unusable(String),
    /// It broke down.
    Broken(String),
}

fn main() -> ExitCode {
    let arguments = Arguments::of_the_process();
    // A server needs a descriptor for each connection; the harness as many for all of them.
    if let Err(error) = system::raise_limit_of_descriptors() {
        eprintln!("{}: the limit of descriptors stays as it is: {error}", called());
    }
    let outcome = match arguments.command {
        None => run::run(&arguments.run),
        Some(Command::Shown(command)) => shown(command),
        Some(Command::Server(options)) => server::run(&options).map_err(Failure::Broken),
        Some(Command::Perform { bench, contender, size, amount }) => {
            system::perform(bench, contender, size, amount)
        }
        Some(Command::Program { contender, program }) => system::program(&contender, &program),
        Some(Command::Memory { contender, sockets }) => system::memory(&contender, sockets),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Unusable(reason)) => {
            eprintln!("{}: {reason}", called());
            ExitCode::from(2)
        }
        Err(Failure::Broken(reason)) => {
            eprintln!("{}: {reason}", called());
            ExitCode::from(1)
        }
    }
}

fn shown(command: options::Command) -> Result<(), Failure> {
    match command {
        options::Command::Report(options) => return report(&options),
        options::Command::Model(options) => model::run(&options),
        options::Command::Handover(options) => return system::handover(options),
        options::Command::Crowd(options) => return system::crowd(options),
    }
    Ok(())
}

fn report(options: &options::Report) -> Result<(), Failure> {
    let mut report = Report::read(&options.file).map_err(Failure::Unusable)?;
    if let Some(limit) = options.nearer {
        report.keep(|apart| apart < limit);
    }
    if let Some(limit) = options.farther {
        report.keep(|apart| apart > limit);
    }
    run::show(&report, options.plot.as_deref())
}
