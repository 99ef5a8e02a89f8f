//! Rule 16: what may be registered. What is neither socket, pipe nor counter is not in the simulated kernel.

use std::ffi::{CString, c_void};
use std::fs::File;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use std::time::Duration;
use std::{io, ptr};

use completion_port::{
    Batch, BorrowedSource, Changes, ErrorKind, Events, Interest, OneShot, Port, Registration,
    Source,
};
use testkit::{Socket, System, in_a_process_of_its_own, in_forked_child, on_every_system};

use crate::kit::descriptors::closed;
use crate::kit::packets::{
    ONE_SHOT_LEVEL, TRIGGERS, assert_quiet, enable, port_on, ready, register, report, whole_report,
};
use crate::kit::sockets::READERS;

/// What a system call has returned, as a descriptor.
#[track_caller]
fn owned(number: impl TryInto<RawFd>) -> OwnedFd {
    let number = number.try_into().unwrap_or(-1);
    assert!(number >= 0, "{}", io::Error::last_os_error());
    // SAFETY: `from_raw_fd` demands an open descriptor that nothing else owns.
    // - the caller has got it from a system call just now.
    unsafe { OwnedFd::from_raw_fd(number) }
}

/// A registration of a key that owns its descriptor.
fn owner(socket: Socket) -> Registration<'static, Socket> {
    Registration::owned(socket, Interest::IN, OneShot::Level)
}

/// A counter on each of two systems, with the same number there. The third value keeps the numbers below.
fn of_one_number(here: &System, there: &System) -> (Socket, Socket, Vec<Socket>) {
    let (mut first, mut second) = (here.event(), there.event());
    let mut below = Vec::new();
    while first.number() != second.number() {
        let (lower, on) = if first.number() < second.number() {
            (&mut first, here)
        } else {
            (&mut second, there)
        };
        below.push(std::mem::replace(lower, on.event()));
    }
    (first, second, below)
}

