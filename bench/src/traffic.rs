//! What passes between clients and a server.

/// How clients reach a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// By connections that stay. An acceptor of the harness takes them and hands them over.
    Lasting,
    /// By short connections, which the server accepts by its own means.
    Short,
    /// By datagrams, to sockets that the server is given.
    Datagrams {
        sockets: usize,
        /// Requests without answer on each.
        under_way: usize,
    },
}
