//! The systems: one folder each, and the only place that knows which one it is compiled for.
//!
//! [`backend`] is the seam: what each of them implements, in the three traits of [`reactor`], [`thread`] and
//! [`host`].

pub(crate) mod backend;
pub(crate) mod host;
#[cfg(target_os = "linux")]
mod linux;
pub(crate) mod reactor;
#[cfg(feature = "sim")]
pub mod sim;
pub(crate) mod thread;

use self::backend::Backend;
use crate::state::facts::Fault;

/// The best back end of this system, with its descriptors spread over `sets` kernel sets: a power of two.
pub(crate) fn native(sets: usize) -> Result<Box<dyn Backend>, Fault> {
    #[cfg(target_os = "linux")]
    {
        linux::epoll::Epoll::new(sets).map(|set| Box::new(set) as Box<dyn Backend>)
    }
}
