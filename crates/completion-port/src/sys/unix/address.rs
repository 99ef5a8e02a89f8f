//! Addresses in the form of the system calls.

use std::ffi::OsStr;
use std::io;
use std::mem::offset_of;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net;
use std::path::Path;

use crate::sys::system::calls;
use crate::types::address::{Address, AddressKind, WrittenAddress};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;

impl Address {
    /// Makes the address of an `AF_UNIX` socket with this path.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the path is too long for an address or contains a zero byte.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::Address;
    /// use std::path::Path;
    ///
    /// let address = Address::from_path("/run/server.socket")?;
    /// let again = address.as_unix().expect("an address of AF_UNIX");
    /// assert_eq!(again.as_pathname(), Some(Path::new("/run/server.socket")));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_path(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().as_os_str().as_bytes();
        let error = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        match path {
            _ if path.len() > NAME_SIZE => error("the path is too long for an address"),
            _ if path.contains(&0) => error("the path contains a zero byte"),
            _ => Ok(Self(AddressKind::Local(path.to_vec()))),
        }
    }

    /// Returns the path of an `AF_UNIX` socket, if its address is one.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::Address;
    /// use std::path::Path;
    ///
    /// let address = Address::from_path("/run/server.socket")?;
    /// assert_eq!(address.as_path(), Some(Path::new("/run/server.socket")));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn as_path(&self) -> Option<&Path> {
        match &self.0 {
            AddressKind::Local(name) if name.first().is_some_and(|first| *first != 0) => {
                Some(Path::new(OsStr::from_bytes(name)))
            }
            _ => None,
        }
    }

    /// Returns the address of an `AF_UNIX` socket, if it is one.
    ///
    /// Also `None` for a path that fills the address to its last byte (108 bytes on Linux), which
    /// the standard library cannot represent. [`Address::as_path`] returns it.
    #[must_use]
    pub fn as_unix(&self) -> Option<net::SocketAddr> {
        let AddressKind::Local(name) = &self.0 else { return None };
        match name.split_first() {
            Some((0, name)) => calls::of_abstract_name(name),
            // A socket without a name too: the standard library represents it by an empty path.
            _ => net::SocketAddr::from_pathname(OsStr::from_bytes(name)).ok(),
        }
    }
}

impl From<net::SocketAddr> for Address {
    fn from(address: net::SocketAddr) -> Self {
        let name = match (address.as_pathname(), calls::abstract_name(&address)) {
            (Some(path), _) => path.as_os_str().as_bytes().to_vec(),
            (None, Some(name)) => [&[0], name].concat(),
            (None, None) => Vec::new(),
        };
        Self(AddressKind::Local(name))
    }
}

/// The size of `struct sockaddr_storage`, which has room for every address.
pub(in crate::sys) const SIZE: usize = size_of::<libc::sockaddr_storage>();

/// The offset of the name of an `AF_UNIX` socket.
const NAME: usize = offset_of!(libc::sockaddr_un, sun_path);

/// The most bytes of such a name.
const NAME_SIZE: usize = size_of::<libc::sockaddr_un>() - NAME;

/// The offset of the family. Some systems have the length of the address before it, in one byte.
const FAMILY: usize = offset_of!(libc::sockaddr, sa_family);

/// An address in the memory layout of the system calls: `struct sockaddr_in`, `sockaddr_in6` or
/// `sockaddr_un`. All its bytes are initialized.
#[repr(C, align(8))]
pub(in crate::sys) struct RawAddress {
    bytes: [u8; SIZE],
    len: libc::socklen_t,
}

const _: () = {
    assert!(align_of::<RawAddress>() >= align_of::<libc::sockaddr_storage>());
    assert!(offset_of!(RawAddress, bytes) == 0);
    assert!(FAMILY + size_of::<libc::sa_family_t>() == 2);
};

pub(in crate::sys) fn length(len: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(len).unwrap_or(libc::socklen_t::MAX)
}

impl RawAddress {
    /// Makes room for the system to write an address to.
    pub(in crate::sys) fn room() -> Self {
        Self { bytes: [0; SIZE], len: length(SIZE) }
    }

