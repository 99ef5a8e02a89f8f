//! Many timers, and deadlines that move with each request.
//!
//! *Timers*: one thread arms a number of timers, and cancels them in the order in which it armed
//! them; or it arms them, waits without doing anything until all are due, and takes them. The
//! port's timers are messages for a future time, which a wait returns. tokio's are its `Sleep`s,
//! each in its own box and polled once, with a waker that only counts; so the figures do not
//! include the cost of its tasks. Deadlines are spread over half a minute where they are cancelled,
//! and over a few milliseconds where they ring, in an order that has nothing to do with them.
//!
//! *Idle connections*: requests come to all connections in turn, 64 at a time; there are 64, or so
//! many more that no near cache has their deadlines when they are moved. The time is that of arming
//! alone, by [`Ready::rearm`](completion_port::Ready::rearm) or until a deadline, which each
//! request moves: to a time span from then; to an instant, for which the clock is read once for the
//! 64; or to instants that are all different, of which no one is computed from another. Those are
//! computed before the measurement.
//!
//! Time is the thread's processor time. *Wakes* is the port's own count while another thread waits
//! for what is armed: one wake announces the first deadline, and further ones announce each earlier
//! deadline.

use std::future::Future as _;
use std::io;
use std::iter;
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, Interest, OneShot, Packet, Port, Ready, Registration};

use crate::distance;
use crate::enough::Amount;
use crate::processor_time::Clock;
use crate::report::{Cell, Row};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    pub(crate) rounds: Amount,
    pub(crate) timers: usize,
    pub(crate) connections: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options { rounds: Amount::exactly(12), timers: 100_000, connections: 10_000 }
    }
}

/// When timers that are cancelled would ring, the first of them.
const LATER: Duration = Duration::from_secs(30);
/// The others follow within that time.
const SPREAD: Duration = Duration::from_secs(30);
/// How long ringing timers may be, in addition to the time of arming.
const SOON: Duration = Duration::from_millis(5);
/// Connections that have a request at the same time.
const TOGETHER: usize = 64;

const ARM: &str = "arm";
const CANCEL: &str = "cancel";
const FIRE: &str = "fire";
const MOVE: &str = "arming";

/// What a contender's timers have cost, all of them.
#[derive(Clone, Copy, Debug, Default)]
struct Spent {
    arm: Duration,
    cancel: Duration,
    fire: Duration,
    wakes: Option<u64>,
}

#[derive(Clone, Copy)]
struct Entry {
    name: &'static str,
    cancelled: fn(timers: usize) -> io::Result<Spent>,
    taken: fn(timers: usize) -> io::Result<Spent>,
}

/// The first is the one to which the other is compared.
const ENTRIES: [Entry; 2] = [
    Entry { name: "ours", cancelled: ours_cancelled, taken: ours_taken },
    Entry { name: "tokio", cancelled: tokio_cancelled, taken: tokio_taken },
];

/// What [`perform`] knows.
pub(crate) const PERFORMED: [&str; 4] =
    ["ours, cancelled", "ours, taken", "tokio, cancelled", "tokio, taken"];

/// Arms that many timers, and cancels or takes them; `None` if there is no such contender.
pub(crate) fn perform(name: &str, timers: usize) -> io::Result<Option<()>> {
    let Some((name, how)) = name.split_once(", ") else { return Ok(None) };
    let Some(entry) = ENTRIES.iter().find(|entry| entry.name == name) else { return Ok(None) };
    let run = if how == "taken" { entry.taken } else { entry.cancelled };
    run(timers).map(|_| Some(()))
}

