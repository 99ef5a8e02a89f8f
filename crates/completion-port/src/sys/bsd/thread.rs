//! A thread that can be parked, and on macOS and FreeBSD looked at.

use std::time::Duration;

use crate::backend::thread::Thread;
use crate::state::facts::Presence;
use crate::sys::unix::parking::Parking;

/// The calling thread.
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

/// The kernel of macOS tells what a thread does.
#[cfg(target_os = "macos")]
mod looks {
    use std::mem::MaybeUninit;

    // The crate `libc` calls its own declarations of these deprecated.
    unsafe extern "C" {
        static mach_task_self_: libc::mach_port_t;
        fn mach_thread_self() -> libc::mach_port_t;
        fn mach_port_deallocate(
            task: libc::mach_port_t,
            name: libc::mach_port_t,
        ) -> libc::kern_return_t;
    }

    /// A right to the thread's port. As long as it is held, no other thread has its name.
    pub(super) struct ThreadState {
        port: libc::mach_port_t,
        number: u64,
    }

    impl ThreadState {
        pub(super) fn current() -> Self {
            let mut number = 0;
            // SAFETY: pthread_threadid_np(3) writes a number at the pointer.
            // - valid for writes: `number` is a local; zero stands for the calling thread.
            unsafe { libc::pthread_threadid_np(0, &raw mut number) };
            // SAFETY: mach_thread_self demands nothing. It gives a right, which `drop` gives back.
            let port = unsafe { mach_thread_self() };
            Self { port, number }
        }

        pub(super) fn number(&self) -> Option<u64> {
            Some(self.number)
        }

        pub(super) fn asleep(&self) -> Option<bool> {
            let mut info = MaybeUninit::<libc::thread_basic_info>::zeroed();
            let mut count = libc::THREAD_BASIC_INFO_COUNT;
            // SAFETY: thread_info reads a count at the last pointer, writes at most so many words at the one before
            // and their number at the last.
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
                // It has ended: the right that is held names nothing any more.
                return Some(true);
            }
            // SAFETY: `assume_init` demands a value.
            // - all bits zero are one, and whatever the call has written consists of numbers.
            let state = unsafe { info.assume_init() }.run_state;
            // One that was stopped does not go on by itself either.
            Some(state != libc::TH_STATE_RUNNING)
        }
    }

    impl Drop for ThreadState {
        fn drop(&mut self) {
            // SAFETY: mach_port_deallocate demands a right of this task that nothing uses afterwards.
            // - `current` got it, and gave it to nothing else; the task's own name is set before any code runs.
            // In a forked child the right is not there, and the call is refused.
            unsafe { mach_port_deallocate(mach_task_self_, self.port) };
        }
    }
}

/// FreeBSD tells of threads by the table of processes (`kern.proc` of sysctl(3)), of all threads of a process at once.
#[cfg(target_os = "freebsd")]
mod looks {
    use std::mem::MaybeUninit;
    use std::ptr;
    use std::sync::Mutex;
    use std::time::Instant;

    use crate::sys::bsd::sleepers::SystemSleepers;

    /// For how many threads there is room at first.
    const SPARE: usize = 16;

    /// What is known of this process, and for how many threads there was room at the last time.
    static KNOWN: Mutex<(SystemSleepers, usize)> = Mutex::new((SystemSleepers::new(), SPARE));

    pub(super) struct ThreadState {
        number: u64,
    }

    impl ThreadState {
        pub(super) fn current() -> Self {
            // SAFETY: the call demands nothing.
            let number = unsafe { libc::pthread_getthreadid_np() };
            Self { number: u64::try_from(number).unwrap_or(0) }
        }

        pub(super) fn number(&self) -> Option<u64> {
            Some(self.number)
        }

        pub(super) fn asleep(&self) -> Option<bool> {
            // Another thread asks at this moment, or, in a forked child, did so in the parent, which goes on for ever
            // there. A thread is said to run then.
            let Ok(mut known) = KNOWN.try_lock() else { return Some(false) };
            let (sleepers, room_for) = &mut *known;
            sleepers.asleep(self.number, Instant::now(), |threads| tell(room_for, threads))
        }
    }

    /// Has the system tell of all threads of this process.
    fn tell(room_for: &mut usize, threads: &mut Vec<(u64, bool)>) -> bool {
        let size = size_of::<libc::kinfo_proc>();
        // SAFETY: getpid(2) demands nothing.
        let process = unsafe { libc::getpid() };
        let kind = libc::KERN_PROC_PID | libc::KERN_PROC_INC_THREAD;
        let name = [libc::CTL_KERN, libc::KERN_PROC, kind, process];
        // More threads may have come since the last time. Twice is enough to find out how many there are.
        for _ in 0..2 {
            let mut room: Vec<MaybeUninit<libc::kinfo_proc>> = Vec::new();
            room.resize_with(*room_for, MaybeUninit::uninit);
            let mut bytes = size * room.len();
            // SAFETY: sysctl(3) reads four numbers at the first pointer and a size at the fourth argument, writes at most so
            // many bytes at the third and how many there are at the fourth; null is no new value.
            // - valid for reads: `name` has four numbers, `bytes` is a local;
            // - valid for writes: `room`, a local, has so many bytes.
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
                    // SAFETY: `assume_init_ref` demands a value.
                    // - the system has written so many bytes, and thus this entry; it consists of numbers and pointers.
                    let entry = unsafe { entry.assume_init_ref() };
                    if usize::try_from(entry.ki_structsize) != Ok(size) {
                        // A system whose table has entries of another form.
                        return false;
                    }
                    let number = u64::try_from(entry.ki_tid).unwrap_or(0);
                    // One that waits for a processor can run. One that was stopped does not go on by itself.
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

/// NetBSD and OpenBSD tell of threads only by the table of processes, and that is not asked: a look would cost a copy of it.
#[cfg(not(any(target_os = "macos", target_os = "freebsd")))]
mod looks {
    pub(super) struct ThreadState {
        number: u64,
    }

    impl ThreadState {
        pub(super) fn current() -> Self {
            // SAFETY: the call demands nothing.
            #[cfg(target_os = "netbsd")]
            let number = unsafe { libc::_lwp_self() };
            // SAFETY: the call demands nothing.
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
