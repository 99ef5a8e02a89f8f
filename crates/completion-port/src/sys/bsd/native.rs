//! The system calls of the reactor.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use super::calls::{make_own, owned};
use super::process::Process;
use crate::state::facts::{AtEnd, DescriptorKind};
use crate::sys::portable::kqueue::{Event, Filter, KqueueCalls, PipeEndUse, flag, note};
use crate::sys::unix::files::{Pool, is_file};
#[cfg(not(target_os = "macos"))]
use crate::sys::unix::options::read_option;
use crate::sys::unix::options::{Code, last_code, number};
use crate::sys::unix::timeout;
use crate::types::source::Descriptor;

/// The most changes and events of one call.
const MOST: usize = 128;

/// The longest wait of one call. No system promises more than a day (kevent(2) of OpenBSD), and
/// some reject longer waits. The caller checks the clock again.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The states of a TCP connection in which the peer has ended the stream: `TCPS_CLOSED`,
/// `TCPS_CLOSE_WAIT`, `TCPS_CLOSING`, `TCPS_LAST_ACK` and `TCPS_TIME_WAIT` of netinet/tcp_fsm.h.
const PEER_ENDED: [u8; 5] = [0, 5, 7, 8, 10];

/// The TCP option whose first byte is the state of the connection.
#[cfg(not(target_os = "macos"))]
const TCP_STATE: i32 = libc::TCP_INFO;
#[cfg(target_os = "macos")]
const TCP_STATE: i32 = libc::TCP_CONNECTION_INFO;

// The reactor's bits are those of the system.
#[allow(clippy::cast_possible_truncation, reason = "bits that fit")]
const _: () = {
    assert!(flag::ADD == libc::EV_ADD as u16 && flag::DELETE == libc::EV_DELETE as u16);
    assert!(flag::ENABLE == libc::EV_ENABLE as u16 && flag::DISABLE == libc::EV_DISABLE as u16);
    assert!(flag::ONCE == libc::EV_ONESHOT as u16 && flag::CLEAR == libc::EV_CLEAR as u16);
    assert!(flag::ERROR == libc::EV_ERROR as u16 && flag::EOF == libc::EV_EOF as u16);
    assert!(note::LOWEST == libc::NOTE_LOWAT && note::TRIGGER == libc::NOTE_TRIGGER);
};

/// The calls of this system, and their state.
pub(in crate::sys) struct Native {
    pub(super) process: Process,
    /// Performs file operations; made with the first one.
    pub(super) files: OnceLock<Pool>,
}

impl Native {
    pub(super) fn new() -> Self {
        Self { process: Process::current(), files: OnceLock::new() }
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // A forked child does not have the threads, and their locks may be held forever.
            self.files.take().map(std::mem::forget);
        }
    }
}

/// An open kqueue. A forked child does not inherit it: its number names nothing or another object
/// there.
pub(in crate::sys) struct OpenKqueue {
    descriptor: Option<OwnedFd>,
    process: Process,
}

impl OpenKqueue {
    fn number(&self) -> Descriptor {
        self.descriptor.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl Drop for OpenKqueue {
    fn drop(&mut self) {
        if !self.process.is_current() {
            std::mem::forget(self.descriptor.take());
        }
    }
}

/// Uses `as _` because the fields have different types on these systems.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_lossless,
    clippy::unnecessary_cast,
    reason = "each value fits, as it has come from such a field or is a constant of the system"
)]
mod raw {
    use super::{Event, Filter, MaybeUninit, note, ptr};

    fn number(filter: Filter) -> i64 {
        match filter {
            Filter::Read => libc::EVFILT_READ as i64,
            Filter::Write => libc::EVFILT_WRITE as i64,
            Filter::User => libc::EVFILT_USER as i64,
            #[cfg(any(target_os = "macos", target_os = "openbsd"))]
            Filter::Except => libc::EVFILT_EXCEPT as i64,
            // Never used on systems without it.
            #[cfg(not(any(target_os = "macos", target_os = "openbsd")))]
            Filter::Except => libc::EVFILT_READ as i64,
        }
    }

    /// Returns the notes of a change for this system.
    fn notes(event: &Event) -> u32 {
        match event.filter {
            #[cfg(any(target_os = "macos", target_os = "openbsd"))]
            Filter::Except => libc::NOTE_OOB,
            Filter::User => event.notes & note::TRIGGER,
            _ => event.notes,
        }
    }

