//! What a server does with its connections: it echoes, or it is a sink, which reads, computes and
//! answers nothing.
//!
//! A packet of a sink is one read that has brought something. Each thread counts its own, so that
//! counting costs the servers next to nothing, and all of them the same.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::work::{BUFFER, compute};

/// Maximum number of reads by a handler for one report of readiness, in [`Reads::All`]: enough to
/// spread the price of arming over many packets, and few enough that the other connections of a
/// thread wait for at most a third of a millisecond during handlers of 20 us.
pub(crate) const MOST_READS: usize = 16;

/// The buffer of a handler that computes nothing: the result is the price of a packet, of which the
/// copy from the socket is then a small part.
const SMALL_BUFFER: usize = 1024;

/// How long a handler continues with a connection after one report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reads {
    /// One read for each packet
    One,
    /// Reads until it would block, or until a budget of reads is used up
    All,
}

impl Reads {
    /// The maximum number.
    fn at_most(self) -> usize {
        match self {
            Reads::One => 1,
            Reads::All => MOST_READS,
        }
    }

    /// In the words of a title.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Reads::One => "one read for each packet",
            Reads::All => "reads until it would block",
        }
    }

    /// In a word.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reads::One => "one",
            Reads::All => "all",
        }
    }
}

/// What the handlers of a sink do, in the words of a situation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Drain {
    /// How long each computes after a read, in microseconds.
    pub(crate) handler: u32,
    pub(crate) reads: Reads,
}

/// What a server does with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// Does what each message asks for, and sends it back.
    Echo,
    /// Reads, and computes after each read.
    Sink(Sink),
}

impl Service {
    /// The length of the buffer into which a handler reads.
    pub(crate) fn buffer(self) -> usize {
        match self {
            Service::Echo => BUFFER,
            Service::Sink(sink) => sink.buffer,
        }
    }
}

/// The configuration of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub(crate) struct Sink {
    /// The length of the buffer of a read, up to that of an echo
    #[arg(long, required = false, value_parser = buffer_length)]
    pub(crate) buffer: usize,
    /// Turns of the loop after each read
    #[arg(long, required = false)]
    pub(crate) turns: u32,
    /// Reads at most each time that a connection is ready
    #[arg(long, required = false)]
    pub(crate) reads: usize,
}

fn buffer_length(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(length @ 1..=BUFFER) => Ok(length),
        _ => Err(format!("expected a number from 1 to {BUFFER}")),
    }
}

impl Sink {
    /// A sink whose handlers compute for that many turns, or not at all if 0.
    pub(crate) fn new(turns: u32, reads: Reads) -> Sink {
        let buffer = if turns == 0 { SMALL_BUFFER } else { BUFFER };
        Sink { buffer, turns, reads: reads.at_most() }
    }

    /// Handles a read: one packet of that many bytes.
    pub(crate) fn handle(self, bytes: usize) {
        compute(self.turns);
        count(bytes);
    }
}

/// Counts a packet of a sink, or a read from a file, with that many bytes.
pub(crate) fn count(bytes: usize) {
    COUNTER.with(|counter| counter.count(bytes));
}

/// What a thread has read. Two counters share no line of the cache, nor a pair that is fetched
/// together.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Counter {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    /// Adds a packet. Only the thread itself writes, so that this needs no locked instruction. A
    /// thread that sees the bytes sees their packet too.
    fn count(&self, bytes: usize) {
        let add = |sum: &AtomicU64, more: u64| {
            sum.store(sum.load(Ordering::Relaxed) + more, Ordering::Release);
        };
        add(&self.packets, 1);
        add(&self.bytes, bytes as u64);
    }

    /// A counter for the thread that calls. It stays for as long as the process lives, as the sum of
    /// all counters is to contain those of threads that have ended.
    fn of_this_thread() -> &'static Counter {
        let counter: &'static Counter = Box::leak(Box::default());
        COUNTERS.lock().unwrap_or_else(PoisonError::into_inner).push(counter);
        counter
    }
}

static COUNTERS: Mutex<Vec<&'static Counter>> = Mutex::new(Vec::new());

thread_local! {
    static COUNTER: &'static Counter = Counter::of_this_thread();
}

/// What all sinks of this process have read so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// Adds up what the threads have counted.
pub(crate) fn read() -> Read {
    let counters = COUNTERS.lock().unwrap_or_else(PoisonError::into_inner);
    let sum = |of: fn(&Counter) -> &AtomicU64| {
        counters.iter().map(|counter| of(counter).load(Ordering::Acquire)).sum()
    };
    // The bytes first: then their packets are all counted.
    let bytes = sum(|counter| &counter.bytes);
    Read { packets: sum(|counter| &counter.packets), bytes }
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::contenders::tests::alone;

    #[test]
    fn what_threads_have_read_is_added_up_when_they_have_ended_too() {
        let _alone = alone();
        let before = read();
        for bytes in [100, 3] {
            let handle = move || (0..5).for_each(|_| Sink::new(0, Reads::One).handle(bytes));
            thread::spawn(handle).join().unwrap();
        }
        let after = read();
        assert_eq!((after.packets, after.bytes), (before.packets + 10, before.bytes + 515));
    }

    #[test]
    fn counters_are_far_from_each_other() {
        assert_eq!(size_of::<Counter>(), 128);
    }

    #[test]
    fn a_handler_computes_as_long_as_it_was_told() {
        let turns = 10_000 * crate::work::turns_per_microsecond();
        let _alone = alone();
        let began = Instant::now();
        Sink::new(turns, Reads::All).handle(1);
        // The frequency of the processor may have risen since the turns were measured.
        assert!(began.elapsed() > Duration::from_millis(5), "{:?}", began.elapsed());
    }
}
