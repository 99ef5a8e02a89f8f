//! The time until another thread takes over from a handler that blocks in the kernel, for each of
//! the port's detection methods.
//!
//! Two situations. *Alone*: one thread may run, and it goes to sleep; only the parked thread can
//! notice. *Among others*: two may run, one goes to sleep, and the other handles short packets all
//! the time, so that it enters the port every few dozen microseconds; another one is always queued.
//!
//! Also measures the cost of being observed: the additional processor time of a handler for each
//! sleep if its switches are recorded.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::options::Handover as Options;
use completion_port::{Batch, BlockDetection, Packet, Port};

use crate::processor_time::Clock;

/// How long the handler sleeps: longer than any way takes to find out.
const SLEEP: Duration = Duration::from_millis(12);
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(2);
/// Sleeps that are counted together, and how often they are.
const NAPS: u32 = 4_000;
const NAP_ROUNDS: usize = 15;
/// How long a short packet takes.
const SHORT: Duration = Duration::from_micros(30);

#[derive(Clone, Copy, Debug)]
enum Message {
    /// Sleeps, in a call that announces it (`announced`) or without announcing it.
    Sleep {
        announced: bool,
    },
    /// Keeps its thread busy for a moment, and posts another one.
    Short,
    /// Nothing: the thread that takes over handles it.
    Plain,
    End,
}

/// What the threads of a port have in common.
#[derive(Debug)]
struct Server {
    port: Port<(), Message>,
    /// When the handler went to sleep from which nobody has taken over yet.
    asleep: Mutex<Option<Instant>>,
    is_asleep: AtomicBool,
    /// How many short packets are being handled at the moment.
    short: AtomicUsize,
    taken_over: Sender<Duration>,
}

/// A sleep that nothing interrupts.
fn sleep() {
    let (_open, never) = channel::<()>();
    let _ = never.recv_timeout(SLEEP);
}

impl Server {
    fn asleep(&self) -> MutexGuard<'_, Option<Instant>> {
        self.asleep.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As many threads as may are running again.
    fn take_over(&self) {
        if let Some(since) = self.asleep().take() {
            let _ = self.taken_over.send(since.elapsed());
        }
    }

    fn sleep(&self, announced: bool) {
        self.is_asleep.store(true, SeqCst);
        *self.asleep() = Some(Instant::now());
        if announced {
            self.port.blocking(sleep)
        } else {
            sleep()
        }
        self.is_asleep.store(false, SeqCst);
    }

    /// Two at a time are handled again once another thread has taken over.
    fn be_short(&self) {
        if self.short.fetch_add(1, SeqCst) > 0 {
            self.take_over();
        }
        let end = Instant::now() + SHORT;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        self.short.fetch_sub(1, SeqCst);
        let _ = self.port.post(Message::Short);
    }

    fn serve(&self) {
        let mut batch = Batch::with_capacity(1);
        while let Ok(packets) = self.port.wait(&mut batch, None) {
            for packet in packets {
                let Packet::Posted(message) = packet else { continue };
                match message {
                    Message::Sleep { announced } => self.sleep(announced),
                    Message::Plain => self.take_over(),
                    Message::Short => self.be_short(),
                    Message::End => {
                        let _ = self.port.post(Message::End);
                        return;
                    }
                }
            }
        }
    }

    fn round(&self, announced: bool, among_others: bool, heard: &Receiver<Duration>) -> Duration {
        let _ = self.port.post(Message::Sleep { announced });
        if !among_others {
            let _ = self.port.post(Message::Plain);
        }
        let time = heard.recv_timeout(10 * SLEEP).unwrap_or(Duration::MAX);
        // Until the sleeper is back, and no more threads run than may, so that rounds begin alike.
        while self.is_asleep.load(SeqCst) {
            thread::yield_now();
        }
        let _ = heard.recv_timeout(PAUSE);
        time
    }
}

