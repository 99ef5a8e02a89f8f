//! Where a server is reached that accepts by its own means.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::net::sockopt::{set_socket_reuseport, set_tcp_nodelay};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};

/// Connections that may wait for being accepted: more than there are clients.
const BACKLOG: i32 = 4096;

/// A port of this machine at which there may be any number of listeners. The kernel deals the connections to
/// them.
///
/// A server whose threads share one set needs one listener. One whose threads share nothing has a listener
/// for each of them: that is how such servers are written, and no thread has to hand a connection over.
#[derive(Debug)]
pub(crate) struct Listening {
    /// Has the port, and never listens.
    _holder: OwnedFd,
    address: SocketAddr,
}

impl Listening {
    /// On a separate port.
    pub(crate) fn new() -> io::Result<Self> {
        let holder = bound(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        let address = getsockname(&holder)?.try_into()?;
        Ok(Listening { _holder: holder, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Another listener. It is non-blocking, and its connections have `TCP_NODELAY`.
    pub(crate) fn listener(&self) -> io::Result<TcpListener> {
        let socket = bound(self.address)?;
        // Connections that are accepted inherit it.
        set_tcp_nodelay(&socket, true)?;
        listen(&socket, BACKLOG)?;
        Ok(socket.into())
    }
}

fn bound(address: SocketAddr) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    Ok(socket)
}
