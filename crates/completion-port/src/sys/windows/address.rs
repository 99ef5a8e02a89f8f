//! Addresses in the form of Winsock's calls.

use std::mem::offset_of;
use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use windows_sys::Win32::Networking::WinSock::{
    AF_INET, AF_INET6, AF_UNIX, SOCKADDR, SOCKADDR_IN, SOCKADDR_IN6, SOCKADDR_STORAGE, SOCKADDR_UN,
    WSAENAMETOOLONG,
};

use crate::types::address::{Address, AddressKind, WrittenAddress};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;

/// The size of `SOCKADDR_STORAGE`, which has room for every address.
const SIZE: usize = size_of::<SOCKADDR_STORAGE>();

/// The offset of the name of an `AF_UNIX` socket.
const NAME: usize = offset_of!(SOCKADDR_UN, sun_path);

/// The most bytes of such a name.
const NAME_SIZE: usize = size_of::<SOCKADDR_UN>() - NAME;

/// An address in the memory layout of the calls: `SOCKADDR_IN`, `SOCKADDR_IN6` or `SOCKADDR_UN`.
/// All its bytes are initialized.
#[repr(C, align(8))]
pub(super) struct RawAddress {
    bytes: [u8; SIZE],
    len: i32,
}

const _: () = {
    assert!(align_of::<RawAddress>() >= align_of::<SOCKADDR_STORAGE>());
    assert!(offset_of!(RawAddress, bytes) == 0);
    assert!(offset_of!(SOCKADDR, sa_family) == 0);
    assert!(offset_of!(SOCKADDR_IN, sin_port) == 2 && offset_of!(SOCKADDR_IN6, sin6_port) == 2);
};

