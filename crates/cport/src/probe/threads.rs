//! Threads and the concurrency value.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, BlockDetection, Packet, Port};

use super::Trial;
use super::kit::{Plain, QUIET, SOON, Seen, narrow, plain, sleep_in_silence, until, wait};
use crate::gauge::Gauge;

pub(super) const TRIALS: &[Trial] = &[
    Trial {
        rule: 36,
        what: "the usual value; four threads where one may run",
        expected: "as many as processors; 1 at a time, 40 messages",
        run: concurrency,
    },
    Trial {
        rule: 37,
        what: "two threads wait, one message, five times",
        expected: "5 of 5 to the thread that waited last",
        run: newest_first,
    },
    Trial {
        rule: 38,
        what: "the only thread that may run spins, then says that it blocks",
        expected: "spins: nothing for the other; blocks: posted 2",
        run: announced,
    },
    Trial {
        rule: 39,
        what: "the only thread that may run sleeps without a word",
        expected: "posted 2 for the other, before it goes on",
        run: unannounced,
    },
    Trial {
        rule: 40,
        what: "a batch of three is dropped after its first packet",
        expected: "posted 1; then posted 2, posted 3",
        run: left_over,
    },
];

fn concurrency() -> Seen {
    const MESSAGES: u32 = 40;
    let usual = plain()?.concurrency();
    let usual = if thread::available_parallelism().is_ok_and(|number| number.get() == usual) {
        "as many as processors".to_owned()
    } else {
        format!("{usual} threads")
    };
    // A thread that waits for a page would give its place away, and two would be at work at its end.
    let builder = Port::builder().concurrency(1).block_detection(BlockDetection::Announced);
    let port: Plain = builder.build()?;
    let (gauge, handled) = (Gauge::default(), AtomicU32::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut batch = Batch::with_capacity(1);
                while let Ok(packets) = port.wait(&mut batch, SOON) {
                    for _ in packets {
                        let _working = gauge.enter();
                        let until = Instant::now() + Duration::from_micros(20);
                        while Instant::now() < until {
                            spin_loop();
                        }
                        handled.fetch_add(1, SeqCst);
                    }
                }
            });
        }
        let outcome = (0..MESSAGES)
            .try_for_each(|number| port.post(number))
            .map_err(Into::into)
            .and_then(|()| until(|| handled.load(SeqCst) == MESSAGES));
        port.close();
        outcome
    })?;
    Ok(format!("{usual}; {} at a time, {} messages", gauge.peak(), handled.load(SeqCst)))
}

fn newest_first() -> Seen {
    let port: Plain = Port::builder().concurrency(2).build()?;
    let mut right = 0;
    for _ in 0..5 {
        thread::scope(|scope| {
            let older = scope.spawn(|| wait(&port, SOON));
            let parked = until(|| port.stats().parked == 1);
            let newer = scope.spawn(|| wait(&port, SOON));
            parked.and_then(|()| until(|| port.stats().parked == 2))?;
            port.post(1)?;
            let newer = newer.join().map_err(|_| "a thread panicked")??;
            port.post(2)?;
            let older = older.join().map_err(|_| "a thread panicked")??;
            right += usize::from(newer == "posted 1" && older == "posted 2");
            Ok::<_, Box<dyn std::error::Error>>(())
        })?;
    }
    Ok(format!("{right} of 5 to the thread that waited last"))
}

/// Ends the spinning of a thread, whatever becomes of the trial.
struct Release<'r>(&'r AtomicBool);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn announced() -> Seen {
    let (port, released) = (narrow()?, AtomicBool::new(false));
    let (go_on, blocked) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let release = Release(&released);
        let (port, released) = (&port, &released);
        port.post(1)?;
        scope.spawn(move || {
            let mut batch = Batch::with_capacity(1);
            let Ok(mut packets) = port.wait(&mut batch, SOON) else { return };
            if packets.next().is_some() {
                while !released.load(SeqCst) {
                    spin_loop();
                }
                let _ = port.blocking(|| blocked.recv_timeout(SOON));
            }
        });
        until(|| port.stats().packets.posted == 1)?;
        port.post(2)?;
        let other = scope.spawn(|| (wait(port, QUIET), wait(port, SOON)));
        until(|| port.stats().parked == 1)?;
        // The other thread's first wait must be over before the seat is free.
        sleep_in_silence(4 * QUIET);
        drop(release);
        let (spins, blocks) = other.join().map_err(|_| "a thread panicked")?;
        drop(go_on);
        let spins = spins?.replace("nothing", "nothing for the other");
        Ok(format!("spins: {spins}; blocks: {}", blocks?))
    })
}

fn unannounced() -> Seen {
    let port = narrow()?;
    let (go_on, asleep) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let port = &port;
        port.post(1)?;
        scope.spawn(move || {
            let mut batch = Batch::with_capacity(1);
            let Ok(packets) = port.wait(&mut batch, SOON) else { return };
            for packet in packets {
                if let Packet::Posted(1) = packet {
                    // The port is not told.
                    let _ = asleep.recv();
                }
            }
        });
        until(|| port.stats().packets.posted == 1)?;
        port.post(2)?;
        // The thread sleeps for as long as this one waits.
        let mut when = "before";
        let mut seen = wait(port, SOON)?;
        drop(go_on);
        if seen == "nothing" {
            when = "when";
            seen = wait(port, SOON)?;
        }
        Ok(format!("{seen} for the other, {when} it goes on"))
    })
}

fn left_over() -> Seen {
    let port = narrow()?;
    (1..=3).try_for_each(|number| port.post(number))?;
    let mut batch = Batch::new();
    let mut packets = port.wait(&mut batch, SOON)?;
    let first = packets.next().map_or_else(|| "nothing".to_owned(), super::kit::word);
    drop(packets);
    Ok(format!("{first}; then {}", wait(&port, SOON)?))
}
