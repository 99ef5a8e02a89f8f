//! The file to read: its content and location, and the memory for the reads.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::ValueEnum;
use completion_port::Buffer;

use crate::work::word;

/// How much a read takes.
pub(crate) const PAGE: usize = 4096;
/// The least that a disk reads.
const SECTOR: usize = 512;
/// A word of the pattern.
const WORD: usize = size_of::<u64>();
/// How much is written together when the file is created.
const PORTION: usize = 256 * PAGE;

#[repr(C, align(4096))]
struct Page([u8; PAGE]);

/// Memory for one read, aligned as a disk wants it.
pub(crate) struct Memory {
    page: Box<Page>,
    /// Where in the file the read begins.
    pub(crate) offset: u64,
}

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory { page: Box::new(Page([0; PAGE])), offset: 0 }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.page.0
    }

    /// Checks that the read has returned `count` bytes, which are a page, and the right content: a
    /// word of each sector, or all words if `thorough`.
    pub(super) fn check(&self, count: usize, thorough: bool) -> io::Result<()> {
        let Memory { page, offset } = self;
        if count != PAGE {
            return Err(io::Error::other(format!("{count} bytes were read at {offset}")));
        }
        let (words, _) = page.0.as_chunks::<WORD>();
        let step = if thorough { 1 } else { SECTOR / WORD };
        for (index, bytes) in words.iter().enumerate().step_by(step) {
            let at = offset + (index * WORD) as u64;
            if u64::from_le_bytes(*bytes) != word(at) {
                return Err(io::Error::other(format!("not what the file has at {at} was read")));
            }
        }
        Ok(())
    }
}

// SAFETY: the room is the memory of the page, which stays where it is when the box is moved.
unsafe impl Buffer for Memory {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        part(&self.page.0);
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        let all: *mut [u8] = self.bytes_mut();
        // SAFETY: a slice from a pointer demands memory that is valid for its type and that nothing else
        // accesses as long as it lives.
        // - valid: bytes that may be uninitialized lie as bytes do; the caller promises to leave none
        //   uninitialized;
        // - nothing else: the slice borrows the page mutably.
        part(unsafe { &mut *(all as *mut [MaybeUninit<u8>]) });
    }

    unsafe fn set_filled(&mut self, _: usize) {}
}

/// How the file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// Out of the system's memory.
    Cached,
    /// Past it, from the disk.
    Direct,
}

impl Way {
    /// In the word of the option.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Way::Cached => "cached",
            Way::Direct => "direct",
        }
    }

    pub(crate) fn open(self, path: &Path) -> io::Result<File> {
        let flags = if self == Way::Direct { libc::O_DIRECT } else { 0 };
        OpenOptions::new().read(true).custom_flags(flags).open(path)
    }
}

/// A file that has no name any more: nothing of it is left when the process has ended, however it ends.
pub(crate) struct Scratch {
    file: File,
    length: u64,
    /// The type of the file system.
    pub(super) system: String,
}

impl Scratch {
    /// Makes a file of that length, rounded up to whole pages.
    pub(crate) fn new(directory: &Path, length: u64) -> io::Result<Scratch> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = directory.join(format!("cport-bench-{}-{number}", process::id()));
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
        fs::remove_file(&path)?;
        let length = length.next_multiple_of(PAGE as u64);
        let mut portion = Vec::with_capacity(PORTION);
        for at in (0..length).step_by(WORD) {
            portion.extend_from_slice(&word(at).to_le_bytes());
            if portion.len() == PORTION || at + WORD as u64 == length {
                file.write_all(&portion)?;
                portion.clear();
            }
        }
        file.sync_all()?;
        Ok(Scratch { file, length, system: file_system(directory) })
    }

    pub(super) fn pages(&self) -> u64 {
        self.length / PAGE as u64
    }

    /// Where this process and its children reach it.
    pub(crate) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", process::id(), self.file.as_raw_fd()).into()
    }

    pub(crate) fn open(&self, way: Way) -> io::Result<File> {
        way.open(&self.path())
    }

    /// Whether it allows unbuffered reads. The error is the reason if not.
    pub(super) fn check_direct(&self) -> Result<(), String> {
        let system = &self.system;
        if matches!(system.as_str(), "tmpfs" | "ramfs") {
            return Err(format!("{system} lies in memory, not on a disk"));
        }
        let refused = |error: io::Error| format!("{system} refuses O_DIRECT: {error}");
        let file = self.open(Way::Direct).map_err(refused)?;
        let mut memory = Memory::new();
        let count = std::os::unix::fs::FileExt::read_at(&file, memory.bytes_mut(), 0);
        memory.check(count.map_err(refused)?, true).map_err(|error| error.to_string())
    }

    /// Has the system keep none of it in its memory, or all.
    pub(super) fn keep(&self, way: Way) -> io::Result<()> {
        if way == Way::Cached {
            let mut pages = self.open(way)?;
            return io::copy(&mut pages, &mut io::sink()).map(drop);
        }
        // SAFETY: posix_fadvise(2) demands nothing of memory.
        let code =
            unsafe { libc::posix_fadvise(self.file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
        if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
    }
}

/// The type of the file system of a directory: that of the nearest mount.
fn file_system(directory: &Path) -> String {
    let directory = directory.canonicalize().unwrap_or_else(|_| directory.to_owned());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let of = |line: &str| -> Option<(usize, String)> {
        let (mount, system) = line.split_once(" - ")?;
        let at = Path::new(mount.split(' ').nth(4)?);
        let system = system.split(' ').next()?.to_owned();
        directory.starts_with(at).then(|| (at.components().count(), system))
    };
    // Of two at the same place the later one hides the other.
    let nearest = mounts.lines().filter_map(of).max_by_key(|(depth, _)| *depth);
    nearest.map_or_else(|| "a file system of unknown type".to_owned(), |(_, system)| system)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    /// A file with that many pages.
    pub(crate) fn scratch(pages: u64) -> Scratch {
        Scratch::new(&std::env::temp_dir(), pages * PAGE as u64).unwrap()
    }

    #[test]
    fn a_page_of_another_place_or_an_old_one_is_found_out() {
        let scratch = scratch(3);
        let file = scratch.open(Way::Cached).unwrap();
        let mut memory = Memory::new();
        assert!(memory.check(PAGE, false).is_err());
        memory.offset = PAGE as u64;
        let count = file.read_at(memory.bytes_mut(), PAGE as u64).unwrap();
        for thorough in [false, true] {
            memory.check(count, thorough).unwrap();
            assert!(memory.check(count - 1, thorough).is_err());
            memory.offset *= 2;
            assert!(memory.check(count, thorough).is_err());
            memory.offset /= 2;
        }
        memory.bytes_mut()[PAGE - 1] ^= 1;
        memory.check(count, false).unwrap();
        assert!(memory.check(count, true).is_err());
    }

    #[test]
    fn a_file_has_no_name_and_is_read_by_its_number() {
        let directory = std::env::temp_dir().join(format!("cport-scratch-{}", process::id()));
        fs::create_dir(&directory).unwrap();
        let scratch = Scratch::new(&directory, 10_000).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        fs::remove_dir(&directory).unwrap();
        assert_eq!(scratch.pages(), 3);
        let again = Way::Cached.open(&scratch.path()).unwrap();
        assert_eq!(again.metadata().unwrap().len(), 3 * PAGE as u64);
        scratch.keep(Way::Direct).unwrap();
        scratch.keep(Way::Cached).unwrap();
    }

    #[test]
    fn a_file_system_is_called_by_its_type() {
        assert_eq!(file_system(Path::new("/proc/self")), "proc");
    }
}
