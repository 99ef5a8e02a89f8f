//! `cport-bench`: the completion port side by side with its rivals.
//!
//! Exit codes: 0 if the run came to its end, 1 if it broke down, 2 if it could not begin (a bad
//! argument, a file that cannot be read). The reason is one line on standard error.

mod asking;
mod c_library;
mod callgrind;
mod contenders;
mod counters;
mod crowd;
mod datagrams;
mod distance;
mod enough;
mod flood;
mod handover;
mod histogram;
mod load;
mod machine;
mod model;
mod plot;
mod posts;
mod processor_time;
mod registration;
mod remote;
mod report;
mod rounds;
mod run;
mod scenario;
mod server;
mod short;
mod single;
mod sink;
mod statistics;
mod table;
mod targets;
mod traffic;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::report::Report;

#[derive(Debug, Parser)]
#[command(
    name = "cport-bench",
    version,
    about = "The completion port side by side with its rivals",
    after_help = run::help(),
    args_conflicts_with_subcommands = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: run::Options,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print tables and plot anew from the raw JSON of a run
    Report {
        /// The raw JSON
        file: PathBuf,
        /// Write the plot
        #[arg(long, value_name = "FILE.svg")]
        plot: Option<PathBuf>,
        /// Only turns in which the processors were nearer to each other than so many nanoseconds
        #[arg(long, value_name = "NS", conflicts_with = "farther")]
        nearer: Option<f64>,
        /// Only turns in which they were farther apart
        #[arg(long, value_name = "NS")]
        farther: Option<f64>,
    },
    #[command(hide = true)]
    Server(server::Options),
    /// Calculate what the port would do on a machine with many processors
    Model(model::Options),
    /// Measure how soon another thread takes over from one that blocks
    Handover(handover::Options),
    /// Measure what an event costs with a thousand to a million registrations
    Crowd(crowd::Options),
    /// A piece of work whose instructions are counted
    #[command(hide = true)]
    Perform { bench: String, contender: String, size: usize, amount: usize },
    /// Prints the memory that so many registrations take
    #[command(hide = true)]
    Memory { contender: String, sockets: usize },
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
    let arguments = Arguments::parse();
    // A server needs a descriptor for each connection; the harness as many for all of them.
    let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limits.maximum, ..limits };
    if let Err(error) = rustix::process::setrlimit(rustix::process::Resource::Nofile, raised) {
        eprintln!("cport-bench: the limit of descriptors stays as it is: {error}");
    }
    let outcome = match arguments.command {
        None => run::run(&arguments.run),
        Some(Command::Report { file, plot, nearer, farther }) => {
            report(&file, plot.as_deref(), nearer, farther)
        }
        Some(Command::Server(options)) => server::run(&options).map_err(Failure::Broken),
        Some(Command::Model(options)) => {
            model::run(&options);
            Ok(())
        }
        Some(Command::Handover(options)) => {
            handover::run(options);
            Ok(())
        }
        Some(Command::Crowd(options)) => crowd::run(&options),
        Some(Command::Perform { bench, contender, size, amount }) => {
            let work = callgrind::Work { bench, contender, size, amount };
            work.perform().map_err(|error| Failure::Broken(error.to_string()))
        }
        Some(Command::Memory { contender, sockets }) => memory(&contender, sockets),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Unusable(reason)) => {
            eprintln!("cport-bench: {reason}");
            ExitCode::from(2)
        }
        Err(Failure::Broken(reason)) => {
            eprintln!("cport-bench: {reason}");
            ExitCode::from(1)
        }
    }
}

fn report(
    file: &std::path::Path,
    plot: Option<&std::path::Path>,
    nearer: Option<f64>,
    farther: Option<f64>,
) -> Result<(), Failure> {
    let mut report = Report::read(file).map_err(Failure::Unusable)?;
    if let Some(limit) = nearer {
        report.keep(|apart| apart < limit);
    }
    if let Some(limit) = farther {
        report.keep(|apart| apart > limit);
    }
    run::show(&report, plot)
}

fn memory(contender: &str, sockets: usize) -> Result<(), Failure> {
    match registration::perform(contender, sockets) {
        Ok(Some(bytes)) => {
            println!("{bytes}");
            Ok(())
        }
        Ok(None) => Err(Failure::Unusable(format!("no contender `{contender}`"))),
        Err(error) => Err(Failure::Broken(error.to_string())),
    }
}
