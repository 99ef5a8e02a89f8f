//! Points in time, as a program gives them.

use std::fmt;
use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::engine::TimerName;
use crate::state::moment::Moment;

/// A point in time: so long from now, or an [`Instant`].
///
/// A [`Duration`] counts from the call to which it is given, by the port's clock. An [`Instant`] is of the
/// system's monotonic clock, by which ports go as well. A port on a simulated kernel (feature `sim`) has a clock of
/// its own: there an instant stands for as long as it is ahead of the system's clock.
///
/// A deadline beyond the range of the clock, some hundreds of years, is never reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(TimerKind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimerKind {
    In(Duration),
    At(Instant),
}

impl Deadline {
    /// The moment that is meant by the clock of a port on this back end. It is never too early.
    #[inline]
    pub(crate) fn moment(self, backend: &dyn Backend) -> Moment {
        match self.0 {
            TimerKind::In(span) => backend.now().checked_add(span).unwrap_or(Moment::NEVER),
            TimerKind::At(instant) => backend.moment_of(instant),
        }
    }
}

impl From<Duration> for Deadline {
    fn from(span: Duration) -> Self {
        Self(TimerKind::In(span))
    }
}

impl From<Instant> for Deadline {
    fn from(instant: Instant) -> Self {
        Self(TimerKind::At(instant))
    }
}

/// The name of a message that is posted at a time to come, on its port. A port never uses a name again. Of the ports of
/// one kernel no two give the same, as long as none of them has set four thousand million timers: another one of them
/// finds nothing by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerId(pub(crate) TimerName);

impl fmt::Debug for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerId({:?})", self.0)
    }
}
