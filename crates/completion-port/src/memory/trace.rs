//! Events for the `tracing` crate; nothing at all without the feature.

/// Emits an event at the level that is named first, if the feature is on. Its subscriber is user code: no
/// lock is held, and what the event is about is over, should that code panic.
macro_rules! trace {
    ($level:ident, $($event:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::event!(target: "completion_port", tracing::Level::$level, $($event)*);
    };
}

/// The same in the middle of something that has to go on. So a panic of the subscriber ends here.
macro_rules! trace_caught {
    ($level:ident, $($event:tt)*) => {
        #[cfg(feature = "tracing")]
        if tracing::level_filters::LevelFilter::current() >= tracing::Level::$level {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                tracing::event!(target: "completion_port", tracing::Level::$level, $($event)*);
            }));
        }
    };
}

pub(crate) use {trace, trace_caught};

/// Whether a subscriber may listen to events that come with each packet: those at trace level. It is one
/// load; whether the subscriber listens to this library, too, the event itself asks. Always false, and known
/// to the compiler, without the feature.
#[inline]
pub(crate) fn traces_packets() -> bool {
    #[cfg(feature = "tracing")]
    let is_traced = tracing::level_filters::LevelFilter::current() == tracing::Level::TRACE;
    #[cfg(not(feature = "tracing"))]
    let is_traced = false;
    is_traced
}

/// The same of events at debug level.
#[inline]
pub(crate) fn traces_changes() -> bool {
    #[cfg(feature = "tracing")]
    let is_traced = tracing::level_filters::LevelFilter::current() >= tracing::Level::DEBUG;
    #[cfg(not(feature = "tracing"))]
    let is_traced = false;
    is_traced
}
