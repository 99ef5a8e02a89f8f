//! Events for the `tracing` crate. Without the feature they do nothing.

/// Emits an event at the given level, if the feature is on.
///
/// The subscriber is user code and may panic. So the caller must hold no lock, and must have
/// finished the work that the event reports.
macro_rules! trace {
    ($level:ident, $($event:tt)*) => {
        #[cfg(feature = "tracing")]
        tracing::event!(target: "completion_port", tracing::Level::$level, $($event)*);
    };
}

/// Emits an event in the middle of work that must continue. If the subscriber panics, the panic is
/// caught here.
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

/// Returns whether a subscriber may receive packet events, which are at trace level.
///
/// This is one load. The event itself checks whether the subscriber wants events of this library.
/// Without the feature the result is false, a constant for the compiler.
#[inline]
pub(crate) fn traces_packets() -> bool {
    #[cfg(feature = "tracing")]
    let is_traced = tracing::level_filters::LevelFilter::current() == tracing::Level::TRACE;
    #[cfg(not(feature = "tracing"))]
    let is_traced = false;
    is_traced
}

/// Returns whether a subscriber may receive events at debug level.
#[inline]
pub(crate) fn traces_changes() -> bool {
    #[cfg(feature = "tracing")]
    let is_traced = tracing::level_filters::LevelFilter::current() >= tracing::Level::DEBUG;
    #[cfg(not(feature = "tracing"))]
    let is_traced = false;
    is_traced
}
