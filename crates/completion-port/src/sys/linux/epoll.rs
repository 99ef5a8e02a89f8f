//! The back end of Linux: one edge-triggered epoll set, and an eventfd that wakes its wait.

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::blocked;
use super::calls;
use super::clock;
use super::errors::{EPOLL_WAIT, fault_of_wait};
use super::files::FileService;
use super::process::Process;
use super::thread::Current;
use crate::backend::host::{Host, Origin};
use crate::backend::reactor::{Reactor, Until, Watch};
use crate::backend::thread::Thread;
use crate::state::facts::{AtEnd, DescriptorKind, Edge, Facts, Probe};
use crate::state::moment::Moment;
use crate::state::table::Descriptors;
use crate::sys::portable::errors::{Code, Retries};
use crate::sys::unix::errors::{POLL, repeat_for};
use crate::sys::unix::options::{last_code, number, option, read_option};
use crate::sys::unix::timeout;
use crate::types::config::FileEngine;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// The name of the eventfd. No slot has it.
const WAKE: u64 = u64::MAX;

/// Makes an entry report one edge, and nothing more until it is changed.
const ONCE: u32 = libc::EPOLLONESHOT.cast_unsigned();

/// Returns the epoll bits that watch a descriptor for the `wanted` facts.
///
/// The kernel always reports ERR and HUP. The end of a stream wakes a set whatever is requested,
/// and RDHUP makes it an edge. Urgent data causes the same wake as other data, so it is requested
/// only together with IN.
fn watched(wanted: Facts) -> u32 {
    let urgent = if wanted.has(Facts::IN) { Facts::URGENT } else { Facts::NONE };
    (wanted | urgent | Facts::RDHUP).bits()
}

/// The states of a TCP connection in which the peer has ended the stream: `TCP_CLOSE`,
/// `TCP_CLOSE_WAIT`, `TCP_LAST_ACK` and `TCP_CLOSING` of the kernel's tcp_states.h.
const PEER_ENDED: [u8; 4] = [7, 8, 9, 11];

/// The file systems of the kernel's own state, from linux/magic.h: proc, sysfs, and cgroups 1 and
/// 2.
const CHANGING: [i64; 4] = [0x9fa0, 0x6265_6572, 0x0027_e0eb, 0x6367_7270];

/// The most descriptors in one poll(2).
const ROOM: usize = 64;

/// Room for the kernel to write edges to.
type EdgeRoom = [MaybeUninit<Edge>];

pub(in crate::sys) struct Epoll {
    process: Process,
    set: OwnedFd,
    wake: OwnedFd,
    /// Entries are armed for one edge at a time, as on systems without edge-triggered sets.
    is_one_shot: bool,
    /// Whether epoll_pwait2(2) works, as far as is known.
    is_precise: AtomicBool,
    pub(super) files: FileService,
}

fn last_fault() -> Fault {
    let code = io::Error::last_os_error().raw_os_error();
    let kind = match code {
        Some(libc::EBADF) => ErrorKind::BadDescriptor,
        Some(libc::EEXIST) => ErrorKind::AlreadyRegistered,
        Some(libc::EINVAL | libc::ELOOP | libc::EPERM) => ErrorKind::NotPollable,
        Some(libc::EMFILE | libc::ENFILE) => ErrorKind::DescriptorLimit,
        Some(libc::ENOMEM) => ErrorKind::OutOfMemory,
        Some(libc::ENOSPC) => ErrorKind::WatchLimit,
        _ => ErrorKind::Other,
    };
    Fault { kind, code }
}

fn owned(descriptor: Descriptor) -> Result<OwnedFd, Fault> {
    if descriptor < 0 {
        return Err(last_fault());
    }
    // SAFETY: `from_raw_fd` requires an open descriptor that nothing else owns.
    // - the caller's system call has just returned it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

fn new_set() -> Result<OwnedFd, Fault> {
    // SAFETY: epoll_create1(2) has no memory requirements.
    owned(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })
}

