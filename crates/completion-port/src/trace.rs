//! Events for the `tracing` crate; nothing at all without the feature.

/// Emits an event at debug level, if the feature is on. Its subscriber is user code: no lock is held, and
/// what the event is about is over, should that code panic.
macro_rules! trace {
    ($($event:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::debug!(target: "completion_port", $($event)*);
    };
}

pub(crate) use trace;
