//! How long a test waits for an event, and how often it repeats a random step.

use std::time::Duration;

/// How long a test waits for an event. This only ends a test that would hang: nothing takes nearly as long, not even on a
/// busy machine, and no test may depend on the length.
pub const SOON: Duration = Duration::from_secs(120);

/// How long a whole claim may take before it counts as stuck.
pub const LIMIT: Duration = Duration::from_secs(900);

/// How many times the usual number of repetitions a test with random steps or races makes: `TEST_EFFORT` in the environment, 1 if that is
/// not set.
///
/// # Panics
///
/// Panics if `TEST_EFFORT` is no number, or zero.
#[must_use]
pub fn effort() -> usize {
    let effort = std::env::var("TEST_EFFORT").map_or(1, |effort| effort.parse().unwrap());
    assert!(effort > 0, "TEST_EFFORT is zero");
    effort
}