fn add(set: &OwnedFd, descriptor: Descriptor, events: u32, name: u64) -> Result<(), Fault> {
    control(set, libc::EPOLL_CTL_ADD, descriptor, events, name)
}

fn control(
    set: &OwnedFd,
    operation: i32,
    descriptor: Descriptor,
    events: u32,
    name: u64,
) -> Result<(), Fault> {
    let mut event = libc::epoll_event { events, u64: name };
    // SAFETY: epoll_ctl(2) reads one event at the pointer.
    // - valid for reads: `event` lives until the call returns. The kernel treats descriptors as
    //   numbers.
    let done = unsafe { libc::epoll_ctl(set.as_raw_fd(), operation, descriptor, &raw mut event) };
    if done == 0 { Ok(()) } else { Err(last_fault()) }
}

fn delete(set: &OwnedFd, descriptor: Descriptor) {
    // SAFETY: epoll_ctl(2) with EPOLL_CTL_DEL ignores the pointer since Linux 2.6.9. It fails if
    // the descriptor is not in the set, which is the desired state.
    unsafe {
        libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_DEL, descriptor, std::ptr::null_mut())
    };
}

// Facts have the bits of epoll_ctl(2), and an edge has the layout that epoll_wait(2) writes.
const _: () = {
    assert!(Facts::IN.bits() == libc::EPOLLIN.cast_unsigned());
    assert!(Facts::OUT.bits() == libc::EPOLLOUT.cast_unsigned());
    assert!(Facts::RDHUP.bits() == libc::EPOLLRDHUP.cast_unsigned());
    assert!(Facts::HUP.bits() == libc::EPOLLHUP.cast_unsigned());
    assert!(Facts::ERR.bits() == libc::EPOLLERR.cast_unsigned());
    assert!(Facts::URGENT.bits() == libc::EPOLLPRI.cast_unsigned());
    assert!(size_of::<Edge>() == size_of::<libc::epoll_event>());
    assert!(align_of::<Edge>() == align_of::<libc::epoll_event>());
    assert!(offset_of!(Edge, facts) == offset_of!(libc::epoll_event, events));
    assert!(offset_of!(Edge, name) == offset_of!(libc::epoll_event, u64));
};

fn facts_of_poll(events: i16) -> Facts {
    let known = [
        (libc::POLLIN, Facts::IN),
        (libc::POLLOUT, Facts::OUT),
        (libc::POLLRDHUP, Facts::RDHUP),
        (libc::POLLHUP, Facts::HUP),
        (libc::POLLERR, Facts::ERR),
        (libc::POLLNVAL, Facts::CLOSED),
        (libc::POLLPRI, Facts::URGENT),
    ];
    let mut facts = Facts::NONE;
    for (bit, fact) in known {
        if events & bit != 0 {
            facts |= fact;
        }
    }
    facts
}

/// Makes one poll(2) for at most `ROOM` probes. `EINVAL`: the process may not poll that many.
#[inline]
fn poll(probes: &mut [Probe]) -> Result<(), Code> {
    let mut questions = [libc::pollfd { fd: -1, events: 0, revents: 0 }; ROOM];
    for (question, probe) in questions.iter_mut().zip(probes.iter()) {
        question.fd = probe.descriptor;
        question.events = libc::POLLIN | libc::POLLPRI | libc::POLLOUT | libc::POLLRDHUP;
    }
    let count = probes.len() as libc::nfds_t;
    // SAFETY: poll(2) reads and writes as many elements at the pointer as its second argument says.
    // - valid: `questions` has ROOM elements, and `probes` has at most that many;
    // - not shared: it is a local of this function.
    repeat_for(&POLL, || unsafe { libc::poll(questions.as_mut_ptr(), count, 0) as libc::ssize_t })?;
    for (question, probe) in questions.iter().zip(probes.iter_mut()) {
        probe.facts = facts_of_poll(question.revents);
    }
    Ok(())
}

/// Returns whether the limit of descriptors is zero. poll(2) then always fails.
fn may_have_no_descriptor() -> bool {
    let mut limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: getrlimit(2) writes one structure at the pointer.
    // - valid for writes: `limit` lives until the call returns.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur == 0
}

