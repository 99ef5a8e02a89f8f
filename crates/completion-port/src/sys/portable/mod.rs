//! Code that runs on several systems and on the simulated kernel: reactors over a small trait of
//! kernel calls, and utilities of the back ends.

pub(crate) mod errors;
#[cfg(any(
    feature = "sim",
    target_os = "macos",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd"
))]
pub(crate) mod kqueue;
pub(crate) mod request_queue;
#[cfg(any(feature = "sim", target_os = "windows"))]
pub(crate) mod winsock_notifications;
