//! A file's metadata: attributes, size and times. `GetFileInformationByHandle`, `GetFileAttributesEx`, `SetFileTime` and the
//! like.

use std::ffi::{CStr, CString, c_char, c_int};
use std::mem::MaybeUninit;

use crate::abi::Handle;
use crate::errors::{code, succeeds};
use crate::linux::file::{File, errno};
use crate::linux::object;
use crate::linux::opening::code_of_name;
use crate::linux::status;

/// Same layout as `cp_facts` in `completion_port_internals.h`. A time that the file system does not record is 0.
#[derive(Debug)]
#[repr(C)]
pub struct Facts {
    attributes: u32,
    links: u32,
    device: u64,
    index: u64,
    size: i64,
    allocated: i64,
    created: i64,
    accessed: i64,
    written: i64,
    changed: i64,
}

/// `FILE_ATTRIBUTE_...`
mod attribute {
    pub(crate) const READ_ONLY: u32 = 0x1;
    pub(crate) const DIRECTORY: u32 = 0x10;
    pub(crate) const NORMAL: u32 = 0x80;
}

/// A time as statx(2) returns it.
#[repr(C)]
struct Time {
    seconds: i64,
    nanoseconds: u32,
    reserved: i32,
}

/// The kernel's `struct statx`, which not every C library declares.
#[repr(C)]
struct Statx {
    mask: u32,
    block_size: u32,
    attributes: u64,
    links: u32,
    user: u32,
    group: u32,
    mode: u16,
    spare: u16,
    index: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    accessed: Time,
    created: Time,
    changed: Time,
    written: Time,
    special: [u32; 2],
    device: [u32; 2],
    rest: [u64; 14],
}

const BASIC_AND_BIRTH: u32 = 0x7ff | HAS_BIRTH;
const HAS_BIRTH: u32 = 0x800;

const TICKS_A_SECOND: i64 = 10_000_000;
const SECONDS_FROM_1601_TO_1970: i64 = 11_644_473_600;

/// Converts to units of 100 ns since 1601; 0 for earlier times.
fn ticks(time: &Time) -> i64 {
    let seconds = time.seconds.saturating_add(SECONDS_FROM_1601_TO_1970);
    seconds.saturating_mul(TICKS_A_SECOND).saturating_add(i64::from(time.nanoseconds / 100)).max(0)
}

/// Converts a time that a program sets. A time of 0 or less leaves the file's time unchanged.
fn timespec(ticks: i64) -> libc::timespec {
    if ticks <= 0 {
        return libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT };
    }
    libc::timespec {
        tv_sec: ticks.div_euclid(TICKS_A_SECOND) - SECONDS_FROM_1601_TO_1970,
        tv_nsec: ticks.rem_euclid(TICKS_A_SECOND) * 100,
    }
}

/// Calls statx(2) for a name in the folder `at`, or for `at` itself if the name is empty.
fn statx(at: c_int, name: &CStr, flags: c_int) -> Result<Statx, c_int> {
    let mut found = MaybeUninit::<Statx>::zeroed();
    // SAFETY: statx(2) reads text that ends with a zero and writes 256 bytes at the last pointer, or fails.
    // - `name` is such text.
    // - valid for writes: it is a local of that size, which a unit test checks.
    let done = unsafe {
        libc::syscall(
            libc::SYS_statx,
            at,
            name.as_ptr(),
            flags,
            BASIC_AND_BIRTH,
            found.as_mut_ptr(),
        )
    };
    // SAFETY: `assume_init` demands a value.
    // - any bits are valid for a number, and the memory was zeroed before.
    if done == 0 { Ok(unsafe { found.assume_init() }) } else { Err(errno()) }
}

impl From<&Statx> for Facts {
    fn from(found: &Statx) -> Self {
        let mode = libc::mode_t::from(found.mode);
        let is_plain = mode & libc::S_IFMT == libc::S_IFREG;
        let is_folder = mode & libc::S_IFMT == libc::S_IFDIR;
        let of_folder = if is_folder { attribute::DIRECTORY } else { 0 };
        let of_mode = if mode & 0o222 == 0 { attribute::READ_ONLY } else { 0 };
        let attributes = match of_folder | of_mode {
            0 => attribute::NORMAL,
            attributes => attributes,
        };
        let number = |of: u64| if is_plain { i64::try_from(of).unwrap_or(i64::MAX) } else { 0 };
        Self {
            attributes,
            links: found.links,
            device: u64::from(found.device[0]) << 32 | u64::from(found.device[1]),
            index: found.index,
            size: number(found.size),
            allocated: number(found.blocks.saturating_mul(512)),
            created: if found.mask & HAS_BIRTH == 0 { 0 } else { ticks(&found.created) },
            accessed: ticks(&found.accessed),
            written: ticks(&found.written),
            changed: ticks(&found.changed),
        }
    }
}

/// Gets the metadata of an open file, or of the standard stream with this descriptor if that is not negative.
///
/// # Safety
///
/// `facts` points to memory for a [`Facts`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_file_facts(file: Handle, stream: c_int, facts: *mut Facts) -> c_int {
    succeeds(|| {
        let file = if stream < 0 { Some(object::file(file)?) } else { None };
        let descriptor = file.as_ref().map_or(stream, |file| file.descriptor());
        let found =
            statx(descriptor, c"", libc::AT_EMPTY_PATH).map_err(|_| code::INVALID_HANDLE)?;
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller guarantees it.
        unsafe { facts.write(Facts::from(&found)) };
        Ok(())
    })
}