    pub(super) fn change(event: &Event) -> libc::kevent {
        // SAFETY: `assume_init` requires an initialized value.
        // - zeros are valid numbers and a null pointer; some systems have more fields than are set
        //   below.
        let mut raw: libc::kevent = unsafe { MaybeUninit::zeroed().assume_init() };
        raw.ident = event.descriptor as usize;
        raw.filter = number(event.filter) as _;
        raw.flags = event.flags as _;
        raw.fflags = notes(event);
        raw.data = event.data as _;
        raw.udata = ptr::without_provenance_mut(event.name as usize);
        raw
    }

    pub(super) fn event(raw: &libc::kevent) -> Event {
        let number_of = raw.filter as i64;
        let all = [Filter::Read, Filter::Write, Filter::Except, Filter::User];
        let filter = all.into_iter().find(|filter| number(*filter) == number_of);
        Event {
            descriptor: raw.ident as i32,
            filter: filter.unwrap_or(Filter::User),
            flags: raw.flags as u16,
            notes: raw.fflags,
            data: raw.data as i64,
            name: raw.udata.addr() as u64,
        }
    }
}

impl KqueueCalls for Native {
    type Queue = OpenKqueue;
    /// The reading end and the writing end.
    type Pipe = [OwnedFd; 2];

    const HAS_EXCEPT: bool = cfg!(any(target_os = "macos", target_os = "openbsd"));

