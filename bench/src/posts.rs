//! Messages between threads: the port against a channel and against an eventfd in `epoll`.
//!
//! *nobody asleep*: one thread posts one message (64 messages) and takes it (them) again, or the
//! handler of each message posts the next one, on the port by `post_after`. *1→1*, *4→1*, *4→4*:
//! that many threads post as fast as they can, and that many take. *round trip*: two threads, each
//! answers the other's messages, so each is woken for each message.
//!
//! Time runs from the moment all threads are ready until the last one has taken its last message;
//! processor time and switches are those of the whole process meanwhile. How far apart the
//! processors are is measured between the turns.

mod channel;
#[cfg(target_os = "linux")]
mod eventfd;
mod ours;

use std::io;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use crate::distance;
use crate::enough::Amount;
use crate::processor_time::Clock;
use crate::report::{Cell, Row};
use crate::system;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Rounds of each situation.
    pub(crate) rounds: Amount,
    /// Messages in each round; a round trip is two.
    pub(crate) messages: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { rounds: Amount::exactly(12), messages: 200_000 }
    }
}

/// Maximum number of messages taken together.
const BATCH: usize = 64;

/// The quantity that is compared.
const COMPARED: &str = "message";

/// A message: a number, or the request to stop.
type Message = u64;
const STOP: Message = Message::MAX;

/// A queue of messages on which threads wait.
trait Queue: Send + Sync {
    fn post(&self, message: Message) -> io::Result<()>;

    /// What the calling thread needs to take messages.
    fn taker(&self) -> io::Result<Box<dyn Take + '_>>;

    /// The calling thread posts a message, and that many more: each one while it handles the one
    /// before.
    fn follow(&self, messages: usize) -> io::Result<()> {
        alone(self, 1, messages)
    }

    /// Threads woken so far, where that is counted.
    fn wakes(&self) -> Option<u64> {
        None
    }
}

/// A thread's access to a queue.
trait Take {
    /// Waits until there is a message, and takes all available ones, at most 64.
    fn take(&mut self, into: &mut Vec<Message>) -> io::Result<()>;
}

#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    build: fn() -> io::Result<Arc<dyn Queue>>,
}

/// The first is the one to which the others are compared.
const ENTRIES: &[Entry] = &[
    Entry { name: "ours", build: ours::alone },
    Entry { name: "ours, with a socket", build: ours::with_socket },
    Entry { name: "crossbeam-channel", build: channel::build },
    #[cfg(target_os = "linux")]
    Entry { name: "eventfd in epoll", build: eventfd::build },
];

/// What the threads of a situation do.
#[derive(Clone, Copy)]
enum Situation {
    /// One thread posts that many and takes them again.
    Alone(usize),
    /// One thread, in which the handler of each message posts the next one.
    Following,
    /// That many threads post, and that many take.
    Stream(usize, usize),
    /// Two threads answer each other.
    RoundTrip,
}

/// Measures all contenders, a cell for each situation.
pub(crate) fn run(options: Options, progress: &mut dyn FnMut(&str)) -> Vec<Cell> {
    let situations = [
        (Situation::Alone(1), "nobody asleep: post 1, take 1"),
        (Situation::Alone(64), "nobody asleep: post 64, take 64"),
        (Situation::Following, "nobody asleep: each handler posts the next"),
        (Situation::Stream(1, 1), "1 thread posts, 1 takes"),
        (Situation::Stream(4, 1), "4 threads post, 1 takes"),
        (Situation::Stream(4, 4), "4 threads post, 4 take"),
        (Situation::RoundTrip, "round trips between 2 threads"),
    ];
    let mut cells = Vec::new();
    for (situation, title) in situations {
        progress(&format!("S6: {title}"));
        cells.push(cell(situation, title, options));
    }
    cells
}

/// One thread posts and takes that many messages, `batch` at a time; `None` if there is no such
/// contender.
pub(crate) fn perform(name: &str, batch: usize, messages: usize) -> io::Result<Option<()>> {
    let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) else { return Ok(None) };
    alone(&*(entry.build)()?, batch, messages).map(Some)
}

