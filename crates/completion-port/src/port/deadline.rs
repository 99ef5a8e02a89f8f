//! Points in time, as a program gives them.

use std::fmt;
use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::engine::TimerName;
use crate::state::moment::Moment;

/// A point in time: a [`Duration`] from now, or an [`Instant`].
///
/// A [`Duration`] counts from the call that receives it, by the port's clock. An [`Instant`] is a
/// time on the system's monotonic clock, which ports use too. A port on a simulated kernel (feature
/// `sim`) has its own clock. There, an instant means the same distance from now as on the system's
/// clock.
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
    /// Converts the deadline to the clock of a port on this back end. The result is never too
    /// early.
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

/// The name of a message that is posted at a future time.
///
/// A port never reuses a name. Ports of the same kernel assign different names, until one of them
/// has set four thousand million timers. So another port finds nothing by such a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TimerId(pub(crate) TimerName);

impl fmt::Debug for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TimerId({:?})", self.0)
    }
}
