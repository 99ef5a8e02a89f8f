//! Detects sleeping threads from the scheduler's own records.
//!
//! perf_event_open(2) makes a ring that gets a record whenever the thread is switched in or out. It
//! is mapped read-only, so the newest record is always in memory and reading it takes no system
//! call.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::process::Process;
use crate::state::facts::Presence;
use crate::state::moment::Moment;

/// `struct perf_event_attr` of linux/perf_event.h, as of Linux 4.8. Kernels accept every known
/// size.
#[repr(C)]
#[derive(Default)]
struct PerfEventAttributes {
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

/// The offset of `data_head` in the first page.
const HEAD: usize = 1024;
/// The size of a record: a header of eight bytes and the time.
const RECORD: u64 = 16;

/// The switch records of one thread.
pub(super) struct Switches {
    /// One page with the number of bytes written, and one page of records.
    pages: NonNull<AtomicU64>,
    page: usize,
    process: Process,
}

// SAFETY: `Send` requires that the value may be used and dropped on another thread.
// - the mapping belongs to the process, and munmap(2) may be called on any thread.
unsafe impl Send for Switches {}
// SAFETY: `Sync` requires that shared use from several threads is sound.
// - the mapping is only read, as atomics; only the kernel writes to it.
unsafe impl Sync for Switches {}

fn page_size() -> usize {
    // SAFETY: sysconf(3) has no requirements.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Returns whether this kernel distinguishes preempted threads from sleeping ones.
///
/// Linux does so from 4.17 on.
fn tells_preemption() -> bool {
    let mut name = std::mem::MaybeUninit::<libc::utsname>::uninit();
    // SAFETY: uname(2) writes one structure at the pointer.
    // - valid for writes: `name` lives until the call returns.
    if unsafe { libc::uname(name.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: `assume_init` requires an initialized value.
    // - the call succeeded, so it has written the value.
    let name = unsafe { name.assume_init() };
    let mut numbers = name.release.split(|letter| !letter.to_ne_bytes()[0].is_ascii_digit());
    let mut number = || {
        numbers.next().unwrap_or_default().iter().fold(0_u32, |number, digit| {
            number.saturating_mul(10).saturating_add(u32::from(digit.to_ne_bytes()[0] - b'0'))
        })
    };
    (number(), number()) >= (4, 17)
}

/// Checks whether this process may record its threads' switches.
///
/// Otherwise returns the system's code.
pub(super) fn is_allowed(process: Process) -> Result<(), Option<i32>> {
    /// The result of the first attempt: unknown, allowed, or `REFUSED` plus the system's code (0 if
    /// there was none). A lock would not do: a child may be forked while another thread makes the
    /// attempt. The child then makes its own.
    static FOUND: AtomicU32 = AtomicU32::new(UNKNOWN);
    const UNKNOWN: u32 = 0;
    const ALLOWED: u32 = 1;
    const REFUSED: u32 = 2;
    let mut found = FOUND.load(Relaxed);
    if found == UNKNOWN {
        found = match Switches::of(0, process) {
            Ok(_) => ALLOWED,
            Err(error) => REFUSED + error.raw_os_error().unwrap_or(0).cast_unsigned(),
        };
        FOUND.store(found, Relaxed);
    }
    match found {
        ALLOWED => Ok(()),
        refused => Err(Some((refused - REFUSED).cast_signed()).filter(|code| *code != 0)),
    }
}

impl Switches {
    /// Starts recording the switches of thread `thread` of this process (0: the calling thread).
    pub(super) fn of(thread: libc::c_long, process: Process) -> io::Result<Self> {
        // The flags are a bit field with the layout that compilers use on little-endian machines. A
        // forked child does not have the mapping, so it must be able to notice the fork.
        if cfg!(target_endian = "big") || !tells_preemption() || !process.notices_forks() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let attributes = PerfEventAttributes {
            kind: TYPE_SOFTWARE,
            size: u32::try_from(size_of::<PerfEventAttributes>()).unwrap_or(0),
            config: COUNT_SOFTWARE_DUMMY,
            sample_type: SAMPLE_TIME,
            flags: EXCLUDE_KERNEL | EXCLUDE_HYPERVISOR | SAMPLE_ID_ALL | USE_CLOCK | CONTEXT_SWITCH,
            clock: libc::CLOCK_MONOTONIC,
            ..PerfEventAttributes::default()
        };
        // SAFETY: perf_event_open(2) reads one `perf_event_attr`, of the size that it names, at the
        // pointer.
        // - valid for reads: `attributes` lives until the call returns, and `size` is its own size.
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
        // SAFETY: `from_raw_fd` requires an open descriptor that nothing else owns.
        // - the system call has just returned it.
        let event = unsafe { OwnedFd::from_raw_fd(event) };
        let page = page_size();
        // Read-only, so the kernel overwrites the oldest records.
        // SAFETY: mmap(2) requires a valid combination of arguments, and replaces no mapping unless
        // asked to.
        // - one page and a power of two of pages, shared, as a perf event requires; no address is
        //   passed.
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
        // The mapping keeps the event active, so its descriptor can be closed here.
        let pages = NonNull::new(pages.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Self { pages, page, process })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset + 8 <= 2 * self.page && offset.is_multiple_of(8));
        // SAFETY: `byte_add` requires an offset within the mapping.
        // - the callers stay below two pages.
        let place = unsafe { self.pages.byte_add(offset) };
        // SAFETY: a shared reference requires memory that is valid, aligned, initialized and only
        // changed as its type allows.
        // - valid and initialized: the kernel mapped and zeroed it, until `self` is dropped; a
        //   forked child does not have the mapping, but `newest` does not read it there;
        // - aligned: the offset is a multiple of eight, and the mapping starts at a page;
        // - only the kernel writes, as another processor would; this process only reads.
        unsafe { place.as_ref() }
    }

    /// Returns the thread's presence by its newest record, or `None` if there is none yet.
    pub(super) fn newest(&self) -> Option<Presence> {
        if !self.process.is_current() {
            return None;
        }
        newest_of(self.page, |offset, order| self.word(offset).load(order))
    }
}

/// Reads the newest record of a mapping of two pages; `word` loads one word. `None`: no record.
#[inline]
fn newest_of(page: usize, word: impl Fn(usize, Ordering) -> u64) -> Option<Presence> {
    let mut written = word(HEAD, Acquire);
    // The record may be overwritten while it is read, but not this often.
    for _ in 0..4 {
        if written < RECORD {
            return None;
        }
        let room = page as u64;
        let offset = page + usize::try_from((written - RECORD) & (room - 1)).ok()?;
        let header = word(offset, Relaxed);
        let time = word(offset + 8, Relaxed);
        fence(Acquire);
        let now = word(HEAD, Relaxed);
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
            Presence::Asleep { since: Moment::from_nanoseconds(time) }
        } else {
            Presence::Awake
        });
    }
    // The thread is being switched in and out continuously.
    Some(Presence::Awake)
}

impl Drop for Switches {
    fn drop(&mut self) {
        // A forked child does not inherit the mapping, and may have another one at this address.
        if self.process.is_current() {
            // SAFETY: munmap(2) requires that nothing uses the range any more.
            // - `of` mapped it, and only references that borrow `self` point there.
            unsafe { libc::munmap(self.pages.as_ptr().cast(), 2 * self.page) };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;
    use std::os::fd::RawFd;
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::SeqCst;
    use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
    use std::thread;
    use std::time::{Duration, Instant};

    use testkit::Obstacle;
    use testkit::scheduler::{self, ThreadNumber};

    use super::{
        HEAD, Process, RECORD, RECORD_SWITCH, SWITCH_OUT, Switches, is_allowed, newest_of,
    };
    use crate::state::facts::Presence;
    use crate::state::moment::Moment;

    const SOON: Duration = Duration::from_secs(10);

    /// Runs one test at a time, since the tests count mappings and descriptors.
    ///
    /// Returns `None` if the machine has no records.
    fn alone(name: &str) -> Option<MutexGuard<'static, ()>> {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(code) = is_allowed(Process::current()) {
            println!("SKIPPED {name}: perf_event_open is refused: {code:?}");
            return None;
        }
        Some(alone)
    }

