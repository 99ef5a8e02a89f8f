//! Code shared by the example servers that use operations: the end, and their sockets.

#[path = "end.rs"]
mod end;

use std::net::TcpStream;

use completion_port::OwnedSource;
pub(crate) use end::asked_to_end;

/// Converts a socket that the port has created.
pub(crate) fn stream_of(socket: OwnedSource) -> TcpStream {
    socket.into_descriptor().map(TcpStream::from).expect("it is a socket of the system")
}
