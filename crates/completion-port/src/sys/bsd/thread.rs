//! A thread that can be parked, and observed on macOS and FreeBSD.

use std::time::Duration;

use crate::backend::thread::Thread;
use crate::state::facts::Presence;
use crate::sys::unix::parking::Parking;

/// The thread that called [`Current::new`].
pub(super) struct Current {
    parking: Parking,
    looks: looks::ThreadState,
}

impl Current {
    pub(super) fn new() -> Self {
        Self { parking: Parking::default(), looks: looks::ThreadState::current() }
    }
}

impl Thread for Current {
    fn park(&self, timeout: Option<Duration>) {
        self.parking.park(timeout);
    }

    fn unpark(&self) {
        self.parking.unpark();
    }

    fn number(&self) -> Option<u64> {
        self.looks.number()
    }

    fn asleep(&self) -> Option<bool> {
        self.looks.asleep()
    }

    fn observe(&self) -> bool {
        false
    }

    fn read_record(&self) -> Option<Presence> {
        None
    }
}

/// The kernel of macOS reports the state of a thread.
#[cfg(target_os = "macos")]
mod looks {
    use std::mem::MaybeUninit;

    // The crate `libc` marks its own declarations of these as deprecated.
    unsafe extern "C" {
        static mach_task_self_: libc::mach_port_t;
        fn mach_thread_self() -> libc::mach_port_t;
        fn mach_port_deallocate(
            task: libc::mach_port_t,
            name: libc::mach_port_t,
        ) -> libc::kern_return_t;
    }

    /// A right to the thread's port. While it is held, no other thread has its name.
    pub(super) struct ThreadState {
        port: libc::mach_port_t,
        number: u64,
    }

    impl ThreadState {
        pub(super) fn current() -> Self {
            let mut number = 0;
            // SAFETY: pthread_threadid_np(3) writes a number at the pointer.
            // - valid for writes: `number` is a local; zero names the calling thread.
            unsafe { libc::pthread_threadid_np(0, &raw mut number) };
            // SAFETY: mach_thread_self has no requirements. It returns a right, which `drop`
            // releases.
            let port = unsafe { mach_thread_self() };
            Self { port, number }
        }

        pub(super) fn number(&self) -> Option<u64> {
            Some(self.number)
        }

        pub(super) fn asleep(&self) -> Option<bool> {
            let mut info = MaybeUninit::<libc::thread_basic_info>::zeroed();
            let mut count = libc::THREAD_BASIC_INFO_COUNT;
            // SAFETY: thread_info reads a count at the last pointer, writes at most that many words
            // at the pointer before it, and writes their number at the last.
            // - valid: both are locals, and the count is that of `info`.
            let done = unsafe {
                libc::thread_info(
                    self.port,
                    // A small positive number.
                    libc::THREAD_BASIC_INFO.cast_unsigned(),
                    info.as_mut_ptr().cast(),
                    &raw mut count,
                )
            };
            if done != libc::KERN_SUCCESS {
                // The thread has ended: the right no longer names anything.
                return Some(true);
            }
            // SAFETY: `assume_init` requires an initialized value.
            // - all bits zero are a value, and everything that the call may have written consists
            //   of numbers.
            let state = unsafe { info.assume_init() }.run_state;
            // A stopped thread does not continue by itself either.
            Some(state != libc::TH_STATE_RUNNING)
        }
    }

    impl Drop for ThreadState {
        fn drop(&mut self) {
            // SAFETY: mach_port_deallocate requires a right of this task that nothing uses
            // afterwards.
            // - `current` got the right and passed it to nothing else; the task's own name is set
            //   before any code runs. In a forked child the right does not exist, and the call
            //   fails.
            unsafe { mach_port_deallocate(mach_task_self_, self.port) };
        }
    }
}

/// FreeBSD reports threads in the process table (`kern.proc` of sysctl(3)), all threads of a
/// process at once.
#[cfg(target_os = "freebsd")]
mod looks {
    use std::mem::MaybeUninit;
    use std::ptr;
    use std::sync::Mutex;
    use std::time::Instant;

    use crate::sys::bsd::sleepers::SystemSleepers;