    fn name(&self) -> &'static str {
        "kqueue"
    }

    fn queue(&self) -> Result<OpenKqueue, Code> {
        // SAFETY: kqueue(2) has no memory requirements.
        let descriptor = owned(unsafe { libc::kqueue() })?;
        // SAFETY: fcntl(2) with F_SETFD has no memory requirements.
        unsafe { libc::fcntl(descriptor.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        Ok(OpenKqueue { descriptor: Some(descriptor), process: self.process })
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_possible_wrap,
        clippy::unnecessary_cast,
        reason = "small numbers, which each system has in another type"
    )]
    fn event(
        &self,
        queue: &OpenKqueue,
        changes: &[Event],
        room: &mut [Event],
        timeout: Option<Duration>,
    ) -> Result<usize, Code> {
        let mut raw_changes = [const { MaybeUninit::<libc::kevent>::uninit() }; MOST];
        let mut raw_room = [const { MaybeUninit::<libc::kevent>::uninit() }; MOST];
        for (place, change) in raw_changes.iter_mut().zip(changes) {
            place.write(raw::change(change));
        }
        let limit = timeout.map(|timeout| timeout::timespec(timeout.min(LONGEST)));
        let (number_of_changes, places) = (changes.len().min(MOST), room.len().min(MOST));
        // SAFETY: kevent(2) reads as many changes at the first pointer as the argument after it
        // says, writes at most as many events at the second as the argument after that says, and
        // reads a timespec at the last, unless that is null.
        // - valid for reads: that many changes were written above; `limit` lives until the call
        //   returns;
        // - valid for writes: `raw_room` is a local with room for that many.
        let count = unsafe {
            libc::kevent(
                queue.number(),
                raw_changes.as_ptr().cast(),
                number_of_changes as _,
                raw_room.as_mut_ptr().cast(),
                places as _,
                limit.as_ref().map_or(ptr::null(), ptr::from_ref),
            )
        };
        let Ok(count) = usize::try_from(count) else { return Err(last_code()) };
        for (place, event) in room.iter_mut().zip(&raw_room[..count]) {
            // SAFETY: `assume_init_ref` requires an initialized value.
            // - the kernel has written the first `count`.
            *place = raw::event(unsafe { event.assume_init_ref() });
        }
        Ok(count)
    }

    fn number(&self, queue: &OpenKqueue) -> Option<Descriptor> {
        Some(queue.number())
    }

    fn pipe(&self) -> Result<[OwnedFd; 2], Code> {
        let mut ends = [-1; 2];
        // SAFETY: pipe(2) writes two numbers at the pointer.
        // - valid for writes: `ends` is a local with two.
        if unsafe { libc::pipe(ends.as_mut_ptr()) } < 0 {
            return Err(last_code());
        }
        let [reader, writer] = ends;
        let ends = [owned(reader)?, owned(writer)?];
        ends.iter().try_for_each(make_own)?;
        Ok(ends)
    }

    fn ends(&self, ends: &[OwnedFd; 2]) -> [Descriptor; 2] {
        ends.each_ref().map(AsRawFd::as_raw_fd)
    }

    fn fill(&self, [_, writer]: &[OwnedFd; 2]) {
        // SAFETY: write(2) reads as many bytes at the pointer as its third argument says.
        // - valid for reads: it points to a byte of the program. If the pipe is full, it already
        //   has an event that was not taken.
        unsafe { libc::write(writer.as_raw_fd(), b"x".as_ptr().cast(), 1) };
    }

    fn drain(&self, [reader, _]: &[OwnedFd; 2]) {
        let mut room = [0_u8; 64];
        loop {
            // SAFETY: read(2) writes at most as many bytes at the pointer as its third argument
            // says.
            // - valid for writes: `room` is a local with that many.
            let read =
                unsafe { libc::read(reader.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
            if read <= 0 {
                return;
            }
        }
    }

    fn is_file(&self, descriptor: Descriptor) -> bool {
        is_file(descriptor) && !is_terminal(descriptor)
    }

    #[cfg(not(target_os = "macos"))]
    fn prepare(&self, _descriptor: Descriptor) {}

    #[cfg(target_os = "macos")]
    fn prepare(&self, descriptor: Descriptor) {
        let on: libc::c_int = 1;
        // SAFETY: setsockopt(2) reads as many bytes at the pointer as its last argument says.
        // - valid for reads: `on` is a local of that size. It fails for a descriptor that is not a
        //   socket.
        unsafe {
            libc::setsockopt(
                descriptor,
                libc::SOL_SOCKET,
                libc::SO_NOSIGPIPE,
                (&raw const on).cast(),
                4,
            )
        };
    }

    fn pending_error(&self, descriptor: Descriptor) -> Option<Code> {
        let mut byte = [0_u8; 1];
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: recv(2) writes at most as many bytes at the pointer as its third argument says.
        // - valid for writes: `byte` is a local of one byte.
        let done = unsafe { libc::recv(descriptor, byte.as_mut_ptr().cast(), 1, flags) };
        if done >= 0 {
            return None;
        }
        match last_code() {
            libc::EAGAIN | libc::EINTR | libc::ENOTCONN | libc::ENOTSOCK => None,
            // A datagram that is longer than the room.
            libc::EMSGSIZE => None,
            code => Some(code),
        }
    }

    fn pipe_end(&self, descriptor: Descriptor) -> PipeEndUse {
        // SAFETY: fcntl(2) with F_GETFL has no memory requirements.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        match flags & libc::O_ACCMODE {
            libc::O_RDONLY if flags >= 0 => PipeEndUse::Reads,
            libc::O_WRONLY if flags >= 0 => PipeEndUse::Writes,
            _ => PipeEndUse::Both,
        }
    }

    fn unread(&self, descriptor: Descriptor, _end: AtEnd) -> Option<usize> {
        // The ioctl also counts data after an urgent mark: the system keeps urgent data separately.
        let mut count: libc::c_int = 0;
        // SAFETY: ioctl(2) with FIONREAD writes one int at the pointer, or fails.
        // - valid for writes: `count` lives until the call returns.
        let done = unsafe { libc::ioctl(descriptor, libc::FIONREAD, &raw mut count) };
        if done == 0 { usize::try_from(count).ok() } else { None }
    }

    fn is_own_end(&self, descriptor: Descriptor) -> bool {
        state_of(descriptor).is_some_and(|state| !PEER_ENDED.contains(&state))
    }

    #[cfg(not(target_os = "macos"))]
    fn was_connected(&self, descriptor: Descriptor) -> bool {
        // Only a reply to sent data sets the round-trip time, and a refusal is not one.
        let mut info = [0; std::mem::offset_of!(libc::tcp_info, tcpi_rtt) + 4];
        let told = read_option(descriptor, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info);
        told == Ok(info.len()) && info[info.len() - 4..] != [0; 4]
    }

    #[cfg(target_os = "macos")]
    fn was_connected(&self, _descriptor: Descriptor) -> bool {
        // What the option reports for a connection that was reset is unknown.
        false
    }

    fn kind(&self, descriptor: Descriptor) -> DescriptorKind {
        match number(descriptor, libc::SOL_SOCKET, libc::SO_TYPE) {
            Ok(libc::SOCK_STREAM) => DescriptorKind::Stream,
            Ok(libc::SOCK_SEQPACKET) => DescriptorKind::Records,
            Ok(_) => DescriptorKind::Datagram,
            Err(_) => DescriptorKind::NoSocket,
        }
    }
}

/// Returns the state of a TCP connection.
///
/// The kernel truncates the rest of the option, or requires room for all of it.
fn state_of(descriptor: Descriptor) -> Option<u8> {
    let mut info = [0_u8; 512];
    let read =
        crate::sys::unix::options::read_option(descriptor, libc::IPPROTO_TCP, TCP_STATE, &mut info);
    read.is_ok_and(|len| len > 0).then_some(info[0])
}

/// Returns whether a device is a terminal. Terminals can be watched.
fn is_terminal(descriptor: Descriptor) -> bool {
    // SAFETY: isatty(3) has no memory requirements.
    unsafe { libc::isatty(descriptor) == 1 }
}