/// Returns the int that ioctl(2) writes for this request.
fn answer(descriptor: Descriptor, question: libc::Ioctl) -> Option<i32> {
    let mut answer: libc::c_int = 0;
    // SAFETY: ioctl(2) with FIONREAD or SIOCATMARK writes one int at the pointer, or fails.
    // - valid for writes: `answer` lives until the call returns.
    let done = unsafe { libc::ioctl(descriptor, question, &raw mut answer) };
    (done == 0).then_some(answer)
}

/// `SIOCATMARK` of asm-generic/sockios.h. Kernels with another number fail the ioctl.
const AT_MARK: libc::Ioctl = 0x8905;

/// Returns whether the next read starts at an urgent mark.
///
/// It also reports the mark after the urgent byte was read, when POLLPRI no longer does.
fn is_at_mark(descriptor: Descriptor) -> bool {
    answer(descriptor, AT_MARK).is_some_and(|is_at_mark| is_at_mark != 0)
}

/// Peeks whether a read would return bytes: 0 or 1. The caller knows that no error is pending.
fn look(descriptor: Descriptor) -> Option<usize> {
    let mut byte = 0_u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: recv(2) writes at most as many bytes at the pointer as its third argument says.
    // - valid for writes: `byte` is a local of one byte.
    let len = unsafe { libc::recv(descriptor, (&raw mut byte).cast(), 1, flags) };
    match usize::try_from(len) {
        Ok(len) => Some(len),
        Err(_) => match io::Error::last_os_error().raw_os_error() {
            // For other objects than sockets, the ioctl's count is right.
            Some(libc::EAGAIN | libc::ENOTCONN | libc::ENOTSOCK | libc::EINVAL) => Some(0),
            // A read will report the error.
            _ => None,
        },
    }
}

impl Epoll {
    /// Makes a set with one-shot entries.
    pub(in crate::sys) fn one_shot() -> Result<Self, Fault> {
        Ok(Self { is_one_shot: true, ..Self::new()? })
    }

    /// Selects how file operations are performed.
    pub(super) fn with_files(mut self, engine: FileEngine) -> Result<Self, Fault> {
        self.files = FileService::new(self.process, engine)?;
        Ok(self)
    }

    /// Makes a set with edge-triggered entries.
    pub(in crate::sys) fn new() -> Result<Self, Fault> {
        let process = Process::current();
        let set = new_set()?;
        // SAFETY: eventfd(2) has no memory requirements.
        let wake = owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        let this = Self {
            process,
            set,
            wake,
            is_one_shot: false,
            is_precise: AtomicBool::new(true),
            files: FileService::new(process, FileEngine::Automatic)?,
        };
        this.watch_wake(&this.set)?;
        Ok(this)
    }

    #[allow(clippy::cast_sign_loss, reason = "a set of bits that libc declares as signed")]
    fn watch_wake(&self, set: &OwnedFd) -> Result<(), Fault> {
        // Edge-triggered, so each write makes one edge. The counter is never read.
        add(set, self.wake.as_raw_fd(), (libc::EPOLLIN | libc::EPOLLET) as u32, WAKE)
    }

    /// Returns the bits of an entry for the `wanted` facts.
    fn entry(&self, wanted: Facts, until: Until) -> u32 {
        match until {
            Until::Edge if self.is_one_shot => watched(wanted) | ONCE,
            Until::Room if self.is_one_shot => watched(wanted) & !Facts::RDHUP.bits() | ONCE,
            _ => watched(wanted) | libc::EPOLLET.cast_unsigned(),
        }
    }

    /// Returns the bits of a new entry.
    fn first_entry(&self, wanted: Facts) -> u32 {
        // An entry with no other bit is disabled: it does not report even errors.
        if self.is_one_shot { ONCE } else { self.entry(wanted, Until::Detached) }
    }

    /// Returns whether a descriptor belongs to this back end.
    ///
    /// The set already watches its eventfd, under a name that no registration may replace.
    fn consists_of(&self, descriptor: Descriptor) -> bool {
        [&self.set, &self.wake].into_iter().any(|part| part.as_raw_fd() == descriptor)
    }

