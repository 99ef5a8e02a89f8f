//! The system's features for a port, and its limits.

use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, Port};

use super::kit::Plain;
use crate::system;

/// One fact about the system.
pub(crate) struct Fact {
    pub(crate) name: &'static str,
    pub(crate) value: String,
}

/// All facts.
pub(super) fn facts() -> Vec<Fact> {
    let common = [
        ("kernel", system::kernel()),
        ("back end", back_end()),
        ("waits", waits()),
        ("processors", processors()),
    ];
    common.into_iter().chain(system::facts()).map(|(name, value)| Fact { name, value }).collect()
}

fn back_end() -> String {
    match Port::<()>::new() {
        Ok(port) => {
            let stats = port.stats();
            format!("{}, and {:?} to find threads that sleep", stats.backend, stats.block_detection)
        }
        Err(error) => error.to_string(),
    }
}

/// How exact waits are.
fn waits() -> String {
    let asked = Duration::from_micros(50);
    let shortest = || -> completion_port::Result<Duration> {
        let port: Plain = Port::builder().build()?;
        let mut batch = Batch::new();
        let mut shortest = Duration::MAX;
        for _ in 0..10 {
            let begin = Instant::now();
            drop(port.wait(&mut batch, asked)?);
            shortest = shortest.min(begin.elapsed());
        }
        Ok(shortest)
    };
    match shortest() {
        Ok(took) => format!("{}; {asked:?} took {took:?}", system::waits(took)),
        Err(error) => error.to_string(),
    }
}

fn processors() -> String {
    let usable = thread::available_parallelism().map_or(1, usize::from);
    let usual = Port::<()>::new().map_or(0, |port| port.concurrency());
    format!("{usable} usable; the usual concurrency value is {usual}")
}
