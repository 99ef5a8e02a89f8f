//! Two connected sockets.

use std::io;
use std::net::{TcpListener, TcpStream};

/// Returns both ends of a local connection.
pub(crate) fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    near.set_nodelay(true)?;
    let (far, _) = listener.accept()?;
    Ok((near, far))
}
