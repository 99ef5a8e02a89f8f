//! Opening files and querying them: `CreateFile`, `GetFileSizeEx`, `SetFilePointerEx` and so on.
//! The headers convert names to the system's form.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::abi::{Handle, NO_HANDLE};
use crate::errors::{code, guarded, set_last, succeeds};
use crate::handles;
use crate::linux::errno::Signals;
use crate::linux::file::{File, Terms, errno, seek, stat};
use crate::linux::object::{self, Object};
use crate::linux::status;

/// The reference's numbers.
mod access {
    pub(crate) const READ_DATA: u32 = 0x1;
    pub(crate) const WRITE_DATA: u32 = 0x2;
    pub(crate) const APPEND_DATA: u32 = 0x4;
    pub(crate) const WRITE_ATTRIBUTES: u32 = 0x100;
    /// The generic rights (all, execute, write, read), and the maximum allowed.
    pub(crate) const ALL: u32 = 0x1000_0000;
    pub(crate) const EXECUTE: u32 = 0x2000_0000;
    pub(crate) const WRITE: u32 = 0x4000_0000;
    pub(crate) const READ: u32 = 0x8000_0000;
    pub(crate) const MOST: u32 = 0x0200_0000;
}

/// What to do if a file exists or does not exist. 3 is `OPEN_EXISTING`.
mod disposition {
    pub(crate) const CREATE_NEW: u32 = 1;
    pub(crate) const CREATE_ALWAYS: u32 = 2;
    pub(crate) const OPEN_ALWAYS: u32 = 4;
    pub(crate) const TRUNCATE_EXISTING: u32 = 5;
}

/// `FILE_FLAG_...`, and the read-only attribute.
mod flag {
    pub(crate) const READ_ONLY: u32 = 0x1;
    pub(crate) const BACKUP_SEMANTICS: u32 = 0x0200_0000;
    pub(crate) const DELETE_ON_CLOSE: u32 = 0x0400_0000;
    pub(crate) const SEQUENTIAL_SCAN: u32 = 0x0800_0000;
    pub(crate) const RANDOM_ACCESS: u32 = 0x1000_0000;
    pub(crate) const NO_BUFFERING: u32 = 0x2000_0000;
    pub(crate) const OVERLAPPED: u32 = 0x4000_0000;
    pub(crate) const WRITE_THROUGH: u32 = 0x8000_0000;
}

/// The code for the system's error of a call that takes a file name.
pub(crate) fn code_of_name(errno: c_int, name: &CStr) -> u32 {
    match errno {
        libc::ENOENT => {
            let path = Path::new(OsStr::from_bytes(name.to_bytes()));
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            match folder {
                _ if name.is_empty() => code::PATH_NOT_FOUND,
                Some(folder) if !folder.is_dir() => code::PATH_NOT_FOUND,
                _ => code::FILE_NOT_FOUND,
            }
        }
        libc::ENOTDIR => code::PATH_NOT_FOUND,
        libc::EISDIR | libc::EACCES | libc::EPERM => code::ACCESS_DENIED,
        // A running program cannot be written.
        libc::ETXTBSY => code::SHARING_VIOLATION,
        libc::EEXIST => code::ALREADY_EXISTS,
        libc::ENOTEMPTY => code::DIR_NOT_EMPTY,
        libc::EXDEV => code::NOT_SAME_DEVICE,
        libc::EBUSY => code::BUSY,
        libc::ENAMETOOLONG => code::FILENAME_EXCED_RANGE,
        libc::ELOOP => code::CANT_RESOLVE_FILENAME,
        errno => status::code_in_win32(status::of_file(errno)),
    }
}

/// The code for an errno of a call that takes a file name.
///
/// # Safety
///
/// `name` points to text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_error_of_name(errno: c_int, name: *const c_char) -> u32 {
    guarded(code::INTERNAL_ERROR, || {
        // SAFETY: `from_ptr` demands text that ends with a zero.
        // - the caller guarantees it.
        code_of_name(errno, unsafe { CStr::from_ptr(name) })
    })
}

