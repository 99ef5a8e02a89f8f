//! Operations that the system performs on its own: each is a [`Request`], which a port submits and
//! the system completes.
//!
//! A file cannot be watched, so a file operation that would block becomes a [`FileRequest`].
//! Systems that complete socket operations on their own take a [`SocketRequest`] when an attempt
//! would block. While the system has a request, the system owns the request's buffer.

use std::fmt;

use super::files::FileTarget;
use super::sockets::SocketTarget;
use crate::types::error::Fault;
use crate::types::io_buffer::IoBuffer;

/// What a request operates on.
pub(crate) trait Target: Send {
    /// The operations on such a target.
    type Kind: Copy + fmt::Debug;
}

pub(crate) type FileRequest = Request<FileTarget>;
pub(crate) type SocketRequest = Request<SocketTarget>;

/// An operation that the system performs on its own.
pub(crate) struct Request<T: Target> {
    /// Unique among the pending requests of the port.
    pub(crate) id: u64,
    pub(crate) target: T,
    pub(crate) kind: T::Kind,
    /// The buffer, if the operation has one. Its parts are those that remain to be transferred.
    pub(crate) buffer: Option<IoBuffer>,
    /// The number of bytes transferred so far.
    pub(crate) done: usize,
    pub(crate) fault: Option<Fault>,
    /// The port or the system cancelled it before it was done.
    pub(crate) is_cancelled: bool,
}

impl<T: Target> Request<T> {
    pub(crate) fn new(id: u64, target: T, kind: T::Kind, buffer: Option<IoBuffer>) -> Self {
        Self { id, target, kind, buffer, done: 0, fault: None, is_cancelled: false }
    }

    /// Counts `len` more bytes as transferred.
    pub(crate) fn advance(&mut self, len: usize) {
        self.done += len;
        if let Some(buffer) = &mut self.buffer {
            buffer.advance(len);
        }
    }

    /// Whether the whole buffer has been transferred.
    pub(crate) fn is_complete(&self) -> bool {
        self.buffer.as_ref().is_none_or(|buffer| buffer.parts().is_empty())
    }
}

impl<T: Target> fmt::Debug for Request<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

/// Performs requests. Any thread may call these methods at any time.
///
/// It completes each request once, in one of three ways:
/// - [`Submit::cancel`] returns it;
/// - its [issuer](super::files::Issuer) receives it, if it is about a file;
/// - an edge reports its end, and [`Submit::take_completed`] then returns it, if it is about a
///   socket.
pub(crate) trait Submit<T: Target>: Send + Sync {
    /// Makes sure that requests can be performed.
    ///
    /// The first call starts the threads that perform them.
    fn prepare(&self) -> Result<(), Fault>;

    /// Queues a request, after [`Submit::prepare`] has succeeded.
    ///
    /// Makes no system call: the caller may hold locks. [`Submit::flush`] must follow.
    fn submit(&self, request: Request<T>);

    /// Starts the queued requests.
    ///
    /// The caller holds no lock. A request may complete before this returns.
    fn flush(&self);

    /// Cancels a request.
    ///
    /// `Some`: the system had not started the request, and the caller owns it again. `None`: it has
    /// completed, or will complete as soon as the system has cancelled or finished it. Neither
    /// blocks nor calls the port: the caller may hold locks.
    fn cancel(&self, id: u64) -> Option<Request<T>>;

    /// Returns a request whose end an edge has reported.
    fn take_completed(&self, _id: u64) -> Option<Request<T>> {
        None
    }
}
