//! Linux.

pub(super) mod epoll;
mod process;
mod thread;
