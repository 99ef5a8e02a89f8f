//! What the servers by operations share: when they end, and what their sockets are.

#[path = "end.rs"]
mod end;

use std::net::TcpStream;

use completion_port::OwnedSource;
pub(crate) use end::asked_to_end;

/// A socket that the port has made, as what it is.
pub(crate) fn stream_of(socket: OwnedSource) -> TcpStream {
    socket.into_descriptor().map(TcpStream::from).expect("it is a socket of the system")
}