    /// Makes one epoll_wait(2) or epoll_pwait2(2). A signal may end it early.
    ///
    /// Returns how many edges it has written to the start of `room`.
    fn wait(&self, room: &mut EdgeRoom, timeout: Option<Duration>) -> Result<usize, Code> {
        let limit = match timeout {
            None => -1,
            Some(Duration::ZERO) => 0,
            Some(timeout) => {
                if let Some(count) = self.wait_precisely(room, timeout) {
                    return Ok(count);
                }
                timeout::whole_milliseconds(timeout)
            }
        };
        let waited = epoll_wait(&self.set, room, limit);
        waited.or_else(|code| wait_again(&self.set, room, code, epoll_wait))
    }

    /// Like [`Epoll::wait`], with nanosecond precision.
    ///
    /// Returns `None` if the kernel has no such call (before 5.11) or a sandbox does not know it.
    fn wait_precisely(&self, room: &mut EdgeRoom, timeout: Duration) -> Option<usize> {
        if !self.is_precise.load(Relaxed) {
            return None;
        }
        let waited = epoll_pwait2(&self.set, room, timeout);
        let at_once = |set: &_, room: &mut _, _| epoll_pwait2(set, room, Duration::ZERO);
        let waited = waited.or_else(|code| wait_again(&self.set, room, code, at_once));
        if waited.is_err() {
            // If the set is the cause, the other call fails too.
            self.is_precise.store(false, Relaxed);
        }
        waited.ok()
    }
}

/// Polls a set without waiting, after a wait has failed with `code`.
///
/// Signals do not interrupt a call that does not wait. If this call keeps failing with the same
/// code, a signal is not the cause.
#[cold]
fn wait_again(
    set: &OwnedFd,
    room: &mut EdgeRoom,
    mut code: Code,
    call: impl Fn(&OwnedFd, &mut EdgeRoom, i32) -> Result<usize, Code>,
) -> Result<usize, Code> {
    let mut retries = Retries::default();
    while retries.pass(&EPOLL_WAIT, code) {
        match call(set, room, 0) {
            Ok(count) => return Ok(count),
            Err(last) => code = last,
        }
    }
    Err(code)
}

/// Returns how many events a call may write to `room`.
fn places(room: &EdgeRoom) -> i32 {
    i32::try_from(room.len()).unwrap_or(i32::MAX)
}

/// Calls epoll_wait(2). Returns how many edges it has written to the start of `room`.
fn epoll_wait(set: &OwnedFd, room: &mut EdgeRoom, milliseconds: i32) -> Result<usize, Code> {
    let most = places(room);
    // SAFETY: epoll_wait(2) writes at most `most` events at the pointer and returns their number.
    // - valid for writes: `room` has at least `most` elements, with the layout of events (see
    //   above);
    // - not shared: it is mutably borrowed during the call.
    let count =
        unsafe { libc::epoll_wait(set.as_raw_fd(), room.as_mut_ptr().cast(), most, milliseconds) };
    usize::try_from(count).map_err(|_| last_code())
}

/// Calls epoll_pwait2(2). Returns how many edges it has written to the start of `room`.
fn epoll_pwait2(set: &OwnedFd, room: &mut EdgeRoom, timeout: Duration) -> Result<usize, Code> {
    let (most, limit) = (places(room), timeout::timespec(timeout));
    // SAFETY: epoll_pwait2(2) writes at most `most` events at the first pointer, reads a timespec
    // at the second, and takes no signal mask from a null pointer.
    // - valid for writes: `room` has at least `most` elements, with the layout of events (see
    //   above);
    // - valid for reads: `limit` lives until the call returns.
    let count = unsafe {
        libc::syscall(
            libc::SYS_epoll_pwait2,
            set.as_raw_fd(),
            room.as_mut_ptr(),
            most,
            &raw const limit,
            std::ptr::null::<libc::sigset_t>(),
            0_usize,
        )
    };
    usize::try_from(count).map_err(|_| last_code())
}

