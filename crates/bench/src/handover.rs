//! How long it takes until another thread takes over from a handler that blocks in the kernel, for
//! each way in which the port finds that out.
//!
//! Two situations. *Alone*: one thread may run, and it goes to sleep; only the parked thread can
//! notice. *Among others*: two may run, one goes to sleep, and the other handles short packets all
//! the time, so that it comes to the port every few dozen microseconds; another one is always queued.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use completion_port::{Batch, BlockDetection, Packet, Port};

/// How long the handler sleeps: longer than any way takes to find out.
const SLEEP: Duration = Duration::from_millis(12);
/// How long a short packet takes.
const SHORT: Duration = Duration::from_micros(30);

/// Options of `cport-bench handover`.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Options {
    /// How often each way is tried in each situation
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
}

#[derive(Clone, Copy, Debug)]
enum Message {
    /// Sleeps, by a call that says so (`announced`) or without a word.
    Sleep {
        announced: bool,
    },
    /// Keeps its thread busy for a moment, and posts another one.
    Short,
    /// Nothing: handled by whoever takes over.
    Plain,
    End,
}

/// Who ran when a handler went to sleep: the sleeper and the thread beside it.
#[derive(Clone, Copy, Debug)]
struct Asleep {
    since: Instant,
    threads: [usize; 2],
}

/// What the threads of a port have in common.
#[derive(Debug)]
struct Server {
    port: Port<(), Message>,
    asleep: Mutex<Option<Asleep>>,
    /// The thread that handled the last short packet, and the last other one.
    last: AtomicUsize,
    before: AtomicUsize,
    taken_over: Sender<Duration>,
}

/// A sleep that nothing interrupts.
fn sleep() {
    let (_open, never) = channel::<()>();
    let _ = never.recv_timeout(SLEEP);
}

impl Server {
    fn handles(&self, me: usize) {
        let mut asleep = self.asleep.lock().unwrap_or_else(PoisonError::into_inner);
        if asleep.is_some_and(|asleep| !asleep.threads.contains(&me))
            && let Some(asleep) = asleep.take()
        {
            let _ = self.taken_over.send(asleep.since.elapsed());
        }
    }

    fn goes_to_sleep(&self, me: usize) {
        let last = self.last.load(Relaxed);
        let other = if last == me { self.before.load(Relaxed) } else { last };
        let asleep = Asleep { since: Instant::now(), threads: [me, other] };
        *self.asleep.lock().unwrap_or_else(PoisonError::into_inner) = Some(asleep);
    }

    fn serve(&self, me: usize) {
        let port = &self.port;
        let mut batch = Batch::with_capacity(1);
        while let Ok(packets) = port.wait(&mut batch, None) {
            for packet in packets {
                let Packet::Posted(message) = packet else { continue };
                match message {
                    Message::Sleep { announced } => {
                        self.goes_to_sleep(me);
                        if announced { port.blocking(sleep) } else { sleep() }
                    }
                    Message::Plain => self.handles(me),
                    Message::Short => {
                        self.handles(me);
                        let last = self.last.swap(me, Relaxed);
                        if last != me {
                            self.before.store(last, Relaxed);
                        }
                        let end = Instant::now() + SHORT;
                        while Instant::now() < end {
                            std::hint::spin_loop();
                        }
                        let _ = port.post(Message::Short);
                    }
                    Message::End => {
                        let _ = port.post(Message::End);
                        return;
                    }
                }
            }
        }
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
    let nobody = AtomicUsize::new(usize::MAX);
    let server = Server {
        port: Port::<(), Message>::builder()
            .concurrency(limit)
            .block_detection(detection)
            .build()?,
        asleep: Mutex::new(None),
        last: AtomicUsize::new(nobody.load(Relaxed)),
        before: nobody,
        taken_over,
    };
    let mut times: Vec<Duration> = thread::scope(|scope| {
        for me in 0..=limit {
            let server = &server;
            scope.spawn(move || server.serve(me));
        }
        if among_others {
            // Two, so that one is queued whenever the thread that handles them comes back.
            let _ = server.port.post(Message::Short);
            let _ = server.port.post(Message::Short);
        }
        let times =
            (0..rounds).map(|_| round(&server.port, announced, among_others, &heard)).collect();
        let _ = server.port.post(Message::End);
        times
    });
    times.sort_unstable();
    Ok(times)
}

fn round(
    port: &Port<(), Message>,
    announced: bool,
    among_others: bool,
    heard: &Receiver<Duration>,
) -> Duration {
    let _ = port.post(Message::Sleep { announced });
    if !among_others {
        let _ = port.post(Message::Plain);
    }
    let time = heard.recv_timeout(10 * SLEEP).unwrap_or(Duration::MAX);
    // Until the sleeper is back, so that each round begins alike.
    let end = Instant::now() + 2 * SLEEP;
    while port.stats().blocked > 0 && Instant::now() < end {
        thread::yield_now();
    }
    time
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