/// Renames a file: `MoveFileEx`. An existing file with the new name is replaced, or makes the call
/// fail.
///
/// # Safety
///
/// `from` and `to` point to text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_move_file(
    from: *const c_char,
    to: *const c_char,
    replaces: c_int,
) -> c_int {
    succeeds(|| {
        let flags = if replaces != 0 { 0 } else { libc::RENAME_NOREPLACE };
        let here = libc::AT_FDCWD;
        // SAFETY: renameat2(2) reads text that ends with a zero at both pointers.
        // - the caller guarantees that they point to such.
        let done = unsafe { libc::syscall(libc::SYS_renameat2, here, from, here, to, flags) };
        if done == 0 {
            return Ok(());
        }
        let errno = errno();
        // SAFETY: `from_ptr` demands text that ends with a zero.
        // - the caller guarantees it.
        Err(code_of_name(errno, unsafe { CStr::from_ptr(from) }))
    })
}

/// The arguments of an open other than the name.
#[derive(Clone, Copy)]
struct Asked {
    access: u32,
    share: u32,
    disposition: u32,
    flags: u32,
    inherited: bool,
}

impl Asked {
    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn may(&self, access: u32) -> bool {
        self.access & (access | access::ALL | access::MOST) != 0
    }

    fn terms(&self) -> Terms {
        Terms {
            reads: self.may(access::READ | access::READ_DATA | access::EXECUTE),
            writes: self.may(access::WRITE | access::WRITE_DATA | access::APPEND_DATA),
            sets_facts: self.may(access::WRITE | access::WRITE_ATTRIBUTES),
            is_overlapped: self.has(flag::OVERLAPPED),
            is_unbuffered: self.has(flag::NO_BUFFERING),
            goes_when_closed: self.has(flag::DELETE_ON_CLOSE),
        }
    }

    /// The system's flags, except those that create a file.
    fn flags(&self) -> c_int {
        let Terms { reads, writes, is_unbuffered, .. } = self.terms();
        let only_appends = writes && !self.may(access::WRITE | access::WRITE_DATA);
        let mode = match (reads, writes) {
            (true, true) => libc::O_RDWR,
            (false, true) => libc::O_WRONLY,
            _ => libc::O_RDONLY,
        };
        let optional = [
            (only_appends, libc::O_APPEND),
            (is_unbuffered, libc::O_DIRECT),
            (self.has(flag::WRITE_THROUGH), libc::O_DSYNC),
            (!self.inherited, libc::O_CLOEXEC),
        ];
        let optional = optional.into_iter().filter(|(wanted, _)| *wanted);
        optional.fold(mode | libc::O_NOCTTY, |flags, (_, flag)| flags | flag)
    }
}

