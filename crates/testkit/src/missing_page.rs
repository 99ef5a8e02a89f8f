//! A page that is not in memory until the test supplies it: `userfaultfd(2)`.

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

/// `UFFD_USER_MODE_ONLY`: what needs no privilege.
const USER_MODE_ONLY: libc::c_long = 1;

/// The requests of linux/userfaultfd.h: `_IOWR(0xAA, number, size)`.
const API: libc::Ioctl = request(0x3f, size_of::<[u64; 3]>());
const REGISTER: libc::Ioctl = request(0x00, size_of::<[u64; 4]>());
const ZEROPAGE: libc::Ioctl = request(0x04, size_of::<[u64; 4]>());

/// The version of the interface, `UFFD_API`.
const VERSION: u64 = 0xaa;
/// `UFFDIO_REGISTER_MODE_MISSING`.
const MISSING: u64 = 1;

#[allow(clippy::cast_possible_truncation, reason = "sizes of a few words")]
#[allow(clippy::cast_possible_wrap, reason = "the bits count, whatever the type")]
const fn request(number: u32, size: usize) -> libc::Ioctl {
    (3 << 30 | (size as u32) << 16 | 0xaa << 8 | number) as libc::Ioctl
}

/// Reading it sleeps until [`MissingPage::supply`]; once supplied it is full of zeros.
#[derive(Debug)]
pub(crate) struct MissingPage {
    page: NonNull<c_void>,
    size: usize,
    supplier: OwnedFd,
}

// SAFETY: `Send` demands that the value may be used and dropped on another thread.
// - the mapping belongs to the process, as does the descriptor.
unsafe impl Send for MissingPage {}
// SAFETY: `Sync` demands that shared use from several threads is sound.
// - the page is only read, and supplied by the kernel.
unsafe impl Sync for MissingPage {}

impl MissingPage {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::c_long::from(libc::O_CLOEXEC) | USER_MODE_ONLY;
        // SAFETY: userfaultfd(2) demands nothing of memory.
        let supplier = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        let supplier = i32::try_from(supplier).unwrap_or(-1);
        if supplier < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `from_raw_fd` demands an open descriptor that nothing else owns.
        // - the system call has just returned it.
        let supplier = unsafe { OwnedFd::from_raw_fd(supplier) };
        // SAFETY: sysconf(3) demands nothing.
        let size = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: mmap(2) demands a valid combination of arguments, and replaces no mapping unless
        // told.
        // - a private, anonymous mapping needs no descriptor, and no address is given.
        let page = unsafe { libc::mmap(ptr::null_mut(), size, libc::PROT_READ, flags, -1, 0) };
        if page == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = Self { page: NonNull::new(page).unwrap(), size, supplier };
        page.ask(API, &mut [VERSION, 0, 0])?;
        page.ask(REGISTER, &mut [page.address(), size as u64, MISSING, 0])?;
        Ok(page)
    }

    fn address(&self) -> u64 {
        self.page.as_ptr().expose_provenance() as u64
    }

    fn ask<const N: usize>(&self, request: libc::Ioctl, words: &mut [u64; N]) -> io::Result<()> {
        // SAFETY: ioctl(2) reads and writes as much at the pointer as the request says.
        // - the callers give as many words as the request has in its size; they live until the call
        //   returns.
        let done = unsafe { libc::ioctl(self.supplier.as_raw_fd(), request, words.as_mut_ptr()) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// The page's first byte.
    pub(crate) fn read(&self) -> u8 {
        // SAFETY: `read_volatile` demands memory that is valid for reads and initialised.
        // - the page is mapped until `self` is dropped, and the kernel supplies zeros.
        unsafe { self.page.cast::<u8>().read_volatile() }
    }

    /// Puts a page of zeros there, and wakes the threads that wait for it.
    pub(crate) fn supply(&self) {
        match self.ask(ZEROPAGE, &mut [self.address(), self.size as u64, 0, 0]) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
            done => done.unwrap(),
        }
    }
}

impl Drop for MissingPage {
    fn drop(&mut self) {
        // SAFETY: munmap(2) demands that nothing uses the range any more.
        // - `new` mapped it, and only `read` goes there, which borrows `self`.
        unsafe { libc::munmap(self.page.as_ptr(), self.size) };
    }
}
