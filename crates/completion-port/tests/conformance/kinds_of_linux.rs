//! Rule 16: kinds of descriptors that can be registered and that the simulated kernel lacks.

use std::ffi::{CString, c_void};
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{
    AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::{io, ptr, thread};

use completion_port::{
    ErrorKind, Events, Interest, OneShot, Packet, Persistent, Port, Registration,
};
use testkit::{System, in_a_process_of_its_own, in_forked_child};

use crate::kit::packets::{
    TRIGGERS, assert_quiet, enable, port_on, register, report, the_one, the_token, whole_report,
};

/// Takes ownership of the descriptor that a system call returned.
#[track_caller]
fn owned(number: impl TryInto<RawFd>) -> OwnedFd {
    let number = number.try_into().unwrap_or(-1);
    assert!(number >= 0, "{}", io::Error::last_os_error());
    // SAFETY: `from_raw_fd` requires an open descriptor without another owner.
    // - the caller has just received it from a system call.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// Rule 16: simulated sockets can't block.
#[test]
fn a_blocking_socket_is_welcome_on_epoll() {
    testkit::run(System::native, |system| {
        for trigger in TRIGGERS {
            let port = port_on(system);
            let (ours, theirs) = system.tcp_pair();
            ours.set_nonblocking(false).unwrap();
            register(&port, &ours, "ours", Interest::IN, trigger);
            assert_quiet(&port, system);
            theirs.write(b"four").unwrap();
            assert_eq!(report(&port, system), Events::IN, "{trigger:?}");
            assert_eq!(ours.read(&mut [0; 8]).unwrap(), 4);
            assert_quiet(&port, system);
        }
    });
}

/// Rule 16: the simulated kernel has no timers and no processes.
#[test]
fn a_timerfd_is_welcome_on_epoll() {
    let system = System::native();
    for trigger in TRIGGERS {
        // SAFETY: timerfd_create(2) accesses no memory.
        let timer = owned(unsafe {
            libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK)
        });
        let port = port_on(&system);
        let registration = Registration::new(&timer, "timer", Interest::IN, OneShot::Level);
        let id = port.register(registration).unwrap();
        enable(&port, id, Interest::ALL, trigger);
        assert_quiet(&port, &system);
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let soon = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let time = libc::itimerspec { it_interval: never, it_value: soon };
        // SAFETY: timerfd_settime(2) reads a time at the first pointer, and writes nothing to a
        // null pointer.
        // - valid for reads: `time` is a local.
        let set = unsafe {
            libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const time, std::ptr::null_mut())
        };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
        assert_eq!(report(&port, &system), Events::IN, "{trigger:?}");
    }
}

/// Rule 16: the simulated kernel has no timers and no processes.
#[test]
fn a_pidfd_is_welcome_on_epoll() {
    let system = System::native();
    for trigger in TRIGGERS {
        let mut child = testkit::spawn(Command::new("cat").stdin(Stdio::piped())).unwrap();
        // SAFETY: pidfd_open(2) accesses no memory.
        let number = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
        if number < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ENOSYS) {
            child.wait().unwrap();
            println!("a_pidfd_is_welcome_on_epoll: SKIPPED: the kernel has no pidfd_open");
            return;
        }
        let process = owned(i32::try_from(number).unwrap());
        let port = port_on(&system);
        let registration = Registration::new(&process, "process", Interest::IN, OneShot::Level);
        let id = port.register(registration).unwrap();
        enable(&port, id, Interest::IN, trigger);
        assert_quiet(&port, &system);
        // It exits at the end of its input.
        drop(child.stdin.take());
        assert_eq!(report(&port, &system), Events::IN, "{trigger:?}");
        assert!(child.wait().unwrap().success());
    }
}

