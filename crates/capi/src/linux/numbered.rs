//! Handles of descriptors, as in the reference's C library: `_get_osfhandle` and `_open_osfhandle`.
//!
//! A descriptor has no handle until a program asks for it. From then on a table keeps the handle, so each call returns the
//! same one. The handle's file has its own descriptor for the same open file, and shares the position. `_close` closes both.
//! If something else has closed the descriptor and its number names a different file, the next call detects that. It does not
//! detect that the same file was opened again with the same access.
//!
//! A socket's handle is its number.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::abi::{Handle, NO_HANDLE};
use crate::errors::{code, guarded, set_last};
use crate::handles;
use crate::linux::associations;
use crate::linux::file::{File, Terms, errno, stat};
use crate::linux::object::{self, Object};
use crate::linux::process::Own;

/// The handle of each descriptor that has one.
type Numbered = Mutex<BTreeMap<c_int, usize>>;

static NUMBERED: Own<Numbered> = Own::new(begin_child);

extern "C" fn begin_child() {
    NUMBERED.pass_on();
}

/// A forked child inherits its parent's table, unless a thread was changing it at the fork.
fn numbered() -> MutexGuard<'static, BTreeMap<c_int, usize>> {
    let numbered = NUMBERED.get(|parents| {
        let inherited = parents.and_then(|table| table.try_lock().ok());
        Box::new(Mutex::new(inherited.map(|table| table.clone()).unwrap_or_default()))
    });
    numbered.lock().unwrap_or_else(PoisonError::into_inner)
}

fn handle_at(address: usize) -> Handle {
    std::ptr::without_provenance_mut(address)
}

/// Whether the descriptor stays open across exec.
fn is_inherited(descriptor: c_int) -> bool {
    // SAFETY: fcntl(2) with F_GETFD demands nothing of memory.
    unsafe { libc::fcntl(descriptor, libc::F_GETFD) & libc::FD_CLOEXEC == 0 }
}

/// Returns another descriptor of the same open file.
fn duplicate(descriptor: c_int, is_inherited: bool) -> Result<OwnedFd, u32> {
    let command = if is_inherited { libc::F_DUPFD } else { libc::F_DUPFD_CLOEXEC };
    // SAFETY: fcntl(2) with these demands nothing of memory.
    let made = unsafe { libc::fcntl(descriptor, command, 3) };
    match made {
        // SAFETY: `from_raw_fd` demands a descriptor that has no other owner.
        // - the call has just created it.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(made) }),
        _ if errno() == libc::EBADF => Err(code::INVALID_HANDLE),
        _ => Err(code::TOO_MANY_OPEN_FILES),
    }
}

/// The access that a descriptor allows.
fn terms(descriptor: c_int) -> Terms {
    // SAFETY: fcntl(2) with F_GETFL demands nothing of memory.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    let mode = flags & libc::O_ACCMODE;
    let is_named_only = flags & libc::O_PATH != 0;
    let writes = !is_named_only && mode != libc::O_RDONLY;
    Terms {
        reads: !is_named_only && mode != libc::O_WRONLY,
        writes,
        sets_facts: writes,
        is_unbuffered: flags & libc::O_DIRECT != 0,
        ..Terms::default()
    }
}

/// Whether a handle and a descriptor name the same file, with the same access.
fn is_of(handle: Handle, descriptor: c_int, found: &libc::stat) -> bool {
    let Ok(file) = object::file(handle) else { return false };
    let is_same = |own: libc::stat| (own.st_dev, own.st_ino) == (found.st_dev, found.st_ino);
    let terms = terms(descriptor);
    stat(file.descriptor()).is_some_and(is_same)
        && (file.terms.reads, file.terms.writes) == (terms.reads, terms.writes)
}

fn handle_of(descriptor: c_int) -> Result<Handle, u32> {
    let found = stat(descriptor).ok_or(code::INVALID_HANDLE)?;
    if found.st_mode & libc::S_IFMT == libc::S_IFSOCK {
        return Ok(handle_at(usize::try_from(descriptor).unwrap_or(NO_HANDLE)));
    }
    let mut numbered = numbered();
    let known = numbered.get(&descriptor).copied();
    if let Some(handle) = known.map(handle_at).filter(|known| is_of(*known, descriptor, &found)) {
        return Ok(handle);
    }
    let file =
        File::new(duplicate(descriptor, false)?, terms(descriptor)).ok_or(code::INVALID_HANDLE)?;
    let handle = handles::open(|_| Ok(Object::File(Arc::new(file))))?;
    let former = numbered.insert(descriptor, handle.addr());
    drop(numbered);
    close(former);
    Ok(handle)
}

/// Closes the handle of a closed descriptor. The program may have closed the handle before.
fn close(handle: Option<usize>) {
    if let Some(handle) = handle.map(handle_at)
        && object::file(handle).is_ok()
    {
        let _ = associations::close(handle);
    }
}

/// Returns the handle of a descriptor, the same each time: `_get_osfhandle`. Returns `INVALID_HANDLE_VALUE` for a closed
/// descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn cp_descriptor_handle(descriptor: c_int) -> Handle {
    guarded(handle_at(NO_HANDLE), || {
        handle_of(descriptor).unwrap_or_else(|code| {
            set_last(code);
            handle_at(NO_HANDLE)
        })
    })
}

fn descriptor_for(handle: Handle) -> Result<c_int, u32> {
    let Ok(file) = object::file(handle) else {
        let number = c_int::try_from(handle.addr()).map_err(|_| code::INVALID_HANDLE)?;
        let kind = stat(number).map(|found| found.st_mode & libc::S_IFMT);
        return if kind == Some(libc::S_IFSOCK) { Ok(number) } else { Err(code::INVALID_HANDLE) };
    };
    let descriptor = duplicate(file.descriptor(), is_inherited(file.descriptor()))?;
    let former = numbered().insert(descriptor.as_raw_fd(), handle.addr());
    close(former.filter(|former| *former != handle.addr()));
    Ok(descriptor.into_raw_fd())
}

/// Returns a descriptor for a handle: `_open_osfhandle`. Closing the descriptor closes the handle. Returns -1 if the handle
/// names neither a file nor a socket.
#[unsafe(no_mangle)]
pub extern "C" fn cp_descriptor_for(handle: Handle) -> c_int {
    guarded(-1, || {
        descriptor_for(handle).unwrap_or_else(|code| {
            set_last(code);
            -1
        })
    })
}

/// Closes the handle of a descriptor, if it has one. The descriptor is closed next.
#[unsafe(no_mangle)]
pub extern "C" fn cp_descriptor_ends(descriptor: c_int) {
    guarded((), || {
        let handle = numbered().remove(&descriptor);
        close(handle);
    });
}