    fn records_of(thread: ThreadNumber) -> Switches {
        Switches::of(libc::c_long::from(thread.get()), Process::current()).unwrap()
    }

    /// Returns the time by the clock of the records.
    fn now() -> Moment {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: clock_gettime(2) writes one structure at the pointer.
        // - valid for writes: `time` lives until the call returns.
        let done = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        assert_eq!(done, 0);
        Moment::ZERO
            + Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
    }

    #[track_caller]
    fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < SOON, "it did not happen that {what}");
            thread::yield_now();
        }
    }

    /// Runs without a system call until `over`.
    fn spin(over: &AtomicBool) {
        let begun = Instant::now();
        while !over.load(SeqCst) {
            assert!(begun.elapsed() < 6 * SOON, "nobody ended it");
            std::hint::spin_loop();
        }
    }

    fn asleep_since(switches: &Switches) -> Option<Moment> {
        match switches.newest() {
            Some(Presence::Asleep { since }) => Some(since),
            _ => None,
        }
    }

    /// Ends the spinning threads at the end of a test, even if it failed.
    struct Over<'a>(&'a AtomicBool);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }

    #[test]
    fn a_thread_that_sleeps_is_asleep_since_it_went_to_sleep() {
        let Some(_alone) = alone("a_thread_that_sleeps_is_asleep_since_it_went_to_sleep") else {
            return;
        };
        for obstacle in [Obstacle::condition(), Obstacle::lock(), Obstacle::pipe()] {
            let (say, heard) = mpsc::channel();
            let (goes, over) = (AtomicBool::new(false), AtomicBool::new(false));
            thread::scope(|scope| {
                scope.spawn(|| {
                    say.send(ThreadNumber::current()).unwrap();
                    spin(&goes);
                    obstacle.meet();
                    spin(&over);
                });
                let _ends = [Over(&goes), Over(&over)];
                let worker = heard.recv_timeout(SOON).unwrap();
                let switches = records_of(worker);
                let before = now();
                goes.store(true, SeqCst);
                eventually("it sleeps", || asleep_since(&switches).is_some());
                eventually("it sleeps at the obstacle", || worker.sleeps());
                let since = asleep_since(&switches).unwrap();
                assert!(before <= since && since <= now(), "{before:?} {since:?}");
                // Further reads show the same sleep.
                assert_eq!(asleep_since(&switches), Some(since));
                obstacle.clear();
                eventually("it is awake", || switches.newest() == Some(Presence::Awake));
            });
        }
    }

    /// The kernel fills the page once, from a record of a sleep to one of a running thread. It
    /// overwrites the first record between the loads of its two words.
    #[test]
    fn a_record_that_is_written_over_while_it_is_read_is_read_again() {
        let page = 4096;
        let record = |misc: u64| RECORD_SWITCH | misc << 32 | RECORD << 48;
        let written_over = Cell::new(false);
        let word = |offset, _| match (offset, written_over.get()) {
            (HEAD, false) => RECORD,
            (HEAD, true) => RECORD + page as u64,
            (4096, false) => {
                written_over.set(true);
                record(SWITCH_OUT)
            }
            (4096, true) => record(0),
            (4104, _) => 5,
            (offset, _) => unreachable!("nothing is asked for at {offset}"),
        };
        assert_eq!(newest_of(page, word), Some(Presence::Awake));
        let asleep =
            |offset: usize, _| [RECORD, record(SWITCH_OUT), 5][offset.saturating_sub(4088) / 8];
        let since = Moment::from_nanoseconds(5);
        assert_eq!(newest_of(page, asleep), Some(Presence::Asleep { since }));
    }

    #[test]
    fn a_thread_that_spins_is_awake() {
        let Some(_alone) = alone("a_thread_that_spins_is_awake") else { return };
        let over = AtomicBool::new(false);
        let (say, heard) = mpsc::channel();
        let obstacle = Obstacle::condition();
        thread::scope(|scope| {
            scope.spawn(|| {
                say.send(ThreadNumber::current()).unwrap();
                obstacle.meet();
                spin(&over);
            });
            let _over = Over(&over);
            let switches = records_of(heard.recv_timeout(SOON).unwrap());
            obstacle.clear();
            // It may have passed the obstacle before it was observed. It is then switched out only
            // because no processor is free.
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(50) {
                // A page fault can make it sleep briefly, even now.
                eventually("it is awake", || asleep_since(&switches).is_none());
            }
        });
    }

    #[test]
    fn a_thread_that_is_preempted_is_awake() {
        const PREEMPTIONS: u64 = 10;
        let Some(_alone) = alone("a_thread_that_is_preempted_is_awake") else { return };
        let over = AtomicBool::new(false);
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    scheduler::share_one_processor();
                    say.send(ThreadNumber::current()).unwrap();
                    spin(&over);
                });
            }
            let _over = Over(&over);
            let workers = [(); 2].map(|()| heard.recv_timeout(SOON).unwrap());
            let switches = workers.map(records_of);
            let before = workers.map(ThreadNumber::preemptions);
            let naps = workers.map(ThreadNumber::sleeps_begun);
            eventually("both are preempted", || {
                for (which, switches) in switches.iter().enumerate() {
                    // A page fault can make the worker sleep briefly.
                    let is_asleep = asleep_since(switches).is_some();
                    assert!(!is_asleep || workers[which].sleeps_begun() > naps[which]);
                }
                let now = workers.map(ThreadNumber::preemptions);
                now[0] >= before[0] + PREEMPTIONS && now[1] >= before[1] + PREEMPTIONS
            });
            for switches in &switches {
                eventually("it is awake", || switches.newest() == Some(Presence::Awake));
                assert!(written(switches) >= PREEMPTIONS, "they were recorded");
            }
        });
    }

    /// Returns the number of records so far.
    fn written(switches: &Switches) -> u64 {
        switches.word(HEAD).load(SeqCst) / super::RECORD
    }

    /// Sleeps again and again until the calling thread has `records` records.
    ///
    /// Sometimes it does not sleep: on a busy machine the timeout may have passed before it could.
    fn sleep_until_written(switches: &Switches, records: u64) {
        let (_keep, never) = mpsc::channel::<()>();
        eventually("its sleep is recorded", || {
            assert!(never.recv_timeout(Duration::from_micros(100)).is_err());
            written(switches) >= records
        });
    }

    #[test]
    fn nothing_is_known_before_the_first_switch() {
        let Some(_alone) = alone("nothing_is_known_before_the_first_switch") else { return };
        // Occasionally a switch happens in between.
        let unknown = (0..1000).any(|_| {
            let switches = records_of(ThreadNumber::current());
            let newest = switches.newest();
            assert!(newest.is_none() || written(&switches) > 0);
            newest.is_none()
        });
        assert!(unknown);
        let switches = records_of(ThreadNumber::current());
        sleep_until_written(&switches, 2);
        assert_eq!(switches.newest(), Some(Presence::Awake), "who looks is awake");
    }

    /// Returns the descriptors of perf events that this process has.
    fn events() -> Vec<RawFd> {
        let named = testkit::descriptors::open();
        let events = named.iter().filter(|(_, name)| name.contains("perf_event"));
        events.map(|(number, _)| *number).collect()
    }

    #[test]
    fn the_records_go_on_without_their_descriptor() {
        let Some(_alone) = alone("the_records_go_on_without_their_descriptor") else { return };
        let switches = records_of(ThreadNumber::current());
        assert_eq!(events(), []);
        let before = written(&switches);
        // Five times out and in.
        sleep_until_written(&switches, before + 10);
    }

    #[test]
    fn the_newest_record_is_found_however_many_there_were() {
        const ROUNDS: usize = 2_000;
        let Some(_alone) = alone("the_newest_record_is_found_however_many_there_were") else {
            return;
        };
        let (ask, asked) = mpsc::channel::<bool>();
        let (answer, answered) = mpsc::channel();
        let (say, heard) = mpsc::channel();
        let obstacle = Obstacle::condition();
        thread::scope(|scope| {
            scope.spawn(|| {
                let (asked, answer) = (asked, answer);
                say.send(ThreadNumber::current()).unwrap();
                // Sleeps before each request.
                while asked.recv() == Ok(true) {
                    answer.send(()).unwrap();
                }
                obstacle.meet();
            });
            let ask = ask;
            let worker = heard.recv_timeout(SOON).unwrap();
            let switches = records_of(worker);
            let mut known = false;
            let (mut rounds, mut last) = (0, Moment::ZERO);
            while rounds < ROUNDS || written(&switches) < 600 {
                ask.send(true).unwrap();
                answered.recv_timeout(SOON).unwrap();
                let newest = switches.newest();
                known |= newest.is_some();
                assert!(newest.is_some() || !known, "it was known, and is not after {rounds}");
                if let Some(Presence::Asleep { since }) = newest {
                    assert!(last <= since && since <= now(), "{last:?} {since:?}");
                    last = since;
                }
                rounds += 1;
                assert!(rounds < 100 * ROUNDS, "the worker does not sleep");
            }
            let before = now();
            ask.send(false).unwrap();
            // More than two full rings: the place of the newest record was used before.
            eventually("it sleeps at the obstacle", || {
                worker.sleeps() && asleep_since(&switches).is_some_and(|since| since >= before)
            });
            obstacle.clear();
        });
    }

    fn mappings() -> usize {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        maps.lines().filter(|line| line.contains("perf_event")).count()
    }

    #[test]
    fn what_is_dropped_is_unmapped() {
        let Some(_alone) = alone("what_is_dropped_is_unmapped") else { return };
        assert_eq!(mappings(), 0);
        let switches: Vec<_> = (0..5).map(|_| records_of(ThreadNumber::current())).collect();
        assert!(mappings() > 0);
        drop(switches);
        assert_eq!(mappings(), 0);
    }

    #[test]
    fn a_forked_child_knows_nothing() {
        let Some(_alone) = alone("a_forked_child_knows_nothing") else { return };
        let switches = records_of(ThreadNumber::current());
        sleep_until_written(&switches, 2);
        assert_eq!(switches.newest(), Some(Presence::Awake));
        // SAFETY: fork(2) requires that the child of a process with several threads makes only
        // async-signal-safe calls.
        // - it reads memory and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let code = i32::from(switches.newest().is_some());
            drop(switches);
            // SAFETY: _exit(2) has no requirements.
            unsafe { libc::_exit(code) };
        }
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: waitpid(2) writes one int at the pointer.
        // - valid for writes: `status` lives until the call returns.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(ended, child);
        assert!(libc::WIFEXITED(status), "the child died of a signal");
        assert_eq!(libc::WEXITSTATUS(status), 0, "the child knew something");
        // The parent's records continue.
        assert_eq!(switches.newest(), Some(Presence::Awake));
    }
}
