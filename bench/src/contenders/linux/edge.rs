//! Handling of a connection for contenders whose sets report only edges. No edge reports data that
//! a handler has left in the socket, so the threads have to return to it themselves.

use std::collections::VecDeque;
use std::io;

use super::nonblocking::{Family, Handler, Next, Peer, Standard};

/// The connections of a thread that have more to be read, in the order of their turns. As long as
/// there are any, the thread does not sleep when it asks its set.
pub(super) type Unfinished<T> = VecDeque<T>;

/// A socket that is reported by edges.
pub(super) struct Edge<F: Family = Standard> {
    peer: Peer<F>,
    /// An edge has reported the end of the stream; no other will.
    ends: bool,
    /// It is among those that are unfinished.
    is_unfinished: bool,
}

impl<F: Family> Edge<F> {
    /// A socket without any report yet.
    pub(super) fn of(peer: Peer<F>) -> Self {
        Edge { peer, ends: false, is_unfinished: false }
    }

    pub(super) fn peer(&self) -> &Peer<F> {
        &self.peer
    }

    /// Handles an edge: serves the socket, unless it has a turn to come. [`Next::Turn`] means that
    /// it is unfinished from now on, `None` that it has ended.
    pub(super) fn told(
        &mut self,
        handler: &mut Handler<F>,
        ends: bool,
    ) -> io::Result<Option<Next>> {
        self.ends |= ends;
        if self.is_unfinished { Ok(Some(Next::Input)) } else { self.turn(handler) }
    }

    /// Serves a socket that has been taken from those that are unfinished; as above.
    pub(super) fn turn(&mut self, handler: &mut Handler<F>) -> io::Result<Option<Next>> {
        let next = self.peer.serve(handler, self.ends)?;
        self.is_unfinished = next == Some(Next::Turn);
        Ok(next)
    }
}
