//! The process and its clock.

use std::time::Instant;

use super::System;
use super::thread::Current;
use crate::backend::host::{Host, Origin};
use crate::backend::thread::Thread;
use crate::state::moment::Moment;
use crate::state::table::Descriptors;
use crate::sys::unix::once::Once;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;

impl Host for System {
    fn now(&self) -> Moment {
        self.moment_of(Instant::now())
    }

    fn moment_of(&self, instant: Instant) -> Moment {
        // The clock starts at its first use.
        static BEGUN: Once<Instant> = Once::new();
        let since = instant.saturating_duration_since(BEGUN.get_or_init(Instant::now));
        // Zero is the moment before all others.
        Moment::from_nanoseconds(1).checked_add(since).unwrap_or(Moment::NEVER)
    }

    fn this_thread(&self) -> Box<dyn Thread> {
        Box::new(Current::new())
    }

    fn can_observe(&self) -> Result<(), Fault> {
        Err(Fault { kind: ErrorKind::Unsupported, code: None })
    }

    fn origin(&self) -> Origin {
        self.calls.process.origin()
    }

    fn descriptors(&self) -> &Descriptors {
        self.calls.process.descriptors()
    }
}
