//! Addresses in the calls that transfer many datagrams.

use std::mem::MaybeUninit;

use crate::sys::unix::address::{RawAddress, SIZE, length, of_ip, read};
use crate::types::address::{Address, AddressKind};
use crate::types::error::Fault;

/// An address in the layout of [`RawAddress`], of which only the bytes that were written are
/// initialized.
#[repr(C, align(8))]
pub(super) struct RawName([MaybeUninit<u8>; SIZE]);

const _: () = assert!(align_of::<RawName>() >= align_of::<libc::sockaddr_storage>());

impl RawName {
    /// The room for a name.
    #[allow(clippy::cast_possible_truncation, reason = "it is small")]
    pub(super) const SIZE: libc::socklen_t = size_of::<Self>() as libc::socklen_t;

    /// Writes an address and returns its length. Fails as [`RawAddress::of`] does.
    #[inline]
    pub(super) fn put(
        place: &mut MaybeUninit<Self>,
        address: &Address,
    ) -> Result<libc::socklen_t, Fault> {
        let place = place.as_mut_ptr().cast::<u8>();
        if let AddressKind::Ip(address) = &address.0 {
            let (bytes, len) = of_ip(address);
            // SAFETY: a copy requires that the source is valid for reads, and the destination for
            // writes, of that many bytes, and that they do not overlap.
            // - valid: both have room for all bytes of an IPv6 address;
            // - no overlap: the source is a local.
            unsafe { place.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
            return Ok(length(len));
        }
        let raw = RawAddress::of(address)?;
        // SAFETY: as above; both have room for every address.
        unsafe { place.copy_from_nonoverlapping(raw.as_ptr().cast::<u8>(), SIZE) };
        Ok(raw.len())
    }

    /// Returns the address, as [`RawAddress::address`] does.
    ///
    /// # Safety
    ///
    /// The system has written an address to this room and `len` as its length, which may exceed the
    /// room.
    #[inline]
    pub(super) unsafe fn address(
        name: &MaybeUninit<Self>,
        len: libc::socklen_t,
    ) -> Option<Address> {
        let len = usize::try_from(len).unwrap_or(SIZE).min(SIZE);
        // SAFETY: a slice from a pointer requires `len` initialized bytes, which nothing writes
        // while it lives.
        // - initialized: the caller ensures that the system has written that many, and the room has
        //   that many;
        // - nothing writes: the name is borrowed.
        read(unsafe { std::slice::from_raw_parts(name.as_ptr().cast::<u8>(), len) })
    }
}