fn open(name: &CStr, flags: c_int, mode: libc::mode_t) -> Result<OwnedFd, c_int> {
    let mut signals = Signals::default();
    loop {
        // SAFETY: open(2) reads text that ends with a zero.
        // - `name` is such.
        let descriptor = unsafe { libc::open(name.as_ptr(), flags, libc::c_uint::from(mode)) };
        if descriptor >= 0 {
            // SAFETY: `from_raw_fd` demands a descriptor that has no other owner.
            // - the call has just created it.
            return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
        match errno() {
            errno if signals.ended(errno) => {}
            // The file system has no unbuffered access, so use the cache.
            libc::EINVAL if flags & libc::O_DIRECT != 0 => {
                return open(name, flags & !libc::O_DIRECT, mode);
            }
            errno => return Err(errno),
        }
    }
}

/// Opens an existing file or creates one. Returns whether it existed.
fn open_as_asked(name: &CStr, asked: &Asked) -> Result<(OwnedFd, bool), c_int> {
    let flags = asked.flags();
    let mode = if asked.has(flag::READ_ONLY) { 0o444 } else { 0o666 };
    let made = || open(name, flags | libc::O_CREAT | libc::O_EXCL, mode);
    match asked.disposition {
        disposition::CREATE_NEW => made().map(|made| (made, false)),
        disposition::CREATE_ALWAYS | disposition::OPEN_ALWAYS => loop {
            match open(name, flags, 0) {
                // Creates it, unless another thread is faster, or it is a link that leads nowhere.
                Err(libc::ENOENT) => match made() {
                    Err(libc::EEXIST) if !is_broken_link(name) => {}
                    Err(libc::EEXIST) => {
                        return open(name, flags | libc::O_CREAT, mode).map(|made| (made, false));
                    }
                    made => return made.map(|made| (made, false)),
                },
                found => return found.map(|found| (found, true)),
            }
        },
        _ if asked.terms().reads || asked.terms().writes => {
            open(name, flags, 0).map(|found| (found, true))
        }
        // The access that an unreadable file allows.
        _ => open(name, flags | libc::O_PATH, 0).map(|found| (found, true)),
    }
}

fn is_broken_link(name: &CStr) -> bool {
    let path = Path::new(OsStr::from_bytes(name.to_bytes()));
    path.is_symlink() && !path.exists()
}

/// Locks the file according to the program's sharing, as far as the system supports it: shared with
/// all others, or with none. Returns true if no other holder excludes that.
fn share(descriptor: &OwnedFd, asked: &Asked) -> bool {
    let Terms { reads, writes, .. } = asked.terms();
    if !reads && !writes {
        return true;
    }
    let lock = if asked.share == 0 { libc::LOCK_EX } else { libc::LOCK_SH };
    // SAFETY: flock(2) demands nothing of memory.
    let done = unsafe { libc::flock(descriptor.as_raw_fd(), lock | libc::LOCK_NB) };
    // A file system without locks refuses the call, and then no holder can exclude another.
    done == 0 || errno() != libc::EWOULDBLOCK
}

fn create(name: &CStr, asked: &Asked) -> Result<Handle, u32> {
    let terms = asked.terms();
    if !(disposition::CREATE_NEW..=disposition::TRUNCATE_EXISTING).contains(&asked.disposition) {
        return Err(code::INVALID_PARAMETER);
    }
    if asked.disposition == disposition::TRUNCATE_EXISTING && !asked.may(access::WRITE) {
        return Err(code::INVALID_PARAMETER);
    }
    let opened = open_as_asked(name, asked);
    let (descriptor, was_there) = opened.map_err(|errno| match errno {
        libc::EEXIST => code::FILE_EXISTS,
        errno => code_of_name(errno, name),
    })?;
    let kind = stat(descriptor.as_raw_fd()).map_or(0, |stat| stat.st_mode & libc::S_IFMT);
    match kind {
        libc::S_IFDIR if !asked.has(flag::BACKUP_SEMANTICS) => return Err(code::ACCESS_DENIED),
        libc::S_IFREG if !share(&descriptor, asked) => return Err(code::SHARING_VIOLATION),
        _ => {}
    }
    let is_cut =
        matches!(asked.disposition, disposition::CREATE_ALWAYS | disposition::TRUNCATE_EXISTING);
    if is_cut && was_there && kind == libc::S_IFREG {
        cut_open(name, &descriptor, terms)?;
    }
    for (flag, advice) in [
        (flag::SEQUENTIAL_SCAN, libc::POSIX_FADV_SEQUENTIAL),
        (flag::RANDOM_ACCESS, libc::POSIX_FADV_RANDOM),
    ] {
        if asked.has(flag) {
            // SAFETY: posix_fadvise(3) demands nothing of memory.
            unsafe { libc::posix_fadvise(descriptor.as_raw_fd(), 0, 0, advice) };
        }
    }
    let file = File::new(descriptor, terms).ok_or(code::INVALID_HANDLE)?;
    let handle = handles::open(|_| Ok(Object::File(Arc::new(file))))?;
    let is_told =
        matches!(asked.disposition, disposition::CREATE_ALWAYS | disposition::OPEN_ALWAYS);
    set_last(if is_told && was_there { code::ALREADY_EXISTS } else { code::SUCCESS });
    Ok(handle)
}

/// Truncates a file that existed. Reopens it for writing if necessary.
fn cut_open(name: &CStr, descriptor: &OwnedFd, terms: Terms) -> Result<(), u32> {
    let other;
    let descriptor = if terms.writes {
        descriptor
    } else {
        let flags = libc::O_WRONLY | libc::O_CLOEXEC;
        other = open(name, flags, 0).map_err(|errno| code_of_name(errno, name))?;
        &other
    };
    // SAFETY: ftruncate(2) demands nothing of memory.
    if unsafe { libc::ftruncate(descriptor.as_raw_fd(), 0) } == 0 {
        Ok(())
    } else {
        Err(status::code_in_win32(status::of_file(errno())))
    }
}

/// Opens a file: `CreateFile`. Returns the handle or `INVALID_HANDLE_VALUE`. `inherited`: the
/// descriptor stays open in exec.
///
/// # Safety
///
/// `name` is null or points to text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_open_file(
    name: *const c_char,
    access: u32,
    share: u32,
    inherited: c_int,
    disposition: u32,
    flags: u32,
) -> Handle {
    let nothing = std::ptr::without_provenance_mut(NO_HANDLE);
    guarded(nothing, || {
        if name.is_null() {
            set_last(code::PATH_NOT_FOUND);
            return nothing;
        }
        // SAFETY: `from_ptr` demands text that ends with a zero.
        // - the caller guarantees it for a non-null pointer.
        let name = unsafe { CStr::from_ptr(name) };
        let asked = Asked { access, share, disposition, flags, inherited: inherited != 0 };
        create(name, &asked).unwrap_or_else(|code| {
            set_last(code);
            nothing
        })
    })
}