/// Rule 16: a directory, and a device that can't be watched. The simulated kernel has only a file.
#[test]
fn directories_and_devices_are_refused_on_epoll() {
    let port = port_on(&System::native());
    for path in ["/", "/dev/null"] {
        let file = std::fs::File::open(path).unwrap();
        let new = Registration::new(&file, path, Interest::IN, OneShot::Level);
        let (error, key) = port.register(new).unwrap_err().into_parts();
        assert_eq!((error.kind(), key), (ErrorKind::NotPollable, path));
    }
}
fn write(to: &OwnedFd, bytes: &[u8]) {
    // SAFETY: write(2) reads at most the given number of bytes at the pointer.
    // - valid for reads: it points to a slice of that length.
    let written = unsafe { libc::write(to.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    assert_eq!(usize::try_from(written), Ok(bytes.len()), "{}", io::Error::last_os_error());
}

/// Returns the number of bytes read.
fn read(from: &OwnedFd) -> usize {
    let mut bytes = [0_u8; 4096];
    // SAFETY: read(2) writes at most the given number of bytes at the pointer.
    // - valid for writes: it points to a local array of that length.
    let read = unsafe { libc::read(from.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
    usize::try_from(read).unwrap_or(0)
}

/// Checks with each trigger that nothing is reported at first, IN after `fill`, and nothing again
/// after `drain`.
#[track_caller]
fn is_welcome(what: &OwnedFd, fill: impl Fn(), drain: impl Fn()) {
    let system = System::native();
    for trigger in TRIGGERS {
        let port = port_on(&system);
        let new = Registration::new(what, "it", Interest::IN, OneShot::Level);
        let id = port.register(new).unwrap();
        enable(&port, id, Interest::IN | Interest::HANGUP, trigger);
        for _ in 0..2 {
            assert_quiet(&port, &system);
            fill();
            assert_eq!(report(&port, &system), Events::IN, "{trigger:?}");
            drain();
            assert_quiet(&port, &system);
            enable(&port, id, Interest::IN | Interest::HANGUP, trigger);
        }
    }
}

/// Rule 16.
#[test]
fn an_epoll_set_is_welcome_epoll() {
    // SAFETY: epoll_create1(2) accesses no memory.
    let set = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
    // SAFETY: eventfd(2) accesses no memory.
    let member = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) });
    let mut event = libc::epoll_event { events: libc::EPOLLIN.cast_unsigned(), u64: 7 };
    let (add, number) = (libc::EPOLL_CTL_ADD, member.as_raw_fd());
    // SAFETY: epoll_ctl(2) reads one event at the pointer.
    // - valid for reads: `event` is a local.
    let added = unsafe { libc::epoll_ctl(set.as_raw_fd(), add, number, &raw mut event) };
    assert_eq!(added, 0);
    is_welcome(&set, || write(&member, &1_u64.to_ne_bytes()), || _ = read(&member));
}

/// Rule 16.
#[test]
fn an_inotify_descriptor_is_welcome_epoll() {
    // SAFETY: inotify_init1(2) accesses no memory.
    let watch = owned(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) });
    // A file that no other process opens.
    // SAFETY: memfd_create(2) reads a zero-terminated string at the pointer.
    // - valid for reads: it is such a literal.
    let file = owned(unsafe { libc::memfd_create(c"watched".as_ptr(), libc::MFD_CLOEXEC) });
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = CString::new(name.clone()).unwrap();
    // SAFETY: inotify_add_watch(2) reads a zero-terminated string at the pointer.
    // - valid for reads: it belongs to a `CString` that lives until the call returns.
    let added = unsafe { libc::inotify_add_watch(watch.as_raw_fd(), path.as_ptr(), libc::IN_OPEN) };
    assert!(added >= 0, "{}", io::Error::last_os_error());
    let open = || drop(File::open(&name).unwrap());
    is_welcome(&watch, open, || _ = read(&watch));
}

/// Rule 16: the kernel reports changes of its own state through some files, as urgent data or as an
/// error. Each change makes a packet for IN, although querying the file consumes the change.
#[test]
fn each_change_of_the_mounts_is_reported_epoll() {
    if !in_a_process_of_its_own("kinds_of_linux::each_change_of_the_mounts_is_reported_epoll") {
        return;
    }
    // SAFETY: unshare(2) accesses no memory.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return testkit::skipped("this process cannot make a mount namespace");
    }
    // Keep the changes from propagating to other processes' mounts.
    mount(None, c"/", libc::MS_REC | libc::MS_PRIVATE);
    let system = System::native();
    // Only this thread has its own mounts.
    for path in ["/proc/thread-self/mounts", "/proc/thread-self/mountinfo"] {
        let [file, same, third] = [(); 3].map(|()| File::open(path).unwrap());
        let port: Port<(), usize> = system.port(1);
        port.register(Registration::new(&file, (), Interest::IN, Persistent::Edge)).unwrap();
        let tokens: Port<(), usize> = system.port(1);
        tokens.register(Registration::new(&same, (), Interest::IN, OneShot::Edge)).unwrap();
        // A registration with an empty filter gets what the kernel reports as an error.
        let errors: Port<(), usize> = system.port(1);
        let nothing = Registration::new(&third, (), Interest::NONE, OneShot::Level);
        errors.register(nothing).unwrap();
        assert_quiet(&errors, &system);
        let changed = || {
            assert_eq!(next_events(&port, &system), Events::IN);
            assert_quiet(&port, &system);
            let mut token = the_token(&tokens, &system);
            assert_eq!(token.events(), Events::IN);
            token.read_drained();
            token.rearm().unwrap();
            assert_quiet(&tokens, &system);
        };
        // It can be read, which is always true.
        changed();
        for _ in 0..5 {
            mount(Some(c"none"), c"/mnt", 0);
            changed();
            let error = the_token(&errors, &system);
            assert_eq!(error.events(), Events::ERR);
            // SAFETY: umount2(2) reads a zero-terminated string at the pointer.
            // - valid for reads: it is such a literal.
            assert_eq!(unsafe { libc::umount2(c"/mnt".as_ptr(), 0) }, 0);
            changed();
            error.rearm().unwrap();
            let error = the_token(&errors, &system);
            assert_eq!(error.events(), Events::ERR);
            error.rearm().unwrap();
            assert_quiet(&errors, &system);
        }
    }
}

