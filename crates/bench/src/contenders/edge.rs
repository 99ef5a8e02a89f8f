//! What the contenders whose sets tell of edges only do with a connection: no edge will tell of what a
//! handler has left in the socket, so that their threads have to come back to it of themselves.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::TcpStream;

use super::nonblocking::{Connection, Handler, Next};

/// The connections of a thread that have more to be read, in the order of their turns. As long as
/// there are any, the thread does not sleep when it asks its set.
pub(super) type Unfinished<T> = VecDeque<T>;

/// A connection of which edges tell.
#[derive(Debug)]
pub(super) struct Edge<S = TcpStream> {
    connection: Connection<S>,
    /// An edge has told of the end of the stream; no other will.
    ends: bool,
    /// It is among those that are unfinished.
    is_unfinished: bool,
}

impl<S> Edge<S> {
    /// A connection of which nothing has been told.
    pub(super) fn of(connection: Connection<S>) -> Self {
        Edge { connection, ends: false, is_unfinished: false }
    }

    pub(super) fn connection(&self) -> &Connection<S> {
        &self.connection
    }
}

impl<S: Read + Write> Edge<S> {
    /// An edge has come: serves the connection, unless it has a turn to come. [`Next::Turn`] says that
    /// it belongs to those that are unfinished from now on, `None` that it is over.
    pub(super) fn told(&mut self, handler: &mut Handler, ends: bool) -> Option<Next> {
        self.ends |= ends;
        if self.is_unfinished { Some(Next::Input) } else { self.turn(handler) }
    }

    /// Serves a connection that has been taken from those that are unfinished; as above.
    pub(super) fn turn(&mut self, handler: &mut Handler) -> Option<Next> {
        let next = self.connection.serve(handler, self.ends);
        self.is_unfinished = next == Some(Next::Turn);
        next
    }
}
