//! What the models need of the workers.

#![allow(dead_code, reason = "the models are a test crate of their own")]

use std::time::Duration;

use super::Workers;

impl Workers {
    /// Pretends that every packet so far took this long, for models in which no time passes.
    pub(crate) fn expect(&self, packet: Duration) {
        self.lock().schedule().expect(packet);
    }
}
