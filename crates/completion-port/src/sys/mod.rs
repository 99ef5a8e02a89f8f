//! The systems: one folder each, and the only place that knows which one it is compiled for.
//!
//! [`backend`] is the seam: the trait that each of them implements.

pub(crate) mod backend;
#[cfg(target_os = "linux")]
mod linux;
#[cfg(feature = "sim")]
pub mod sim;

use backend::{Backend, Fault};

/// The best back end of this system, with its descriptors spread over `sets` kernel sets: a power of two.
pub(crate) fn native(sets: usize) -> Result<Box<dyn Backend>, Fault> {
    #[cfg(target_os = "linux")]
    {
        linux::epoll::Epoll::new(sets).map(|set| Box::new(set) as Box<dyn Backend>)
    }
}
