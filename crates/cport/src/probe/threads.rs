//! Handlers that sleep.

use std::sync::mpsc;
use std::thread;

use completion_port::{Batch, BlockDetection, Packet};

use super::Trial;
use super::kit::{QUIET, Seen, narrow, soon, until, wait};
use crate::system::in_other_words;

pub(super) const TRIALS: &[Trial] = &[Trial {
    rule: 39,
    what: "the only thread that may run sleeps without a word",
    expected: "posted 2 for the other, before it goes on",
    run: unannounced,
}];

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
                    // Without announcing it to the port.
                    let _ = asleep.recv();
                }
            }
        });
        until(|| port.stats().packets.posted == 1)?;
        port.post(2)?;
        // The other thread sleeps while this one waits.
        let mut when = "before";
        // Where the row has another expectation, nothing detects a sleeping thread.
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
