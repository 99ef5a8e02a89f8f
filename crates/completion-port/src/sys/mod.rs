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

/// The best back end of this system, with its descriptors spread over `sets` kernel sets: a power of two. If
/// `is_one_shot`, one that arms a descriptor for one edge at a time, and has one set.
pub(crate) fn native(sets: usize, is_one_shot: bool) -> Result<Box<dyn Backend>, Fault> {
    #[cfg(target_os = "linux")]
    {
        use linux::epoll::Epoll;

        let set = if is_one_shot { Epoll::one_shot() } else { Epoll::new(sets) };
        set.map(|set| Box::new(set) as Box<dyn Backend>)
    }
}
