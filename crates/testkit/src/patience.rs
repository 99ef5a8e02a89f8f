//! How long a test waits for what must happen, and how often it repeats what is left to chance.

use std::time::Duration;

/// How long a test waits for what must happen. This only ends a test that would hang: it is far more than anything takes,
/// also where the machine does much besides, and no test may depend on how long it is.
pub const SOON: Duration = Duration::from_secs(120);

/// How long a whole claim may take before it counts as stuck.
pub const LIMIT: Duration = Duration::from_secs(900);

/// By how much more often than usual a test repeats what is left to chance: `TEST_EFFORT` in the environment, 1 if that is
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
