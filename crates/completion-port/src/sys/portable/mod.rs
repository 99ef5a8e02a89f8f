//! What runs on several systems, and on the simulated kernel: reactors over a small trait of calls, and what back ends
//! have in common.

pub(crate) mod errors;
pub(crate) mod job_queue;
#[cfg(any(
    feature = "sim",
    target_os = "macos",
    target_os = "freebsd",
    target_os = "netbsd",
    target_os = "openbsd"
))]
pub(crate) mod kqueue;
#[cfg(any(feature = "sim", target_os = "windows"))]
pub(crate) mod psn;
#[cfg(any(test, target_os = "freebsd"))]
#[cfg_attr(not(target_os = "freebsd"), allow(dead_code, reason = "its tests run everywhere"))]
pub(crate) mod sleepers;