/// The times of all rounds, in order of length.
fn measure(
    detection: BlockDetection,
    announced: bool,
    among_others: bool,
    rounds: u32,
) -> completion_port::Result<Vec<Duration>> {
    let limit = if among_others { 2 } else { 1 };
    let (taken_over, heard) = channel();
    let builder = Port::builder().concurrency(limit).block_detection(detection);
    let server = Server {
        port: builder.build()?,
        asleep: Mutex::new(None),
        is_asleep: AtomicBool::new(false),
        short: AtomicUsize::new(0),
        taken_over,
    };
    let mut times: Vec<Duration> = thread::scope(|scope| {
        for _ in 0..=limit {
            scope.spawn(|| server.serve());
        }
        if among_others {
            // Two, so that one is queued whenever their thread returns.
            let _ = server.port.post(Message::Short);
            let _ = server.port.post(Message::Short);
        }
        let times = (0..rounds).map(|_| server.round(announced, among_others, &heard)).collect();
        let _ = server.port.post(Message::End);
        times
    });
    times.sort_unstable();
    Ok(times)
}

/// Measures and prints.
pub(crate) fn run(options: Options) {
    println!("Until another thread takes over from one that sleeps [us]\n");
    println!(
        "{:<14} {:<14} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "way", "situation", "least", "p50", "p90", "p99", "most"
    );
    let ways = [
        ("announced", BlockDetection::Announced, true),
        ("switches", BlockDetection::Switches, false),
        ("automatic", BlockDetection::Automatic, false),
        ("tick", BlockDetection::Tick, false),
    ];
    for (name, detection, announced) in ways {
        for (situation, among_others) in [("alone", false), ("among others", true)] {
            match measure(detection, announced, among_others, options.rounds) {
                Ok(times) => print(name, situation, &times),
                Err(error) => println!("{name:<14} not measured: {error}"),
            }
        }
    }
    print_price();
}

/// What a sleep costs the thread of a handler, in nanoseconds of its processor time.
fn price_of_a_nap(detection: BlockDetection) -> completion_port::Result<f64> {
    let port: Port<(), ()> = Port::builder().block_detection(detection).build()?;
    port.post(()).map_err(|refused| refused.error())?;
    let mut batch = Batch::with_capacity(1);
    // From here on this thread runs with a packet of the port.
    let _packet = port.wait(&mut batch, None)?.next();
    let nap = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 1 };
    let begun = Clock::Thread.now();
    for _ in 0..NAPS {
        let _ = rustix::thread::nanosleep(&nap);
    }
    let took = Clock::Thread.now().saturating_sub(begun);
    Ok(took.as_secs_f64() * 1e9 / f64::from(NAPS))
}

/// Prints how much more it is where switches are recorded: the median of rounds in turn.
fn print_price() {
    let round = |_| {
        let plain = thread::spawn(|| price_of_a_nap(BlockDetection::Announced));
        let plain = plain.join().unwrap_or(Ok(f64::NAN));
        let observed = thread::spawn(|| price_of_a_nap(BlockDetection::Switches));
        let observed = observed.join().unwrap_or(Ok(f64::NAN));
        Ok((plain?, observed?))
    };
    let rounds: completion_port::Result<Vec<(f64, f64)>> = (0..NAP_ROUNDS).map(round).collect();
    match rounds {
        Ok(rounds) => {
            let median = |value: fn(&(f64, f64)) -> f64| {
                let mut values: Vec<f64> = rounds.iter().map(value).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            println!(
                "\nA sleep of a handler: {:.0} ns of its processor's time; {:.0} more if it is observed",
                median(|(plain, _)| *plain),
                median(|(plain, observed)| observed - plain)
            );
        }
        Err(error) => println!("\nThe price of being observed was not measured: {error}"),
    }
}

fn print(name: &str, situation: &str, times: &[Duration]) {
    let at = |part: usize| {
        let index = (times.len() * part / 100).min(times.len() - 1);
        times[index].as_secs_f64() * 1e6
    };
    println!(
        "{name:<14} {situation:<14} {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>8.0}",
        at(0),
        at(50),
        at(90),
        at(99),
        at(100)
    );
}
