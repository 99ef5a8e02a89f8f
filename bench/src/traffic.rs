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

/// What a request of HTTP asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Get {
    /// The usual page, after this work.
    Work(Work),
    /// A file of that many bytes, ...
    File(usize),
    /// ... and one on a slow disk.
    SlowFile(usize),
}

impl Get {
    /// The usual page.
    pub(crate) const PAGE: Get = Get::Work(Work::Echo);

    pub(crate) fn path(self) -> String {
        match self {
            Get::Work(work) => {
                let (kind, amount) = work.parts();
                format!("/{kind}/{amount}")
            }
            Get::File(length) => format!("/{FILES}/{length}"),
            Get::SlowFile(length) => format!("/{SLOW_FILES}/{length}"),
        }
    }

    /// The length of the file, if it is one.
    pub(crate) fn length(self) -> Option<usize> {
        match self {
            Get::Work(_) => None,
            Get::File(length) | Get::SlowFile(length) => Some(length),
        }
    }
}

/// The folders of the files.
pub(crate) const FILES: &str = "file";
pub(crate) const SLOW_FILES: &str = "slow";

/// What the clients of a server of HTTP send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Http {
    /// Requests in a second, which are sent at their times whether or not the others were answered.
    /// `None`: each connection sends the next request after an answer.
    pub(crate) rate: Option<u32>,
    /// What the quick requests ask for.
    pub(crate) quick: Get,
    /// One of that many requests asks for `other`; 0: none.
    pub(crate) once_in: u32,
    pub(crate) other: Get,
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
        quick: Get::PAGE,
        once_in: 0,
        other: Get::PAGE,
        together: 1,
        of_each: None,
        accepts: false,
    };

    /// Requests that are due at the same time.
    pub(crate) fn of_a_turn(self) -> u32 {
        self.together * self.of_each.unwrap_or(1)
    }
}