on_every_system! {
    /// Rule 16.
    fn a_socket_may_be_of_any_kind_and_in_any_state(system: &System) {
        for trigger in TRIGGERS {
            let (tcp, peer) = system.tcp_pair();
            let (unix, _unix_peer) = system.unix_pair();
            let (datagrams, _datagrams_peer) = system.unix_datagram_pair();
            let (connected, _connected_peer) = system.udp_pair();
            let (reader, writer) = system.pipe();
            let half = system.tcp_pair();
            half.0.shutdown(Shutdown::Write).unwrap();
            let sockets = [
                tcp,
                unix,
                datagrams,
                connected,
                reader,
                writer,
                half.0,
                system.tcp_fresh(),
                system.unix_fresh(),
                system.udp_bound(),
                system.tcp_listener(1),
                system.unix_listener(1),
                system.tcp_connect_refused(),
                system.event(),
            ];
            let port = port_on(system);
            let mut ids = Vec::new();
            for socket in &sockets {
                ids.push(register(&port, socket, "socket", Interest::ALL, trigger));
            }
            assert_eq!(port.stats().registered, sockets.len());
            for id in &ids {
                port.disable(*id).unwrap();
            }
            assert_quiet(&port, system);
            // The connected one still works.
            enable(&port, ids[0], Interest::IN, ONE_SHOT_LEVEL);
            peer.write(b"x").unwrap();
            assert_eq!(report(&port, system), Events::IN);
            assert_quiet(&port, system);
        }
    }

    /// Rule 16.
    fn pipes_and_counters_are_welcome(system: &System) {
        let port = port_on(system);
        let (reader, writer) = system.pipe();
        let event = system.event();
        register(&port, &reader, "reader", Interest::IN, ONE_SHOT_LEVEL);
        register(&port, &writer, "writer", Interest::OUT, ONE_SHOT_LEVEL);
        register(&port, &event, "event", Interest::IN, ONE_SHOT_LEVEL);
        assert_eq!(*ready(&port, system).key(), "writer");
        assert_quiet(&port, system);
        writer.write(b"x").unwrap();
        let held = ready(&port, system);
        assert_eq!((*held.key(), held.events()), ("reader", Events::IN));
        event.signal(3).unwrap();
        let held = ready(&port, system);
        assert_eq!((*held.key(), held.events()), ("event", Events::IN));
        assert_quiet(&port, system);
    }

    /// Rule 16.
    fn a_key_may_own_its_descriptor(system: &System) {
        for pair in READERS {
            let port: Port<Socket, u32> = system.port(1);
            let (ours, theirs) = pair(system);
            let number = ours.number();
            let open = system.open_sockets();
            port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
            theirs.write(b"four").unwrap();
            let mut held = ready(&port, system);
            assert_eq!(held.key().number(), number);
            assert_eq!(held.key_mut().drain(), 4);
            held.rearm().unwrap();
            assert_quiet(&port, system);
            theirs.write(b"x").unwrap();
            drop(ready(&port, system));
            assert_eq!(system.open_sockets(), open - 1, "dropping the token closes it");
        }
    }

    /// Rule 16.
    fn what_cannot_be_watched_is_refused(system: &System) {
        let port = port_on(system);
        let file = system.regular_file();
        for trigger in [OneShot::Level, OneShot::Edge] {
            let new = Registration::new(&file, "file", Interest::IN, trigger);
            let (error, key) = port.register(new).unwrap_err().into_parts();
            assert_eq!((error.kind(), key), (ErrorKind::NotPollable, "file"));
            assert_eq!(error.os_code(), Some(libc::EPERM));
        }
        assert_eq!(port.stats().registered, 0);
        assert_quiet(&port, system);
    }

    /// Rule 16.
    fn a_closed_descriptor_is_refused(system: &System) {
        let port = port_on(system);
        let number = closed(system);
        let new = Registration::new(&number, "closed", Interest::IN, OneShot::Level);
        let (error, key) = port.register(new).unwrap_err().into_parts();
        assert_eq!((error.kind(), key), (ErrorKind::BadDescriptor, "closed"));
        assert_eq!(error.os_code(), Some(libc::EBADF));
        assert_eq!(port.stats().registered, 0);
        assert_quiet(&port, system);
        // What is refused leaves the port as it was.
        let event = system.event();
        register(&port, &event, "event", Interest::IN, ONE_SHOT_LEVEL);
        event.signal(1).unwrap();
        assert_eq!(*ready(&port, system).key(), "event");
    }

    /// Rules 16 and 29: though its number is that of a registered one.
    fn a_source_of_another_kernel_is_refused(system: &System) {
        for other in [System::native(), System::simulated()] {
            if other.kernel().is_none() && system.kernel().is_none() {
                continue;
            }
            let (ours, foreign, _below) = of_one_number(system, &other);
            let number = ours.number();
            let port = system.port::<Socket, ()>(1);
            ours.signal(1).unwrap();
            port.register(owner(ours)).unwrap();

            let (error, foreign) = port.register(owner(foreign)).unwrap_err().into_parts();
            assert_eq!((error.kind(), error.os_code()), (ErrorKind::WrongKernel, None));
            assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
            assert_eq!((port.id_of(&foreign), port.stats().registered), (None, 1));
            let mut changes = Changes::new();
            changes.register(owner(foreign));
            drop(port.process(&mut changes, &mut Batch::new(), Duration::ZERO).unwrap());
            let (error, foreign) = changes.refused().next().unwrap().into_parts();
            assert_eq!(error.kind(), ErrorKind::WrongKernel);
            let foreign = foreign.unwrap();

            // A key that has become one of another kernel has lost its descriptor.
            let mut held = ready(&port, system);
            let ours = std::mem::replace(held.key_mut(), foreign);
            let (error, foreign) = held.rearm().unwrap_err().into_parts();
            assert_eq!((error.kind(), foreign.number()), (ErrorKind::BadDescriptor, number));
            assert_eq!(port.stats().registered, 0);

            // Nothing has become of either: each goes to a port of its own kernel.
            port.register(owner(ours)).unwrap();
            other.port::<Socket, ()>(1).register(owner(foreign)).unwrap();
            port.close();
            let refused = port.register(owner(other.event())).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Closed);
        }
    }

    /// Rule 16.
    fn an_error_keeps_the_code_of_the_system_and_its_kind(system: &System) {
        let (port, other) = (port_on(system), port_on(system));
        let (file, number) = (system.regular_file(), closed(system));
        let event = system.event();
        register(&port, &event, "event", Interest::IN, ONE_SHOT_LEVEL);
        let refused = |port: &Port<_, _>, source: BorrowedSource<'_>| -> io::Error {
            let new = Registration::new(&source, "new", Interest::IN, OneShot::Level);
            port.register(new).unwrap_err().into()
        };
        for (source, code) in [
            (file.as_source(), libc::EPERM),
            (number.as_source(), libc::EBADF),
            (event.as_source(), libc::EEXIST),
        ] {
            let error = refused(&port, source);
            assert_eq!(error.raw_os_error(), Some(code));
            assert_eq!(error.kind(), io::Error::from_raw_os_error(code).kind());
        }
        // Where the system has said nothing there is a kind, and the whole error within.
        let error = refused(&other, event.as_source());
        assert_eq!((error.kind(), error.raw_os_error()), (io::ErrorKind::AlreadyExists, None));
        let within = error.get_ref().unwrap().downcast_ref::<completion_port::Error>().unwrap();
        assert!(within.is_on_another_port());
    }
}

