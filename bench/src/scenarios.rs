//! All scenarios: those of the options, and those of servers of HTTP and Redis.

use crate::options::{self, ASKED_FOR, SCENARIOS};

/// HTTP/1.1 on connections that stay, ...
pub(crate) const HTTP: &str = "R2";
/// ... on connections of ten requests, ...
pub(crate) const SHORT_HTTP: &str = "R3";
/// ... and the protocol of Redis.
pub(crate) const REDIS: &str = "R6";

/// They run only if asked for.
pub(crate) const OF_SERVERS: [(&str, &str); 3] = [
    (
        HTTP,
        "HTTP/1.1 on hyper, by hand and on nginx: connections that stay, and pipelined requests",
    ),
    (SHORT_HTTP, "HTTP/1.1, the same servers: connections of ten requests"),
    (REDIS, "the protocol of Redis: SET, GET, INCR and MGET, alone and pipelined; and Redis"),
];

pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    SCENARIOS.into_iter().chain(OF_SERVERS)
}

/// Whether a scenario runs only if asked for.
pub(crate) fn is_asked_for(scenario: &str) -> bool {
    ASKED_FOR.contains(&scenario) || OF_SERVERS.iter().any(|(name, _)| *name == scenario)
}

/// The text that follows the options in `--help`.
pub(crate) fn help() -> String {
    let text = options::help();
    let more: String =
        OF_SERVERS.iter().map(|(name, about)| format!("  {name:<14}{about}\n")).collect();
    match text.split_once("\n\n") {
        Some((scenarios, rest)) => format!("{scenarios}\n{more}\n{rest}"),
        None => text + &more,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_scenario_once() {
        let text = help();
        for (name, about) in all() {
            let line = format!("\n  {name:<14}{about}\n");
            assert_eq!(text.matches(&line).count(), 1, "{name}: {text}");
        }
        assert!(text.contains("\n\nEach contender's figures"), "{text}");
    }
}
