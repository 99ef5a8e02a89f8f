//! Linux.

mod blocked;
pub(super) mod epoll;
mod process;
mod thread;