/// Rule 16: the simulated sockets cannot block.
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

/// Rule 16: there are no timers and processes in the simulated kernel.
#[test]
fn a_timerfd_is_welcome_on_epoll() {
    let system = System::native();
    for trigger in TRIGGERS {
        // SAFETY: timerfd_create(2) demands nothing of memory.
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
        // SAFETY: timerfd_settime(2) reads a time at the first pointer.
        // - valid for reads: `time` is a local; the null pointer stands for no answer.
        let set = unsafe {
            libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const time, std::ptr::null_mut())
        };
        assert_eq!(set, 0, "{}", io::Error::last_os_error());
        assert_eq!(report(&port, &system), Events::IN, "{trigger:?}");
    }
}

/// Rule 16: there are no timers and processes in the simulated kernel.
#[test]
fn a_pidfd_is_welcome_on_epoll() {
    let system = System::native();
    for trigger in TRIGGERS {
        let mut child = testkit::spawn(Command::new("cat").stdin(Stdio::piped())).unwrap();
        // SAFETY: pidfd_open(2) demands nothing of memory.
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
        // Without input it ends.
        drop(child.stdin.take());
        assert_eq!(report(&port, &system), Events::IN, "{trigger:?}");
        assert!(child.wait().unwrap().success());
    }
}

/// Rule 16: a directory and a device without a way to be watched; the simulated kernel has a file
/// only.
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

/// Rule 16: a real kernel cannot be made to run out of watches or memory without harm to others.
#[test]
fn a_lack_of_watches_or_memory_is_told_and_may_pass_on_sim() {
    testkit::run(System::simulated, |system| {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        theirs.write(b"x").unwrap();
        for (kind, code) in
            [(ErrorKind::WatchLimit, libc::ENOSPC), (ErrorKind::OutOfMemory, libc::ENOMEM)]
        {
            system.kernel().unwrap().fail_next_attach(kind);
            let new = Registration::new(&ours, "ours", Interest::IN, OneShot::Level);
            let (error, key) = port.register(new).unwrap_err().into_parts();
            assert_eq!((error.kind(), error.os_code(), key), (kind, Some(code), "ours"));
            assert_eq!(port.stats().registered, 0);
            assert_quiet(&port, system);
        }
        register(&port, &ours, "ours", Interest::IN, ONE_SHOT_LEVEL);
        assert_eq!(report(&port, system), Events::IN);
    });
}

fn write(to: &OwnedFd, bytes: &[u8]) {
    // SAFETY: write(2) reads as many bytes at the pointer as it is told.
    // - valid for reads: it is that of a slice of that length.
    let written = unsafe { libc::write(to.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    assert_eq!(usize::try_from(written), Ok(bytes.len()), "{}", io::Error::last_os_error());
}

/// How many bytes were there.
fn read(from: &OwnedFd) -> usize {
    let mut bytes = [0_u8; 4096];
    // SAFETY: read(2) writes at most as many bytes at the pointer as it is told.
    // - valid for writes: it is that of a local array of that length.
    let read = unsafe { libc::read(from.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
    usize::try_from(read).unwrap_or(0)
}

/// With each trigger it says nothing, then IN once `fill` was called, and after `drain` nothing again.
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
    // SAFETY: epoll_create1(2) demands nothing of memory.
    let set = owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
    // SAFETY: eventfd(2) demands nothing of memory.
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
    // SAFETY: inotify_init1(2) demands nothing of memory.
    let watch = owned(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) });
    // A file that nobody else opens.
    // SAFETY: memfd_create(2) reads text that ends with a zero at the pointer.
    // - it is that of a literal.
    let file = owned(unsafe { libc::memfd_create(c"watched".as_ptr(), libc::MFD_CLOEXEC) });
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let path = CString::new(name.clone()).unwrap();
    // SAFETY: inotify_add_watch(2) reads text that ends with a zero at the pointer.
    // - it is that of a `CString` that lives until the call returns.
    let added = unsafe { libc::inotify_add_watch(watch.as_raw_fd(), path.as_ptr(), libc::IN_OPEN) };
    assert!(added >= 0, "{}", io::Error::last_os_error());
    let open = || drop(File::open(&name).unwrap());
    is_welcome(&watch, open, || _ = read(&watch));
}

/// Rule 16: a signal of the process is told by any thread's question; in a child with one thread,
/// since all threads must have blocked it.
#[test]
fn a_signalfd_is_welcome_epoll() {
    if !in_a_process_of_its_own("kinds::a_signalfd_is_welcome_epoll") {
        return;
    }
    let status = in_forked_child(|| {
        let mut mask = std::mem::MaybeUninit::uninit();
        // SAFETY: sigemptyset(3) writes a set at the pointer.
        // - valid for writes: `mask` is a local.
        unsafe { libc::sigemptyset(mask.as_mut_ptr()) };
        // SAFETY: `assume_init` demands a value.
        // - sigemptyset(3) has written it, and cannot fail.
        let mut mask: libc::sigset_t = unsafe { mask.assume_init() };
        // SAFETY: sigaddset(3) reads and writes a set at the pointer.
        // - valid: `mask` is a local.
        unsafe { libc::sigaddset(&raw mut mask, libc::SIGUSR1) };
        // SAFETY: pthread_sigmask(3) reads a set at the first pointer.
        // - valid for reads: `mask` is a local; the null pointer stands for no answer.
        let blocked =
            unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const mask, ptr::null_mut()) };
        assert_eq!(blocked, 0);
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: signalfd(2) reads a set at the pointer.
        // - valid for reads: `mask` is a local.
        let signals = owned(unsafe { libc::signalfd(-1, &raw const mask, flags) });
        let process = std::process::id().cast_signed();
        // SAFETY: kill(2) demands nothing of memory.
        let raise = || assert_eq!(unsafe { libc::kill(process, libc::SIGUSR1) }, 0);
        is_welcome(&signals, raise, || assert_eq!(read(&signals), 128));
        0
    });
    assert_eq!(status, 0);
}