/// Does the same for a name. With `itself`, a link that leads nowhere is described instead of its target.
///
/// # Safety
///
/// `name` points to text that ends with a zero, `facts` to memory for a [`Facts`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_name_facts(
    name: *const c_char,
    itself: c_int,
    facts: *mut Facts,
) -> c_int {
    succeeds(|| {
        // SAFETY: `from_ptr` demands text that ends with a zero.
        // - the caller guarantees it.
        let name = unsafe { CStr::from_ptr(name) };
        let found = match statx(libc::AT_FDCWD, name, 0) {
            Err(libc::ENOENT | libc::ELOOP) if itself != 0 => {
                statx(libc::AT_FDCWD, name, libc::AT_SYMLINK_NOFOLLOW)
            }
            found => found,
        };
        let found = found.map_err(|errno| code_of_name(errno, name))?;
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller guarantees it.
        unsafe { facts.write(Facts::from(&found)) };
        Ok(())
    })
}

/// Sets the times of the last read and the last write, in units of 100 ns since 1601: `SetFileTime`. A time of 0 or less
/// stays unchanged.
#[unsafe(no_mangle)]
pub extern "C" fn cp_file_set_times(file: Handle, accessed: i64, written: i64) -> c_int {
    succeeds(|| {
        let file = object::file(file)?;
        if !file.terms.sets_facts {
            return Err(code::ACCESS_DENIED);
        }
        let times = [timespec(accessed), timespec(written)];
        set_times(&file, &times).map_err(|errno| status::code_in_win32(status::of_file(errno)))
    })
}

fn set_times(file: &File, times: &[libc::timespec; 2]) -> Result<(), c_int> {
    // SAFETY: futimens(3) reads two times at the pointer.
    // - valid: it is a local of the caller.
    if unsafe { libc::futimens(file.descriptor(), times.as_ptr()) } == 0 {
        return Ok(());
    }
    let error = errno();
    if error != libc::EBADF {
        return Err(error);
    }
    // It was opened for its attributes only, so the times must be set through its name in /proc.
    let link = link_to(file);
    // SAFETY: utimensat(2) reads text that ends with a zero, and two times.
    // - valid: `link` is such text, and the times are a local of the caller.
    let done = unsafe { libc::utimensat(libc::AT_FDCWD, link.as_ptr(), times.as_ptr(), 0) };
    if done == 0 { Ok(()) } else { Err(errno()) }
}

/// The name of an open file in /proc.
fn link_to(file: &File) -> CString {
    CString::new(format!("/proc/self/fd/{}", file.descriptor())).unwrap_or_default()
}

/// Removes all rights to write to a file, or gives its owner the right if nobody has it. A folder stays unchanged: the
/// reference stores the attribute for a folder, but it has no effect there.
fn set_attributes(name: &CStr, attributes: u32) -> Result<(), c_int> {
    let found = statx(libc::AT_FDCWD, name, 0)?;
    let mode = libc::mode_t::from(found.mode);
    let is_read_only = attributes & attribute::READ_ONLY != 0;
    if mode & libc::S_IFMT == libc::S_IFDIR || is_read_only == (mode & 0o222 == 0) {
        return Ok(());
    }
    let mode = if is_read_only { mode & !0o222 } else { mode | 0o200 };
    // SAFETY: chmod(2) reads text that ends with a zero.
    // - `name` is such.
    let done = unsafe { libc::chmod(name.as_ptr(), mode & 0o7777) };
    if done == 0 { Ok(()) } else { Err(errno()) }
}

/// Sets the attributes of a name: `SetFileAttributes`. The system keeps only `FILE_ATTRIBUTE_READONLY`.
///
/// # Safety
///
/// `name` points to text that ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_name_set_attributes(name: *const c_char, attributes: u32) -> c_int {
    succeeds(|| {
        // SAFETY: `from_ptr` demands text that ends with a zero.
        // - the caller guarantees it.
        let name = unsafe { CStr::from_ptr(name) };
        set_attributes(name, attributes).map_err(|errno| code_of_name(errno, name))
    })
}

/// Does the same for an open file.
#[unsafe(no_mangle)]
pub extern "C" fn cp_file_set_attributes(file: Handle, attributes: u32) -> c_int {
    succeeds(|| {
        let file = object::file(file)?;
        if !file.terms.sets_facts {
            return Err(code::ACCESS_DENIED);
        }
        let link = link_to(&file);
        set_attributes(&link, attributes).map_err(|errno| code_of_name(errno, &link))
    })
}

/// Sets the length of a file, whatever its position: `FileEndOfFileInfo`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_file_resize(file: Handle, size: i64) -> c_int {
    succeeds(|| {
        let file = object::file(file)?;
        if !file.terms.writes {
            return Err(code::ACCESS_DENIED);
        }
        // SAFETY: ftruncate(2) demands nothing of memory.
        if unsafe { libc::ftruncate(file.descriptor(), size) } == 0 {
            return Ok(());
        }
        Err(status::code_in_win32(status::of_file(errno())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_writes_as_many_bytes_as_there_are() {
        assert_eq!((size_of::<Statx>(), size_of::<Facts>()), (256, 72));
    }

    #[test]
    fn a_time_comes_back() {
        for (seconds, nanoseconds) in [(0, 0), (1_700_000_000, 123_456_700), (-5, 999_999_900)] {
            let there = ticks(&Time { seconds, nanoseconds, reserved: 0 });
            let back = timespec(there);
            assert_eq!((back.tv_sec, back.tv_nsec), (seconds, i64::from(nanoseconds)));
        }
        assert_eq!(ticks(&Time { seconds: i64::MIN, nanoseconds: 0, reserved: 0 }), 0);
        assert_eq!(ticks(&Time { seconds: i64::MAX, nanoseconds: 0, reserved: 0 }), i64::MAX);
        assert_eq!(timespec(0).tv_nsec, libc::UTIME_OMIT);
        assert_eq!(timespec(-1).tv_nsec, libc::UTIME_OMIT);
    }
}
