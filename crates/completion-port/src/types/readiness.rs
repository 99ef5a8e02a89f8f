//! How the system tells of readiness.

/// How the system tells a port that sockets are ready, where it has more than one way.
///
/// # Platform notes
///
/// Windows has two: [`Polls`](Self::Polls), the default, on every version, and
/// [`Notifications`](Self::Notifications) from build 20348 on. Other systems have one each, and
/// refuse both names.
///
/// # Examples
///
/// ```
/// use completion_port::{ErrorKind, Port, Readiness};
///
/// match Port::builder().readiness(Readiness::Polls).build::<(), ()>() {
///     Ok(port) => assert_eq!(port.stats().backend, "afd"),
///     Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported), // not on Windows
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Readiness {
    /// The default of the system. On Windows this is [`Polls`](Self::Polls).
    #[default]
    Automatic,
    /// The socket notifications of Windows (`ProcessSocketNotifications`): the back end `notifications`.
    /// It was tested on a simulated kernel, and under Wine on another implementation of the call, but
    /// never on Windows itself.
    Notifications,
    /// Polls of the driver of sockets of Windows: the back end `afd`.
    Polls,
}
