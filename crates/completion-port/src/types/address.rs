//! The address of a socket.

use std::fmt;
use std::net::SocketAddr;

/// The address of a socket: an internet address, a path, or an address on a simulated kernel.
///
/// It is kept as given: an IPv6 address keeps its scope and flow.
///
/// # Platform notes
///
/// Paths, and names without a file, are addresses if the system has `AF_UNIX` sockets.
///
/// # Examples
///
/// ```
/// use completion_port::{Address, sim};
/// use std::net::SocketAddr;
///
/// let address = Address::from(SocketAddr::from(([127, 0, 0, 1], 80)));
/// assert_eq!(address.as_ip().map(|address| address.port()), Some(80));
///
/// let kernel = sim::Kernel::new();
/// let listener = kernel.tcp_listener(16)?;
/// let address = Address::from(listener.address());
/// assert_eq!(address.as_simulated(), Some(listener.address()));
/// assert_eq!(address.as_ip(), None);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Address(pub(crate) AddressKind);

#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum AddressKind {
    Ip(SocketAddr),
    /// Of `AF_UNIX`: a path, or a zero and a name in the abstract namespace. Empty for a socket
    /// without a name.
    Local(Vec<u8>),
    #[cfg(feature = "sim")]
    /// The number of an address on a simulated kernel.
    Simulated(u64),
}

impl Address {
    /// Returns the internet address, if it is one.
    #[must_use]
    pub fn as_ip(&self) -> Option<SocketAddr> {
        match self.0 {
            AddressKind::Ip(address) => Some(address),
            _ => None,
        }
    }

    /// Returns whether both are internet addresses with the same IP address and port.
    pub(crate) fn is_same_end(&self, other: &Self) -> bool {
        let place = |address: SocketAddr| (address.ip(), address.port());
        self.as_ip().is_some_and(|own| other.as_ip().map(place) == Some(place(own)))
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self(AddressKind::Ip(address))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            AddressKind::Ip(address) => address.fmt(f),
            AddressKind::Local(name) => write!(f, "\"{}\"", name.escape_ascii()),
            #[cfg(feature = "sim")]
            AddressKind::Simulated(address) => address.fmt(f),
        }
    }
}

/// The bytes of an address that the system has written.
pub(crate) struct WrittenAddress<'b>(pub(crate) &'b [u8]);

impl WrittenAddress<'_> {
    /// Returns `N` bytes starting at this offset.
    pub(crate) fn at<const N: usize>(&self, place: usize) -> Option<[u8; N]> {
        self.0.get(place..)?.first_chunk().copied()
    }
}
