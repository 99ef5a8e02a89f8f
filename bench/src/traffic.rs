//! What passes between clients and a server.

use crate::work::Work;

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
    /// By requests of HTTP/1.1 on connections that stay.
    Http(Http),
}

/// What the clients of a server of HTTP send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Http {
    /// Requests in a second, which are sent at their times whether or not the others were answered.
    /// `None`: each connection sends the next request after an answer.
    pub(crate) rate: Option<u32>,
    /// One of that many requests asks for `work`; 0: none.
    pub(crate) once_in: u32,
    pub(crate) work: Work,
}
