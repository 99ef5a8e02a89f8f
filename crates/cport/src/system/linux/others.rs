//! Sources other than Internet sockets.

use std::error::Error;
use std::io::{self, pipe};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};

use crate::probe::kit::Plain;
use crate::probe::registration::register_any;

/// Registers one of each kind.
pub(crate) fn register_others(port: &Plain) -> Result<(), Box<dyn Error>> {
    let (reader, writer) = pipe()?;
    let (stream, _other) = UnixStream::pair()?;
    let (listener, datagrams) = (UnixListener::bind_addr(&unnamed()?)?, UnixDatagram::unbound()?);
    register_any(port, &stream)?;
    register_any(port, &listener)?;
    register_any(port, &datagrams)?;
    register_any(port, &reader)?;
    register_any(port, &writer)?;
    Ok(())
}

/// A name for a listener without a file, which no other process uses.
fn unnamed() -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("cport-probe-{}", std::process::id()))
}