fn cell(situation: Situation, title: &str, options: Options) -> Cell {
    let mut rows: Vec<Row> = ENTRIES
        .iter()
        .map(|entry| Row { contender: entry.name.to_owned(), ..Row::default() })
        .collect();
    let mut round = 0;
    while options.rounds.goes_on(round, &rows, COMPARED) {
        let mut before = distance::measure();
        for turn in 0..ENTRIES.len() {
            let index = (round + turn) % ENTRIES.len();
            let row = &mut rows[index];
            if row.failure.is_some() {
                continue;
            }
            match measure(ENTRIES[index], situation, options.messages) {
                Ok(measured) => {
                    measured.note(situation, row);
                    let behind = distance::measure();
                    row.note_distance(&before, &behind);
                    before = behind;
                }
                Err(error) => row.failure = Some(error.to_string()),
            }
        }
        round += 1;
    }
    let threads = match situation {
        Situation::Alone(_) | Situation::Following => 1,
        Situation::Stream(posting, taking) => posting + taking,
        Situation::RoundTrip => 2,
    };
    Cell {
        scenario: "S6".to_owned(),
        title: title.to_owned(),
        threads: Some(threads),
        compared: COMPARED.to_owned(),
        rows,
        ..Cell::default()
    }
}

/// What the process has used so far.
struct Usage {
    time: Instant,
    processor: Duration,
    switches: Option<u64>,
}

impl Usage {
    fn now() -> Self {
        // How often threads of this process have gone to sleep.
        let switches = || system::switches().map(|switches| switches.voluntary);
        Usage { time: Instant::now(), processor: Clock::Process.now(), switches: switches() }
    }
}

/// What a situation has cost.
struct Measured {
    messages: usize,
    elapsed: Duration,
    processor: Duration,
    switches: Option<u64>,
    wakes: Option<u64>,
}

impl Measured {
    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn note(&self, situation: Situation, row: &mut Row) {
        let messages = self.messages as f64;
        if matches!(situation, Situation::Alone(_) | Situation::Following) {
            // It never sleeps: the processor's time is free of what other processes do meanwhile.
            row.push("message", "ns", Some(self.processor.as_nanos() as f64 / messages));
            return;
        }
        row.push("message", "ns", Some(self.elapsed.as_nanos() as f64 / messages));
        row.push("messages", "1/s", Some(messages / self.elapsed.as_secs_f64()));
        row.push("CPU", "ns", Some(self.processor.as_nanos() as f64 / messages));
        row.push("switches", "", self.switches.map(|switches| switches as f64 / messages));
        row.push("wakes", "", self.wakes.map(|wakes| wakes as f64 / messages));
    }
}

fn measure(entry: Entry, situation: Situation, messages: usize) -> io::Result<Measured> {
    let (first, second) = ((entry.build)()?, (entry.build)()?);
    let wakes = || Some(first.wakes()? + second.wakes()?);
    let woken = wakes();
    let begin = match situation {
        Situation::Alone(batch) => {
            alone(&*first, batch, messages / 10)?;
            let begin = Usage::now();
            alone(&*first, batch, messages)?;
            begin
        }
        Situation::Following => {
            first.follow(messages / 10)?;
            let begin = Usage::now();
            first.follow(messages)?;
            begin
        }
        Situation::Stream(posting, taking) => stream(&*first, posting, taking, messages)?,
        Situation::RoundTrip => round_trips(&*first, &*second, messages)?,
    };
    let end = Usage::now();
    Ok(Measured {
        messages,
        elapsed: end.time - begin.time,
        processor: end.processor.saturating_sub(begin.processor),
        switches: end.switches.zip(begin.switches).map(|(end, begin)| end - begin),
        wakes: wakes().zip(woken).map(|(now, before)| now - before),
    })
}

/// One thread posts `batch` messages and takes them again, until it has done so with all.
fn alone(queue: &(impl Queue + ?Sized), batch: usize, messages: usize) -> io::Result<()> {
    let mut taker = queue.taker()?;
    let mut taken = Vec::with_capacity(BATCH);
    for _ in 0..messages / batch {
        for number in 0..batch {
            queue.post(number as Message)?;
        }
        let mut left = batch;
        while left > 0 {
            taken.clear();
            taker.take(&mut taken)?;
            left = left.checked_sub(taken.len()).ok_or_else(too_many)?;
        }
    }
    Ok(())
}

fn too_many() -> io::Error {
    io::Error::other("more messages were taken than posted")
}

/// How many messages the threads have handled together, once all of them have ended.
fn all_done<'s>(
    threads: impl IntoIterator<Item = thread::ScopedJoinHandle<'s, io::Result<usize>>>,
) -> io::Result<usize> {
    let mut sum = Ok(0);
    for thread in threads {
        let ended = thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        sum = sum.and_then(|sum| Ok(sum + ended?));
    }
    sum
}