/// Measures all contenders.
pub(crate) fn run(options: Options, progress: &mut dyn FnMut(&str)) -> Vec<Cell> {
    progress(&format!("S15: {} timers", options.timers));
    let timers = timers(options);
    // Few of them stay in the processor's caches, and show the cost of the move itself.
    let idle = [TOGETHER, options.connections].map(|connections| {
        progress(&format!("S15: deadlines of {connections} connections"));
        deadlines(options.rounds, connections)
    });
    iter::once(timers).chain(idle).collect()
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn each(time: Duration, count: usize) -> f64 {
    time.as_nanos() as f64 / count as f64
}

fn timers(options: Options) -> Cell {
    let count = options.timers;
    let row = |entry: &Entry| Row { contender: entry.name.to_owned(), ..Row::default() };
    let mut rows: Vec<Row> = ENTRIES.iter().map(row).collect();
    let mut round = 0;
    while options.rounds.goes_on(round, &rows, ARM) {
        let mut before = distance::measure();
        for turn in 0..ENTRIES.len() {
            let index = (round + turn) % ENTRIES.len();
            let row = &mut rows[index];
            match measure(ENTRIES[index], count) {
                Ok(spent) => {
                    row.push(ARM, "ns", Some(each(spent.arm, count)));
                    row.push(CANCEL, "ns", Some(each(spent.cancel, count)));
                    row.push(FIRE, "ns", Some(each(spent.fire, count)));
                    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
                    row.push("wakes", "", spent.wakes.map(|wakes| wakes as f64));
                }
                Err(error) => row.failure = Some(error.to_string()),
            }
            let behind = distance::measure();
            row.note_distance(&before, &behind);
            before = behind;
        }
        round += 1;
    }
    Cell {
        scenario: "S15".to_owned(),
        title: format!("{count} timers"),
        threads: Some(1),
        compared: ARM.to_owned(),
        rows,
        notes: vec![
            "wakes: in all, of a thread that waits while as many timers are armed, each later than the one before."
                .to_owned(),
        ],
        ..Cell::default()
    }
}

fn measure(entry: Entry, count: usize) -> io::Result<Spent> {
    let cancelled = (entry.cancelled)(count)?;
    let taken = (entry.taken)(count)?;
    let wakes = if entry.name == "ours" { Some(wakes_of_arming(count)?) } else { None };
    Ok(Spent { fire: taken.fire, wakes, ..cancelled })
}

/// When timer `number` rings, of those that are spread over `time`.
fn spread(number: usize, time: Duration) -> Duration {
    // Multiples of a number without a common divisor jump about.
    let part = u32::try_from(number.wrapping_mul(48_271) % 65_536).unwrap_or(0);
    time * part / 65_536
}

fn wrong(taken: usize, count: usize) -> io::Error {
    io::Error::other(format!("{taken} timers were there where {count} were armed"))
}

// ---- the port's ----

type Timers = Port<UdpSocket, usize>;

fn arm(port: &Timers, message: usize, at: Instant) -> io::Result<completion_port::TimerId> {
    port.post_at(at, message).map_err(|refused| refused.error().into())
}

fn ours_cancelled(count: usize) -> io::Result<Spent> {
    let port: Timers = Port::builder().build()?;
    let base = Instant::now() + LATER;
    let mut timers = Vec::with_capacity(count);
    let begin = Clock::Thread.now();
    for number in 0..count {
        timers.push(arm(&port, number, base + spread(number, SPREAD))?);
    }
    let armed = Clock::Thread.now();
    let cancelled = timers.into_iter().filter_map(|timer| port.cancel_post(timer)).count();
    let end = Clock::Thread.now();
    if cancelled != count {
        return Err(wrong(cancelled, count));
    }
    Ok(Spent { arm: armed - begin, cancel: end - armed, ..Spent::default() })
}

fn ours_taken(count: usize) -> io::Result<Spent> {
    let port: Timers = Port::builder().build()?;
    let base = Instant::now() + arming(count);
    for number in 0..count {
        arm(&port, number, base + spread(number, SOON))?;
    }
    sleep_until(base + SOON);
    let mut batch = Batch::with_capacity(TOGETHER);
    let mut taken = 0;
    let begin = Clock::Thread.now();
    while taken < count {
        taken += port.wait(&mut batch, Some(Duration::from_secs(1)))?.count();
    }
    let fire = Clock::Thread.now() - begin;
    if taken == count { Ok(Spent { fire, ..Spent::default() }) } else { Err(wrong(taken, count)) }
}

/// How often a waiting thread is woken while that many timers are armed.
fn wakes_of_arming(count: usize) -> io::Result<u64> {
    let port: Timers = Port::builder().build()?;
    let base = Instant::now() + LATER;
    thread::scope(|scope| {
        let port = &port;
        let waiting = scope.spawn(move || -> io::Result<()> {
            port.wait(&mut Batch::new(), None)?.for_each(drop);
            Ok(())
        });
        while port.stats().parked == 0 && !waiting.is_finished() {
            thread::yield_now();
        }
        let before = port.stats().wakes;
        let armed = (0..u32::try_from(count).unwrap_or(u32::MAX))
            .try_for_each(|number| arm(port, 0, base + SPREAD / 1_000_000 * number).map(drop));
        let wakes = port.stats().wakes - before;
        port.post(0).map_err(|refused| refused.error())?;
        waiting.join().map_err(|_| io::Error::other("a thread panicked"))??;
        armed.map(|()| wakes)
    })
}

// ---- tokio's ----

/// Counts the timers that have rung.
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

type Sleeps = Vec<Pin<Box<tokio::time::Sleep>>>;

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_time().build()
}