    /// Converts an address. Fails if it is simulated or its name is too long.
    pub(in crate::sys) fn of(address: &Address) -> Result<Self, Fault> {
        let name = match &address.0 {
            AddressKind::Ip(address) => {
                let (bytes, len) = of_ip(address);
                let mut raw = Self::room();
                raw.len = length(len);
                raw.put(0, &bytes);
                return Ok(raw);
            }
            AddressKind::Local(name) => name,
            #[cfg(feature = "sim")]
            AddressKind::Simulated(_) => {
                return Err(Fault { kind: ErrorKind::WrongKernel, code: None });
            }
        };
        // A path ends with a zero byte if there is room for it. Other names have a length.
        let is_path = name.first().is_some_and(|first| *first != 0);
        let len = NAME + name.len() + usize::from(is_path && name.len() < NAME_SIZE);
        if len > SIZE {
            return Err(Fault { kind: ErrorKind::Other, code: Some(libc::ENAMETOOLONG) });
        }
        let mut raw = Self::room();
        raw.len = length(len);
        raw.put(0, &head(libc::AF_UNIX, len));
        raw.put(NAME, name);
        Ok(raw)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// For a system call that reads the [`RawAddress::len`] bytes of the address.
    pub(in crate::sys) fn as_ptr(&self) -> *const libc::sockaddr {
        (&raw const self.bytes).cast()
    }

    /// For a system call that writes an address of at most [`RawAddress::len`] bytes.
    pub(in crate::sys) fn as_mut_ptr(&mut self) -> *mut libc::sockaddr {
        (&raw mut self.bytes).cast()
    }

    /// Returns the length of the address, or the room for one. All these bytes exist.
    pub(in crate::sys) fn len(&self) -> libc::socklen_t {
        self.len.min(length(SIZE))
    }

    /// For a system call that writes the length of the address. It may exceed the room.
    pub(in crate::sys) fn len_mut(&mut self) -> &mut libc::socklen_t {
        &mut self.len
    }

    /// Returns the address, or `None` if there is none or [`Address`] cannot represent it.
    pub(in crate::sys) fn address(&self) -> Option<Address> {
        let len = usize::try_from(self.len()).unwrap_or(SIZE);
        read(&self.bytes[..len])
    }
}

/// Returns the first bytes of an address of this family and length.
fn head(family: i32, len: usize) -> [u8; 2] {
    let mut head = [0; 2];
    if FAMILY != 0 {
        head[0] = u8::try_from(len).unwrap_or(u8::MAX);
    }
    let family = libc::sa_family_t::try_from(family).unwrap_or_default().to_ne_bytes();
    head[FAMILY..].copy_from_slice(&family);
    head
}

/// The size of an internet address: `struct sockaddr_in6`, the longer one.
pub(in crate::sys) const IP_SIZE: usize = size_of::<libc::sockaddr_in6>();

/// Returns the bytes of an internet address and its length.
#[inline]
pub(in crate::sys) fn of_ip(address: &SocketAddr) -> ([u8; IP_SIZE], usize) {
    const IN: usize = size_of::<libc::sockaddr_in>();
    let mut bytes = [0; IP_SIZE];
    let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
    let len = match address {
        SocketAddr::V4(address) => {
            put(0, &head(libc::AF_INET, IN));
            put(offset_of!(libc::sockaddr_in, sin_port), &address.port().to_be_bytes());
            put(offset_of!(libc::sockaddr_in, sin_addr), &address.ip().octets());
            IN
        }
        SocketAddr::V6(address) => {
            let (flow, scope) = (address.flowinfo(), address.scope_id());
            put(0, &head(libc::AF_INET6, IP_SIZE));
            put(offset_of!(libc::sockaddr_in6, sin6_port), &address.port().to_be_bytes());
            put(offset_of!(libc::sockaddr_in6, sin6_addr), &address.ip().octets());
            // Unchanged, in the system's representation, as in the standard library.
            put(offset_of!(libc::sockaddr_in6, sin6_flowinfo), &flow.to_ne_bytes());
            put(offset_of!(libc::sockaddr_in6, sin6_scope_id), &scope.to_ne_bytes());
            IP_SIZE
        }
    };
    (bytes, len)
}

/// Reads an address that the system has written.
#[inline]
pub(in crate::sys) fn read(bytes: &[u8]) -> Option<Address> {
    let known = WrittenAddress(bytes);
    let family = libc::sa_family_t::from_ne_bytes(known.at(FAMILY)?);
    match i32::from(family) {
        libc::AF_INET => {
            let port = known.at(offset_of!(libc::sockaddr_in, sin_port))?;
            let ip: [u8; 4] = known.at(offset_of!(libc::sockaddr_in, sin_addr))?;
            let address = SocketAddrV4::new(ip.into(), u16::from_be_bytes(port));
            Some(Address(AddressKind::Ip(address.into())))
        }
        libc::AF_INET6 => {
            let port = known.at(offset_of!(libc::sockaddr_in6, sin6_port))?;
            let flow = known.at(offset_of!(libc::sockaddr_in6, sin6_flowinfo))?;
            let ip: [u8; 16] = known.at(offset_of!(libc::sockaddr_in6, sin6_addr))?;
            let scope = known.at(offset_of!(libc::sockaddr_in6, sin6_scope_id))?;
            let address = SocketAddrV6::new(
                Ipv6Addr::from(ip),
                u16::from_be_bytes(port),
                u32::from_ne_bytes(flow),
                u32::from_ne_bytes(scope),
            );
            Some(Address(AddressKind::Ip(address.into())))
        }
        libc::AF_UNIX => local(known),
        _ => None,
    }
}

/// Reads the name of an `AF_UNIX` socket.
#[cold]
fn local(known: WrittenAddress<'_>) -> Option<Address> {
    let name = known.0.get(NAME..).filter(|name| !name.is_empty())?;
    let is_path = name[0] != 0;
    if !is_path && !calls::HAS_ABSTRACT_NAMES {
        // The address of a socket without a name.
        return None;
    }
    // The length includes the zero byte after a path.
    let end = name.iter().position(|byte| is_path && *byte == 0);
    Some(Address(AddressKind::Local(name[..end.unwrap_or(name.len())].to_vec())))
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[track_caller]
    fn assert_kept(address: &Address) {
        let raw = RawAddress::of(address).unwrap();
        assert_eq!(raw.address().as_ref(), Some(address));
    }

    fn local(name: &[u8]) -> Address {
        Address(AddressKind::Local(name.to_vec()))
    }

    #[test]
    fn what_is_written_is_read_again() {
        assert_kept(&SocketAddr::from((Ipv4Addr::new(192, 0, 2, 7), 0x1234)).into());
        let ip = Ipv6Addr::new(0xfe80, 1, 2, 3, 4, 5, 6, 7);
        assert_kept(&SocketAddr::from(SocketAddrV6::new(ip, 0x1234, 0x5678, 9)).into());
        assert_kept(&local(b"/run/server"));
        assert_kept(&local(&[b'p'; NAME_SIZE - 1]));
        assert_kept(&local(&[b'p'; NAME_SIZE]));
        if calls::HAS_ABSTRACT_NAMES {
            assert_kept(&local(b"\0abstract\0name\0"));
            assert_kept(&local(&[0; NAME_SIZE]));
        }
    }

    #[test]
    fn it_lies_in_memory_as_the_system_has_it() {
        let raw = RawAddress::of(&SocketAddr::from(([192, 0, 2, 7], 0x1234)).into()).unwrap();
        assert_eq!(raw.len(), 16);
        assert_eq!(raw.bytes[2..8], [0x12, 0x34, 192, 0, 2, 7]);
        let path = RawAddress::of(&local(b"/a")).unwrap();
        // The zero byte after it counts.
        assert_eq!((path.len(), &path.bytes[2..5]), (5, b"/a\0".as_slice()));
        let name = RawAddress::of(&local(b"\0a")).unwrap();
        assert_eq!((name.len(), &name.bytes[2..5]), (4, b"\0a\0".as_slice()));
        assert_eq!(RawAddress::of(&local(b"")).unwrap().len(), 2);
        assert_eq!(
            RawAddress::of(&local(&[b'p'; NAME_SIZE])).unwrap().len(),
            length(NAME + NAME_SIZE)
        );
    }

    #[test]
    fn what_is_too_long_for_any_address_is_refused() {
        let fault = RawAddress::of(&local(&[b'p'; SIZE])).map(drop).unwrap_err();
        assert_eq!(fault.code, Some(libc::ENAMETOOLONG));
        assert!(Address::from_path("p".repeat(NAME_SIZE + 1)).is_err());
        assert!(Address::from_path("with a\0zero").is_err());
    }

    #[test]
    fn a_path_is_returned_whatever_its_length() {
        for length in [1, NAME_SIZE - 1, NAME_SIZE] {
            let path = "p".repeat(length);
            let address = Address::from_path(&path).unwrap();
            assert_kept(&address);
            assert_eq!(address.as_path(), Some(Path::new(&path)));
            // The standard library needs room for a zero byte.
            assert_eq!(address.as_unix().is_some(), length < NAME_SIZE);
        }
        for other in [local(b""), local(b"\0abstract"), SocketAddr::from(([127; 4], 1)).into()] {
            assert_eq!(other.as_path(), None);
        }
    }

    #[test]
    fn what_no_address_can_say_is_none() {
        let none = |len: libc::socklen_t, family: i32| {
            let mut raw = RawAddress::room();
            raw.put(FAMILY, &libc::sa_family_t::try_from(family).unwrap().to_ne_bytes());
            *raw.len_mut() = len;
            raw.address()
        };
        // No sender at all, half a family, one without a name, a truncated one, another family.
        assert_eq!(none(0, libc::AF_INET), None);
        assert_eq!(none(1, libc::AF_INET), None);
        assert_eq!(none(2, libc::AF_UNIX), None);
        assert_eq!(none(7, libc::AF_INET), None);
        assert_eq!(none(27, libc::AF_INET6), None);
        assert_eq!(none(128, libc::AF_UNSPEC), None);
        // The system may report a length beyond the room.
        assert!(none(libc::socklen_t::MAX, libc::AF_INET).is_some());
    }

    #[test]
    fn the_standard_library_has_the_same_addresses() {
        let path = net::SocketAddr::from_pathname("/run/server").unwrap();
        let nameless = net::SocketAddr::from_pathname("").unwrap();
        assert!(nameless.is_unnamed());
        for address in [Some(path), calls::of_abstract_name(b"name"), Some(nameless)] {
            let Some(address) = address else { continue };
            let again = Address::from(address.clone()).as_unix().unwrap();
            assert_eq!(format!("{again:?}"), format!("{address:?}"));
        }
        assert!(Address::from(SocketAddr::from(([127, 0, 0, 1], 1))).as_unix().is_none());
    }
}
