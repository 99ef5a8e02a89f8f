//! Events for the `tracing` crate; nothing at all without the feature.

/// Emits an event at debug level, if the feature is on.
macro_rules! trace {
    ($($event:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::debug!(target: "completion_port", $($event)*);
    };
}

pub(crate) use trace;