/// Arms that many timers, those of `count`.
fn sleeps(count: usize, base: Instant, time: Duration, waker: &Waker) -> Sleeps {
    let mut context = Context::from_waker(waker);
    let mut sleeps = Vec::with_capacity(count);
    for number in 0..count {
        let mut sleep = Box::pin(tokio::time::sleep_until((base + spread(number, time)).into()));
        // It is armed when it is polled for the first time.
        let _ = sleep.as_mut().poll(&mut context);
        sleeps.push(sleep);
    }
    sleeps
}

fn tokio_cancelled(count: usize) -> io::Result<Spent> {
    let runtime = runtime()?;
    let _entered = runtime.enter();
    let waker = Waker::from(Arc::new(Counter(AtomicUsize::new(0))));
    let base = Instant::now() + LATER;
    let begin = Clock::Thread.now();
    let armed = sleeps(count, base, SPREAD, &waker);
    let middle = Clock::Thread.now();
    drop(armed);
    let end = Clock::Thread.now();
    Ok(Spent { arm: middle - begin, cancel: end - middle, ..Spent::default() })
}

fn tokio_taken(count: usize) -> io::Result<Spent> {
    let runtime = runtime()?;
    let counter = Arc::new(Counter(AtomicUsize::new(0)));
    let waker = Waker::from(Arc::clone(&counter));
    let base = Instant::now() + arming(count);
    let armed = {
        let _entered = runtime.enter();
        sleeps(count, base, SOON, &waker)
    };
    sleep_until(base + SOON);
    let rung = || counter.0.load(Ordering::Relaxed);
    let late = Instant::now() + Duration::from_secs(1);
    let begin = Clock::Thread.now();
    while rung() < count && Instant::now() < late {
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
    }
    let fire = Clock::Thread.now() - begin;
    drop(armed);
    let rung = rung();
    if rung == count { Ok(Spent { fire, ..Spent::default() }) } else { Err(wrong(rung, count)) }
}

/// Enough time to arm that many before the first one rings.
fn arming(count: usize) -> Duration {
    Duration::from_micros(1) * u32::try_from(count).unwrap_or(u32::MAX)
}

#[allow(clippy::disallowed_methods, reason = "the time itself is the event")]
fn sleep_until(at: Instant) {
    thread::sleep(at.saturating_duration_since(Instant::now()) + Duration::from_millis(2));
}

// ---- deadlines that move ----

