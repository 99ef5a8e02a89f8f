//! Linux.

mod blocked;
mod clock;
pub(super) mod epoll;
mod process;
mod thread;
