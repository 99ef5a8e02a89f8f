//! File mappings and their views: `CreateFileMapping`, `MapViewOfFile` and related calls.
//!
//! A mapping has its own descriptor, and a view needs neither that descriptor nor the handle. So the file, the mapping and
//! its views may be closed in any order. A table holds the views. It distinguishes a view from any other address, and stores
//! its length.

use std::collections::BTreeMap;
use std::ffi::{CString, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi::{Handle, NO_HANDLE};
use crate::errors::{code, guarded, set_last, succeeds};
use crate::handles;
use crate::linux::file::{File, errno, stat};
use crate::linux::mapping::{GRANULARITY, Mapping, Wanted, page, unmap};
use crate::linux::object::{self, Object};
use crate::linux::process::Own;
use crate::linux::status;

/// `PAGE_...`
mod protect {
    pub(crate) const READ_ONLY: u32 = 0x02;
    pub(crate) const READ_WRITE: u32 = 0x04;
    pub(crate) const WRITE_COPY: u32 = 0x08;
    pub(crate) const EXECUTE_READ: u32 = 0x20;
    pub(crate) const EXECUTE_READ_WRITE: u32 = 0x40;
    pub(crate) const EXECUTE_WRITE_COPY: u32 = 0x80;
}

/// `SEC_...`. With either of the first two, memory is allocated on first access.
mod section {
    pub(crate) const COMMIT: u32 = 0x0800_0000;
    pub(crate) const RESERVE: u32 = 0x0400_0000;
    /// Images, large pages, and other cache modes.
    pub(crate) const OTHERS: u32 = 0xD100_0000;
}

/// `FILE_MAP_...`
mod access {
    pub(crate) const COPY: u32 = 0x1;
    pub(crate) const WRITE: u32 = 0x2;
    pub(crate) const READ: u32 = 0x4;
    pub(crate) const EXECUTE: u32 = 0x20;
}

/// The start address of each view, and its length.
type Views = Mutex<BTreeMap<usize, usize>>;

static VIEWS: Own<Views> = Own::new(begin_child);

extern "C" fn begin_child() {
    VIEWS.pass_on();
}

/// The views of this process. A forked child inherits its parent's views, unless a thread was changing the table at the fork.
fn views() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    let views = VIEWS.get(|parents| {
        let inherited = parents.and_then(|views| views.try_lock().ok());
        Box::new(Mutex::new(inherited.map(|views| views.clone()).unwrap_or_default()))
    });
    views.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The requested properties of a mapping.
#[derive(Clone, Copy)]
struct Terms {
    writes: bool,
    executes: bool,
}

fn terms(protect: u32) -> Result<Terms, u32> {
    let sections = protect & !0xFF;
    if sections & section::OTHERS != 0 {
        return Err(code::NOT_SUPPORTED);
    }
    let known = section::COMMIT | section::RESERVE;
    if sections & !known != 0 || sections == known {
        return Err(code::INVALID_PARAMETER);
    }
    let (writes, executes) = match protect & 0xFF {
        protect::READ_ONLY | protect::WRITE_COPY => (false, false),
        protect::READ_WRITE => (true, false),
        protect::EXECUTE_READ | protect::EXECUTE_WRITE_COPY => (false, true),
        protect::EXECUTE_READ_WRITE => (true, true),
        _ => return Err(code::INVALID_PARAMETER),
    };
    Ok(Terms { writes, executes })
}

/// The code for the most recent system error.
fn error() -> u32 {
    status::code_in_win32(status::of_file(errno()))
}

fn owned(descriptor: c_int) -> Result<OwnedFd, u32> {
    if descriptor < 0 {
        return Err(error());
    }
    // SAFETY: `from_raw_fd` demands a descriptor that has no other owner.
    // - the caller has just created it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn resize(descriptor: &OwnedFd, size: u64) -> Result<(), u32> {
    let size = i64::try_from(size).map_err(|_| code::NOT_ENOUGH_MEMORY)?;
    // SAFETY: ftruncate(2) demands nothing of memory.
    if unsafe { libc::ftruncate(descriptor.as_raw_fd(), size) } == 0 {
        Ok(())
    } else {
        Err(error())
    }
}

/// Creates memory that no file backs.
fn of_memory(size: u64) -> Result<OwnedFd, u32> {
    if size == 0 {
        return Err(code::INVALID_PARAMETER);
    }
    let name = c"completion-port".as_ptr();
    // SAFETY: memfd_create(2) reads text that ends with a zero.
    // - it is such.
    let made = owned(unsafe { libc::memfd_create(name, libc::MFD_CLOEXEC) })?;
    resize(&made, size).map_err(|_| code::NOT_ENOUGH_MEMORY)?;
    Ok(made)
}

/// Returns another descriptor of a file. The file is opened again, because a view keeps its descriptor's file open: sharing
/// the handle's open file would also keep the handle's share mode in force.
fn descriptor_of(file: &File, terms: Terms) -> Result<OwnedFd, u32> {
    let link = CString::new(format!("/proc/self/fd/{}", file.descriptor())).unwrap_or_default();
    let mode = if terms.writes { libc::O_RDWR } else { libc::O_RDONLY };
    // SAFETY: open(2) reads text that ends with a zero.
    // - `link` is such.
    let opened = unsafe { libc::open(link.as_ptr(), mode | libc::O_CLOEXEC) };
    owned(opened).or_else(|_| {
        // /proc is missing, or the rights have changed.
        // SAFETY: fcntl(2) with F_DUPFD_CLOEXEC demands nothing of memory.
        owned(unsafe { libc::fcntl(file.descriptor(), libc::F_DUPFD_CLOEXEC, 0) })
    })
}

/// Extends a file, and allocates disk space for it if the file system supports that.
fn lengthen(descriptor: &OwnedFd, from: u64, to: u64) -> Result<(), u32> {
    let number = |of: u64| i64::try_from(of).map_err(|_| code::NOT_ENOUGH_MEMORY);
    let (from, more) = (number(from)?, number(to)? - number(from)?);
    // SAFETY: fallocate(2) demands nothing of memory.
    if unsafe { libc::fallocate(descriptor.as_raw_fd(), 0, from, more) } == 0 {
        return Ok(());
    }
    match errno() {
        libc::EOPNOTSUPP | libc::ENOSYS => resize(descriptor, to),
        _ => Err(error()),
    }
}

fn of_file(file: &File, terms: Terms, size: u64) -> Result<(OwnedFd, u64), u32> {
    if !file.terms.reads || (terms.writes && !file.terms.writes) {
        return Err(code::ACCESS_DENIED);
    }
    if !file.is_plain() {
        return Err(code::BAD_EXE_FORMAT);
    }
    let descriptor = descriptor_of(file, terms)?;
    let found = stat(descriptor.as_raw_fd()).ok_or(code::INVALID_HANDLE)?;
    let there = u64::try_from(found.st_size).unwrap_or(0);
    match size {
        0 if there == 0 => Err(code::FILE_INVALID),
        0 => Ok((descriptor, there)),
        _ if size <= there => Ok((descriptor, size)),
        _ if !terms.writes => Err(code::NOT_ENOUGH_MEMORY),
        _ => lengthen(&descriptor, there, size).map(|()| (descriptor, size)),
    }
}

/// Creates a mapping of a file, or of memory if the handle is `INVALID_HANDLE_VALUE`. Returns null on failure.
#[unsafe(no_mangle)]
pub extern "C" fn cp_create_mapping(file: Handle, protect: u32, size: u64) -> Handle {
    let made = || {
        let terms = terms(protect)?;
        let (descriptor, size) = if file.addr() == NO_HANDLE {
            (of_memory(size)?, size)
        } else {
            of_file(&*object::file(file)?, terms, size)?
        };
        let Terms { writes, executes } = terms;
        let mapping = Mapping { descriptor, size, writes, executes };
        handles::open(|_| Ok(Object::Mapping(Arc::new(mapping))))
    };
    guarded(ptr::null_mut(), || {
        let made = made();
        set_last(made.err().unwrap_or(code::SUCCESS));
        made.unwrap_or(ptr::null_mut())
    })
}

/// Returns how the pages of a view are protected, and whether writes stay in the view.
fn protection(mapping: &Mapping, wanted: u32) -> Result<(c_int, bool), u32> {
    let executes = wanted & access::EXECUTE != 0;
    let is_private = wanted & !access::EXECUTE == access::COPY;
    let writes = wanted & access::WRITE != 0;
    if !is_private && !writes && wanted & access::READ == 0 {
        return Err(code::INVALID_PARAMETER);
    }
    if (writes && !mapping.writes) || (executes && !mapping.executes) {
        return Err(code::ACCESS_DENIED);
    }
    let optional = [(is_private || writes, libc::PROT_WRITE), (executes, libc::PROT_EXEC)];
    let optional = optional.into_iter().filter(|(is_wanted, _)| *is_wanted);
    Ok((optional.fold(libc::PROT_READ, |all, (_, one)| all | one), is_private))
}

fn map(
    mapping: Handle,
    wanted: u32,
    offset: u64,
    count: usize,
    address: usize,
) -> Result<usize, u32> {
    let mapping = object::mapping(mapping)?;
    let (protection, is_private) = protection(&mapping, wanted)?;
    if !offset.is_multiple_of(GRANULARITY as u64) || !address.is_multiple_of(GRANULARITY) {
        return Err(code::MAPPED_ALIGNMENT);
    }
    let left = mapping.size.checked_sub(offset).filter(|left| *left > 0);
    let left = left.and_then(|left| usize::try_from(left).ok()).ok_or(code::ACCESS_DENIED)?;
    if count > left {
        return Err(code::ACCESS_DENIED);
    }
    let length = if count == 0 { left } else { count };
    let offset = i64::try_from(offset).map_err(|_| code::ACCESS_DENIED)?;
    let at = mapping.map(Wanted { offset, length, protection, is_private, address })?;
    views().insert(at, length.next_multiple_of(page()));
    Ok(at)
}

/// Maps a view of `count` bytes from `offset` on. A count of 0 means up to the end of the mapping. Returns null on failure.
#[unsafe(no_mangle)]
pub extern "C" fn cp_map_view(
    mapping: Handle,
    access: u32,
    offset: u64,
    count: usize,
    place: *mut c_void,
) -> *mut c_void {
    guarded(ptr::null_mut(), || {
        let mapped = map(mapping, access, offset, count, place.addr());
        mapped.map(ptr::with_exposed_provenance_mut).unwrap_or_else(|code| {
            set_last(code);
            ptr::null_mut()
        })
    })
}

/// Unmaps the view that begins at this address: `UnmapViewOfFile`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_unmap_view(place: *const c_void) -> c_int {
    succeeds(|| {
        // Locked until the view is gone. Another thread may get the address then, and records its view afterwards.
        let mut views = views();
        let length = views.remove(&place.addr()).ok_or(code::INVALID_ADDRESS)?;
        unmap(place.addr(), length);
        Ok(())
    })
}

/// Writes changes in a part of a view to its file: `FlushViewOfFile`. 0 bytes means up to the end of the view.
#[unsafe(no_mangle)]
pub extern "C" fn cp_flush_view(place: *const c_void, count: usize) -> c_int {
    succeeds(|| {
        let place = place.addr();
        let end = {
            let views = views();
            let (start, length) = views.range(..=place).next_back().ok_or(code::INVALID_ADDRESS)?;
            start + length
        };
        let left = end.checked_sub(place).filter(|left| *left > 0 && count <= *left);
        let left = left.ok_or(code::INVALID_ADDRESS)?;
        let start = place & !(page() - 1);
        let count = if count == 0 { left } else { count } + (place - start);
        // SAFETY: msync(2) reads pages that are mapped, or fails.
        let done = unsafe { libc::msync(ptr::without_provenance_mut(start), count, libc::MS_SYNC) };
        match (done, errno()) {
            (0, _) => Ok(()),
            // Another thread has unmapped it meanwhile.
            (_, libc::ENOMEM) => Err(code::INVALID_ADDRESS),
            _ => Err(error()),
        }
    })
}
