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
    /// By requests of HTTP/1.1.
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
    /// Requests that are sent together, without waiting for the answers in between.
    pub(crate) together: u32,
    /// Requests of a connection, one after another; then the client closes it. `None`: connections
    /// stay.
    pub(crate) of_each: Option<u32>,
    /// The server accepts by its own means.
    pub(crate) accepts: bool,
}

impl Http {
    /// Quick requests in a closed loop, one at a time on each connection.
    pub(crate) const PLAIN: Http = Http {
        rate: None,
        once_in: 0,
        work: Work::Echo,
        together: 1,
        of_each: None,
        accepts: false,
    };

    /// Requests that are due at the same time.
    pub(crate) fn of_a_turn(self) -> u32 {
        self.together * self.of_each.unwrap_or(1)
    }
}
