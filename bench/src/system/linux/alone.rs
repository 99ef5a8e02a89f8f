//! Measurements that only this system has.

use std::io;
use std::path::Path;

use crate::contenders::{self, Contender, Server};
use crate::enough::Amount;
use crate::files::{self, Reading};
use crate::options::{self, FILES};
use crate::report::{Cell, Described};
use crate::run::Bench;
use crate::{Failure, callgrind, crowd, handover, registration, runtimes, single};

/// Starts a server that reads from a file beside its echo, if there is one of that name.
pub(crate) fn start_beside(
    name: &str,
    threads: usize,
    reading: &Reading,
) -> Option<io::Result<Box<dyn Server>>> {
    let all = contenders::reading();
    let contender = all.iter().find(|it| it.name == name)?;
    Some((contender.start)(threads, reading))
}

/// Measurements within the process, with `rounds` rounds or the usual number.
pub(crate) fn benches(
    options: &options::Run,
    rounds: &dyn Fn(Amount) -> Amount,
) -> Vec<Bench<'static>> {
    let (registration, single) = (registration::Options::default(), single::Options::default());
    let registration =
        registration::Options { rounds: rounds(registration.rounds), ..registration };
    let single = single::Options { rounds: rounds(single.rounds), ..single };
    let usual = files::Options::default();
    let files = files::Options {
        rounds: rounds(usual.rounds),
        time: options.seconds.unwrap_or(usual.time),
        directory: options.file_in.clone().unwrap_or(usual.directory),
        length: u64::from(options.file_size) << 20,
        ..usual
    };
    let mut benches: Vec<Bench<'static>> = vec![
        ("S7", Box::new(move |step| registration::run(registration, step))),
        (FILES, Box::new(move |step| files::run(&files, step))),
        ("single", Box::new(move |step| single::run(single, step))),
    ];
    benches.extend(runtimes::benches(options, rounds));
    benches
}

/// What valgrind counts, or how much more that is than in another build.
pub(crate) fn instructions(
    other: Option<&Path>,
    step: &mut dyn FnMut(&str),
) -> Result<Vec<Cell>, String> {
    let cells = match other {
        None => callgrind::run(step),
        Some(other) => callgrind::compare(other, step),
    };
    cells.map_err(|error| error.to_string())
}

pub(crate) fn perform(
    bench: String,
    contender: String,
    size: usize,
    amount: usize,
) -> Result<(), Failure> {
    let work = callgrind::Work { bench, contender, size, amount };
    work.perform().map_err(|error| Failure::Broken(error.to_string()))
}

pub(crate) fn program(contender: &str, program: &[String]) -> Result<(), Failure> {
    runtimes::perform(contender, program)
}

/// The runtimes that take part in a run.
pub(crate) fn runtimes_described(options: &options::Run) -> Vec<Described> {
    runtimes::described(options)
}

/// From now on this process and those that it starts have neither io_uring nor perf.
pub(crate) fn enter_sandbox() -> io::Result<()> {
    const REFUSED: [libc::c_long; 4] = [
        libc::SYS_perf_event_open,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
    ];
    testkit::sandbox::refuse_from_now_on(&REFUSED, libc::EPERM)
}

/// Servers on runtimes.
pub(crate) fn runtimes() -> Vec<Contender> {
    runtimes::servers()
}

/// Whether it is the name of a runtime.
pub(crate) fn is_runtime(name: &str) -> bool {
    runtimes::is_contender(name)
}

pub(crate) fn memory(contender: &str, sockets: usize) -> Result<(), Failure> {
    match registration::perform(contender, sockets) {
        Ok(Some(bytes)) => {
            println!("{bytes}");
            Ok(())
        }
        Ok(None) => Err(Failure::Unusable(format!("no contender `{contender}`"))),
        Err(error) => Err(Failure::Broken(error.to_string())),
    }
}

pub(crate) fn handover(options: options::Handover) -> Result<(), Failure> {
    handover::run(options);
    Ok(())
}

pub(crate) fn crowd(options: options::Crowd) -> Result<(), Failure> {
    crowd::run(options)
}