impl Reactor for Epoll {
    fn name(&self) -> &'static str {
        if self.is_one_shot { "epoll, one-shot" } else { "epoll" }
    }

    fn is_one_shot(&self) -> bool {
        self.is_one_shot
    }

    fn attach(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault> {
        if self.consists_of(descriptor) {
            return Err(Fault { kind: ErrorKind::NotPollable, code: None });
        }
        let entry = self.first_entry(wanted);
        add(&self.set, descriptor, entry, name)
    }

    fn adopt(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault> {
        let entry = self.first_entry(wanted);
        control(&self.set, libc::EPOLL_CTL_MOD, descriptor, entry, name)
    }

    fn want(
        &self,
        descriptor: Descriptor,
        name: u64,
        wanted: Facts,
        until: Until,
    ) -> Result<(), Fault> {
        let entry = self.entry(wanted, until);
        control(&self.set, libc::EPOLL_CTL_MOD, descriptor, entry, name)
    }

    fn detach(&self, descriptor: Descriptor) {
        delete(&self.set, descriptor);
    }

    fn watches(&self, descriptor: Descriptor) -> bool {
        // Adding it again fails, without any effect, if and only if the set has it. No slot has
        // this name. If the set did not have it, it is removed again.
        match add(&self.set, descriptor, 0, WAKE) {
            Err(fault) => fault.kind == ErrorKind::AlreadyRegistered,
            Ok(()) => {
                delete(&self.set, descriptor);
                false
            }
        }
    }

    fn poll(&self, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> Result<bool, Fault> {
        edges.clear();
        let count = self.wait(edges.spare_capacity_mut(), timeout);
        let count = count.map_err(fault_of_wait)?;
        // SAFETY: `set_len` requires that `count` elements lie within the capacity and are
        // initialized.
        // - within: the list is empty, so its spare capacity is all of its capacity, and `wait`
        //   wrote there;
        // - initialized: `wait` says that it has written the first `count`.
        unsafe { edges.set_len(count) };
        let woken = edges.iter().any(|edge| edge.name == WAKE);
        if woken {
            edges.retain(|edge| edge.name != WAKE);
        }
        Ok(woken)
    }

    fn wake(&self) {
        let one = 1_u64.to_ne_bytes();
        // SAFETY: write(2) reads as many bytes at the pointer as its third argument says.
        // - valid for reads: `one` has eight bytes, which is the size of a write to an eventfd. The
        //   write fails only when the counter would overflow, after 2^64 - 2 wakes.
        unsafe { libc::write(self.wake.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn probe(&self, probes: &mut [Probe]) -> Result<(), Fault> {
        for part in probes.chunks_mut(ROOM) {
            match poll(part) {
                Ok(()) => continue,
                // More than the process may have descriptors: poll one at a time.
                Err(libc::EINVAL) => {}
                Err(code) => return Err(fault_of_wait(code)),
            }
            for probe in part.chunks_mut(1) {
                match poll(probe) {
                    Ok(()) => {}
                    // A sandbox may have set the limit of descriptors to zero. The kernel then
                    // reports nothing, and a spurious packet is better than a missing one.
                    Err(libc::EINVAL) if may_have_no_descriptor() => {
                        probe[0].facts = Facts::IN | Facts::OUT;
                    }
                    Err(code) => return Err(fault_of_wait(code)),
                }
            }
        }
        Ok(())
    }

    fn reports_changes(&self, descriptor: Descriptor) -> bool {
        let mut about = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: fstatfs(2) writes a structure at the pointer, or fails.
        // - valid for writes: `about` lives until the call returns.
        if unsafe { libc::fstatfs(descriptor, about.as_mut_ptr()) } != 0 {
            return false;
        }
        // SAFETY: `assume_init` requires an initialized value.
        // - the call succeeded, so it has written the value.
        let kind = unsafe { about.assume_init() }.f_type;
        #[allow(clippy::cast_lossless, clippy::unnecessary_cast, reason = "the C libraries differ")]
        CHANGING.contains(&(kind as i64))
    }

    fn unread(&self, descriptor: Descriptor, end: AtEnd) -> Option<usize> {
        let counted = answer(descriptor, libc::FIONREAD)?;
        if counted > 0 {
            return usize::try_from(counted).ok();
        }
        // The ioctl counts up to an urgent mark, and it does not count data that a layer over TCP
        // holds.
        let may_hide_some =
            end == AtEnd::Peer || is_at_mark(descriptor) || calls::has_layer(descriptor);
        match end {
            _ if !may_hide_some => Some(0),
            // Without data, peeking would take the error.
            AtEnd::Failed => None,
            AtEnd::Peer | AtEnd::Own => look(descriptor),
        }
    }

    fn is_own_end(&self, descriptor: Descriptor) -> bool {
        // The state is the first byte of TCP_INFO. The kernel truncates the rest.
        let state = option(descriptor, libc::IPPROTO_TCP, libc::TCP_INFO).map(|[state, ..]| state);
        let peer_goes_on = state.is_ok_and(|state| !PEER_ENDED.contains(&state));
        // Multipath TCP reports one of its connections instead of the stream.
        let protocol = || number(descriptor, libc::SOL_SOCKET, libc::SO_PROTOCOL);
        peer_goes_on && protocol() == Ok(libc::IPPROTO_TCP)
    }

    fn was_connected(&self, descriptor: Descriptor) -> bool {
        // Only a reply to sent data sets the round-trip time, and a refusal is not one. The kernel
        // keeps the time until the next connect.
        let mut info = [0; offset_of!(libc::tcp_info, tcpi_rtt) + 4];
        let is_told = read_option(descriptor, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info);
        if is_told == Ok(info.len()) {
            return info[info.len() - 4..] != [0; 4];
        }
        // A connect of this family fails immediately and leaves no state.
        number(descriptor, libc::SOL_SOCKET, libc::SO_DOMAIN) == Ok(libc::AF_UNIX)
    }

    fn kind(&self, descriptor: Descriptor) -> DescriptorKind {
        match number(descriptor, libc::SOL_SOCKET, libc::SO_TYPE) {
            Ok(libc::SOCK_STREAM) => DescriptorKind::Stream,
            Ok(libc::SOCK_SEQPACKET) => DescriptorKind::Records,
            Ok(_) => DescriptorKind::Datagram,
            Err(_) => DescriptorKind::NoSocket,
        }
    }

    fn rebuild(&self, live: &mut dyn Iterator<Item = Watch>) -> Result<(), Fault> {
        let new = new_set()?;
        self.watch_wake(&new)?;
        for Watch { descriptor, name, wanted, until } in live {
            match add(&new, descriptor, self.entry(wanted, until), name) {
                Ok(()) => {}
                // The descriptor was closed without being removed, and its number may have been
                // reused. A check detects that and ends the registration.
                Err(fault)
                    if matches!(fault.kind, ErrorKind::BadDescriptor | ErrorKind::NotPollable) => {}
                Err(fault) => return Err(fault),
            }
        }
        // SAFETY: dup3(2) has no memory requirements.
        // - the number of the old set is ours and stays open throughout: in one step it names the
        //   new set, and a thread that uses the number finds one or the other.
        let done = unsafe { libc::dup3(new.as_raw_fd(), self.set.as_raw_fd(), libc::O_CLOEXEC) };
        if done < 0 { Err(last_fault()) } else { Ok(()) }
    }
}

impl Host for Epoll {
    fn now(&self) -> Moment {
        clock::now()
    }

    fn moment_of(&self, instant: Instant) -> Moment {
        clock::moment_of(instant)
    }

    fn this_thread(&self) -> Box<dyn Thread> {
        Box::new(Current::new(self.process))
    }

    fn can_observe(&self) -> Result<(), Fault> {
        blocked::is_allowed(self.process)
            .map_err(|code| Fault { kind: ErrorKind::Unsupported, code })
    }

    fn origin(&self) -> Origin {
        self.process.origin()
    }

    fn descriptors(&self) -> &Descriptors {
        self.process.descriptors()
    }
}