/// That many threads post all messages, each a part of them, and that many take them. Returns the
/// resources used by the time they were all ready.
fn stream(queue: &dyn Queue, posting: usize, taking: usize, messages: usize) -> io::Result<Usage> {
    let (there, go) = (Barrier::new(posting + taking + 1), Barrier::new(posting + taking + 1));
    thread::scope(|scope| {
        let (there, go) = (&there, &go);
        let takers: Vec<_> = (0..taking)
            .map(|_| {
                scope.spawn(move || {
                    let taker = queue.taker();
                    there.wait();
                    go.wait();
                    take_all(queue, &mut *taker?)
                })
            })
            .collect();
        let posters: Vec<_> = (0..posting)
            .map(|_| {
                scope.spawn(move || {
                    there.wait();
                    go.wait();
                    let mine = messages / posting;
                    (0..mine).try_for_each(|number| queue.post(number as Message))?;
                    Ok(mine)
                })
            })
            .collect();
        there.wait();
        let begin = Usage::now();
        go.wait();
        let posted = all_done(posters);
        let stopped = queue.post(STOP);
        let taken = all_done(takers);
        stopped?;
        let (posted, taken) = (posted?, taken?);
        if posted != taken {
            let text = format!("{taken} messages were taken where {posted} were posted");
            return Err(io::Error::other(text));
        }
        Ok(begin)
    })
}

/// Takes messages until it gets the message to stop, which it passes on to the next thread. Returns
/// their number.
fn take_all(queue: &dyn Queue, taker: &mut dyn Take) -> io::Result<usize> {
    let mut taken = Vec::with_capacity(BATCH);
    let mut sum = 0;
    loop {
        taken.clear();
        taker.take(&mut taken)?;
        sum += taken.len();
        if taken.contains(&STOP) {
            queue.post(STOP)?;
            return Ok(sum - 1);
        }
    }
}

/// Two threads answer each other. Returns the resources used by the time both were ready.
fn round_trips(there: &dyn Queue, back: &dyn Queue, messages: usize) -> io::Result<Usage> {
    let (ready, go) = (Barrier::new(3), Barrier::new(3));
    let trips = messages / 2;
    thread::scope(|scope| {
        let (ready, go) = (&ready, &go);
        let side = move |from: &dyn Queue, to: &dyn Queue, begins: bool| {
            let taker = from.taker();
            ready.wait();
            go.wait();
            let mut taker = taker?;
            let mut taken = Vec::with_capacity(BATCH);
            for number in 0..trips {
                if begins {
                    to.post(number as Message)?;
                }
                taken.clear();
                taker.take(&mut taken)?;
                if taken != [number as Message] {
                    return Err(io::Error::other("another message came than was sent"));
                }
                if !begins {
                    to.post(number as Message)?;
                }
            }
            Ok(trips)
        };
        let threads = [
            scope.spawn(move || side(back, there, true)),
            scope.spawn(move || side(there, back, false)),
        ];
        ready.wait();
        let begin = Usage::now();
        go.wait();
        all_done(threads).map(|_| begin)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::APART;

    /// Each situation checks that all messages arrive, unchanged.
    #[test]
    fn every_contender_brings_every_message_in_every_situation() {
        for entry in ENTRIES {
            let situations = [
                Situation::Alone(1),
                Situation::Alone(64),
                Situation::Following,
                Situation::Stream(1, 1),
                Situation::Stream(4, 1),
                Situation::Stream(4, 4),
                Situation::RoundTrip,
            ];
            for situation in situations {
                let measured = measure(*entry, situation, 1280).unwrap();
                assert_eq!(measured.messages, 1280);
                assert!(measured.elapsed > Duration::ZERO);
            }
        }
    }

    #[test]
    fn each_turn_notes_how_far_apart_the_processors_were() {
        let rounds = Amount::exactly(3);
        let cell = cell(Situation::Alone(64), "a test", Options { rounds, messages: 1280 });
        for row in &cell.rows {
            assert_eq!(row.failure, None, "{}", row.contender);
            assert_eq!(row.values(COMPARED).len(), 3, "{}", row.contender);
            assert_eq!(row.values(APART).len(), 3, "{}", row.contender);
        }
    }

    #[test]
    fn prices_are_for_each_message() {
        let measured = Measured {
            messages: 1000,
            elapsed: Duration::from_millis(2),
            processor: Duration::from_millis(3),
            switches: Some(500),
            wakes: Some(250),
        };
        let mut row = Row::default();
        measured.note(Situation::RoundTrip, &mut row);
        assert_eq!(row.values("message"), [Some(2000.0)]);
        assert_eq!(row.values("messages"), [Some(500_000.0)]);
        assert_eq!(row.values("CPU"), [Some(3000.0)]);
        assert_eq!(row.values("switches"), [Some(0.5)]);
        assert_eq!(row.values("wakes"), [Some(0.25)]);
    }
}