/// Returns the events of the next packet.
#[track_caller]
fn next_events(port: &Port<(), usize>, on: &System) -> Events {
    match the_one(port, on) {
        Packet::Notified(notified) => notified.events(),
        _ => panic!("no report"),
    }
}

/// Mounts an empty file system. Without a source, changes the propagation of a mount.
fn mount(source: Option<&std::ffi::CStr>, place: &std::ffi::CStr, flags: libc::c_ulong) {
    let null = std::ptr::null();
    let sort = source.map_or(null, |_| c"tmpfs".as_ptr());
    let source = source.map_or(null, std::ffi::CStr::as_ptr);
    // SAFETY: mount(2) reads a zero-terminated string at each pointer that is not null.
    // - each is such a literal, or null.
    let done = unsafe { libc::mount(source, place.as_ptr(), sort, flags, std::ptr::null()) };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
}

/// Rule 16: the same for pressure triggers (PSI).
#[test]
fn each_trigger_of_pressure_is_reported_epoll() {
    let system = System::native();
    let file = File::options().read(true).write(true).open("/proc/pressure/cpu");
    let Ok(mut file) = file else {
        return testkit::skipped("this process cannot read the pressure files");
    };
    // A microsecond within two seconds, the shortest window that requires no privilege.
    if std::io::Write::write(&mut file, b"some 1 2000000\0").is_err() {
        return testkit::skipped("this kernel refuses a pressure trigger");
    }
    let port: Port<(), usize> = system.port(1);
    port.register(Registration::new(&file, (), Interest::IN, Persistent::Edge)).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = Over(&over);
        // More threads than processors.
        for _ in 0..2 * thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        // The first report may be that the file can be read.
        for _ in 0..2 {
            assert_eq!(next_events(&port, &system), Events::IN);
        }
    });
}

/// Ends threads, even if a claim fails.
struct Over<'o>(&'o AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Rule 16: any thread's query takes a signal of the process. Runs in a child process with one
/// thread, since all threads must have blocked the signal.
#[test]
fn a_signalfd_is_welcome_epoll() {
    if !in_a_process_of_its_own("kinds_of_linux::a_signalfd_is_welcome_epoll") {
        return;
    }
    let status = in_forked_child(|| {
        let mut mask = std::mem::MaybeUninit::uninit();
        // SAFETY: sigemptyset(3) writes a set at the pointer.
        // - valid for writes: `mask` is a local.
        unsafe { libc::sigemptyset(mask.as_mut_ptr()) };
        // SAFETY: `assume_init` requires a valid value.
        // - sigemptyset(3) has written it, and can't fail.
        let mut mask: libc::sigset_t = unsafe { mask.assume_init() };
        // SAFETY: sigaddset(3) reads and writes a set at the pointer.
        // - valid: `mask` is a local.
        unsafe { libc::sigaddset(&raw mut mask, libc::SIGUSR1) };
        // SAFETY: pthread_sigmask(3) reads a set at the first pointer, and writes nothing to a null
        // pointer.
        // - valid for reads: `mask` is a local.
        let blocked =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, ptr::null_mut()) };
        assert_eq!(blocked, 0);
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: signalfd(2) reads a set at the pointer.
        // - valid for reads: `mask` is a local.
        let signals = owned(unsafe { libc::signalfd(-1, &raw const mask, flags) });
        let process = std::process::id().cast_signed();
        // SAFETY: kill(2) accesses no memory.
        let raise = || assert_eq!(unsafe { libc::kill(process, libc::SIGUSR1) }, 0);
        is_welcome(&signals, raise, || assert_eq!(read(&signals), 128));
        0
    });
    assert_eq!(status, 0);
}

/// The rings of io_uring_setup(2), with four entries.
struct Rings {
    descriptor: OwnedFd,
    offsets: [u32; 30],
    memory: *mut c_void,
}

impl Rings {
    const SIZE: usize = 4096;

