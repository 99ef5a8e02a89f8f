//! A server's activity, as rates between two moments: on one line for people, as JSON for programs.

use std::time::Instant;

use completion_port::Stats;
use serde_json::{Value, json};

use super::state::{Served, Service};
use crate::terminal;
use crate::text::{bytes, counted, grouped};

/// The counters at a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    at: Instant,
    served: Served,
    stats: Stats,
}

impl Numbers {
    pub(crate) fn now(server: &dyn Service) -> Self {
        Self { at: Instant::now(), served: server.served(), stats: server.stats() }
    }

    /// The time of the counters.
    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// The changes since `earlier`.
    pub(crate) fn since<'n>(&'n self, earlier: &'n Numbers, begin: Instant) -> Rates<'n> {
        let interval = self.at.saturating_duration_since(earlier.at).as_secs_f64();
        let seconds = self.at.saturating_duration_since(begin).as_secs_f64();
        Rates { earlier, later: self, seconds, interval }
    }
}

/// The difference between two moments.
pub(crate) struct Rates<'n> {
    earlier: &'n Numbers,
    later: &'n Numbers,
    /// Since the server began, and since the earlier moment.
    seconds: f64,
    interval: f64,
}

impl Rates<'_> {
    fn each_second(&self, count: impl Fn(&Numbers) -> u64) -> f64 {
        // No counter ever decreases.
        let more = count(self.later).saturating_sub(count(self.earlier));
        #[allow(clippy::cast_precision_loss, reason = "a rate is shown with three digits or so")]
        let more = more as f64;
        if self.interval > 0.0 { more / self.interval } else { 0.0 }
    }

    fn accepted(&self) -> f64 {
        self.each_second(|it| it.served.accepted)
    }

    fn requests(&self) -> f64 {
        self.each_second(|it| it.served.requests)
    }

    fn received(&self) -> f64 {
        self.each_second(|it| it.served.received)
    }

    fn sent(&self) -> f64 {
        self.each_second(|it| it.served.sent)
    }

    fn wakes(&self) -> f64 {
        self.each_second(|it| it.stats.wakes)
    }

    /// As fields, as many on a line as fit.
    pub(crate) fn line(&self, udp: bool, width: Option<usize>) -> String {
        let (served, stats) = (&self.later.served, &self.later.stats);
        let mut fields = vec![format!("{:.1} s", self.seconds)];
        if udp {
            fields.push(format!("{} datagrams/s", rounded(self.requests())));
        } else {
            fields.push(counted(served.open, "connection"));
            fields.push(format!("{} new/s", rounded(self.accepted())));
            fields.push(format!("{} requests/s", rounded(self.requests())));
        }
        fields.extend([
            format!("in {}/s", bytes(whole(self.received()))),
            format!("out {}/s", bytes(whole(self.sent()))),
            format!("queue {}", grouped(stats.queued as u64)),
            format!("running {}", stats.running),
            format!("parked {}", stats.parked),
            format!("wakes {}/s", rounded(self.wakes())),
        ]);
        terminal::fields(&fields, width)
    }

    pub(crate) fn document(&self) -> Value {
        let (served, stats) = (&self.later.served, &self.later.stats);
        json!({
            "event": "stats",
            "seconds": thousandths(self.seconds),
            "interval": thousandths(self.interval),
            "connections": served.open,
            "accepted": served.accepted,
            "accepted_per_second": thousandths(self.accepted()),
            "requests_per_second": thousandths(self.requests()),
            "received_per_second": thousandths(self.received()),
            "sent_per_second": thousandths(self.sent()),
            "queued": stats.queued,
            "running": stats.running,
            "blocked": stats.blocked,
            "parked": stats.parked,
            "wakes_per_second": thousandths(self.wakes()),
        })
    }
}

/// To three decimal places.
pub(crate) fn thousandths(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn rounded(rate: f64) -> String {
    grouped(whole(rate))
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is not negative"
)]
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use completion_port::Port;

    use super::*;

    fn two() -> (Numbers, Numbers) {
        let stats = Port::<()>::new().unwrap().stats();
        let begin = Instant::now();
        let earlier = Numbers { at: begin, served: Served::default(), stats };
        let mut later = Numbers { at: begin + Duration::from_millis(500), ..earlier };
        later.served.requests = 1000;
        later.served.received = 1024 * 1024;
        later.served.open = 3;
        later.stats.wakes += 7;
        later.stats.queued = 5;
        (earlier, later)
    }

    #[test]
    fn rates_are_of_the_time_between_two_moments() {
        let (earlier, later) = two();
        let rates = later.since(&earlier, earlier.at);
        let line = rates.line(false, None);
        assert_eq!(
            line,
            "0.5 s  3 connections  0 new/s  2,000 requests/s  in 2.0 MiB/s  out 0 bytes/s  queue 5  \
             running 0  parked 0  wakes 14/s\n"
        );
        let document = rates.document();
        assert_eq!(document["requests_per_second"], 2000.0);
        assert_eq!(document["interval"], 0.5);
        assert_eq!(document["queued"], 5);
        assert!(rates.line(true, None).contains("  2,000 datagrams/s  "));
    }

    #[test]
    fn the_line_is_broken_between_its_fields() {
        let (earlier, later) = two();
        let text = later.since(&earlier, earlier.at).line(false, Some(50));
        assert!(text.lines().count() > 1 && text.lines().all(|line| line.len() <= 50), "{text}");
    }

    #[test]
    fn no_time_is_no_rate() {
        let (earlier, _) = two();
        assert_eq!(earlier.since(&earlier, earlier.at).document()["requests_per_second"], 0.0);
    }
}