/// The rings of io_uring_setup(2), of four entries.
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

    /// Both rings, or the entries.
    fn map(descriptor: &OwnedFd, offset: i64) -> *mut c_void {
        // SAFETY: mmap(2) demands a valid combination of arguments, and replaces no mapping unless told.
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

    /// The number of the rings to which this word of the parameters is the offset.
    fn number(&self, word: usize) -> &AtomicU32 {
        // SAFETY: `byte_add` demands an offset within the mapping.
        // - the kernel says that it is, for rings of so few entries.
        let place = unsafe { self.memory.byte_add(self.offsets[word] as usize) };
        // SAFETY: a shared reference demands memory that is valid, aligned and only changed as its type
        // allows.
        // - mapped until the process ends; the kernel and these tests change it atomically.
        unsafe { &*place.cast() }
    }

    /// Lets the kernel do nothing, of which a completion tells.
    fn submit(&self) {
        // Words 10 and on are the offsets of the submission ring: its head, its tail, and as the seventh
        // the list of entries. All entries are zeroed, which is an operation that does nothing, and the list
        // names the first of them.
        let tail = self.number(11);
        tail.store(tail.load(Acquire).wrapping_add(1), Release);
        let number = self.descriptor.as_raw_fd();
        // SAFETY: io_uring_enter(2) reads nothing through a null pointer.
        // - none is given.
        let done = unsafe {
            libc::syscall(libc::SYS_io_uring_enter, number, 1, 0, 0, ptr::null::<c_void>(), 0)
        };
        assert_eq!(done, 1, "{}", io::Error::last_os_error());
    }

    /// Takes all completions.
    fn reap(&self) {
        // Words 20 and on are the offsets of the completion ring: its head, its tail.
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

/// The two ends of a new terminal: what a program has, and what its user has.
fn terminal() -> (OwnedFd, OwnedFd) {
    let (mut user, mut program) = (-1, -1);
    // SAFETY: openpty(3) writes a number at each of the first two pointers, and takes null for the rest.
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
    let (program, user) = terminal();
    is_welcome(&program, || write(&user, b"a line\n"), || assert_eq!(read(&program), 7));
    // Only whole lines can be read.
    let system = System::native();
    for trigger in TRIGGERS {
        let both = Interest::IN | Interest::HANGUP;
        let register = |port: &Port<_, _>, end: &OwnedFd| {
            let new = Registration::new(end, "end", both, OneShot::Level);
            enable(port, port.register(new).unwrap(), both, trigger);
        };
        let (program, user) = terminal();
        let port = port_on(&system);
        register(&port, &program);
        write(&user, b"half a line");
        assert_quiet(&port, &system);
        // The user of the terminal is gone: an error and a hang-up. Nothing says whether there is
        // something to read.
        drop(user);
        let ended = Events::IN | Events::HANGUP | Events::WRITE_CLOSED | Events::ERR;
        assert_eq!(whole_report(&port, &system), ended);

        // A program that is gone, with and without something left.
        for left in [&b"last words"[..], b""] {
            let (program, user) = terminal();
            let port = port_on(&system);
            register(&port, &user);
            assert_quiet(&port, &system);
            if !left.is_empty() {
                write(&program, left);
            }
            drop(program);
            let data = if left.is_empty() { Events::NONE } else { Events::IN };
            assert_eq!(report(&port, &system), Events::HANGUP | data, "{trigger:?}");
            assert_eq!(read(&user), left.len());
        }
    }
}
