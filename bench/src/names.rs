//! Names of contenders by which targets, and the choice of contenders, speak of them on every system.

pub(crate) const BY_TICK: &str = "ours_by_tick";
pub(crate) const OWN_BUFFERS: &str = "ours_by_own_buffers";
pub(crate) const AT_ONCE: &str = "ours_by_operations";
pub(crate) const BY_PACKETS: &str = "ours_by_packets";
pub(crate) const SHARED: &str = "ours_by_shared_accepts";
pub(crate) const PLACED: &str = "ours_by_placed_accepts";
pub(crate) const CHECKED: &str = "ours_by_checked_accepts";
pub(crate) const IN_C_AT_ONCE: &str = "ours_in_c_by_operations";
pub(crate) const IN_C_BY_PACKETS: &str = "ours_in_c_by_packets";
pub(crate) const WITH_READS: &str = "ours, reads on the same port";
pub(crate) const BESIDE_POOL: &str = "ours beside 32 threads that pread";
pub(crate) const READS_BY_HAND: &str = "epoll_one_shot, its threads pread";

/// Of the runtimes.
pub(crate) mod runtimes {
    pub(crate) const OURS: &str = "ours";
    pub(crate) const TOKIO: &str = "tokio";
    pub(crate) const MORE_WORKERS: &str = "tokio_more_workers";
    pub(crate) const SPAWN_BLOCKING: &str = "tokio_spawn_blocking";
    pub(crate) const EAGER: &str = "tokio_eager_handoff";
    pub(crate) const SMOL: &str = "smol";
    /// Servers by hand, on the bare port and on epoll, ...
    pub(crate) const PORT: &str = "port";
    pub(crate) const EPOLL: &str = "epoll";
    /// ... a thread with recvmmsg(2) and sendmmsg(2), ...
    pub(crate) const LOOP: &str = "loop";
    /// ... and programs of others.
    pub(crate) const NGINX: &str = "nginx";
    pub(crate) const REDIS_ITSELF: &str = "redis";

    /// The quantity of the zoo: 1 if a program stalls.
    pub(crate) const STALLS: &str = "stalls";
    /// The beginning of a title, if the servers use axum.
    pub(crate) const BY_AXUM: &str = "HTTP by axum";
    /// Next to what the requests are in a row of the files: to nothing else, to reads of files, and to
    /// reads from a slow disk.
    pub(crate) const ALONE: &str = "alone";
    pub(crate) const NEXT_TO_FILES: &str = "next to files";
    pub(crate) const NEXT_TO_SLOW_DISK: &str = "next to a slow disk";

    /// The share of requests that block in a row in which none does.
    pub(crate) const QUIET: &str = "nothing blocks";

    /// The name of a row in which one of that many requests blocks, or none.
    pub(crate) fn with_share(contender: &str, once_in: u32) -> String {
        match once_in {
            0 => format!("{contender}, {QUIET}"),
            _ => format!("{contender}, {} %", 100.0 / f64::from(once_in)),
        }
    }
}

/// Of those that read a file.
pub(crate) mod files {
    pub(crate) const AT_ONCE: &str = "ours, at once";
    pub(crate) const BY_PACKET: &str = "ours, by packet";
    pub(crate) const BY_TOKENS: &str = "ours, by packet, 32 tokens";
    pub(crate) const PREAD: &str = "pread";
    pub(crate) const NO_WAIT: &str = "preadv2, RWF_NOWAIT";
    pub(crate) const BY_RING: &str = "ours, ring";
    pub(crate) const URING: &str = "uring";
    pub(crate) const URING_THREAD: &str = "uring by a thread of its own";
    pub(crate) const IN_C_AT_ONCE: &str = "ours in C, at once";
    pub(crate) const IN_C_BY_PACKET: &str = "ours in C, by packet";
    pub(crate) const IN_C_BY_RING: &str = "ours in C";
}