    /// The number of threads for which there is room at first.
    const SPARE: usize = 16;

    /// The last report about this process, and how many threads it had room for.
    static KNOWN: Mutex<(SystemSleepers, usize)> = Mutex::new((SystemSleepers::new(), SPARE));

    pub(super) struct ThreadState {
        number: u64,
    }

    impl ThreadState {
        pub(super) fn current() -> Self {
            // SAFETY: the call has no requirements.
            let number = unsafe { libc::pthread_getthreadid_np() };
            Self { number: u64::try_from(number).unwrap_or(0) }
        }

        pub(super) fn number(&self) -> Option<u64> {
            Some(self.number)
        }

        pub(super) fn asleep(&self) -> Option<bool> {
            // Another thread is querying; in a forked child, a thread of the parent may have been
            // querying, and the lock is never released there. The thread then counts as running.
            let Ok(mut known) = KNOWN.try_lock() else { return Some(false) };
            let (sleepers, room_for) = &mut *known;
            sleepers.asleep(self.number, Instant::now(), |threads| tell(room_for, threads))
        }
    }

    /// Queries all threads of this process. Returns false if the system does not report them.
    fn tell(room_for: &mut usize, threads: &mut Vec<(u64, bool)>) -> bool {
        let size = size_of::<libc::kinfo_proc>();
        // SAFETY: getpid(2) has no requirements.
        let process = unsafe { libc::getpid() };
        let kind = libc::KERN_PROC_PID | libc::KERN_PROC_INC_THREAD;
        let name = [libc::CTL_KERN, libc::KERN_PROC, kind, process];
        // There may be more threads than last time. Two attempts are enough to find out how many.
        for _ in 0..2 {
            let mut room: Vec<MaybeUninit<libc::kinfo_proc>> = Vec::new();
            room.resize_with(*room_for, MaybeUninit::uninit);
            let mut bytes = size * room.len();
            // SAFETY: sysctl(3) reads four numbers at the first pointer and a size at the fourth
            // argument, writes at most that many bytes at the third, and writes their number at the
            // fourth; null means no new value.
            // - valid for reads: `name` has four numbers, `bytes` is a local;
            // - valid for writes: `room`, a local, has that many bytes.
            let done = unsafe {
                libc::sysctl(
                    name.as_ptr(),
                    4,
                    room.as_mut_ptr().cast(),
                    &raw mut bytes,
                    ptr::null(),
                    0,
                )
            };
            if done == 0 {
                for entry in &room[..(bytes / size).min(room.len())] {
                    // SAFETY: `assume_init_ref` requires an initialized value.
                    // - the system has written `bytes` bytes and thus this entry; it consists of
                    //   numbers and pointers.
                    let entry = unsafe { entry.assume_init_ref() };
                    if usize::try_from(entry.ki_structsize) != Ok(size) {
                        // The entries of this system's table have another layout.
                        return false;
                    }
                    let number = u64::try_from(entry.ki_tid).unwrap_or(0);
                    // A thread that waits for a processor can run. A stopped one does not continue
                    // by itself.
                    threads.push((number, entry.ki_stat != libc::SRUN));
                }
                return true;
            }
            if std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOMEM) {
                return false;
            }
            *room_for = room.len() * 2 + SPARE;
        }
        false
    }
}

/// NetBSD and OpenBSD report threads only in the process table, which is not queried: each query
/// would copy the table.
#[cfg(not(any(target_os = "macos", target_os = "freebsd")))]
mod looks {
    pub(super) struct ThreadState {
        number: u64,
    }

    impl ThreadState {
        pub(super) fn current() -> Self {
            // SAFETY: the call has no requirements.
            #[cfg(target_os = "netbsd")]
            let number = unsafe { libc::_lwp_self() };
            // SAFETY: the call has no requirements.
            #[cfg(target_os = "openbsd")]
            let number = unsafe { libc::getthrid() };
            Self { number: u64::try_from(number).unwrap_or(0) }
        }

        pub(super) fn number(&self) -> Option<u64> {
            Some(self.number)
        }

        #[allow(clippy::unused_self, reason = "as where it is told")]
        pub(super) fn asleep(&self) -> Option<bool> {
            None
        }
    }
}