/// The size of a file.
///
/// # Safety
///
/// `size` points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_file_size(file: Handle, size: *mut i64) -> c_int {
    succeeds(|| {
        let file = object::file(file)?;
        let stat = stat(file.descriptor()).ok_or(code::INVALID_HANDLE)?;
        let found = match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG | libc::S_IFDIR => stat.st_size,
            libc::S_IFBLK => {
                let place = seek(file.descriptor(), 0, libc::SEEK_CUR).unwrap_or(0);
                let end = seek(file.descriptor(), 0, libc::SEEK_END).unwrap_or(0);
                let _ = seek(file.descriptor(), place, libc::SEEK_SET);
                end
            }
            // It has no size.
            _ => return Err(1),
        };
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller guarantees it.
        unsafe { size.write(found) };
        Ok(())
    })
}

/// Moves the position of the next read or write without an OVERLAPPED, relative to the beginning
/// (0), the current position (1) or the end (2). Stores the new position.
///
/// # Safety
///
/// `place` is null or points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_file_seek(
    file: Handle,
    distance: i64,
    from: u32,
    place: *mut i64,
) -> c_int {
    succeeds(|| {
        let file = object::file(file)?;
        let from = match from {
            0 => libc::SEEK_SET,
            1 => libc::SEEK_CUR,
            2 => libc::SEEK_END,
            _ => return Err(code::INVALID_PARAMETER),
        };
        if !file.has_positions() {
            // A pipe, or a terminal.
            return Err(1);
        }
        let found = seek(file.descriptor(), distance, from).ok_or(code::NEGATIVE_SEEK)?;
        if !place.is_null() {
            // SAFETY: writing through a raw pointer demands that it is valid.
            // - the caller guarantees it for a non-null pointer.
            unsafe { place.write(found) };
        }
        Ok(())
    })
}

/// Makes the file end at the position of the next read or write without an OVERLAPPED:
/// `SetEndOfFile`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_file_cut(file: Handle) -> c_int {
    succeeds(|| {
        let file = object::file(file)?;
        if !file.terms.writes {
            return Err(code::ACCESS_DENIED);
        }
        let place = seek(file.descriptor(), 0, libc::SEEK_CUR).ok_or(code::INVALID_PARAMETER)?;
        // SAFETY: ftruncate(2) demands nothing of memory.
        if unsafe { libc::ftruncate(file.descriptor(), place) } == 0 {
            return Ok(());
        }
        Err(status::code_in_win32(status::of_file(errno())))
    })
}

/// Writes cached data to the disk: `FlushFileBuffers`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_file_flush(file: Handle) -> c_int {
    succeeds(|| {
        let file = object::file(file)?;
        if !file.terms.writes {
            return Err(code::ACCESS_DENIED);
        }
        let mut signals = Signals::default();
        loop {
            // SAFETY: fsync(2) demands nothing of memory.
            if unsafe { libc::fsync(file.descriptor()) } == 0 {
                return Ok(());
            }
            match errno() {
                errno if signals.ended(errno) => {}
                // A pipe or a terminal caches nothing.
                libc::EINVAL | libc::EROFS if !file.is_plain() => return Ok(()),
                errno => return Err(status::code_in_win32(status::of_file(errno))),
            }
        }
    })
}

/// The type of a handle, or of the standard stream with this descriptor if that is not negative:
/// `GetFileType`. 0 if it is not open.
#[unsafe(no_mangle)]
pub extern "C" fn cp_file_type(file: Handle, stream: c_int) -> u32 {
    guarded(0, || {
        let number = if stream >= 0 { Some(stream) } else { c_int::try_from(file.addr()).ok() };
        let kind = match object::file(file) {
            Ok(file) if stream < 0 => stat(file.descriptor()),
            _ => number.filter(|_| stream >= 0 || !file.is_null()).and_then(stat),
        };
        let Some(stat) = kind else {
            set_last(code::INVALID_HANDLE);
            return 0;
        };
        set_last(code::SUCCESS);
        match stat.st_mode & libc::S_IFMT {
            libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => 1,
            libc::S_IFCHR => 2,
            libc::S_IFIFO | libc::S_IFSOCK => 3,
            _ => 0,
        }
    })
}
