//! Two sockets that are connected with each other.

use std::io;
use std::net::{TcpListener, TcpStream};

/// A connection of this machine, from both ends.
pub(crate) fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    near.set_nodelay(true)?;
    let (far, _) = listener.accept()?;
    Ok((near, far))
}
