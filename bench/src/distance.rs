//! How far apart the processors are. Those of a virtual machine are threads, which a hypervisor moves about:
//! now they share a core, now a cache, now neither. What passes between them costs several times as much
//! then, and so do the requests of a server whose clients are on the other processor.

use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};
use std::thread;
use std::time::{Duration, Instant};

use crate::system;

/// One measurement, a millisecond or less.
const PASSES: u32 = 2000;

/// Instead of a number: one of the threads does not take part.
const STOP: u32 = u32::MAX;

/// Two distances are the same if neither is this many times the other.
const SAME: f64 = 2.0;

/// How long a line of the cache takes from one processor to another and back, between the first and the last
/// one that this process may use.
pub(crate) fn measure() -> io::Result<Duration> {
    let usable = system::usable_processors()?;
    let [first, .., last] = usable[..] else {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "there is only one processor"));
    };
    let line = AtomicU32::new(0);
    let pass = &|cpu, turn: u32| -> io::Result<Duration> {
        // The thread ends with this.
        system::stay_on(cpu).inspect_err(|_| line.store(STOP, Release))?;
        let begun = Instant::now();
        for number in (turn..2 * PASSES).step_by(2) {
            loop {
                match line.load(Acquire) {
                    STOP => return Err(io::Error::other("the other thread has not come")),
                    seen if seen == number => break,
                    _ => std::hint::spin_loop(),
                }
            }
            // Not over the other one's word that it will not come.
            let _ = line.compare_exchange(number, number + 1, AcqRel, Acquire);
        }
        Ok(begun.elapsed() / PASSES)
    };
    thread::scope(|scope| {
        let start = |cpu, turn| {
            let started = thread::Builder::new().spawn_scoped(scope, move || pass(cpu, turn));
            started.inspect_err(|_| line.store(STOP, Release))
        };
        let (one, other) = (start(first, 0)?, start(last, 1)?);
        // The thread that came first has waited for the other one to begin.
        let (one, other) = (one.join(), other.join());
        let panicked = |_| io::Error::other("a thread panicked");
        Ok(one.map_err(panicked)??.min(other.map_err(panicked)??))
    })
}

/// Whether the processors were as far apart at one time as at the other.
pub(crate) fn is_same(one: f64, other: f64) -> bool {
    one.max(other) < SAME * one.min(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_time_from_one_processor_to_another() {
        match measure() {
            Ok(distance) => assert!(distance > Duration::ZERO),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                println!("SKIPPED a_line_takes_time_from_one_processor_to_another: {error}");
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn distances_are_the_same_within_a_factor_of_two() {
        assert!(is_same(55.0, 60.0) && is_same(500.0, 300.0));
        assert!(!is_same(55.0, 500.0) && !is_same(500.0, 55.0));
    }
}
