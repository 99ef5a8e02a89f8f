//! Words and numbers for people, and the only code that writes to standard output.

use std::fmt;
use std::io::{self, Write};

use completion_port::PacketCounts;

use crate::failure::Failure;
use crate::terminal;

/// Writes to standard output immediately. A reader that has gone away is not a failure.
pub(crate) fn say(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::Wrong(format!(
            "cannot write to standard output: {error}; redirect it to where there is room"
        ))),
        _ => Ok(()),
    }
}

/// The same for text whose lines are wrapped for the terminal.
pub(crate) fn show(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    say(format_args!("{}", terminal::fitted(&text.to_string(), terminal::output_width())))
}

/// A number with thousands separators: `1,048,576`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number of bytes in a suitable unit: `1.5 MiB`.
#[allow(clippy::cast_precision_loss, reason = "one decimal place is shown")]
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if number < 1024 {
        return format!("{number} bytes");
    }
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `1 connection`, `2 connections`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// The packets by kind, on one line.
pub(crate) fn packets(counts: PacketCounts) -> String {
    format!(
        "{} ready, {} notified, {} posted, {} removed, {} completed",
        grouped(counts.ready),
        grouped(counts.notified),
        grouped(counts.posted),
        grouped(counts.removed),
        grouped(counts.completed)
    )
}

/// Numbers on one line.
pub(crate) fn list(numbers: &[u64]) -> String {
    numbers.iter().map(|number| grouped(*number)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::{bytes, counted, grouped};

    #[test]
    fn thousands_are_set_apart() {
        let shown = [0, 999, 1000, 12_345, 1_048_576].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "12,345", "1,048,576"]);
    }

    #[test]
    fn bytes_are_shown_in_the_unit_that_suits_them() {
        let shown = [0, 1023, 1024, 1_572_864, u64::MAX].map(bytes);
        assert_eq!(shown, ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 MiB", "16777216.0 TiB"]);
    }

    #[test]
    fn one_is_singular() {
        assert_eq!(counted(1, "thread"), "1 thread");
        assert_eq!(counted(2000, "thread"), "2,000 threads");
    }
}
