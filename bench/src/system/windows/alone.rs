//! Measurements that are not available here, with error messages.

use std::io;
use std::path::Path;

use clap::Args;

use crate::Failure;
use crate::contenders::{Contender, Server};
use crate::enough::Amount;
use crate::options::{
    self, ACCEPTS, BLOCKING, COMPUTING, DNS, ECHO, FILES, HTTP, INSTRUCTIONS, MESSAGES, OPERATIONS,
    REDIS, SERVED_FILES, SHORT, SHORT_HTTP, TIMERS, ZOO,
};
use crate::report::{Cell, Described};
use crate::run::Bench;

/// The scenarios that are not measured here, and why.
pub(in crate::system) const LACKS: [(&str, &str); 18] = [
    ("S7", "its contenders register with sets of Linux"),
    (SHORT, "its clients close sockets, of which `WSAPoll` would tell until they are taken out"),
    (ACCEPTS, "as S10"),
    (OPERATIONS, "its rivals are those of Linux"),
    (FILES, "its contenders read by calls of Linux"),
    (ECHO, NO_RUNTIMES),
    (BLOCKING, NO_RUNTIMES),
    (COMPUTING, NO_RUNTIMES),
    (MESSAGES, NO_RUNTIMES),
    (ZOO, NO_RUNTIMES),
    (HTTP, NO_RUNTIMES),
    (SHORT_HTTP, NO_RUNTIMES),
    (REDIS, NO_RUNTIMES),
    (SERVED_FILES, NO_RUNTIMES),
    (TIMERS, NO_RUNTIMES),
    (DNS, NO_RUNTIMES),
    ("single", "its contenders wait with sets of Linux"),
    (INSTRUCTIONS, "valgrind runs no programs of Windows"),
];

const NO_RUNTIMES: &str = "runtimes are compared on Linux";

fn not_here(what: &str) -> Failure {
    Failure::Unusable(format!("{what} is not measured on Windows"))
}

/// No server reads from a file during its echo.
#[derive(Clone, Debug, Args)]
pub(crate) struct Aside {}

pub(crate) fn start_beside(
    _name: &str,
    _threads: usize,
    _reading: &Aside,
) -> Option<io::Result<Box<dyn Server>>> {
    None
}

/// System calls are not counted.
#[derive(Debug)]
pub(crate) enum Counters {}

impl Counters {
    pub(crate) fn begin() -> Result<Counters, String> {
        Err("system calls are not counted on Windows".to_owned())
    }

    pub(crate) fn read(&self) -> io::Result<u64> {
        match *self {}
    }
}

pub(crate) fn benches(
    _options: &options::Run,
    _rounds: &dyn Fn(Amount) -> Amount,
) -> Vec<Bench<'static>> {
    Vec::new()
}

pub(crate) fn instructions(
    _other: Option<&Path>,
    _step: &mut dyn FnMut(&str),
) -> Result<Vec<Cell>, String> {
    Err("valgrind runs no programs of Windows".to_owned())
}

pub(crate) fn perform(
    bench: String,
    _contender: String,
    _size: usize,
    _amount: usize,
) -> Result<(), Failure> {
    Err(not_here(&bench))
}

pub(crate) fn program(contender: &str, _program: &[String]) -> Result<(), Failure> {
    Err(not_here(contender))
}

pub(crate) fn runtimes_described(_options: &options::Run) -> Vec<Described> {
    Vec::new()
}

pub(crate) fn enter_sandbox() -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "there are no sandboxes on Windows"))
}

pub(crate) fn runtimes() -> Vec<Contender> {
    Vec::new()
}

pub(crate) fn is_runtime(_name: &str) -> bool {
    false
}

pub(crate) fn memory(_contender: &str, _sockets: usize) -> Result<(), Failure> {
    Err(not_here("the memory of registrations"))
}

pub(crate) fn handover(_options: options::Handover) -> Result<(), Failure> {
    Err(not_here("how soon another thread takes over"))
}

pub(crate) fn crowd(_options: options::Crowd) -> Result<(), Failure> {
    Err(not_here("a crowd of registrations"))
}