    fn new() -> io::Result<Self> {
        // `struct io_uring_params` of linux/io_uring.h, as words.
        let mut offsets = [0_u32; 30];
        // SAFETY: io_uring_setup(2) reads and writes one structure of 120 bytes at the pointer.
        // - valid: `offsets` is a local of that size.
        let made = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, offsets.as_mut_ptr()) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        let descriptor = owned(made);
        let memory = Self::map(&descriptor, 0);
        Ok(Self { descriptor, offsets, memory })
    }

    /// Maps both rings, or the entries.
    fn map(descriptor: &OwnedFd, offset: i64) -> *mut c_void {
        // SAFETY: mmap(2) requires a valid combination of arguments, and replaces no mapping unless
        // requested.
        // - no address is given.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                Self::SIZE,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
                descriptor.as_raw_fd(),
                offset,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        memory
    }

    /// Returns the word of the rings whose offset is this word of the parameters.
    fn number(&self, word: usize) -> &AtomicU32 {
        // SAFETY: `byte_add` requires an offset within the mapping.
        // - the kernel guarantees that for rings with so few entries.
        let place = unsafe { self.memory.byte_add(self.offsets[word] as usize) };
        // SAFETY: a shared reference requires memory that is valid, aligned, and changed only as
        // its type allows.
        // - it is mapped until the process exits, and the kernel and these tests change it
        //   atomically.
        unsafe { &*place.cast() }
    }

    /// Submits an operation that does nothing and makes a completion.
    fn submit(&self) {
        // Words 10 and on are the offsets in the submission ring: its head, its tail and, as the
        // seventh, the list of entries. All entries are zero, which is an operation that does
        // nothing, and the list names the first of them.
        let tail = self.number(11);
        tail.store(tail.load(Acquire).wrapping_add(1), Release);
        let number = self.descriptor.as_raw_fd();
        // SAFETY: io_uring_enter(2) reads nothing at a null pointer.
        // - the only pointer passed is null.
        let done = unsafe {
            libc::syscall(libc::SYS_io_uring_enter, number, 1, 0, 0, ptr::null::<c_void>(), 0)
        };
        assert_eq!(done, 1, "{}", io::Error::last_os_error());
    }

    /// Takes all completions.
    fn reap(&self) {
        // Words 20 and on are the offsets in the completion ring: its head and its tail.
        self.number(20).store(self.number(21).load(Acquire), Release);
    }
}

/// Rule 16.
#[test]
fn an_io_uring_is_welcome_epoll() {
    match Rings::new() {
        Ok(rings) => is_welcome(&rings.descriptor, || rings.submit(), || rings.reap()),
        Err(error) => println!("SKIPPED an_io_uring_is_welcome_epoll: io_uring_setup: {error}"),
    }
}

/// Opens a new terminal. Returns the program's end and the user's end.
fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut user, mut program) = (-1, -1);
    // SAFETY: openpty(3) writes a descriptor at each of the first two pointers, and accepts null
    // for the rest.
    // - valid for writes: both are locals.
    let opened = unsafe {
        libc::openpty(
            &raw mut user,
            &raw mut program,
            ptr::null_mut(),
            ptr::null_mut(),
            ptr::null_mut(),
        )
    };
    assert_eq!(opened, 0, "{}", io::Error::last_os_error());
    (owned(program), owned(user))
}

/// Rule 16.
#[test]
fn a_terminal_is_welcome_and_hangs_up_epoll() {
    // Runs as a claim, so that no other test forks meanwhile. A child's copy of an end would keep
    // the terminal from hanging up.
    testkit::run(System::native, |system| {
        let (program, user) = terminal();
        is_welcome(&program, || write(&user, b"a line\n"), || assert_eq!(read(&program), 7));
        // Only whole lines can be read.
        for trigger in TRIGGERS {
            let both = Interest::IN | Interest::HANGUP;
            let register = |port: &Port<_, _>, end: &OwnedFd| {
                let new = Registration::new(end, "end", both, OneShot::Level);
                enable(port, port.register(new).unwrap(), both, trigger);
            };
            let (program, user) = terminal();
            let port = port_on(system);
            register(&port, &program);
            write(&user, b"half a line");
            assert_quiet(&port, system);
            // The terminal's user is gone: an error and a hang-up. The system doesn't report
            // whether there is something to read.
            drop(user);
            let ended = Events::IN | Events::HANGUP | Events::WRITE_CLOSED | Events::ERR;
            assert_eq!(whole_report(&port, system), ended);

            // The program is gone, with and without data left.
            for left in [&b"last words"[..], b""] {
                let (program, user) = terminal();
                let port = port_on(system);
                register(&port, &user);
                assert_quiet(&port, system);
                if !left.is_empty() {
                    write(&program, left);
                }
                drop(program);
                let data = if left.is_empty() { Events::NONE } else { Events::IN };
                assert_eq!(report(&port, system), Events::HANGUP | data, "{trigger:?}");
                assert_eq!(read(&user), left.len());
            }
        }
    });
}