/// How a connection is armed for its next request.
#[derive(Clone, Copy)]
struct Arming {
    name: &'static str,
    arm: fn(Ready<'_, UdpSocket>, Instant) -> io::Result<()>,
    /// By how much the deadlines are apart of those that are armed together.
    apart: Duration,
}

const PLAIN: &str = "rearm";
const ARMINGS: [Arming; 4] = [
    Arming {
        name: PLAIN,
        arm: |ready, _| ready.rearm().map_err(|refused| refused.error().into()),
        apart: Duration::ZERO,
    },
    Arming {
        name: "rearm_until, a time span",
        arm: |ready, _| ready.rearm_until(LATER).map_err(|refused| refused.error().into()),
        apart: Duration::ZERO,
    },
    Arming { name: "rearm_until, an instant", arm: until, apart: Duration::ZERO },
    Arming { name: "rearm_until, instants", arm: until, apart: Duration::from_nanos(1) },
];

fn until(ready: Ready<'_, UdpSocket>, at: Instant) -> io::Result<()> {
    ready.rearm_until(at).map_err(|refused| refused.error().into())
}

/// Connections without a stream, which take fewer descriptors.
struct Connections {
    port: Port<UdpSocket, ()>,
    /// By this the requests are sent.
    client: UdpSocket,
    addresses: Vec<SocketAddr>,
    arming: Arming,
}

impl Connections {
    fn new(count: usize, arming: Arming) -> io::Result<Self> {
        let port = Port::builder().build()?;
        let mut addresses = Vec::with_capacity(count);
        for _ in 0..count {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.set_nonblocking(true)?;
            addresses.push(socket.local_addr()?);
            let registration = Registration::owned(socket, Interest::IN, OneShot::Level);
            port.register(registration).map_err(|refused| refused.error())?;
        }
        let client = UdpSocket::bind("127.0.0.1:0")?;
        Ok(Connections { port, client, addresses, arming })
    }

    /// One request to each. Returns what arming has taken.
    fn pass(&self) -> io::Result<Duration> {
        let mut batch = Batch::with_capacity(TOGETHER);
        let mut held = Vec::with_capacity(TOGETHER);
        let mut spent = Duration::ZERO;
        for addresses in self.addresses.chunks(TOGETHER) {
            for address in addresses {
                self.client.send_to(b"?", address)?;
            }
            let mut left = addresses.len();
            let mut at = Instant::now() + LATER;
            while left > 0 {
                for packet in self.port.wait(&mut batch, None)? {
                    let Packet::Ready(mut ready) = packet else { continue };
                    ready.key().recv(&mut [0; 8])?;
                    ready.read_drained();
                    held.push((ready, at));
                    at += self.arming.apart;
                }
                left = left.saturating_sub(held.len());
                let begin = Clock::Thread.now();
                held.drain(..).try_for_each(|(ready, at)| (self.arming.arm)(ready, at))?;
                spent += Clock::Thread.now() - begin;
            }
        }
        Ok(spent)
    }

