//! The file mapping behind a handle: anonymous memory or a file, and the code that maps its views.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use crate::errors::code;

/// The alignment of a view, both in memory and in the file.
pub(crate) const GRANULARITY: usize = 0x1_0000;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Mapping {
    pub(crate) descriptor: OwnedFd,
    pub(crate) size: u64,
    /// Views may be writable, so that the file changes.
    pub(crate) writes: bool,
    /// Views may be executable.
    pub(crate) executes: bool,
}

/// The address wanted for a view, and the part of the file it shows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) offset: i64,
    pub(crate) length: usize,
    pub(crate) protection: c_int,
    /// Writes stay in the view.
    pub(crate) is_private: bool,
    /// 0 for any address.
    pub(crate) address: usize,
}

fn error() -> u32 {
    match std::io::Error::last_os_error().raw_os_error().unwrap_or(0) {
        libc::EACCES | libc::EPERM => code::ACCESS_DENIED,
        libc::EEXIST => code::INVALID_ADDRESS,
        libc::ENODEV => code::BAD_EXE_FORMAT,
        libc::EINVAL | libc::EOVERFLOW => code::INVALID_PARAMETER,
        _ => code::NOT_ENOUGH_MEMORY,
    }
}

impl Mapping {
    /// Maps a view and returns its address.
    pub(crate) fn map(&self, wanted: Wanted) -> Result<usize, u32> {
        if wanted.address == 0 {
            return self.map_anywhere(wanted);
        }
        let address = self.map_with(wanted, libc::MAP_FIXED_NOREPLACE)?;
        if address == wanted.address {
            return Ok(address);
        }
        // A kernel that does not know the flag treats the address as a hint.
        unmap(address, wanted.length);
        Err(code::INVALID_ADDRESS)
    }

    /// Reserves more memory than the view needs, and maps the view at the first aligned address within.
    fn map_anywhere(&self, wanted: Wanted) -> Result<usize, u32> {
        let room = wanted.length.checked_add(GRANULARITY).ok_or(code::NOT_ENOUGH_MEMORY)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: mmap(2) without MAP_FIXED changes no memory that is in use.
        let reserved = unsafe { libc::mmap(ptr::null_mut(), room, libc::PROT_NONE, flags, -1, 0) };
        if reserved == libc::MAP_FAILED {
            return Err(error());
        }
        let start = reserved.addr();
        let address = start.next_multiple_of(GRANULARITY);
        match self.map_with(Wanted { address, ..wanted }, libc::MAP_FIXED) {
            Err(code) => {
                unmap(start, room);
                Err(code)
            }
            Ok(address) => {
                let end = (address + wanted.length).next_multiple_of(page());
                unmap(start, address - start);
                unmap(end, start + room.next_multiple_of(page()) - end);
                Ok(address)
            }
        }
    }

    /// `fixed` is `MAP_FIXED` for an address that the caller has reserved, or `MAP_FIXED_NOREPLACE`.
    fn map_with(&self, wanted: Wanted, fixed: c_int) -> Result<usize, u32> {
        let kind = if wanted.is_private { libc::MAP_PRIVATE } else { libc::MAP_SHARED };
        let place = ptr::without_provenance_mut::<c_void>(wanted.address);
        // SAFETY: mmap(2) with MAP_FIXED removes what was mapped there, and demands that nothing uses it.
        // - the caller has just reserved it and shared it with nobody. The other flag replaces nothing.
        let mapped = unsafe {
            libc::mmap(
                place,
                wanted.length,
                wanted.protection,
                kind | fixed,
                self.descriptor.as_raw_fd(),
                wanted.offset,
            )
        };
        if mapped == libc::MAP_FAILED { Err(error()) } else { Ok(mapped.addr()) }
    }
}

pub(crate) fn page() -> usize {
    // SAFETY: sysconf(3) demands nothing of memory.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Unmaps pages that this module has mapped, and that nobody uses.
pub(crate) fn unmap(address: usize, length: usize) {
    if length > 0 {
        // SAFETY: munmap(2) demands that nothing uses the memory.
        // - it is the module's own, or the program has released it by unmapping its view.
        unsafe { libc::munmap(ptr::without_provenance_mut(address), length) };
    }
}
