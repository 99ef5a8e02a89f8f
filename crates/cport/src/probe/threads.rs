//! Handlers that sleep.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;

use completion_port::{Batch, BlockDetection, Packet};

use super::Trial;
use super::kit::{QUIET, Seen, narrow, soon, until, wait};
use crate::system::in_other_words;

pub(super) const TRIALS: &[Trial] = &[
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
];

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
            let Ok(mut packets) = port.wait(&mut batch, soon()) else { return };
            if packets.next().is_some() {
                while !released.load(SeqCst) {
                    spin_loop();
                }
                let _ = port.blocking(|| blocked.recv_timeout(soon()));
            }
        });
        until(|| port.stats().packets.posted == 1)?;
        port.post(2)?;
        let (say, first_is_over) = mpsc::channel();
        let other = scope.spawn(move || {
            let spins = wait(port, 4 * QUIET);
            let _ = say.send(());
            (spins, wait(port, soon()))
        });
        // Only then is the place free.
        let _ = first_is_over.recv();
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
            let Ok(packets) = port.wait(&mut batch, soon()) else { return };
            for packet in packets {
                if let Packet::Posted(1) = packet {
                    // The port is not told.
                    let _ = asleep.recv();
                }
            }
        });
        until(|| port.stats().packets.posted == 1)?;
        port.post(2)?;
        // The other thread sleeps as long as this one waits.
        let mut when = "before";
        // Where the row is put in other words, nothing detects a sleeping thread.
        let is_found = in_other_words(39).is_none()
            && port.stats().block_detection != BlockDetection::Announced;
        let mut seen = wait(port, if is_found { soon() } else { QUIET })?;
        drop(go_on);
        if seen == "nothing" {
            when = "when";
            seen = wait(port, soon())?;
        }
        Ok(format!("{seen} for the other, {when} it goes on"))
    })
}
