//! Waits.

use std::time::{Duration, Instant};

use super::Trial;
use super::kit::{Seen, count, plain};

pub(super) const TRIALS: &[Trial] = &[Trial {
    rule: 7,
    what: "20 waits of 1 ms in which nothing comes",
    expected: "0 ended early, 0 brought a packet",
    run: never_early,
}];

fn never_early() -> Seen {
    let port = plain()?;
    let (mut early, mut with_packets) = (0, 0);
    for _ in 0..20 {
        let (begin, time) = (Instant::now(), Duration::from_millis(1));
        with_packets += count(&port, time)?;
        early += usize::from(begin.elapsed() < time);
    }
    Ok(format!("{early} ended early, {with_packets} brought a packet"))
}
