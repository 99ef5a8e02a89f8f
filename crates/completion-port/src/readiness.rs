//! How the system tells of readiness.

/// How the system tells a port that sockets are ready, where it has more than one way.
///
/// # Platform notes
///
/// Windows has two: from build 20348 on [`Notifications`](Self::Notifications), and on every version
/// [`Polls`](Self::Polls). Other systems have one each, and refuse both names.
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
    /// The best that the system offers.
    #[default]
    Automatic,
    /// The socket notifications of Windows (`ProcessSocketNotifications`): the back end `notifications`.
    Notifications,
    /// Polls of the driver of sockets of Windows: the back end `afd`.
    Polls,
}
