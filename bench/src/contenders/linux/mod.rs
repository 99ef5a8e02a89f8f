//! The contenders on Linux.

pub(crate) use self::reading::all as reading;
use super::{Contender, Listening, Server, nonblocking, ours, runtime, threads, tokio, version};

mod compio;
mod dealer;
mod edge;
mod epoll_edge;
mod epoll_one_shot;
mod mio;
mod monoio;
mod ours_by_operations;
mod ours_in_c;
mod ours_in_c_by_operations;
mod polling;
mod reading;
mod uring;

/// All contenders; the first is the one to which the others are compared.
pub(crate) fn all() -> Vec<Contender> {
    vec![
        ours::contender(),
        ours_in_c::contender(),
        ours::by_tick(),
        ours::with_own_buffers(),
        ours_by_operations::contender(),
        ours_by_operations::by_packets(),
        ours_by_operations::by_shared_accepts(),
        ours_by_operations::by_placed_accepts(),
        ours_by_operations::by_checked_accepts(),
        ours_in_c_by_operations::contender(),
        ours_in_c_by_operations::by_packets(),
        epoll_one_shot::contender(),
        epoll_one_shot::late_contender(),
        epoll_edge::contender(),
        uring::contender(),
        mio::contender(),
        polling::contender(),
        tokio::contender(),
        runtime::contender(),
        compio::contender(),
        monoio::contender(),
    ]
}

/// The version of the kernel that runs.
fn of_kernel() -> String {
    format!("Linux {}", crate::system::kernel().unwrap_or_default())
}
