//! Chance that can be had again.

use std::time::{SystemTime, UNIX_EPOCH};

/// The source of a seed to reuse.
const SEED: &str = "TESTKIT_SEED";

/// Small and fast: the sequence does not matter, only that it varies, and that its seed is known.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice with a new seed, or that of the environment's `TESTKIT_SEED`, which is printed: a failed
    /// test shows it.
    #[must_use]
    pub fn new() -> Self {
        let seed = std::env::var(SEED).map_or_else(
            |_| {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                u64::from(now.subsec_nanos()) << 20 ^ now.as_secs()
            },
            |seed| seed.parse().unwrap(),
        );
        println!("{SEED}={seed}");
        Self(seed.max(1))
    }

    /// Other dice, that depend on these and on `number`.
    #[must_use]
    pub fn another(&self, number: usize) -> Self {
        let mut dice =
            Self((self.0 ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)).max(1));
        (0..8).for_each(|_| _ = dice.roll(2));
        dice
    }

    /// A number below `sides`.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

impl Default for Dice {
    fn default() -> Self {
        Self::new()
    }
}