fn length(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

/// The offset of the zone, which is the last four bytes of an IPv6 address.
const ZONE: usize = size_of::<SOCKADDR_IN6>() - 4;

impl RawAddress {
    /// Makes room for the system to write an address to.
    pub(super) fn room() -> Self {
        Self { bytes: [0; SIZE], len: length(SIZE) }
    }

    /// Copies an address that the system has written elsewhere.
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut raw = Self::room();
        let len = bytes.len().min(SIZE);
        raw.put(0, &bytes[..len]);
        raw.len = length(len);
        raw
    }

    /// Converts an address. Fails if it is simulated or its name is too long.
    pub(super) fn of(address: &Address) -> Result<Self, Fault> {
        let (family, len) = match &address.0 {
            AddressKind::Ip(SocketAddr::V4(_)) => (AF_INET, size_of::<SOCKADDR_IN>()),
            AddressKind::Ip(SocketAddr::V6(_)) => (AF_INET6, size_of::<SOCKADDR_IN6>()),
            AddressKind::Local(name) if name.len() > NAME_SIZE => {
                return Err(Fault { kind: ErrorKind::Other, code: Some(WSAENAMETOOLONG) });
            }
            AddressKind::Local(_) => (AF_UNIX, size_of::<SOCKADDR_UN>()),
            #[cfg(feature = "sim")]
            AddressKind::Simulated(_) => {
                return Err(Fault { kind: ErrorKind::WrongKernel, code: None });
            }
        };
        let mut raw = Self::room();
        raw.len = length(len);
        raw.put(0, &family.to_ne_bytes());
        match &address.0 {
            AddressKind::Ip(SocketAddr::V4(address)) => {
                raw.put(2, &address.port().to_be_bytes());
                raw.put(offset_of!(SOCKADDR_IN, sin_addr), &address.ip().octets());
            }
            AddressKind::Ip(SocketAddr::V6(address)) => {
                let (flow, scope) = (address.flowinfo(), address.scope_id());
                raw.put(2, &address.port().to_be_bytes());
                raw.put(offset_of!(SOCKADDR_IN6, sin6_addr), &address.ip().octets());
                // Unchanged, in the system's representation, as in the standard library.
                raw.put(offset_of!(SOCKADDR_IN6, sin6_flowinfo), &flow.to_ne_bytes());
                raw.put(ZONE, &scope.to_ne_bytes());
            }
            AddressKind::Local(name) => raw.put(NAME, name),
            #[cfg(feature = "sim")]
            AddressKind::Simulated(_) => {}
        }
        Ok(raw)
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// For a call that reads the [`RawAddress::len`] bytes of the address.
    pub(super) fn as_ptr(&self) -> *const SOCKADDR {
        (&raw const self.bytes).cast()
    }

    /// For a call that writes an address of at most [`RawAddress::len`] bytes, and its length.
    pub(super) fn as_mut_ptrs(&mut self) -> (*mut SOCKADDR, *mut i32) {
        ((&raw mut self.bytes).cast(), &raw mut self.len)
    }

    /// Returns the length of the address, or the room for one. All these bytes exist.
    pub(super) fn len(&self) -> i32 {
        self.len.min(length(SIZE))
    }

    /// Returns the address, or `None` if there is none or [`Address`] cannot represent it.
    pub(super) fn address(&self) -> Option<Address> {
        let len = usize::try_from(self.len()).unwrap_or(0);
        let known = WrittenAddress(&self.bytes[..len]);
        let port = || known.at(2).map(u16::from_be_bytes);
        match u16::from_ne_bytes(known.at(0)?) {
            AF_INET => {
                let ip: [u8; 4] = known.at(offset_of!(SOCKADDR_IN, sin_addr))?;
                let address = SocketAddrV4::new(ip.into(), port()?);
                Some(Address(AddressKind::Ip(address.into())))
            }
            AF_INET6 => {
                let flow = u32::from_ne_bytes(known.at(offset_of!(SOCKADDR_IN6, sin6_flowinfo))?);
                let ip: [u8; 16] = known.at(offset_of!(SOCKADDR_IN6, sin6_addr))?;
                let scope = u32::from_ne_bytes(known.at(ZONE)?);
                let address = SocketAddrV6::new(Ipv6Addr::from(ip), port()?, flow, scope);
                Some(Address(AddressKind::Ip(address.into())))
            }
            AF_UNIX => {
                let name = known.0.get(NAME..).filter(|name| !name.is_empty())?;
                let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                // A socket without a name has only zeros.
                (end > 0).then(|| Address(AddressKind::Local(name[..end].to_vec())))
            }
            _ => None,
        }
    }
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
        assert_kept(&local(br"C:\run\server"));
        assert_kept(&local(&[b'p'; NAME_SIZE]));
    }

    #[test]
    fn it_lies_in_memory_as_the_system_has_it() {
        let raw = RawAddress::of(&SocketAddr::from(([192, 0, 2, 7], 0x1234)).into()).unwrap();
        assert_eq!(raw.len(), 16);
        assert_eq!(raw.bytes[..8], [2, 0, 0x12, 0x34, 192, 0, 2, 7]);
        let ip = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 7);
        let raw = RawAddress::of(&SocketAddr::from(SocketAddrV6::new(ip, 1, 0, 9)).into()).unwrap();
        assert_eq!((raw.len(), raw.bytes[24]), (28, 9));
    }

    #[test]
    fn what_is_too_long_for_any_address_is_refused() {
        let fault = RawAddress::of(&local(&[b'p'; NAME_SIZE + 1])).map(drop).unwrap_err();
        assert_eq!(fault.code, Some(WSAENAMETOOLONG));
    }

    #[test]
    fn what_no_address_can_say_is_none() {
        let none = |len: i32, family: u16| {
            let mut raw = RawAddress::room();
            raw.put(0, &family.to_ne_bytes());
            raw.len = len;
            raw.address()
        };
        // No sender at all, half a family, one without a name, a truncated one, another family.
        assert_eq!(none(0, AF_INET), None);
        assert_eq!(none(-1, AF_INET), None);
        assert_eq!(none(1, AF_INET), None);
        assert_eq!(none(2, AF_UNIX), None);
        assert_eq!(none(110, AF_UNIX), None);
        assert_eq!(none(7, AF_INET), None);
        assert_eq!(none(27, AF_INET6), None);
        assert_eq!(none(128, 999), None);
        // The system may report a length beyond the room.
        assert!(none(i32::MAX, AF_INET).is_some());
    }
}