    /// How often a thread that waits at the port is woken while this one arms some of the connections, which have had
    /// their first deadlines.
    fn wakes_of_arming(&self) -> io::Result<u64> {
        let some = &self.addresses[..self.addresses.len().min(TOGETHER)];
        for address in some {
            self.client.send_to(b"?", address)?;
        }
        let (mut batch, mut held) = (Batch::with_capacity(TOGETHER), Vec::new());
        while held.len() < some.len() {
            for packet in self.port.wait(&mut batch, None)? {
                let Packet::Ready(mut ready) = packet else { continue };
                ready.key().recv(&mut [0; 8])?;
                ready.read_drained();
                held.push(ready);
            }
        }
        let port = &self.port;
        thread::scope(|scope| {
            let waiting = scope.spawn(move || -> io::Result<()> {
                port.wait(&mut Batch::new(), None)?.for_each(drop);
                Ok(())
            });
            while port.stats().parked == 0 && !waiting.is_finished() {
                thread::yield_now();
            }
            let before = port.stats().wakes;
            let at = Instant::now() + LATER;
            let armed = held.drain(..).try_for_each(|ready| (self.arming.arm)(ready, at));
            let wakes = port.stats().wakes - before;
            port.post(()).map_err(|refused| refused.error())?;
            waiting.join().map_err(|_| io::Error::other("a thread panicked"))??;
            armed.map(|()| wakes)
        })
    }
}

fn deadlines(rounds: Amount, count: usize) -> Cell {
    let row = |arming: &Arming| Row { contender: arming.name.to_owned(), ..Row::default() };
    let mut rows: Vec<Row> = ARMINGS.iter().map(row).collect();
    let mut round = 0;
    while rounds.goes_on(round, &rows, MOVE) {
        let mut before = distance::measure();
        let mut times = [None; ARMINGS.len()];
        for turn in 0..ARMINGS.len() {
            let index = (round + turn) % ARMINGS.len();
            let row = &mut rows[index];
            let made = Connections::new(count, ARMINGS[index]).and_then(|connections| {
                // The first deadlines are set, and not moved.
                connections.pass()?;
                let spent = connections.pass()?;
                Ok((spent, connections.wakes_of_arming()?))
            });
            match made {
                Ok((spent, wakes)) => {
                    times[index] = Some(each(spent, count));
                    row.push(MOVE, "ns", times[index]);
                    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
                    row.push("wakes", "", Some(wakes as f64));
                }
                Err(error) => row.failure = Some(error.to_string()),
            }
            let behind = distance::measure();
            row.note_distance(&before, &behind);
            before = behind;
        }
        note_moves(&mut rows, &times, round);
        round += 1;
    }
    Cell {
        scenario: "S15".to_owned(),
        title: format!("idle deadlines of {count} connections, moved with each request"),
        threads: Some(1),
        connections: Some(count),
        compared: MOVE.to_owned(),
        rows,
        notes: vec!["a move: above `rearm` of the same round.".to_owned()],
        ..Cell::default()
    }
}

/// What a move takes above the plain arming of the same round; nothing if the processors were moved between the two.
fn note_moves(rows: &mut [Row], times: &[Option<f64>], round: usize) {
    let stayed: Vec<bool> = rows.iter().map(|row| row.is_comparable(&rows[0], round)).collect();
    for ((row, time), stayed) in rows.iter_mut().zip(times).zip(stayed) {
        let above = time.zip(times[0]).map(|(time, plain)| time - plain);
        row.push("a move", "ns", above.filter(|_| stayed && row.contender != PLAIN));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> Options {
        let rounds = Amount::exactly(2);
        Options { rounds, timers: 2000, connections: 200 }
    }

    /// Each contender checks that it has all its timers in the end.
    #[test]
    fn every_contender_cancels_and_takes_what_it_has_armed() {
        for name in PERFORMED {
            assert!(perform(name, 1000).unwrap().is_some(), "{name}");
        }
        assert!(perform("nobody, taken", 1).unwrap().is_none());
    }

    #[test]
    fn later_timers_wake_the_thread_that_waits_once() {
        let wakes = wakes_of_arming(1000).unwrap();
        assert!(wakes <= 2, "{wakes}");
    }

    #[test]
    fn a_move_is_measured_where_the_processors_stayed() {
        let row = |arming: &Arming| Row { contender: arming.name.to_owned(), ..Row::default() };
        let mut rows: Vec<Row> = ARMINGS.iter().map(row).collect();
        let (near, far) = (Duration::from_nanos(50), Duration::from_nanos(500));
        for (round, last) in [near, far].into_iter().enumerate() {
            for (row, apart) in rows.iter_mut().zip([near, near, last, near]) {
                row.note_distance(&Ok(apart), &Ok(apart));
            }
            note_moves(&mut rows, &[Some(20.0), Some(55.0), Some(34.0), Some(40.0)], round);
        }
        let moves: Vec<_> = rows.iter().map(|row| row.values("a move")).collect();
        let each = |value| [Some(value), Some(value)];
        assert_eq!(moves, [[None, None], each(35.0), [Some(14.0), None], each(20.0)]);
    }

    #[test]
    fn each_cell_has_every_quantity_in_every_round() {
        let cells = run(options(), &mut |_| {});
        let [timers, few, many] = &cells[..] else { panic!("{cells:?}") };
        // As many as stay in the processor's caches, and as many as were asked for.
        assert_eq!([few.connections, many.connections], [Some(64), Some(200)]);
        let of_moves = &[MOVE][..];
        for (cell, quantities) in
            [(timers, &[ARM, CANCEL, FIRE][..]), (few, of_moves), (many, of_moves)]
        {
            for row in &cell.rows {
                assert_eq!(row.failure, None, "{}", row.contender);
                for quantity in quantities {
                    let values = row.values(quantity);
                    assert!(values.len() == 2 && values.iter().all(Option::is_some), "{quantity}");
                }
            }
        }
    }
}
