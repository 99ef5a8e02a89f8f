//! Parsing of option values: times.

use std::time::Duration;

/// A time such as `1s`, `500ms`, `2m`, or a number of seconds.
fn time(text: &str) -> Option<Duration> {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let seconds = match &text[at..] {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        _ => return None,
    };
    let number = text[..at].parse::<f64>().ok()?;
    Duration::try_from_secs_f64(number * seconds).ok()
}

/// An interval, from ten times a second to once an hour.
pub(crate) fn interval(text: &str) -> Result<Duration, String> {
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    time(text)
        .filter(|time| range.contains(time))
        .ok_or_else(|| "expected a time from 100ms to 60m, such as 1s".into())
}

/// A limit, from nothing to an hour.
pub(crate) fn limit(text: &str) -> Result<Duration, String> {
    time(text)
        .filter(|time| *time <= Duration::from_secs(3600))
        .ok_or_else(|| "expected a time from 0 to 60m, such as 5s".into())
}

#[cfg(test)]
mod tests {
    use super::{interval, limit};
    use std::time::Duration;

    #[test]
    fn times_have_units() {
        for (text, milliseconds) in
            [("1s", 1000), ("500ms", 500), ("2m", 120_000), ("1.5", 1500), ("60m", 3_600_000)]
        {
            assert_eq!(interval(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        assert_eq!(limit("0"), Ok(Duration::ZERO));
        for bad in ["", "s", "1h", "1 s", "-1s", "soon", "99ms", "61m", "infs", "NaN"] {
            assert!(interval(bad).is_err(), "{bad}");
        }
    }
}
