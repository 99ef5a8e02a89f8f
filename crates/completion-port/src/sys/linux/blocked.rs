//! Whether a thread sleeps, from the scheduler's own records: a ring of perf_event_open(2) that gets
//! one record whenever the thread is switched in or out, mapped read-only, so that the newest record
//! is always there and reading it costs no call.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, fence};
use std::time::Duration;

use super::process::Process;
use crate::state::facts::Presence;

/// `struct perf_event_attr` of linux/perf_event.h, as of Linux 4.8; a kernel takes any size it knows.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_interrupt: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const TYPE_SOFTWARE: u32 = 1;
const COUNT_SOFTWARE_DUMMY: u64 = 9;
const SAMPLE_TIME: u64 = 1 << 2;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const USE_CLOCK: u64 = 1 << 25;
const CONTEXT_SWITCH: u64 = 1 << 26;
const FLAG_CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

const RECORD_SWITCH: u64 = 14;
const SWITCH_OUT: u64 = 1 << 13;
const SWITCH_OUT_PREEMPTED: u64 = 1 << 14;

/// Where `data_head` stands in the first page.
const HEAD: usize = 1024;
/// A record: a header of eight bytes and the time.
const RECORD: u64 = 16;

/// The records of one thread.
pub(super) struct Switches {
    /// One page that says how much was written, and one page of records.
    pages: NonNull<AtomicU64>,
    page: usize,
    process: Process,
}

// SAFETY: `Send` demands that the value may be used and dropped on another thread.
// - the mapping belongs to the process, and munmap(2) may be called on any thread.
unsafe impl Send for Switches {}
// SAFETY: `Sync` demands that shared use from several threads is sound.
// - the mapping is only read, as atomics; the kernel is the one that writes.
unsafe impl Sync for Switches {}

fn page_size() -> usize {
    // SAFETY: sysconf(3) demands nothing.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Whether this kernel tells preempted threads from sleeping ones: Linux 4.17 or later.
fn tells_preemption() -> bool {
    let mut name = std::mem::MaybeUninit::<libc::utsname>::uninit();
    // SAFETY: uname(2) writes one structure at the pointer.
    // - valid for writes: `name` lives until the call returns.
    if unsafe { libc::uname(name.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: `assume_init` demands a value.
    // - the call has succeeded, and so written it.
    let name = unsafe { name.assume_init() };
    let mut numbers = name.release.split(|letter| !letter.cast_unsigned().is_ascii_digit());
    let mut number = || {
        numbers.next().unwrap_or_default().iter().fold(0_u32, |number, digit| {
            number.saturating_mul(10).saturating_add(u32::from(digit.cast_unsigned() - b'0'))
        })
    };
    (number(), number()) >= (4, 17)
}

/// Whether this process may record its own threads' switches; tried once. The system's code if not.
pub(super) fn is_allowed(process: Process) -> Result<(), Option<i32>> {
    static TRIED: OnceLock<Result<(), Option<i32>>> = OnceLock::new();
    *TRIED.get_or_init(|| match Switches::of(0, process) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.raw_os_error()),
    })
}

impl Switches {
    /// Records the switches of thread `thread` of this process (0: the calling one) from now on.
    pub(super) fn of(thread: libc::c_long, process: Process) -> io::Result<Self> {
        // The flags are a bit field, laid out as the compiler does on these machines.
        if cfg!(target_endian = "big") || !tells_preemption() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size: u32::try_from(size_of::<Attributes>()).unwrap_or(0),
            config: COUNT_SOFTWARE_DUMMY,
            sample_type: SAMPLE_TIME,
            flags: EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | SAMPLE_ID_ALL | USE_CLOCK | CONTEXT_SWITCH,
            clock: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        // SAFETY: perf_event_open(2) reads one `perf_event_attr` of the size it names at the pointer.
        // - valid for reads: `attributes` lives until the call returns, and `size` is its own.
        let event = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread,
                -1_i32,
                -1_i32,
                FLAG_CLOSE_ON_EXEC,
            )
        };
        let event = i32::try_from(event).unwrap_or(-1);
        if event < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `from_raw_fd` demands an open descriptor that nobody else owns.
        // - the system call returned it just now.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        let page = page_size();
        // Read-only: the kernel overwrites the oldest records.
        // SAFETY: mmap(2) demands a valid combination of arguments, and replaces no mapping unless told.
        // - one page and a power of two of them, shared, as a perf event demands; no address is given.
        let pages = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * page,
                libc::PROT_READ,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // The mapping keeps the event going; its descriptor is closed here.
        let pages = NonNull::new(pages.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Self { pages, page, process })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset + 8 <= 2 * self.page && offset.is_multiple_of(8));
        // SAFETY: `byte_add` demands an offset within the mapping.
        // - the callers stay below two pages.
        let place = unsafe { self.pages.byte_add(offset) };
        // SAFETY: a shared reference demands memory that is valid, aligned, initialised and only
        // changed as its type allows.
        // - valid and initialised: mapped and zeroed by the kernel, until `self` is dropped; the
        //   mapping is not there in a forked child, where `newest` is not called;
        // - aligned: the offset is a multiple of eight, the mapping of a page;
        // - only the kernel writes, as another processor would; here it is only read.
        unsafe { place.as_ref() }
    }

    /// What the newest record says; `None` if there is none yet.
    pub(super) fn newest(&self) -> Option<Presence> {
        if !self.process.is_current() {
            return None;
        }
        let head = self.word(HEAD);
        let mut written = head.load(Acquire);
        // The record might be overwritten while it is read, but not so often.
        for _ in 0..4 {
            if written < RECORD {
                return None;
            }
            let room = self.page as u64;
            let offset = self.page + usize::try_from((written - RECORD) & (room - 1)).ok()?;
            let header = self.word(offset).load(Relaxed);
            let time = self.word(offset + 8).load(Relaxed);
            fence(Acquire);
            let now = head.load(Relaxed);
            if now != written {
                written = now;
                continue;
            }
            let (kind, misc, size) = (header & 0xffff_ffff, header >> 32 & 0xffff, header >> 48);
            if kind != RECORD_SWITCH || size != RECORD {
                return None;
            }
            let slept = misc & SWITCH_OUT != 0 && misc & SWITCH_OUT_PREEMPTED == 0;
            return Some(if slept {
                Presence::Asleep { since: Duration::from_nanos(time) }
            } else {
                Presence::Awake
            });
        }
        // Switched in and out all the time.
        Some(Presence::Awake)
    }
}

impl Drop for Switches {
    fn drop(&mut self) {
        // A child does not inherit the mapping, and may have another one there.
        if self.process.is_current() {
            // SAFETY: munmap(2) demands that nobody uses the range any more.
            // - it was mapped by `of`, and only references that borrow `self` lead there.
            unsafe { libc::munmap(self.pages.as_ptr().cast(), 2 * self.page) };
        }
    }
}
